//! The copy from one store to another.
//!
//! Every step may be repeated: records replace what the target has of the same token, so a copy that broke off is
//! started again. The source is what counts, until requests are answered from the target.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::StoredToken;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tokio::time::{Instant, sleep};

use super::{
    SharedKind, StoreCounts, TRANSFER_BATCH, TransferCursor, TransferPage, TransferStore as _,
    is_visitor,
};
use crate::{AnyStore, LogInStore as _, StoreError};

/// Batches that are copied at a time. Each has at most [`TRANSFER_BATCH`] records.
const IN_FLIGHT: usize = 2;
/// How long a step is tried again while a store is away.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before a step is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// A source without any token has lost its data, if the target has at least this many.
const LOST: u64 = 100;

/// Copies from one store to another.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The source. It may be in use.
    pub from: AnyStore,
    /// The target.
    pub to: AnyStore,
}

/// How far a copy is. Readable from any thread.
#[derive(Debug, Default)]
pub struct TransferProgress {
    done: AtomicU64,
    of: AtomicU64,
}

impl TransferProgress {
    /// Tokens that were copied or were gone.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// About how many there are.
    #[must_use]
    pub fn of(&self) -> u64 {
        self.of.load(Ordering::Relaxed)
    }

    /// A new step begins, with about this many tokens.
    pub fn begin(&self, of: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }

    /// So many more are done.
    pub fn add(&self, done: usize) {
        self.done.fetch_add(done as u64, Ordering::Relaxed);
    }
}

/// What [`Transfer::copy_all`] and [`Transfer::copy_rest`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Sessions read; a walk may meet one repeatedly.
    pub sessions: u64,
    /// Tokens of visitors without a login that were read.
    pub visitors: u64,
    /// Records of sessions and visitors that the target did not have like that.
    pub changed: u64,
    /// Logins that were under way between two shards, and were finished first.
    pub handovers: u64,
    /// Other records.
    pub others: u64,
    /// Other records that the target cannot hold: entries of the stream, in the embedded store.
    pub left_out: u64,
}

impl CopyCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            visitors: self.visitors + other.visitors,
            changed: self.changed + other.changed,
            handovers: self.handovers + other.handovers,
            others: self.others + other.others,
            left_out: self.left_out + other.left_out,
        }
    }
}

/// What [`Transfer::catch_up`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaughtUp {
    /// Tokens that were read again.
    pub looked_at: u64,
    /// Records that the target did not have like that.
    pub changed: u64,
    /// Tokens that were removed, because the source does not have them.
    pub removed: u64,
}

impl CaughtUp {
    fn plus(self, other: Self) -> Self {
        Self {
            looked_at: self.looked_at + other.looked_at,
            changed: self.changed + other.changed,
            removed: self.removed + other.removed,
        }
    }
}

impl Transfer {
    /// Copies all sessions, visitors and revoked marks. What changes meanwhile is left to [`Self::catch_up`].
    ///
    /// # Errors
    /// If a store refuses, or does not answer for 30 s.
    pub async fn copy_all(&self, progress: &TransferProgress) -> Result<CopyCounts, StoreError> {
        let handovers = self.finish_handovers().await?;
        let counts = patiently(|| self.from.counts()).await?;
        progress.begin(counts.sessions + counts.visitors);
        let copies = batches(self.walk(&self.from)).map(|batch| async move {
            let batch = batch?;
            let sessions = batch.iter().filter(|token| !is_visitor(token)).count();
            let visitors = batch.len() - sessions;
            let caught_up = self.follow(&batch, AbsentTokens::AreLeft).await?;
            progress.add(batch.len());
            Ok(CopyCounts {
                sessions: sessions as u64,
                visitors: visitors as u64,
                changed: caught_up.changed,
                ..CopyCounts::default()
            })
        });
        let copied = copies
            .buffer_unordered(IN_FLIGHT)
            .try_fold(CopyCounts::default(), async |all, part: CopyCounts| {
                Ok::<_, StoreError>(all.plus(part))
            })
            .await?;
        let marks = self.copy_kind(SharedKind::Revoked).await?;
        patiently(|| self.to.make_durable()).await?;
        Ok(CopyCounts { handovers, ..copied.plus(marks) })
    }

