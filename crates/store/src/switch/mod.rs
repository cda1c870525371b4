//! The move of a running site to another store, as one process takes part in it.
//!
//! The state of a move is one value in the store that is left, which [`super::FleetStore`] reads with the register. While
//! a move copies, calls go where they went. When it is held, changes wait, and reads go on. When it is done, every call
//! goes to the next store. Changes in flight are counted, so that the process can say when none is. Once the
//! configuration names that store, a further move leaves it, for a third store or for one that was left before.
//!
//! `hand_over` has the other change of where calls go: to the process that takes over from this one.

mod hand_over;
mod next_store;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anteroom_http::ident::StoredToken;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

pub use self::hand_over::HoldError;
pub use self::next_store::NextStore;
use super::engine::Engine;
use super::open_engine::OpenEngine;
use super::{OpenError, StoreError, StoreState};

/// How long a change waits while a move is held: as long as a write may take.
const HOLD_WAIT: Duration = Duration::from_secs(2);
/// While a move copies, a change needs news of it that are younger than this: a process that slept does not write
/// into a store that the others have left.
const NEWS_LAST: Duration = Duration::from_secs(1);
/// How long the first call of a thread waits for its connection to the next store.
const CONNECT_WAIT: Duration = Duration::from_millis(500);

/// How long answers of apps are still checked against the old store: as long as an app may take to answer, see
/// `[session.verify] timeout`.
const OLD_STORE_GRACE: Duration = Duration::from_secs(60);

/// The most ended sessions that are noted; the sweep of the move finds others.
const ENDED_MAX: usize = 100_000;

/// The most stores that a process opens. They stay open, and a move back opens none.
const STORES_MAX: usize = 8;

/// The longest reason of a refusal, in characters. It stands in the entry of the process in the register; one that
/// is too large would hide the process from the others, which would then move without it.
const REFUSAL_MAX: usize = 1_000;

/// The state of a move, as the store that is left has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationState {
    /// Data are being copied.
    Copying(MigrationOrder),
    /// No proxy may change anything.
    Held(MigrationOrder),
    /// The store has been left, for the one with this label.
    Moved(String),
}

/// A move that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationOrder {
    /// Its id, without spaces.
    pub id: String,
    /// The store to which it goes, see [`NextStore::label`].
    pub to: String,
}

impl MigrationState {
    /// As it is written.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Copying(MigrationOrder { id, to }) => format!("1 copying {id} {to}"),
            Self::Held(MigrationOrder { id, to }) => format!("1 held {id} {to}"),
            Self::Moved(to) => format!("1 moved {to}"),
        }
    }

    /// A written state. `None` if it is that of another version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.strip_prefix("1 ")?.split_once(' ')?;
        let order = || {
            let (id, to) = rest.split_once(' ')?;
            Some(MigrationOrder { id: id.to_owned(), to: to.to_owned() })
        };
        match word {
            "copying" => order().map(Self::Copying),
            "held" => order().map(Self::Held),
            "moved" => Some(Self::Moved(rest.to_owned())),
            _ => None,
        }
    }
}

/// What a process says of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationAnswer {
    /// Nothing.
    None,
    /// It follows the move of this id.
    Ready(String),
    /// It holds back changes, and none is in flight.
    Quiet(String),
    /// It cannot follow the move of this id, for this reason.
    Refuses(String, String),
}

impl MigrationAnswer {
    /// As it is written in the entry of the process.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Ready(id) => format!("ready {id}"),
            Self::Quiet(id) => format!("quiet {id}"),
            Self::Refuses(id, why) => format!("refuses {id} {why}"),
        }
    }

    /// A written answer. What is not understood is no answer.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let Some((word, rest)) = text.split_once(' ') else { return Self::None };
        match word {
            "ready" => Self::Ready(rest.to_owned()),
            "quiet" => Self::Quiet(rest.to_owned()),
            "refuses" => match rest.split_once(' ') {
                Some((id, why)) => Self::Refuses(id.to_owned(), why.to_owned()),
                None => Self::None,
            },
            _ => Self::None,
        }
    }

    /// Whether the process follows the move of this id.
    #[must_use]
    pub fn is_ready(&self, id: &str) -> bool {
        matches!(self, Self::Ready(own) | Self::Quiet(own) if own == id)
    }

    /// Whether it has no change in flight, and begins none.
    #[must_use]
    pub fn is_quiet(&self, id: &str) -> bool {
        matches!(self, Self::Quiet(own) if own == id)
    }

    /// Why it cannot follow the move of this id.
    #[must_use]
    pub fn refusal(&self, id: &str) -> Option<&str> {
        match self {
            Self::Refuses(own, why) if own == id => Some(why),
            _ => None,
        }
    }
}

