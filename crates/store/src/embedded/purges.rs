//! Purges of the one process that has the folder, and of the one before it while that drains. Its pages end with the
//! process, unless another takes the folder over, and so do these.

use std::collections::{HashMap, VecDeque};
use std::iter::once;
use std::time::Instant;

use anteroom_http::ident::{hex, unhex};

use crate::StoreError;
use crate::purge::{
    Generation, LIVES, MarkKey, NEWS_MAX, PURGE_MARKS_MAX, PURGES_KEPT, PURGES_KEPT_BYTES,
    PurgePosition, PurgesSince, is_mark,
};

/// The era in which every process begins that takes nothing over: nothing remains of an earlier one.
const FIRST_ERA: u64 = 1;
/// The most marks in one answer, which another process must be able to get. A purge has fewer.
const NEWS_MARKS_MAX: usize = 1 << 16;
/// The most processes that are waited for.
const FOLLOWERS_MAX: usize = 8;

/// All purges so far.
#[derive(Clone, Debug)]
pub(super) struct PurgeLog {
    era: u64,
    number: u64,
    key: MarkKey,
    /// The latest ones.
    last: VecDeque<Vec<u32>>,
    /// How many marks these have.
    marks_kept: usize,
    /// Each mark's last purge.
    table: HashMap<u32, u64>,
    followers: Vec<Follower>,
}

/// Another process that serves pages and asks this one for purges.
#[derive(Clone, Debug)]
struct Follower {
    /// `None` until it has asked for the first time.
    process_id: Option<u64>,
    /// Up to where it has seen purges.
    seen: Generation,
    asked: Instant,
}

impl PurgeLog {
    pub(super) fn new() -> Self {
        Self::of_era(FIRST_ERA)
    }

    fn of_era(era: u64) -> Self {
        Self {
            era,
            number: 0,
            key: MarkKey::random(),
            last: VecDeque::new(),
            marks_kept: 0,
            table: HashMap::new(),
            followers: Vec::new(),
        }
    }

    /// Begins the next era: another process has taken purges that are unknown here. No page from before counts.
    pub(super) fn begin_era(&mut self) {
        *self = Self::of_era(self.era + 1);
    }

    pub(super) fn add(
        &mut self,
        known: PurgePosition,
        marks: &[u32],
    ) -> Result<Option<PurgePosition>, StoreError> {
        if marks.len() > PURGE_MARKS_MAX || !marks.iter().all(|mark| is_mark(*mark)) {
            return Err(StoreError::Failed("a purge has bad marks".into()));
        }
        if known.at.era != self.era {
            return Ok(None);
        }
        self.number += 1;
        self.table.extend(marks.iter().map(|mark| (*mark, self.number)));
        self.keep(marks.to_vec());
        Ok(Some(self.moment(self.number)))
    }

    /// Keeps the marks of the latest purge, and forgets the oldest ones.
    fn keep(&mut self, marks: Vec<u32>) {
        self.marks_kept += marks.len();
        self.last.push_back(marks);
        while self.last.len() > PURGES_KEPT
            || self.marks_kept * size_of::<u32>() > PURGES_KEPT_BYTES
        {
            self.marks_kept -= self.last.pop_front().map_or(0, |marks| marks.len());
        }
    }

    pub(super) fn since(&self, known: PurgePosition) -> PurgesSince {
        let PurgePosition { at: seen, .. } = known;
        let behind = self.number.saturating_sub(seen.number);
        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
        if seen.era != self.era || behind > self.last.len() {
            let marks = self.table.iter().map(|(mark, number)| (*mark, *number)).collect();
            return PurgesSince::All { upto: self.moment(self.number), key: self.key, marks };
        }
        let mut marks = 0;
        let fits = |purge: &&Vec<u32>| {
            marks += purge.len();
            marks <= NEWS_MARKS_MAX
        };
        let news = self.last.iter().skip(self.last.len() - behind).take(NEWS_MAX);
        let purges: Vec<_> = news.take_while(fits).cloned().collect();
        let upto = self.moment(seen.number + purges.len() as u64);
        PurgesSince::Since { more: purges.len() < behind, purges, upto }
    }

