//! All routes, compiled: the route of a request, and the routes that may refuse or count it.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use ::http::HeaderName;
use anteroom_http::ident::Item;
use anteroom_http::path::{self, PathPattern};
use anteroom_http::peer::is_in;

use super::{Route, RouteInput, Segment, Share};
use crate::rate_limit::{RateLimitBuilder, RequestLimits};

/// A route with everything derived from the whole plan.
#[derive(Clone, Debug)]
pub struct CompiledRoute {
    /// The rule. Its `segment` is empty unless `share` is `segment`; the segment's cookies are among its
    /// `key_cookies`, and the fields with one value in `headers` among its `key_headers`.
    rule: Route,
    /// Its index among all routes; that of the last is for requests that no other route fits.
    pub place: usize,
    /// The index of its origin; `[origin]` is the first.
    pub origin_place: usize,
    /// Its limits.
    pub limits: RequestLimits,
}

impl Deref for CompiledRoute {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.rule
    }
}

impl CompiledRoute {
    fn new(
        place: usize,
        mut rule: Route,
        origins: &[&str],
        limiting: &mut RateLimitBuilder,
    ) -> Self {
        if rule.share == Share::Segment {
            let cookies = rule.segment.cookies.iter();
            let missing = cookies.filter(|name| !rule.key_cookies.contains(name)).cloned();
            let missing: Vec<String> = missing.collect();
            rule.key_cookies.extend(missing);
        } else {
            rule.segment = Segment::default();
        }
        // A field with one value for all pages of the route is as good as in the key: fills may send it, and an app that
        // answers by it, as by X-Requested-With, gives the page that was asked for.
        let exact = rule.headers.iter().filter(|condition| condition.is_exact());
        let missing = exact.map(|condition| &condition.name);
        let missing = missing.filter(|name| !rule.key_headers.contains(name)).cloned();
        let missing: Vec<HeaderName> = missing.collect();
        rule.key_headers.extend(missing);
        let further = |name: &str| origins.iter().position(|origin| *origin == name);
        // The check has verified each name.
        let origin_place = rule.origin.as_deref().and_then(further).map_or(0, |place| place + 1);
        let limits =
            limiting.limits(&rule.name, rule.requests_per_address, rule.requests_per_session);
        Self { rule, place, origin_place, limits }
    }

    /// The same route for the content of a fragment on a page of `page`, if the fragment sets `share`. The
    /// segment is that of the page; a `segment_proof = "none"` of the page does not extend to it.
    #[must_use]
    pub fn shared_as(&self, share: Share, page: &Self) -> Self {
        let mut route = self.clone();
        let rule = &mut route.rule;
        rule.share = share;
        if share == Share::Segment && self.share != Share::Segment {
            rule.segment = Segment { is_promised: false, ..page.segment.clone() };
            let missing = page.key_cookies.iter().filter(|name| !self.key_cookies.contains(name));
            rule.key_cookies.extend(missing.cloned());
        }
        route
    }

    /// The same route, but it stores nothing.
    fn without_pages(&self) -> Self {
        let mut route = self.clone();
        (route.rule.share, route.rule.override_ttl) = (Share::None, None);
        route
    }
}

/// A route that must match any spelling of its path.
#[derive(Clone, Debug)]
struct WatchedRoute {
    route: Arc<CompiledRoute>,
    /// Its patterns, for paths after lax decoding.
    lax: Vec<PathPattern>,
}

impl WatchedRoute {
    fn new(route: &Arc<CompiledRoute>) -> Self {
        let lax = route.paths.iter().map(PathPattern::laxly).collect();
        Self { route: Arc::clone(route), lax }
    }

    fn limits(&self) -> &RequestLimits {
        &self.route.limits
    }

    fn fits(&self, request: &RouteInput<'_>) -> bool {
        self.route.may_fit(&self.route.paths, request)
    }

    /// Whether the conditions beside the path fit. A HEAD is treated as the corresponding GET, too.
    fn fits_any_path(&self, request: &RouteInput<'_>) -> bool {
        request.meanings().any(|request| self.route.may_fit(&[], &request))
    }

    /// `path` is the path after lax decoding.
    fn fits_laxly(&self, request: &RouteInput<'_>, path: &str) -> bool {
        self.route.may_fit(&self.lax, &RouteInput { path, ..*request })
    }
}

