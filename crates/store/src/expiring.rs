//! What is handed on of sessions with carts that are cleaned or idle, and the outbox where it
//! waits.

use std::future::Future;
use std::time::Duration;

use anteroom_http::ident::{Item, StoredToken, TokenStorage, USER_MAX, User};
use serde_json::{Value, json};

use super::{Cart, StoreError};

/// The most sessions that one step reads, and the most records read from the outbox at a time.
pub const EXPIRING_BATCH: u32 = 1000;
/// A step ends early when the carts that it hands on, or reads in the outbox, reach this many
/// bytes.
pub const EXPIRING_BYTES: usize = 4 << 20;
/// The most records in the outbox. Cleaning stays far below it: the limit is for sessions ended in
/// other ways. Each record replaces a cart that was in the store before.
pub const OUTBOX_MAX: u64 = 100_000;

/// Why a cart is lost while carts cannot be handed on.
pub(super) const NOT_NOW: &str = "carts cannot be handed on now";
/// Why a cart is lost when the outbox is full.
pub(super) const OUTBOX_FULL: &str = "too many carts already wait for the file";

/// What happens to sessions with a cart that are over the limit. Idle sessions stay, and their
/// carts are handed on in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryAction {
    /// They stay: their carts cannot be handed on now.
    Keep,
    /// They are added to the stream `expired:`, each under its public id, and removed.
    Stream {
        /// How tokens are stored.
        storage: TokenStorage,
        /// The approximate number of entries that the stream keeps.
        keep: u64,
    },
    /// They are put into the outbox, each under its public id, and removed. While the outbox holds
    /// anything, sessions stay; only the cart of a session that must end now is appended, up to
    /// [`OUTBOX_MAX`].
    Outbox {
        /// How tokens are stored.
        storage: TokenStorage,
    },
    /// They are appended to the events that wait for their receiver, each under its public id, and
    /// removed.
    Queue {
        /// How tokens are stored.
        storage: TokenStorage,
        /// The most events that wait; beyond it the oldest are dropped.
        keep: u64,
    },
}

impl ExpiryAction {
    /// How tokens are stored, where their ids are needed.
    pub(super) fn storage(&self) -> Option<TokenStorage> {
        match self {
            Self::Keep => None,
            Self::Stream { storage, .. }
            | Self::Outbox { storage }
            | Self::Queue { storage, .. } => Some(*storage),
        }
    }
}

/// Why a cart is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverReason {
    /// Its session is over: it was cleaned, or ended before that.
    Expired,
    /// Its session has been idle for a while, and continues.
    Idle,
}

impl HandoverReason {
    /// The name in the event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Idle => "idle",
        }
    }
}

/// How many sessions to keep, and how to remove the others.
#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    /// Keep this many of the newest.
    pub keep: u64,
    /// Remove at most this many in one step.
    pub batch: u32,
    /// Remove `cart:<token>` too (`clean_full_sessions`); without it `clean_sessions`.
    pub carts: bool,
    /// Sessions last seen before this Unix time are over the limit, too. 0: no such time.
    pub before: f64,
}

/// The position of a round of cleaning; the default is its beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cursor {
    /// How many sessions the round has left so far.
    pub(super) left: u64,
    /// The last of them and when it was seen, if the store uses that as its position.
    pub(super) last: Option<(f64, StoredToken)>,
    /// How many it has left in each shard, if there are several.
    pub(super) of_shards: Vec<u64>,
}

/// The result of a step of cleaning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvictionResult {
    /// Sessions removed.
    pub removed: usize,
    /// Removed sessions with a cart that was handed on.
    pub handed_on: usize,
    /// Events dropped because the queue was full, see [`ExpiryAction::Queue`].
    pub dropped: usize,
    /// Sessions left because they have a cart.
    pub waiting: usize,
    /// More sessions over the limit follow.
    pub more: bool,
    /// Where the next step of the round continues.
    pub cursor: Cursor,
    /// The store's message when it refused the carts.
    pub refusal: Option<String>,
}

/// The carts of sessions that were ended by neither their visitors nor the cleaner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedCarts {
    /// Carts handed on.
    pub handed_on: usize,
    /// Events dropped because the queue was full, see [`ExpiryAction::Queue`].
    pub dropped: usize,
    /// Carts that could not be handed on, and were removed with their sessions.
    pub lost: usize,
    /// Why the last of these was lost.
    pub refusal: Option<String>,
}