    /// The count of an era is never set back, so that its numbers need no nonces.
    fn moment(&self, number: u64) -> PurgePosition {
        PurgePosition { at: Generation { era: self.era, number }, nonce: 0 }
    }

    /// Notes what another process has seen, which asks for news at `now`.
    pub(super) fn note_follower(&mut self, process_id: u64, seen: Generation, now: Instant) {
        let is_another = |one: &Follower| one.process_id.is_some_and(|id| id != process_id);
        self.followers.retain(|one| one.is_alive(now) && is_another(one));
        if self.followers.len() < FOLLOWERS_MAX {
            self.followers.push(Follower { process_id: Some(process_id), seen, asked: now });
        }
    }

    /// No purge waits for this process any more.
    pub(super) fn forget_follower(&mut self, process_id: u64) {
        self.followers.retain(|one| one.process_id != Some(process_id));
    }

    /// Whether all other processes that are alive at `now` have seen a purge.
    pub(super) fn is_seen(&self, purge: Generation, now: Instant) -> bool {
        let alive = || self.followers.iter().filter(|one| one.is_alive(now));
        purge.era != self.era || alive().all(|one| one.seen.includes(purge))
    }

    /// The log in lines, for [`PurgeReader`].
    pub(super) fn lines(self) -> impl Iterator<Item = String> {
        let Self { era, number, key, last, table, .. } = self;
        let head = format!("at {era} {number} {}", hex(&key.bytes()));
        let marks = table.into_iter().map(|(mark, purge)| format!("mark {mark} {purge}"));
        let purges = last.into_iter().map(|marks| {
            let marks = marks.iter().map(u32::to_string);
            once("purge".to_owned()).chain(marks).collect::<Vec<_>>().join(" ")
        });
        once(head).chain(marks).chain(purges).chain(once("end".to_owned()))
    }
}

impl Follower {
    fn is_alive(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) < LIVES
    }
}

/// Reads the lines of a log.
#[derive(Debug, Default)]
pub(super) struct PurgeReader {
    log: Option<PurgeLog>,
    has_end: bool,
    /// Whether a line was wrong.
    is_broken: bool,
}

impl PurgeReader {
    pub(super) fn read(&mut self, line: &str) {
        if self.has_end || self.read_line(line).is_none() {
            self.is_broken = true;
        }
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let word = words.next()?;
        if self.log.is_none() && word == "at" {
            let era: u64 = words.next()?.parse().ok()?;
            let number: u64 = words.next()?.parse().ok()?;
            let key = MarkKey::from_bytes(unhex(words.next()?)?.try_into().ok()?);
            self.log = Some(PurgeLog { number, key, ..PurgeLog::of_era(era) });
            return Some(());
        }
        let log = self.log.as_mut()?;
        match word {
            "mark" => {
                let mark: u32 = words.next()?.parse().ok()?;
                let purge: u64 = words.next()?.parse().ok()?;
                if !is_mark(mark) || purge > log.number {
                    return None;
                }
                log.table.insert(mark, purge);
            }
            "purge" => {
                let marks = words.map(|mark| mark.parse().ok());
                let marks: Vec<u32> = marks.collect::<Option<_>>()?;
                if marks.len() > PURGE_MARKS_MAX || !marks.iter().all(|mark| is_mark(*mark)) {
                    return None;
                }
                log.keep(marks);
            }
            "end" => self.has_end = true,
            _ => return None,
        }
        Some(())
    }

