//! The store on a simulated disk: after each power cut it opens, and what it has acknowledged is there.
//!
//! A store lives through several power cuts, between which its process also ends otherwise. `ANTEROOM_CUTS` says how
//! many power cuts there are, `ANTEROOM_CUTS_SEED` by which seed: that of a store that was printed begins with it.

mod facts;
mod simulated_disk;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anteroom_http::ident::{Item, StoredToken, User};
use fastrand::Rng;
use futures_util::FutureExt as _;
use tempfile::TempDir;

use self::facts::{Act, Facts, Session};
use self::simulated_disk::{Fate, LostBlocks, SimulatedDisk};
use super::disk::{Disk, Opener, Permanence};
use super::resynced_storage::{LastSync, ResyncedStorage};
use super::sessions_file::{self, SessionLedger};
use super::writer::by_hand::WriterByHand;
use super::{EmbeddedStore, SESSIONS_FILE};
use crate::{
    CartStore as _, LogInStore as _, StoreError, StoreLimits, TokenStore as _, ViewStore as _,
    Visit, VisitStore as _,
};

/// Power cuts in each run of the tests.
const CUTS: u64 = 300;
/// Power cuts in the life of one store.
const CUTS_OF_ONE: u64 = 10;
/// Visitors of one store.
const VISITORS: usize = 64;
/// Little, so that much is read from the disk.
const CACHE: usize = 1 << 17;
const LIMITS: StoreLimits = StoreLimits {
    read_timeout: Duration::from_secs(600),
    write_timeout: Duration::from_secs(600),
    viewed_items: 25,
    pages: 1 << 20,
    max_page: 1 << 20,
};

/// What redb is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// The same as in the proxy.
    Resynced,
    /// The disk itself.
    Bare,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Report {
    stores: u64,
    cuts: u64,
    failed_syncs: u64,
    checked: u64,
    lost: u64,
    invented: u64,
    unopened: u64,
    empty: u64,
    /// The seed of the first store of which something is wrong, and what.
    first: Option<(u64, String)>,
    /// The seed of the last.
    last: Option<u64>,
}

impl Report {
    fn is_wrong_for(&self, seed: u64) -> bool {
        self.last == Some(seed)
    }

    fn complain(&mut self, seed: u64, what: String) {
        self.first.get_or_insert((seed, what));
        self.last = Some(seed);
    }
}

/// A process with the open store.
struct Process {
    store: EmbeddedStore,
    sessions: Arc<Disk>,
    writer: WriterByHand<SessionLedger>,
}

fn opener(storage: Storage, disk: &SimulatedDisk, path: &Path) -> Opener {
    let disk = disk.clone();
    match storage {
        Storage::Bare => Box::new(move |builder| builder.create_with_backend(disk.clone())),
        Storage::Resynced => {
            let last_sync = LastSync::unknown(path.to_owned());
            Box::new(move |builder| {
                builder
                    .create_with_backend(ResyncedStorage::new(disk.clone(), Arc::clone(&last_sync)))
            })
        }
    }
}

impl Process {
    fn begin(storage: Storage, disk: &SimulatedDisk, folder: &Path) -> Result<Self, String> {
        let path = folder.join(SESSIONS_FILE);
        let opener = opener(storage, disk, &path);
        let sessions = Disk::open_with(opener, path, CACHE, Permanence::Yes)
            .map_err(|error| error.to_string())?;
        let sessions = Arc::new(sessions);
        sessions_file::prepare(&sessions, folder).map_err(|error| format!("{error:?}"))?;
        let ledger = SessionLedger::new(LIMITS.viewed_items);
        let (handle, writer) = WriterByHand::new(Arc::clone(&sessions), ledger);
        let counters = Arc::default();
        let store =
            EmbeddedStore::with_sessions(folder, Arc::clone(&sessions), handle, LIMITS, counters);
        Ok(Self { store: store.unwrap(), sessions, writer })
    }

