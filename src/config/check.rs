//! Contradictions: settings that are fine alone and wrong together, and settings that an
//! operator may regret.
//!
//! What one value may be is the business of its form.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use super::apps::App;
use super::fragment::{Esi, Fill, SHARES};
use super::plan::{
    Address, Endpoint, LeakGuard, Listen, OnExpire, Origin, Plan, PurgeToken, Route, SameSite,
    SecureCookie, SegmentProof, SetCookie, Share, StoreUrl, Trait, USUAL_MODE,
};
use super::problem::{Problem, Warning};
use super::reader::{Places, nearest};
use super::schema::DAY;
use super::sessions::{Login, Success, Verify};
use super::unit::show_size;
use ipnet::IpNet;

use crate::http::host::Scheme;
use crate::http::path::{self, PathPattern};
use crate::http::pattern::Pattern;
use crate::http::peer::Peers;
use crate::http::{query, set_cookie};
use crate::ident::TokenStorage;

/// The longest path of a socket, in bytes. The system takes 107, of which its draft, while it is made,
/// takes up to 8 for the number of the process.
const SOCKET_PATH_MAX: usize = 99;

/// The cookie in which Flask and Express (cookie-session) keep the session itself, signed, unless they are told
/// otherwise.
const SIGNED: &str = "session";

/// How such cookies end where the app's name stands before: Laravel's (encrypted, and new with every answer) and
/// Rails'.
const SIGNED_END: &str = "_session";

/// MediaWiki's cookies beside one that ends so and holds an id.
static WITH_AN_ID: [&str; 2] = ["UserID", "Token"];

/// The most servers of one origin.
const SERVERS_MAX: usize = 64;

