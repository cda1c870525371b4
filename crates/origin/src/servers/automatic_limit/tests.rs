//! The limit against servers of several kinds: under a crawl, slow of themselves, and with room for all.

use std::collections::{BTreeMap, VecDeque};

use super::*;

/// A server with workers that answers first come, first served, and strangers who ask again after each answer.
struct Scene {
    workers: u32,
    page_s: f64,
    limit: AutomaticLimit,
    now: f64,
    waiting: u32,
    queue: VecDeque<RequestAtServer>,
    working: u32,
    ends: BTreeMap<(u64, u64), RequestAtServer>,
    count: u64,
    has_had_queue: bool,
}

impl Scene {
    fn new(workers: u32, strangers: u32) -> Self {
        let limit = AutomaticLimit::new(0.0, false);
        let (queue, ends) = (VecDeque::new(), BTreeMap::new());
        let waiting = strangers;
        Self {
            workers,
            page_s: 0.2,
            limit,
            now: 0.0,
            waiting,
            queue,
            working: 0,
            ends,
            count: 0,
            has_had_queue: false,
        }
    }

    fn step(&mut self) {
        while self.waiting > 0 && f64::from(self.limit.at_server()) < self.limit.limit().floor() {
            self.waiting -= 1;
            let request = self.limit.begin(self.now, 1, false);
            self.queue.push_back(request);
        }
        self.limit.observe(self.now, f64::from(self.waiting));
        while self.working < self.workers
            && let Some(request) = self.queue.pop_front()
        {
            self.working += 1;
            self.count += 1;
            // Pages differ by a few hundredths.
            let took = self.page_s * (1.0 + 0.1 * ((self.count * 7 % 11) as f64 / 11.0 - 0.5));
            let at = (((self.now + took) * 1e9) as u64, self.count);
            self.ends.insert(at, request);
        }
        let ((at, _), request) = self.ends.pop_first().expect("the server works");
        (self.now, self.working) = (at as f64 / 1e9, self.working - 1);
        self.limit.answer(self.now, &request);
        self.has_had_queue |= self.limit.has_queue();
        self.waiting += 1;
    }

    /// The limit on average in the second half of this time: now and then more is tried.
    fn run(&mut self, seconds: f64) -> f64 {
        let (half, end) = (self.now + seconds / 2.0, self.now + seconds);
        let (mut sum, mut last) = (0.0, self.now);
        while self.now < end {
            self.step();
            if last >= half {
                sum += self.limit.limit() * (self.now - last);
            }
            last = self.now;
        }
        2.0 * sum / seconds
    }
}

#[test]
fn a_crawl_finds_no_more_at_the_server_than_it_works_on_well() {
    for (workers, most) in [(4, 10.0), (16, 32.0), (64, 140.0)] {
        let mut scene = Scene::new(workers, 1_000);
        let limit = scene.run(60.0);
        let least = f64::from(workers) * 0.9;
        assert!((least..most).contains(&limit), "{workers} workers: {limit}");
        assert!(scene.has_had_queue);
    }
}

#[test]
fn a_server_with_room_for_all_gets_all() {
    let mut scene = Scene::new(500, 200);
    scene.run(10.0);
    assert!(scene.waiting <= 1, "{}", scene.limit.limit());
}

#[test]
fn a_server_that_is_slow_of_itself_gets_its_limit_back() {
    let mut scene = Scene::new(500, 20);
    scene.run(5.0);
    // A database that takes its time: as many at once would be answered in the same time.
    scene.page_s = 1.0;
    scene.waiting += 60;
    scene.run(60.0);
    assert!(scene.waiting <= 1, "{}", scene.limit.limit());
}

#[test]
fn a_server_that_can_do_more_gets_more() {
    let mut scene = Scene::new(16, 1_000);
    let before = scene.run(30.0);
    scene.workers = 500;
    let limit = scene.run(60.0);
    assert!(limit > before * 4.0, "{before} and {limit}");
}

#[test]
fn what_only_waits_does_not_count() {
    let mut limit = AutomaticLimit::new(0.0, false);
    for _ in 0..3 {
        let poll = limit.begin(0.0, 9, false);
        limit.answer(30.0, &poll);
    }
    let quick = limit.begin(30.5, 1, false);
    limit.answer(30.6, &quick);
    let _poll = limit.begin(31.0, 9, false);
    assert_eq!(limit.at_server(), 0);
    let _page = limit.begin(31.0, 1, false);
    assert_eq!(limit.at_server(), 1);
}

#[test]
fn what_has_no_answer_after_a_while_is_thought_to_wait() {
    let mut limit = AutomaticLimit::new(0.0, false);
    let polls: Vec<_> = (0..8).map(|_| limit.begin(0.0, 9, false)).collect();
    limit.observe(4.9, 1.0);
    assert_eq!(limit.at_server(), 8);
    assert!(limit.observe(5.1, 1.0));
    assert_eq!(limit.at_server(), 0);
    let _page = limit.begin(5.2, 1, false);
    polls.iter().for_each(|poll| limit.answer(6.0, poll));
    assert_eq!(limit.at_server(), 1, "each is counted once");
}