    /// The log, if all of it was read. The process that wrote it is followed from here: it serves pages at `now`.
    pub(super) fn log(self, now: Instant) -> Option<PurgeLog> {
        let log = self.log.filter(|log| log.last.len() as u64 <= log.number);
        let mut log = log.filter(|_| self.has_end && !self.is_broken)?;
        let seen = log.moment(log.number).at;
        log.followers.push(Follower { process_id: None, seen, asked: now });
        Some(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(era: u64, number: u64) -> PurgePosition {
        PurgePosition { at: Generation { era, number }, nonce: 0 }
    }

    /// A log of three purges.
    fn log() -> PurgeLog {
        let mut log = PurgeLog::new();
        for marks in [&[1, 2][..], &[], &[2]] {
            log.add(at(1, 0), marks).unwrap().unwrap();
        }
        log
    }

    fn read<'l>(lines: impl IntoIterator<Item = &'l str>) -> Option<PurgeLog> {
        let mut reader = PurgeReader::default();
        lines.into_iter().for_each(|line| reader.read(line));
        reader.log(Instant::now())
    }

    #[test]
    fn a_log_goes_on_where_it_is_handed_over() {
        let log = log();
        let lines: Vec<String> = log.clone().lines().collect();
        let mut next = read(lines.iter().map(String::as_str)).unwrap();
        assert!(next.key == log.key, "marks mean the same");
        for known in 0..=3 {
            assert_eq!(next.since(at(1, known)), log.since(at(1, known)));
        }
        let PurgesSince::All { mut marks, upto, .. } = next.since(at(0, 0)) else { panic!("all") };
        marks.sort_unstable();
        assert_eq!((marks, upto), (vec![(1, 1), (2, 3)], at(1, 3)));
        assert_eq!(next.add(at(1, 3), &[7]).unwrap(), Some(at(1, 4)));
    }

    #[test]
    fn a_log_that_is_not_whole_is_none() {
        let lines: Vec<String> = log().lines().collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (head, rest) = lines.split_first().unwrap();
        let (_, without_end) = lines.split_last().unwrap();
        assert!(read(rest.iter().copied()).is_none());
        assert!(read(without_end.iter().copied()).is_none());
        for wrong in ["mark 1 4", "mark 4294967295 1", "purge x", "purge 1  2", "hit 1", "", *head]
        {
            let lines = without_end.iter().copied().chain([wrong, "end"]);
            assert!(read(lines).is_none(), "{wrong}");
        }
        assert!(read(lines.iter().copied().chain(["end"])).is_none());
    }

    #[test]
    fn a_purge_waits_for_the_processes_that_follow() {
        let (began, purge) = (Instant::now(), Generation { era: 1, number: 3 });
        let mut log = log();
        assert!(log.is_seen(purge, began), "there is no other process");
        log.note_follower(7, Generation { era: 1, number: 2 }, began);
        assert!(!log.is_seen(purge, began));
        assert!(log.is_seen(Generation { era: 1, number: 2 }, began));
        assert!(log.is_seen(purge, began + LIVES), "it has ended");
        log.note_follower(7, purge, began);
        assert!(log.is_seen(purge, began));
        log.note_follower(8, Generation { era: 1, number: 0 }, began);
        assert!(!log.is_seen(purge, began));
        log.forget_follower(8);
        assert!(log.is_seen(purge, began));
    }

    #[test]
    fn the_process_before_is_waited_for_from_the_begin() {
        let lines: Vec<String> = log().lines().collect();
        let mut next = read(lines.iter().map(String::as_str)).unwrap();
        let now = Instant::now();
        let purge = next.add(at(1, 3), &[7]).unwrap().unwrap().at;
        assert!(!next.is_seen(purge, now), "it has not asked yet");
        next.note_follower(7, purge, now);
        assert!(next.is_seen(purge, now));
    }

    #[test]
    fn in_the_next_era_earlier_positions_are_void() {
        let mut log = log();
        log.begin_era();
        assert_eq!(log.add(at(1, 3), &[1]).unwrap(), None);
        let PurgesSince::All { marks, upto, .. } = log.since(at(1, 3)) else { panic!("all") };
        assert_eq!((marks, upto), (Vec::new(), at(2, 0)));
    }
}