/// The route that decides about a request, if it `applies`: the first of `among` that matches, or else the first that
/// matches the lax reading of the path. A HEAD is treated as the corresponding GET, too.
fn deciding<'r>(
    among: &'r [WatchedRoute],
    request: &RouteInput<'_>,
    applies: impl Fn(&WatchedRoute) -> bool,
) -> Option<&'r WatchedRoute> {
    request.meanings().find_map(|request| {
        let strictly = among.iter().find(|watched| watched.fits(&request));
        strictly.filter(|watched| applies(watched)).or_else(|| {
            let lax = path::as_read_laxly(request.path);
            let laxly = among.iter().find(|watched| watched.fits_laxly(&request, &lax));
            laxly.filter(|watched| applies(watched))
        })
    })
}

/// Whether the origin may read a path as any other; `target` is the path as received.
fn may_be_any(request: &RouteInput<'_>, target: &str) -> bool {
    path::is_odd(target) || path::has_encoding_left(request.path)
}

/// What routes leave out of those behind them with `override_ttl`.
#[derive(Clone, Debug)]
struct LeftOut {
    /// The routes that store nothing, by their paths, in order.
    unstored: Vec<WatchedRoute>,
    /// For each route with `override_ttl` behind one of them, in order: the same, but it stores nothing. It is for
    /// requests that the origin may read as left out.
    without_pages: Vec<Arc<CompiledRoute>>,
}

impl LeftOut {
    /// SECURITY: a route with `override_ttl` stores what the origin forbids to store, so a path is left out in any
    /// spelling. Routes that clients choose by a query or a field leave nothing out.
    fn of(listed: &[Arc<CompiledRoute>]) -> Self {
        let leaves_out = |route: &&Arc<CompiledRoute>| {
            route.share == Share::None && !route.paths.is_empty() && !route.is_chosen_by_clients()
        };
        let unstored: Vec<_> = listed.iter().filter(leaves_out).map(WatchedRoute::new).collect();
        let first = unstored.first().map_or(usize::MAX, |first| first.route.place);
        let behind = listed.iter().filter(|route| route.place > first);
        let overriding = behind.filter(|route| route.override_ttl.is_some());
        let without_pages = overriding.map(|route| Arc::new(route.without_pages())).collect();
        Self { unstored, without_pages }
    }

    /// The route in place of this one for a request, if the origin may read its path as one that is left out.
    fn in_place_of(
        &self,
        route: &CompiledRoute,
        request: &RouteInput<'_>,
    ) -> Option<&Arc<CompiledRoute>> {
        let found = self.without_pages.binary_search_by_key(&route.place, |other| other.place);
        let without_pages = &self.without_pages[found.ok()?];
        self.may_have(route.place, request).then_some(without_pages)
    }

    /// Whether the origin may read the path of a request as one that is left out of the route at `place`. An odd path is
    /// not looked at: its page is never stored.
    fn may_have(&self, place: usize, request: &RouteInput<'_>) -> bool {
        let mut before = self.unstored.iter().take_while(|watched| watched.route.place < place);
        if path::has_encoding_left(request.path) {
            return before.any(|watched| watched.fits_any_path(request));
        }
        let lax = path::as_read_laxly(request.path);
        before.any(|watched| request.meanings().any(|meant| watched.fits_laxly(&meant, &lax)))
    }
}

/// All routes, in order.
#[derive(Clone, Debug)]
pub struct Routes {
    listed: Vec<Arc<CompiledRoute>>,
    /// What is left out of routes with `override_ttl`.
    left_out: LeftOut,
    /// The routes with `allow_from`.
    guarded: Vec<WatchedRoute>,
    /// The routes with `require`; empty if none requires a login.
    login_guards: Vec<WatchedRoute>,
    /// The routes that decide whether a request is denied; empty if none denies.
    denying: Vec<WatchedRoute>,
    /// The routes that decide whether a route that clients do not choose counts a request; empty if none counts.
    counting: Vec<WatchedRoute>,
    /// The routes that decide whether a route that clients choose counts a request; empty if none counts.
    counting_by_choice: Vec<WatchedRoute>,
    /// Whether a route has conditions on fields.
    look_at_fields: bool,
    rest: Arc<CompiledRoute>,
    keep_users: bool,
}

