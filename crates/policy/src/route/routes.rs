//! All routes, compiled: the route of a request, and the routes that may refuse or count it.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use anteroom_http::ident::Item;
use anteroom_http::path::{self, PathPattern};
use anteroom_http::peer::is_in;

use super::{Route, RouteInput, Segment, Share};
use crate::rate_limit::{Limiting, RequestLimits};

/// A route with everything derived from the whole plan.
#[derive(Clone, Debug)]
pub struct CompiledRoute {
    /// The rule. Its `segment` is empty unless `share` is `segment`; the segment's cookies are among its
    /// `key_cookies`.
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
    fn new(place: usize, mut rule: Route, origins: &[&str], limiting: &mut Limiting) -> Self {
        if rule.share == Share::Segment {
            let cookies = rule.segment.cookies.iter();
            let missing = cookies.filter(|name| !rule.key_cookies.contains(name)).cloned();
            let missing: Vec<String> = missing.collect();
            rule.key_cookies.extend(missing);
        } else {
            rule.segment = Segment::default();
        }
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
}

/// A route that must match any spelling of its path.
#[derive(Clone, Debug)]
struct Watched {
    route: Arc<CompiledRoute>,
    /// Its patterns, for paths after lax decoding.
    lax: Vec<PathPattern>,
}

impl Watched {
    fn new(route: &Arc<CompiledRoute>) -> Self {
        let lax = route.paths.iter().map(PathPattern::laxly).collect();
        Self { route: Arc::clone(route), lax }
    }

    fn limits(&self) -> &RequestLimits {
        &self.route.limits
    }

    fn fits(&self, request: &RouteInput<'_>) -> bool {
        self.route.fits(request).is_some()
    }

    /// `path` is the path after lax decoding.
    fn fits_laxly(&self, request: &RouteInput<'_>, path: &str) -> bool {
        self.route.fits_by(&self.lax, &RouteInput { path, ..*request }).is_some()
    }
}

/// Whether the origin may read a path as any other; `target` is the path as received.
fn may_be_any(request: &RouteInput<'_>, target: &str) -> bool {
    path::is_odd(target) || path::has_encoding_left(request.path)
}

/// All routes, in order.
#[derive(Clone, Debug)]
pub struct Routes {
    listed: Vec<Arc<CompiledRoute>>,
    /// The routes with `allow_from`.
    guarded: Vec<Watched>,
    /// The routes with `require`; empty if none requires a login.
    login_guards: Vec<Watched>,
    /// The routes that decide whether a route counts a request; empty if none counts.
    counting: Vec<Watched>,
    rest: Arc<CompiledRoute>,
    keep_users: bool,
}

impl Routes {
    /// Compiles the routes of a plan: the first match in `listed` wins, otherwise `rest`. `origins` are
    /// the names of the `[origins.NAME]`, in order; `limiting` makes the limits.
    #[must_use]
    pub fn new(listed: Vec<Route>, rest: Route, origins: &[&str], limiting: &mut Limiting) -> Self {
        let mut compile =
            |(place, rule)| Arc::new(CompiledRoute::new(place, rule, origins, limiting));
        let listed: Vec<_> = listed.into_iter().enumerate().map(&mut compile).collect();
        let rest = compile((listed.len(), rest));
        let is_guarded = |route: &&Arc<CompiledRoute>| !route.allow_from.is_empty();
        let guarded = listed.iter().filter(is_guarded).map(Watched::new).collect();
        let requires_login = |route: &Arc<CompiledRoute>| route.requires_login == Some(true);
        let login_guards = if listed.iter().any(requires_login) {
            let says = |route: &&Arc<CompiledRoute>| route.requires_login.is_some();
            listed.iter().filter(says).map(Watched::new).collect()
        } else {
            Vec::new()
        };
        // A client can add or omit a query parameter, and so choose a route by it.
        let counts = |route: &&Arc<CompiledRoute>| route.is_limited() || route.query.is_empty();
        let counting = if listed.iter().any(|route| route.is_limited()) {
            listed.iter().filter(counts).map(Watched::new).collect()
        } else {
            Vec::new()
        };
        let keeps_users = |route: &Arc<CompiledRoute>| {
            let fills = route.fragments.iter().filter_map(|fragment| fragment.share);
            fills.chain([route.share]).any(|share| share == Share::User)
        };
        let keep_users = listed.iter().any(keeps_users);
        Self { listed, guarded, login_guards, counting, rest, keep_users }
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
        let allows = |watched: &Watched| is_in(address, &watched.route.allow_from);
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
        let requires = |watched: &&Watched| watched.route.requires_login == Some(true);
        if may_be_any(request, target) {
            return self.login_guards.iter().find(requires).map(|watched| &*watched.route);
        }
        let lax = path::as_read_laxly(request.path);
        let found = request.meanings().find_map(|request| {
            let strictly = self.login_guards.iter().find(|watched| watched.fits(&request));
            strictly.filter(requires).or_else(|| {
                let laxly =
                    self.login_guards.iter().find(|watched| watched.fits_laxly(&request, &lax));
                laxly.filter(requires)
            })
        });
        found.map(|watched| &*watched.route)
    }