    /// Asks for all of them at once: they are one group.
    fn ask(&mut self, asked: &[(usize, Act)]) -> bool {
        let mut calls: Vec<_> =
            asked.iter().map(|(visitor, act)| call(&self.store, *visitor, *act)).collect();
        let mut context = Context::from_waker(Waker::noop());
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut context).is_pending(), "it waits for the writer");
        }
        self.writer.serve();
        let answers: Vec<_> =
            calls.iter_mut().map(|call| call.as_mut().poll(&mut context)).collect();
        assert!(!answers.iter().any(Poll::is_pending), "the writer has answered");
        answers.iter().all(|answer| matches!(answer, Poll::Ready(Ok(()))))
    }

    fn read(&self, visitor: usize) -> Result<Session, StoreError> {
        let (store, token) = (&self.store, token(visitor));
        let now = "reading does not wait";
        let user = store.check_token(&token).now_or_never().expect(now)?;
        let cart = store.cart(&token).now_or_never().expect(now)?;
        let viewed = store.viewed(&token).now_or_never().expect(now)?;
        Ok(Session {
            is_logged_in: user.is_some_and(|found| found.is_same(&self::user(visitor))),
            cart: cart.first().map_or(0, |(_, count)| *count),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is one"
            )]
            seen: viewed.first().map_or(0, |(_, time)| *time as u64),
        })
    }
}

type Call<'s> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + 's>>;

fn call(store: &EmbeddedStore, visitor: usize, act: Act) -> Call<'_> {
    let (token, user, item) = (token(visitor), user(visitor), Item::new("item").unwrap());
    Box::pin(async move {
        match act {
            Act::LogIn(now) => store.update_token(&token, &user, None, seconds(now)).await,
            Act::LogOut => store.revoke_token(&token).await,
            Act::Cart(count) => store.add_to_cart(&token, &item, count).await,
            Act::Visit(now) => {
                let items = vec![(item, seconds(now))];
                let visit = Visit { token, user, seen: seconds(now), items };
                store.touch_tokens(&[visit]).await.map(drop)
            }
        }
    })
}

#[expect(clippy::cast_precision_loss, reason = "it is small")]
fn seconds(now: u64) -> f64 {
    now as f64
}

fn token(visitor: usize) -> StoredToken {
    StoredToken::from_store(format!("{visitor:043}").as_bytes()).unwrap()
}

/// A name so long that the sessions are in many blocks.
fn user(visitor: usize) -> User {
    User::new(format!("{visitor:0200}").as_bytes()).unwrap()
}

/// One store, from its first start to its last power cut.
struct Life<'r> {
    seed: u64,
    rng: Rng,
    storage: Storage,
    lost_blocks: LostBlocks,
    folder: TempDir,
    disk: SimulatedDisk,
    facts: Facts,
    now: u64,
    report: &'r mut Report,
}

impl<'r> Life<'r> {
    fn new(storage: Storage, seed: u64, report: &'r mut Report) -> Self {
        let folder = tempfile::tempdir().unwrap();
        sessions_file::provide(folder.path()).unwrap();
        let file = std::fs::read(folder.path().join(SESSIONS_FILE)).unwrap();
        let mut rng = Rng::with_seed(seed);
        let kinds = [LostBlocks::StayReadable, LostBlocks::Vanish, LostBlocks::Either];
        Self {
            seed,
            storage,
            lost_blocks: rng.choice(kinds).unwrap(),
            folder,
            disk: SimulatedDisk::new(file, rng.u64(..)),
            facts: Facts::new(VISITORS),
            now: 0,
            rng,
            report,
        }
    }

    /// To the last power cut, or until something is wrong.
    fn play(mut self) {
        let mut cuts = 0;
        while cuts < CUTS_OF_ONE && !self.report.is_wrong_for(self.seed) {
            let fate = self.fate();
            self.disk.begin(fate);
            self.play_process();
            self.disk.kill();
            if self.rng.u8(..) < 160 {
                self.disk.cut();
                cuts += 1;
                self.report.cuts += 1;
            }
        }
        self.report.stores += 1;
        self.report.failed_syncs += self.disk.failed_syncs();
    }

    fn fate(&mut self) -> Fate {
        let rng = &mut self.rng;
        // A start makes up to some twenty changes, and a login about ten.
        let changes = if rng.u8(..4) == 0 { rng.u64(..40) } else { rng.u64(40..400) };
        let failing_syncs = if rng.bool() {
            Vec::new()
        } else {
            let first = rng.u64(1..24);
            (first..=first + rng.u64(..3)).collect()
        };
        Fate { changes, failing_syncs, lost_blocks: self.lost_blocks }
    }

