//! What can be seen of a proxy from outside: the commands that reach its Redis, and its counters.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::DEADLINE;
use crate::support::proxy::Proxy;

/// Listens to a Redis (`MONITOR`), and gives it commands of the test's own.
pub(super) struct Monitor {
    heard: Arc<Mutex<Vec<String>>>,
    own: Mutex<BufReader<TcpStream>>,
    /// What marks the own commands.
    name: String,
}

impl Monitor {
    pub(super) fn start(port: u16) -> Self {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let own = connect();
        own.set_read_timeout(Some(DEADLINE)).unwrap();
        let name = format!(" {}", own.local_addr().unwrap());
        let mut listening = connect();
        listening.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(listening).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let hearing = Arc::clone(&heard);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                hearing.lock().unwrap().push(line);
            }
        });
        Self { heard, own: Mutex::new(BufReader::new(own)), name }
    }

    /// The stored data, without entries that expire, and without owners that are random.
    pub(super) fn state(&self) -> Vec<String> {
        let left_out = [
            "cache:",
            "lease:",
            "pagebytes:",
            "hotpages:",
            "overload:",
            "tickets:",
            "purg",
            "seen:",
            "bypass:",
            "fleet:",
            "cleaner:",
            "rescaled:",
            "scheduler:",
        ];
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            self.command(&words)
        };
        let mut lines = Vec::new();
        for key in of(&["KEYS", "*"]) {
            if left_out.iter().any(|out| key.starts_with(out)) {
                continue;
            }
            let held = match of(&["TYPE", &key]).first().map(String::as_str) {
                Some("hash") => {
                    of(&["HGETALL", &key]).chunks(2).map(|pair| pair.join(" ")).collect()
                }
                // The scores are times, but for views.
                Some("zset") if key == "viewed:" => of(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
                Some("zset") => of(&["ZRANGE", &key, "0", "-1"]),
                Some("list") => of(&["LRANGE", &key, "0", "-1"]),
                _ => vec!["(something)".to_owned()],
            };
            lines.extend(held.iter().map(|held| format!("{key} {held}")));
        }
        lines
    }

    /// Ends all leases on pages: what follows does not depend on whether one has run out.
    pub(super) fn end_leases(&self) {
        let leases = self.command(&["KEYS".to_owned(), "lease:*".to_owned()]);
        if !leases.is_empty() {
            let words: Vec<String> = std::iter::once("DEL".to_owned()).chain(leases).collect();
            self.command(&words);
        }
    }

    /// Carries out a command; the texts in its answer.
    pub(super) fn command(&self, words: &[String]) -> Vec<String> {
        let mut own = self.own.lock().unwrap();
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        own.get_mut().write_all(bytes.as_bytes()).unwrap();
        let (mut texts, mut open) = (Vec::new(), 1_usize);
        while open > 0 {
            let mut line = String::new();
            own.read_line(&mut line).unwrap();
            assert!(!line.starts_with('-') && !line.is_empty(), "{words:?}: {line}");
            let (kind, rest) = line.trim_end().split_at(1);
            open -= 1;
            match kind {
                "*" => open += rest.parse::<usize>().unwrap(),
                "$" => {
                    let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                    own.read_exact(&mut text).unwrap();
                    text.truncate(text.len() - 2);
                    texts.push(text.escape_ascii().to_string().replace("\\\"", "\""));
                }
                _ => texts.push(rest.to_owned()),
            }
        }
        texts
    }

    /// How much was heard so far.
    pub(super) fn count(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    /// The commands since then that belong to requests: name and arguments, those of a script behind it.
    /// `looks_up`: with those whose answers are remembered for a while.
    pub(super) fn since(&self, count: usize, looks_up: bool) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let mut told: Vec<(String, String)> = Vec::new();
        let mut is_left_out = false;
        for line in &heard[count..] {
            let Some((place, command)) = line.split_once("] ") else { continue };
            let place = place.split_once('[').map_or(place, |(_, place)| place);
            let words = words(command);
            let name = words.first().map(|word| word.to_uppercase()).unwrap_or_default();
            if place.ends_with(" lua") {
                if !is_left_out && !is_bookkeeping(&name, &words) {
                    told.push((String::new(), format!("  {}", shown(&words))));
                }
                continue;
            }
            // A script that the server does not know is loaded, and called again.
            if name == "SCRIPT" {
                if let Some(at) = told.iter().rposition(|(from, _)| from == place) {
                    told.remove(at);
                }
                continue;
            }
            let line = shown(&words);
            // A lease on a page is renewed where its fetch takes longer, and a logout that the store has not
            // confirmed yet is carried out by a task, too.
            let may_repeat =
                [" lease:", " gone: ", "SET barred:"].iter().any(|part| line.contains(part));
            let repeats = may_repeat && told.iter().any(|(_, before)| *before == line);
            is_left_out = place.ends_with(&self.name)
                || is_background(&name, &words)
                || (is_look_up(&name, &words) && !looks_up)
                || repeats;
            if !is_left_out {
                told.push((place.to_owned(), line));
            }
        }
        told.into_iter().map(|(_, line)| line).collect()
    }
}

