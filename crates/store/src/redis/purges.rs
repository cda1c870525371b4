//! Purges in Redis: `purges:` counts them, `purging:` lists the latest, `purged:` is the table,
//! `seen:` records how many each process has seen.

use std::time::Duration;

use bytes::Bytes;

use super::bypass::add_bound;
use super::script::Invocation;
use super::{Pairs, RedisCall, RedisStore, script};
use crate::purge::{
    CUT_OFF_AFTER, Generation, LATER_MARKS, LIVES, MARKS, MarkKey, NEWS_MAX, PURGE_MARKS_MAX,
    PURGES_KEPT, PURGES_KEPT_BYTES, PurgePosition, PurgesSince, StoreNews, is_mark,
};
use crate::{PurgeStore, StoreError, StoredBypasses};

/// The bytes of a mark's number in the table.
const NUMBER: usize = 8;
/// The marks of the table that are read in one piece: longer reads would delay others.
const PIECE: usize = 8_192;
/// The latest purges whose nonces are kept, in a ring after the first part of the table. For a
/// process that is further behind, the store cannot confirm that it knows this history.
const NONCES: usize = 65_536;

// The second part of the table follows the ring.
const _: () = assert!(LATER_MARKS.start as usize == MARKS as usize + NONCES);

/// How much later than [`CUT_OFF_AFTER`] a process may notice that it is cut off: its clock, as
/// that of Redis, has whole milliseconds.
const MARGIN: Duration = Duration::from_millis(100);

/// Era, number, whether the table must be read, the purges, the last one's nonce, the key, the time in
/// milliseconds, and the bypass switches.
type PurgeReply = (u64, u64, u8, Vec<String>, Vec<u8>, Vec<u8>, u64, Pairs);

/// Purges never use the pool: a slow export must not let an outdated page be served.
impl PurgeStore for RedisStore {
    async fn purge(
        &self,
        known: PurgePosition,
        marks: &[u32],
    ) -> Result<Option<PurgePosition>, StoreError> {
        if marks.len() > PURGE_MARKS_MAX || !marks.iter().all(|mark| is_mark(*mark)) {
            return Err(StoreError::Failed("a purge has bad marks".into()));
        }
        let mut script = self.script(&script::PURGE);
        add_position(known, &mut script);
        let nonce = fastrand::u64(1..);
        script.arg("kept", PURGES_KEPT).arg("kept_bytes", PURGES_KEPT_BYTES);
        script.arg("nonce", &nonce.to_be_bytes()[..]).another(marks);
        let number: u64 = self.foreground().acknowledge(&script).await?;
        let at = Generation { number, ..known.at };
        Ok((number > 0).then_some(PurgePosition { at, nonce }))
    }

    async fn news_since(
        &self,
        process_id: u64,
        known: PurgePosition,
    ) -> Result<StoreNews, StoreError> {
        let mut script = self.script(&script::PURGED_SINCE);
        add_bound(&mut script);
        add_position(known, &mut script);
        script.arg("who", field_of(process_id)).arg("news_max", NEWS_MAX);
        script.arg("lives_ms", LIVES.as_millis() as u64);
        let (era, number, is_behind, purges, nonce, key, time, bypasses): PurgeReply =
            self.foreground().invoke(RedisCall::Read, &script).await?;
        let bypasses = StoredBypasses::of(time, &bypasses);
        let (now, nonce) = (Generation { era, number }, nonce_of(&nonce)?);
        if is_behind > 0 {
            let key = key_of(&key)?;
            let upto = PurgePosition { at: now, nonce };
            let purges = PurgesSince::All { upto, key, marks: self.table().await? };
            return Ok(StoreNews { purges, bypasses });
        }
        let purges: Vec<_> = purges.iter().map(|purge| marks_of(purge)).collect();
        let came = Generation { number: known.at.number + purges.len() as u64, ..now };
        let upto = PurgePosition { at: came, nonce };
        let purges = PurgesSince::Since { purges, upto, more: came != now };
        Ok(StoreNews { purges, bypasses })
    }

