//! Routes: the operator's rules for requests and for the pages that answer them.
//!
//! [`Route`] is a `[[route]]` as it is written. [`Routes`] compiles all of them once, and finds the one for a
//! request.

mod field_template;
mod fragment;
mod matching;
mod outdated;
mod rewrite;
mod routes;
mod ttl;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, Method, StatusCode};
use anteroom_http::field_condition::FieldCondition;
use anteroom_http::host_pattern::HostPattern;
use anteroom_http::path::{PathPattern, PurgePath};
use anteroom_http::query::QueryRule;
use anteroom_http::request_fields::IdentityHeaders;
use ipnet::IpNet;

use crate::audit::AuditRate;
use crate::learn::CacheMode;
use crate::priority::RequestClass;
use crate::rate_limit::Rate;

pub use field_template::{FieldTemplate, TemplateValues, TemplateVariable};
pub use fragment::{Esi, Fill, Fragment, RowFill, RowId};
pub use matching::{QueryCondition, QueryValue, RouteInput};
pub use outdated::{OutdatedPages, for_pages, outdated_pages};
pub use rewrite::Rewrite;
pub use routes::{CompiledRoute, Routes};
pub use ttl::Ttl;

/// The visitors that share a page of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Anonymous visitors.
    Anonymous,
    /// All visitors.
    Everyone,
    /// Visitors of one segment; anonymous visitors are a segment of their own.
    Segment,
    /// One visitor, in one session.
    User,
    /// No page is stored.
    None,
}

/// What the pages of a route with [`Share::Segment`] may differ by, besides its keyed cookies and fields.
/// They always differ by login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Attributes of users.
    pub attributes: Vec<String>,
    /// The visitor's language, among these; empty: any language. `None`: pages do not differ by it.
    pub language: Option<Vec<String>>,
    /// Cookies other than session cookies.
    pub cookies: Vec<String>,
    /// Whether the operator promises that pages are the same for the whole segment, so that they are not
    /// compared with the page of a second user.
    pub is_promised: bool,
}

/// The treatment of pages that set cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetCookie {
    /// They are not stored.
    Keep,
    /// They are stored without the cookies, if they were fetched for anonymous visitors.
    StripForAnonymous,
}

/// The status of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedirectStatus {
    /// 301: for good; browsers remember it and may turn POST into GET.
    MovedPermanently,
    /// 302: for now; browsers may turn POST into GET.
    Found,
    /// 303: for now; browsers send a GET.
    SeeOther,
    /// 307: for now, with the same method.
    Temporary,
    /// 308: for good, with the same method.
    Permanent,
}

impl RedirectStatus {
    /// The status code.
    #[must_use]
    pub fn code(self) -> StatusCode {
        match self {
            Self::MovedPermanently => StatusCode::MOVED_PERMANENTLY,
            Self::Found => StatusCode::FOUND,
            Self::SeeOther => StatusCode::SEE_OTHER,
            Self::Temporary => StatusCode::TEMPORARY_REDIRECT,
            Self::Permanent => StatusCode::PERMANENT_REDIRECT,
        }
    }
}

/// What the leak guard looks for in a page that is about to be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeakGuard {
    /// CSRF fields, session ids in links, and personal data of the visitor that the page was fetched for.
    Full,
    /// CSRF fields and session ids in links.
    Marks,
    /// Nothing.
    Off,
}

