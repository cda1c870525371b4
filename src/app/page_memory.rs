//! The room for pages in memory: told where it follows from a small limit, and kept below the limits of control groups.
//!
//! Near such a limit, pages make room before the kernel ends the process.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use anteroom_cache::Pages;
use anteroom_config::{Cache, Cgroups, MemoryUse, smallest_memory_limit};
use anteroom_store::StoreError;
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use tokio::time::Instant;

use super::shared_state::SharedState;
use crate::task::{NextStep, Task};

const MIB: u64 = 1 << 20;
/// How often the use is read while there is room.
const EVERY: Duration = Duration::from_secs(1);
/// How often near the limit. At 100 MiB of new pages a second, 20 MiB come in this time: a tenth of a limit of 200 MiB.
const EVERY_NEAR: Duration = Duration::from_millis(200);
/// The least room for pages, as `[cache] memory` has.
const ROOM_MIN: u64 = MIB;
/// How much is evicted at a time: look-ups wait for it some milliseconds at most.
const EVICT_AT_ONCE: u64 = 32 * MIB;
/// How long the allocator keeps what was freed: jemalloc's `dirty_decay_ms` is 10 s.
const UNTIL_RETURNED: Duration = Duration::from_secs(12);
/// The room grows by this part of the whole each second.
const GROWTH: u64 = 32;

/// Tells the room for pages where "auto" has made it smaller.
pub(super) fn report(cache: &Cache) {
    let Some(limit) = smallest_memory_limit() else { return };
    let room = Cache::auto_memory(Some(limit.bytes));
    if cache.memory.is_none() && room < Cache::auto_memory(None) {
        tracing::info!("pages in memory have {}MiB: the process is limited to {limit}", room >> 20);
    }
}

/// The task that keeps the process below the limits of its control groups; `None` where there is none.
pub(super) fn fit(
    shared: &SharedState,
    thread_metrics: &Arc<ThreadMetrics>,
) -> Option<FitPageMemory> {
    let cgroups = Cgroups::of_this_process();
    let pages = Arc::clone(&shared.pages);
    cgroups.have_limit().then(|| FitPageMemory::new(pages, cgroups, Arc::clone(thread_metrics)))
}

/// Adapts the room for pages to the limit.
#[derive(Debug)]
pub(super) struct FitPageMemory {
    pages: Arc<Pages>,
    cgroups: Cgroups,
    thread_metrics: Arc<ThreadMetrics>,
    room: RefCell<Room>,
}

impl FitPageMemory {
    /// Adapts `pages`, whose room is now the whole.
    fn new(pages: Arc<Pages>, cgroups: Cgroups, thread_metrics: Arc<ThreadMetrics>) -> Self {
        let room = RefCell::new(Room::new(pages.memory().capacity()));
        Self { pages, cgroups, thread_metrics, room }
    }

    /// Evicts pages until they take no more than `bytes`; returns how many bytes were evicted.
    async fn evict(&self, bytes: u64) -> u64 {
        let memory = self.pages.memory();
        let before = memory.bytes();
        let mut room = before;
        while room > bytes {
            room = room.saturating_sub(EVICT_AT_ONCE).max(bytes);
            memory.set_capacity(room);
            tokio::task::yield_now().await;
        }
        before.saturating_sub(memory.bytes())
    }

    /// Tells once of each time of little room.
    fn report(&self, change: &Change, present: &MemoryUse) {
        let (used, limit) = (present.used / MIB, &present.limit);
        match change {
            Change::Short(bytes) => tracing::warn!(
                "memory is short: {used}MiB are used of the limit of {limit}; pages in memory are \
                 reduced to {}MiB until there is room again",
                bytes / MIB
            ),
            Change::Whole(bytes) => {
                tracing::info!(
                    "memory is not short any more: there is room for {}MiB of pages",
                    bytes / MIB
                );
            }
        }
    }
}

impl Task for FitPageMemory {
    const NAME: &'static str = "fit_page_memory";

