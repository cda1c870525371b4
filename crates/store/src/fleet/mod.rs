//! The register of the proxies on a store: each writes an entry about itself, and reads those of the others.

mod report;

use std::future::Future;
use std::time::Duration;

pub use self::report::{Fleet, FleetReport, ListedProxy, ProxyEntry};
use super::{Generation, StoreError};

/// The most proxies in the register. Others are not in it.
pub const FLEET_MAX: usize = 256;
/// The longest entry that is read, in bytes.
pub(super) const ENTRY_MAX: usize = 8 << 10;

/// The register, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRegister {
    /// The store's Unix time.
    pub now: f64,
    /// The same, if the store has a clock of its own.
    pub clock: Option<f64>,
    /// How many purges there were.
    pub purges: Generation,
    /// The state of a move to another store, see [`super::MigrationState`]. To the store it is opaque.
    pub moving: Option<String>,
    /// The proxies, in the order of their ids.
    pub proxies: Vec<RegisteredProxy>,
}

/// A proxy in the register.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredProxy {
    /// Its id, which is also the one under which it asks for purges.
    pub process_id: u64,
    /// When it wrote its entry, in the store's Unix time.
    pub written: f64,
    /// Up to where it has seen purges, if the store knows.
    pub seen: Option<Generation>,
    /// Its entry. To the store it is opaque.
    pub entry: String,
}

/// The proxies on a store.
pub trait FleetStore {
    /// Writes the entry of the proxy with this id with the store's time, removes those that are older than `lives`, and
    /// returns all. When [`FLEET_MAX`] others are there, it is not written.
    fn register_proxy(
        &self,
        process_id: u64,
        entry: &str,
        lives: Duration,
    ) -> impl Future<Output = Result<FleetRegister, StoreError>>;

    /// Removes a proxy that ends.
    fn unregister_proxy(&self, process_id: u64) -> impl Future<Output = Result<(), StoreError>>;

    /// Puts `after` in the place of `before` in the state of a move; `None` is no move. After `lives` it ends by itself.
    /// Returns whether it did: another may have changed the state.
    fn change_move(
        &self,
        before: Option<&str>,
        after: Option<&str>,
        lives: Option<Duration>,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// The state of a move.
    fn move_state(&self) -> impl Future<Output = Result<Option<String>, StoreError>>;

    /// Whether the store also has sessions, or a register, in the other layout of keys under the same prefix: no
    /// proxy of this layout sees them. Not known in a Cluster, and so false.
    fn has_other_layout(&self) -> impl Future<Output = Result<bool, StoreError>>;

    /// The prefixes of running proxies that use the same Redis under another one. Not known in a Cluster, or where
    /// Redis does not let its user ask, and so empty.
    fn other_prefixes(&self) -> impl Future<Output = Result<Vec<String>, StoreError>>;
}
