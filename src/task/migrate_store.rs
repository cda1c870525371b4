//! The move of a running site to another store: copy, follow, hold, and switch. One proxy does it for the fleet.
//!
//! The state of the move is one value in the store that is left, which each proxy reads with the register; what each
//! proxy says of it is in its entry. The value has a time to live, so a move whose process stopped ends by itself, and
//! it is exchanged, never overwritten: the switch is done if, and only if, `Held` became `Moved`.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::StoredToken;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use anteroom_store::bypass::BypassChange;
use anteroom_store::fleet::{Fleet, FleetReport, ListedProxy, ProxyEntry};
use anteroom_store::traits::*;
use anteroom_store::transfer::{Transfer, TransferProgress};
use anteroom_store::{
    AnyStore, BypassScope, Engine, MigrationAnswer, MigrationOrder, MigrationState, PurgePosition,
    StoreError, StoredBypasses,
};

/// How long the next store has to be connected to.
const CONNECT: Duration = Duration::from_secs(5);
/// For how long a state lasts that is not written again.
const STATE_LIVES: Duration = Duration::from_secs(30);
/// How often it is written again.
const STATE_EVERY: Duration = Duration::from_secs(5);
/// For how long proxies hold changes back at most.
const HOLD_LIVES: Duration = Duration::from_secs(10);
/// The switch is given up when this much of the hold is over: it must be done before proxies go on by themselves.
const HOLD_MOST: Duration = Duration::from_secs(7);
/// How long proxies have to answer. A proxy that does not run has left the register by then.
const ANSWERS: Duration = Duration::from_secs(75);
/// How long they have to become quiet.
const QUIET: Duration = Duration::from_secs(4);
/// By how much earlier than the switch the time of a login may be that waited for it, in seconds: the sweep after the
/// switch must not take it for one that the old store has lost.
const WAITED: f64 = 120.0;
/// How long the announcement of ended sessions has to arrive.
const HEARD: Duration = Duration::from_millis(500);
/// The pause between two looks whether it has.
const HEARD_LOOK: Duration = Duration::from_millis(2);
/// How long they have to appear in the next store.
const ARRIVAL: Duration = Duration::from_secs(20);
/// The pause between two looks at the register.
const LOOK: Duration = Duration::from_millis(50);
/// How much earlier than the last look at changes the next one begins: for what is written later than its time says.
const MARGIN: f64 = 5.0;
/// Changes are followed until what came meanwhile takes less time than this.
const SHORT: Duration = Duration::from_millis(300);
/// The most rounds of following before the switch.
const ROUNDS: usize = 20;
/// The most ended sessions that are noted between two looks; more are found by the sweep.
const GONE_MAX: usize = 100_000;

/// Why a store was not moved. Nothing has changed for visitors then.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The next store cannot be used.
    #[error("the next store cannot be used: {0}")]
    Next(String),
    /// Another move is under way, or the store has been left.
    #[error("another move is under way, or the store has been left already: {0}")]
    Busy(String),
    /// A proxy cannot take part.
    #[error("the proxy {0} cannot follow: {1}")]
    Refused(String, String),
    /// Proxies did not answer.
    #[error("these proxies did not answer: {0}; each needs this version and the same [store.next]")]
    Silent(String),
    /// Proxies run on the next store.
    #[error("proxies run on the next store already: {0}; stop them")]
    Taken(String),
    /// The next store is a folder, and several proxies run.
    #[error(
        "the next store is a folder, which is for one proxy alone, and {0} run: name a Redis, or stop the others"
    )]
    OneFolder(usize),
    /// The next store has sessions of its own.
    #[error("the next store has sessions; --replace removes those that this store does not have")]
    NotEmpty,
    /// The move was ended by another process, or its time was over.
    #[error("the move was interrupted: its state in the store was changed or ended")]
    Interrupted,
    /// Copying what changed last took too long.
    #[error("the last changes were not copied within {} s, so nothing was switched; try at a quieter time", HOLD_MOST.as_secs())]
    TooSlow,
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is told of a move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigrationStatus {
    /// What is being done; empty before the first move.
    pub step: String,
    /// Sessions and visitor tokens that were copied.
    pub done: u64,
    /// How many there are, about.
    pub of: u64,
    /// Whether it has ended.
    pub ended: bool,
    /// Why it ended without a switch.
    pub error: Option<String>,
    /// Seconds since it began, or that it took.
    pub seconds: f64,
    /// For how many seconds changes had to wait.
    pub held: f64,
    /// Sessions and tokens that were copied again, because they changed meanwhile.
    pub again: u64,
    /// Sessions that were removed from the next store, because they are over.
    pub swept: u64,
    /// Proxies that are waited for; in the end, those that have not appeared in the next store.
    pub missing: Vec<String>,
    /// What the configuration needs beside the next store, as a line of it.
    pub advice: Option<String>,
    /// Why the time after the switch ended early: sessions that ended during the move may go on.
    pub unfinished: Option<String>,
}