    async fn step(&self) -> Result<NextStep, StoreError> {
        // Without a limit, which may have been removed meanwhile, the room grows back.
        let Some(present) = self.cgroups.tightest() else {
            self.pages.memory().set_capacity(self.room.borrow_mut().grow_to_whole());
            return Ok(NextStep::Idle);
        };
        let held = self.pages.memory().bytes();
        let next = self.room.borrow_mut().next(&present, held, Instant::now());
        if next.bytes < held {
            let evicted = self.evict(next.bytes).await;
            self.room.borrow_mut().evicted(evicted, &present, Instant::now());
            self.thread_metrics.count(Count::PageMemoryReduced);
        } else if next.bytes != self.pages.memory().capacity() {
            self.pages.memory().set_capacity(next.bytes);
        }
        if let Some(change) = &next.change {
            self.report(change, &present);
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        let is_near = self.room.borrow().is_near;
        tokio::time::sleep(if is_near { EVERY_NEAR } else { EVERY }).await;
    }
}

/// What is worth telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Pages are evicted, and have so much room now.
    Short(u64),
    /// They have their whole room again.
    Whole(u64),
}

/// What pages get next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NextRoom {
    bytes: u64,
    change: Option<Change>,
}

/// Pages that were evicted, and that the allocator has not yet given back to the system.
#[derive(Clone, Copy, Debug)]
struct EvictedMemory {
    evicted: u64,
    /// What was used when they were evicted.
    used: u64,
    until: Instant,
}

/// The room for pages, from what is used.
#[derive(Debug)]
struct Room {
    /// What `[cache] memory` says.
    whole: u64,
    bytes: u64,
    is_short: bool,
    is_near: bool,
    returning: Option<EvictedMemory>,
    grown_at: Option<Instant>,
}

impl Room {
    fn new(whole: u64) -> Self {
        Self {
            whole,
            bytes: whole,
            is_short: false,
            is_near: false,
            returning: None,
            grown_at: None,
        }
    }

    /// The room after `present` was read, with `held` bytes of pages.
    ///
    /// Pages are evicted where more than nine tenths of the limit are used. Below, they may grow by what is left of
    /// the nine tenths, so that what arrives until the next look does not pass the limit. Room that was lost comes
    /// back a little each second while less than four fifths are used.
    fn next(&mut self, present: &MemoryUse, held: u64, now: Instant) -> NextRoom {
        let limit = present.limit.bytes;
        let (near, clear) = (limit / 10 * 9, limit / 5 * 4);
        self.is_near = present.used > limit / 10 * 7;
        let used = present.used.saturating_sub(self.not_yet_returned(present.used, now));
        let fits = (held + near).saturating_sub(used).max(ROOM_MIN);
        let mut change = None;
        if used > near {
            self.bytes = fits.min(self.bytes);
            if !std::mem::replace(&mut self.is_short, true) {
                change = Some(Change::Short(self.bytes));
            }
        } else if present.used < clear && self.bytes < self.whole {
            self.grow(fits, now);
            if self.bytes == self.whole && std::mem::take(&mut self.is_short) {
                change = Some(Change::Whole(self.whole));
            }
        } else {
            self.bytes = self.bytes.min(fits);
        }
        NextRoom { bytes: self.bytes, change }
    }

    /// Without this, the same excess would be evicted again each time until the allocator has returned it.
    fn not_yet_returned(&mut self, used: u64, now: Instant) -> u64 {
        self.returning = self.returning.filter(|it| now < it.until);
        self.returning.map_or(0, |it| it.evicted.saturating_sub(it.used.saturating_sub(used)))
    }

    fn grow(&mut self, fits: u64, now: Instant) {
        let is_due = self.grown_at.is_none_or(|at| now.duration_since(at) >= EVERY);
        if is_due {
            self.grown_at = Some(now);
            self.bytes = (self.bytes + self.whole / GROWTH).min(self.whole);
        }
        self.bytes = self.bytes.min(fits);
    }

    fn grow_to_whole(&mut self) -> u64 {
        (self.is_short, self.is_near) = (false, false);
        self.bytes = self.whole;
        self.whole
    }

