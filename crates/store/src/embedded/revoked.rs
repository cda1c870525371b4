//! Revoked tokens as tables.

use anteroom_http::ident::StoredToken;
use redb::{
    ReadTransaction, ReadableTable, ReadableTableMetadata as _, Table, TableDefinition,
    WriteTransaction,
};

use super::EmbeddedStore;
use super::keys::{Bytes, NamedRecord};
use crate::transfer::SharedRecord;
use crate::{REVOKED_FOR, REVOKED_MAX, RevocationStore, StoreError};

/// The hash of a token to the second until which it is revoked.
const REVOKED: TableDefinition<'static, Bytes, u64> = TableDefinition::new("barred");
/// The same by that second, so that the oldest can be dropped.
const REVOKED_UNTIL: TableDefinition<'static, (u64, Bytes), ()> =
    TableDefinition::new("barred_until");
/// The most tokens dropped at a time.
const LET_GO: usize = 8;

/// The tables, open for one transaction.
pub(super) struct RevocationTables<'t> {
    revoked: Table<'t, Bytes, u64>,
    until: Table<'t, (u64, Bytes), ()>,
}

impl<'t> RevocationTables<'t> {
    pub(super) fn open(txn: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self { revoked: txn.open_table(REVOKED)?, until: txn.open_table(REVOKED_UNTIL)? })
    }

    /// Marks a token as revoked at `now`, in seconds, and drops expired ones.
    pub(super) fn mark_revoked(
        &mut self,
        token: &StoredToken,
        now: u64,
    ) -> Result<(), redb::Error> {
        for _ in 0..LET_GO {
            let is_full = self.revoked.len()? >= REVOKED_MAX;
            let first = self.until.first()?.map(|(key, _)| {
                let (until, token) = key.value();
                (until, token.to_vec())
            });
            let Some((until, oldest)) = first.filter(|(until, _)| is_full || *until <= now) else {
                break;
            };
            self.until.remove((until, oldest.as_slice()))?;
            self.revoked.remove(oldest.as_slice())?;
        }
        self.insert(token.digest().as_bytes(), now + REVOKED_FOR.as_secs())
    }

    /// Puts a mark back, by the hash of its token. Where there are too many, the oldest goes.
    pub(super) fn restore(&mut self, digest: &str, until: u64) -> Result<(), redb::Error> {
        let is_new = self.revoked.get(digest.as_bytes())?.is_none();
        if is_new && self.revoked.len()? >= REVOKED_MAX {
            let oldest = self.until.pop_first()?.map(|(key, _)| key.value().1.to_vec());
            if let Some(oldest) = oldest {
                self.revoked.remove(oldest.as_slice())?;
            }
        }
        self.insert(digest.as_bytes(), until)
    }

    fn insert(&mut self, token: &[u8], until: u64) -> Result<(), redb::Error> {
        let before = self.revoked.insert(token, until)?.map(|before| before.value());
        if let Some(before) = before {
            self.until.remove((before, token))?;
        }
        self.until.insert((until, token), ())?;
        Ok(())
    }
}

/// At most `most` marks from this hash on, each with its hash as it is stored.
pub(super) fn export(
    txn: &ReadTransaction,
    from: &[u8],
    most: usize,
) -> Result<Vec<NamedRecord>, redb::Error> {
    let mut found = Vec::new();
    for entry in txn.open_table(REVOKED)?.range(from..)?.take(most) {
        let (digest, until) = entry?;
        let name = String::from_utf8(digest.value().to_vec()).ok();
        let until = until.value() as f64;
        let record = name.map(|digest| SharedRecord::Revoked { digest, until });
        found.push((digest.value().to_vec(), record));
    }
    Ok(found)
}

fn is_revoked(txn: &ReadTransaction, token: &StoredToken, now: u64) -> Result<bool, redb::Error> {
    let until = txn.open_table(REVOKED)?.get(token.digest().as_bytes())?;
    Ok(until.is_some_and(|until| now < until.value()))
}

impl RevocationStore for EmbeddedStore {
    async fn mark_revoked(&self, token: &StoredToken, now: f64) -> Result<(), StoreError> {
        let token = token.clone();
        self.write_durably(move |tables| tables.revoked.mark_revoked(&token, now as u64)).await
    }

    async fn is_revoked(&self, token: &StoredToken, now: f64) -> Result<bool, StoreError> {
        self.counting(self.0.sessions.read(|txn| is_revoked(txn, token, now as u64)))
    }
}
