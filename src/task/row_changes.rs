//! Listens to a database that announces changes: rows are due at once, and pages are purged.
//!
//! An announcement is a hint. It is lost while the connection is broken; so all rows are due after each connection,
//! and the interval of a row stays in force.

use std::cell::Cell;
use std::collections::HashSet;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_cache::purge_order::PurgeOrder;
use anteroom_cache::purger::{PurgeError, Purger};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::Row;
use anteroom_policy::row_schedule::{AllowedPurge, PurgeKind};
use anteroom_rows::SharedRows;
use anteroom_rows::database::{Database, Notice, QueryError};
use anteroom_store::{AnyStore, ROWS_MAX, RowStore as _, StoreError};
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::rows::RowSources;
use super::{NextStep, Task};

/// How long announcements are gathered.
const GATHERED: Duration = Duration::from_millis(1);
/// The least time between two calls to the store.
const BETWEEN: Duration = Duration::from_millis(5);
/// The least time between two times that all rows of a source are due: their schedule is read for
/// that.
const BETWEEN_ALL: Duration = Duration::from_secs(1);
/// The most rows that wait; beyond that all rows are due.
const PENDING_MAX: usize = 10_000;
/// The most purges that wait; beyond that all that may be purged is.
const PURGES_MAX: usize = 1_000;
/// The pause after a connection that failed, at least and at most.
const PAUSE: (f64, f64) = (0.1, 1.0);

/// What is listened for on a channel.
#[derive(Clone, Debug)]
pub struct ListenedSource {
    /// The channel.
    pub channel: String,
    /// The name of the source.
    pub name: String,
    /// What may be purged.
    pub purges: Vec<AllowedPurge>,
}

/// Listens to one database.
#[derive(Debug)]
pub struct ListenForChanges {
    /// The store.
    pub store: AnyStore,
    /// The database.
    pub database: Rc<Database>,
    /// What its channels are for.
    pub listened: Vec<ListenedSource>,
    /// The sources of rows.
    pub sources: Rc<RowSources>,
    /// What the threads share of rows.
    pub shared: Arc<SharedRows>,
    /// Purges pages.
    pub purger: Arc<Purger>,
    /// Whether this process is the one of its fleet that listens.
    pub leads: watch::Receiver<bool>,
    /// Where announcements are counted.
    pub thread_metrics: Arc<ThreadMetrics>,
    /// Whether the log has reported that the connection failed.
    pub failure_logged: Cell<bool>,
    /// Whether the log has reported an announcement that has no effect.
    pub refusal_logged: Cell<bool>,
}

/// Why listening ended.
#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error(transparent)]
    Database(#[from] QueryError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Purge(#[from] PurgeError),
}

/// What was announced and is not carried out yet.
#[derive(Debug, Default)]
struct PendingChanges {
    rows: HashSet<Row>,
    /// The sources of which any row may have changed.
    sources: HashSet<String>,
    tags: HashSet<String>,
    urls: HashSet<String>,
    /// Whether all that may be purged is.
    all_purges: bool,
}

impl PendingChanges {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.sources.is_empty() && !self.has_purges()
    }

    fn has_purges(&self) -> bool {
        self.all_purges || !self.tags.is_empty() || !self.urls.is_empty()
    }
}

impl ListenForChanges {
    /// Listens until the connection is lost, or another process does it.
    async fn listen(&self) -> Result<(), ListenError> {
        let mut leads = self.leads.clone();
        // The sender ends with the task that holds it, and then this task ends, too.
        if leads.wait_for(|leads| *leads).await.is_err() {
            std::future::pending::<()>().await;
        }
        let channels: HashSet<&str> = self.listened.iter().map(|one| &*one.channel).collect();
        let channels: Vec<&str> = channels.into_iter().collect();
        let listener = self.database.listen(&channels).await?;
        let mut pending = self.everything();
        self.carry_out(&mut pending).await?;
        self.failure_logged.set(false);
        tracing::info!(?channels, "listening for changes of rows");
        let notices =
            stream::unfold(listener, async |mut listener| Some((listener.next().await, listener)));
        let mut notices = pin!(notices);
        let (mut last, mut last_all, mut due) = (Instant::now(), Instant::now(), None);
        loop {
            tokio::select! {
                notice = notices.next() => {
                    let Some(notice) = notice.transpose()? else { return Ok(()) };
                    self.thread_metrics.count(Count::RowNotices);
                    self.add(&mut pending, &notice);
                    due.get_or_insert_with(|| (Instant::now() + GATHERED).max(last + BETWEEN));
                    if !pending.sources.is_empty() {
                        due = due.max(Some(last_all + BETWEEN_ALL));
                    }
                }
                () = sleep_until(due) => {
                    let is_all = !pending.sources.is_empty();
                    self.carry_out(&mut pending).await?;
                    (last, due) = (Instant::now(), None);
                    if is_all {
                        last_all = last;
                    }
                }
                _ = leads.wait_for(|leads| !*leads) => return Ok(()),
            }
        }
    }

    /// What may have changed before the connection was there.
    fn everything(&self) -> PendingChanges {
        let sources = self.listened.iter().map(|one| one.name.clone()).collect();
        let all_purges = self.listened.iter().any(|one| !one.purges.is_empty());
        PendingChanges { sources, all_purges, ..PendingChanges::default() }
    }

    fn add(&self, pending: &mut PendingChanges, notice: &Notice) {
        let on_channel = self.listened.iter().filter(|one| one.channel == notice.channel);
        for source in on_channel {
            match PurgeKind::split(&notice.payload) {
                Some((kind, name)) => self.add_purge(pending, source, kind, name),
                None => self.add_row(pending, source, &notice.payload),
            }
        }
    }