    /// From a start to a stop, a kill, or the power cut.
    fn play_process(&mut self) {
        let failed_before = self.disk.failed_syncs();
        let begun = catch_unwind(AssertUnwindSafe(|| {
            Process::begin(self.storage, &self.disk, self.folder.path())
        }));
        let mut process = match begun.unwrap_or_else(|_| Err("a panic".to_owned())) {
            Ok(process) => process,
            // A start that meets a failed sync says so.
            Err(_) if self.disk.is_dead() || self.disk.failed_syncs() > failed_before => return,
            Err(error) => {
                self.report.unopened += 1;
                self.report.complain(self.seed, format!("it does not open: {error}"));
                return;
            }
        };
        self.check(&process);
        for _ in 0..self.rng.u32(1..24) {
            if self.disk.is_dead() || self.report.is_wrong_for(self.seed) {
                break;
            }
            self.step(&mut process);
        }
        if self.rng.u8(..3) == 0 {
            self.sync(&mut process);
            process.sessions.close();
        }
        // Else it is killed: it writes nothing more.
        self.disk.kill();
    }

    fn step(&mut self, process: &mut Process) {
        let failed_before = self.disk.failed_syncs();
        if self.rng.u8(..8) == 0 {
            self.sync(process);
        } else {
            // What many visitors do at once is in many blocks, which are not soon written again.
            let size = if self.rng.u8(..4) == 0 { 16..=VISITORS } else { 1..=4 };
            let group: Vec<_> = (0..self.rng.usize(size)).map(|_| self.choose()).collect();
            let is_done = process.ask(&group);
            self.facts.asked(&group, is_done);
        }
        if self.disk.failed_syncs() > failed_before && process.sessions.is_open() {
            // What it tells from now on has to last.
            self.check(process);
        }
    }

    fn choose(&mut self) -> (usize, Act) {
        self.now += 1;
        let act = match self.rng.u8(..8) {
            0..3 => Act::LogIn(self.now),
            3 => Act::LogOut,
            4..6 => Act::Cart(self.rng.i64(1..1000)),
            _ => Act::Visit(self.now),
        };
        (self.rng.usize(..VISITORS), act)
    }

    fn sync(&mut self, process: &mut Process) {
        let failed_before = self.disk.failed_syncs();
        process.writer.sync();
        let is_done = self.disk.failed_syncs() == failed_before && !self.disk.is_dead();
        self.facts.synced(is_done && process.sessions.is_open());
    }

    /// Compares what the store tells with what it was asked.
    fn check(&mut self, process: &Process) {
        let mut is_empty = true;
        for visitor in 0..VISITORS {
            let found = process.read(visitor);
            let belief = self.facts.of(visitor);
            self.report.checked += 1;
            match &found {
                Ok(found) if belief.may_be(found) => {}
                Ok(found) if !belief.has_been(found) => self.report.invented += 1,
                _ => self.report.lost += 1,
            }
            is_empty &= found.as_ref().is_ok_and(|found| *found == Session::default());
            if !found.as_ref().is_ok_and(|found| belief.may_be(found)) {
                self.report.complain(self.seed, format!("{visitor}: {found:?}, not {belief:?}"));
            }
            if let Ok(found) = found {
                self.facts.found(visitor, found);
            }
        }
        if is_empty && self.report.is_wrong_for(self.seed) {
            self.report.empty += 1;
        }
    }
}

/// Plays stores until there were so many power cuts. The seed of each is the one before plus one.
fn play(storage: Storage, cuts: u64, seed: u64) -> Report {
    // Calls have timeouts, and so need a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _context = runtime.enter();
    let mut report = Report::default();
    while report.cuts < cuts {
        let seed = seed.wrapping_add(report.stores);
        Life::new(storage, seed, &mut report).play();
    }
    report
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

#[test]
fn a_power_cut_costs_nothing_that_was_acknowledged() {
    let cuts = number("ANTEROOM_CUTS").unwrap_or(CUTS);
    let seed = number("ANTEROOM_CUTS_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("ANTEROOM_CUTS={cuts} ANTEROOM_CUTS_SEED={seed}");
    let report = play(Storage::Resynced, cuts, seed);
    println!("{report:?}");
    if let Some((seed, what)) = &report.first {
        panic!("{what}\nANTEROOM_CUTS_SEED={seed}");
    }
}

/// Without this the other test would pass also where it simulates too little.
#[test]
fn a_store_that_trusts_a_failed_sync_is_found() {
    let cuts = number("ANTEROOM_CUTS").unwrap_or_default().max(CUTS);
    let report = play(Storage::Bare, cuts, 1);
    println!("{report:?}");
    assert!(report.unopened + report.lost > 0, "{report:?}");
}

#[test]
fn the_same_seed_plays_the_same() {
    for storage in [Storage::Resynced, Storage::Bare] {
        assert_eq!(play(storage, CUTS_OF_ONE, 7), play(storage, CUTS_OF_ONE, 7));
    }
}
