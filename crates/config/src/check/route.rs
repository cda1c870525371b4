//! Routes.

use ::http::header::CACHE_CONTROL;
use anteroom_http::host_pattern::{self, HostPattern};
use anteroom_http::path::PathPattern;
use anteroom_http::pattern::Pattern;
use anteroom_policy::answer::Endpoint;
use anteroom_policy::priority::RequestClass;
use anteroom_policy::route::{LeakGuard, QueryValue, Route, SetCookie, Share, Ttl};

use super::ConfigCheck;
use crate::schema::fragment::SHARES;

/// Keys without an effect on a route that denies its requests.
const IDLE_BESIDE_DENY: [&str; 42] = [
    "mode",
    "share",
    "segment",
    "segment_proof",
    "ignore_query",
    "keep_query",
    "ttl",
    "override_ttl",
    "override_private",
    "stale_while_revalidate",
    "stale_if_error",
    "refresh_ahead",
    "audit",
    "only_top",
    "min_uses",
    "trust_public",
    "set_cookie",
    "strip_set_cookie",
    "remove_headers",
    "leak_guard",
    "key_cookies",
    "key_headers",
    "send_headers",
    "purges",
    "fragments",
    "esi",
    "visitor_token",
    "rows",
    "origin",
    "set_headers",
    "set_request_headers",
    "remove_request_headers",
    "strip_prefix",
    "add_prefix",
    "redirect",
    "redirect_status",
    "require",
    "login_page",
    "max_strangers",
    "maintenance",
    "requests_per_address",
    "requests_per_session",
];

