//! `anteroom store migrate --from … --to …`: opens two stores that no proxy uses, and copies one to the other.

use std::time::{Duration, Instant};

use anteroom_config::StoreUrl;
use anteroom_store::traits::*;
use anteroom_store::transfer::{CopyCounts, StoreCounts, Transfer, TransferProgress};
use anteroom_store::{AnyStore, Engine, OpenError, OpenStore, StoreError, embedded};
use tokio::time::timeout;

use super::runtime::runtime;
use super::start_error::StartError;
use super::store::{StorePlace, unused_store};

/// How long a store has to answer first.
const CONNECT: Duration = Duration::from_secs(5);
/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_millis(200);
/// A proxy in the register that has not written itself for this long has ended.
const LIVES: Duration = Duration::from_secs(60);

/// Why a store was not moved.
#[derive(Debug, thiserror::Error)]
pub enum StoreMigrationError {
    /// The system refused something.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Both are one store.
    #[error(
        "--from and --to are the same store: give another URL, layout or prefix for one of them"
    )]
    Same,
    /// There is no store.
    #[error(
        "there is no store in {0}: give the folder of [store] url, which contains sessions.redb"
    )]
    Missing(String),
    /// It cannot be opened.
    #[error("{what}: {source}")]
    Open {
        /// Which store.
        what: &'static str,
        /// Why.
        source: OpenError,
    },
    /// A folder is in use.
    #[error(
        "{what}: {source}. A site that runs is moved without --from and --to, by [store.next] in its configuration"
    )]
    InUse {
        /// Which store.
        what: &'static str,
        /// Why.
        source: OpenError,
    },
    /// It does not answer.
    #[error("{what}: the store does not answer: check its URL, and that it runs")]
    Away {
        /// Which store.
        what: &'static str,
    },
    /// Proxies use it.
    #[error(
        "{what}: {proxies} running on this store: stop them (one that crashed is forgotten after a minute), or move a running \
         site without --from and --to, by [store.next] in its configuration"
    )]
    Running {
        /// Which store.
        what: &'static str,
        /// How many, in words.
        proxies: String,
    },
    /// The target holds something.
    #[error(
        "the target is not empty: it has {sessions} sessions and {others} other records; empty it, choose another \
         prefix, or pass --replace: then it holds what the source holds, and nothing else. Pass it also to go on after a \
         copy that broke off"
    )]
    NotEmpty {
        /// Sessions at the target.
        sessions: u64,
        /// Other records.
        others: u64,
    },
    /// A step failed.
    #[error(
        "the copy broke off: {0}; nothing has changed at the source. Run the command again with --replace"
    )]
    Failed(#[from] StoreError),
}

/// What was moved.
#[derive(Clone, Copy, Debug)]
pub struct MigrationReport {
    /// What the source holds.
    pub from: StoreCounts,
    /// What the target holds.
    pub to: StoreCounts,
    /// Records that belong to no session, revoked marks included.
    pub rest: CopyCounts,
    /// Tokens that only the target had, and that were removed.
    pub removed: usize,
    /// How long it took.
    pub took: Duration,
}

/// A store that no proxy uses.
#[derive(Debug)]
pub(super) struct UnusedStore {
    open: OpenStore,
    /// The handle of this thread.
    pub(super) store: AnyStore,
}

impl UnusedStore {
    /// Opens the store for `what`, such as `--from`; a folder that is missing is made if it `may_begin`.
    pub(super) async fn open(
        what: &'static str,
        place: &StorePlace,
        may_begin: bool,
    ) -> Result<Self, StoreMigrationError> {
        if let StoreUrl::Embedded(folder) = &place.url
            && !may_begin
            && !folder.join(embedded::SESSIONS_FILE).exists()
        {
            return Err(StoreMigrationError::Missing(folder.display().to_string()));
        }
        let open = unused_store(place).await.map_err(|source| match source {
            source @ OpenError::InUse(_) => StoreMigrationError::InUse { what, source },
            source => StoreMigrationError::Open { what, source },
        })?;
        let store = open.thread_handle();
        if timeout(CONNECT, store.connected()).await.is_err() {
            return Err(StoreMigrationError::Away { what });
        }
        let this = Self { open, store };
        this.refuse_running(what).await?;
        Ok(this)
    }

    /// The register of a Redis names the proxies that use it. A folder has a lock instead.
    async fn refuse_running(&self, what: &'static str) -> Result<(), StoreMigrationError> {
        if matches!(self.store.engine(), Engine::Embedded(_)) {
            return Ok(());
        }
        let process_id = fastrand::u64(1..);
        let register = self.store.register_proxy(process_id, "{}", LIVES).await?;
        self.store.unregister_proxy(process_id).await?;
        let running =
            register.proxies.iter().filter(|proxy| proxy.process_id != process_id).count();
        match running {
            0 => Ok(()),
            1 => Err(StoreMigrationError::Running { what, proxies: "1 proxy is".to_owned() }),
            many => {
                Err(StoreMigrationError::Running { what, proxies: format!("{many} proxies are") })
            }
        }
    }

    /// Refuses a store that holds something.
    pub(super) async fn refuse_full(&self) -> Result<(), StoreMigrationError> {
        let counts = self.store.counts().await?;
        if counts.are_zero() {
            return Ok(());
        }
        let StoreCounts { sessions, visitors, items, rows, events, outbox, stream } = counts;
        let others = visitors + items + rows + events + outbox + stream;
        Err(StoreMigrationError::NotEmpty { sessions, others })
    }

    pub(super) async fn close(self) {
        drop(self.store);
        self.open.close().await;
    }
}

/// Copies all of one store to another; no proxy may use either. `tell` hears now and then how far it is. With `replace`
/// the target may hold something, which is removed. Blocks.
///
/// # Errors
/// See [`StoreMigrationError`].
pub fn migrate_store(
    from: &StorePlace,
    to: &StorePlace,
    replace: bool,
    mut tell: impl FnMut(&TransferProgress),
) -> Result<MigrationReport, StoreMigrationError> {
    if from == to {
        return Err(StoreMigrationError::Same);
    }
    let begun = Instant::now();
    runtime()?.block_on(async {
        let source = UnusedStore::open("--from", from, false).await?;
        let target = UnusedStore::open("--to", to, true).await?;
        if !replace {
            target.refuse_full().await?;
        }
        let transfer = Transfer { from: source.store.clone(), to: target.store.clone() };
        let progress = TransferProgress::default();
        let (rest, removed) = telling(copy(&transfer, &progress), || tell(&progress)).await?;
        let (from, to) = transfer.counts().await?;
        drop(transfer);
        source.close().await;
        target.close().await;
        Ok(MigrationReport { from, to, rest, removed, took: begun.elapsed() })
    })
}

async fn copy(
    transfer: &Transfer,
    progress: &TransferProgress,
) -> Result<(CopyCounts, usize), StoreMigrationError> {
    transfer.copy_all(progress).await?;
    let removed = transfer.sweep(f64::INFINITY).await?;
    Ok((transfer.copy_rest().await?, removed))
}

/// Waits for `step`, and tells of its progress meanwhile.
pub(super) async fn telling<T>(step: impl Future<Output = T>, mut tell: impl FnMut()) -> T {
    let mut step = std::pin::pin!(step);
    loop {
        let done = timeout(TOLD_EVERY, &mut step).await;
        tell();
        if let Ok(done) = done {
            return done;
        }
    }
}
