//! What is handed on of sessions that are cleaned with their carts, or idle, and the outbox where it
//! waits.

use std::future::Future;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Cart, StoreError};
use crate::ident::{Item, StoredToken, TokenStorage, USER_MAX, User};

/// The most sessions that one step looks at, and the most records of the outbox that are read at a time.
pub const EXPIRING_BATCH: u32 = 1000;
/// A step ends early when the carts that it hands on, or reads in the outbox, come to this many bytes.
pub const EXPIRING_BYTES: usize = 4 << 20;
/// The most records in the outbox. No batch of cleaning comes near: it is for sessions that others end. Each
/// record takes the place of a cart that was in the store before.
pub const OUTBOX_MAX: u64 = 100_000;

/// Why a cart is lost that is not to be handed on now.
pub(super) const NOT_NOW: &str = "carts are not handed on now";
/// Why a cart is lost for which the outbox has no room.
pub(super) const OUTBOX_FULL: &str = "too many carts wait for the file";

/// What becomes of sessions over the limit that have a cart. Those that are idle stay as they are, and
/// their carts go the same ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// They stay: their carts cannot be handed on now.
    Keep,
    /// They are added to the stream `expired:`, each under its public id, and removed.
    Stream {
        /// How tokens are stored.
        storage: TokenStorage,
        /// The entries that the stream keeps, about.
        keep: u64,
    },
    /// They are put into the outbox, each under its public id, and removed. While anything is in
    /// there they stay; only of a session that cannot wait the cart is put behind it, up to [`OUTBOX_MAX`].
    Outbox {
        /// How tokens are stored.
        storage: TokenStorage,
    },
    /// They are put behind the events that wait for their receiver, each under its public id, and
    /// removed.
    Queue {
        /// How tokens are stored.
        storage: TokenStorage,
        /// The most events that wait: of more the oldest go.
        keep: u64,
    },
}

impl Farewell {
    /// How tokens are stored, where their ids are told.
    pub(super) fn storage(&self) -> Option<TokenStorage> {
        match self {
            Self::Keep => None,
            Self::Stream { storage, .. }
            | Self::Outbox { storage }
            | Self::Queue { storage, .. } => Some(*storage),
        }
    }
}

/// Why a cart is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its session is over: it was cleaned, or had to go before.
    Expired,
    /// Its session has not been seen for a while, and goes on.
    Idle,
}

impl Why {
    /// How it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Idle => "idle",
        }
    }
}

/// How many sessions to keep and how to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    /// Keep this many of the newest.
    pub keep: u64,
    /// Remove at most this many in one step.
    pub batch: u32,
    /// Remove `cart:<token>` too (`clean_full_sessions`); without it `clean_sessions`.
    pub carts: bool,
    /// Those that were last seen before this Unix time are over the limit, too. 0: there is no such time.
    pub before: f64,
}

/// How far a round of cleaning has come; the default is its beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cursor {
    /// How many sessions were left so far.
    pub(super) left: u64,
    /// The last of them and when it was seen, where the store finds its place by that.
    pub(super) last: Option<(f64, StoredToken)>,
}

/// What a step of cleaning did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evicted {
    /// Sessions removed.
    pub removed: usize,
    /// Those of them whose carts were handed on.
    pub handed_on: usize,
    /// Events that went for want of room, see [`Farewell::Queue`].
    pub dropped: usize,
    /// Sessions that were left, for they have a cart.
    pub waiting: usize,
    /// There are more over the limit behind these.
    pub more: bool,
    /// Where the next step of the round goes on.
    pub cursor: Cursor,
    /// What the store said when it did not take the carts.
    pub refusal: Option<String>,
}

/// What became of the carts of sessions that were ended by others than their visitors and the cleaner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parted {
    /// Carts handed on.
    pub handed_on: usize,
    /// Events that went for want of room, see [`Farewell::Queue`].
    pub dropped: usize,
    /// Carts that could not be handed on, and went with their sessions.
    pub lost: usize,
    /// Why the last of these could not.
    pub refusal: Option<String>,
}

impl Parted {
    /// Adds what became of others.
    pub fn add(&mut self, other: Self) {
        self.handed_on += other.handed_on;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.refusal = other.refusal.or_else(|| self.refusal.take());
    }
}

/// What is handed on of a session. Its token never is.
#[derive(Clone, Debug, PartialEq)]
pub struct Expired {
    /// Its public id, see [`StoredToken::public_id`].
    pub id: String,
    /// Whose it was, without attributes; `None` where only `recent:` and a cart were left of it.
    pub user: Option<User>,
    /// When it was last seen, in Unix time.
    pub seen: f64,
    /// Its cart.
    pub cart: Cart,
    /// What it viewed last, each with the Unix time of the view, the newest first.
    pub viewed: Vec<(Item, f64)>,
    /// Why it is told of.
    pub why: Why,
}

impl Expired {
    /// What tells this event from all others, and stays the same however often it is told.
    #[must_use]
    pub fn event(&self) -> String {
        format!("{}-{}-{}", self.id, self.milliseconds(), self.why.as_str())
    }

    /// When it was last seen, in milliseconds of Unix time.
    #[must_use]
    pub fn milliseconds(&self) -> i64 {
        (self.seen * 1e3).round() as i64
    }

    /// The event as it is told.
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