impl ConfigCheck<'_> {
    pub(super) fn route(&mut self, index: usize, route: &Route) {
        let at = |key: &str| format!("route[{index}].{key}");
        let any_path =
            route.paths.is_empty() || route.paths.iter().any(PathPattern::is_nearly_everything);
        let any_path = any_path && !self.unread(&at("match.path"));
        let is_for_all = any_path && !self.leaves_paths_out(index, route);
        if route.override_ttl.is_some() && is_for_all {
            let text = "needs a match.path other than /**, or a route before this one with share = \"none\" for the \
                        paths that are left out";
            self.problem(&at("override_ttl"), text);
        }
        if route.override_private {
            // Where override_ttl is refused, its problem says this.
            let any_path = any_path && (route.override_ttl.is_none() || !is_for_all);
            self.override_private(&at("override_private"), route, any_path);
        }
        if route.share == Share::None
            && (route.ttl != Ttl::default() || route.override_ttl.is_some())
        {
            self.warning(
                &at("share"),
                "\"none\" stores nothing; the TTL of this route has no effect",
            );
        }
        let is_any = route.hosts.is_empty() && route.methods.is_empty();
        let is_narrow = !is_any || route.is_chosen_by_clients();
        if route.share == Share::Everyone && any_path && !is_narrow {
            self.warning(
                &at("share"),
                "\"everyone\" shares every page of the site with all visitors, logged in or not: name the \
                 pages in match.path",
            );
        }
        self.guard(&at, route, any_path);
        if route.items_named() > 1 {
            self.problem(
                &at("match.query"),
                "{item} may appear only once, in the path or in the query",
            );
        }
        self.names_origin(&at("origin"), route.origin.as_deref());
        self.guards_all(&at, route);
        self.guards_hosts(&at, route);
        self.denial(&at, route);
        self.expressions(&at, route);
        self.route_answers(&at, route);
        self.kept_query(&at, route);
        self.only_top(&at("only_top"), route);
        self.rows_of(&at("rows"), route);
        self.visitor_token(&at("visitor_token"), route);
        self.personal(&at, route);
        self.holes_of(&at, route);
        self.keyed_cookies(&at, route);
        let session = &self.plan.session;
        let conditions: Vec<_> =
            route.headers.iter().map(|condition| condition.name.clone()).collect();
        for (key, names) in [
            ("match.headers", &conditions),
            ("key_headers", &route.key_headers),
            ("send_headers", &route.send_headers),
        ] {
            if names.contains(&session.identity_header) {
                let text = format!(
                    "{} is the identity header, which the proxy sets itself",
                    session.identity_header
                );
                self.problem(&at(key), text);
            }
        }
    }

    /// Whether a route before this one keeps some paths of its sites out of the cache.
    fn leaves_paths_out(&self, index: usize, route: &Route) -> bool {
        let mut earlier = self.plan.routes.iter().take(index);
        earlier.any(|earlier| {
            earlier.share == Share::None
                && !earlier.paths.is_empty()
                && !earlier.paths.iter().any(PathPattern::is_nearly_everything)
                && host_pattern::cover(&earlier.hosts, &route.hosts)
                && wider(&earlier.methods, &route.methods)
                && !earlier.is_chosen_by_clients()
        })
    }

    /// A cookie in the page key is no session cookie, and no cookie on which pages do not depend.
    fn keyed_cookies(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let plan = self.plan;
        let of_segment = route.segment.cookies.iter().map(|key| ("segment", key));
        let all = route.key_cookies.iter().map(|key| ("key_cookies", key)).chain(of_segment);
        for (setting, key) in all {
            let is_meant = |pattern: &&Pattern| pattern.matches(key.as_bytes());
            if plan.session.cookies.iter().any(|cookie| is_meant(&cookie)) {
                let text =
                    format!("{key} is a session cookie, which cannot be part of the page key");
                self.problem(&at(setting), text);
            } else if let Some(ignored) = plan.cache.ignore_cookies.iter().find(is_meant) {
                let text = format!(
                    "{key} is also matched by [cache] ignore_cookies = \"{ignored}\": other routes share one page for \
                     all its values; remove it there, unless it changes the pages of this route alone"
                );
                self.warning(&at(setting), text);
            }
        }
    }

    /// A route that guards must match whatever clients send beside method, host and path.
    fn guards_all(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let guards = [
            ("allow_from", !route.allow_from.is_empty()),
            ("require", route.requires_login == Some(true)),
        ];
        for (key, _) in guards.into_iter().filter(|(_, is_set)| *is_set) {
            if !route.query.is_empty() {
                let text = "cannot be combined with match.query: clients choose the query, and could \
                            avoid this route";
                self.problem(&at(key), text);
            }
            if !route.headers.is_empty() {
                let text = "cannot be combined with match.headers: clients choose what they send, and \
                            could avoid this route";
                self.problem(&at(key), text);
            }
        }
    }

    /// Nothing else applies to a route that denies its requests.
    fn denial(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        if !route.deny {
            return;
        }
        if !route.allow_from.is_empty() {
            let text = "cannot be combined with deny = true, which refuses these networks, too; to exempt them, put a \
                        route with this allow_from before, and remove deny";
            self.problem(&at("allow_from"), text);
        }
        if !route.query.parameters().is_empty() {
            let text = "cannot be combined with parameters in match.query, which a client may repeat to avoid this route; \
                        write \"any\" or \"none\", or deny the path";
            self.problem(&at("deny"), text);
        }
        let places = self.places;
        for key in IDLE_BESIDE_DENY.into_iter().filter(|key| places.said(&at(key))) {
            let text = "has no effect beside deny = true, which refuses all requests of the route";
            self.warning(&at(key), text);
        }
    }

    /// A visitor token needs something to store.
    fn visitor_token(&mut self, setting: &str, route: &Route) {
        let name = &self.plan.visitor.cookie;
        let gives = self.plan.gives_visitor_tokens();
        let is_keyed = route.key_cookies.contains(name) || route.segment.cookies.contains(name);
        if gives && is_keyed {
            let text = format!(
                "{name} is part of the key of route {:?}, but the app never receives it",
                route.name
            );
            self.problem("visitor.cookie", text);
        }
        if !route.visitor_token {
            return;
        }
        if route.rows.is_some() {
            self.problem(
                setting,
                "has no effect on a route with rows, which are not viewed as pages",
            );
        } else if !route.names_item()
            && !self.knows_sessions(Some(route))
            && !self.plan.visitor.endpoints.contains(&Endpoint::Cart)
        {
            self.warning(
                setting,
                "has nothing to store: needs {item} in match.path or match.query, \"cart\" in \
                 [visitor] endpoints, or an origin with sessions = true",
            );
        }
    }

    /// Requests with another spelling of the host, such as one with a port, would avoid a route that
    /// guards or counts them.
    fn guards_hosts(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let guards = [
            ("allow_from", !route.allow_from.is_empty()),
            ("deny", route.deny),
            ("require", route.requires_login == Some(true)),
            ("requests_per_address", route.requests_per_address.is_some()),
            ("requests_per_session", route.requests_per_session.is_some()),
        ];
        let Some((key, _)) = guards.into_iter().find(|(_, is_set)| *is_set) else { return };
        if route.hosts.is_empty() || self.unread("origin.hosts") {
            return;
        }
        let served = &self.plan.origin.hosts;
        if served.is_empty() {
            let text = "needs [origin] hosts beside match.host: otherwise another spelling of the \
                        Host avoids this route";
            self.problem(&at(key), text);
            return;
        }
        let is_served = |host: &&HostPattern| served.iter().any(|served| served.meets(host));
        let is_on_each_port = |host: &HostPattern| {
            served.iter().any(|served| served.meets(host) && !served.has_port())
        };
        if let Some(host) = route.hosts.iter().find(|host| !is_served(host)) {
            let text = format!("{host} is not in [origin] hosts, so {key} never applies");
            self.problem(&at("match.host"), text);
        } else if let Some(host) =
            route.hosts.iter().find(|host| host.has_port() && is_on_each_port(host))
        {
            let text = format!(
                "{host} has a port, and [origin] hosts serves each port: a request for another one avoids \
                 this route; write {:?}, or the port there, too",
                host.name()
            );
            self.problem(&at("match.host"), text);
        }
    }

    /// Cutting cookies, and relaxing the leak guard, need routes of a suitable kind.
    fn guard(&mut self, at: &dyn Fn(&str) -> String, route: &Route, any_path: bool) {
        if route.set_cookie == SetCookie::StripForAnonymous && route.share != Share::Anonymous {
            let mut text = "\"strip_for_anonymous\" needs share = \"anonymous\"".to_owned();
            // A user's own page keeps its session cookie, and one that is never stored loses none.
            if matches!(route.share, Share::Everyone | Share::Segment) {
                text += &format!(
                    "; with share = {:?}, name the cookies that stored pages lose: strip_set_cookie = [{}]",
                    word(route.share),
                    self.named_cookies()
                );
            }
            self.problem(&at("set_cookie"), text);
        }
        if route.leak_guard != LeakGuard::Off {
            return;
        }
        if any_path {
            let text = "\"off\" needs a match.path other than /**";
            self.problem(&at("leak_guard"), text);
        }
        if route.share != Share::Everyone && !self.unread(&at("share")) {
            let share = word(route.share);
            let text = format!("\"off\" needs share = \"everyone\"; found share = {share:?}");
            self.problem(&at("leak_guard"), text);
        }
    }

    /// The session cookies with a name of their own, as a list; an ellipsis without any.
    fn named_cookies(&self) -> String {
        let named = self.plan.session.cookies.iter().filter_map(|cookie| match cookie {
            Pattern::Exact(name) => Some(format!("{name:?}")),
            Pattern::Affix { .. } => None,
        });
        let named = named.collect::<Vec<_>>().join(", ");
        if named.is_empty() { "\"…\"".to_owned() } else { named }
    }

    /// An app may read another spelling of the path, which a regular expression would miss.
    fn expressions(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        if route.is_watched() && route.paths.iter().any(PathPattern::is_expression) {
            let text = "a regular expression does not match every spelling of a path that the app may read; \
                        with allow_from, deny, require and requests_per_… write patterns such as /wp-admin/**";
            self.problem(&at("match.path"), text);
        }
    }

    /// What the route itself answers, and the fields that it sets.
    fn route_answers(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let sets_policy = route.set_headers.iter().any(|(name, _)| *name == CACHE_CONTROL);
        if sets_policy && !matches!(route.share, Share::Everyone | Share::None) {
            let text = "Cache-Control needs share = \"everyone\" or \"none\": here the field keeps responses to \
                        visitors with a login out of other caches";
            self.problem(&at("set_headers"), text);
        }
        let identity = &self.plan.session.identity_header;
        if route.set_request_headers.iter().any(|(name, _)| name == identity) {
            let text = format!("{identity} is the identity header, which the proxy sets itself");
            self.problem(&at("set_request_headers"), text);
        }
        let requires_login = route.requires_login == Some(true);
        if route.login_page.is_some() && !requires_login {
            self.warning(&at("login_page"), "has no effect without require = \"login\"");
        }
        if requires_login && !self.knows_sessions(Some(route)) {
            let text = "needs an origin with sessions = true: no visitor of this one is known";
            self.problem(&at("require"), text);
        }
        if let Some(class @ (RequestClass::Known | RequestClass::LogIn)) = route.class
            && route.max_strangers.is_some()
        {
            let class = class.as_str();
            let text =
                format!("has no effect with class = {class:?}, which is not that of strangers");
            self.problem(&at("max_strangers"), text);
        }
    }

    /// A page must not be stored under a URL that lacks the item that it shows.
    fn kept_query(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let is_lost = |(name, value): &&(String, QueryValue)| {
            *value == QueryValue::Item && !route.query_rule.is_kept(name.as_bytes())
        };
        if let Some((name, _)) = route.query.parameters().iter().find(is_lost) {
            let text = format!(
                "the parameter {name} names the item, and ignore_query or keep_query leaves it out of the page's \
                 URL: one page would answer for all items"
            );
            self.problem(&at("match.query"), text);
        }
    }

    fn only_top(&mut self, setting: &str, route: &Route) {
        let Some(top) = route.only_top else { return };
        if !route.names_item() {
            self.problem(setting, "needs {item} in match.path or match.query");
        }
        let kept = self.plan.views.keep_top;
        if top > kept && !self.unread("views.keep_top") {
            self.warning(
                setting,
                format!("{top} exceeds [views] keep_top, {kept}: items beyond that have no rank"),
            );
        }
    }

    /// A route that is answered from rows needs their source, and an item that names the row.
    fn rows_of(&mut self, setting: &str, route: &Route) {
        let Some(name) = &route.rows else { return };
        if !self.plan.rows.iter().any(|rows| *rows.name == **name) && !self.unread_rows() {
            self.problem(setting, format!("there is no [[rows]] with the name {name:?}"));
        }
        if !route.names_item() {
            self.problem(setting, "needs {item} in match.path or match.query, which names the row");
        }
        if matches!(route.share, Share::Anonymous | Share::Everyone) {
            return;
        }
        let share = word(route.share);
        let text = format!(
            "rows are always shared with everyone; remove share = {share:?} from this route"
        );
        self.problem(setting, text);
    }

    fn override_private(&mut self, setting: &str, route: &Route, any_path: bool) {
        let needs = [
            (route.override_ttl.is_none(), "override_ttl"),
            (route.share != Share::Anonymous, "share = \"anonymous\""),
            (any_path, "a match.path other than /**"),
            (
                !self.places.said("session.cookie") && self.plan.session.app.is_none(),
                "an explicit [session] cookie or app",
            ),
            (self.plan.session.cookies.is_empty(), "a [session] cookie"),
        ];
        for (missing, need) in needs {
            if missing {
                self.problem(setting, format!("needs {need}"));
            }
        }
    }

    pub(super) fn reachable(&mut self, index: usize, route: &Route) {
        let earlier = &self.plan.routes[..index];
        if let Some(before) = earlier.iter().position(|earlier| covers(earlier, route)) {
            let name = &self.plan.routes[before].name;
            let setting = format!("route[{index}]");
            self.warning(
                &setting,
                format!("is never reached: the earlier route {name:?} matches all of its requests"),
            );
        }
    }
}

/// Whether every condition of `earlier` is also one of `later`, so that `later` is never reached.
fn covers(earlier: &Route, later: &Route) -> bool {
    let is_covered = |path: &PathPattern| earlier.paths.iter().any(|earlier| earlier.covers(path));
    let any_path = earlier.paths.iter().any(PathPattern::is_everything);
    let covered = !later.paths.is_empty() && later.paths.iter().all(is_covered);
    (any_path || covered || wider(&earlier.paths, &later.paths))
        && host_pattern::cover(&earlier.hosts, &later.hosts)
        && wider(&earlier.methods, &later.methods)
        && earlier.query.covers(&later.query)
        && earlier.headers.iter().all(|condition| later.headers.contains(condition))
}

/// Whether `earlier` matches whatever `later` matches; an empty list matches everything.
pub(super) fn wider<T: PartialEq>(earlier: &[T], later: &[T]) -> bool {
    earlier.is_empty() || (!later.is_empty() && later.iter().all(|name| earlier.contains(name)))
}

/// The word for `share`.
pub(super) fn word(share: Share) -> &'static str {
    SHARES.iter().find(|(_, meant)| *meant == share).map_or("", |(word, _)| word)
}
