//! The screen of `anteroom top crowd`: who takes the app's time, and the lines that would stop it.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anteroom::admin::{
    self, CROWD, CrowdEntry, CrowdReport, ListedOrigin, ListedServer, ORIGINS, OriginsReport,
};
use http::Method;

use super::READ_EVERY;
use super::input::{Input, watch_input};
use super::screen::cut;
use crate::cli::output::{failed, printable, say};
use crate::cli::progress::wait;
use crate::cli::terminal::Screen;

/// Events that wait for the screen.
const EVENTS_MAX: usize = 16;
/// How many of each table are shown.
const SHOWN_MAX: usize = 5;
/// The room for a name.
const NAME_WIDTH: usize = 52;
/// From which part of the app's time on, in percent, the lines against one are shown.
const WORTH_STOPPING: f64 = 10.0;

/// A reading.
struct CrowdReading {
    crowd: CrowdReport,
    origins: OriginsReport,
}

impl CrowdReading {
    fn read(socket: &Path) -> Result<Self, String> {
        let get = |path| {
            admin::send_command(socket, Method::GET, path, Vec::new())
                .map_err(|error| error.to_string())
        };
        let crowd = serde_json::from_slice(&get(CROWD)?).map_err(|error| error.to_string())?;
        let origins = serde_json::from_slice(&get(ORIGINS)?).map_err(|error| error.to_string())?;
        Ok(Self { crowd, origins })
    }

    fn lines(&self) -> Vec<String> {
        let crowd = &self.crowd;
        let mut lines: Vec<String> = self.origins.origins.iter().flat_map(origin).collect();
        lines.push(format!(
            "app          {:.2} s/s taken lately, by {:.0} requests",
            crowd.seconds_per_second, crowd.requests
        ));
        for (title, entries) in tables(crowd) {
            lines.push(String::new());
            lines
                .push(format!("{title:<NAME_WIDTH$} {:>7} {:>7} {:>9}", "s/s", "part", "requests"));
            lines.extend(entries.iter().take(SHOWN_MAX).map(row));
        }
        lines.extend(remedies(crowd));
        lines
    }
}

