//! Limits how often one message is logged: an app that is down fails thousands of requests a second, and each of them
//! would be a line. The very same line is logged once in a minute, and others of one message a few times.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::EACH;

/// So many different lines of a warning or error are logged in [`SPAN`]; more of them, and equal ones, are counted.
const LOGGED_MAX: usize = 5;
/// The time after which the count of a message is logged, and it may be logged again.
const SPAN: Duration = Duration::from_mins(1);
/// The target of the counts themselves.
const TARGET: &str = "anteroom::repeats";
/// The bytes of a message that are kept for its count.
const TEXT_MAX: usize = 200;

/// How often each message was logged of late. A message is a place in the source: their number is bounded.
#[derive(Clone, Debug, Default)]
pub(super) struct Repeats(Arc<Mutex<HashMap<Identifier, RepeatedMessage>>>);

/// One message within a [`SPAN`].
#[derive(Debug)]
struct RepeatedMessage {
    since: Instant,
    /// How many lines were not logged.
    more: u64,
    /// The hashes of those that were.
    logged: Vec<u64>,
    /// As it was first worded.
    text: String,
}

impl Repeats {
    /// Whether an event at `now` is logged.
    fn lets_through(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        if !is_limited(metadata) {
            return true;
        }
        let logged = self.lock().get(&metadata.callsite()).map(|one| one.logged.len());
        // Not under the lock: what is formatted may log something itself.
        let text = if logged.is_some() { String::new() } else { text(event) };
        let line = logged.is_none_or(|count| count < LOGGED_MAX).then(|| line_hash(event));
        let mut all = self.lock();
        let repeated = all.entry(metadata.callsite());
        let repeated = repeated.or_insert_with(|| RepeatedMessage {
            since: now,
            more: 0,
            logged: Vec::new(),
            text,
        });
        let has_room = repeated.logged.len() < LOGGED_MAX;
        let Some(line) = line.filter(|line| has_room && !repeated.logged.contains(line)) else {
            repeated.more += 1;
            return false;
        };
        repeated.logged.push(line);
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identifier, RepeatedMessage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs what was counted, for each message whose span is over.
    pub(super) fn tell(&self, now: Instant) {
        self.tell_those(|one| now.saturating_duration_since(one.since) >= SPAN);
    }

    /// Logs what was counted.
    pub(super) fn tell_all(&self) {
        self.tell_those(|_| true);
    }

    fn tell_those(&self, is_over: impl Fn(&RepeatedMessage) -> bool) {
        // Collected, because an event takes the lock again.
        let over: Vec<_> =
            self.lock().extract_if(|_, one| is_over(one)).map(|(_, one)| one).collect();
        for RepeatedMessage { more, text, .. } in over {
            if more > 0 {
                tracing::warn!(target: TARGET, "{more} more in the last minute: {text}");
            }
        }
    }
}

fn is_limited(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::WARN && ![TARGET, EACH].contains(&metadata.target())
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.lets_through(event, Instant::now())
    }
}

/// A hash of an event with all of its fields.
fn line_hash(event: &Event<'_>) -> u64 {
    struct LineHash(DefaultHasher);
    impl fmt::Write for LineHash {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    impl Visit for LineHash {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            // Writing into a hash does not fail.
            let _ = write!(self, "{}={value:?} ", field.name());
        }
    }
    let mut hash = LineHash(DefaultHasher::new());
    event.record(&mut hash);
    hash.0.finish()
}

/// The text of an event without its fields.
fn text(event: &Event<'_>) -> String {
    struct Message(String);
    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.0 = format!("{value:?}");
            }
        }
    }
    let mut message = Message(String::new());
    event.record(&mut message);
    let end = message.0.floor_char_boundary(TEXT_MAX);
    message.0.truncate(end);
    message.0
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn count(&self, text: &str) -> usize {
            let bytes = self.0.lock().unwrap();
            String::from_utf8_lossy(&bytes).lines().filter(|line| line.contains(text)).count()
        }
    }

    #[test]
    fn a_message_is_logged_some_times_and_then_counted() {
        let (repeats, lines) = (Repeats::default(), Lines::default());
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer();
        let layer = layer.with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(repeats.clone()).with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let fail = |number| tracing::warn!(number, "the app is away");
            (0..25).for_each(fail);
            for _ in 0..25 {
                tracing::info!("not limited");
            }
            for _ in 0..20 {
                tracing::warn!("the same");
            }
            tracing::warn!("another");
            assert_eq!([lines.count("is away"), lines.count("not limited")], [5, 25]);
            assert_eq!([lines.count("another"), lines.count("the same")], [1, 1]);
            repeats.tell(Instant::now());
            assert_eq!(lines.count("more in"), 0, "the minute is not over");
            repeats.tell(Instant::now() + SPAN);
            assert_eq!(lines.count("20 more in the last minute: the app is away"), 1);
            assert_eq!(lines.count("19 more in the last minute: the same"), 1);
            assert_eq!(lines.count("more in"), 2, "another was logged each time");
            fail(26);
            assert_eq!(lines.count("number=26"), 1, "a new minute begins");
        });
    }
}