/// A `[[route]]`: a rule for some requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `name`: for logs and metrics; default: its first path pattern, or `/**`. 1 to 128 bytes, not
    /// necessarily unique.
    pub name: Arc<str>,
    /// `match.path`: patterns; empty: any path. `*` is one segment, `**` any number, `{item}` one segment that
    /// names the viewed item, and `~` begins a regular expression.
    pub paths: Vec<PathPattern>,
    /// `match.host`; empty: any.
    pub hosts: Vec<HostPattern>,
    /// `match.method`; empty: any.
    pub methods: Vec<Method>,
    /// `match.query`: whether there is a query, or parameters that it must have.
    pub query: QueryCondition,
    /// `match.headers`: conditions on request fields, each of which the request must meet, by the names of the fields.
    pub headers: Vec<FieldCondition>,
    /// `mode`: whether the cache serves the route. Default: the value in `[cache]`.
    pub mode: CacheMode,
    /// `share`, `"anonymous"`: the visitors that share a page.
    pub share: Share,
    /// `segment`, `["logged_in"]`, and `segment_proof`, `"second_user"`: the definition of a segment.
    pub segment: Segment,
    /// `ignore_query`, as in `[cache]`, and `keep_query`: the parameters that belong to the URL of its pages.
    pub query_rule: QueryRule,
    /// `ttl`: the lifetime if the origin sets none.
    pub ttl: Ttl,
    /// `override_ttl`: the lifetime, whatever the origin sets.
    pub override_ttl: Option<Duration>,
    /// `override_private`, false: whether `private` is treated like no-cache, and so overridden.
    pub override_private: bool,
    /// `stale_while_revalidate`: how long a stale page is served while it is revalidated, if the origin
    /// does not set it; `None`: the value in `[cache]`.
    pub stale_while_revalidate: Option<Duration>,
    /// `stale_if_error`: the same while the origin fails.
    pub stale_if_error: Option<Duration>,
    /// `audit`: which part of the hits is held against the app. Default: the value in `[cache]`.
    pub audit: AuditRate,
    /// `refresh_ahead`: whether popular pages are fetched again before they expire. Default: the value in
    /// `[cache]`.
    pub refresh_ahead: bool,
    /// `only_top`: the number of most viewed items with cached pages; `None`: all pages are cached.
    pub only_top: Option<u64>,
    /// `min_uses`, 1: from which request on a page is stored.
    pub min_uses: u32,
    /// `trust_public`: whether the origin's `public` also applies to logged-in visitors. Default: the
    /// value in `[cache]`.
    pub trust_public: bool,
    /// `set_cookie`, `"keep"`: the treatment of pages that set cookies.
    pub set_cookie: SetCookie,
    /// `strip_set_cookie`: cookies removed from stored pages.
    pub strip_set_cookie: Vec<String>,
    /// `remove_headers`: fields removed from the origin's responses before they are evaluated and stored.
    pub remove_headers: Vec<HeaderName>,
    /// `leak_guard`, `"full"`: what a page is searched for before it is shared.
    pub leak_guard: LeakGuard,
    /// `key_cookies`: cookies that are part of the page key, and so sent on a fill.
    pub key_cookies: Vec<String>,
    /// `key_headers`: request fields that are part of the page key, and so sent on a fill.
    pub key_headers: Vec<HeaderName>,
    /// `send_headers`: request fields that a fill sends besides the usual ones, so that the page may vary
    /// on them.
    pub send_headers: Vec<HeaderName>,
    /// `[cache] identity_headers`: request fields that name the sender of a request.
    pub identity_headers: Arc<IdentityHeaders>,
    /// `purges`: paths, or with `/**` everything below them, that become stale after a successful unsafe
    /// request to this route.
    pub purges: Vec<PurgePath>,
    /// `fragments`: elements of its pages that are filled when a page is delivered.
    pub fragments: Vec<Fragment>,
    /// `esi`, false: whether ESI tags in its responses are processed.
    pub esi: Esi,
    /// `visitor_token`, false: whether an anonymous visitor gets a token when there is something to store.
    pub visitor_token: bool,
    /// `rows`: the `[[rows]]` that answer this route.
    pub rows: Option<Arc<str>>,
    /// `origin`: the `[origins.NAME]` that is asked; `None`: `[origin]`.
    pub origin: Option<Arc<str>>,
    /// `deny`, false: whether its requests are refused.
    pub deny: bool,
    /// `allow_from`: the networks that may use the route; empty: all.
    pub allow_from: Vec<IpNet>,
    /// `requests_per_address`: the rate of one address.
    pub requests_per_address: Option<Rate>,
    /// `requests_per_session`: the rate of one session.
    pub requests_per_session: Option<Rate>,
    /// `set_headers`: response fields that every client gets with these values.
    pub set_headers: Vec<(HeaderName, FieldTemplate)>,
    /// `set_request_headers`: request fields that the origin gets with these values.
    pub set_request_headers: Vec<(HeaderName, FieldTemplate)>,
    /// `remove_request_headers`: request fields that the origin does not get.
    pub remove_request_headers: Vec<HeaderName>,
    /// `strip_prefix` and `add_prefix`: the path that the origin gets.
    pub rewrite: Rewrite,
    /// `redirect`: where clients are sent instead.
    pub redirect: Option<FieldTemplate>,
    /// `redirect_status`, 302.
    pub redirect_status: RedirectStatus,
    /// `require`: whether the route is for visitors with a login only. `Some(false)` exempts its requests from
    /// later routes; `None` says nothing.
    pub requires_login: Option<bool>,
    /// `login_page`: where browsers of other visitors are sent; `None`: they get 401.
    pub login_page: Option<FieldTemplate>,
    /// `class`: when visitors of unproven standing are served on this route where requests wait; `None`: by what is
    /// known of them.
    pub class: Option<RequestClass>,
    /// `max_strangers`, none: the most requests of strangers that the origin works on at once.
    pub max_strangers: Option<u32>,
    /// `maintenance`, false: whether the origin is not asked.
    pub maintenance: bool,
    /// `access_log`, true: whether its requests are in the access log.
    pub access_log: bool,
    /// No key: a hash of all keys that decide what its pages hold and which visitors share them. What the audit has stopped
    /// is shared again when it changes.
    pub rules: Arc<str>,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            name: "".into(),
            paths: Vec::new(),
            hosts: Vec::new(),
            methods: Vec::new(),
            query: QueryCondition::default(),
            headers: Vec::new(),
            mode: CacheMode::Serve,
            share: Share::Anonymous,
            segment: Segment::default(),
            query_rule: QueryRule::default(),
            ttl: Ttl::default(),
            override_ttl: None,
            override_private: false,
            stale_while_revalidate: None,
            stale_if_error: None,
            audit: AuditRate::OFF,
            refresh_ahead: false,
            only_top: None,
            min_uses: 1,
            trust_public: false,
            set_cookie: SetCookie::Keep,
            strip_set_cookie: Vec::new(),
            remove_headers: Vec::new(),
            leak_guard: LeakGuard::Full,
            key_cookies: Vec::new(),
            key_headers: Vec::new(),
            send_headers: Vec::new(),
            identity_headers: Arc::default(),
            purges: Vec::new(),
            fragments: Vec::new(),
            esi: Esi::Off,
            visitor_token: false,
            rows: None,
            origin: None,
            deny: false,
            allow_from: Vec::new(),
            requests_per_address: None,
            requests_per_session: None,
            set_headers: Vec::new(),
            set_request_headers: Vec::new(),
            remove_request_headers: Vec::new(),
            rewrite: Rewrite::default(),
            redirect: None,
            redirect_status: RedirectStatus::Found,
            requires_login: None,
            login_page: None,
            class: None,
            max_strangers: None,
            maintenance: false,
            access_log: true,
            rules: "".into(),
        }
    }
}