    /// The limits that count a request. These are the limits of the first matching route; routes without
    /// limits that depend on a query parameter are skipped. If that route has none, the first match of the
    /// lax reading counts. A path that could mean any other counts for all. A HEAD without a limit of its
    /// own counts like the corresponding GET.
    #[must_use]
    pub fn limits(&self, request: &RouteInput<'_>, target: &str) -> Vec<&RequestLimits> {
        if self.counting.is_empty() {
            return Vec::new();
        }
        let limited = |watched: &&Watched| watched.route.is_limited();
        if may_be_any(request, target) {
            return self.counting.iter().filter(limited).map(Watched::limits).collect();
        }
        let by = |request: RouteInput<'_>| {
            let strictly =
                self.counting.iter().find(|watched| watched.fits(&request)).filter(limited);
            strictly.or_else(|| {
                let lax = path::as_read_laxly(request.path);
                let laxly = self.counting.iter().find(|watched| watched.fits_laxly(&request, &lax));
                laxly.filter(limited)
            })
        };
        request.meanings().find_map(by).map(Watched::limits).into_iter().collect()
    }

    /// The route of a request, and the item that it names.
    #[must_use]
    pub fn find(&self, request: &RouteInput<'_>) -> (&Arc<CompiledRoute>, Option<Item>) {
        self.listed
            .iter()
            .find_map(|route| route.fits(request).map(|item| (route, item)))
            .unwrap_or((&self.rest, None))
    }
}

#[cfg(test)]
mod tests {
    use ::http::Method;
    use anteroom_http::host_pattern::HostPattern;
    use anteroom_http::path::PathPattern;
    use anteroom_http::query::QueryRule;

    use super::super::QueryValue;
    use super::*;

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
            &mut Limiting::new(None),
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
        RouteInput { method: &Method::GET, host: "shop.test", path, query }
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
                    query: vec![("id".into(), QueryValue::Item)],
                    ..route("view")
                },
                Route {
                    query: vec![("p".into(), QueryValue::Exactly("a b".into()))],
                    ..route("p")
                },
                Route { methods: vec![Method::POST], ..route("post") },
                Route { hosts: vec![HostPattern::parse("blog.test").unwrap()], ..route("blog") },
            ],
            route("rest"),
            &[],
            &mut Limiting::new(None),
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
                Route { query: vec![("p".into(), QueryValue::Item)], ..route() },
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
            &mut Limiting::new(None),
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

    #[test]
    fn methods_and_hosts_choose_a_route() {
        let routes = routes();
        let post = RouteInput { method: &Method::POST, ..request("/", "") };
        assert_eq!(&*routes.find(&post).0.name, "post");
        let blog = RouteInput { host: "blog.test", ..request("/", "") };
        assert_eq!(&*routes.find(&blog).0.name, "blog");
    }
}