/// Looks at a plan as a whole.
#[derive(Debug)]
pub(super) struct Check<'a> {
    pub(super) plan: &'a Plan,
    places: &'a Places,
    /// Settings that could not be read: what stands in the plan for them was never said, so
    /// nothing is concluded from it.
    unread: HashSet<&'a str>,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl<'a> Check<'a> {
    pub(super) fn new(plan: &'a Plan, places: &'a Places, known: &'a [Problem]) -> Self {
        let unread = known.iter().map(|problem| problem.setting.as_str()).collect();
        Self { plan, places, unread, problems: Vec::new(), warnings: Vec::new() }
    }

    /// The contradictions, and what is worth a warning.
    pub(super) fn run(mut self) -> (Vec<Problem>, Vec<Warning>) {
        self.listeners();
        self.tls();
        self.origin();
        self.servers();
        self.origin_tls();
        self.store();
        self.client();
        self.session();
        self.own_sessions();
        self.cache();
        self.visitor_cookie();
        self.rows();
        self.purge();
        for (index, route) in self.plan.routes.iter().enumerate() {
            self.route(index, route);
            self.reachable(index, route);
        }
        self.warnings.sort_by(|a, b| a.problem.place.cmp(&b.problem.place));
        (self.problems, self.warnings)
    }

    pub(super) fn problem(&mut self, setting: &str, text: impl Into<String>) {
        if !self.unread.contains(setting) {
            self.problems.push(Problem::new(self.places.of(setting), setting, text));
        }
    }

    pub(super) fn warning(&mut self, setting: &str, text: impl Into<String>) {
        let problem = Problem::new(self.places.of(setting), setting, text);
        self.warnings.push(Warning { problem, fails_check: false });
    }

    /// A warning for which `anteroom check` fails.
    pub(super) fn grave_warning(&mut self, setting: &str, text: impl Into<String>) {
        let problem = Problem::new(self.places.of(setting), setting, text);
        self.warnings.push(Warning { problem, fails_check: true });
    }

    fn listeners(&mut self) {
        let listen = &self.plan.listen;
        if listen.is_empty() {
            self.problem("listen", "expected at least one [[listen]]");
        }
        for (index, one) in listen.iter().enumerate() {
            self.listener(index, one);
        }
        let admin = &self.plan.admin;
        self.socket();
        let Some(address) = admin.address else { return };
        if listen
            .iter()
            .filter_map(|one| one.address.tcp())
            .any(|other| other == address && other.port() != 0)
        {
            self.problem("admin.address", format!("{address} is a [[listen]] address already"));
        }
        if !address.ip().is_loopback() && admin.token.is_none() && !self.unread("admin.token") {
            let text = format!("{address} can be reached by others; give a token too");
            self.problem("admin.address", text);
        }
    }

    fn listener(&mut self, index: usize, listen: &Listen) {
        let setting = format!("listen[{index}].address");
        for earlier in &self.plan.listen[..index] {
            match (&earlier.address, &listen.address) {
                // Port 0 is another port each time.
                (Address::Tcp(one), Address::Tcp(other))
                    if one.port() == other.port() && one.port() != 0 =>
                {
                    if one == other {
                        self.problem(&setting, format!("{other} is listened on already"));
                    } else if earlier.address.meets(&listen.address) {
                        self.problem(
                            &setting,
                            format!("{one} and {other} have addresses in common"),
                        );
                    }
                }
                (one @ Address::Unix(_), other) if one == other => {
                    self.problem(&setting, "is listened on already");
                }
                (Address::Systemd(one), Address::Systemd(other))
                    if one.is_none() || one == other =>
                {
                    self.problem(&setting, "its sockets are taken by a [[listen]] before it");
                }
                _ => {}
            }
        }
        let is_unix = matches!(listen.address, Address::Unix(_));
        if let Address::Unix(path) = &listen.address
            && path.as_os_str().len() > SOCKET_PATH_MAX
        {
            let length = path.as_os_str().len();
            let text = format!(
                "{path:?} has {length} bytes, and a socket's path at most {SOCKET_PATH_MAX}"
            );
            self.problem(&setting, text);
        }
        if listen.mode != USUAL_MODE && !is_unix && !self.unread(&setting) {
            self.problem(
                &format!("listen[{index}].mode"),
                "is for an address that begins with \"unix:\"",
            );
        }
        let setting = format!("listen[{index}].proxy_protocol.from");
        if let Some(net) = everyone(&listen.balancers) {
            let text = format!("{net} is everyone: any client may then say that it is another");
            self.warning(&setting, text);
        }
        let is_heard = |peers: &Peers| match (peers, &listen.address) {
            (Peers::Network(_), Address::Tcp(_))
            | (Peers::Unix, Address::Unix(_))
            | (_, Address::Systemd(_)) => true,
            (Peers::Network(_), Address::Unix(_)) | (Peers::Unix, Address::Tcp(_)) => false,
        };
        if let Some(peers) = listen.balancers.iter().find(|peers| !is_heard(peers))
            && !self.unread(&format!("listen[{index}].address"))
        {
            let text = format!("{peers} can never come in at this address");
            self.problem(&setting, text);
        }
    }

    /// A socket that was asked for must be possible; the usual one beside the data may be missing.
    fn socket(&mut self) {
        let Some(path) = &self.plan.admin.socket else { return };
        let length = path.as_os_str().len();
        if length <= SOCKET_PATH_MAX {
            return;
        }
        let text =
            format!("{path:?} has {length} bytes, and a socket's path at most {SOCKET_PATH_MAX}");
        if self.places.said("admin.socket") {
            self.problem("admin.socket", text);
        } else {
            self.warning("admin.socket", format!("{text}: say another, or there is none"));
        }
    }

    fn origin(&mut self) {
        if self.plan.origin.hosts.is_empty() && !self.unread("origin.hosts") {
            self.warning(
                "origin.hosts",
                "empty: any Host is served and passed to the origin; name the sites",
            );
        }
        let further = self.plan.origins.iter().map(|(_, origin)| origin);
        let mut origins = std::iter::once(&self.plan.origin).chain(further);
        if self.plan.session.mint && !origins.any(|origin| origin.sessions) {
            self.problem(
                "session.mint",
                "is true, but [origin] sessions is false: nobody could log a visitor in",
            );
        }
    }

    /// What is said of TLS needs an origin that speaks it, and a certificate its key.
    fn origin_tls(&mut self) {
        let origin = &self.plan.origin;
        let tls = &origin.tls;
        let is_tls = origin.url.scheme == Scheme::Https || self.unread("origin.url");
        for (key, is_said) in [
            ("ca", tls.ca.is_some()),
            ("server_name", tls.server_name.is_some()),
            ("cert", tls.cert.is_some()),
            ("key", tls.key.is_some()),
            ("verify", !tls.verify),
        ] {
            if is_said && !is_tls {
                let setting = format!("origin.tls.{key}");
                self.problem(&setting, "needs an [origin] url that begins with https:");
            }
        }
        let unread = self.unread("origin.tls.cert") || self.unread("origin.tls.key");
        match (&tls.cert, &tls.key) {
            (Some(_), None) if !unread => {
                self.problem("origin.tls.cert", "needs its key beside it")
            }
            (None, Some(_)) if !unread => {
                self.problem("origin.tls.key", "needs its cert beside it")
            }
            _ => {}
        }
        if !tls.verify {
            self.warning(
                "origin.tls.verify",
                "is false: whoever comes between us and the origin can be the origin",
            );
        }
        if !tls.verify && tls.ca.is_some() {
            self.problem("origin.tls.ca", "is never asked, for verify is false");
        }
    }

    /// Pages apart from the sessions: what is purged is known where the sessions are.
    fn store(&mut self) {
        let store = &self.plan.store;
        let is_redis = |url: &StoreUrl| matches!(url, StoreUrl::Redis(_));
        match &store.pages_url {
            Some(pages) if !is_redis(pages) => {
                self.problem(
                    "store.pages_url",
                    "must be a Redis: the embedded store keeps its pages itself",
                );
            }
            Some(_) if !is_redis(&store.url) && !self.unread("store.url") => {
                self.warning(
                    "store.pages_url",
                    "does nothing beside the embedded store, which keeps its pages itself",
                );
            }
            Some(_) | None => {}
        }
    }

    fn client(&mut self) {
        if let Some(net) = everyone(&self.plan.client.trusted_proxies) {
            let text = format!("{net} is everyone: any client may then say that it is another");
            self.warning("client.trusted_proxies", text);
        }
    }

    /// What only holds for sessions that we begin.
    fn minted_cookie(&mut self) {
        let session = &self.plan.session;
        let told = [
            ("session.cookie_lifetime", session.cookie_lifetime.is_some()),
            ("session.max_per_user", session.max_per_user > 0),
            ("session.per_host", session.per_host),
        ];
        for (key, _) in told.iter().filter(|(_, is_told)| *is_told && !session.mint) {
            self.problem(key, "needs [session] mint = true: else the app begins sessions");
        }
        let is_prefixed = |cookie: &Pattern| match cookie {
            Pattern::Exact(name) => set_cookie::needs_secure(name),
            Pattern::Affix { .. } => false,
        };
        let is_never = session.mint && session.secure == SecureCookie::Never;
        if is_never && session.cookies.iter().any(is_prefixed) {
            self.problem(
                "session.secure",
                "is \"never\", but browsers take a cookie with such a name only with Secure: leave it out",
            );
        }
        if session.idle_timeout.zip(session.absolute_timeout).is_some_and(|(idle, all)| idle > all)
        {
            self.problem(
                "session.idle_timeout",
                "is longer than absolute_timeout, so that no session ever ends by it",
            );
        }
        self.remembered();
    }

    /// Who is to be remembered by his browser must have a session then. That one who stays away for longer
    /// than `idle_timeout` has none may be meant, where it is a matter of days.
    fn remembered(&mut self) {
        let session = &self.plan.session;
        let Some(lifetime) = session.cookie_lifetime else { return };
        let outlives = |timeout: Option<Duration>| timeout.filter(|timeout| lifetime > *timeout);
        let ended_by = match (outlives(session.absolute_timeout), outlives(session.idle_timeout)) {
            (Some(_), _) => "absolute_timeout",
            (None, Some(idle)) if idle < DAY && lifetime >= DAY => "idle_timeout",
            (None, _) => return,
        };
        let text = format!(
            "outlives {ended_by}: browsers keep the cookie of a session that is over, and nobody is \
             remembered for longer than that"
        );
        self.warning("session.cookie_lifetime", text);
    }

    fn session(&mut self) {
        let session = &self.plan.session;
        if session.mint && !matches!(session.cookies.as_slice(), [Pattern::Exact(_)]) {
            self.problem(
                "session.mint",
                "is true, and needs [session] cookie to be one name, without *",
            );
        }
        if session.same_site == SameSite::None && session.secure == SecureCookie::Never {
            self.problem(
                "session.same_site",
                "\"None\" needs secure = \"always\" or \"auto\": browsers drop such a cookie",
            );
        }
        self.minted_cookie();
        let session = &self.plan.session;
        let embedded = matches!(self.plan.store.url, StoreUrl::Embedded(_));
        if session.on_expire != OnExpire::None && !session.clean_carts {
            self.problem(
                "session.on_expire",
                "needs clean_carts = true: else no cart is ever cleaned",
            );
        }
        if session.on_expire == OnExpire::Stream && embedded {
            let text =
                "\"stream\" is one in Redis; with the embedded store write \"file:\" and a path";
            self.problem("session.on_expire", text);
        }
        self.abandoned_carts();
        let session = &self.plan.session;
        if embedded && session.token_storage == TokenStorage::Plain {
            self.warning(
                "session.token_storage",
                "\"plain\" on the embedded store: who reads its files can be any visitor",
            );
        }
    }

    /// Who is told of carts, and when.
    fn abandoned_carts(&mut self) {
        self.webhook_keys();
        let session = &self.plan.session;
        match (&session.on_expire, session.webhook_secret.as_slice()) {
            (OnExpire::Webhook(_), []) => self.problem(
                "session.webhook_secret",
                "is needed by on_expire = \"webhook:…\": who is told must see that it was us",
            ),
            (OnExpire::Webhook(url), _) => {
                let host = url.server.host.trim_start_matches('[').trim_end_matches(']');
                let is_near = host == "localhost"
                    || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
                if url.server.scheme == Scheme::Http && !is_near {
                    let text = "is http: names and carts can be read, and changed, on their way";
                    self.warning("session.on_expire", text);
                }
            }
            (OnExpire::None | OnExpire::Stream | OnExpire::File(_), _) => {}
        }
        let Some(idle) = session.cart_idle else { return };
        if session.on_expire == OnExpire::None {
            self.problem("session.cart_idle", "needs on_expire, which says who is told");
        }
        if session.idle_timeout.is_some_and(|timeout| timeout <= idle) {
            let text = "must be shorter than idle_timeout: else the session is over by then";
            self.problem("session.cart_idle", text);
        }
    }

    /// With which keys a webhook is told.
    fn webhook_keys(&mut self) {
        let text = match self.plan.session.webhook_secret.as_slice() {
            [new, old] if new.expose() == old.expose() => {
                "names one key twice: the second is for the one that the first takes the place of"
            }
            [] | [_] | [_, _] => return,
            _ => "names more than two keys: the new one and the one before are enough",
        };
        self.problem("session.webhook_secret", text);
    }

    /// Sessions of the app's own.
    fn own_sessions(&mut self) {
        let session = &self.plan.session;
        let (verify, login, logout) = (&session.verify, &session.login, &session.logout);
        let rules = [
            ("session.verify.path", verify.path.is_some()),
            ("session.login.match", login.matching.is_some()),
            ("session.logout.match", logout.matching.is_some()),
            ("session.token_from", session.token_is_digest),
            ("session.part", session.part.is_some()),
        ];
        for (key, _) in rules.iter().filter(|(_, is_said)| *is_said) {
            if session.mint {
                self.problem(
                    key,
                    "is for an app that keeps its own sessions, and mint = true says that \
                                   it keeps none",
                );
            }
            if !self.plan.origin.sessions {
                self.problem(key, "needs [origin] sessions = true");
            }
        }
        let times = [
            ("session.idle_timeout", session.idle_timeout.is_some()),
            ("session.absolute_timeout", session.absolute_timeout.is_some()),
        ];
        for (key, _) in times.iter().filter(|(_, is_said)| *is_said && verify.path.is_some()) {
            self.problem(key, "is not for sessions of which [session.verify] asks the app");
        }
        if verify.path.is_none()
            && let Some(text) = session.app.and_then(App::lacks)
        {
            self.warning("session.app", text);
        }
        self.verification(verify);
        self.log_in_rule(login, verify);
    }

    fn verification(&mut self, verify: &Verify) {
        let needed = [
            ("path", verify.path.is_some(), r#"path = "/api/whoami""#),
            ("user", verify.user.is_some(), r#"user = { json = "/user/name" }"#),
            ("nobody", verify.nobody.is_some(), r#"nobody = { status = [401] }"#),
        ];
        let is_begun = needed.iter().any(|(_, is_said, _)| *is_said);
        for (key, _, hint) in needed.iter().filter(|(_, is_said, _)| is_begun && !is_said) {
            self.problem(&format!("session.verify.{key}"), format!("missing; write {hint}"));
        }
        if verify.path.as_deref().is_some_and(|path| path.starts_with("/wp-admin/")) {
            self.warning(
                "session.verify.path",
                "what lies below /wp-admin/ does not see the log-in cookies of other paths: it calls \
                 everybody nobody",
            );
        }
        let session = &self.plan.session;
        let names: Vec<String> = session.cookies.iter().map(ToString::to_string).collect();
        if verify.path.is_some()
            && session.part.is_none()
            && session.app.is_none()
            && let Some(cookie) = names.iter().find(|name| is_signed(name, &names))
        {
            let text = format!(
                "{cookie} often holds the session itself, signed or encrypted, and changes with each \
                 answer: then the app is asked again and again; see token_from and part"
            );
            self.warning("session.cookie", text);
        }
    }

    fn log_in_rule(&mut self, login: &Login, verify: &Verify) {
        if login.verify && verify.path.is_none() {
            self.problem("session.login.verify", "needs [session.verify] path");
        }
        if login.matching.is_none() {
            if login.user.is_some() || login.success != Success::default() {
                let text = "missing; write match = { method = \"POST\", path = \"/login\" }";
                self.problem("session.login.match", text);
            }
            return;
        }
        if !login.verify && !login.success.has_proof() {
            self.problem(
                "session.login.success",
                "needs set_cookie, location or header, or verify = true: a method, a path and a status \
                 alone are no proof that somebody has logged in",
            );
        }
        if !login.verify && login.user.is_none() {
            let text = "missing; write user = { form = \"username\" }, or verify = true";
            self.problem("session.login.user", text);
        }
    }

    fn cache(&mut self) {
        let (cache, limits) = (&self.plan.cache, &self.plan.limits);
        for (name, bound) in
            [("[cache] memory", cache.memory), ("[limits] in_flight", limits.in_flight)]
        {
            if cache.max_object > bound {
                let (object, bound) = (show_size(cache.max_object), show_size(bound));
                let text = format!("{object} is over {name}, {bound}: it could not be kept");
                self.problem("cache.max_object", text);
            }
        }
        if limits.uri > limits.request_head {
            self.problem("limits.uri", "is over request_head, which holds it");
        }
        for ignored in &cache.ignore_cookies {
            let name = ignored.to_string();
            if self.plan.session.cookies.iter().any(|cookie| overlap(cookie, ignored)) {
                let text = format!("{name:?} means a session cookie, which is never harmless");
                self.problem("cache.ignore_cookies", text);
            }
        }
    }

    /// The cookie of visitors' tokens is ours: it is no session's, and no page may hang on it.
    fn visitor_cookie(&mut self) {
        if !self.plan.gives_visitor_tokens() {
            return;
        }
        let (name, session) = (&self.plan.visitor.cookie, &self.plan.session);
        let is_meant = |pattern: &&Pattern| pattern.matches(name.as_bytes());
        if let Some(cookie) = session.cookies.iter().find(is_meant) {
            let text = format!("{name} is a session cookie by [session] cookie = \"{cookie}\"");
            self.problem("visitor.cookie", text);
        }
        if let Some(cookie) = self.plan.cache.ignore_cookies.iter().find(is_meant) {
            let text = format!(
                "{name} is one by [cache] ignore_cookies = \"{cookie}\", too: leave it out there, for \
                 no app sees it"
            );
            self.problem("visitor.cookie", text);
        }
        if session.secure == SecureCookie::Never && set_cookie::needs_secure(name) {
            self.problem(
                "visitor.cookie",
                "has a name with which browsers take it only with Secure, and [session] secure is \"never\"",
            );
        }
    }

    /// Who is given a token has something to remember by it.
    fn visitor_token(&mut self, setting: &str, route: &Route, names_item: bool) {
        let name = &self.plan.visitor.cookie;
        let gives = self.plan.gives_visitor_tokens();
        let is_keyed = route.key_cookies.contains(name)
            || route.segment.contains(&Trait::Cookie(name.clone()));
        if gives && is_keyed {
            let text = format!("{name} is a key of {:?}, and no app sees it", route.name);
            self.problem("visitor.cookie", text);
        }
        if !route.visitor_token {
            return;
        }
        if route.rows.is_some() {
            self.problem(setting, "does nothing beside rows, which nobody views as a page");
        } else if !names_item
            && !self.knows_sessions(Some(route))
            && !self.plan.visitor.endpoints.contains(&Endpoint::Cart)
        {
            self.warning(
                setting,
                "there is nothing to remember here: it takes {item} in match.path or match.query, \"cart\" \
                 among [visitor] endpoints, or an origin with sessions = true",
            );
        }
    }

    /// Another spelling of the host, with a port for one, would fall under no route that guards or counts it.
    fn guards_hosts(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let guards = [
            ("allow_from", !route.allow_from.is_empty()),
            ("requests_per_address", route.requests_per_address.is_some()),
            ("requests_per_session", route.requests_per_session.is_some()),
        ];
        let Some((key, _)) = guards.into_iter().find(|(_, is_set)| *is_set) else { return };
        if route.hosts.is_empty() || self.unread("origin.hosts") {
            return;
        }
        let served = &self.plan.origin.hosts;
        if served.is_empty() {
            let text =
                "beside match.host needs [origin] hosts: else a Host of another spelling passes";
            self.problem(&at(key), text);
        } else if let Some(host) = route.hosts.iter().find(|host| !served.contains(host)) {
            let text =
                format!("{host} is not among [origin] hosts, so that {key} holds for nobody");
            self.problem(&at("match.host"), text);
        }
    }

    fn route(&mut self, index: usize, route: &Route) {
        let at = |key: &str| format!("route[{index}].{key}");
        let any_path = route.paths.is_empty() || route.paths.iter().any(PathPattern::is_everything);
        let any_path = any_path && !self.unread(&at("match.path"));
        if route.override_ttl.is_some() && any_path {
            self.problem(&at("override_ttl"), "needs a match.path, and one that is not /**");
        }
        if route.override_private {
            self.override_private(&at("override_private"), route, any_path);
        }
        if route.share == Share::None && (route.ttl.is_some() || route.override_ttl.is_some()) {
            self.warning(&at("share"), "\"none\" stores nothing; the TTL beside it does nothing");
        }
        self.guard(&at, route, any_path);
        let in_path = route.paths.iter().any(|path| path.as_str().contains("{item}"));
        let in_query = route.query.iter().filter(|(_, value)| value == "{item}").count();
        if in_query + usize::from(in_path) > 1 {
            self.problem(&at("match.query"), "{item} stands once, in the path or in the query");
        }
        self.names_origin(&at("origin"), route.origin.as_deref());
        if !route.allow_from.is_empty() && !route.query.is_empty() {
            let text = "beside match.query guards nothing: a client writes the query as he likes";
            self.problem(&at("allow_from"), text);
        }
        self.guards_hosts(&at, route);
        self.only_top(&at("only_top"), route, in_path || in_query > 0);
        self.rows_of(&at("rows"), route, in_query > 0 || in_path);
        self.visitor_token(&at("visitor_token"), route, in_query > 0 || in_path);
        self.personal(&at, route);
        self.holes_of(&at, route);
        let session = &self.plan.session;
        let of_segment = route.segment.iter().filter_map(|by| match by {
            Trait::Cookie(name) => Some(("segment", name)),
            Trait::LoggedIn | Trait::Attribute(_) | Trait::Language(_) => None,
        });
        for (setting, key) in
            route.key_cookies.iter().map(|key| ("key_cookies", key)).chain(of_segment)
        {
            if session.cookies.iter().any(|cookie| cookie.matches(key.as_bytes())) {
                let text = format!("{key} is a session cookie: a page for one visitor is no key");
                self.problem(&at(setting), text);
            }
        }
        for (key, names) in
            [("key_headers", &route.key_headers), ("send_headers", &route.send_headers)]
        {
            if names.contains(&session.identity_header) {
                let text = format!("{} is the identity header", session.identity_header);
                self.problem(&at(key), text);
            }
        }
    }

    /// Pages that are chosen by who the visitor is need to know it, and an origin that is told.
    fn personal(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        if route.share != Share::Segment {
            let usual = Route::default();
            for (key, is_said) in [
                ("segment", route.segment != usual.segment),
                ("segment_proof", route.segment_proof != usual.segment_proof),
            ] {
                if is_said {
                    self.warning(&at(key), "does nothing without share = \"segment\"");
                }
            }
        }
        let Some(share) = personal(route.share) else { return };
        self.session_for(&at("share"), share, Some(route));
        let is_session = |name: &&String| self.is_session(name);
        if let Some(name) = route.strip_set_cookie.iter().find(is_session) {
            let text = format!("{name} is a session cookie, which \"{share}\" never takes away");
            self.problem(&at("strip_set_cookie"), text);
        }
        let languages = route.segment.iter().filter(|by| matches!(by, Trait::Language(_))).count();
        if languages > 1 {
            self.problem(&at("segment"), "names the language twice");
        }
        if route.segment_proof == SegmentProof::None && route.share == Share::Segment {
            let text = "\"none\": what one user is answered is shown to all of his segment, by your \
                        word alone that it holds nothing of his";
            self.warning(&at("segment_proof"), text);
        }
    }

    /// What fills a hole and is shared by who the visitor is, by the hole's word, needs the same of the
    /// routes under which it may be asked for.
    fn personal_holes(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let setting = &at("fragments");
        for fragment in &route.fragments {
            let (Fill::From(from), Some(by)) = (&fragment.fill, fragment.share) else { continue };
            let Some(share) = personal(by) else { continue };
            if by == Share::Segment && route.share != Share::Segment && !self.unread(&at("share")) {
                let text = format!(
                    "share = \"segment\" for {from} means the segment of this route, which needs \
                     share = \"segment\" itself; or let a route for {from} say which segment"
                );
                self.problem(setting, text);
                continue;
            }
            let asked = asked_for(self.plan, route, from);
            let apart = asked.iter().find(|asked| !self.knows_sessions(**asked));
            if let Some(asked) = apart.or_else(|| asked.first()) {
                self.session_for(setting, share, *asked);
            }
            let mut lost = asked.iter().flatten().flat_map(|asked| &asked.strip_set_cookie);
            if let Some(name) = lost.find(|name| self.is_session(name)) {
                let text = format!(
                    "a route of {from} takes the session cookie {name} away, which \"{share}\" never \
                     does"
                );
                self.problem(setting, text);
            }
        }
    }

    /// Who is shown pages by who he is has a session, of which the origin of the route knows. `None`: of
    /// those that no route fits.
    fn session_for(&mut self, setting: &str, share: &str, route: Option<&Route>) {
        if self.plan.session.cookies.is_empty() {
            self.problem(setting, format!("\"{share}\" needs a [session] cookie"));
        }
        if !self.knows_sessions(route) {
            let text = format!("\"{share}\" needs an origin with sessions = true");
            self.problem(setting, text);
        }
    }

    fn knows_sessions(&self, route: Option<&Route>) -> bool {
        let named = route.and_then(|route| route.origin.as_deref());
        let others = self.plan.origins.iter().map(|(name, origin)| (Some(name.as_str()), origin));
        let mut origins = std::iter::once((None, &self.plan.origin)).chain(others);
        origins.all(|(name, origin)| name != named || origin.sessions)
    }

    fn is_session(&self, name: &str) -> bool {
        self.plan.session.cookies.iter().any(|cookie| cookie.matches(name.as_bytes()))
    }

    /// What is cut off a page, and what it is not looked through for, needs the pages to be of that kind.
    fn guard(&mut self, at: &dyn Fn(&str) -> String, route: &Route, any_path: bool) {
        if route.set_cookie == SetCookie::StripForAnonymous && route.share != Share::Anonymous {
            let text = "\"strip_for_anonymous\" needs share = \"anonymous\"";
            self.problem(&at("set_cookie"), text);
        }
        if route.leak_guard != LeakGuard::Off {
            return;
        }
        if any_path {
            let text = "\"off\" needs a match.path, and one that is not /**";
            self.problem(&at("leak_guard"), text);
        }
        if route.share != Share::Everyone && !self.unread(&at("share")) {
            let share = word(route.share);
            let text = format!(
                "\"off\" is for pages that you promise to be for everyone, not for share = {share:?}"
            );
            self.problem(&at("leak_guard"), text);
        }
    }

    fn only_top(&mut self, setting: &str, route: &Route, names_item: bool) {
        let Some(top) = route.only_top else { return };
        if !names_item {
            self.problem(setting, "needs {item} in match.path or match.query");
        }
        let kept = self.plan.views.keep_top;
        if top > kept && !self.unread("views.keep_top") {
            self.warning(
                setting,
                format!("{top} is over [views] keep_top, {kept}: items beyond have no rank"),
            );
        }
    }

    /// A route that is answered from rows needs their source, and to be told which row.
    fn rows_of(&mut self, setting: &str, route: &Route, names_item: bool) {
        let Some(name) = &route.rows else { return };
        if !self.plan.rows.iter().any(|rows| rows.name == *name) && !self.unread_rows() {
            self.problem(setting, format!("there is no [[rows]] with the name {name:?}"));
        }
        if !names_item {
            self.problem(setting, "needs {item} in match.path or match.query: it names the row");
        }
        if matches!(route.share, Share::Anonymous | Share::Everyone) {
            return;
        }
        let share = word(route.share);
        let text = format!("rows are for everyone, and share = {share:?} beside it says the other");
        self.problem(setting, text);
    }

    /// Holes are for pages that are shared: who is given his own page finds everything on it.
    fn holes_of(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let (holes, has_esi) = (route.fragments.len(), route.esi != Esi::Off);
        if has_esi && route.rows.is_some() {
            self.problem(&at("esi"), "does nothing beside rows, which are JSON");
        }
        if holes == 0 {
            return;
        }
        let setting = at("fragments");
        if has_esi {
            self.problem(
                &setting,
                "beside esi, by which the app says itself what is filled; say one",
            );
        }
        if route.rows.is_some() {
            self.problem(&setting, "do nothing beside rows, which are JSON");
        }
        match route.share {
            Share::None => {
                self.problem(&setting, "are for pages that are shared, and share is \"none\"");
            }
            Share::Anonymous => self.warning(
                &setting,
                "share = \"anonymous\": visitors with a login get no shared page here; if all that is \
                 personal is filled in, say share = \"everyone\"",
            ),
            Share::User => {
                self.problem(&setting, "are for pages that are shared, and share is \"user\"");
            }
            Share::Everyone | Share::Segment => {}
        }
        self.personal_holes(at, route);
        let most = self.plan.limits.holes;
        if holes > most && !self.unread("limits.holes") {
            let text = format!("found {holes}; [limits] holes lets {most} be filled in a page");
            self.problem(&setting, text);
        }
    }

    fn rows(&mut self) {
        let rows = &self.plan.rows;
        for (index, one) in rows.iter().enumerate() {
            if rows[..index].iter().any(|earlier| earlier.name == one.name) {
                let text = format!("{:?} is the name of [[rows]] before it", one.name);
                self.problem(&format!("rows[{index}].name"), text);
            }
            self.names_origin(&format!("rows[{index}].origin"), one.origin.as_deref());
        }
    }

    /// Who asks another origin names one that there is.
    fn names_origin(&mut self, setting: &str, name: Option<&str>) {
        let Some(name) = name else { return };
        let known: Vec<&str> = self.plan.origins.iter().map(|(name, _)| name.as_str()).collect();
        if known.contains(&name) || self.unread.iter().any(|unread| unread.starts_with("origins")) {
            return;
        }
        let hint = match (nearest(name, &known), known.is_empty()) {
            (Some(near), _) => format!("; did you mean {near:?}?"),
            (None, true) => "; without this line it is [origin] that is asked".to_owned(),
            (None, false) => format!("; there are {}", known.join(", ")),
        };
        self.problem(setting, format!("there is no [origins.{name}]{hint}"));
    }

    /// What an origin says of its servers.
    fn servers(&mut self) {
        let plan = self.plan;
        self.servers_of("origin", &plan.origin);
        for (name, origin) in &plan.origins {
            self.servers_of(&format!("origins.{name}"), origin);
        }
    }

    fn servers_of(&mut self, table: &str, origin: &Origin) {
        let at = |key: &str| format!("{table}.{key}");
        let servers = &origin.servers;
        if self.unread(&at("urls")) || self.unread(&at("url")) {
            return;
        }
        if self.places.said(&at("url"))
            && servers.urls.first().is_some_and(|first| *first != origin.url)
        {
            self.problem(&at("url"), "is another than the first of urls; say one of them");
        }
        for (index, url) in servers.urls.iter().enumerate() {
            if servers.urls[..index].contains(url) {
                self.problem(&at("urls"), format!("{}:{} stands there twice", url.host, url.port));
            }
        }
        if servers.urls.len() > SERVERS_MAX {
            let text = format!("found {}; expected at most {SERVERS_MAX}", servers.urls.len());
            self.problem(&at("urls"), text);
        }
        let (weights, servers) = (servers.weights.len(), origin.urls().len());
        if weights != 0 && weights != servers {
            self.problem(&at("weights"), format!("found {weights} for {servers} servers"));
        }
    }

    /// Whoever may purge can bring all visitors to the origin.
    fn purge(&mut self) {
        let purge = &self.plan.purge;
        if !purge.method {
            return;
        }
        if purge.purge_from.is_empty() && !self.unread("purge.purge_from") {
            self.problem("purge.method", "is true, and needs purge_from: the peers that may purge");
        }
        match purge.purge_token {
            PurgeToken::Admin if self.plan.admin.token.is_none() && !self.unread("admin.token") => {
                self.problem("purge.method", "is true, and needs [admin] token");
            }
            PurgeToken::Admin => {}
            PurgeToken::None => {
                if let Some(net) = purge.purge_from.iter().find(|net| !is_private(net)) {
                    let text = format!("\"none\" is for loopback and private addresses, not {net}");
                    self.problem("purge.purge_token", text);
                }
                // Every visitor behind such a proxy comes from its address.
                let trusted = &self.plan.client.trusted_proxies;
                let trusted: Vec<_> = trusted.iter().filter_map(Peers::network).collect();
                let overlaps = |net: &&IpNet| trusted.iter().any(|other| meet(net, other));
                if let Some(net) = purge.purge_from.iter().find(overlaps) {
                    let text =
                        format!("\"none\" is not for {net}, which [client] trusted_proxies has");
                    self.problem("purge.purge_token", text);
                }
            }
        }
    }

    fn override_private(&mut self, setting: &str, route: &Route, any_path: bool) {
        let needs = [
            (route.override_ttl.is_none(), "override_ttl beside it"),
            (route.share != Share::Anonymous, "share = \"anonymous\""),
            (any_path && route.override_ttl.is_none(), "a match.path that is not /**"),
            (
                !self.places.said("session.cookie") && self.plan.session.app.is_none(),
                "[session] cookie or app to be said",
            ),
            (self.plan.session.cookies.is_empty(), "a [session] cookie"),
        ];
        for (missing, need) in needs {
            if missing {
                self.problem(setting, format!("is true, and needs {need}"));
            }
        }
    }

    fn reachable(&mut self, index: usize, route: &Route) {
        let earlier = &self.plan.routes[..index];
        if let Some(before) = earlier.iter().position(|earlier| covers(earlier, route)) {
            let name = &self.plan.routes[before].name;
            let setting = format!("route[{index}]");
            self.warning(&setting, format!("is never reached: {name:?} before it matches as much"));
        }
    }

    fn unread_rows(&self) -> bool {
        self.unread.iter().any(|setting| setting.starts_with("rows"))
    }

    pub(super) fn unread(&self, setting: &str) -> bool {
        self.unread.contains(setting)
    }
}

/// Whether a session cookie of that name, one of `all`, often holds the session itself.
fn is_signed(name: &str, all: &[String]) -> bool {
    let Some(app) = name.strip_suffix(SIGNED_END) else { return name == SIGNED };
    !WITH_AN_ID.iter().any(|end| all.contains(&format!("{app}{end}")))
}

/// The network that is everyone, where one is named.
fn everyone(named: &[Peers]) -> Option<&IpNet> {
    named.iter().filter_map(Peers::network).find(|net| net.prefix_len() == 0)
}

/// Whether no stranger can have an address of a network.
fn is_private(net: &IpNet) -> bool {
    let within = |own: &str| own.parse::<IpNet>().is_ok_and(|own| own.contains(net));
    let own =
        ["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"];
    own.into_iter().any(within)
}

/// Whether `earlier` has no condition that `later` has not, so that nothing is left for it.
fn covers(earlier: &Route, later: &Route) -> bool {
    let any_path = earlier.paths.iter().any(PathPattern::is_everything);
    (any_path || wider(&earlier.paths, &later.paths))
        && wider(&earlier.hosts, &later.hosts)
        && wider(&earlier.methods, &later.methods)
        && earlier.query.iter().all(|condition| later.query.contains(condition))
}

/// Whether one of `earlier` is met wherever one of `later` is; an empty list is met by all.
fn wider<T: PartialEq>(earlier: &[T], later: &[T]) -> bool {
    earlier.is_empty() || (!later.is_empty() && later.iter().all(|name| earlier.contains(name)))
}

/// The word for sharing.
fn word(share: Share) -> &'static str {
    SHARES.iter().find(|(_, meant)| *meant == share).map_or("", |(word, _)| word)
}

/// The word for sharing by who the visitor is.
fn personal(share: Share) -> Option<&'static str> {
    matches!(share, Share::Segment | Share::User).then(|| word(share))
}

