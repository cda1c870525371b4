//! Purges and changes against fetches under way, and against another proxy on the same store: not a
//! few, but a thousand of each.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::client::{Answer, Client};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::redis::RedisServer;
use crate::support::{at_once, wait_until};

on_both_stores!(
    a_thousand_changes_in_the_middle_of_fetches_leave_no_old_page,
    a_thousand_purges_in_the_middle_of_fetches_leave_no_old_page,
);

/// How many fetches are held at a time, and how often.
const BATCH: usize = 125;
const BATCHES: usize = 8;

/// One batch at the origin, in two times. Before the turn it holds its answers, some before the head and
/// some in the middle of the body, and what it says then is old; after the turn it says what is new, at
/// once.
#[derive(Default)]
struct Batch {
    turned: AtomicBool,
    gate: Arc<Gate>,
}

impl Batch {
    fn answer(&self, number: usize) -> Reply {
        let reply = Reply::status("200 OK")
            .header("Content-Type", "text/css")
            .header("Cache-Control", "max-age=300")
            .header("xkey", &format!("tag-{number}"))
            .header("Content-Length", "3");
        if self.turned.load(Ordering::SeqCst) {
            return reply.bytes("new");
        }
        if number.is_multiple_of(2) {
            self.gate.pass();
            return reply.bytes("old");
        }
        reply.bytes("o").until(&self.gate).bytes("ld")
    }
}

/// The number at the end of a path.
fn number_of(path: &str) -> usize {
    path.rsplit('/').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// A token in a file, and the settings that name it.
fn token() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-token").unwrap();
    let settings = format!("admin.token = {{ file = \"{}\" }}", file.display());
    (folder, settings)
}

/// Has the proxy carry out a purge, and waits for its word: whether all have confirmed it.
#[track_caller]
fn purge(proxy: &Proxy, order: &str) -> bool {
    let ask = proxy.admin("/purge").method("POST").body(order.as_bytes());
    let done = ask.header("Authorization", "Bearer secret-token").send();
    assert_eq!(done.status, 200, "{order}: {}", done.text());
    done.text().contains("\"confirmed\":true")
}

/// Many times: lets a batch of fetches begin, changes each page in the middle of its fetch, lets the
/// fetches end with what is old by then, and looks at each page. Every other batch ends while half of
/// its changes are still to come or under way. A request from before may be shown either.
fn change_in_the_middle(storage: &Storage, change: impl Fn(&Proxy, usize) + Sync) {
    let batches: Arc<[Batch; BATCHES]> = Arc::default();
    let told = Arc::clone(&batches);
    let origin = Origin::start(move |request| match request.method.as_str() {
        "POST" => Reply::status("204 No Content"),
        _ => {
            let number = number_of(request.path());
            told[number / BATCH].answer(number)
        }
    });
    let (_folder, token) = token();
    // An app that answers none until it was asked for all is not what the order of requests is for.
    let settings = format!("{token}\norigin.overload = \"off\"");
    let proxy = Proxy::start(&origin, storage, &settings);
    for (batch, times) in batches.iter().enumerate() {
        let numbers = || batch * BATCH..(batch + 1) * BATCH;
        let get = |number: usize| proxy.get(&format!("/{number}"));
        let readers: Vec<_> = numbers().map(|number| get(number).start()).collect();
        wait_until("each page is asked for", || origin.busy() == BATCH);
        times.turned.store(true, Ordering::SeqCst);
        let early = numbers().nth(BATCH / 2).filter(|_| batch % 2 == 1);
        at_once(4, |quarter| {
            for number in numbers().skip(quarter).step_by(4) {
                if early == Some(number) {
                    times.gate.open();
                }
                change(&proxy, number);
            }
        });
        times.gate.open();
        for (mut reader, number) in readers.into_iter().zip(numbers()) {
            let text = reader.answer().text();
            assert!(["old", "new"].contains(&text.as_str()), "{number}: {text}");
        }

        let mut after = proxy.connect();
        for number in numbers() {
            for _ in 0..2 {
                let answer = get(number).send_on(&mut after);
                assert_eq!(answer.text(), "new", "{number}: {}", answer.cache_status());
            }
        }
        let mut shown = || get(batch * BATCH).send_on(&mut after);
        wait_until("pages are kept again", || shown().is_hit());
        assert_eq!(shown().text(), "new");
    }
}

fn a_thousand_changes_in_the_middle_of_fetches_leave_no_old_page(storage: &Storage) {
    change_in_the_middle(storage, |proxy, number| {
        assert_eq!(proxy.post(&format!("/{number}")).send().status, 204);
    });
}

fn a_thousand_purges_in_the_middle_of_fetches_leave_no_old_page(storage: &Storage) {
    change_in_the_middle(storage, |proxy, number| {
        let url = format!("http://shop.test/{number}");
        let order = match number / 2 % 4 {
            0 => format!("{{\"urls\": [\"{url}\"]}}"),
            1 => format!("{{\"urls\": [\"{url}\"], \"hard\": true}}"),
            2 => format!("{{\"tags\": [\"tag-{number}\"]}}"),
            _ => format!("{{\"prefixes\": [\"{url}\"]}}"),
        };
        assert!(purge(proxy, &order), "there is no other process to confirm it");
    });
}