impl EndedCarts {
    /// Adds another result.
    pub fn add(&mut self, other: Self) {
        self.handed_on += other.handed_on;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.refusal = other.refusal.or_else(|| self.refusal.take());
    }
}

/// The data of a session that is handed on. It never includes the token.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpiredSession {
    /// Its public id, see [`StoredToken::public_id`].
    pub id: String,
    /// Its user, without attributes; `None` if only `recent:` and a cart were left of it.
    pub user: Option<User>,
    /// When it was last seen, in Unix time.
    pub seen: f64,
    /// Its cart.
    pub cart: Cart,
    /// Its last views, each with the Unix time of the view, the newest first.
    pub viewed: Vec<(Item, f64)>,
    /// Why the event exists.
    pub why: HandoverReason,
}

impl ExpiredSession {
    /// Identifies this event, and stays the same when it is sent again.
    #[must_use]
    pub fn event(&self) -> String {
        format!("{}-{}-{}", self.id, self.milliseconds(), self.why.as_str())
    }

    /// When it was last seen, in milliseconds of Unix time.
    #[must_use]
    pub fn milliseconds(&self) -> i64 {
        (self.seen * 1e3).round() as i64
    }

    /// The event as it is sent.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let item = |(item, count): &(Item, i64)| json!({ "item": item.as_str(), "count": count });
        let view = |(item, seen): &(Item, f64)| json!({ "item": item.as_str(), "viewed": seen });
        let user = self.user.as_ref().map(|user| String::from_utf8_lossy(user.as_bytes()));
        json!({
            "event": self.event(),
            "id": self.id,
            "user": user,
            "confirmed": self.user.as_ref().is_some_and(User::is_confirmed),
            "seen": self.seen,
            "cart": self.cart.iter().map(item).collect::<Vec<_>>(),
            "viewed": self.viewed.iter().map(view).collect::<Vec<_>>(),
            "why": self.why.as_str(),
        })
    }

    /// The record in the outbox or the queue: JSON. The time is text, so that it keeps every digit.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut record = self.to_json();
        record["seen"] = self.seen.to_string().into();
        record.to_string().into_bytes()
    }

    /// Reads a record; `None` if Anteroom did not write it.
    pub(super) fn read(record: &[u8]) -> Option<Self> {
        let record: Value = serde_json::from_str(&String::from_utf8_lossy(record)).ok()?;
        let user = record["user"].as_str().and_then(|user| {
            // Bytes that are not UTF-8 have become longer.
            User::new(&user.as_bytes()[..user.floor_char_boundary(USER_MAX)])
        });
        let user = match record["confirmed"].as_bool() {
            Some(false) => user.map(|user| user.unconfirmed()),
            // An earlier version did not record it.
            Some(true) | None => user,
        };
        let view =
            |view: &Value| Some((Item::new(view["item"].as_str()?)?, view["viewed"].as_f64()?));
        let viewed = record["viewed"].as_array().into_iter().flatten().filter_map(view).collect();
        let why = match record["why"].as_str() {
            Some("idle") => HandoverReason::Idle,
            _ => HandoverReason::Expired,
        };
        let entry =
            |entry: &Value| Some((Item::new(entry["item"].as_str()?)?, entry["count"].as_i64()?));
        let mut cart: Cart = record["cart"].as_array()?.iter().filter_map(entry).collect();
        cart.sort_unstable();
        let seen: f64 = record["seen"].as_str()?.parse().ok()?;
        // Another program's time can be anything; JSON has no infinity.
        let seen = if seen.is_finite() { seen } else { 0.0 };
        Some(Self { id: record["id"].as_str()?.to_owned(), user, seen, cart, viewed, why })
    }
}

/// The contents of the outbox: carts of sessions that are removed already, until the file has them.
///
/// Records are appended at the end, and each session is handed on once: so the first record, and
/// how many were read, identify a batch.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// The records.
    pub expired: Vec<ExpiredSession>,
    /// More records follow.
    pub more: bool,
    /// How many there are, foreign records included.
    pub(super) records: usize,
    /// The first of them as it is stored.
    pub(super) first: Vec<u8>,
    /// The shard that has them.
    pub(super) shard: usize,
    /// The batches of several shards, if there are several.
    pub(super) of_shards: Vec<Self>,
}

