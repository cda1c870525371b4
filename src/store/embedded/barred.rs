//! Barred tokens as tables.

use redb::{
    ReadTransaction, ReadableTable, ReadableTableMetadata as _, Table, TableDefinition,
    WriteTransaction,
};

use super::EmbeddedStore;
use super::sessions::Bytes;
use crate::ident::StoredToken;
use crate::store::{BARRED_FOR, BARRED_MAX, BarStore, StoreError};

/// The hash of a token to the second until which it is barred.
const BARRED: TableDefinition<'static, Bytes, u64> = TableDefinition::new("barred");
/// The same by that second, so that the oldest can be let go.
const BARRED_UNTIL: TableDefinition<'static, (u64, Bytes), ()> =
    TableDefinition::new("barred_until");
/// How many are let go at a time, at most.
const LET_GO: usize = 8;

/// The tables, open for one transaction.
pub(super) struct BarTables<'t> {
    barred: Table<'t, Bytes, u64>,
    until: Table<'t, (u64, Bytes), ()>,
}

impl<'t> BarTables<'t> {
    pub(super) fn open(txn: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self { barred: txn.open_table(BARRED)?, until: txn.open_table(BARRED_UNTIL)? })
    }

    /// Bars a token at `now`, in seconds, and lets go those whose time is over.
    pub(super) fn bar(&mut self, token: &StoredToken, now: u64) -> Result<(), redb::Error> {
        for _ in 0..LET_GO {
            let is_full = self.barred.len()? >= BARRED_MAX;
            let first = self.until.first()?.map(|(key, _)| {
                let (until, token) = key.value();
                (until, token.to_vec())
            });
            let Some((until, oldest)) = first.filter(|(until, _)| is_full || *until <= now) else {
                break;
            };
            self.until.remove((until, oldest.as_slice()))?;
            self.barred.remove(oldest.as_slice())?;
        }
        let token = token.digest();
        let token = token.as_bytes();
        let until = now + BARRED_FOR.as_secs();
        let before = self.barred.insert(token, until)?.map(|before| before.value());
        if let Some(before) = before {
            self.until.remove((before, token))?;
        }
        self.until.insert((until, token), ())?;
        Ok(())
    }
}

fn is_barred(txn: &ReadTransaction, token: &StoredToken, now: u64) -> Result<bool, redb::Error> {
    let until = txn.open_table(BARRED)?.get(token.digest().as_bytes())?;
    Ok(until.is_some_and(|until| now < until.value()))
}

impl BarStore for EmbeddedStore {
    async fn bar(&self, token: &StoredToken, now: f64) -> Result<(), StoreError> {
        let token = token.clone();
        self.write_durably(move |tables| tables.barred.bar(&token, now as u64)).await
    }

    async fn is_barred(&self, token: &StoredToken, now: f64) -> Result<bool, StoreError> {
        self.counting(self.0.sessions.read(|txn| is_barred(txn, token, now as u64)))
    }
}