/// What this process knows of the move that it does.
#[derive(Debug, Default)]
pub struct MigrationProgress {
    report: Mutex<(MigrationStatus, Option<Instant>)>,
    copied: TransferProgress,
}

impl MigrationProgress {
    /// The report now.
    #[must_use]
    pub fn report(&self) -> MigrationStatus {
        let (mut report, began) = self.locked().clone();
        if let Some(began) = began.filter(|_| !report.ended) {
            report.seconds = began.elapsed().as_secs_f64();
        }
        (report.done, report.of) = (self.copied.done(), self.copied.of());
        report
    }

    /// Whether no move is under way.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let locked = self.locked();
        locked.1.is_none() || locked.0.ended
    }

    /// Begins a report, unless a move is under way.
    fn begin(&self) -> bool {
        let mut locked = self.locked();
        if locked.1.is_some() && !locked.0.ended {
            return false;
        }
        *locked = (MigrationStatus::default(), Some(Instant::now()));
        true
    }

    fn change(&self, change: impl FnOnce(&mut MigrationStatus)) {
        change(&mut self.locked().0);
    }

    fn step(&self, step: &str) {
        tracing::info!(step, "moving the store");
        step.clone_into(&mut self.locked().0.step);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, (MigrationStatus, Option<Instant>)> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves the store that the proxies use.
#[derive(Debug)]
pub struct MigrateStore {
    /// The store that is left, by a handle that no move turns.
    pub from: AnyStore,
    /// The register.
    pub fleet: Arc<Fleet>,
    /// The id of this process there.
    pub process_id: u64,
    /// What it says about itself.
    pub entry: ProxyEntry,
    /// The label of the store to which it goes.
    pub target: String,
    /// What the configuration needs beside the next store, as a line of it.
    pub advice: Option<String>,
    /// Whether the next store may have sessions, which are removed where this store does not have them.
    pub replace: bool,
    /// What is told.
    pub progress: Arc<MigrationProgress>,
}

impl MigrateStore {
    /// Moves. The result is in the report, too. `false`: another move is under way in this process.
    pub async fn run(self) -> bool {
        if !self.progress.begin() {
            return false;
        }
        let outcome = self.carry_out().await;
        if let Err(error) = &outcome {
            tracing::error!(%error, "the store was not moved");
        }
        self.progress.change(|report| {
            report.ended = true;
            report.missing.retain(|_| outcome.is_ok());
            report.advice.clone_from(&self.advice);
            report.error = outcome.err().map(|error| error.to_string());
        });
        let took = self.progress.locked().1.map_or(0.0, |began| began.elapsed().as_secs_f64());
        self.progress.change(|report| report.seconds = took);
        true
    }

    async fn carry_out(&self) -> Result<(), MigrationError> {
        self.progress.step("opening the next store");
        let to = AnyStore::of_next(&self.fleet.switch).await.map_err(MigrationError::Next)?;
        let to = to.background();
        self.reach(&to).await?;
        self.prepare(&to).await?;
        let id = format!("{:016x}", fastrand::u64(..));
        let order = MigrationOrder { id: id.clone(), to: self.target.clone() };
        let copying = MigrationState::Copying(order.clone()).text();
        // What filled it, in a move that was given up, is of no interest any more.
        let before = self.from.move_state().await?.filter(|state| state == FILLING);
        let (state, lives) = (Some(copying.as_str()), Some(STATE_LIVES));
        if !self.from.change_move(before.as_deref(), state, lives).await? {
            let state = self.from.move_state().await?.unwrap_or_default();
            return Err(MigrationError::Busy(state));
        }
        let marker = StoredToken::from_store(format!("moving-{id}").as_bytes());
        let marker = marker.ok_or(MigrationError::Interrupted)?;
        let work = Migration {
            plan: self,
            to,
            id,
            copying,
            held: MigrationState::Held(order).text(),
            gone: RefCell::default(),
            since: unix_now(),
            marker,
            is_marked: Cell::default(),
            clocks: Cell::default(),
        };
        let outcome = tokio::select! {
            outcome = work.work() => outcome,
            error = work.keep_up() => Err(error),
        };
        if outcome.is_err() {
            // What is left of the state ends by itself.
            for state in [&work.copying, &work.held] {
                if let Err(error) = self.from.change_move(Some(state), None, None).await {
                    tracing::debug!(%error, "the state of the move stays until it ends by itself");
                }
            }
        }
        outcome
    }

    /// Connects to both stores.
    async fn reach(&self, to: &AnyStore) -> Result<(), MigrationError> {
        let reached = async {
            for store in [&self.from, to] {
                store.connected().await;
                while store.move_state().await.is_err() {
                    sleep(LOOK).await;
                }
            }
        };
        let reached = timeout(CONNECT, reached).await;
        reached.map_err(|_elapsed| MigrationError::Next("it does not answer".to_owned()))
    }

    /// Checks that the next store is free, and marks it.
    async fn prepare(&self, to: &AnyStore) -> Result<(), MigrationError> {
        if is_folder(to) {
            let FleetReport { proxies, .. } =
                self.fleet.look(&self.from, self.process_id, &self.entry).await?;
            may_enter_folder(proxies.len())?;
        }
        let state = to.move_state().await?;
        if let Some(state @ ("copying" | "held")) =
            state.as_deref().and_then(|state| state.split(' ').nth(1))
        {
            return Err(MigrationError::Busy(format!("the next store is itself {state}")));
        }
        let entry = serde_json::to_string(&self.entry).unwrap_or_default();
        let register = to.register_proxy(self.process_id, &entry, Duration::from_secs(60)).await?;
        to.unregister_proxy(self.process_id).await?;
        let others: Vec<String> = register
            .proxies
            .iter()
            .filter(|proxy| proxy.process_id != self.process_id)
            .map(|proxy| format!("{:016x}", proxy.process_id))
            .collect();
        if !others.is_empty() {
            return Err(MigrationError::Taken(others.join(", ")));
        }
        if state.is_none() {
            let has_sessions = !to.newest(None, 1).await?.met.is_empty();
            if has_sessions && !self.replace {
                return Err(MigrationError::NotEmpty);
            }
            to.change_move(None, Some(FILLING), None).await?;
        }
        Ok(())
    }
}

/// The state of a store into which a move copies. It is no state of a move from it.
const FILLING: &str = "1 filling";

/// A move that has begun.
struct Migration<'a> {
    plan: &'a MigrateStore,
    to: AnyStore,
    id: String,
    /// Its states, as they are written.
    copying: String,
    held: String,
    /// Sessions that ended since the last look.
    gone: RefCell<Vec<StoredToken>>,
    since: f64,
    /// A session that never was.
    marker: StoredToken,
    /// Whether its end was heard of.
    is_marked: Cell<bool>,
    /// By how many seconds the clocks of proxies differ.
    clocks: Cell<f64>,
}