impl Outbox {
    /// The first records of `all`.
    pub(super) fn of(records: Vec<Vec<u8>>, all: u64) -> Self {
        let expired = records.iter().filter_map(|record| ExpiredSession::read(record)).collect();
        let count = records.len();
        let first = records.into_iter().next().unwrap_or_default();
        let more = (count as u64) < all;
        Self { expired, more, records: count, first, ..Self::default() }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }
}

/// The end of sessions by the cleaner.
pub trait ExpiryStore {
    /// Removes the oldest sessions over the limit, at most a batch, in one atomic step, and returns
    /// how many entries of `recent:` it removed. Junk members (not tokens by the grammar) are
    /// removed from `recent:` and `login:`, and no other key is touched for them.
    fn evict_oldest(&self, how: Eviction) -> impl Future<Output = Result<usize, StoreError>>;

    /// Like [`Self::evict_oldest`] with the carts, but for the sessions after `from`;
    /// `expiry_action` says what happens to those with a cart. Handing on a cart and removing its
    /// session are one atomic step, so that each cart is handed on exactly once, and only when its
    /// session ends. Durable when it returns, where carts may have been handed on.
    fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        expiry_action: &ExpiryAction,
    ) -> impl Future<Output = Result<EvictionResult, StoreError>>;

    /// Sets sessions that were last seen [far](anteroom_http::clock::FAR) after the Unix time `now` to `now`, at most a batch,
    /// and returns how many: a clock that was ahead has written their times, and they would outlive every limit.
    fn correct_times(
        &self,
        now: f64,
        batch: u32,
    ) -> impl Future<Output = Result<usize, StoreError>>;

    /// The oldest batch in the outbox, see [`ExpiryAction::Outbox`].
    fn outbox(&self) -> impl Future<Output = Result<Outbox, StoreError>>;

    /// Removes the batch that was read from the outbox, and nothing else; returns whether it was
    /// still there. Durable when it returns.
    fn clear_outbox(&self, outbox: &Outbox) -> impl Future<Output = Result<bool, StoreError>>;
}

/// A task that one process of a fleet runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskLease {
    /// Handing on the carts of sessions.
    Cleaner,
    /// Ordering certificates.
    Certifier,
    /// Delivering events.
    Deliverer,
    /// Keeping the schedule of rows, and listening to databases.
    Scheduler,
}

/// Leases on tasks.
pub trait LeaseStore {
    /// Whether the process with this id alone may run the task for the next `time`. The holder renews the
    /// lease by calling this again.
    fn take_lease(
        &self,
        task: TaskLease,
        process_id: u64,
        time: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let expired = ExpiredSession {
            id: "0123456789abcdef".to_owned(),
            user: User::new(b"ann"),
            seen: 1_790_000_000.123_456_7,
            cart: vec![(Item::new("a \"mug\"").unwrap(), 2), (Item::new("shoe").unwrap(), 1)],
            viewed: vec![(Item::new("tea").unwrap(), 1.5), (Item::new("mug").unwrap(), 0.5)],
            why: HandoverReason::Idle,
        };
        assert_eq!(expired.event(), "0123456789abcdef-1790000000123-idle");
        assert_eq!(ExpiredSession::read(&expired.write()), Some(expired.clone()));
        let label = expired.user.as_ref().map(User::unconfirmed);
        let label = ExpiredSession { user: label, why: HandoverReason::Expired, ..expired };
        assert_eq!(label.to_json()["confirmed"], false);
        assert_eq!(ExpiredSession::read(&label.write()), Some(label));
    }

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let early = r#"{"id":"1","user":"ann","seen":"1.5","cart":[{"item":"mug","count":2}]}"#;
        let read = ExpiredSession::read(early.as_bytes()).unwrap();
        assert_eq!((read.user, read.why), (User::new(b"ann"), HandoverReason::Expired));
        assert!(read.viewed.is_empty());
    }

    #[test]
    fn invalid_text_in_a_record_is_replaced_and_bad_records_are_skipped() {
        let strange = b"{\"id\":\"1\",\"user\":\"\xff\",\"seen\":\"1.5\",\"cart\":[{}, 7]}";
        let read = ExpiredSession::read(strange).unwrap();
        assert_eq!(read.user, User::new("\u{fffd}".as_bytes()));
        assert_eq!((read.seen, read.cart.len()), (1.5, 0));
        for none in ["", "{}", "[]", r#"{"id":"1","seen":"x","cart":[]}"#] {
            assert_eq!(ExpiredSession::read(none.as_bytes()), None, "{none}");
        }
    }
}
