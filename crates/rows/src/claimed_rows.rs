//! Which claims wait, and which of them gets the next slot.
//!
//! Rows that hang must not delay healthy ones. What counts is how long a fetch has run: after a
//! second, or less under load, it must move to one of a few slots in the slow quarter. Rows whose
//! last fetch succeeded have some slots to themselves, so that they need not wait even for that
//! second. A claim that has waited for long is left to its lease, which costs the store nothing.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use anteroom_http::ident::Row;
use anteroom_store::RowClaim;
use tokio::time::Instant;

use super::failures::Trust;

/// Fetches under way at a time.
const SLOTS: usize = 32;
/// The slots for slow fetches.
pub(super) const SLOW: usize = SLOTS / 4;
/// All others.
pub(super) const ORDINARY: usize = SLOTS - SLOW;
/// The ordinary slots guaranteed to rows of each trust, whatever else waits.
const ASSURED: [usize; 3] = [8, 6, 2];
/// How long a fetch may hold an ordinary slot.
const GRACE: f64 = 1.0;
/// Its minimum under load: in seconds, and in usual successful fetches.
const HURRIED: f64 = 0.1;
const HURRIED_FETCHES: f64 = 4.0;
/// While the slow quarter is full, every waiting row should have its try within about this many
/// seconds.
const ROUND: f64 = 2.0;
/// The most claims that wait; a few more for healthy rows.
const WAITING_MAX: usize = 4_096;
/// Rows taken from the store at a time.
pub(super) const BATCH: usize = 128;
/// How much of its lease a claim must have left when its fetch begins, in seconds.
const LEFT: f64 = 2.5;
/// The least time between the starts of two fetches of a row: the least delay of a row.
const APART: Duration = Duration::from_millis(100);

/// The rows that are claimed here.
#[derive(Debug, Default)]
pub(super) struct ClaimedRows {
    rows: HashMap<Row, ClaimedRow>,
    /// Names of rows that wait for a slot, for each trust in the order of arrival.
    waiting: [VecDeque<Row>; 3],
    /// Rows that were just fetched, and when they may wait for a slot.
    resting: Vec<(Instant, Row)>,
    /// Ordinary slots taken by rows of each trust.
    ordinary: [usize; 3],
    /// Slots taken in the slow quarter.
    slow: usize,
    tidied: Option<Instant>,
}

/// The state of a row here.
#[derive(Debug, Default)]
struct ClaimedRow {
    /// The newest claim whose fetch has not begun.
    claim: Option<RowClaim>,
    /// When its last fetch began.
    begun: Option<Instant>,
    /// Whether that fetch runs.
    runs: bool,
    /// Whether the row's name is in `waiting` or `resting`.
    stands: bool,
}

impl ClaimedRow {
    fn rests_until(&self) -> Option<Instant> {
        self.begun.map(|begun| begun + APART)
    }
}

impl ClaimedRows {
    /// Whether more rows should be claimed. While healthy rows keep this process busy, other
    /// processes may take the rest.
    pub(super) fn has_room(&self, batch: usize) -> bool {
        self.waiting[Trust::Well as usize].len() < batch
    }

