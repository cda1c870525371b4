//! The arguments and answers of calls as JSON. A member that a later version adds is `null` from an earlier one.

use anteroom_http::ident::TokenStorage;
use serde_json::{Map, Value, json};

use super::wire::{FromWire, ToWire, member};
use crate::{
    CartAnswer, CartChange, CartOwner, EndedCarts, ExpiryAction, Generation, LogIn, MergeResult,
    PurgePosition, PurgesSince, Rotation, RotationResult, SessionLifetimes, StoreError, StoreNews,
    StoredBypasses, StoredRow, TokenCreation, UncountedViews, Visit, VisitorVisit,
};

macro_rules! objects {
    ($($name:ident { $($field:ident),* })*) => {
        $(impl ToWire for $name {
            fn to_wire(&self) -> Value {
                let mut members = Map::new();
                $(members.insert(stringify!($field).to_owned(), self.$field.to_wire());)*
                Value::Object(members)
            }
        }

        impl FromWire for $name {
            fn from_wire(value: &Value) -> Option<Self> {
                Some(Self { $($field: member(value, stringify!($field))?),* })
            }
        })*
    };
}

objects! {
    SessionLifetimes { now, idle, absolute, notes }
    LogIn { user, ends }
    Visit { token, user, seen, items }
    VisitorVisit { token, seen, items }
    Rotation { old, new, user, now, most, expiry_action, visitor }
    RotationResult { gone, ended_carts }
    EndedCarts { handed_on, dropped, lost, refusal }
    UncountedViews { not_sent, unknown }
    CartOwner { token, user, now, terms }
    Generation { era, number }
    PurgePosition { at, nonce }
    StoreNews { purges, bypasses }
    StoredRow { json, refreshed }
}

macro_rules! words {
    ($($name:ident { $($variant:ident),* })*) => {
        $(impl ToWire for $name {
            fn to_wire(&self) -> Value {
                match self {
                    $(Self::$variant => stringify!($variant).into(),)*
                }
            }
        }

        impl FromWire for $name {
            fn from_wire(value: &Value) -> Option<Self> {
                match value.as_str()? {
                    $(stringify!($variant) => Some(Self::$variant),)*
                    _ => None,
                }
            }
        })*
    };
}

words! {
    TokenCreation { Now, Before }
    MergeResult { Done, Nothing, NoSession }
    TokenStorage { Plain, Sha256 }
}

impl ToWire for ExpiryAction {
    fn to_wire(&self) -> Value {
        let (action, storage, keep) = match self {
            Self::Keep => ("keep", None, None),
            Self::Stream { storage, keep } => ("stream", Some(storage), Some(keep)),
            Self::Outbox { storage } => ("outbox", Some(storage), None),
            Self::Queue { storage, keep } => ("queue", Some(storage), Some(keep)),
        };
        json!({ "action": action, "storage": storage.to_wire(), "keep": keep.to_wire() })
    }
}

impl FromWire for ExpiryAction {
    fn from_wire(value: &Value) -> Option<Self> {
        let storage: Option<TokenStorage> = member(value, "storage")?;
        let keep: Option<u64> = member(value, "keep")?;
        match value.get("action")?.as_str()? {
            "keep" => Some(Self::Keep),
            "stream" => Some(Self::Stream { storage: storage?, keep: keep? }),
            "outbox" => Some(Self::Outbox { storage: storage? }),
            "queue" => Some(Self::Queue { storage: storage?, keep: keep? }),
            _ => None,
        }
    }
}

/// The items to set, or none where all are removed.
impl ToWire for CartChange {
    fn to_wire(&self) -> Value {
        match self {
            Self::Set(items) => Some(items).to_wire(),
            Self::Empty => Value::Null,
        }
    }
}

impl FromWire for CartChange {
    fn from_wire(value: &Value) -> Option<Self> {
        let items = Option::from_wire(value)?;
        Some(items.map_or(Self::Empty, Self::Set))
    }
}

/// The cart, or why there is none.
impl ToWire for CartAnswer {
    fn to_wire(&self) -> Value {
        match self {
            Self::Changed(cart) => cart.to_wire(),
            Self::NotLoggedIn => "not_logged_in".into(),
            Self::Full => "full".into(),
        }
    }
}

impl FromWire for CartAnswer {
    fn from_wire(value: &Value) -> Option<Self> {
        match value.as_str() {
            Some("not_logged_in") => Some(Self::NotLoggedIn),
            Some("full") => Some(Self::Full),
            Some(_) => None,
            None => Vec::from_wire(value).map(Self::Changed),
        }
    }
}

impl ToWire for PurgesSince {
    fn to_wire(&self) -> Value {
        match self {
            Self::Since { purges, upto, more } => {
                json!({ "purges": purges.to_wire(), "upto": upto.to_wire(), "more": more })
            }
            Self::All { upto, key, marks } => {
                json!({ "marks": marks.to_wire(), "upto": upto.to_wire(), "key": key.to_wire() })
            }
        }
    }
}

impl FromWire for PurgesSince {
    fn from_wire(value: &Value) -> Option<Self> {
        let upto = member(value, "upto")?;
        if value.get("marks").is_some() {
            let (key, marks) = (member(value, "key")?, member(value, "marks")?);
            return Some(Self::All { upto, key, marks });
        }
        Some(Self::Since { purges: member(value, "purges")?, upto, more: member(value, "more")? })
    }
}

/// As they are stored.
impl ToWire for StoredBypasses {
    fn to_wire(&self) -> Value {
        let switches = self.bypasses.iter().map(|bypass| (bypass.scope.field(), bypass.value()));
        json!({ "now": self.now, "switches": switches.collect::<Vec<_>>().to_wire() })
    }
}