    /// The record that stands in the outbox or waits for its receiver: JSON. The time is text, so that no
    /// digit of it is lost.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut record = self.to_json();
        record["seen"] = self.seen.to_string().into();
        record.to_string().into_bytes()
    }

    /// Reads a record; `None` where it is none of ours.
    pub(super) fn read(record: &[u8]) -> Option<Self> {
        let record: Value = serde_json::from_str(&String::from_utf8_lossy(record)).ok()?;
        let user = record["user"].as_str().and_then(|user| {
            // Bytes that are no text have become longer.
            User::new(&user.as_bytes()[..user.floor_char_boundary(USER_MAX)])
        });
        let user = match record["confirmed"].as_bool() {
            Some(false) => user.map(|user| user.unconfirmed()),
            // An earlier version did not say.
            Some(true) | None => user,
        };
        let view =
            |view: &Value| Some((Item::new(view["item"].as_str()?)?, view["viewed"].as_f64()?));
        let viewed = record["viewed"].as_array().into_iter().flatten().filter_map(view).collect();
        let why = match record["why"].as_str() {
            Some("idle") => Why::Idle,
            _ => Why::Expired,
        };
        let entry =
            |entry: &Value| Some((Item::new(entry["item"].as_str()?)?, entry["count"].as_i64()?));
        let mut cart: Cart = record["cart"].as_array()?.iter().filter_map(entry).collect();
        cart.sort_unstable();
        let seen: f64 = record["seen"].as_str()?.parse().ok()?;
        // Another program's time may be anything; JSON knows no infinity.
        let seen = if seen.is_finite() { seen } else { 0.0 };
        Some(Self { id: record["id"].as_str()?.to_owned(), user, seen, cart, viewed, why })
    }
}

/// What the outbox holds: carts of sessions that are gone already, until the file has them.
///
/// It is filled from behind, and no session is handed on twice: so its first record, and how many were read,
/// say which batch it is.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// The records.
    pub expired: Vec<Expired>,
    /// There are more behind these.
    pub more: bool,
    /// How many there are, with those that are none of ours.
    pub(super) records: usize,
    /// The first of them as it is stored.
    pub(super) first: Vec<u8>,
}

impl Outbox {
    /// The first records of `all` that there are.
    pub(super) fn of(records: Vec<Vec<u8>>, all: u64) -> Self {
        let expired = records.iter().filter_map(|record| Expired::read(record)).collect();
        let count = records.len();
        let first = records.into_iter().next().unwrap_or_default();
        Self { expired, more: (count as u64) < all, records: count, first }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }
}

/// The end of sessions that the cleaner comes to.
pub trait ExpiryStore {
    /// Removes the oldest sessions over the limit, at most a batch, in one atomic step, and returns how many
    /// entries of `recent:` it removed. Junk members (no tokens by the grammar) are removed from `recent:`
    /// and `login:`, and no other key is touched for them.
    fn evict_oldest(&self, how: Eviction) -> impl Future<Output = Result<usize, StoreError>>;

    /// Like [`Self::evict_oldest`] with the carts, but of the sessions behind `from`; what becomes of those
    /// that have a cart is what `farewell` says. That a cart is handed on and its session is removed is one
    /// atomic step, so that each is handed on exactly once, and none of a session that goes on. Durable when
    /// it returns, where carts may have been handed on.
    fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        farewell: &Farewell,
    ) -> impl Future<Output = Result<Evicted, StoreError>>;

    /// What has waited longest in the outbox, see [`Farewell::Outbox`]: a batch of it.
    fn outbox(&self) -> impl Future<Output = Result<Outbox, StoreError>>;

    /// Removes from the outbox what was read there, and nothing else; says whether it was there still.
    /// Durable when it returns.
    fn clear_outbox(&self, outbox: &Outbox) -> impl Future<Output = Result<bool, StoreError>>;
}

/// A task that one process of a fleet does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskLease {
    /// Handing on the carts of sessions.
    Cleaner,
    /// Delivering events.
    Deliverer,
}

/// Leases on tasks.
pub trait LeaseStore {
    /// Whether `who` alone may do the task for the next `time`. The holder keeps the lease by asking again.
    fn take_lease(
        &self,
        task: TaskLease,
        who: u64,
        time: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let expired = Expired {
            id: "0123456789abcdef".to_owned(),
            user: User::new(b"ann"),
            seen: 1_790_000_000.123_456_7,
            cart: vec![(Item::new("a \"mug\"").unwrap(), 2), (Item::new("shoe").unwrap(), 1)],
            viewed: vec![(Item::new("tea").unwrap(), 1.5), (Item::new("mug").unwrap(), 0.5)],
            why: Why::Idle,
        };
        assert_eq!(expired.event(), "0123456789abcdef-1790000000123-idle");
        assert_eq!(Expired::read(&expired.write()), Some(expired.clone()));
        let label = expired.user.as_ref().map(User::unconfirmed);
        let label = Expired { user: label, why: Why::Expired, ..expired };
        assert_eq!(label.to_json()["confirmed"], false);
        assert_eq!(Expired::read(&label.write()), Some(label));
    }

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let early = r#"{"id":"1","user":"ann","seen":"1.5","cart":[{"item":"mug","count":2}]}"#;
        let read = Expired::read(early.as_bytes()).unwrap();
        assert_eq!((read.user, read.why), (User::new(b"ann"), Why::Expired));
        assert!(read.viewed.is_empty());
    }

    #[test]
    fn what_is_no_text_in_a_record_is_shown_as_such_and_what_is_none_is_left() {
        let strange = b"{\"id\":\"1\",\"user\":\"\xff\",\"seen\":\"1.5\",\"cart\":[{}, 7]}";
        let read = Expired::read(strange).unwrap();
        assert_eq!(read.user, User::new("\u{fffd}".as_bytes()));
        assert_eq!((read.seen, read.cart.len()), (1.5, 0));
        for none in ["", "{}", "[]", r#"{"id":"1","seen":"x","cart":[]}"#] {
            assert_eq!(Expired::read(none.as_bytes()), None, "{none}");
        }
    }
}