/// What calls do. The numbers are those in [`Switch::phase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// There is no move.
    Usual = 0,
    Copying = 1,
    Held = 2,
    Moved = 3,
    /// The store has been left, and the next one is not known here: nothing is there any more.
    Left = 4,
    /// The process has just begun, and does not know yet whether there is a move.
    Starting = 5,
    /// The store is between this process and its successor: all calls wait.
    Handing = 6,
    /// The successor has the store, and gets the calls of this process.
    Handed = 7,
}

impl Phase {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Usual,
            1 => Self::Copying,
            2 => Self::Held,
            3 => Self::Moved,
            5 => Self::Starting,
            6 => Self::Handing,
            7 => Self::Handed,
            _ => Self::Left,
        }
    }

    /// Whether the store is a successor's, or on its way there: no news of a move change that.
    fn is_of_successor(self) -> bool {
        matches!(self, Self::Handing | Self::Handed)
    }
}

/// A store that this process has opened.
#[derive(Debug)]
struct OpenedStore {
    place: NextStore,
    engine: OpenEngine,
}

/// Where the calls of this process go: its part in a move, and in its own succession.
#[derive(Debug, Default)]
pub struct Switch {
    phase: AtomicU8,
    /// Changes in flight.
    changes: AtomicUsize,
    /// Milliseconds from `began` to the last news.
    heard: AtomicU64,
    began: OnceLock<Instant>,
    /// Wakes what waits for another phase, or for news.
    turns: Notify,
    /// Where to move, as the configuration in force has it.
    wanted: Mutex<Option<NextStore>>,
    /// The stores that this process has opened: that of its start, and those of moves.
    stores: [OnceLock<OpenedStore>; STORES_MAX],
    /// The number of the store that a move leaves.
    old_store: AtomicUsize,
    /// That of the store to which the move goes that this process follows, or has followed.
    target: AtomicUsize,
    followed: Mutex<FollowedMigration>,
    /// The store that was left last, and when.
    left: Mutex<Option<(usize, Instant)>>,
    /// When the target of a move became the store that a further move leaves. What was asked before may be about the
    /// one that was left.
    settled: Mutex<Option<Instant>>,
    /// Sessions that this process ended during a move.
    ended: Mutex<Vec<StoredToken>>,
    /// The process that has taken the store over.
    successor: Mutex<Option<Engine>>,
}

/// The move that this process was asked to follow last.
#[derive(Debug, Default)]
struct FollowedMigration {
    /// The move that it follows.
    id: String,
    /// Why it cannot follow.
    refusal: Option<String>,
}

impl Switch {
    /// Of a process with this store.
    pub(super) fn of(place: NextStore, engine: &OpenEngine) -> Self {
        let switch = Self::default();
        switch.stores[0].get_or_init(|| OpenedStore { place, engine: engine.clone() });
        switch
    }

    fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::SeqCst))
    }

    /// Changes wait until the process has heard whether there is a move, which the register tells: until then, a move does
    /// not know of this process.
    pub fn expect_news(&self) {
        self.phase.store(Phase::Starting as u8, Ordering::SeqCst);
    }

    /// The register cannot be used, so no move waits for this process: one that has just begun does not wait for it either.
    pub fn expect_nothing(&self) {
        let [starting, usual] = [Phase::Starting, Phase::Usual].map(|phase| phase as u8);
        let (order, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.phase.compare_exchange(starting, usual, order, failure).is_ok() {
            self.turns.notify_waiters();
        }
    }

    /// Says where a move would go.
    pub fn set_wanted(&self, next: Option<NextStore>) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Where a move would go.
    #[must_use]
    pub fn wanted(&self) -> Option<NextStore> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the process takes part in a move that has not ended.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        matches!(self.phase(), Phase::Copying | Phase::Held)
    }

    /// Returns once the process has heard whether there is a move.
    pub async fn heard(&self) {
        loop {
            let turn = self.turns.notified();
            if !self.is_starting() {
                return;
            }
            turn.await;
        }
    }

    /// Whether the process does not know yet whether there is a move.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.phase() == Phase::Starting
    }

    /// Whether the calls of this process go to the next store.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.phase() == Phase::Moved
    }

    /// Whether the store has been left for one that this process does not know.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.phase() == Phase::Left
    }

    /// Whether the calls of this process go to another store than that of its start.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.current() != 0
    }

    /// Whether the calls of this process go to this store.
    #[must_use]
    pub fn uses(&self, place: &NextStore) -> bool {
        self.number_of(place) == Some(self.current())
    }

    /// The number of the store that calls go to.
    fn current(&self) -> usize {
        let number = if self.has_moved() { &self.target } else { &self.old_store };
        number.load(Ordering::SeqCst)
    }

    fn number_of(&self, place: &NextStore) -> Option<usize> {
        let is_it = |store: &OnceLock<OpenedStore>| {
            store.get().is_some_and(|store| store.place.is_same(place))
        };
        self.stores.iter().position(is_it)
    }

    fn opened(&self, number: usize) -> Option<&OpenEngine> {
        Some(&self.stores.get(number)?.get()?.engine)
    }

    /// The store that calls go to.
    pub(super) fn in_use(&self) -> Option<&OpenEngine> {
        self.opened(self.current())
    }

    /// The stores that moves have opened.
    pub(super) fn others(&self) -> impl Iterator<Item = &OpenEngine> {
        self.stores.iter().skip(1).filter_map(|store| Some(&store.get()?.engine))
    }

    /// The store that the configuration names next, opened if it is not yet.
    ///
    /// # Errors
    /// In words, for the operator.
    pub async fn open_next(&self) -> Result<&OpenEngine, String> {
        let number = self.open_wanted().await?;
        self.opened(number).ok_or_else(|| "it is closed".to_owned())
    }

    /// As [`Self::open_wanted`], if the store has this label.
    async fn open_target(&self, label: &str) -> Result<usize, String> {
        match self.wanted().map(|wanted| wanted.label()) {
            Some(own) if own != label => Err(format!(
                "its [store.next] is {own}, and the move goes to {label}: spell it alike in all proxies"
            )),
            _ => self.open_wanted().await,
        }
    }

    /// As [`Self::open_target`], of a move that is done. A folder that is empty is that of another machine.
    async fn open_moved(&self, label: &str) -> Result<usize, String> {
        if self.wanted().is_some_and(|wanted| wanted.is_empty_folder()) {
            return Err("its [store.next] is a folder without sessions".to_owned());
        }
        self.open_target(label).await
    }

    /// The store that the configuration names next, opened if it is not yet; its number.
    async fn open_wanted(&self) -> Result<usize, String> {
        let wanted =
            self.wanted().ok_or_else(|| "its configuration has no [store.next]".to_owned())?;
        match self.number_of(&wanted) {
            Some(number) if number == self.current() => {
                return Err("its [store.next] is the store that it uses".to_owned());
            }
            Some(number) => return Ok(number),
            None => {}
        }
        let engine = open(&wanted).await.map_err(|error| error.to_string())?;
        // It may have been opened meanwhile.
        if let Some(number) = self.number_of(&wanted) {
            return Ok(number);
        }
        let mut store = OpenedStore { place: wanted, engine };
        // The first place is that of the store of the start.
        for (number, place) in self.stores.iter().enumerate().skip(1) {
            match place.set(store) {
                Ok(()) => return Ok(number),
                Err(refused) => store = refused,
            }
        }
        Err(format!("it has opened {STORES_MAX} stores already: restart it"))
    }

    /// The configuration names the store now that a move has gone to: a further move leaves that one.
    pub fn settle(&self) {
        if !self.has_moved() {
            return;
        }
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        *self.followed() = FollowedMigration::default();
        // Before the phase: calls go to the same store all the while.
        self.old_store.store(self.target.load(Ordering::SeqCst), Ordering::SeqCst);
        self.turn_from(&[Phase::Moved], Phase::Usual);
    }

    /// Whether what a store said to a question may be of the one that was left.
    fn is_old(&self, asked: Instant) -> bool {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.is_some_and(|settled| asked <= settled)
    }

    /// As [`Self::hear`], at the start: only a move that is done is followed. The register tells of one under way.
    pub async fn hear_at_start(&self, state: Option<&str>, asked: Instant) {
        if let Some(MigrationState::Moved(_)) = state.and_then(MigrationState::parse) {
            self.hear(state, asked).await;
        }
    }

    /// Takes in the state of the move, which the store had after `asked`.
    pub async fn hear(&self, state: Option<&str>, asked: Instant) {
        let state = state.and_then(MigrationState::parse);
        if self.has_moved() || self.phase().is_of_successor() || self.is_old(asked) {
            return;
        }
        let mut why_left = None;
        let phase = match &state {
            None => {
                self.ended().clear();
                Phase::Usual
            }
            Some(MigrationState::Copying(order)) => self.follow(order, Phase::Copying).await,
            Some(MigrationState::Held(order)) => self.follow(order, Phase::Held).await,
            Some(MigrationState::Moved(_)) if self.is_moving() => Phase::Moved,
            Some(MigrationState::Moved(to)) => match self.open_moved(to).await {
                Ok(number) => {
                    self.target.store(number, Ordering::SeqCst);
                    Phase::Moved
                }
                Err(why) => {
                    why_left = Some(why);
                    Phase::Left
                }
            },
        };
        self.log_turn(phase, state.as_ref(), why_left.as_deref());
        let began = *self.began.get_or_init(|| asked);
        let since = asked.saturating_duration_since(began).as_millis() as u64;
        self.heard.store(since, Ordering::SeqCst);
        if phase == Phase::Moved {
            *self.left() = Some((self.old_store.load(Ordering::SeqCst), Instant::now()));
        }
        self.turn_to(phase);
        self.turns.notify_waiters();
    }

    /// Turns to a phase of a move, unless calls are held for a successor meanwhile.
    fn turn_to(&self, phase: Phase) {
        let turn = |now| (!Phase::of(now).is_of_successor()).then_some(phase as u8);
        // An error is the phase that stays.
        let _ = self.phase.fetch_update(Ordering::SeqCst, Ordering::SeqCst, turn);
    }

    /// Logs that the store has been left.
    fn log_turn(&self, phase: Phase, state: Option<&MigrationState>, why: Option<&str>) {
        let to = match state {
            Some(MigrationState::Moved(to)) if self.phase() != phase => to,
            _ => return,
        };
        if phase == Phase::Moved {
            tracing::warn!(
                to,
                "the store has been moved: make [store.next] the [store] of the configuration"
            );
        } else {
            tracing::error!(
                to,
                why,
                "the store has been moved, and no visitor is recognised here: make it the [store] of the configuration, and restart"
            );
        }
    }

    /// Takes part in a move, if it can.
    async fn follow(&self, order: &MigrationOrder, phase: Phase) -> Phase {
        let MigrationOrder { id, to } = order;
        // A reload turns no move that goes on.
        if self.is_moving() && self.followed().id == *id {
            return phase;
        }
        let opened = self.open_target(to).await;
        if let Ok(number) = opened {
            self.target.store(number, Ordering::SeqCst);
        }
        let (follows, refusal) = (opened.is_ok(), opened.err());
        let refusal = refusal.map(|why| why.chars().take(REFUSAL_MAX).collect());
        *self.followed() = FollowedMigration { id: id.clone(), refusal };
        if follows { phase } else { Phase::Usual }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Option<(usize, Instant)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followed(&self) -> std::sync::MutexGuard<'_, FollowedMigration> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process says of the move.
    #[must_use]
    pub fn answer(&self) -> MigrationAnswer {
        let (phase, followed) = (self.phase(), self.followed());
        match (&followed.refusal, phase) {
            (Some(why), Phase::Usual) => MigrationAnswer::Refuses(followed.id.clone(), why.clone()),
            (_, Phase::Copying) => MigrationAnswer::Ready(followed.id.clone()),
            (_, Phase::Held) if self.changes.load(Ordering::SeqCst) == 0 => {
                MigrationAnswer::Quiet(followed.id.clone())
            }
            _ => MigrationAnswer::None,
        }
    }

    /// Returns once calls go to another store than this one.
    async fn turned_from(&self, number: usize) {
        loop {
            let turn = self.turns.notified();
            if self.is_left() || self.current() != number {
                return;
            }
            turn.await;
        }
    }

    /// The sessions that this process ended since the last call, while a move goes on.
    #[must_use]
    pub fn take_ended(&self) -> Vec<StoredToken> {
        std::mem::take(&mut *self.ended())
    }

    fn ended(&self) -> std::sync::MutexGuard<'_, Vec<StoredToken>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news_are_young(&self) -> bool {
        let Some(began) = self.began.get() else { return true };
        let heard = *began + Duration::from_millis(self.heard.load(Ordering::SeqCst));
        heard.elapsed() < NEWS_LAST
    }

    /// Admits a change, and counts it until it is dropped; with the number of the store that it goes to. `None`: it
    /// goes to the successor. If it `needs_news`, the process must know that no other has left the store.
    async fn admit(
        &self,
        needs_news: impl Fn() -> bool,
    ) -> Result<Option<(Change<'_>, usize)>, StoreError> {
        let deadline = Instant::now() + HOLD_WAIT;
        loop {
            let turn = self.turns.notified();
            match self.phase() {
                Phase::Handed => return Ok(None),
                Phase::Left => return Err(StoreError::Away),
                Phase::Handing => {
                    self.handed().await?;
                    continue;
                }
                Phase::Usual | Phase::Moved => {}
                Phase::Copying if self.news_are_young() => {}
                Phase::Copying | Phase::Starting if !needs_news() => {}
                Phase::Copying | Phase::Held | Phase::Starting => {
                    timeout_at(deadline, turn).await.map_err(|_| StoreError::Away)?;
                    continue;
                }
            }
            self.changes.fetch_add(1, Ordering::SeqCst);
            let (change, number) = (Change(self), self.current());
            // The phase may have changed before the change was counted.
            let is_open = matches!(
                self.phase(),
                Phase::Usual | Phase::Copying | Phase::Starting | Phase::Moved
            );
            if is_open && self.current() == number {
                return Ok(Some((change, number)));
            }
        }
    }
}