impl Routes {
    /// Compiles the routes of a plan: the first match in `listed` wins, otherwise `rest`. `origins` are
    /// the names of the `[origins.NAME]`, in order; `limiting` makes the limits.
    #[must_use]
    pub fn new(
        listed: Vec<Route>,
        rest: Route,
        origins: &[&str],
        limiting: &mut RateLimitBuilder,
    ) -> Self {
        let mut compile =
            |(place, rule)| Arc::new(CompiledRoute::new(place, rule, origins, limiting));
        let listed: Vec<_> = listed.into_iter().enumerate().map(&mut compile).collect();
        let rest = compile((listed.len(), rest));
        let is_guarded = |route: &&Arc<CompiledRoute>| !route.allow_from.is_empty();
        let guarded = listed.iter().filter(is_guarded).map(WatchedRoute::new).collect();
        let requires_login = |route: &Arc<CompiledRoute>| route.requires_login == Some(true);
        let login_guards = if listed.iter().any(requires_login) {
            let says = |route: &&Arc<CompiledRoute>| route.requires_login.is_some();
            listed.iter().filter(says).map(WatchedRoute::new).collect()
        } else {
            Vec::new()
        };
        // SECURITY: a client can add or omit a query parameter or a field, and so choose a route by it. Such a route
        // exempts no request from what a later one denies or counts.
        let denies = |route: &&Arc<CompiledRoute>| route.deny || !route.is_chosen_by_clients();
        let denying = if listed.iter().any(|route| route.deny) {
            listed.iter().filter(denies).map(WatchedRoute::new).collect()
        } else {
            Vec::new()
        };
        let deciders_by = |is_chosen: bool| {
            let counts = |route: &Arc<CompiledRoute>| {
                route.is_limited() && route.is_chosen_by_clients() == is_chosen
            };
            let decides =
                |route: &&Arc<CompiledRoute>| counts(route) || !route.is_chosen_by_clients();
            let counted = listed.iter().any(counts);
            let deciders = listed.iter().filter(decides).filter(|_| counted);
            deciders.map(WatchedRoute::new).collect::<Vec<_>>()
        };
        let [counting, counting_by_choice] = [false, true].map(deciders_by);
        let look_at_fields = listed.iter().any(|route| !route.headers.is_empty());
        let keeps_users = |route: &Arc<CompiledRoute>| {
            let fills = route.fragments.iter().filter_map(|fragment| fragment.share);
            fills.chain([route.share]).any(|share| share == Share::User)
        };
        let keep_users = listed.iter().any(keeps_users);
        let left_out = LeftOut::of(&listed);
        Self {
            listed,
            left_out,
            guarded,
            login_guards,
            denying,
            counting,
            counting_by_choice,
            look_at_fields,
            rest,
            keep_users,
        }
    }

    /// The routes of the plan, in order.
    pub fn listed(&self) -> impl Iterator<Item = &CompiledRoute> {
        self.listed.iter().map(|route| &**route)
    }

    /// All routes, each at its [`CompiledRoute::place`].
    pub fn all(&self) -> impl Iterator<Item = &CompiledRoute> {
        self.listed.iter().chain([&self.rest]).map(|route| &**route)
    }

