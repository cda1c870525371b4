//! The bypass switches: the routes, and the pages, that every proxy on the store forwards, and until when.

use std::future::Future;
use std::time::Duration;

use super::StoreError;

/// The most switches of routes at a time.
pub const BYPASSES_MAX: usize = 64;
/// The most patterns of pages that are stopped at a time. They have room of their own: what the audit does never keeps an
/// operator from switching.
pub const STOPS_MAX: usize = 32;
/// The most fields that are read.
pub(crate) const FIELDS_MAX: usize = BYPASSES_MAX + STOPS_MAX;
/// The longest time for which one is on: a switch that is forgotten must end.
pub const BYPASS_LASTS_MAX: Duration = Duration::from_secs(7 * 86_400);
/// The most characters of the name of who switched it on.
pub const BYPASS_BY_MAX: usize = 64;
/// The longest name of a route, in bytes, as the configuration allows it.
const ROUTE_MAX: usize = 128;
/// The field of the switch for all routes.
const ALL: &str = "*";
/// How a field begins that is for pages. `lua/change_bypass.lua` has the same.
const PAGES: char = '~';
/// The longest such field, in bytes.
const PAGES_FIELD_MAX: usize = 2_048;

/// What a switch is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BypassScope {
    /// All routes.
    All,
    /// A route, by its name.
    Route(String),
    /// The pages of a pattern, which the audit has stopped.
    Pages(StoppedPages),
}

/// Pages that are not shared any more, because visitors see different things in them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoppedPages {
    /// A hash of what the configuration says of them, without spaces: under other rules they are shared again.
    pub rules: String,
    /// The site, without spaces.
    pub host: String,
    /// A hash of the path, or of the pattern of their paths, without spaces.
    pub digest: String,
    /// The path or the pattern as operators see it, with `*` where pages of one kind differ.
    pub pattern: String,
}

impl BypassScope {
    /// The name of the route; `None`: the scope is another one.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        match self {
            Self::Route(name) => Some(name),
            Self::All | Self::Pages(_) => None,
        }
    }

    /// The pages; `None`: the scope is another one.
    #[must_use]
    pub fn pages(&self) -> Option<&StoppedPages> {
        match self {
            Self::Pages(pages) => Some(pages),
            Self::All | Self::Route(_) => None,
        }
    }

    /// The field under which it is stored.
    pub(super) fn field(&self) -> String {
        match self {
            Self::All => ALL.to_owned(),
            Self::Route(name) => format!("={name}"),
            Self::Pages(StoppedPages { rules, host, digest, pattern }) => {
                format!("{PAGES}{rules} {host} {digest} {pattern}")
            }
        }
    }

    fn parse(field: &str) -> Option<Self> {
        if field == ALL {
            return Some(Self::All);
        }
        if let Some(name) = field.strip_prefix('=') {
            let is_name = !name.is_empty() && name.len() <= ROUTE_MAX;
            return is_name.then(|| Self::Route(name.to_owned()));
        }
        let mut parts = field.strip_prefix(PAGES)?.splitn(4, ' ').map(str::to_owned);
        let (rules, host) = (parts.next()?, parts.next()?);
        let (digest, pattern) = (parts.next()?, parts.next()?);
        let pages = StoppedPages { rules, host, digest, pattern };
        (field.len() <= PAGES_FIELD_MAX).then_some(Self::Pages(pages))
    }
}

impl std::fmt::Display for BypassScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str(ALL),
            Self::Route(name) => f.write_str(name),
            Self::Pages(StoppedPages { host, pattern, .. }) => write!(f, "{host}{pattern}"),
        }
    }
}

/// A switch that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBypass {
    /// What it is for.
    pub scope: BypassScope,
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
    /// Those that are on, in the order of their scopes.
    pub bypasses: Vec<StoredBypass>,
}

/// A change of the switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BypassChange {
    /// What it is for. [`BypassScope::All`] is the switch for all routes; to switch off, that of every route, too.
    pub scope: BypassScope,
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
    /// [`StoreError::BypassesFull`] when [`BYPASSES_MAX`] others of routes are on, or [`STOPS_MAX`] others of pages, each of
    /// which will end later than after half of this one's time.
    fn change_bypass(
        &self,
        change: &BypassChange,
    ) -> impl Future<Output = Result<StoredBypasses, StoreError>>;

    /// The switches that are on.
    fn bypasses(&self) -> impl Future<Output = Result<StoredBypasses, StoreError>>;
}