/// Two proxies on one Redis before an origin whose pages tell their version, page by page.
struct Two {
    server: RedisServer,
    versions: Arc<Vec<AtomicUsize>>,
    /// The one that purges, and the other.
    one: Proxy,
    other: Proxy,
    _origin: Origin,
    _token: TempDir,
}

impl Two {
    fn with_pages(pages: usize) -> Self {
        let versions = Arc::new((0..pages).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let told = Arc::clone(&versions);
        let origin = Origin::start(move |request| {
            let version = told[number_of(request.path())].load(Ordering::SeqCst);
            Reply::html(&version.to_string()).header("Cache-Control", "max-age=300")
        });
        let server = RedisServer::start();
        let (folder, token) = token();
        let settings = format!("store.url = \"{}\"\n{token}", server.url());
        let [one, other] = [0, 1].map(|_| Proxy::with_settings(&origin, &settings));
        Self { server, versions, one, other, _origin: origin, _token: folder }
    }

    /// Purges a page at the one in so many rounds, and says how long the other needed after each.
    fn rounds(&self, page: usize, rounds: usize, tally: &Tally) -> Vec<Duration> {
        let path = format!("/{page}");
        let order = format!("{{\"urls\": [\"http://shop.test{path}\"]}}");
        let mut visitor = self.other.connect();
        let ask = |visitor: &mut Client| self.other.get(&path).send_on(visitor);
        ask(&mut visitor);
        (0..rounds)
            .map(|_| {
                for _ in 0..10 {
                    tally.count(&ask(&mut visitor));
                }
                let version = self.versions[page].fetch_add(1, Ordering::SeqCst) + 1;
                let is_confirmed = purge(&self.one, &order);
                let purged = Instant::now();
                let is_new = |answer: Answer| answer.text() == version.to_string();
                while !is_new(ask(&mut visitor)) {
                    assert!(purged.elapsed() < BAR, "{path} is still old at version {version}");
                }
                let needed = purged.elapsed();
                tally.unconfirmed.fetch_add(usize::from(!is_confirmed), Ordering::SeqCst);
                assert!(needed < BAR, "{path} was old for {needed:?}");
                needed
            })
            .collect()
    }
}

/// What a purge at one proxy promises for the others, counted from its return.
const BAR: Duration = Duration::from_secs(1);

/// Answers between purges, and how many of them came from the process's own memory.
#[derive(Default)]
struct Tally {
    counts: Mutex<(u32, u32)>,
    /// Purges that the other had not confirmed when they returned: on a machine that is busy for long,
    /// and they hold within the bar all the same.
    unconfirmed: AtomicUsize,
}

impl Tally {
    fn count(&self, answer: &Answer) {
        let from_memory = answer.is_hit() && answer.cache_status().contains("detail=memory");
        let mut counts = self.counts.lock().unwrap();
        counts.0 += 1;
        counts.1 += u32::from(from_memory);
    }

    #[track_caller]
    fn assert_from_memory(&self) {
        let (all, from_memory) = *self.counts.lock().unwrap();
        let share = f64::from(from_memory) / f64::from(all);
        let unconfirmed = self.unconfirmed.load(Ordering::SeqCst);
        tell(&format!(
            "{from_memory} of {all} answers came from memory, {unconfirmed} purges were unconfirmed"
        ));
        assert!(share >= 0.95, "{from_memory} of {all} answers came from memory");
    }
}

fn tell_times(needed: &[Duration]) {
    let worst = needed.iter().max().copied().unwrap_or_default();
    let sum: Duration = needed.iter().sum();
    let count = u32::try_from(needed.len()).unwrap();
    let mean = sum / count;
    tell(&format!("{count} purges held at the other: worst after {worst:?}, mean {mean:?}"));
}

/// A figure for the reader of the output.
#[expect(clippy::print_stdout, reason = "what a test prints is shown to whoever asks for it")]
fn tell(figure: &str) {
    println!("{figure}");
}

#[test]
fn a_thousand_purges_in_a_row_hold_at_the_other_within_a_second() {
    let two = Two::with_pages(1);
    let tally = Tally::default();

    let needed = two.rounds(0, 1_000, &tally);

    tell_times(&needed);
    assert_eq!(needed.len(), 1_000);
    tally.assert_from_memory();
}

#[test]
fn a_thousand_purges_hold_within_a_second_without_messages() {
    // Untold, a proxy hears of a purge within a quarter of a second: several wait side by side.
    const PAGES: usize = 20;
    let two = Two::with_pages(PAGES);
    let tally = Tally::default();
    let (over, is_over) = mpsc::channel::<()>();
    let killed = AtomicUsize::new(0);

    let needed = std::thread::scope(|scope| {
        // Purges are announced on these connections, and the proxies find them closed.
        scope.spawn(|| {
            let is_over = is_over;
            while is_over.recv_timeout(Duration::from_millis(20))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                let ended = two.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                killed.fetch_add(ended, Ordering::SeqCst);
            }
        });
        let needed = at_once(PAGES, |page| two.rounds(page, 1_000 / PAGES, &tally)).concat();
        drop(over);
        needed
    });

    tell_times(&needed);
    tell(&format!("{} connections were killed meanwhile", killed.load(Ordering::SeqCst)));
    assert_eq!(needed.len(), 1_000);
    assert!(killed.load(Ordering::SeqCst) > 0, "none was killed");
    tally.assert_from_memory();
}
