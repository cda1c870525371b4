//! What steers a screen: keys, the size of the terminal, and signals.

use std::io::Read as _;
use std::sync::mpsc::SyncSender;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Ctrl-C, as a terminal passes it on that makes no signal of it.
const CTRL_C: u8 = 0x03;

/// What steers a screen.
pub(super) enum Input {
    Key(u8),
    Resized,
    /// A key that ends the screen, a signal, or the end of standard input.
    End,
}

impl Input {
    fn of_key(key: u8) -> Self {
        match key {
            b'q' | b'Q' | CTRL_C => Self::End,
            key => Self::Key(key),
        }
    }
}

/// Passes on what steers the screen, from threads of their own.
pub(super) fn watch_input<E: From<Input> + Send + 'static>(events: &SyncSender<E>) {
    thread::spawn({
        let events = events.clone();
        move || read_keys(&events)
    });
    thread::spawn({
        let events = events.clone();
        move || watch_signals(&events)
    });
}

/// Passes on keys until nothing listens, or there are no more.
fn read_keys<E: From<Input>>(events: &SyncSender<E>) {
    let mut keys = [0; 16];
    loop {
        let count = match std::io::stdin().lock().read(&mut keys) {
            Ok(0) | Err(_) => 0,
            Ok(count) => count,
        };
        let mut sent = keys[..count].iter().map(|key| events.send(Input::of_key(*key).into()));
        if count == 0 {
            let _ended = events.send(Input::End.into());
            return;
        }
        if sent.any(|sent| sent.is_err()) {
            return;
        }
    }
}

/// Passes on signals: without handlers they would end the process, and leave the terminal as it is drawn on.
fn watch_signals<E: From<Input>>(events: &SyncSender<E>) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let watched = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut resized = signal(SignalKind::window_change())?;
        loop {
            let event = tokio::select! {
                _ = interrupt.recv() => Input::End,
                _ = terminate.recv() => Input::End,
                _ = hangup.recv() => Input::End,
                _ = resized.recv() => Input::Resized,
            };
            if events.send(event.into()).is_err() {
                return Ok::<_, std::io::Error>(());
            }
        }
    });
    if watched.is_err() {
        let _ended = events.send(Input::End.into());
    }
}