impl Migration<'_> {
    /// Keeps the state, and notes sessions that end. Returns only if the state is gone.
    async fn keep_up(&self) -> MigrationError {
        let from = &self.plan.from;
        let keep = async {
            loop {
                sleep(STATE_EVERY).await;
                let kept = from
                    .change_move(Some(&self.copying), Some(&self.copying), Some(STATE_LIVES))
                    .await;
                if !matches!(kept, Ok(false)) {
                    continue;
                }
                match from
                    .move_state()
                    .await
                    .map(|state| state.as_deref().and_then(MigrationState::parse))
                {
                    // `work` sees to it.
                    Ok(Some(MigrationState::Held(_) | MigrationState::Moved(_))) => {
                        std::future::pending().await
                    }
                    Ok(Some(MigrationState::Copying(order))) if order.id == self.id => {}
                    Ok(_) => return MigrationError::Interrupted,
                    Err(_) => {}
                }
            }
        };
        let note = async {
            loop {
                let ended = from.ended_sessions().await;
                if ended.contains(&self.marker) {
                    self.is_marked.set(true);
                }
                let mut gone = self.gone.borrow_mut();
                let room = GONE_MAX.saturating_sub(gone.len());
                gone.extend(ended.into_iter().take(room));
            }
        };
        tokio::select! {
            error = keep => error,
            error = note => error,
        }
    }

    async fn work(&self) -> Result<(), MigrationError> {
        let MigrateStore { from, progress, target, .. } = self.plan;
        let transfer = Transfer { from: from.clone(), to: self.to.clone() };
        progress.step("waiting for all proxies");
        self.answers(MigrationAnswer::is_ready, ANSWERS).await?;

        progress.step("copying");
        transfer.copy_all(&progress.copied).await?;

        progress.step("following");
        let mut since = self.follow(&transfer, self.since).await?;
        let swept = transfer.sweep(self.since).await?;
        progress.change(|report| report.swept += swept as u64);
        since = self.follow(&transfer, since).await?;

        progress.step("switching");
        let began = Instant::now();
        let held_at = unix_now();
        if !from.change_move(Some(&self.copying), Some(&self.held), Some(HOLD_LIVES)).await? {
            return Err(MigrationError::Interrupted);
        }
        let switched = self.switch(&transfer, since).await;
        progress.change(|report| report.held = began.elapsed().as_secs_f64());
        let proxies = switched?;
        tracing::info!(target, "the store has been left: calls go to the next one");

        progress.step("finishing");
        let finished = self.finish(&transfer, &proxies, held_at).await;
        if let Err(error) = &finished {
            tracing::warn!(%error, "the move was not tidied up");
        }
        progress.change(|report| report.unfinished = finished.err().map(|error| error.to_string()));
        progress.step("done");
        Ok(())
    }

    /// After the switch: what was missed before it.
    async fn finish(
        &self,
        transfer: &Transfer,
        proxies: &[ListedProxy],
        held_at: f64,
    ) -> Result<(), MigrationError> {
        let MigrateStore { from, progress, fleet, .. } = self.plan;
        while !fleet.switch.has_moved() {
            if self.look().await.is_err() {
                sleep(LOOK).await;
            }
        }
        self.arrivals(proxies).await?;
        transfer.copy_marks().await?;
        let swept = transfer.sweep(held_at - WAITED).await?;
        progress.change(|report| report.swept += swept as u64);
        for proxy in proxies {
            from.unregister_proxy(id_of(proxy)).await?;
        }
        Ok(())
    }

    /// Copies what changed since `since`, until little is left. Returns since when the next look has to look.
    async fn follow(&self, transfer: &Transfer, mut since: f64) -> Result<f64, MigrationError> {
        for _ in 0..ROUNDS {
            let (began, next) = (Instant::now(), unix_now());
            self.catch_up(transfer, since).await?;
            since = next;
            if began.elapsed() < SHORT {
                break;
            }
        }
        Ok(since)
    }

    async fn catch_up(&self, transfer: &Transfer, since: f64) -> Result<(), MigrationError> {
        let mut gone = self.gone.take();
        gone.extend(self.plan.fleet.switch.take_ended());
        let caught = transfer.catch_up(since - MARGIN - self.clocks(), &gone).await?;
        self.plan.progress.change(|report| report.again += caught.changed);
        Ok(())
    }

    /// Waits until what was announced before now has been heard: a session that never was is announced as ended, and heard
    /// of last. What is heard too late all the same is found by the sweep after the switch.
    async fn hear_all(&self) -> Result<(), StoreError> {
        if matches!(self.plan.from.engine(), Engine::Embedded(_)) {
            return Ok(());
        }
        self.plan.from.revoke_token(&self.marker).await?;
        let deadline = Instant::now() + HEARD;
        while !self.is_marked.get() && Instant::now() < deadline {
            sleep(HEARD_LOOK).await;
        }
        Ok(())
    }

    /// By how many seconds the clocks of proxies differ.
    fn clocks(&self) -> f64 {
        self.clocks.get()
    }

    fn note_clocks(&self, proxies: &[ListedProxy]) {
        let clocks = proxies.iter().map(|proxy| proxy.clock);
        let spread = clocks.clone().fold(0.0, f64::max) - clocks.fold(0.0, f64::min);
        self.clocks.set(spread);
    }

    /// Everything between `Held` and `Moved`. Returns the proxies that switch.
    async fn switch(
        &self,
        transfer: &Transfer,
        since: f64,
    ) -> Result<Vec<ListedProxy>, MigrationError> {
        let deadline = Instant::now() + HOLD_MOST;
        let proxies = self.answers(MigrationAnswer::is_quiet, QUIET).await?;
        let copied = async {
            self.hear_all().await?;
            self.catch_up(transfer, since).await?;
            transfer.copy_what_changes().await?;
            self.copy_bypasses().await?;
            // It may have been left by an earlier move, with pages that were purged since.
            self.to.forget_purges().await?;
            // A purge at the next store waits for every proxy from the first one on.
            for proxy in &proxies {
                self.to.purged_since(id_of(proxy), PurgePosition::default()).await?;
            }
            let state = self.to.move_state().await?;
            self.to.change_move(state.as_deref(), None, None).await?;
            Ok(())
        };
        let copied = tokio::time::timeout_at(deadline, copied).await;
        copied.unwrap_or(Err(MigrationError::TooSlow))?;
        let moved = MigrationState::Moved(self.plan.target.clone()).text();
        loop {
            match self.plan.from.change_move(Some(&self.held), Some(&moved), None).await {
                Ok(true) => return Ok(proxies),
                // An earlier attempt without an answer may have been taken.
                Ok(false) if self.state().await.as_ref() == Some(&moved) => return Ok(proxies),
                Ok(false) => return Err(MigrationError::Interrupted),
                Err(error) if error.is_refusal() => return Err(error.into()),
                Err(_) => sleep(LOOK).await,
            }
        }
    }

    /// A route that is switched to bypass stays so at the next store, for the rest of its time, and so do stopped pages.
    async fn copy_bypasses(&self) -> Result<(), StoreError> {
        let StoredBypasses { now, bypasses } = self.plan.from.bypasses().await?;
        let off = |scope| BypassChange { scope, lasts: None, by: String::new() };
        let there = self.to.change_bypass(&off(BypassScope::All)).await?.bypasses;
        for bypass in there {
            self.to.change_bypass(&off(bypass.scope)).await?;
        }
        for bypass in bypasses {
            let lasts = Duration::from_millis(bypass.until.saturating_sub(now));
            let change = BypassChange { scope: bypass.scope, lasts: Some(lasts), by: bypass.by };
            self.to.change_bypass(&change).await?;
        }
        Ok(())
    }

    /// The state of the move, once the store tells it.
    async fn state(&self) -> Option<String> {
        loop {
            match self.plan.from.move_state().await {
                Ok(state) => return state,
                Err(_) => sleep(LOOK).await,
            }
        }
    }

    /// Returns the proxies once all give this answer about this move.
    async fn answers(
        &self,
        wanted: fn(&MigrationAnswer, &str) -> bool,
        patience: Duration,
    ) -> Result<Vec<ListedProxy>, MigrationError> {
        let deadline = Instant::now() + patience;
        loop {
            let FleetReport { proxies, .. } = self.look().await?;
            // Another may have started meanwhile, and follow to a folder of its own with the same path.
            if is_folder(&self.to) {
                may_enter_folder(proxies.len())?;
            }
            self.note_clocks(&proxies);
            let answers: Vec<_> =
                proxies.iter().map(|proxy| MigrationAnswer::parse(&proxy.moving)).collect();
            for (proxy, answer) in proxies.iter().zip(&answers) {
                if let Some(why) = answer.refusal(&self.id) {
                    return Err(MigrationError::Refused(name(proxy), why.to_owned()));
                }
            }
            let silent: Vec<_> = proxies
                .iter()
                .zip(&answers)
                .filter(|(_, answer)| !wanted(answer, &self.id))
                .map(|(proxy, _)| name(proxy))
                .collect();
            self.plan.progress.change(|report| report.missing.clone_from(&silent));
            if silent.is_empty() {
                return Ok(proxies);
            }
            if Instant::now() > deadline {
                return Err(MigrationError::Silent(silent.join(", ")));
            }
            sleep(LOOK).await;
        }
    }

    async fn look(&self) -> Result<FleetReport, StoreError> {
        let MigrateStore { fleet, from, process_id, entry, .. } = self.plan;
        fleet.look(from, *process_id, entry).await
    }

    /// Waits until the proxies are in the register of the next store.
    async fn arrivals(&self, proxies: &[ListedProxy]) -> Result<(), MigrationError> {
        let MigrateStore { fleet, process_id, entry, progress, .. } = self.plan;
        let deadline = Instant::now() + ARRIVAL;
        loop {
            let there = fleet.look(&self.to, *process_id, entry).await?;
            let there: HashSet<_> = there.proxies.into_iter().map(|proxy| proxy.id).collect();
            let missing: Vec<_> =
                proxies.iter().filter(|proxy| !there.contains(&proxy.id)).map(name).collect();
            if missing.is_empty() || Instant::now() > deadline {
                progress.change(|report| report.missing = missing);
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }
}

fn is_folder(store: &AnyStore) -> bool {
    matches!(store.engine(), Engine::Embedded(_))
}

/// Whether so many proxies may move to a folder: each would open its own.
fn may_enter_folder(proxies: usize) -> Result<(), MigrationError> {
    if proxies > 1 { Err(MigrationError::OneFolder(proxies)) } else { Ok(()) }
}

fn id_of(proxy: &ListedProxy) -> u64 {
    u64::from_str_radix(&proxy.id, 16).unwrap_or_default()
}

fn name(proxy: &ListedProxy) -> String {
    format!("{} ({})", proxy.id, proxy.host.escape_debug())
}