impl Route {
    /// The route of requests that no other route matches.
    #[must_use]
    pub fn rest(trust_public: bool, query_rule: QueryRule) -> Self {
        Self { name: "default".into(), trust_public, query_rule, ..Self::default() }
    }

    /// The origin's part of page keys, so that pages of two origins stay apart; `""` is the first.
    #[must_use]
    pub fn site(&self) -> &str {
        self.origin.as_deref().unwrap_or_default()
    }

    /// Whether a cookie is part of the key.
    #[must_use]
    pub fn keys_cookie(&self, name: &[u8]) -> bool {
        self.key_cookies.iter().any(|keyed| keyed.as_bytes() == name)
    }

    /// Removes the fields of `remove_headers` from the origin's response, and returns them.
    pub fn cut_fields(&self, headers: &mut HeaderMap) -> HeaderMap {
        let mut cut = HeaderMap::new();
        for name in &self.remove_headers {
            for value in headers.get_all(name) {
                cut.append(name, value.clone());
            }
            headers.remove(name);
        }
        cut
    }

    /// Whether its pages have fragments or ESI.
    #[must_use]
    pub fn has_fragments(&self) -> bool {
        !self.fragments.is_empty() || self.esi != Esi::Off
    }

    /// Whether its pages have parts that may differ between visitors. Those that are filled from rows do not.
    #[must_use]
    pub fn has_personal_fragments(&self) -> bool {
        self.fragments.iter().any(Fragment::is_personal) || self.esi != Esi::Off
    }