/// The routes under which a request for `from`, which fills a hole in a page of `page`, may fall; `None`
/// for that of requests that no other fits.
fn asked_for<'p>(plan: &'p Plan, page: &Route, from: &str) -> Vec<Option<&'p Route>> {
    let (path, query) = from.split_once('?').unwrap_or((from, ""));
    let path = path::decoded(path).unwrap_or_else(|| path.to_owned());
    let mut found = Vec::new();
    for route in &plan.routes {
        let is_asked = |(name, value): &(String, String)| {
            query::value(query, name).is_some_and(|found| *value == found || value == "{item}")
        };
        let of_path = |patterns: &[PathPattern]| {
            patterns.is_empty() || patterns.iter().any(|one| one.matches(&path).is_some())
        };
        let fits = (route.methods.is_empty() || route.methods.iter().any(|name| name == "GET"))
            && (route.hosts.is_empty()
                || page.hosts.is_empty()
                || route.hosts.iter().any(|host| page.hosts.contains(host)))
            && of_path(&route.paths)
            && route.query.iter().all(is_asked);
        if !fits {
            continue;
        }
        found.push(Some(route));
        // A request to another host goes past it.
        if wider(&route.hosts, &page.hosts) {
            return found;
        }
    }
    found.push(None);
    found
}

/// Whether some name is meant by both, where one of them is a plain name; two patterns are
/// compared as texts.
fn overlap(a: &Pattern, b: &Pattern) -> bool {
    match (a, b) {
        (Pattern::Exact(name), other) | (other, Pattern::Exact(name)) => {
            other.matches(name.as_bytes())
        }
        (a, b) => a == b,
    }
}

/// Whether two networks have an address in common: then one lies within the other.
fn meet(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}