    /// Copies again the tokens that were seen since this Unix time, and those in `gone`. What the source does not have
    /// is removed at the target.
    ///
    /// # Errors
    /// As [`Self::copy_all`].
    pub async fn catch_up(&self, since: f64, gone: &[StoredToken]) -> Result<CaughtUp, StoreError> {
        self.finish_handovers().await?;
        let seen = pages(move |cursor| {
            patiently(move || self.from.tokens_seen_since(since, cursor.clone()))
        });
        let named = stream::iter(gone.chunks(TRANSFER_BATCH).map(|batch| Ok(batch.to_vec())));
        let followed = named
            .chain(batches(seen))
            .map(|batch| async move { self.follow(&batch?, AbsentTokens::AreRemoved).await });
        let caught_up = followed
            .buffer_unordered(IN_FLIGHT)
            .try_fold(CaughtUp::default(), async |all, part| Ok::<_, StoreError>(all.plus(part)))
            .await?;
        patiently(|| self.to.make_durable()).await?;
        Ok(caught_up)
    }

    /// Removes at the target what the source does not have, if its login, or if that is unknown its last visit, was
    /// before this Unix time. It ends sessions whose end was missed during the copy. Returns how many.
    ///
    /// # Errors
    /// As [`Self::copy_all`]; and if the source is empty and the target is not: then the source has lost its data, and
    /// nothing is removed.
    pub async fn sweep(&self, before: f64) -> Result<usize, StoreError> {
        let (from, to) = self.counts().await?;
        if from.sessions + from.visitors == 0 && to.sessions + to.visitors >= LOST {
            return Err(StoreError::Failed(
                "the source has no session at all: it seems to have lost its data, so nothing was removed at the target"
                    .into(),
            ));
        }
        let swept = batches(self.walk(&self.to)).map(|batch| async move {
            let batch = &batch?;
            let held = patiently(|| self.from.holds(batch)).await?;
            let absent: Vec<_> = batch
                .iter()
                .zip(held)
                .filter(|(_, held)| !held)
                .map(|(token, _)| token.clone())
                .collect();
            self.remove(&absent, before).await
        });
        let swept = swept
            .buffer_unordered(IN_FLIGHT)
            .try_fold(0, async |all, part: usize| Ok::<_, StoreError>(all + part))
            .await?;
        patiently(|| self.to.make_durable()).await?;
        Ok(swept)
    }

    /// Copies what belongs to no token, and replaces what the target has of it. The target must not be in use.
    ///
    /// # Errors
    /// As [`Self::copy_all`].
    pub async fn copy_rest(&self) -> Result<CopyCounts, StoreError> {
        let copied = self.copy_what_changes().await?.plus(self.copy_marks().await?);
        patiently(|| self.to.make_durable()).await?;
        Ok(copied)
    }

    /// As [`Self::copy_rest`], without the revoked marks, for which a walk over all keys of a Redis is needed: short
    /// enough to wait for.
    ///
    /// # Errors
    /// As [`Self::copy_all`].
    pub async fn copy_what_changes(&self) -> Result<CopyCounts, StoreError> {
        let mut copied = CopyCounts::default();
        for kind in SharedKind::ALL.into_iter().filter(|kind| *kind != SharedKind::Revoked) {
            copied = copied.plus(self.copy_kind(kind).await?);
        }
        Ok(copied)
    }

    /// Copies the revoked marks. Those at the target stay, so it may be in use.
    ///
    /// # Errors
    /// As [`Self::copy_all`].
    pub async fn copy_marks(&self) -> Result<CopyCounts, StoreError> {
        self.copy_kind(SharedKind::Revoked).await
    }

    /// How much both stores have: the source, then the target.
    ///
    /// # Errors
    /// As [`Self::copy_all`].
    pub async fn counts(&self) -> Result<(StoreCounts, StoreCounts), StoreError> {
        let from = patiently(|| self.from.counts()).await?;
        Ok((from, patiently(|| self.to.counts()).await?))
    }

    async fn finish_handovers(&self) -> Result<u64, StoreError> {
        let finished = patiently(|| self.from.finish_handovers(unix_now())).await?;
        Ok(finished as u64)
    }