    /// How many rows wait for a slot.
    pub(super) fn waits(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// When the next row's rest is over.
    pub(super) fn next_rested(&self) -> Option<Instant> {
        self.resting.iter().map(|(until, _)| *until).min()
    }

    /// Queues a claim for a slot. For a row that is being fetched the claim waits until that fetch
    /// has ended: there is one fetch of a row at a time.
    pub(super) fn add(&mut self, claim: RowClaim, trust: Trust, now: Instant) {
        let full = self.waits() + self.resting.len() >= WAITING_MAX;
        let row = claim.row.clone();
        if full && trust != Trust::Well && !self.rows.contains_key(&row) {
            return;
        }
        let place = self.rows.entry(row.clone()).or_default();
        place.claim = Some(claim);
        if place.runs || place.stands {
            return;
        }
        place.stands = true;
        match place.rests_until() {
            Some(until) if until > now => self.resting.push((until, row)),
            _ => self.waiting[trust as usize].push_back(row),
        }
    }

    /// Moves rows whose rest is over to the waiting ones; drops what is no longer needed.
    pub(super) fn tidy(&mut self, trust: impl Fn(&Row) -> Trust, unix_now: f64, now: Instant) {
        let waiting = &mut self.waiting;
        self.resting.retain(|(until, row)| {
            let rests = *until > now;
            if !rests {
                waiting[trust(row) as usize].push_back(row.clone());
            }
            rests
        });
        if self.tidied.is_some_and(|tidied| now < tidied + APART) {
            return;
        }
        self.tidied = Some(now);
        self.rows.retain(|_, place| {
            place.claim.take_if(|claim| is_late(claim, unix_now));
            place.runs || place.stands || place.rests_until().is_some_and(|until| until > now)
        });
    }

    /// The claim that gets a free slot, if there is one for it; dropping the [`FetchSlot`] frees
    /// it.
    pub(super) fn next(line: &Rc<RefCell<Self>>, unix_now: f64) -> Option<(RowClaim, FetchSlot)> {
        let mut this = line.borrow_mut();
        for trust in [Trust::Well, Trust::Open, Trust::Slow] {
            while this.has_slot(trust) {
                let Some(row) = this.waiting[trust as usize].pop_front() else { break };
                let Some(place) = this.rows.get_mut(&row) else { continue };
                place.stands = false;
                let claim = place.claim.take().filter(|claim| !is_late(claim, unix_now));
                let Some(claim) = claim else { continue };
                place.runs = true;
                place.begun = Some(Instant::now());
                this.ordinary[trust as usize] += 1;
                let (is_slow, rows) = (Cell::new(false), vec![row]);
                return Some((claim, FetchSlot { line: Rc::clone(line), rows, trust, is_slow }));
            }
        }
        None
    }

    /// Further rows for the fetch in `slot`, at most `most`: those that wait with the same trust and
    /// that `fits` says are read together with its row.
    pub(super) fn join(
        slot: &mut FetchSlot,
        most: usize,
        unix_now: f64,
        fits: impl Fn(&Row) -> bool,
    ) -> Vec<RowClaim> {
        let mut line = slot.line.borrow_mut();
        let this = &mut *line;
        let (rows, now) = (&mut this.rows, Instant::now());
        let mut joined = Vec::new();
        this.waiting[slot.trust as usize].retain(|row| {
            if joined.len() >= most || !fits(row) {
                return true;
            }
            let Some(place) = rows.get_mut(row) else { return false };
            place.stands = false;
            if let Some(claim) = place.claim.take().filter(|claim| !is_late(claim, unix_now)) {
                (place.runs, place.begun) = (true, Some(now));
                slot.rows.push(row.clone());
                joined.push(claim);
            }
            false
        });
        joined
    }

    /// Whether a row of this trust may have a slot: slots guaranteed to other waiting rows are kept
    /// for them, and those guaranteed to healthy rows also while none of them waits.
    fn has_slot(&self, trust: Trust) -> bool {
        let own = trust as usize;
        let free = ORDINARY - self.ordinary.iter().sum::<usize>();
        let others = (0..ASSURED.len()).filter(|other| {
            *other != own && (*other == Trust::Well as usize || !self.waiting[*other].is_empty())
        });
        let left: usize =
            others.map(|other| ASSURED[other].saturating_sub(self.ordinary[other])).sum();
        free > 0 && (self.ordinary[own] < ASSURED[own] || free > left)
    }
}

/// Whether too little of a claim's lease is left to fetch its row.
fn is_late(claim: &RowClaim, unix_now: f64) -> bool {
    claim.fence - unix_now < LEFT
}

/// The slot of a fetch, of one row or of several together; freed on drop.
#[derive(Debug)]
pub(super) struct FetchSlot {
    line: Rc<RefCell<ClaimedRows>>,
    rows: Vec<Row>,
    trust: Trust,
    is_slow: Cell<bool>,
}

impl FetchSlot {
    /// How long the fetch may hold an ordinary slot, if successful ones take `usual` seconds. While
    /// the slow quarter is full and many wait, most of them hang, and the healthy ones among them
    /// should be found soon. A row whose last fetch succeeded gets its full time.
    pub(super) fn lease_limit(&self, usual: f64) -> Duration {
        let line = self.line.borrow();
        if self.trust == Trust::Well || line.slow < SLOW {
            return Duration::from_secs_f64(GRACE);
        }
        let share = ROUND * ORDINARY as f64 / line.waits().max(1) as f64;
        let least = (HURRIED_FETCHES * usual).clamp(HURRIED, GRACE);
        Duration::from_secs_f64(share.clamp(least, GRACE))
    }

