//! Orders and renews the certificates of all names: one small step at a time, the most urgent first.

mod ordering;
mod sharing;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anteroom_config::WantedName;
use anteroom_store::{AnyStore, CertificateStore, LeaseStore};
use instant_acme::Account;
use rustls::ClientConfig;
use tokio::time::sleep;

use crate::board::CertificateBoard;
use crate::client::CaClient;
use crate::failure::{FailureKind, StepFailure};
use crate::files::{CertificateFolder, FolderLock};
use crate::name::{NameRecord, Work};
use crate::schedule::wait_after;
use crate::share::Share;
use crate::state::NameState;
use crate::time::now;

/// How often a proxy looks for what the others have shared, and for wishes of operators there, in seconds.
const LOOK: i64 = 2;
/// The longest rest, in seconds.
const REST_MAX: i64 = 3_600;
/// How often a step is tried again at once, because a nonce was used up.
const NONCES: u32 = 5;
/// How often a process says during a long step that it orders for all.
const LEASE_RENEWED: Duration = Duration::from_secs(20);

/// What is ordered, where, and how.
#[derive(Debug)]
pub struct CertifierSettings {
    /// The names.
    pub names: Vec<WantedName>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// The contact for the authority.
    pub email: Option<String>,
    /// The kind of certificate.
    pub profile: Option<String>,
    /// The program for dns-01.
    pub dns_hook: Option<PathBuf>,
    /// TLS towards the authority.
    pub tls: Arc<ClientConfig>,
}

/// Orders and renews certificates.
pub struct Certifier<S = AnyStore> {
    settings: CertifierSettings,
    folder: CertificateFolder,
    share: Option<Share<S>>,
    board: Arc<CertificateBoard>,
    /// Puts a file that has changed into use at once.
    reload: Box<dyn Fn()>,
    client: CaClient,
    account: RefCell<Option<Account>>,
    names: RefCell<Vec<NameRecord>>,
    /// Whether this process has the folder to itself.
    writes: Cell<bool>,
    /// What says so to other processes; `None` also where the file system knows no locks.
    lock: RefCell<Option<FolderLock>>,
    /// Whether this process orders for all on the store.
    leads: Cell<bool>,
    /// The first name whose state a process that does not lead reads at the next look.
    states_turn: Cell<usize>,
    /// The first name whose certificate is looked for in the store at the next look.
    certificates_turn: Cell<usize>,
    /// The steps in a row that met a used nonce.
    nonces: Cell<u32>,
}

impl<S> std::fmt::Debug for Certifier<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certifier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<S: CertificateStore + LeaseStore> Certifier<S> {
    /// Goes on where the files in `folder` say. `reload` puts a changed file into use; it may wait for the disk.
    #[must_use]
    pub fn new(
        settings: CertifierSettings,
        folder: CertificateFolder,
        share: Option<Share<S>>,
        board: Arc<CertificateBoard>,
        reload: Box<dyn Fn()>,
    ) -> Self {
        let record = |wanted: &WantedName| NameRecord {
            wanted: wanted.clone(),
            state: NameState::default(),
            held: None,
            counts_from: None,
            rests_until: 0,
            refused: None,
        };
        let certifier = Self {
            client: CaClient::new(Arc::clone(&settings.tls)),
            names: RefCell::new(settings.names.iter().map(record).collect()),
            settings,
            folder,
            share,
            board,
            reload,
            account: RefCell::default(),
            writes: Cell::default(),
            lock: RefCell::default(),
            leads: Cell::default(),
            states_turn: Cell::default(),
            certificates_turn: Cell::default(),
            nonces: Cell::default(),
        };
        certifier.read_files();
        certifier.show();
        certifier
    }

    /// Takes one step, and returns how long there is nothing to do. Failures are logged and shown, and wait.
    pub async fn step(&self) -> Duration {
        if !self.has_folder() {
            self.show();
            return seconds(LOOK);
        }
        let mut rest_max = REST_MAX;
        if let Some(share) = &self.share {
            if !self.is_leader(share).await {
                self.show();
                return seconds(LOOK);
            }
            rest_max = LOOK;
        }
        self.note_wishes().await;
        if let Some((place, work)) = self.work(now()) {
            self.carry_out(place, work).await;
        }
        self.show();
        let next = self.names.borrow().iter().map(NameRecord::next).min();
        seconds(next.unwrap_or(i64::MAX).saturating_sub(now()).clamp(0, rest_max))
    }

    /// Lets another process order. What a step that was broken off needs is saved.
    pub async fn leave(&self) {
        self.writes.set(false);
        *self.account.borrow_mut() = None;
        *self.lock.borrow_mut() = None;
        if self.leads.take()
            && let Some(share) = &self.share
            && let Err(error) = share.give_up().await
        {
            tracing::debug!(%error, "the lease for certificates ends by itself");
        }
    }

    /// Whether this process has the folder to itself. Another one has it while it is ending, or where two proxies were
    /// given one folder: its certificates are shown here, too.
    fn has_folder(&self) -> bool {
        if self.writes.get() {
            return true;
        }
        match self.folder.lock() {
            Ok(Some(lock)) => {
                *self.lock.borrow_mut() = Some(lock);
                self.writes.set(true);
            }
            Ok(None) => tracing::debug!("another process orders certificates in this folder"),
            Err(error) => {
                tracing::warn!(%error, "the folder of certificates cannot be locked: no other process must use it");
                self.writes.set(true);
            }
        }
        self.read_files();
        self.writes.get()
    }

