//! Learn mode: whether the cache serves a route, or it is learned what it would do.

/// Whether the cache serves a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheMode {
    /// It serves and stores pages.
    #[default]
    Serve,
    /// It does neither: each request is forwarded, and it is learned what the cache would have done.
    Learn,
}
