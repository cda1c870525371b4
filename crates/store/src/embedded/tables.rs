//! The tables of sessions, views and carts.

use redb::{Table, TableDefinition, WriteTransaction};

use super::keys::Bytes;
use super::revoked::RevocationTables;
use super::rows::RowTables;
use super::visitor_tables::VisitorTables;

/// The file's own properties.
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Token to its record: `login:`, the scores of `recent:`, and `viewed:<token>`.
pub(super) const SESSION: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("session");
/// The bits of the time when it was last seen and the token, oldest first: `recent:`.
pub(super) const RECENT: TableDefinition<'static, (u64, Bytes), ()> =
    TableDefinition::new("recent");
/// A user's name and the tokens of that user's sessions: `tokens:<user>`. The login times are in
/// the records.
pub(super) const TOKENS: TableDefinition<'static, (Bytes, Bytes), ()> =
    TableDefinition::new("tokens");
/// Token and item to count: `cart:<token>`.
pub(super) const CART: TableDefinition<'static, (Bytes, Bytes), i64> = TableDefinition::new("cart");
/// Item to score, minus one a view: `viewed:`.
pub(super) const POPULARITY: TableDefinition<'static, Bytes, f64> =
    TableDefinition::new("popularity");
/// Sequence number to a record of a cart that is handed on: `expiring:`.
pub(super) const EXPIRING: TableDefinition<'static, u64, Bytes> = TableDefinition::new("expiring");
/// Sequence number to an event: `cartevents:`.
pub(super) const EVENTS: TableDefinition<'static, u64, Bytes> = TableDefinition::new("cart_events");
/// Under its only key the position in `recent:` from which idle sessions have not been reported:
/// `cartidle:`.
pub(super) const IDLE_REPORTED: TableDefinition<'static, &str, (u64, Bytes)> =
    TableDefinition::new("cart_idle");

/// All tables, open for one transaction.
pub(super) struct Tables<'t> {
    pub(super) meta: Table<'t, &'static str, u64>,
    pub(super) session: Table<'t, Bytes, Bytes>,
    pub(super) recent: Table<'t, (u64, Bytes), ()>,
    pub(super) tokens: Table<'t, (Bytes, Bytes), ()>,
    pub(super) cart: Table<'t, (Bytes, Bytes), i64>,
    pub(super) expiring: Table<'t, u64, Bytes>,
    pub(super) events: Table<'t, u64, Bytes>,
    pub(super) idle_reported: Table<'t, &'static str, (u64, Bytes)>,
    pub(super) popularity: Table<'t, Bytes, f64>,
    pub(super) revoked: RevocationTables<'t>,
    pub(super) rows: RowTables<'t>,
    pub(super) visitors: VisitorTables<'t>,
    pub(super) viewed_items: usize,
}

impl<'t> Tables<'t> {
    /// Opens them all; a session keeps this many views.
    pub(super) fn open(
        txn: &'t WriteTransaction,
        viewed_items: usize,
    ) -> Result<Self, redb::Error> {
        Ok(Self {
            meta: txn.open_table(META)?,
            session: txn.open_table(SESSION)?,
            recent: txn.open_table(RECENT)?,
            tokens: txn.open_table(TOKENS)?,
            cart: txn.open_table(CART)?,
            expiring: txn.open_table(EXPIRING)?,
            events: txn.open_table(EVENTS)?,
            idle_reported: txn.open_table(IDLE_REPORTED)?,
            popularity: txn.open_table(POPULARITY)?,
            revoked: RevocationTables::open(txn)?,
            rows: RowTables::open(txn)?,
            visitors: VisitorTables::open(txn)?,
            viewed_items,
        })
    }
}
