//! Orders and renews the certificates of all names: one small step at a time, the most urgent first.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anteroom_config::WantedName;
use anteroom_fault::may_crash;
use instant_acme::Account;
use rustls::ClientConfig;
use tokio::time::sleep;

use crate::account::AccountSource;
use crate::board::CertificateBoard;
use crate::client::CaClient;
use crate::failure::{FailureKind, StepFailure};
use crate::files::{CertificateFolder, FolderLock};
use crate::issued::{HeldCertificate, new_key};
use crate::name::{NameRecord, Work};
use crate::order::{OrderContext, Progress, suggested_window};
use crate::schedule::{ask_again, renew_at, rest_after_issue, wait_after};
use crate::share::{Share, SharedCertificate, SharedIndex};
use crate::state::{NameState, OrderRecord, Renewal};
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
pub struct Certifier {
    settings: CertifierSettings,
    folder: CertificateFolder,
    share: Option<Share>,
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
    /// The name whose state a process that does not lead looks at next.
    watched: Cell<usize>,
    /// The steps in a row that met a used nonce.
    nonces: Cell<u32>,
}

impl std::fmt::Debug for Certifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certifier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Certifier {
    /// Goes on where the files in `folder` say. `reload` puts a changed file into use; it may wait for the disk.
    #[must_use]
    pub fn new(
        settings: CertifierSettings,
        folder: CertificateFolder,
        share: Option<Share>,
        board: Arc<CertificateBoard>,
        reload: Box<dyn Fn()>,
    ) -> Self {
        let record = |wanted: &WantedName| NameRecord {
            wanted: wanted.clone(),
            state: NameState::default(),
            held: None,
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
            watched: Cell::default(),
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
        let wishes = self.board.take_wishes();
        let mut rest_max = REST_MAX;
        if let Some(share) = &self.share {
            if !self.is_leader(share).await {
                self.pass_on(share, wishes).await;
                self.show();
                return seconds(LOOK);
            }
            rest_max = LOOK;
        }
        self.request(&wishes).await;
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
        }
    }

    /// Whether this process orders for all on the store. Looks at what the others share.
    async fn is_leader(&self, share: &Share) -> bool {
        let led = self.leads.take();
        let looked = match share.leads().await {
            Ok(true) => self.lead(share, led).await.map(|()| true),
            Ok(false) => self.follow_leader(share).await.map(|()| false),
            Err(error) => Err(StepFailure::here(&error)),
        };
        match looked {
            Ok(leads) => {
                self.leads.set(leads);
                leads
            }
            Err(error) => {
                // Another proxy may lead. A certificate has weeks, and an order can wait for the store; what the last one
                // has begun is read first, whenever the store answers.
                tracing::debug!(%error, "certificates wait for the store");
                false
            }
        }
    }

    /// Orders for all. `led`: it did so at the last step, too.
    async fn lead(&self, share: &Share, led: bool) -> Result<(), StepFailure> {
        if !led {
            self.take_over(share).await?;
        }
        let index = self.follow(share).await?;
        // Also after the store was moved, or has lost something.
        self.publish_missing(share, &index).await?;
        let wishes = share.wishes().await?;
        if !wishes.is_empty() {
            self.request(&wishes).await;
            share.clear_wishes().await?;
        }
        Ok(())
    }

    /// Goes on where the proxy that ordered until now has stopped.
    async fn take_over(&self, share: &Share) -> Result<(), StepFailure> {
        tracing::info!("this proxy orders certificates for all on the store");
        *self.account.borrow_mut() = None;
        for place in 0..self.count() {
            let name = self.name(place);
            if let Some(state) = share.state(&name).await? {
                let state = state.resumed(&self.settings.directory, now());
                self.folder.put_state(&name, &state)?;
                self.names.borrow_mut()[place].state = state;
            }
        }
        Ok(())
    }

    async fn follow_leader(&self, share: &Share) -> Result<(), StepFailure> {
        self.follow(share).await?;
        // One name at a time, so that operators see at each proxy why an order fails.
        let place = self.watched.get() % self.count().max(1);
        self.watched.set(place + 1);
        if place < self.count()
            && let Some(state) = share.state(&self.name(place)).await?
        {
            self.names.borrow_mut()[place].state = state;
        }
        Ok(())
    }