/// A change in flight.
#[derive(Debug)]
struct Change<'a>(&'a Switch);

impl AdmittedStore<'_> {
    /// These sessions were ended, or may have been.
    pub(super) fn note_ended<'t>(&self, tokens: impl IntoIterator<Item = &'t StoredToken>) {
        let Some(Change(switch)) = &self.change else { return };
        if switch.is_moving() {
            let mut ended = switch.ended();
            let room = ENDED_MAX.saturating_sub(ended.len());
            ended.extend(tokens.into_iter().take(room).cloned());
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let was_last = self.0.changes.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && matches!(self.0.phase(), Phase::Held | Phase::Handing) {
            self.0.turns.notify_waiters();
        }
    }
}

async fn open(next: &NextStore) -> Result<OpenEngine, OpenError> {
    let store = OpenEngine::open(&next.settings).await?;
    match &next.pages_url {
        Some(url) => store.with_pages_in(url, &next.settings),
        None => Ok(store),
    }
}

/// One thread's handles of all stores.
#[derive(Clone, Debug)]
pub(super) struct StoreHandles {
    first: Engine,
    /// Those of further stores, by their numbers. Made when a move begins, so that they are connected when it is done.
    others: Arc<[OtherEngine; STORES_MAX]>,
    switch: Arc<Switch>,
    is_background: bool,
}

