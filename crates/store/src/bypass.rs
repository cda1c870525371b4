//! The bypass switches: the routes that every proxy on the store forwards, and until when.

use std::future::Future;
use std::time::Duration;

use super::StoreError;

/// The most switches at a time.
pub const BYPASSES_MAX: usize = 64;
/// The longest time for which one is on: a switch that is forgotten must end.
pub const BYPASS_LASTS_MAX: Duration = Duration::from_secs(7 * 86_400);
/// The most characters of the name of who switched it on.
pub const BYPASS_BY_MAX: usize = 64;
/// The longest name of a route, in bytes, as the configuration allows it.
const ROUTE_MAX: usize = 128;
/// The field of the switch for all routes.
const ALL: &str = "*";

/// A switch that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBypass {
    /// The name of the route; `None`: all routes.
    pub route: Option<String>,
    /// Until when, in milliseconds of the store's Unix time.
    pub until: u64,
    /// Who switched it on.
    pub by: String,
}

/// The switches at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredBypasses {
    /// The store's Unix time, in milliseconds.
    pub now: u64,
    /// Those that are on, in the order of their routes.
    pub bypasses: Vec<StoredBypass>,
}

/// A change of the switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BypassChange {
    /// The name of the route. `None`: the switch for all routes; to switch off, every switch.
    pub route: Option<String>,
    /// For how long it is on, from the store's now; `None`: it is off.
    pub lasts: Option<Duration>,
    /// Who changes it.
    pub by: String,
}

/// The bypass switches of all proxies on a store. [`super::PurgeStore::news_since`] tells of them.
pub trait BypassStore {
    /// Changes them, tells the other processes, and returns the result.
    ///
    /// # Errors
    /// [`StoreError::BypassesFull`] when [`BYPASSES_MAX`] others are on.
    fn change_bypass(
        &self,
        change: &BypassChange,
    ) -> impl Future<Output = Result<StoredBypasses, StoreError>>;

    /// The switches that are on.
    fn bypasses(&self) -> impl Future<Output = Result<StoredBypasses, StoreError>>;
}

impl BypassChange {
    /// Whether the switch of a route is changed; `None`: that of all routes.
    #[must_use]
    pub fn covers(&self, route: Option<&str>) -> bool {
        let is_every = self.route.is_none() && self.lasts.is_none();
        is_every || self.route.as_deref() == route
    }

    /// `on` or `off`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.lasts.is_some() { "on" } else { "off" }
    }
}

impl StoredBypass {
    /// The field under which it is stored.
    pub(super) fn field(&self) -> String {
        field_of(self.route.as_deref())
    }

    /// What is stored there.
    pub(super) fn value(&self) -> String {
        format!("1 {} {}", self.until, self.by)
    }

    /// A stored switch. `None` if it is not ours.
    pub(super) fn parse(field: &[u8], value: &[u8]) -> Option<Self> {
        let (field, value) = (str::from_utf8(field).ok()?, str::from_utf8(value).ok()?);
        let route = match field {
            ALL => None,
            field => Some(field.strip_prefix('=')?.to_owned()),
        };
        if route.as_ref().is_some_and(|route| route.is_empty() || route.len() > ROUTE_MAX) {
            return None;
        }
        let (until, by) = value.strip_prefix("1 ")?.split_once(' ')?;
        Some(Self { route, until: until.parse().ok()?, by: name_of(by) })
    }
}

impl StoredBypasses {
    /// The switches among stored fields and values.
    pub(super) fn of(now: u64, stored: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Self {
        let parse = |(field, value): &(_, _)| parse_pair(field, value);
        let found = stored.iter().filter_map(parse).filter(|bypass| bypass.until > now);
        let mut bypasses: Vec<_> = found.take(BYPASSES_MAX).collect();
        bypasses.sort_unstable_by(|a, b| a.route.cmp(&b.route));
        Self { now, bypasses }
    }
}

fn parse_pair(field: &impl AsRef<[u8]>, value: &impl AsRef<[u8]>) -> Option<StoredBypass> {
    StoredBypass::parse(field.as_ref(), value.as_ref())
}

/// The field of a route's switch; `None`: that of all routes.
pub(super) fn field_of(route: Option<&str>) -> String {
    route.map_or_else(|| ALL.to_owned(), |route| format!("={route}"))
}

/// The name of who changes a switch, as it may be stored and shown.
#[must_use]
pub fn name_of(by: &str) -> String {
    by.chars().filter(|letter| !letter.is_control()).take(BYPASS_BY_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_as_it_is_written_and_others_are_left_out() {
        let all = StoredBypass { route: None, until: 7, by: "ann at web1".to_owned() };
        let one = StoredBypass { route: Some("*".to_owned()), until: 9, by: String::new() };
        for bypass in [&all, &one] {
            let (field, value) = (bypass.field(), bypass.value());
            assert_eq!(
                StoredBypass::parse(field.as_bytes(), value.as_bytes()).as_ref(),
                Some(bypass)
            );
        }
        for (field, value) in [
            ("shop", "1 7 a"),
            ("=", "1 7 a"),
            ("*", "2 7 a"),
            ("*", "1 x a"),
            ("*", "1 7"),
            ("*", ""),
        ] {
            assert_eq!(
                StoredBypass::parse(field.as_bytes(), value.as_bytes()),
                None,
                "{field} {value}"
            );
        }
        let long = format!("={}", "a".repeat(ROUTE_MAX + 1));
        assert_eq!(StoredBypass::parse(long.as_bytes(), b"1 7 a"), None);
        assert_eq!(StoredBypass::parse(b"*", b"1 7 \xff"), None);
        let by = StoredBypass::parse(b"*", format!("1 7 a\n{}", "b".repeat(100)).as_bytes());
        assert_eq!(by.unwrap().by.len(), BYPASS_BY_MAX);
    }

    #[test]
    fn an_ended_switch_is_left_out() {
        let stored = [("=shop", "1 8 a"), ("*", "1 7 a"), ("other", "")];
        let routes = |now| {
            let list = StoredBypasses::of(now, &stored).bypasses;
            list.into_iter().map(|bypass| bypass.route).collect::<Vec<_>>()
        };
        assert_eq!(routes(6), [None, Some("shop".to_owned())]);
        assert_eq!(routes(7), [Some("shop".to_owned())]);
        assert!(routes(8).is_empty());
    }
}
