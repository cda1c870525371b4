//! How keys are laid out in Redis.

/// How keys are laid out in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// As in Redis in Action, chapter 2: `login:`, `recent:`, `viewed:<token>`. One server has all of it.
    #[default]
    Single,
    /// In 64 shards, each in one slot of a Cluster: `login:{s17}`, `viewed:{s17}:<token>`.
    Sharded,
}