    /// Reads what is on disk.
    fn read_files(&self) {
        for record in self.names.borrow_mut().iter_mut() {
            let name = &record.wanted.name;
            record.state = self.folder.state(name).resumed(&self.settings.directory, now());
            record.held = self.folder.held(name);
            record.counts_from = None;
        }
    }

    /// Notes which certificates operators want renewed, also for the process that goes on after this one. A wish stays on
    /// the board until it is saved: the step may be dropped at any wait. Returns whether all are saved.
    async fn note_wishes(&self) -> bool {
        let mut are_saved = true;
        for (name, is_seen) in self.board.seen_wishes() {
            let Some(place) = self.place_of(&name) else {
                self.board.end_wish(&name);
                continue;
            };
            let mut record = self.get(place);
            record.state.is_requested = true;
            // Only once: a wish that cannot be saved does not end the wait after a failure at each step.
            if !is_seen {
                tracing::info!(name, "an operator wants another certificate");
                record.state.next_try = 0;
            }
            self.board.see_wish(&name);
            match self.save(place, record).await {
                Ok(()) => self.board.end_wish(&name),
                Err(error) => {
                    are_saved = false;
                    tracing::warn!(name, %error, "the wish for a renewal is not saved yet");
                }
            }
        }
        are_saved
    }

    /// What is to be done first, and for which name.
    fn work(&self, now: i64) -> Option<(usize, Work)> {
        let records = self.names.borrow();
        let (place, first) = records.iter().enumerate().min_by_key(|(_, record)| record.next())?;
        Some((place, first.work(now)?))
    }

    async fn carry_out(&self, place: usize, work: Work) {
        let step = async {
            match work {
                Work::Begin => self.begin(place).await,
                Work::Advance => self.advance(place).await,
                Work::AskWindow => self.ask_window(place).await,
            }
        };
        let done = tokio::select! {
            done = step => done,
            never = self.keep_leading() => match never {},
        };
        match done {
            Ok(()) => self.nonces.set(0),
            Err(failure) => self.fail(place, failure).await,
        }
    }

    /// Keeps other proxies from ordering while a step waits, such as for name servers.
    async fn keep_leading(&self) -> Infallible {
        loop {
            sleep(LEASE_RENEWED).await;
            if let Some(share) = &self.share
                && let Err(error) = share.leads().await
            {
                tracing::debug!(%error, "another proxy may order certificates");
            }
        }
    }

    async fn fail(&self, place: usize, failure: StepFailure) {
        if failure.kind == FailureKind::Again && self.nonces.get() < NONCES {
            self.nonces.set(self.nonces.get() + 1);
            return;
        }
        self.nonces.set(0);
        self.board.count_failed();
        let mut record = self.get(place);
        match failure.kind {
            // What has not failed for good goes on where it was.
            FailureKind::Again | FailureKind::Temporary => {}
            FailureKind::Refused => record.state.order = None,
            FailureKind::NoAccount => {
                record.state.order = None;
                *self.account.borrow_mut() = None;
                if let Err(error) = self.account_source().forget().await {
                    tracing::warn!(%error, "the account could not be forgotten");
                }
            }
        }
        let failures = record.state.failures.saturating_add(1);
        let wait = wait_after(failures, self.client.wanted_wait(), fastrand::f64());
        record.state.failures = failures;
        record.state.next_try = now() + wait;
        record.state.last_error = Some(failure.text.clone());
        record.state.failed_at = Some(now());
        let name = record.wanted.name.clone();
        let error = failure.text;
        tracing::warn!(name, error, failures, next_try_in = wait, "no certificate yet");
        self.save_or_tell(place, record).await;
    }

    /// Saves the state of a name, here and for a proxy that takes over, and goes on with it.
    async fn save(&self, place: usize, record: NameRecord) -> Result<(), StepFailure> {
        let (name, state) = (record.wanted.name.clone(), record.state.clone());
        self.put(place, record);
        self.folder.put_state(&name, &state)?;
        match &self.share {
            Some(share) => share.put_state(&name, &state).await,
            None => Ok(()),
        }
    }

    async fn save_or_tell(&self, place: usize, record: NameRecord) {
        let name = record.wanted.name.clone();
        if let Err(error) = self.save(place, record).await {
            tracing::warn!(name, %error, "the state of an order was not saved");
        }
    }

    fn count(&self) -> usize {
        self.names.borrow().len()
    }

    fn place_of(&self, name: &str) -> Option<usize> {
        self.names.borrow().iter().position(|record| record.wanted.name == name)
    }

    fn name(&self, place: usize) -> String {
        self.names.borrow()[place].wanted.name.clone()
    }

    /// The names whose records fit, with their places.
    fn names_that(&self, fits: impl Fn(&NameRecord) -> bool) -> Vec<(usize, String)> {
        let names = self.names.borrow();
        let fitting = names.iter().enumerate().filter(|(_, record)| fits(record));
        fitting.map(|(place, record)| (place, record.wanted.name.clone())).collect()
    }

    /// A copy: no borrow is held while a step waits.
    fn get(&self, place: usize) -> NameRecord {
        self.names.borrow()[place].clone()
    }

    fn put(&self, place: usize, record: NameRecord) {
        self.names.borrow_mut()[place] = record;
    }

    /// Shows operators how it stands.
    fn show(&self) {
        let now = now();
        let names = self.names.borrow();
        self.board.put_statuses(names.iter().map(|record| record.status(now)).collect());
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(seconds.unsigned_abs())
}
