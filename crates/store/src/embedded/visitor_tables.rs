//! The tables of visitors without a login.

use anteroom_http::ident::{Item, VisitorToken};
use redb::{
    ReadableTable as _, ReadableTableMetadata as _, Table, TableDefinition, WriteTransaction,
};

use super::keys::{Bytes, bytes_of};
use super::record::{Record, time_bits};
use crate::VisitorEviction;

/// Token to its [`Record`], which has no user: `viewed:<token>`, and the scores of `visitors:`.
pub(super) const VISITOR: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("visitor");
/// The bits of the time when it was last seen and the token, oldest first: `visitors:`.
pub(super) const VISITORS: TableDefinition<'static, (u64, Bytes), ()> =
    TableDefinition::new("visitors");

/// The tables, open for one transaction.
pub(super) struct VisitorTables<'t> {
    pub(super) record: Table<'t, Bytes, Bytes>,
    pub(super) seen: Table<'t, (u64, Bytes), ()>,
}

impl<'t> VisitorTables<'t> {
    pub(super) fn open(txn: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self { record: txn.open_table(VISITOR)?, seen: txn.open_table(VISITORS)? })
    }

    pub(super) fn has(&self, token: &VisitorToken) -> Result<bool, redb::Error> {
        Ok(self.record.get(bytes_of(token.as_stored()))?.is_some())
    }

    /// Records that a token was seen, and its views, added to what it had before. An unknown token
    /// begins here. The time never goes back.
    pub(super) fn renew(
        &mut self,
        token: &VisitorToken,
        seen: f64,
        views: &[(Item, f64)],
        keep: usize,
    ) -> Result<(), redb::Error> {
        let token = bytes_of(token.as_stored());
        let (before, seen, value) = {
            let stored = self.record.get(token)?;
            let known = stored.as_ref().and_then(|stored| Record::read(stored.value()));
            let before = known.as_ref().map(|known| known.seen);
            let mut record = known.unwrap_or_default();
            record.seen = record.seen.max(time_bits(seen));
            record.view(views, keep);
            (before, record.seen, record.write())
        };
        self.record.insert(token, value.as_slice())?;
        if before != Some(seen) {
            if let Some(before) = before {
                self.seen.remove((before, token))?;
            }
            self.seen.insert((seen, token), ())?;
        }
        Ok(())
    }

    /// Removes a token's record, and returns it.
    pub(super) fn remove(&mut self, token: &VisitorToken) -> Result<Option<Vec<u8>>, redb::Error> {
        let token = bytes_of(token.as_stored());
        let Some(stored) = self.record.remove(token)?.map(|stored| stored.value().to_vec()) else {
            return Ok(None);
        };
        if let Some(known) = Record::head_of(&stored) {
            self.seen.remove((known.seen, token))?;
        }
        Ok(Some(stored))
    }

    /// The token last seen the longest ago, if it is over the limit.
    pub(super) fn oldest_over(
        &self,
        how: VisitorEviction,
    ) -> Result<Option<(u64, Vec<u8>)>, redb::Error> {
        let is_over = self.seen.len()? > how.keep;
        let oldest = self.seen.first()?.map(|(place, _)| {
            let (seen, token) = place.value();
            (seen, token.to_vec())
        });
        Ok(oldest.filter(|(seen, _)| is_over || *seen < time_bits(how.before)))
    }
}