    /// Puts into use what the proxy that orders has shared since.
    async fn follow(&self, share: &Share) -> Result<SharedIndex, StepFailure> {
        let index = share.index().await?;
        let is_newer = |record: &NameRecord| {
            index.get(&record.wanted.name).is_some_and(|shared| record.is_older_than(shared))
        };
        for (place, name) in self.names_that(is_newer) {
            let Some(pem) = share.certificate(&name).await? else { continue };
            match self.folder.install(&name, &pem, now()) {
                Ok(held) => {
                    tracing::info!(name, "a certificate that another proxy has ordered is in use");
                    self.names.borrow_mut()[place].held = Some(held);
                    (self.reload)();
                }
                Err(error) => {
                    tracing::warn!(name, %error, "a shared certificate is not used");
                    if error.kind == FailureKind::Refused {
                        let digest = index.get(&name).map(|shared| shared.digest.clone());
                        self.names.borrow_mut()[place].refused = digest;
                    }
                }
            }
        }
        Ok(index)
    }

    /// Shares what is in use here and is not in the store.
    async fn publish_missing(&self, share: &Share, index: &SharedIndex) -> Result<(), StepFailure> {
        let is_missing = |record: &NameRecord| {
            record.issued().is_some_and(|held| {
                let shared = index.get(&record.wanted.name);
                shared.is_none_or(|shared| shared.digest != held.digest)
            })
        };
        for (place, name) in self.names_that(is_missing) {
            if let Some(held) = self.get(place).issued() {
                self.publish(share, &name, held).await?;
            }
        }
        Ok(())
    }

    async fn publish(
        &self,
        share: &Share,
        name: &str,
        held: &HeldCertificate,
    ) -> Result<(), StepFailure> {
        let pem = self.folder.pem(name).map_err(|error| StepFailure::here(&error))?;
        let (digest, not_before) = (held.digest.clone(), *held.valid.start());
        share.put_certificate(name, &pem, SharedCertificate { digest, not_before }).await
    }

    /// Tells the proxy that orders what operators want here.
    async fn pass_on(&self, share: &Share, wishes: Vec<String>) {
        if wishes.is_empty() {
            return;
        }
        if let Err(error) = share.wish_renewals(&wishes).await {
            tracing::warn!(%error, "the proxy that orders is told later to renew");
            self.board.put_wishes(wishes);
        }
    }