/// Whether a script's command is about its own books, or a look at a page before that is written.
fn is_bookkeeping(name: &str, words: &[String]) -> bool {
    let books = ["bypass:", "pagebytes:", "purges:", "purging:", "purged:", "seen:"];
    let looks = ["STRLEN", "TIME", "PEXPIRETIME", "PTTL", "GETRANGE"];
    looks.contains(&name) || words.iter().any(|word| books.contains(&word.as_str()))
}

/// Whether a command looks up the user of a token, or a row: the result is remembered for a while.
fn is_look_up(name: &str, words: &[String]) -> bool {
    let key = words.get(1).map_or("", String::as_str);
    let looks =
        [("HGET", "login:"), ("EXISTS", "barred:"), ("GETRANGE", "inv:"), ("ZSCORE", "refreshed:")];
    looks.iter().any(|(command, begin)| name == *command && key.starts_with(begin))
}

/// Whether a command is no request's: a beat, or a task's.
fn is_background(name: &str, words: &[String]) -> bool {
    let tasks = [
        "cleaner:",
        "deliverer:",
        "rescaled:",
        "seen:",
        "bypass:",
        "schedule:",
        "scheduler:",
        "unschedule:",
        "cartidle:",
        "expiring:",
        "hotpages:",
    ];
    let begins = |word: &String| {
        ["fleet:", "overload:", "tickets:"].iter().any(|begin| word.starts_with(begin))
    };
    let is_task = |word: &String| tasks.contains(&word.as_str()) || begins(word);
    let connects = ["PING", "HELLO", "CLIENT", "INFO", "SUBSCRIBE", "AUTH", "SELECT", "CONFIG"];
    // A cleaner says how many may stay, and how many go at a time.
    let says = |text: &str| words.iter().any(|word| word == text);
    let cleans = (says("10000000") || says("100000")) && says("100");
    let key = words.get(1).map_or("", String::as_str);
    // Visits and views are written in lots, some time behind the requests.
    let counts_views = ["ZINCRBY", "ZREMRANGEBYRANK"].contains(&name) && key == "viewed:";
    let at = words.iter().position(|word| word.starts_with("viewed:")).unwrap_or_default();
    let behind = words.iter().skip(at).find(|word| !word.starts_with("viewed:"));
    let visits = name == "EVALSHA" && at > 0 && behind.is_some_and(|keep| keep == "25");
    let frames = ["MULTI", "EXEC"].contains(&name);
    let catches_up = key == "purged:";
    let is_known = connects.contains(&name) || frames || counts_views || visits;
    is_known || words.iter().any(is_task) || cleans || catches_up
}

/// The words of a line of `MONITOR`, as they stand there.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), command);
    while let Some(begun) = rest.trim_start().strip_prefix('"') {
        let mut is_escaped = false;
        let end = begun.bytes().position(|byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        let Some(end) = end else { break };
        words.push(begun[..end].to_owned());
        rest = &begun[end + 1..];
    }
    words
}

fn shown(words: &[String]) -> String {
    // Where a purge stands in the table is another place in each process.
    if words.get(4).is_some_and(|key| key == "purging:") {
        return format!("{} and {} more", words[..6].join(" "), words.len() - 6);
    }
    let shown = words.iter().enumerate().map(|(at, word)| match word.as_str() {
        "" => "\"\"".to_owned(),
        word if at > 0 && (word.len() > 150 || word.contains("\\x")) => "<bytes>".to_owned(),
        word => word.to_owned(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The counters, by their names with labels.
pub(super) type Counters = BTreeMap<String, i64>;

/// What depends on how fast things were, or on sockets that are kept.
const LEFT_OUT: [&str; 12] = [
    "anteroom_connections_accepted",
    "anteroom_connections_laid_aside",
    "anteroom_connections_timed_out",
    "anteroom_origin_connections",
    "anteroom_origin_idle_errors",
    "anteroom_origin_retries ",
    "anteroom_origin_seconds",
    "anteroom_log_dropped",
    "anteroom_purges_late",
    // By route, what other counters say already.
    "anteroom_route_reasons",
    "anteroom_saved_",
    // Of the process as a whole, and fractions.
    "process_",
];

/// Reads the counters of a proxy.
pub(super) fn counters(proxy: &Proxy) -> Counters {
    let page = proxy.admin("/metrics").send().text();
    let (mut counters, mut counts) = (Counters::new(), false);
    for line in page.lines() {
        // The samples of a family stand behind its type.
        if let Some(family) = line.strip_prefix("# TYPE ") {
            counts =
                family.ends_with(" counter") && !LEFT_OUT.iter().any(|out| family.starts_with(out));
        } else if counts
            && !line.starts_with('#')
            && let Some((name, value)) = line.rsplit_once(' ')
        {
            counters.insert(name.to_owned(), value.parse().unwrap());
        }
    }
    counters
}

/// What has changed.
pub(super) fn changes(before: &Counters, now: &Counters) -> Vec<String> {
    now.iter()
        .map(|(name, value)| (name, value - before.get(name).copied().unwrap_or_default()))
        .filter(|(_, change)| *change != 0)
        .map(|(name, change)| format!("{name} {change:+}"))
        .collect()
}