/// One thread's handle of a further store.
#[derive(Debug, Default)]
struct OtherEngine {
    engine: OnceLock<Engine>,
    /// Whether it has been connected.
    is_connected: AtomicBool,
}

/// A store that a change may use, for as long as this lives.
#[derive(Debug)]
pub(super) struct AdmittedStore<'a> {
    pub(super) engine: Cow<'a, Engine>,
    change: Option<Change<'a>>,
}

impl StoreHandles {
    pub(super) fn new(first: Engine, switch: Arc<Switch>) -> Self {
        Self { first, others: Arc::default(), switch, is_background: false }
    }

    pub(super) fn background(&self) -> Self {
        Self {
            first: self.first.background(),
            others: Arc::default(),
            switch: Arc::clone(&self.switch),
            is_background: true,
        }
    }

    /// The store of this process that calls go to, unless a successor has it.
    pub(super) fn engine(&self) -> &Engine {
        self.handle(self.switch.current()).unwrap_or(&self.first)
    }

    /// The store of this process, if a successor has it.
    pub(super) fn given_away(&self) -> Option<&Engine> {
        self.switch.is_handed_over().then(|| self.engine())
    }

    /// Whether the store answers. While it is between two processes it counts as if it did: calls wait.
    pub(super) fn state(&self) -> StoreState {
        match self.switch.phase() {
            Phase::Handing => StoreState::Connected,
            Phase::Handed => {
                self.switch.successor().map_or(StoreState::Away, |successor| successor.state())
            }
            Phase::Usual
            | Phase::Copying
            | Phase::Held
            | Phase::Moved
            | Phase::Left
            | Phase::Starting => self.engine().state(),
        }
    }

    /// The handle of the store with this number.
    fn handle(&self, number: usize) -> Option<&Engine> {
        if number == 0 {
            return Some(&self.first);
        }
        let store = self.switch.opened(number)?;
        Some(self.others[number].engine.get_or_init(|| {
            let engine = store.engine();
            if self.is_background { engine.background() } else { engine }
        }))
    }

    /// Begins to connect to the store to which a move goes.
    fn expect_target(&self) {
        self.handle(self.switch.target.load(Ordering::SeqCst));
    }

    /// The store with this number. A thread that has not been connected to it yet waits for that first.
    async fn connected(&self, number: usize) -> Result<&Engine, StoreError> {
        let engine = self.handle(number).ok_or(StoreError::Away)?;
        let is_connected = &self.others[number].is_connected;
        // That of the start is connected to from then on.
        if number != 0 && !is_connected.load(Ordering::Relaxed) {
            let connected = timeout(CONNECT_WAIT, engine.connected()).await;
            connected.map_err(|_elapsed| StoreError::Away)?;
            is_connected.store(true, Ordering::Relaxed);
        }
        Ok(engine)
    }