    fn walk<'a>(
        &self,
        store: &'a AnyStore,
    ) -> impl Stream<Item = Result<Vec<StoredToken>, StoreError>> + 'a {
        pages(move |cursor| patiently(move || store.walk_tokens(cursor.clone())))
    }

    /// Brings the target to what the source has of these tokens.
    async fn follow(
        &self,
        batch: &[StoredToken],
        absent: AbsentTokens,
    ) -> Result<CaughtUp, StoreError> {
        let records = patiently(|| self.from.export(batch)).await?;
        let gone: Vec<_> = batch
            .iter()
            .zip(&records)
            .filter(|(_, record)| record.is_none())
            .map(|(token, _)| token.clone())
            .collect();
        let records: Vec<_> = records.into_iter().flatten().collect();
        let changed = match records.is_empty() {
            true => 0,
            false => patiently(|| self.to.import(&records)).await?,
        };
        let removed = match absent {
            AbsentTokens::AreLeft => 0,
            AbsentTokens::AreRemoved => self.remove(&gone, f64::INFINITY).await?,
        };
        Ok(CaughtUp {
            looked_at: batch.len() as u64,
            changed: changed as u64,
            removed: removed as u64,
        })
    }

    async fn remove(&self, tokens: &[StoredToken], before: f64) -> Result<usize, StoreError> {
        if tokens.is_empty() {
            return Ok(0);
        }
        patiently(|| self.to.remove(tokens, before)).await
    }

    async fn copy_kind(&self, kind: SharedKind) -> Result<CopyCounts, StoreError> {
        // An attempt that got no answer may have added its page: from its beginning the kind is copied again.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_to_copy_kind(kind).await {
                Err(error) if !error.is_refusal() && Instant::now() < deadline => {
                    sleep(PAUSE).await
                }
                done => return done,
            }
        }
    }

    async fn try_to_copy_kind(&self, kind: SharedKind) -> Result<CopyCounts, StoreError> {
        self.to.clear_shared(kind).await?;
        let (mut copied, mut cursor) = (CopyCounts::default(), None);
        loop {
            let began = Instant::now();
            let TransferPage { found, next } = self.from.export_shared(kind, cursor).await?;
            if kind == SharedKind::Revoked {
                // A walk over all keys, which finds little: half of the time is for those who use the store.
                sleep(began.elapsed()).await;
            }
            if !found.is_empty() {
                let left_out = self.to.import_shared(&found).await?;
                copied.others += (found.len() - left_out) as u64;
                copied.left_out += left_out as u64;
            }
            let Some(next) = next else { return Ok(copied) };
            cursor = Some(next);
        }
    }
}

/// What happens to tokens that the source does not have.
#[derive(Clone, Copy, Debug)]
enum AbsentTokens {
    /// The walk was a moment late; [`Transfer::catch_up`] will tell.
    AreLeft,
    AreRemoved,
}

/// The pages of a walk, until the last.
fn pages<'a, T: 'a, F>(
    page: impl Fn(Option<TransferCursor>) -> F + 'a,
) -> impl Stream<Item = Result<Vec<T>, StoreError>> + 'a
where
    F: Future<Output = Result<TransferPage<T>, StoreError>> + 'a,
{
    stream::try_unfold(Some(None), move |cursor| {
        let page = cursor.map(&page);
        async move {
            let Some(page) = page else { return Ok(None) };
            let TransferPage { found, next } = page.await?;
            Ok(Some((found, next.map(Some))))
        }
    })
}

/// The tokens of pages in batches, without repetitions in a batch.
fn batches(
    pages: impl Stream<Item = Result<Vec<StoredToken>, StoreError>>,
) -> impl Stream<Item = Result<Vec<StoredToken>, StoreError>> {
    pages.flat_map(|page| {
        let batches: Vec<_> = match page {
            Ok(mut tokens) => {
                // PERF: neighbours share blocks of the embedded store's tables.
                tokens.sort_unstable();
                tokens.dedup();
                tokens.chunks(TRANSFER_BATCH).map(|batch| Ok(batch.to_vec())).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(batches)
    })
}

/// Tries a step that may be repeated, until the store answers.
async fn patiently<T, F>(step: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match step().await {
            Err(error) if !error.is_refusal() && Instant::now() < deadline => sleep(PAUSE).await,
            done => return done,
        }
    }
}
