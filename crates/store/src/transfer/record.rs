//! The records that are moved.

use std::fmt;

use anteroom_http::ident::{Item, Row, StoredToken, User, VisitorToken};
use bytes::Bytes;

use crate::Cart;

/// Whether a token is a visitor's without a login.
#[must_use]
pub fn is_visitor(token: &StoredToken) -> bool {
    VisitorToken::from_store(token.as_str().as_bytes()).is_some()
}

/// A session, or the data of a visitor without a login.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferRecord {
    /// The token.
    pub token: StoredToken,
    /// The user, with attributes and bond; `None` for a visitor, and if only a time and a cart were left of the session.
    pub user: Option<User>,
    /// The Unix time when it was last seen; `None`: unknown.
    pub seen: Option<f64>,
    /// When it began.
    pub since: LogInTime,
    /// Its views, each with the Unix time of the last one, oldest first.
    pub viewed: Vec<(Item, f64)>,
    /// Its cart, ordered by item.
    pub cart: Cart,
}

/// When a session began, in Unix time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LogInTime {
    /// It is not known.
    #[default]
    Unknown,
    /// The time of the login.
    At(f64),
    /// The time when it was first seen: an app has written it.
    FirstSeen(f64),
}

impl LogInTime {
    /// The time, if it is known.
    #[must_use]
    pub fn time(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::At(time) | Self::FirstSeen(time) => Some(time),
        }
    }
}

/// The kinds of data that belong to no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SharedKind {
    /// Views of items: `viewed:`.
    Popularity,
    /// Rows: `delay:`, `schedule:`, `refreshed:`, `unschedule:` and `inv:`.
    Rows,
    /// Revoked tokens: `barred:`.
    Revoked,
    /// Events that wait for their receiver: `cartevents:`.
    Events,
    /// Carts that wait for the file: `expiring:`.
    Outbox,
    /// The stream `expired:`.
    Stream,
    /// Up to when idle carts were reported: `cartidle:`.
    IdleMark,
}

impl SharedKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Popularity,
        Self::Rows,
        Self::Revoked,
        Self::Events,
        Self::Outbox,
        Self::Stream,
        Self::IdleMark,
    ];
}

/// A record that belongs to no token.
#[derive(Clone, PartialEq)]
pub enum SharedRecord {
    /// An item with its score, minus one for each view.
    Popularity(Item, f64),
    /// A scheduled row.
    Row {
        /// Which row.
        row: Row,
        /// Seconds between two refreshes.
        delay: f64,
        /// The Unix time when it is due; `None`: it is not scheduled.
        due: Option<f64>,
        /// The Unix time of its last good fetch.
        refreshed: Option<f64>,
        /// The Unix time at which it leaves the schedule; `None`: it stays.
        until: Option<f64>,
        /// Its content, JSON.
        json: Option<Bytes>,
    },
    /// A revoked token.
    Revoked {
        /// The hex SHA-256 of the token.
        digest: String,
        /// The Unix time when it expires.
        until: f64,
    },
    /// An event as it is stored.
    Event(Vec<u8>),
    /// A cart in the outbox as it is stored.
    Outbox(Vec<u8>),
    /// An entry of the stream.
    Stream {
        /// Its id: milliseconds of Unix time, and a number.
        id: (u64, u64),
        /// Its fields.
        fields: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// The position of idle carts.
    IdleMark(IdleMark),
}

impl fmt::Debug for SharedRecord {
    /// The kind only: records hold users, carts and tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRecord({:?})", self.kind())
    }
}

impl SharedRecord {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> SharedKind {
        match self {
            Self::Popularity(..) => SharedKind::Popularity,
            Self::Row { .. } => SharedKind::Rows,
            Self::Revoked { .. } => SharedKind::Revoked,
            Self::Event(_) => SharedKind::Events,
            Self::Outbox(_) => SharedKind::Outbox,
            Self::Stream { .. } => SharedKind::Stream,
            Self::IdleMark(_) => SharedKind::IdleMark,
        }
    }
}

/// Up to which session the carts of idle ones were reported.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleMark {
    /// All sessions last seen at this Unix time or before were reported.
    pub until: f64,
    /// If sessions of that very time are left: the last one that was reported.
    pub token: Option<StoredToken>,
}

impl IdleMark {
    /// The same without a token: the sessions of that very time are reported again.
    pub(crate) fn without_token(&self) -> Self {
        let until = if self.token.is_some() { self.until.next_down() } else { self.until };
        Self { until, token: None }
    }
}

/// How much there is of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Sessions with a known last visit.
    pub sessions: u64,
    /// Tokens of visitors without a login.
    pub visitors: u64,
    /// Items with views.
    pub items: u64,
    /// Scheduled rows.
    pub rows: u64,
    /// Events that wait.
    pub events: u64,
    /// Carts that wait for the file.
    pub outbox: u64,
    /// Entries of the stream.
    pub stream: u64,
}

impl StoreCounts {
    /// Whether there is nothing at all.
    #[must_use]
    pub fn are_zero(&self) -> bool {
        *self == Self::default()
    }

    /// The counts of two parts.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            visitors: self.visitors + other.visitors,
            items: self.items + other.items,
            rows: self.rows + other.rows,
            events: self.events + other.events,
            outbox: self.outbox + other.outbox,
            stream: self.stream + other.stream,
        }
    }
}