    /// The store that a move leaves, or that calls go to without one.
    async fn old_store(&self) -> Result<Cow<'_, Engine>, StoreError> {
        let number = self.switch.old_store.load(Ordering::SeqCst);
        self.connected(number).await.map(Cow::Borrowed)
    }

    /// The store to read from.
    pub(super) async fn look(&self) -> Result<Cow<'_, Engine>, StoreError> {
        loop {
            match self.switch.phase() {
                Phase::Usual | Phase::Starting => return self.old_store().await,
                Phase::Copying | Phase::Held => {
                    self.expect_target();
                    return self.old_store().await;
                }
                Phase::Moved | Phase::Handed => return self.elsewhere().await,
                Phase::Left => return Err(StoreError::Away),
                Phase::Handing => self.switch.handed().await?,
            }
        }
    }

    /// The store to change.
    pub(super) async fn change(&self) -> Result<AdmittedStore<'_>, StoreError> {
        // While the store is away, the change fails at once, and nothing waits for news.
        self.admitted(|| self.engine().state() != StoreState::Away).await
    }

    /// The store to purge. A purge waits while a move is held, and for nothing else: it changes no session.
    pub(super) async fn purge(&self) -> Result<AdmittedStore<'_>, StoreError> {
        self.admitted(|| false).await
    }

    async fn admitted(
        &self,
        needs_news: impl Fn() -> bool,
    ) -> Result<AdmittedStore<'_>, StoreError> {
        match self.switch.admit(needs_news).await? {
            Some((change, number)) => {
                if self.switch.is_moving() {
                    self.expect_target();
                }
                let engine = Cow::Borrowed(self.connected(number).await?);
                Ok(AdmittedStore { engine, change: Some(change) })
            }
            None => Ok(AdmittedStore { engine: Cow::Owned(self.successor()?), change: None }),
        }
    }

    fn successor(&self) -> Result<Engine, StoreError> {
        // There is none where the store was taken back just now.
        self.switch.successor().ok_or(StoreError::Away)
    }

    /// The store of the successor, or the one to which a move went.
    async fn elsewhere(&self) -> Result<Cow<'_, Engine>, StoreError> {
        if self.switch.is_handed_over() {
            return self.successor().map(Cow::Owned);
        }
        self.connected(self.switch.current()).await.map(Cow::Borrowed)
    }

    /// The store that has been left, during [`OLD_STORE_GRACE`].
    pub(super) fn old_store_in_grace(&self) -> Option<&Engine> {
        let (number, left) = (*self.switch.left())?;
        if left.elapsed() < OLD_STORE_GRACE { self.handle(number) } else { None }
    }

    /// The store with the register of this process: also one that has been left.
    pub(super) async fn register_store(&self) -> Result<Cow<'_, Engine>, StoreError> {
        loop {
            match self.switch.phase() {
                Phase::Moved | Phase::Handed => return self.elsewhere().await,
                Phase::Handing => self.switch.handed().await?,
                Phase::Usual | Phase::Copying | Phase::Held | Phase::Left | Phase::Starting => {
                    return self.old_store().await;
                }
            }
        }
    }

    /// Returns once the calls go to another store than [`Self::engine`] was.
    pub(super) async fn moved(&self) {
        // In a store that has been left, callers would ask again at once, for ever.
        if self.switch.is_left() {
            return std::future::pending().await;
        }
        self.switch.turned_from(self.switch.current()).await;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::{Item, StoredToken, User};

    use super::super::scratch::embedded_in;
    use super::super::traits::*;
    use super::super::{AnyStore, CartChange, CartOwner, OpenStore, SessionLifetimes};
    use super::*;

    /// A store that is to be moved to another, each in a folder.
    struct Bench {
        open: OpenStore,
        store: AnyStore,
        folders: [tempfile::TempDir; 2],
    }

    impl Bench {
        async fn new() -> Self {
            let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
            let open = OpenStore::open(&embedded_in(folders[0].path())).await.unwrap();
            let bench = Self { store: open.thread_handle(), open, folders };
            bench.switch().set_wanted(Some(bench.place(1)));
            bench
        }

        fn place(&self, number: usize) -> NextStore {
            NextStore { settings: embedded_in(self.folders[number].path()), pages_url: None }
        }

        fn switch(&self) -> &Switch {
            self.open.switch()
        }

        /// Hears this state of a move to the next store.
        async fn hear(&self, state: &MigrationState) {
            let next = self.switch().wanted().map(|next| next.label());
            let next = || next.clone().unwrap_or_default();
            let state = match state {
                MigrationState::Copying(order) => {
                    MigrationState::Copying(MigrationOrder { to: next(), ..order.clone() })
                }
                MigrationState::Held(order) => {
                    MigrationState::Held(MigrationOrder { to: next(), ..order.clone() })
                }
                MigrationState::Moved(_) => MigrationState::Moved(next()),
            };
            self.hear_as_it_is(&state).await;
        }

        async fn hear_as_it_is(&self, state: &MigrationState) {
            self.switch().hear(Some(&state.text()), Instant::now()).await;
        }

        async fn log_in(&self) -> Result<(), StoreError> {
            let (token, user) = session();
            self.store.update_token(&token, &user, None, 1.0).await
        }

        async fn is_logged_in(&self) -> bool {
            self.store.check_token(&session().0).await.unwrap().is_some()
        }
    }

    fn session() -> (StoredToken, User) {
        (StoredToken::from_store(b"token-0001").unwrap(), User::new(b"ann").unwrap())
    }

    fn order() -> MigrationOrder {
        MigrationOrder { id: "a".to_owned(), to: "there".to_owned() }
    }

    fn copying() -> MigrationState {
        MigrationState::Copying(order())
    }

    fn held() -> MigrationState {
        MigrationState::Held(order())
    }

    fn moved() -> MigrationState {
        MigrationState::Moved("there".to_owned())
    }

    #[test]
    fn states_and_answers_are_read_as_they_are_written() {
        for state in [copying(), held(), moved()] {
            assert_eq!(MigrationState::parse(&state.text()), Some(state));
        }
        for other in ["", "1 filling", "2 held a there", "1 other a there", "1 copying a"] {
            assert_eq!(MigrationState::parse(other), None);
        }
        let id = || "a".to_owned();
        let refuses = MigrationAnswer::Refuses(id(), "no such host".to_owned());
        for answer in [
            MigrationAnswer::Ready(id()),
            MigrationAnswer::Quiet(id()),
            refuses,
            MigrationAnswer::None,
        ] {
            assert_eq!(MigrationAnswer::parse(&answer.text()), answer);
        }
        assert!(!MigrationAnswer::Ready("b".to_owned()).is_ready("a"));
    }

    #[tokio::test]
    async fn a_held_change_waits_and_goes_to_the_next_store() {
        let bench = Bench::new().await;
        bench.log_in().await.unwrap();
        bench.hear(&copying()).await;
        assert_eq!(bench.switch().answer(), MigrationAnswer::Ready("a".to_owned()));
        bench.hear(&held()).await;
        assert_eq!(bench.switch().answer(), MigrationAnswer::Quiet("a".to_owned()));
        assert!(bench.is_logged_in().await, "reads go on");
        let log_in = bench.log_in();
        tokio::pin!(log_in);
        tokio::select! {
            biased;
            done = &mut log_in => panic!("a change was not held: {done:?}"),
            () = tokio::task::yield_now() => {}
        }
        bench.hear(&moved()).await;
        assert!(!bench.is_logged_in().await, "the next store is another");
        log_in.await.unwrap();
        assert!(bench.is_logged_in().await);
        assert!(bench.store.fixed().check_token(&session().0).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_process_goes_back_to_the_store_that_it_left() {
        let bench = Bench::new().await;
        let switch = bench.switch();
        bench.log_in().await.unwrap();
        for state in [copying(), held(), moved()] {
            bench.hear(&state).await;
        }
        bench.hear(&copying()).await;
        assert!(switch.has_moved(), "what the left store says is of no interest");
        let before = Instant::now();
        switch.settle();
        assert!(!switch.has_moved() && switch.is_elsewhere() && switch.uses(&bench.place(1)));
        assert!(!bench.is_logged_in().await, "calls go where they went");

        switch.set_wanted(Some(bench.place(0)));
        switch.hear(Some(&moved().text()), before).await;
        assert!(!switch.has_moved(), "that is of the store that was left");
        bench.hear(&copying()).await;
        assert_eq!(switch.answer(), MigrationAnswer::Ready("a".to_owned()));
        // A reload in the midst of it changes nothing.
        switch.set_wanted(Some(bench.place(1)));
        for state in [held(), moved()] {
            bench.hear(&state).await;
        }
        assert!(bench.is_logged_in().await && switch.uses(&bench.place(0)));
        switch.settle();
        assert!(bench.is_logged_in().await && !switch.is_elsewhere());
        let change = switch.admit(|| true).await.unwrap();
        assert!(change.is_some_and(|(_, number)| number == 0));
    }

    #[tokio::test]
    async fn a_process_does_not_move_to_the_store_that_it_uses() {
        let bench = Bench::new().await;
        bench.switch().set_wanted(Some(bench.place(0)));
        bench.hear(&copying()).await;
        let answer = bench.switch().answer();
        assert!(answer.refusal("a").is_some_and(|why| why.contains("that it uses")), "{answer:?}");
    }

    #[tokio::test]
    async fn a_process_follows_no_move_to_another_store_than_its_next_one() {
        let bench = Bench::new().await;
        bench.hear_as_it_is(&copying()).await;
        let answer = bench.switch().answer();
        let why = answer.refusal("a").expect("a refusal");
        let own = bench.place(1).label();
        assert!(why.contains(&own) && why.contains("goes to there"), "{why}");
        bench.log_in().await.unwrap();
        // It missed that move: its next store has no sessions, either.
        bench.hear_as_it_is(&moved()).await;
        assert!(bench.switch().is_left());
        // A folder of the same name on another machine.
        bench.hear(&moved()).await;
        assert!(bench.switch().is_left());
        bench.switch().open_wanted().await.unwrap();
        bench.hear(&moved()).await;
        assert!(bench.switch().has_moved() && bench.switch().uses(&bench.place(1)));
    }

    #[tokio::test]
    async fn a_long_refusal_leaves_room_in_the_entry() {
        let bench = Bench::new().await;
        let to = "é:6379,".repeat(2_000);
        bench.hear_as_it_is(&MigrationState::Copying(MigrationOrder { to, ..order() })).await;
        let answer = bench.switch().answer();
        let why = answer.refusal("a").expect("a refusal");
        assert_eq!(why.chars().count(), REFUSAL_MAX);
    }

    #[tokio::test]
    async fn a_change_in_flight_keeps_the_process_from_being_quiet() {
        let bench = Bench::new().await;
        let change = bench.switch().admit(|| true).await.unwrap();
        bench.hear(&held()).await;
        assert_eq!(bench.switch().answer(), MigrationAnswer::None);
        drop(change);
        assert_eq!(bench.switch().answer(), MigrationAnswer::Quiet("a".to_owned()));
    }

    #[tokio::test]
    async fn changes_go_on_where_they_were_when_a_move_ends_early() {
        let bench = Bench::new().await;
        bench.hear(&held()).await;
        bench.switch().hear(None, Instant::now()).await;
        bench.log_in().await.unwrap();
        assert_eq!(bench.switch().answer(), MigrationAnswer::None);
        assert!(bench.store.fixed().check_token(&session().0).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_held_for_too_long_is_refused() {
        let bench = Bench::new().await;
        bench.hear(&held()).await;
        assert!(matches!(bench.log_in().await, Err(StoreError::Away)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_slept_changes_nothing_before_it_has_news() {
        let bench = Bench::new().await;
        bench.hear(&copying()).await;
        assert!(bench.switch().admit(|| true).await.unwrap().is_some());
        tokio::time::advance(NEWS_LAST).await;
        assert!(matches!(bench.switch().admit(|| true).await, Err(StoreError::Away)));
        bench.hear(&copying()).await;
        assert!(bench.switch().admit(|| true).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_begins_changes_nothing_before_it_has_news_and_waits_for_none_from_a_lost_store()
     {
        let bench = Bench::new().await;
        bench.switch().expect_news();
        let began = Instant::now();
        assert!(bench.switch().admit(|| false).await.unwrap().is_some());
        assert!(matches!(bench.switch().admit(|| true).await, Err(StoreError::Away)));
        assert_eq!(began.elapsed(), HOLD_WAIT);
        bench.switch().expect_nothing();
        assert!(bench.switch().admit(|| true).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_process_without_a_next_store_refuses_a_move_and_finds_nothing_afterwards() {
        let bench = Bench::new().await;
        bench.switch().set_wanted(None);
        bench.hear(&copying()).await;
        let answer = bench.switch().answer();
        assert!(answer.refusal("a").is_some_and(|why| why.contains("[store.next]")), "{answer:?}");
        bench.log_in().await.unwrap();
        bench.hear(&moved()).await;
        assert!(bench.switch().is_left());
        assert!(matches!(bench.store.check_token(&session().0).await, Err(StoreError::Away)));
    }

    #[tokio::test]
    async fn a_change_of_a_cart_counts_as_one() {
        let bench = Bench::new().await;
        bench.log_in().await.unwrap();
        bench.hear(&held()).await;
        let (token, _) = session();
        let terms = SessionLifetimes::endless(1.0);
        let owner = CartOwner { token, user: None, now: 1.0, terms };
        let items = vec![(Item::new("1").unwrap(), 1)];
        let change = CartChange::Set(items);
        let change = bench.store.change_cart(&owner, &change);
        let done = timeout(Duration::from_millis(20), change).await;
        assert!(done.is_err(), "it was not held: {done:?}");
    }
}