    async fn is_seen(&self, purge: Generation) -> Result<bool, StoreError> {
        let mut script = self.script(&script::IS_SEEN);
        script.arg("era", purge.era).arg("number", purge.number);
        script.arg("lives_ms", LIVES.as_millis() as u64);
        script.arg("cut_off_ms", (CUT_OFF_AFTER + MARGIN).as_millis() as u64);
        self.foreground().invoke(RedisCall::Read, &script).await
    }

    async fn leave(&self, process_id: u64) -> Result<(), StoreError> {
        let mut command = redis::cmd("HDEL");
        command.arg(&self.keys().seen).arg(field_of(process_id));
        self.foreground().query(RedisCall::Write, &command).await
    }
}

/// The first arguments of both purge scripts.
fn add_position(known: PurgePosition, script: &mut Invocation) {
    script.arg("marks_before", MARKS).arg("nonces_kept", NONCES);
    script.arg("asked_era", known.at.era).arg("asked_number", known.at.number);
    script.arg("asked_nonce", &known.nonce.to_be_bytes()[..]);
    script.arg("next_era", later_than(known.at.era));
    script.arg("next_key", &MarkKey::random().bytes()[..]);
}

/// The field of a process in `seen:` and `fleet:`.
pub(super) fn field_of(process_id: u64) -> String {
    format!("{process_id:016x}")
}

impl RedisStore {
    /// Each mark with its last purge, read in pieces: numbers only grow, so that a concurrent purge
    /// is harmless.
    async fn table(&self) -> Result<Vec<(u32, u64)>, StoreError> {
        let mut marks = Vec::new();
        let parts = [0..MARKS, LATER_MARKS].map(|part| part.start as usize..part.end as usize);
        let pieces = parts.into_iter().flat_map(|part| {
            part.clone().step_by(PIECE).map(move |first| (first, (first + PIECE).min(part.end)))
        });
        for (first, end) in pieces {
            let mut command = redis::cmd("GETRANGE");
            command.arg(&self.keys().purged).arg(first * NUMBER).arg(end * NUMBER - 1);
            let piece: Bytes = self.foreground().query(RedisCall::Read, &command).await?;
            let (numbers, _) = piece.as_chunks::<NUMBER>();
            let numbers = numbers.iter().map(|number| u64::from_be_bytes(*number));
            let numbered = (first as u32..).zip(numbers);
            marks.extend(numbered.filter(|(_, number)| *number > 0));
        }
        Ok(marks)
    }
}

/// A new era: unlike any other store's, and later than any that the caller has known, so that the
/// return of an earlier one is noticed. A number in Lua holds 53 bits.
fn later_than(era: u64) -> u64 {
    match era {
        0 => fastrand::u64(1..1 << 40),
        _ => era + fastrand::u64(1..1 << 20),
    }
}

/// Before the first purge there is none.
fn nonce_of(bytes: &[u8]) -> Result<u64, StoreError> {
    match bytes.try_into() {
        Ok(nonce) => Ok(u64::from_be_bytes(nonce)),
        Err(_) if bytes.is_empty() => Ok(0),
        Err(_) => Err(foreign("nonce")),
    }
}

fn key_of(bytes: &[u8]) -> Result<MarkKey, StoreError> {
    bytes.try_into().map(MarkKey::from_bytes).map_err(|_| foreign("key"))
}

fn foreign(what: &str) -> StoreError {
    StoreError::Failed(format!("purges: holds no {what} of ours").into())
}

/// Values that are not marks are skipped.
fn marks_of(purge: &str) -> Vec<u32> {
    let marks = purge.split(' ').filter_map(|mark| mark.parse().ok());
    marks.filter(|mark| is_mark(*mark)).take(PURGE_MARKS_MAX).collect()
}