impl FromWire for StoredBypasses {
    fn from_wire(value: &Value) -> Option<Self> {
        let switches: Vec<(String, String)> = member(value, "switches")?;
        Some(Self::of(member(value, "now")?, &switches))
    }
}

impl ToWire for StoreError {
    fn to_wire(&self) -> Value {
        let (error, why) = match self {
            Self::Away => ("away", None),
            Self::TimedOut => ("timed_out", None),
            Self::Unanswered(source) => ("unanswered", Some(source)),
            Self::Full => ("full", None),
            Self::NearlyFull => ("nearly_full", None),
            Self::TooLarge => ("too_large", None),
            Self::RowsFull => ("rows_full", None),
            Self::BypassesFull => ("bypasses_full", None),
            Self::Failed(source) => ("failed", Some(source)),
        };
        json!({ "error": error, "why": why.map(ToString::to_string).unwrap_or_default() })
    }
}

impl FromWire for StoreError {
    fn from_wire(value: &Value) -> Option<Self> {
        let why: String = member(value, "why")?;
        Some(match value.get("error")?.as_str()? {
            "away" => Self::Away,
            "timed_out" => Self::TimedOut,
            "unanswered" => Self::Unanswered(why.into()),
            "full" => Self::Full,
            "nearly_full" => Self::NearlyFull,
            "too_large" => Self::TooLarge,
            "rows_full" => Self::RowsFull,
            "bypasses_full" => Self::BypassesFull,
            "failed" => Self::Failed(why.into()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};
    use bytes::Bytes;

    use super::*;
    use crate::bypass::BypassScope;
    use crate::{MarkKey, StoredBypass};

    /// Writes a value, reads it, and compares what both show.
    fn comes_back<T: ToWire + FromWire + std::fmt::Debug>(value: T) {
        let text = value.to_wire().to_string();
        let read = T::from_wire(&serde_json::from_str(&text).unwrap());
        assert_eq!(format!("{read:?}"), format!("{:?}", Some(value)), "{text}");
    }

    fn item(name: &str) -> Item {
        Item::new(name).unwrap()
    }

    fn token() -> StoredToken {
        StoredToken::from_store(b"token-0001").unwrap()
    }

    fn user() -> User {
        User::new(b"ann").unwrap()
    }

    fn at(number: u64) -> PurgePosition {
        PurgePosition { at: Generation { era: 1, number }, nonce: u64::MAX }
    }

    #[test]
    fn arguments_are_read_as_they_are_written() {
        let terms = SessionLifetimes { idle: Some(0.5), ..SessionLifetimes::endless(1e9) };
        comes_back(terms);
        comes_back(Visit {
            token: token(),
            user: user(),
            seen: 1.5,
            items: vec![(item("a"), 1.0)],
        });
        let visitor = VisitorToken::from_store(format!("v,{}", "0".repeat(64)).as_bytes()).unwrap();
        comes_back(VisitorVisit { token: visitor.clone(), seen: 1.5, items: Vec::new() });
        comes_back(CartOwner { token: token(), user: None, now: 2.0, terms });
        let storage = TokenStorage::Sha256;
        for action in [
            ExpiryAction::Keep,
            ExpiryAction::Stream { storage, keep: 7 },
            ExpiryAction::Outbox { storage: TokenStorage::Plain },
            ExpiryAction::Queue { storage, keep: u64::MAX },
        ] {
            comes_back(Rotation {
                old: None,
                new: token(),
                user: user(),
                now: 1.0,
                most: 3,
                expiry_action: Some(action),
                visitor: Some(visitor.clone()),
            });
        }
        for change in [CartChange::Empty, CartChange::Set(Vec::new())] {
            comes_back(change);
        }
        comes_back(CartChange::Set(vec![(item("a"), -1)]));
        comes_back(vec![TokenCreation::Now, TokenCreation::Before]);
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        comes_back(LogIn { user: user(), ends: f64::INFINITY });
        let ended_carts =
            EndedCarts { handed_on: 1, refusal: Some("full".to_owned()), ..EndedCarts::default() };
        comes_back(RotationResult { gone: vec![token()], ended_carts });
        comes_back(UncountedViews { not_sent: vec![(item("a"), 2)], unknown: Vec::new() });
        let carts = [Vec::new(), vec![(item("a"), 2)]].map(CartAnswer::Changed);
        carts.into_iter().chain([CartAnswer::NotLoggedIn, CartAnswer::Full]).for_each(comes_back);
        comes_back(vec![MergeResult::Done, MergeResult::Nothing, MergeResult::NoSession]);
        comes_back(StoredRow { json: Bytes::from_static(b"{\"a\":1}"), refreshed: Some(1.0) });
        let scope = BypassScope::Route("shop".to_owned());
        let switch = StoredBypass { scope, until: 2_000, by: "ann at web1".to_owned() };
        let bypasses = StoredBypasses { now: 1_000, bypasses: vec![switch] };
        let key = MarkKey::random();
        for purges in [
            PurgesSince::Since { purges: vec![vec![1, 2], vec![]], upto: at(2), more: true },
            PurgesSince::All { upto: at(3), key, marks: vec![(1, 2)] },
        ] {
            comes_back(StoreNews { purges, bypasses: bypasses.clone() });
        }
    }

    #[test]
    fn errors_are_read_as_they_are_written() {
        for error in [
            StoreError::Away,
            StoreError::TimedOut,
            StoreError::Unanswered("it broke".into()),
            StoreError::Full,
            StoreError::NearlyFull,
            StoreError::TooLarge,
            StoreError::RowsFull,
            StoreError::BypassesFull,
            StoreError::Failed("a bad value".into()),
        ] {
            comes_back(error);
        }
        assert!(StoreError::from_wire(&json!({ "error": "lost" })).is_none());
    }
}