    /// Notes which certificates operators want renewed, also for the process that goes on after this one.
    async fn request(&self, names: &[String]) {
        for (place, name) in self.names_that(|record| names.contains(&record.wanted.name)) {
            tracing::info!(name, "an operator wants another certificate");
            let mut record = self.get(place);
            record.state.is_requested = true;
            record.state.next_try = 0;
            self.save_or_tell(place, record).await;
        }
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

    /// Saves the key of an order that is made next.
    async fn begin(&self, place: usize) -> Result<(), StepFailure> {
        let mut record = self.get(place);
        let key = new_key().map_err(|error| StepFailure::here(&error))?;
        tracing::info!(name = record.wanted.name, "a certificate is ordered");
        let directory = self.settings.directory.clone();
        record.state.order = Some(OrderRecord { directory, key, url: None, began: now() });
        // The rest after the last certificate, which may be lost since.
        record.state.next_try = 0;
        record.rests_until = 0;
        self.save(place, record).await?;
        may_crash("acme-begun");
        Ok(())
    }

    async fn advance(&self, place: usize) -> Result<(), StepFailure> {
        let mut record = self.get(place);
        let Some(order) = record.state.order.clone() else { return Ok(()) };
        if order.is_stuck(now()) {
            // The wait after failures is over: the authority is there again, or another order fails as well.
            if record.state.failures > 0 {
                record.state.order = None;
                return self.save(place, record).await;
            }
            let text = "the order has taken over 2 hours";
            return Err(StepFailure::new(FailureKind::Refused, text));
        }
        let account = self.open_account().await?;
        let context = OrderContext {
            account: &account,
            wanted: &record.wanted,
            profile: self.settings.profile.as_deref(),
            dns_hook: self.settings.dns_hook.as_deref(),
            answers: &self.board.answers,
            share: self.share.as_ref(),
        };
        let Some(url) = order.url.clone() else {
            // Another authority does not know the certificate.
            let is_of_this = |by: &String| *by == self.settings.directory;
            let is_known = record.state.issued_by.as_ref().is_none_or(is_of_this);
            let url = context.make(record.issued().filter(|_| is_known)).await?;
            may_crash("acme-made");
            record.state.order = Some(OrderRecord { url: Some(url), ..order });
            self.save(place, record).await?;
            may_crash("acme-saved");
            return Ok(());
        };
        match context.advance(&order, &url).await? {
            Progress::After(rest) => {
                record.rests_until = now() + rest;
                self.put(place, record);
                Ok(())
            }
            Progress::Issued(chain) => {
                let pem = format!("{}\n{}", chain.trim_end(), order.key);
                self.install(place, record, &pem).await
            }
        }
    }

    /// Puts an issued certificate into use, here and then at the other proxies.
    async fn install(
        &self,
        place: usize,
        mut record: NameRecord,
        pem: &str,
    ) -> Result<(), StepFailure> {
        let name = record.wanted.name.clone();
        let held = self.folder.install(&name, pem, now())?;
        (self.reload)();
        self.board.count_issued();
        let (not_after, issuer) = (*held.valid.end(), &held.issuer);
        tracing::info!(name, not_after, issuer, "a new certificate is in use");
        record.state = NameState {
            renewal: Some(planned(&held)),
            next_try: now() + rest_after_issue(&held.valid),
            issued_by: Some(self.settings.directory.clone()),
            ..NameState::default()
        };
        record.held = Some(held.clone());
        self.save(place, record).await?;
        if let Some(share) = &self.share
            && let Err(error) = self.publish(share, &name, &held).await
        {
            tracing::warn!(name, %error, "the other proxies do not have the new certificate yet");
        }
        Ok(())
    }

    /// Asks the authority when a certificate is to be renewed. An answer is never needed.
    async fn ask_window(&self, place: usize) -> Result<(), StepFailure> {
        let mut record = self.get(place);
        let Some(held) = record.issued().cloned() else { return Ok(()) };
        let known = record.renewal().cloned().unwrap_or_else(|| planned(&held));
        let asked = match self.open_account().await {
            Ok(account) => suggested_window(&account, &held).await.map_err(StepFailure::from),
            Err(failure) => Err(failure),
        };
        let renewal = match asked {
            // A point was drawn in this window, and stays.
            Ok((window, holds)) if known.window == Some(window) => {
                Renewal { ask_again: ask_again(now(), Some(holds)), ..known }
            }
            Ok((window, holds)) => Renewal {
                at: renew_at(&held.valid, Some(&(window.0..=window.1)), fastrand::f64()),
                window: Some(window),
                ask_again: ask_again(now(), Some(holds)),
                of: held.digest,
            },
            Err(error) => {
                tracing::debug!(name = record.wanted.name, %error, "no renewal window is known");
                Renewal { ask_again: ask_again(now(), None), ..known }
            }
        };
        record.state.renewal = Some(renewal);
        self.save(place, record).await
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

    async fn open_account(&self) -> Result<Account, StepFailure> {
        let known = self.account.borrow().clone();
        if let Some(account) = known {
            return Ok(account);
        }
        let account = self.account_source().open().await?;
        *self.account.borrow_mut() = Some(account.clone());
        Ok(account)
    }

    fn account_source(&self) -> AccountSource<'_> {
        AccountSource {
            client: &self.client,
            folder: &self.folder,
            share: self.share.as_ref(),
            directory: &self.settings.directory,
            email: self.settings.email.as_deref(),
        }
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

/// The renewal of a certificate as long as the authority has suggested no other time: it is asked at once.
fn planned(held: &HeldCertificate) -> Renewal {
    Renewal {
        of: held.digest.clone(),
        at: renew_at(&held.valid, None, fastrand::f64()),
        window: None,
        ask_again: 0,
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(seconds.unsigned_abs())
}