    /// Whether a condition names an item, in the path or in the query.
    #[must_use]
    pub fn names_item(&self) -> bool {
        self.items_named() > 0
    }

    /// The number of conditions that name an item; at most one is valid.
    #[must_use]
    pub fn items_named(&self) -> usize {
        let in_path = self.paths.iter().any(PathPattern::names_item);
        let parameters = self.query.parameters().iter();
        let in_query = parameters.filter(|(_, value)| *value == QueryValue::Item).count();
        usize::from(in_path) + in_query
    }

    /// Whether a request could evade the route by an address or method that does not match: the route
    /// serves some networks only, requires a login, counts requests, or denies a path, a method or a query.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let is_narrow =
            !(self.paths.is_empty() && self.methods.is_empty() && self.query.is_empty());
        let denies = self.deny && is_narrow;
        let guards = !self.allow_from.is_empty() || self.requires_login == Some(true);
        guards || denies || self.is_limited()
    }

    /// Whether clients choose the route by what they send beside method, host and path: the query, or a field. They can
    /// add or omit either.
    #[must_use]
    pub fn is_chosen_by_clients(&self) -> bool {
        !(self.query.is_empty() && self.headers.is_empty())
    }

    /// Whether its requests are counted.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.requests_per_address.is_some() || self.requests_per_session.is_some()
    }

    /// The keys that `anteroom explain` lists: those that affect pages and answers, and differ from their
    /// defaults.
    #[must_use]
    pub fn keys_set(&self) -> Vec<&'static str> {
        let keys = [
            // The same URL may take another route.
            ("match.headers", !self.headers.is_empty()),
            ("deny", self.deny),
            ("mode", self.mode != CacheMode::Serve),
            ("segment", self.segment != Segment::default()),
            ("keep_query", self.query_rule.keep.is_some()),
            ("purges", !self.purges.is_empty()),
            ("visitor_token", self.visitor_token),
            ("ttl", self.ttl != Ttl::default()),
            ("override_ttl", self.override_ttl.is_some()),
            ("override_private", self.override_private),
            ("stale_while_revalidate", self.stale_while_revalidate.is_some()),
            ("stale_if_error", self.stale_if_error.is_some()),
            ("audit", ![AuditRate::OFF, AuditRate::DEFAULT].contains(&self.audit)),
            ("refresh_ahead", self.refresh_ahead),
            ("min_uses", self.min_uses > 1),
            ("only_top", self.only_top.is_some()),
            ("fragments", !self.fragments.is_empty()),
            ("esi", self.esi != Esi::Off),
            ("trust_public", self.trust_public),
            ("set_cookie", self.set_cookie != SetCookie::Keep),
            ("strip_set_cookie", !self.strip_set_cookie.is_empty()),
            ("remove_headers", !self.remove_headers.is_empty()),
            ("leak_guard", self.leak_guard != LeakGuard::Full),
            ("key_cookies", !self.key_cookies.is_empty()),
            ("key_headers", !self.key_headers.is_empty()),
            ("send_headers", !self.send_headers.is_empty()),
            ("set_headers", !self.set_headers.is_empty()),
            ("set_request_headers", !self.set_request_headers.is_empty()),
            ("remove_request_headers", !self.remove_request_headers.is_empty()),
            ("strip_prefix", self.rewrite.strip_prefix.is_some()),
            ("add_prefix", self.rewrite.add_prefix.is_some()),
            ("redirect", self.redirect.is_some()),
            ("require", self.requires_login.is_some()),
            ("login_page", self.login_page.is_some()),
            ("class", self.class.is_some()),
            ("max_strangers", self.max_strangers.is_some()),
            ("maintenance", self.maintenance),
            ("access_log", !self.access_log),
            ("rows", self.rows.is_some()),
            ("allow_from", !self.allow_from.is_empty()),
            ("requests_per_address", self.requests_per_address.is_some()),
            ("requests_per_session", self.requests_per_session.is_some()),
        ];
        keys.into_iter().filter_map(|(key, is_set)| is_set.then_some(key)).collect()
    }
}