#[test]
fn a_server_that_was_away_for_a_while_has_no_queue() {
    let mut scene = Scene::new(16, 12);
    scene.run(10.0);
    let before = scene.limit.limit();
    scene.now += 5.0;
    scene.waiting += 100;
    scene.ends = std::mem::take(&mut scene.ends)
        .into_values()
        .zip(1..)
        .map(|(request, nth)| (((scene.now * 1e9) as u64, nth), request))
        .collect();
    scene.run(1.0);
    assert!(scene.limit.limit() >= before, "{before} and {}", scene.limit.limit());
}

#[test]
fn a_site_that_is_nearly_busy_is_left_alone() {
    // So many visitors that the workers are busy most of the time, and hardly one waits for long.
    let mut scene = Scene::new(16, 24);
    scene.run(60.0);
    assert!(!scene.limit.has_queue());
    assert!(scene.waiting <= 1, "{} wait", scene.waiting);
}

#[test]
fn what_is_only_watched_is_told_and_not_tried() {
    let mut limit = AutomaticLimit::new(0.0, true);
    // A hundred at a time, of which one is answered each twentieth of a second.
    let mut asked: VecDeque<_> = (0..100).map(|_| limit.begin(0.0, 1, false)).collect();
    for nth in 1..1_000 {
        let now = 0.05 * f64::from(nth);
        let request = asked.pop_front().expect("a hundred are asked for");
        limit.answer(now, &request);
        asked.push_back(limit.begin(now, 1, false));
    }
    assert!(limit.has_queue());
    assert!(limit.trial.is_none());
}

#[test]
fn a_limit_begins_where_the_last_process_knew_the_server_to_be_calm() {
    let mut limit = AutomaticLimit::new(0.0, false);
    limit.recall(&KnownServer { calm_at: 40.0, kinds: vec![(9, 30.0)] });
    assert_eq!(limit.limit(), 40.0);
    let _poll = limit.begin(0.0, 9, false);
    assert_eq!(limit.at_server(), 0, "a long poll is no work from the first on");
    assert_eq!(limit.known(9), KnownServer { calm_at: 40.0, kinds: vec![(9, 30.0)] });
    limit.recall(&KnownServer { calm_at: 90.0, kinds: Vec::new() });
    assert_eq!(limit.limit(), 40.0, "it is taken over once");
}

#[test]
fn a_limit_that_has_moved_stays() {
    let mut scene = Scene::new(16, 1_000);
    scene.run(10.0);
    let before = scene.limit.limit();
    scene.limit.recall(&KnownServer { calm_at: 900.0, kinds: Vec::new() });
    assert_eq!(scene.limit.limit(), before);
    let mut limit = AutomaticLimit::new(0.0, false);
    limit.find_queue();
    limit.recall(&KnownServer { calm_at: 900.0, kinds: Vec::new() });
    assert_eq!(limit.limit(), START, "the server is found to have a queue");
}

#[test]
fn what_hangs_does_not_keep_all_others_from_the_server() {
    let mut limit = AutomaticLimit::new(0.0, false);
    let page = limit.begin(0.0, 1, false);
    limit.answer(0.1, &page);
    let _hanging: Vec<_> = (0..START as u32).map(|_| limit.begin(1.0, 1, false)).collect();
    assert!(!limit.observe(1.5, 1.0));
    assert!(limit.observe(2.1, 1.0), "there is room for one more");
    assert!(limit.limit() > f64::from(limit.at_server()));
    assert!(!limit.observe(2.2, 1.0), "for one a second");
}

#[test]
fn an_upload_that_waits_for_its_client_does_not_count_for_long() {
    let mut limit = AutomaticLimit::new(0.0, false);
    let page = limit.begin(0.0, 1, true);
    limit.answer(0.1, &page);
    let _slow: Vec<_> = (0..8).map(|_| limit.begin(1.0, 1, true)).collect();
    limit.observe(5.9, 1.0);
    assert_eq!(limit.at_server(), 8);
    assert!(limit.observe(6.1, 1.0));
    assert_eq!(limit.at_server(), 0);
}

#[test]
fn an_app_of_which_all_answers_are_slow_works() {
    let mut limit = AutomaticLimit::new(0.0, false);
    for nth in 0..3 {
        let slow = limit.begin(f64::from(nth) * 10.0, 1, false);
        limit.answer(f64::from(nth) * 10.0 + 9.0, &slow);
    }
    let _slow = limit.begin(31.0, 1, false);
    assert_eq!(limit.at_server(), 1);
}

#[test]
fn a_server_that_is_calm_round_after_round_holds_nothing_back() {
    let mut scene = Scene::new(500, 200);
    scene.limit.find_queue();
    scene.run(20.0);
    assert!(!scene.limit.has_queue());
    assert!(scene.waiting <= 1, "{} wait", scene.waiting);
}