    /// The names of all routes, each at its [`CompiledRoute::place`].
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.listed.iter().chain([&self.rest]).map(|route| &route.name)
    }

    /// Whether a route stores pages, or contents of fragments, for each user.
    #[must_use]
    pub fn keep_users(&self) -> bool {
        self.keep_users
    }

    /// Whether a route has conditions on request fields, so that requests for one URL may take different routes.
    #[must_use]
    pub fn look_at_fields(&self) -> bool {
        self.look_at_fields
    }

    /// Whether a route has `allow_from`.
    #[must_use]
    pub fn are_guarded(&self) -> bool {
        !self.guarded.is_empty()
    }

    /// Whether an address may send this request. The first matching route with `allow_from` decides,
    /// whichever route answers the request: a query parameter of another route opens nothing. The origin
    /// may read a path differently. With `target`, the path as received, an ambiguous path needs access to
    /// every route, and the lax reading must be allowed, too. A HEAD needs the permission of the
    /// corresponding GET.
    #[must_use]
    pub fn may_come(
        &self,
        request: &RouteInput<'_>,
        target: &str,
        address: Option<IpAddr>,
    ) -> bool {
        if self.guarded.is_empty() {
            return true;
        }
        request.meanings().all(|request| self.allows(&request, target, address))
    }

    fn allows(&self, request: &RouteInput<'_>, target: &str, address: Option<IpAddr>) -> bool {
        let allows = |watched: &WatchedRoute| is_in(address, &watched.route.allow_from);
        if may_be_any(request, target) {
            return self.guarded.iter().all(allows);
        }
        let lax = path::as_read_laxly(request.path);
        let strictly = self.guarded.iter().find(|watched| watched.fits(request));
        let laxly = self.guarded.iter().find(|watched| watched.fits_laxly(request, &lax));
        strictly.is_none_or(allows) && laxly.is_none_or(allows)
    }

    /// The route because of which only a visitor with a login may send this request. The first matching route
    /// with `require` decides, whichever route answers the request; ambiguous paths and HEAD are treated as by
    /// [`Self::may_come`].
    #[must_use]
    pub fn requiring_login(
        &self,
        request: &RouteInput<'_>,
        target: &str,
    ) -> Option<&CompiledRoute> {
        if self.login_guards.is_empty() {
            return None;
        }
        let requires = |watched: &WatchedRoute| watched.route.requires_login == Some(true);
        let found = match may_be_any(request, target) {
            true => self.login_guards.iter().find(|watched| requires(watched)),
            false => deciding(&self.login_guards, request, requires),
        };
        found.map(|watched| &*watched.route)
    }

    /// The route because of which this request is refused. The first matching route decides; routes that clients choose
    /// by a query or a field exempt nothing. Ambiguous paths and HEAD are treated as by [`Self::may_come`].
    #[must_use]
    pub fn denying(&self, request: &RouteInput<'_>, target: &str) -> Option<&Arc<CompiledRoute>> {
        if self.denying.is_empty() {
            return None;
        }
        let denies = |watched: &WatchedRoute| watched.route.deny;
        let found = match may_be_any(request, target) {
            // Any path may be meant, and the other conditions count as ever.
            true => self
                .denying
                .iter()
                .find(|watched| denies(watched) && watched.fits_any_path(request)),
            false => deciding(&self.denying, request, denies),
        };
        found.map(|watched| &watched.route)
    }

    /// The limits that count a request. These are the limits of the first matching route; routes with conditions on the
    /// query or on fields are skipped. If that route has none, the first match of the lax reading counts. A path that could
    /// mean any other counts for all. A HEAD without a limit of its own counts like the corresponding GET.
    ///
    /// The limits of a route with conditions on the query or on fields come in addition: a client that takes such a route by
    /// what it sends is counted no less for that.
    #[must_use]
    pub fn limits(&self, request: &RouteInput<'_>, target: &str) -> Vec<&RequestLimits> {
        if self.counting.is_empty() && self.counting_by_choice.is_empty() {
            return Vec::new();
        }
        let limited = |watched: &WatchedRoute| watched.route.is_limited();
        let by_choice =
            |watched: &WatchedRoute| limited(watched) && watched.route.is_chosen_by_clients();
        let counting: Vec<&WatchedRoute> = if may_be_any(request, target) {
            let chosen = self.counting_by_choice.iter().filter(|watched| by_choice(watched));
            let chosen = chosen.filter(|watched| watched.fits_any_path(request));
            self.counting.iter().filter(|watched| limited(watched)).chain(chosen).collect()
        } else {
            let by_url = deciding(&self.counting, request, limited);
            let chosen = deciding(&self.counting_by_choice, request, by_choice);
            by_url.into_iter().chain(chosen).collect()
        };
        counting.into_iter().map(WatchedRoute::limits).collect()
    }

    /// The route of a request, and the item that it names. A route with `override_ttl` stores no page of a path that
    /// the origin may read as one of an earlier route with `share = "none"`.
    #[must_use]
    pub fn find(&self, request: &RouteInput<'_>) -> (&Arc<CompiledRoute>, Option<Item>) {
        let mut listed = self.listed.iter();
        let found = listed.find_map(|route| route.fits(request).map(|item| (route, item)));
        let Some((route, item)) = found else {
            return (&self.rest, None);
        };
        (self.left_out.in_place_of(route, request).unwrap_or(route), item)
    }

    /// The request fields by which the route of a request was chosen: those in the conditions of routes that match, or
    /// would match with other fields, up to the route that is used. Routes that deny are left out: what they answer is
    /// stored nowhere.
    #[must_use]
    pub fn choosing_fields(
        &self,
        request: &RouteInput<'_>,
        used: &CompiledRoute,
    ) -> Vec<&HeaderName> {
        if !self.look_at_fields {
            return Vec::new();
        }
        let routes = self.listed.iter().take(used.place + 1).filter(|route| !route.deny);
        let fits = |route: &&Arc<CompiledRoute>| {
            !route.headers.is_empty() && route.fits_but_for_fields(request).is_some()
        };
        let mut names: Vec<&HeaderName> = Vec::new();
        for condition in routes.filter(fits).flat_map(|route| &route.headers) {
            if !names.contains(&&condition.name) {
                names.push(&condition.name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use ::http::header::USER_AGENT;
    use ::http::{HeaderMap, HeaderValue, Method};
    use anteroom_http::field_condition::FieldCondition;
    use anteroom_http::host_pattern::HostPattern;
    use anteroom_http::path::PathPattern;
    use anteroom_http::pattern::Pattern;
    use anteroom_http::query::QueryRule;

    use super::super::{QueryCondition, QueryValue};
    use super::*;
    use crate::rate_limit::Rate;

    static NO_FIELDS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

    #[test]
    fn a_required_login_is_no_matter_of_spelling() {
        let route = |path: &str, requires_login| Route {
            name: path.into(),
            paths: vec![PathPattern::parse(path).unwrap()],
            requires_login,
            ..Route::rest(false, QueryRule::default())
        };
        let routes = Routes::new(
            vec![
                route("/admin/log-in", Some(false)),
                route("/admin/public/**", None),
                route("/admin/**", Some(true)),
            ],
            Route::rest(false, QueryRule::default()),
            &[],
            &mut RateLimitBuilder::new(None),
        );
        let requires = |path: &str| {
            let decoded = path::decoded(path).unwrap_or_else(|| path.to_owned());
            routes.requiring_login(&request(&decoded, ""), path).is_some()
        };
        for path in [
            "/admin",
            "/admin/x",
            "/admin/public/x",
            "/Admin/x",
            "/admin;a/x",
            "//admin",
            "/a/../b",
            "/%61dmin",
        ] {
            assert!(requires(path), "{path}");
        }
        for path in ["/", "/admin/log-in", "/other", "/administrator"] {
            assert!(!requires(path), "{path}");
        }
        let head = RouteInput { method: &Method::HEAD, ..request("/admin", "") };
        assert!(routes.requiring_login(&head, "/admin").is_some());
    }

    fn request<'a>(path: &'a str, query: &'a str) -> RouteInput<'a> {
        RouteInput { method: &Method::GET, host: "shop.test", path, query, headers: &NO_FIELDS }
    }

    fn having(name: &str, value: QueryValue) -> QueryCondition {
        QueryCondition::Parameters(vec![(name.to_owned(), value)])
    }

    fn routes() -> Routes {
        let route =
            |name: &str| Route { name: name.into(), ..Route::rest(false, QueryRule::default()) };
        let pattern = |text: &str| PathPattern::parse(text).unwrap();
        Routes::new(
            vec![
                Route { paths: vec![pattern("/item/{item}")], ..route("item") },
                Route {
                    paths: vec![pattern("/view")],
                    query: having("id", QueryValue::Item),
                    ..route("view")
                },
                Route { query: having("p", QueryValue::Exactly("a b".into())), ..route("p") },
                Route { methods: vec![Method::POST], ..route("post") },
                Route { hosts: vec![HostPattern::parse("blog.test").unwrap()], ..route("blog") },
            ],
            route("rest"),
            &[],
            &mut RateLimitBuilder::new(None),
        )
    }

    #[test]
    fn the_first_route_that_fits_wins_and_names_the_item() {
        let routes = routes();
        for (path, query, name, item) in [
            ("/item/mug", "", "item", Some("mug")),
            ("/item/mug/more", "", "rest", None),
            ("/view", "x=1&id=caf%C3%A9", "view", Some("café")),
            ("/view", "", "rest", None),
            ("/any", "p=a%20b", "p", None),
            ("/any", "p=c", "rest", None),
        ] {
            let (route, found) = routes.find(&request(path, query));
            assert_eq!(&*route.name, name, "{path}?{query}");
            assert_eq!(found.as_ref().map(Item::as_str), item, "{path}?{query}");
        }
    }

    #[test]
    fn a_guard_applies_to_any_spelling_of_its_path() {
        let pattern = |text: &str| PathPattern::parse(text).unwrap();
        let net = |text: &str| vec![text.parse().unwrap()];
        let all = || ["0.0.0.0/0", "::/0"].map(|net| net.parse().unwrap()).to_vec();
        let route = || Route::rest(false, QueryRule::default());
        let routes = Routes::new(
            vec![
                Route { query: having("p", QueryValue::Item), ..route() },
                Route { paths: vec![pattern("/admin/open")], allow_from: all(), ..route() },
                Route {
                    paths: vec![pattern("/admin/**")],
                    allow_from: net("10.0.0.0/8"),
                    ..route()
                },
                Route { paths: vec![pattern("/Panel/")], allow_from: net("10.0.0.0/8"), ..route() },
            ],
            route(),
            &[],
            &mut RateLimitBuilder::new(None),
        );
        for (target, query, is_guarded) in [
            ("/", "", false),
            ("/shop;x/admin", "", false),
            ("/administration", "", false),
            ("/admin/open", "", false),
            ("/admin", "", true),
            ("/admin/", "", true),
            ("/admin/x", "p=1", true),
            ("/ADMIN/x", "", true),
            ("/admin;x=1/y", "", true),
            ("/admin/open;x/y", "", true),
            ("/%61dmin", "", true),
            ("//admin", "", true),
            ("/a/../admin", "", true),
            ("/a/..;/admin", "", true),
            ("/a%2f..%2fadmin", "", true),
            ("/%2561dmin/%252e", "", true),
            ("/%2561dmin/x", "", true),
            ("/panel", "", true),
            ("/Panel", "", true),
            ("/panel/", "", true),
            ("/panel;x", "", true),
            ("/panel/x", "", false),
            ("/a\\..\\admin", "", true),
        ] {
            let path = path::decoded(target).unwrap();
            let request = request(&path, query);
            for (address, expected) in
                [(None, !is_guarded), (Some("192.0.2.1"), !is_guarded), (Some("10.0.0.1"), true)]
            {
                let may_come =
                    routes.may_come(&request, target, address.map(|text| text.parse().unwrap()));
                let expected = expected && !(address.is_none() && path == "/admin/open");
                assert_eq!(may_come, expected, "{target} {address:?}");
            }
        }
    }

    fn route() -> Route {
        Route::rest(false, QueryRule::default())
    }

    fn at(path: &str) -> Route {
        Route { name: path.into(), paths: vec![PathPattern::parse(path).unwrap()], ..route() }
    }

    fn agent(condition: &str) -> Vec<FieldCondition> {
        vec![FieldCondition::parse(USER_AGENT, condition).unwrap()]
    }

    fn sent_by(agent: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))])
    }

    fn compiled(listed: Vec<Route>) -> Routes {
        Routes::new(listed, route(), &[], &mut RateLimitBuilder::new(None))
    }

    #[test]
    fn fields_and_the_presence_of_a_query_choose_a_route() {
        let routes = compiled(vec![
            Route { name: "bots".into(), headers: agent("~ (?i)bot"), ..route() },
            Route { name: "query".into(), query: QueryCondition::Any, ..route() },
            Route { name: "plain".into(), query: QueryCondition::None, ..at("/a") },
        ]);
        let [bot, browser] = ["GPTBot/1.2", "Mozilla/5.0"].map(sent_by);
        for (path, query, headers, name) in [
            ("/a", "", &bot, "bots"),
            ("/a", "b=1", &bot, "bots"),
            ("/a", "", &browser, "plain"),
            ("/a", "b=1", &browser, "query"),
            ("/b", "", &browser, "default"),
        ] {
            let asked = RouteInput { headers, ..request(path, query) };
            let found = routes.find(&asked).0;
            assert_eq!(&*found.name, name, "{path}?{query}");
            let names: Vec<&str> =
                routes.choosing_fields(&asked, found).into_iter().map(HeaderName::as_str).collect();
            assert_eq!(names, ["user-agent"], "each of them could have been the other's");
        }
        assert!(routes.look_at_fields() && !compiled(vec![at("/a")]).look_at_fields());
    }

    #[test]
    fn an_ignored_parameter_chooses_no_route_and_avoids_none_that_guards() {
        let ignore = vec![Pattern::parse("utm_*").unwrap()];
        let rule = QueryRule { ignore, keep: None };
        let by_query =
            |path: &str, query, deny| Route { query, deny, query_rule: rule.clone(), ..at(path) };
        let routes = compiled(vec![
            by_query("/shop", QueryCondition::Any, false),
            by_query("/list", QueryCondition::None, false),
            by_query("/search", QueryCondition::Any, true),
            by_query("/top", QueryCondition::None, true),
        ]);
        for (path, query, name, is_denied) in [
            ("/shop", "a=1", "/shop", false),
            ("/shop", "a=1&utm_x=1", "/shop", false),
            ("/shop", "utm_x=1", "default", false),
            ("/list", "utm_x=1", "/list", false),
            ("/list", "a=1", "default", false),
            ("/search", "", "default", false),
            ("/search", "utm_x=1", "default", true),
            ("/top", "", "/top", true),
            ("/top", "utm_x=1", "/top", true),
            ("/top", "a=1", "default", false),
        ] {
            let asked = request(path, query);
            let text = format!("{path}?{query}");
            assert_eq!(&*routes.find(&asked).0.name, name, "{text}");
            assert_eq!(routes.denying(&asked, path).is_some(), is_denied, "{text}");
        }
    }

    #[test]
    fn an_ambiguous_head_is_denied_and_counted_as_a_get() {
        let one = std::num::NonZeroU32::MIN;
        let rate = Rate { requests: one, per: std::time::Duration::from_secs(1), burst: one };
        let get = || vec![Method::GET];
        let routes = compiled(vec![
            Route { deny: true, methods: get(), ..at("/old/**") },
            Route {
                query: QueryCondition::Any,
                methods: get(),
                requests_per_address: Some(rate),
                ..route()
            },
        ]);
        for (method, applies) in [(Method::GET, 1), (Method::HEAD, 1), (Method::POST, 0)] {
            let asked = RouteInput { method: &method, ..request("//old/a", "b=1") };
            assert_eq!(usize::from(routes.denying(&asked, "//old/a").is_some()), applies);
            assert_eq!(routes.limits(&asked, "//old/a").len(), applies, "{method}");
        }
    }

    #[test]
    fn a_limit_by_query_is_counted_beside_that_of_the_url() {
        let one = std::num::NonZeroU32::MIN;
        let rate =
            || Some(Rate { requests: one, per: std::time::Duration::from_secs(1), burst: one });
        let routes = compiled(vec![
            at("/robots.txt"),
            Route { query: QueryCondition::Any, requests_per_address: rate(), ..route() },
            Route { requests_per_address: rate(), ..at("/login") },
        ]);
        for (path, query, expected) in [
            ("/", "", 0),
            ("/", "x", 1),
            ("/login", "", 1),
            ("/login", "x", 2),
            ("/Login;a", "x", 2),
            ("/robots.txt", "x", 0),
            ("//a", "", 1),
            ("//a", "x", 2),
        ] {
            assert_eq!(
                routes.limits(&request(path, query), path).len(),
                expected,
                "{path}?{query}"
            );
        }
    }

    #[test]
    fn a_denial_by_query_is_watched_and_one_by_fields_alone_is_not() {
        let by_query = Route { deny: true, query: QueryCondition::Any, ..route() };
        let by_fields = Route { deny: true, headers: agent("~ bot"), ..route() };
        assert!(by_query.is_watched() && !by_fields.is_watched());
    }

    #[test]
    fn a_field_with_one_value_is_keyed() {
        let routes = compiled(vec![
            Route { headers: agent("curl/8"), ..at("/a") },
            Route { headers: agent("curl/*"), ..at("/b") },
        ]);
        let keyed: Vec<usize> = routes.listed().map(|route| route.key_headers.len()).collect();
        assert_eq!(keyed, [1, 0]);
    }

    #[test]
    fn a_denial_applies_to_any_spelling_and_no_query_or_field_avoids_it() {
        let routes = compiled(vec![
            Route { query: QueryCondition::Any, ..route() },
            Route { headers: agent("a*"), ..route() },
            at("/old/open"),
            Route { deny: true, ..at("/old/**") },
            Route { name: "bots".into(), deny: true, headers: agent("~ bot"), ..at("/**") },
        ]);
        let [bot, browser] = ["bot", "a browser"].map(sent_by);
        for (target, query, denied, denied_to_bots) in [
            ("/", "", None, Some("bots")),
            ("/", "b=1", None, Some("bots")),
            ("/old", "", Some("/old/**"), Some("/old/**")),
            ("/old/a", "b=1", Some("/old/**"), Some("/old/**")),
            ("/OLD/a", "", Some("/old/**"), Some("bots")),
            ("//old", "", Some("/old/**"), Some("/old/**")),
            ("/old/open", "", None, None),
        ] {
            let path = path::decoded(target).unwrap();
            for (headers, expected) in [(&browser, denied), (&bot, denied_to_bots)] {
                for method in [Method::GET, Method::HEAD, Method::POST] {
                    let asked = RouteInput { headers, method: &method, ..request(&path, query) };
                    let found = routes.denying(&asked, target).map(|route| &*route.name);
                    assert_eq!(found, expected, "{method} {target}?{query}");
                }
            }
        }
        assert!(compiled(vec![at("/a")]).denying(&request("//a", ""), "//a").is_none());
    }

    #[test]
    fn a_limit_by_fields_is_counted_beside_that_of_the_url() {
        let one = std::num::NonZeroU32::MIN;
        let rate =
            || Some(Rate { requests: one, per: std::time::Duration::from_secs(1), burst: one });
        let routes = compiled(vec![
            at("/robots.txt"),
            Route { headers: agent("~ bot"), requests_per_address: rate(), ..route() },
            Route { requests_per_address: rate(), ..at("/login") },
        ]);
        let [bot, browser] = ["bot", "a browser"].map(sent_by);
        for (path, of_browser, of_bot) in [
            ("/", 0, 1),
            ("/login", 1, 2),
            ("/Login;a", 1, 2),
            ("//a", 1, 2),
            ("/robots.txt", 0, 0),
        ] {
            for (headers, expected) in [(&browser, of_browser), (&bot, of_bot)] {
                let asked = RouteInput { headers, ..request(path, "") };
                assert_eq!(routes.limits(&asked, path).len(), expected, "{path}");
            }
        }
    }

    #[test]
    fn an_override_leaves_out_any_spelling_of_a_path() {
        let none = |path: &str| Route { share: Share::None, ..at(path) };
        let ttl = Some(std::time::Duration::from_secs(60));
        let routes = compiled(vec![
            at("/account/help"),
            none("/Account/**"),
            Route { override_ttl: ttl, ..at("/open/**") },
            none("/login"),
            none("/Open/late"),
            Route { query: QueryCondition::Any, ..none("/list") },
            Route { override_ttl: ttl, ..at("/**") },
            none("/late"),
        ]);
        for (target, name, is_stored) in [
            ("/", "/**", true),
            ("/news/7", "/**", true),
            ("/accounts", "/**", true),
            ("/list", "/**", true),
            ("/LIST", "/**", true),
            ("/account/help", "/account/help", true),
            ("/open/late", "/open/**", true),
            ("/OPEN/late", "/**", false),
            ("/late", "/**", true),
            ("/Account/x", "/Account/**", false),
            ("/login", "/login", false),
            ("/account/x", "/**", false),
            ("/ACCOUNT", "/**", false),
            ("/%61ccount/x", "/**", false),
            ("/%2561ccount/x", "/**", false),
            ("/account;a=1/x", "/**", false),
            ("/Account/Help", "/Account/**", false),
            ("/login/", "/**", false),
            ("/login;a=1", "/**", false),
            ("/Login.", "/**", false),
            ("/login%20", "/**", false),
        ] {
            let path = path::decoded(target).unwrap();
            for method in [Method::GET, Method::HEAD] {
                let asked = RouteInput { method: &method, ..request(&path, "") };
                let found = routes.find(&asked).0;
                assert_eq!(&*found.name, name, "{method} {target}");
                assert_eq!(found.share != Share::None, is_stored, "{method} {target}");
                assert_eq!(found.override_ttl, ttl.filter(|_| is_stored && name.ends_with("/**")));
            }
        }
        let found = routes.find(&request("/list", "utm=1")).0;
        assert_eq!((&*found.name, found.share), ("/list", Share::None));
    }

    #[test]
    fn methods_and_hosts_choose_a_route() {
        let routes = routes();
        let post = RouteInput { method: &Method::POST, ..request("/", "") };
        assert_eq!(&*routes.find(&post).0.name, "post");
        let blog = RouteInput { host: "blog.test", ..request("/", "") };
        assert_eq!(&*routes.find(&blog).0.name, "blog");
    }
}