    fn add_row(&self, pending: &mut PendingChanges, source: &ListenedSource, payload: &str) {
        let id = payload.strip_prefix("row:").unwrap_or(payload);
        let row = self.sources.names.row(&source.name, id).filter(|_| !id.is_empty());
        match row {
            Some(row) if pending.rows.len() < PENDING_MAX => drop(pending.rows.insert(row)),
            None if !id.is_empty() => self.say_refused(source, "it is not the id of a row"),
            Some(_) | None => drop(pending.sources.insert(source.name.clone())),
        }
    }

    fn add_purge(
        &self,
        pending: &mut PendingChanges,
        source: &ListenedSource,
        kind: PurgeKind,
        name: &str,
    ) {
        if !source.purges.iter().any(|allowed| allowed.names(kind, name)) {
            return self.say_refused(source, "listen_purges does not name it");
        }
        let one = vec![name.to_owned()];
        let order = match kind {
            PurgeKind::Tag => PurgeOrder { tags: one, ..PurgeOrder::default() },
            PurgeKind::Url => PurgeOrder { urls: one, ..PurgeOrder::default() },
        };
        if let Err(why) = self.purger.check(&order) {
            return self.say_refused(source, &why.to_string());
        }
        if pending.tags.len() + pending.urls.len() >= PURGES_MAX {
            pending.all_purges = true;
            return;
        }
        match kind {
            PurgeKind::Tag => pending.tags.insert(name.to_owned()),
            PurgeKind::Url => pending.urls.insert(name.to_owned()),
        };
    }

    fn say_refused(&self, source: &ListenedSource, why: &str) {
        self.thread_metrics.count(Count::RowNoticesRefused);
        if !self.refusal_logged.replace(true) {
            let (rows, channel) = (&source.name, &source.channel);
            tracing::warn!(rows, channel, why, "a notification has no effect");
        }
    }

    /// Makes rows due, and purges pages softly.
    async fn carry_out(&self, pending: &mut PendingChanges) -> Result<(), ListenError> {
        if pending.is_empty() {
            return Ok(());
        }
        let PendingChanges { rows, sources, tags, urls, all_purges } = std::mem::take(pending);
        self.shared.requests.forget_missing();
        let mut due: Vec<Row> = rows.into_iter().collect();
        if !sources.is_empty() {
            due.extend(self.scheduled_of(&sources).await?);
        }
        self.store.make_due(&due, unix_now()).await?;
        self.shared.made_due.notify_one();
        let order = match all_purges {
            true => everything_purged(self.listened.iter().flat_map(|one| &one.purges)),
            false => PurgeOrder {
                tags: tags.into_iter().collect(),
                urls: urls.into_iter().collect(),
                ..PurgeOrder::default()
            },
        };
        if order == PurgeOrder::default() {
            return Ok(());
        }
        match self.purger.carry_out(&self.store, &order).await {
            // More than one order may name.
            Err(PurgeError::PurgeOrder(_)) if !all_purges => {
                let all = everything_purged(self.listened.iter().flat_map(|one| &one.purges));
                self.purger.carry_out(&self.store, &all).await?;
            }
            done => drop(done?),
        }
        Ok(())
    }

    /// All scheduled rows of some sources.
    async fn scheduled_of(&self, sources: &HashSet<String>) -> Result<Vec<Row>, StoreError> {
        let scheduled = self.store.rows(ROWS_MAX).await?;
        let names = &self.sources.names;
        let of_them = |row: &Row| sources.contains(names.name(names.split(row).0));
        Ok(scheduled.into_iter().map(|one| one.row).filter(of_them).collect())
    }
}

/// A soft purge of all that a list allows. Tags cannot be purged by how they begin, so that such an entry purges all
/// pages.
fn everything_purged<'a>(allowed: impl Iterator<Item = &'a AllowedPurge>) -> PurgeOrder {
    let mut order = PurgeOrder::default();
    for AllowedPurge { kind, name, is_prefix } in allowed {
        match (kind, is_prefix) {
            (PurgeKind::Tag, false) => order.tags.push(name.clone()),
            (PurgeKind::Tag, true) => order.all = true,
            (PurgeKind::Url, false) => order.urls.push(name.clone()),
            (PurgeKind::Url, true) => order.globs.push(format!("{name}*")),
        }
    }
    order
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl Task for ListenForChanges {
    const NAME: &'static str = "listen";
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        match self.listen().await {
            Ok(()) => Ok(NextStep::Again),
            Err(ListenError::Store(error) | ListenError::Purge(PurgeError::Store(error))) => {
                Err(error)
            }
            Err(why) => {
                if !self.failure_logged.replace(true) {
                    tracing::warn!(%why, "changes of rows are not announced: rows are read at their intervals");
                }
                Ok(NextStep::Idle)
            }
        }
    }

    async fn rest(&self) {
        let (least, most) = PAUSE;
        tokio::time::sleep(Duration::from_secs_f64(least + fastrand::f64() * (most - least))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_gap_all_that_may_be_purged_is() {
        let allowed =
            ["tag:news", "url:/shop/*", "url:/news"].map(|text| AllowedPurge::parse(text).unwrap());
        let order = everything_purged(allowed.iter());
        assert_eq!((order.tags, order.urls), (vec!["news".to_owned()], vec!["/news".to_owned()]));
        assert_eq!(
            (order.globs, order.all, order.hard),
            (vec!["/shop/*".to_owned()], false, false)
        );
        let tags = [AllowedPurge::parse("tag:item-*").unwrap()];
        assert!(everything_purged(tags.iter()).all);
    }
}
