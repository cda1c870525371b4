//! The screen of `anteroom top`: read once a second, drawn, and steered by keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;

use anteroom::admin::{self, ListedMiss, MISSES, MissesListing, Status};
use http::Method;

use super::input::{Input, watch_input};
use super::rates::Rates;
use super::screen::View;
use super::{READ_EVERY, read};
use crate::cli::output::failed;
use crate::cli::terminal::Screen;

/// Events that wait for the screen.
const EVENTS_MAX: usize = 16;

enum Event {
    Input(Input),
    Reading(Result<Box<Status>, String>),
    Misses(Result<Vec<ListedMiss>, String>),
}

impl From<Input> for Event {
    fn from(input: Input) -> Self {
        Self::Input(input)
    }
}

/// Shows the figures until a key or a signal ends it. The terminal is then as before.
pub(super) fn run(socket: &Path) -> Result<(), u8> {
    // A proxy that does not run is told where the message stays.
    let first = read(socket).map_err(failed)?;
    let (events, receiver) = sync_channel(EVENTS_MAX);
    let wants_misses = Arc::new(AtomicBool::new(false));
    let (wake, woken) = channel();
    let screen = Screen::open().map_err(|error| failed(format!("the terminal: {error}")))?;
    let reader = Reader {
        socket: socket.to_owned(),
        wants_misses: Arc::clone(&wants_misses),
        events: events.clone(),
    };
    watch_input(&events);
    thread::spawn(move || reader.run(&woken));
    let mut shown = LiveScreen { view: View::default(), last: first, screen, wants_misses, wake };
    let done = shown.follow(&receiver);
    drop(shown);
    done.map_err(|error| failed(format!("the terminal: {error}")))
}

/// What is on the screen.
struct LiveScreen {
    view: View,
    last: Status,
    screen: Screen,
    wants_misses: Arc<AtomicBool>,
    wake: Sender<()>,
}

impl LiveScreen {
    /// Draws after each event, until one ends it.
    fn follow(&mut self, events: &Receiver<Event>) -> std::io::Result<()> {
        loop {
            let (width, height) = self.screen.size();
            self.screen.draw(&self.view.lines(width, height))?;
            match events.recv() {
                Err(_) | Ok(Event::Input(Input::End)) => return Ok(()),
                Ok(Event::Input(Input::Resized)) => {}
                Ok(Event::Input(Input::Key(key))) => self.press(key),
                Ok(Event::Reading(reading)) => self.take(reading),
                Ok(Event::Misses(misses)) => self.take_misses(misses),
            }
        }
    }

    fn press(&mut self, key: u8) {
        let view = &mut self.view;
        match key {
            b's' => view.sort = view.sort.next(),
            b'r' => view.is_reversed = !view.is_reversed,
            b'p' | b' ' => view.is_paused = !view.is_paused,
            b'?' | b'h' => view.has_help = !view.has_help,
            b'm' => {
                let wants_misses = view.misses.is_none();
                view.misses = wants_misses.then(Vec::new);
                self.wants_misses.store(wants_misses, Ordering::Relaxed);
                if wants_misses {
                    // The reader lives as long as this.
                    let _ended = self.wake.send(());
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, reading: Result<Box<Status>, String>) {
        let status = match reading {
            Ok(status) => *status,
            Err(trouble) => return self.view.trouble = Some(trouble),
        };
        self.view.trouble = None;
        if !self.view.is_paused {
            // After a restart there is nothing to compare with, and what was shown stays for a second.
            let rates = Rates::between(&self.last, &status);
            self.view.rates = rates.or_else(|| self.view.rates.take());
        }
        self.last = status;
    }

    fn take_misses(&mut self, misses: Result<Vec<ListedMiss>, String>) {
        match (misses, &mut self.view.misses) {
            (Ok(misses), Some(shown)) if !self.view.is_paused || shown.is_empty() => {
                *shown = misses
            }
            (Err(trouble), Some(_)) => self.view.trouble = Some(trouble),
            _ => {}
        }
    }
}

/// Asks the proxy, once a second.
struct Reader {
    socket: PathBuf,
    wants_misses: Arc<AtomicBool>,
    events: SyncSender<Event>,
}

impl Reader {
    /// Reads the figures each second, and the missed URLs also when it is woken.
    fn run(&self, woken: &Receiver<()>) {
        loop {
            let event = match woken.recv_timeout(READ_EVERY) {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => Event::Reading(read(&self.socket).map(Box::new)),
                Ok(()) => Event::Misses(self.misses()),
            };
            let is_shown = self.wants_misses.load(Ordering::Relaxed);
            let is_reading = matches!(event, Event::Reading(_));
            if self.events.send(event).is_err() {
                return;
            }
            if is_reading && is_shown && self.events.send(Event::Misses(self.misses())).is_err() {
                return;
            }
        }
    }

    fn misses(&self) -> Result<Vec<ListedMiss>, String> {
        let reply = admin::send_command(&self.socket, Method::GET, MISSES, Vec::new())
            .map_err(|error| error.to_string())?;
        let listing: MissesListing =
            serde_json::from_slice(&reply).map_err(|error| error.to_string())?;
        Ok(listing.misses)
    }
}