/// The tables with their titles.
fn tables(crowd: &CrowdReport) -> [(&'static str, &[CrowdEntry]); 4] {
    [
        ("path", &crowd.patterns[..]),
        ("user agent", &crowd.agents[..]),
        ("network", &crowd.networks[..]),
        ("class", &crowd.classes[..]),
    ]
}

/// The state of an origin in words.
fn origin(origin: &ListedOrigin) -> Vec<String> {
    let name = printable(&origin.name);
    let by_class = origin.waiting_by_class.iter().filter(|(_, count)| **count > 0);
    let by_class: Vec<String> =
        by_class.map(|(class, count)| format!("{count} {}", printable(class))).collect();
    let waiting = match origin.waiting {
        0 => "no request waits".to_owned(),
        count => format!("{count} wait: {}", by_class.join(", ")),
    };
    let servers = origin.servers.iter().map(|server| format!("{name:<12} {}", state(server)));
    servers.chain([format!("{name:<12} {waiting}")]).collect()
}

fn state(server: &ListedServer) -> String {
    let ListedServer { up, busy, limit, has_queue, holds_back, .. } = server;
    let address = printable(&server.address);
    let state = match (up, limit) {
        (false, _) => "down".to_owned(),
        (true, None) if *has_queue => "has a queue, and takes all requests".to_owned(),
        (true, None) => "takes all requests, without a limit".to_owned(),
        (true, Some(limit)) if *holds_back => {
            format!("holds strangers back: it has a queue; {busy} at work, limit {limit}")
        }
        (true, Some(limit)) => format!("{busy} at work, limit {limit}"),
    };
    format!("{address}  {state}")
}

fn row(entry: &CrowdEntry) -> String {
    let mut name = printable(&entry.name);
    cut(&mut name, NAME_WIDTH);
    let CrowdEntry { seconds_per_second, percent, requests, .. } = entry;
    let end = if entry.endless { "  endless" } else { "" };
    format!("{name:<NAME_WIDTH$} {seconds_per_second:>7.2} {percent:>6.1}% {requests:>9.0}{end}")
}

/// The lines against the heaviest of each table that has some.
fn remedies(crowd: &CrowdReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (title, entries) in tables(crowd) {
        let heaviest = entries.iter().find(|one| one.stop.is_some());
        let Some(entry) = heaviest.filter(|one| one.percent >= WORTH_STOPPING) else { continue };
        lines.push(String::new());
        lines.push(format!("against the {title} {}:", printable(&entry.name)));
        let stop = entry.stop.as_deref().unwrap_or_default();
        lines.extend(stop.lines().map(|line| format!("  {}", shown_toml(line))));
    }
    lines
}

/// A line of TOML, without what may steer a terminal.
fn shown_toml(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Prints one reading.
pub(super) fn read_once(socket: &Path) -> Result<(), u8> {
    let reading = CrowdReading::read(socket).map_err(failed)?;
    say(&reading.lines().join("\n"));
    Ok(())
}

/// Prints what the proxy says.
pub(super) fn print_json(socket: &Path) -> Result<(), u8> {
    let reply = admin::send_command(socket, Method::GET, CROWD, Vec::new()).map_err(failed)?;
    say(&String::from_utf8_lossy(&reply));
    Ok(())
}

enum Event {
    Input(Input),
    Reading(Result<Box<CrowdReading>, String>),
}

impl From<Input> for Event {
    fn from(input: Input) -> Self {
        Self::Input(input)
    }
}

/// Shows a reading a second, until a key or a signal ends it. The terminal is then as before.
pub(super) fn run(socket: &Path) -> Result<(), u8> {
    // A proxy that does not run is told where the message stays.
    let first = CrowdReading::read(socket).map_err(failed)?;
    let screen = Screen::open().map_err(|error| failed(format!("the terminal: {error}")))?;
    let (events, receiver) = sync_channel(EVENTS_MAX);
    watch_input(&events);
    let socket = socket.to_owned();
    thread::spawn(move || keep_reading(&socket, &events));
    let done = follow(&screen, first, &receiver);
    drop(screen);
    done.map_err(|error| failed(format!("the terminal: {error}")))
}

/// Draws after each event, until one ends it.
fn follow(
    screen: &Screen,
    mut reading: CrowdReading,
    events: &Receiver<Event>,
) -> std::io::Result<()> {
    let mut trouble: Option<String> = None;
    loop {
        let (width, height) = screen.size();
        let mut lines: Vec<String> = trouble.iter().map(|trouble| printable(trouble)).collect();
        lines.extend(reading.lines());
        lines.truncate(height);
        lines.iter_mut().for_each(|line| cut(line, width));
        screen.draw(&lines)?;
        match events.recv() {
            Err(_) | Ok(Event::Input(Input::End)) => return Ok(()),
            Ok(Event::Input(Input::Resized | Input::Key(_))) => {}
            Ok(Event::Reading(Ok(next))) => (reading, trouble) = (*next, None),
            Ok(Event::Reading(Err(why))) => trouble = Some(why),
        }
    }
}

/// Asks the proxy once a second, as long as something listens.
fn keep_reading(socket: &Path, events: &SyncSender<Event>) {
    loop {
        wait(READ_EVERY);
        let reading = CrowdReading::read(socket).map(Box::new);
        if events.send(Event::Reading(reading)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, stop: Option<&str>) -> CrowdEntry {
        CrowdEntry {
            name: name.to_owned(),
            seconds_per_second: 0.5,
            percent: 40.0,
            requests: 310.0,
            new_urls: 300.0,
            classes: [("new".to_owned(), 310.0)].into(),
            endless: stop.is_some(),
            stop: stop.map(str::to_owned),
        }
    }

    #[test]
    fn a_screen_says_who_takes_the_time_and_what_stops_it() {
        let lines = "[[route]]\nmatch.path = \"/shop/*\"\nmatch.query = \"any\"\nclass = \"new\"";
        let server = ListedServer {
            address: "127.0.0.1:3000".to_owned(),
            up: true,
            weight: 1,
            busy: 5,
            busy_by_class: [("new".to_owned(), 5)].into(),
            limit: Some(5),
            has_queue: true,
            holds_back: true,
        };
        let origin = ListedOrigin {
            name: "origin".to_owned(),
            waiting: 12,
            waiting_by_class: [("known".to_owned(), 0), ("new".to_owned(), 12)].into(),
            servers: vec![server],
        };
        let reading = CrowdReading {
            crowd: CrowdReport {
                at: 0.0,
                seconds_per_second: 1.25,
                requests: 700.0,
                networks: vec![entry("192.0.2.0/24", None)],
                agents: vec![entry("Bot\u{1b}[2J/1.0", None)],
                patterns: vec![entry("/shop/*?color", Some(lines))],
                classes: vec![entry("new", None)],
            },
            origins: OriginsReport { origins: vec![origin] },
        };
        let text = reading.lines().join("\n");
        for wanted in [
            "origin       127.0.0.1:3000  holds strangers back: it has a queue; 5 at work, limit 5\n",
            "origin       12 wait: 12 new\n",
            "app          1.25 s/s taken lately, by 700 requests\n",
            "0.50   40.0%       310  endless\n",
            "Bot\\u{1b}[2J/1.0 ",
            "against the path /shop/*?color:\n  [[route]]\n  match.path = \"/shop/*\"\n",
        ] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(!text.contains("against the network"), "{text}");
    }
}