    /// Takes note that so many bytes were evicted when `present` was read.
    fn evicted(&mut self, bytes: u64, present: &MemoryUse, now: Instant) {
        let before = self.not_yet_returned(present.used, now);
        let (evicted, until) = (before + bytes, now + UNTIL_RETURNED);
        self.returning = Some(EvictedMemory { evicted, used: present.used, until });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anteroom_cache::entry::VariantIndex;
    use anteroom_cache::flight::Flights;
    use anteroom_cache::memory::MemoryValue;
    use anteroom_cache::purge::PurgeTable;
    use anteroom_config::MemoryLimit;
    use anteroom_http::ident::PageKey;

    use super::*;

    const LIMIT: u64 = 200 * MIB;

    fn used(bytes: u64) -> MemoryUse {
        let limit = MemoryLimit { bytes: LIMIT, file: "memory.max".into() };
        MemoryUse { used: bytes, limit }
    }

    #[test]
    fn the_room_follows_the_use() {
        let (mut room, now) = (Room::new(80 * MIB), Instant::now());
        let mut next = |used_mib: u64, held: u64, second: u64| {
            let present = used(used_mib * MIB);
            let next = room.next(&present, held * MIB, now + Duration::from_secs(second));
            if next.bytes < held * MIB {
                let evicted = held * MIB - next.bytes;
                room.evicted(evicted, &present, now + Duration::from_secs(second));
            }
            (next.bytes / MIB, next.change)
        };
        assert_eq!(next(60, 20, 0), (80, None), "there is room");
        assert_eq!(next(150, 70, 1), (80, None), "120 would fit");
        assert_eq!(next(190, 70, 2), (60, Some(Change::Short(60 * MIB))));
        assert_eq!(next(190, 60, 3), (60, None), "the allocator has not yet returned it");
        assert_eq!(next(195, 60, 4), (55, None), "others have taken more");
        assert_eq!(next(180, 55, 5), (55, None));
        assert_eq!(next(170, 50, 20), (55, None), "neither near nor clear");
        assert_eq!(next(185, 55, 40), (50, None), "told once");
        assert_eq!(next(150, 50, 60), (52, None), "it grows slowly");
        assert_eq!(next(150, 50, 60), (52, None), "by the second");
        for second in 61..71 {
            next(150, 50, second);
        }
        assert_eq!(next(150, 50, 80), (80, Some(Change::Whole(80 * MIB))));
        assert_eq!(next(500, 70, 90), (1, Some(Change::Short(MIB))), "never none");
    }

    #[test]
    fn what_comes_within_a_moment_does_not_pass_the_limit() {
        let mut room = Room::new(256 * MIB);
        let next = room.next(&used(30 * MIB), 0, Instant::now());
        assert_eq!(next, NextRoom { bytes: 150 * MIB, change: None });
    }

    /// A group of version 2 that uses so many MiB of 200.
    fn use_mib(root: &std::path::Path, mib: u64) {
        let folder = root.join("sys/fs/cgroup");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(root.join("proc/self")).unwrap();
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        fs::write(root.join("proc/self/mountinfo"), mount).unwrap();
        fs::write(root.join("proc/self/cgroup"), "0::/\n").unwrap();
        fs::write(folder.join("memory.max"), LIMIT.to_string()).unwrap();
        fs::write(folder.join("memory.current"), (mib * MIB).to_string()).unwrap();
    }

    /// Pages that take all of the memory.
    fn full_pages(memory: u64) -> Pages {
        let pages = Pages::new(memory, Flights::new(MIB, 10), PurgeTable::new(false).into(), 32);
        for number in 0..3_000_u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            let index = VariantIndex { fields: Vec::new(), keys: vec![PageKey(key); 1_000] };
            pages.memory().put(PageKey(key), MemoryValue::Variants(Arc::new(index)), 1_000);
        }
        pages
    }

    #[tokio::test(start_paused = true)]
    async fn pages_are_evicted_near_the_limit_and_have_room_again_after_it() {
        let root = tempfile::tempdir().unwrap();
        use_mib(root.path(), 100);
        let pages = Arc::new(full_pages(64 * MIB));
        let cgroups = Cgroups::under(root.path());
        let task = FitPageMemory::new(Arc::clone(&pages), cgroups, Arc::default());
        let memory = pages.memory();
        task.step().await.unwrap();
        assert_eq!(memory.capacity(), 64 * MIB);
        let held = memory.bytes();
        assert!(held > 60 * MIB, "{held} bytes");

        use_mib(root.path(), 220);
        task.step().await.unwrap();
        assert!(memory.bytes() <= held - 40 * MIB, "{} of {held} bytes", memory.bytes());
        assert!(memory.bytes() > held - 44 * MIB, "{} of {held} bytes", memory.bytes());

        use_mib(root.path(), 100);
        for _ in 0..40 {
            task.rest().await;
            task.step().await.unwrap();
        }
        assert_eq!(memory.capacity(), 64 * MIB);
        fs::remove_file(root.path().join("sys/fs/cgroup/memory.max")).unwrap();
        task.step().await.unwrap();
        assert_eq!(memory.capacity(), 64 * MIB);
    }
}