impl BypassChange {
    /// Whether the switch of a scope is changed.
    #[must_use]
    pub fn covers(&self, scope: &BypassScope) -> bool {
        self.ends_every_route() && scope.pages().is_none() || self.scope == *scope
    }

    /// The most switches of this kind at a time.
    pub(super) fn most(&self) -> usize {
        if self.scope.pages().is_some() { STOPS_MAX } else { BYPASSES_MAX }
    }

    /// Whether every switch of a route is switched off.
    pub(super) fn ends_every_route(&self) -> bool {
        self.scope == BypassScope::All && self.lasts.is_none()
    }

    /// `on` or `off`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.lasts.is_some() { "on" } else { "off" }
    }
}

impl StoredBypass {
    /// What is stored under the field of its scope.
    pub(super) fn value(&self) -> String {
        format!("1 {} {}", self.until, self.by)
    }

    /// A stored switch. `None` if it is not ours.
    pub(super) fn parse(field: &[u8], value: &[u8]) -> Option<Self> {
        let (field, value) = (str::from_utf8(field).ok()?, str::from_utf8(value).ok()?);
        let scope = BypassScope::parse(field)?;
        let (until, by) = value.strip_prefix("1 ")?.split_once(' ')?;
        Some(Self { scope, until: until.parse().ok()?, by: name_of(by) })
    }
}

impl StoredBypasses {
    /// The switches among stored fields and values.
    pub(super) fn of(now: u64, stored: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Self {
        let parse = |(field, value): &(_, _)| parse_pair(field, value);
        let found = stored.iter().filter_map(parse).filter(|bypass| bypass.until > now);
        let mut bypasses: Vec<_> = found.take(FIELDS_MAX).collect();
        bypasses.sort_unstable_by(|a, b| a.scope.cmp(&b.scope));
        Self { now, bypasses }
    }
}

fn parse_pair(field: &impl AsRef<[u8]>, value: &impl AsRef<[u8]>) -> Option<StoredBypass> {
    StoredBypass::parse(field.as_ref(), value.as_ref())
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
        let pages = StoppedPages {
            rules: "0f".to_owned(),
            host: "shop.test:8080".to_owned(),
            digest: "1a".to_owned(),
            pattern: "/item/* and more".to_owned(),
        };
        for (scope, by) in [
            (BypassScope::All, "ann at web1"),
            (BypassScope::Route("*".to_owned()), ""),
            (BypassScope::Pages(pages), "audit"),
        ] {
            let bypass = StoredBypass { scope, until: 7, by: by.to_owned() };
            let (field, value) = (bypass.scope.field(), bypass.value());
            assert_eq!(
                StoredBypass::parse(field.as_bytes(), value.as_bytes()).as_ref(),
                Some(&bypass)
            );
        }
        for (field, value) in [
            ("shop", "1 7 a"),
            ("=", "1 7 a"),
            ("~0f shop.test 1a", "1 7 a"),
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
        let scopes = |now| {
            let list = StoredBypasses::of(now, &stored).bypasses;
            list.into_iter().map(|bypass| bypass.scope).collect::<Vec<_>>()
        };
        let shop = BypassScope::Route("shop".to_owned());
        assert_eq!(scopes(6), [BypassScope::All, shop.clone()]);
        assert_eq!(scopes(7), [shop]);
        assert!(scopes(8).is_empty());
    }

    #[test]
    fn to_end_the_switches_of_all_routes_ends_no_stop_of_pages() {
        let pages = BypassScope::Pages(StoppedPages {
            rules: "0f".to_owned(),
            host: "shop.test".to_owned(),
            digest: "1a".to_owned(),
            pattern: "/a".to_owned(),
        });
        let off = |scope| BypassChange { scope, lasts: None, by: String::new() };
        assert!(off(BypassScope::All).covers(&BypassScope::Route("shop".to_owned())));
        assert!(!off(BypassScope::All).covers(&pages));
        assert!(off(pages.clone()).covers(&pages));
    }
}