    /// Moves from the ordinary slot to one in the slow quarter; false if that is full.
    pub(super) fn slow_down(&self) -> bool {
        let mut line = self.line.borrow_mut();
        if line.slow >= SLOW {
            return false;
        }
        line.slow += 1;
        line.ordinary[self.trust as usize] -= 1;
        self.is_slow.set(true);
        true
    }
}

impl Drop for FetchSlot {
    fn drop(&mut self) {
        let mut line = self.line.borrow_mut();
        let this = &mut *line;
        match self.is_slow.get() {
            true => this.slow -= 1,
            false => this.ordinary[self.trust as usize] -= 1,
        }
        for row in &self.rows {
            let Some(place) = this.rows.get_mut(row) else { continue };
            place.runs = false;
            if place.claim.is_some() {
                // It was claimed again meanwhile; the next `tidy` lets it wait for a slot.
                place.stands = true;
                let until = place.rests_until().unwrap_or_else(Instant::now);
                this.resting.push((until, row.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, fence: f64) -> RowClaim {
        RowClaim { row: Row::new(name).unwrap(), delay: 1.0, due: 100.0, fence }
    }

    fn line_of(trust: Trust, count: usize) -> Rc<RefCell<ClaimedRows>> {
        let line = Rc::<RefCell<ClaimedRows>>::default();
        more(&line, trust, count);
        line
    }

    fn more(line: &Rc<RefCell<ClaimedRows>>, trust: Trust, count: usize) {
        for number in 0..count {
            let claim = claim(&format!("{trust:?}-{number}"), 110.0);
            line.borrow_mut().add(claim, trust, Instant::now());
        }
    }

    fn begun(line: &Rc<RefCell<ClaimedRows>>) -> Vec<FetchSlot> {
        std::iter::from_fn(|| ClaimedRows::next(line, 100.0)).map(|(_, slot)| slot).collect()
    }

    fn of(slots: &[FetchSlot], trust: Trust) -> usize {
        slots.iter().filter(|slot| slot.trust == trust).count()
    }

    #[test]
    fn rows_of_unknown_sources_leave_slots_to_healthy_ones() {
        let line = line_of(Trust::Open, 3_000);
        let unknown = begun(&line);
        assert_eq!(unknown.len(), ORDINARY - ASSURED[Trust::Well as usize]);
        more(&line, Trust::Well, 20);
        let well = begun(&line);
        assert_eq!(well.len(), ASSURED[Trust::Well as usize]);
        drop(well);
        assert_eq!(of(&begun(&line), Trust::Well), ASSURED[Trust::Well as usize]);
    }

    #[test]
    fn rows_of_healthy_sources_leave_slots_to_waiting_ones() {
        let line = line_of(Trust::Well, 100);
        let mut well = begun(&line);
        assert_eq!(well.len(), ORDINARY);
        more(&line, Trust::Open, 9);
        more(&line, Trust::Slow, 9);
        well.truncate(ORDINARY - 8);
        let others = begun(&line);
        assert_eq!((of(&others, Trust::Open), of(&others, Trust::Slow)), (6, 2));
    }

    #[test]
    fn the_slow_quarter_has_its_bound_and_gives_slots_back() {
        let line = line_of(Trust::Open, 100);
        let slots = begun(&line);
        let slow = slots.iter().filter(|slot| slot.slow_down()).count();
        assert_eq!((slow, line.borrow().slow), (SLOW, SLOW));
        let more = begun(&line);
        assert_eq!(more.len(), SLOW);
        drop((slots, more));
        assert_eq!((line.borrow().slow, line.borrow().ordinary), (0, [0; 3]));
    }

    #[test]
    fn a_crowd_that_hangs_is_hurried_and_what_is_well_is_not() {
        let line = line_of(Trust::Open, 3_000);
        let slots = begun(&line);
        let limit = |usual| slots[ORDINARY - 9].lease_limit(usual).as_secs_f64();
        assert_eq!(limit(0.001), GRACE, "the slow quarter is free");
        assert_eq!(slots.iter().filter(|slot| slot.slow_down()).count(), SLOW);
        assert_eq!([0.001, 0.1, 9.0].map(limit), [HURRIED, 0.4, GRACE]);
        more(&line, Trust::Well, 1);
        assert_eq!(
            ClaimedRows::next(&line, 100.0).unwrap().1.lease_limit(0.001).as_secs_f64(),
            GRACE
        );
        line.borrow_mut().waiting = Default::default();
        assert_eq!(limit(0.001), GRACE, "no claim waits");
    }

    #[test]
    fn rows_that_are_read_together_take_one_slot() {
        let line = line_of(Trust::Open, 100);
        let (_, mut slot) = ClaimedRows::next(&line, 100.0).unwrap();
        let even = |row: &Row| row.as_str().ends_with(['2', '4', '6', '8']);
        let joined = ClaimedRows::join(&mut slot, 30, 100.0, even);
        assert_eq!(joined.len(), 30);
        assert!(joined.iter().all(|claim| even(&claim.row)));
        assert_eq!((line.borrow().waits(), line.borrow().ordinary[Trust::Open as usize]), (69, 1));

        // A row of the batch that is claimed again is not fetched beside it, but behind it.
        let again = joined[0].clone();
        line.borrow_mut().add(again.clone(), Trust::Open, Instant::now());
        assert_eq!((line.borrow().waits(), line.borrow().resting.len()), (69, 0));
        drop(slot);
        assert_eq!(line.borrow().resting[0].1, again.row);
        assert_eq!(line.borrow().ordinary, [0; 3]);
    }

    #[test]
    fn a_claim_that_waits_for_long_is_left_to_its_lease() {
        let line = line_of(Trust::Open, 2);
        assert!(ClaimedRows::next(&line, 108.0).is_none());
        assert_eq!(line.borrow().waits(), 0);
        more(&line, Trust::Open, WAITING_MAX + 1);
        assert_eq!(line.borrow().waits(), WAITING_MAX);
        line.borrow_mut().add(claim("1", 110.0), Trust::Well, Instant::now());
        assert!(
            ClaimedRows::next(&line, 100.0).is_some_and(|(claim, _)| claim.row.as_str() == "1")
        );
    }

    #[test]
    fn a_row_is_fetched_once_at_a_time_and_not_at_once_again() {
        let line = Rc::<RefCell<ClaimedRows>>::default();
        let next = |after| {
            let now = Instant::now() + after;
            line.borrow_mut().tidy(|_| Trust::Well, 100.0, now);
            ClaimedRows::next(&line, 100.0)
        };
        let add = |fence| line.borrow_mut().add(claim("1", fence), Trust::Well, Instant::now());
        add(110.0);
        let (_, slot) = next(Duration::ZERO).unwrap();
        add(111.0);
        add(112.0);
        assert!(next(APART).is_none(), "it is under way");
        drop(slot);
        assert!(line.borrow().next_rested().is_some());
        let (again, slot) = next(APART).unwrap();
        assert_eq!(again.fence, 112.0);
        drop(slot);
        assert!(next(3 * APART).is_none());
        assert!(line.borrow().rows.is_empty(), "nothing is remembered");
    }
}
