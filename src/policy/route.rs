//! Routes: which rule of the configuration a request falls under, and the item that it names.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, Method};
use ipnet::IpNet;

use crate::http::path::{self, Branch, PathPattern};
use crate::http::peer::is_in;
use crate::http::query;
use crate::http::selector::Selector;
use crate::http::template::Template;
use crate::ident::Item;
use crate::policy::rate_limit::Limits;

/// With whom a route's pages may be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Visitors without a login.
    Anonymous,
    /// All visitors.
    Everyone,
    /// Visitors of one segment; those without a login are one for themselves.
    Segment,
    /// One visitor, in one session.
    User,
    /// Nobody: never stored.
    None,
}

/// By what the pages of a route with [`Share::Segment`] may differ, beside its keyed cookies and fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Attributes of users.
    pub attributes: Vec<String>,
    /// The visitor's language, among these; empty: whichever it is. `None`: they do not differ by it.
    pub language: Option<Vec<String>>,
    /// Whether a page is believed to be the segment's without two users having been given the same.
    pub is_promised: bool,
}

/// What becomes of a page that sets cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetCookie {
    /// It is not stored.
    Keep,
    /// It is stored without them, where it was fetched for visitors without a login.
    StripForAnonymous,
}

/// What the leak guard looks for in a page that is about to be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeakGuard {
    /// Marks of forms and links, and what is the visitor's own for whom it was fetched.
    Full,
    /// Marks of forms and links.
    Marks,
    /// Nothing.
    Off,
}

/// A rule for some requests. The default one fits all that no other fits.
#[derive(Clone, Debug)]
pub struct Route {
    /// For logs.
    pub name: Arc<str>,
    /// Path patterns; empty: any path.
    pub paths: Vec<PathPattern>,
    /// Lower-case `host` or `host:port`; empty: any.
    pub hosts: Vec<String>,
    /// Methods; empty: any.
    pub methods: Vec<Method>,
    /// Query parameters that must be there.
    pub query: Vec<(String, QueryValue)>,
    /// With whom pages may be shared.
    pub share: Share,
    /// Who is of one segment.
    pub segment: Segment,
    /// Lifetime where the origin is silent.
    pub ttl: Option<Duration>,
    /// Lifetime instead of the origin's word.
    pub override_ttl: Option<Duration>,
    /// Whether `private` is taken like no-cache, and so overridden.
    pub override_private: bool,
    /// For how long a stale page is served while it is fetched anew, where the origin does not say;
    /// `None`: as the whole cache does.
    pub stale_while_revalidate: Option<Duration>,
    /// The same while the origin fails.
    pub stale_if_error: Option<Duration>,
    /// Only pages of the items that are viewed most are kept: this many.
    pub only_top: Option<u64>,
    /// Whether the origin's `public` is believed for visitors with a login, too.
    pub trust_public: bool,
    /// What becomes of pages that set cookies.
    pub set_cookie: SetCookie,
    /// Cookies that a fill may lose.
    pub strip_set_cookie: Vec<String>,
    /// What the leak guard looks for.
    pub leak_guard: LeakGuard,
    /// Cookies that are part of the key.
    pub key_cookies: Vec<String>,
    /// Request fields that are part of the key.
    pub key_headers: Vec<HeaderName>,
    /// Request fields that a fill sends beside the usual ones.
    pub send_headers: Vec<HeaderName>,
    /// Softly purged by an unsafe request that succeeds.
    pub purges: Vec<Branch>,
    /// The elements of its pages that are filled for each visitor.
    pub fragments: Vec<Fragment>,
    /// Whether the tags of ESI in its answers are carried out.
    pub esi: Esi,
    /// Whether visitors without a login are given a token of their own, when there is something to remember.
    pub visitor_token: bool,
    /// The source of rows from which it is answered.
    pub rows: Option<Arc<str>>,
    /// The origin that is asked, by its place among all.
    pub origin: usize,
    /// That origin in the keys of pages, so that pages of two never meet: `""` is the first.
    pub site: Arc<str>,
    /// The networks of those who are served; empty: the route says nothing of it.
    pub allow_from: Vec<IpNet>,
    /// How many requests it takes.
    pub limits: Limits,
}

/// Elements of a route's pages that are filled for each visitor.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Which elements.
    pub selector: Selector,
    /// With what.
    pub fill: Fill,
    /// With whom that may be shared, instead of what its own route says.
    pub share: Option<Share>,
    /// What is shown where it fails; `None`: what the page has there.
    pub fallback: Option<Arc<str>>,
    /// Whether only for visitors with a cookie that may mean a person: others see what the page has there.
    pub only_sessions: bool,
}

/// What an element is filled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The answer to a request for this target, for the visitor.
    From(Arc<str>),
    /// The user's name.
    User,
    /// How many things are in the cart.
    CartCount,
    /// The items viewed last, each by this template.
    Recent(Template),
}

/// When the tags of ESI are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Esi {
    /// Never.
    #[default]
    Off,
    /// Where the app says so: `Surrogate-Control: content="ESI/1.0"`.
    Said,
    /// In every text.
    Always,
}

/// What a query parameter must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryValue {
    /// Exactly this, after percent-decoding.
    Exactly(String),
    /// Anything: it names the item.
    Item,
}

impl Route {
    /// The route of requests that no other fits.
    #[must_use]
    pub fn rest(trust_public: bool) -> Self {
        Self {
            name: "default".into(),
            paths: Vec::new(),
            hosts: Vec::new(),
            methods: Vec::new(),
            query: Vec::new(),
            share: Share::Anonymous,
            segment: Segment::default(),
            ttl: None,
            override_ttl: None,
            override_private: false,
            stale_while_revalidate: None,
            stale_if_error: None,
            only_top: None,
            trust_public,
            set_cookie: SetCookie::Keep,
            strip_set_cookie: Vec::new(),
            leak_guard: LeakGuard::Full,
            key_cookies: Vec::new(),
            key_headers: Vec::new(),
            send_headers: Vec::new(),
            purges: Vec::new(),
            fragments: Vec::new(),
            esi: Esi::Off,
            visitor_token: false,
            rows: None,
            origin: 0,
            site: "".into(),
            allow_from: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Whether a cookie is part of the key.
    #[must_use]
    pub fn keys_cookie(&self, name: &[u8]) -> bool {
        self.key_cookies.iter().any(|keyed| keyed.as_bytes() == name)
    }

    /// Whether something on its pages is filled in for each visitor.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        !self.fragments.is_empty() || self.esi != Esi::Off
    }

    /// The same route for what fills a hole in a page of `page`, which says with whom it is shared. The
    /// segment is the page's; what was promised of the page is promised of nothing else.
    #[must_use]
    pub fn shared_as(&self, share: Share, page: &Self) -> Self {
        let mut route = Self { share, ..self.clone() };
        if share == Share::Segment && self.share != Share::Segment {
            route.segment = Segment { is_promised: false, ..page.segment.clone() };
            let missing = page.key_cookies.iter().filter(|name| !self.key_cookies.contains(name));
            route.key_cookies.extend(missing.cloned());
        }
        route
    }

    /// `None` where the route does not fit; the item, if it names one.
    fn fits(&self, asked: &Asked<'_>) -> Option<Option<Item>> {
        self.fits_by(&self.paths, asked)
    }

    /// The same by other patterns than its own.
    fn fits_by(&self, paths: &[PathPattern], asked: &Asked<'_>) -> Option<Option<Item>> {
        if !self.methods.is_empty() && !self.methods.contains(asked.method) {
            return None;
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|host| host == asked.host) {
            return None;
        }
        let mut item = None;
        if !paths.is_empty() {
            let fit = paths.iter().find_map(|pattern| pattern.matches(asked.path))?;
            item = fit.item.and_then(Item::new);
        }
        for (name, value) in &self.query {
            let found = query::value(asked.query, name)?;
            match value {
                QueryValue::Exactly(wanted) if *wanted == found => {}
                QueryValue::Exactly(_) => return None,
                QueryValue::Item => item = Item::new(&found),
            }
        }
        Some(item)
    }
}

/// What a request asks for, as far as routes look at it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Method.
    pub method: &'a Method,
    /// Lower-case `host` or `host:port`.
    pub host: &'a str,
    /// The path, percent-decoded.
    pub path: &'a str,
    /// The query as it came, without `?`.
    pub query: &'a str,
}

impl<'a> Asked<'a> {
    /// The request, and where it is a HEAD the GET that it stands for: it is answered from that one's page.
    fn meanings(&self) -> impl Iterator<Item = Asked<'a>> + use<'a> {
        let get = (*self.method == Method::HEAD).then_some(Asked { method: &Method::GET, ..*self });
        [Some(*self), get].into_iter().flatten()
    }
}

/// A route that must be found in any spelling of its path.
#[derive(Clone, Debug)]
struct Watched {
    route: Arc<Route>,
    /// Its patterns for paths as they are read laxly.
    lax: Vec<PathPattern>,
}

impl Watched {
    fn new(route: &Arc<Route>) -> Self {
        let lax = route.paths.iter().map(PathPattern::laxly).collect();
        Self { route: Arc::clone(route), lax }
    }

    fn limits(&self) -> &Limits {
        &self.route.limits
    }

    fn fits(&self, asked: &Asked<'_>) -> bool {
        self.route.fits(asked).is_some()
    }

    /// `path` is the path as it is read laxly.
    fn fits_laxly(&self, asked: &Asked<'_>, path: &str) -> bool {
        self.route.fits_by(&self.lax, &Asked { path, ..*asked }).is_some()
    }
}

fn is_limited(route: &Arc<Route>) -> bool {
    !route.limits.is_none()
}

/// Whether the origin may take a path for any other: `target` is the path as it came.
fn may_be_any(asked: &Asked<'_>, target: &str) -> bool {
    path::is_odd(target) || path::has_encoding_left(asked.path)
}

/// All routes, in order.
#[derive(Clone, Debug)]
pub struct Routes {
    listed: Vec<Arc<Route>>,
    /// Those with `allow_from`.
    guarded: Vec<Watched>,
    /// Those that say of a request whether a route counts it; none where none does.
    counting: Vec<Watched>,
    rest: Arc<Route>,
    keep_users: bool,
}

impl Routes {
    /// The first of `listed` that fits wins, else `rest`.
    #[must_use]
    pub fn new(listed: Vec<Route>, rest: Route) -> Self {
        let listed: Vec<_> = listed.into_iter().map(Arc::new).collect();
        let is_guarded = |route: &&Arc<Route>| !route.allow_from.is_empty();
        let guarded = listed.iter().filter(is_guarded).map(Watched::new).collect();
        // What a parameter of the query takes to another route, a client takes there as he likes.
        let counts = |route: &&Arc<Route>| is_limited(route) || route.query.is_empty();
        let counting = if listed.iter().any(is_limited) {
            listed.iter().filter(counts).map(Watched::new).collect()
        } else {
            Vec::new()
        };
        let keeps_users = |route: &Arc<Route>| {
            let fills = route.fragments.iter().filter_map(|fragment| fragment.share);
            fills.chain([route.share]).any(|share| share == Share::User)
        };
        let keep_users = listed.iter().any(keeps_users);
        Self { listed, guarded, counting, rest: Arc::new(rest), keep_users }
    }

    /// Whether some route keeps pages for one user each, or what fills holes in others.
    #[must_use]
    pub fn keep_users(&self) -> bool {
        self.keep_users
    }

    /// Whether some route serves only some.
    #[must_use]
    pub fn are_guarded(&self) -> bool {
        !self.guarded.is_empty()
    }

    /// Whether somebody may ask for this. The first route that fits and has `allow_from` decides, whatever
    /// route is used else: a parameter of the query that another route waits for opens nothing. The origin
    /// may read a path otherwise than we do: with `target`, the path as it came, a path that could mean
    /// any other is for those who may have all, and what a lax origin reads must be allowed, too. Who asks
    /// by HEAD asks for what GET shows, and must be allowed that.
    #[must_use]
    pub fn may_come(&self, asked: &Asked<'_>, target: &str, address: Option<IpAddr>) -> bool {
        if self.guarded.is_empty() {
            return true;
        }
        asked.meanings().all(|asked| self.allows(&asked, target, address))
    }

    fn allows(&self, asked: &Asked<'_>, target: &str, address: Option<IpAddr>) -> bool {
        let allows = |watched: &Watched| is_in(address, &watched.route.allow_from);
        if may_be_any(asked, target) {
            return self.guarded.iter().all(allows);
        }
        let lax = path::as_read_laxly(asked.path);
        let strictly = self.guarded.iter().find(|watched| watched.fits(asked));
        let laxly = self.guarded.iter().find(|watched| watched.fits_laxly(asked, &lax));
        strictly.is_none_or(allows) && laxly.is_none_or(allows)
    }

    /// The limits of the routes by which a request is counted. It is the first route that fits, but for
    /// those without limits that wait for a parameter of the query; and where that has none, the first
    /// that fits what a lax origin reads. A path that could mean any other counts for all. A HEAD that
    /// no limit counts by its name is counted like the GET that it stands for.
    #[must_use]
    pub fn limits(&self, asked: &Asked<'_>, target: &str) -> Vec<&Limits> {
        if self.counting.is_empty() {
            return Vec::new();
        }
        let limited = |watched: &&Watched| is_limited(&watched.route);
        if may_be_any(asked, target) {
            return self.counting.iter().filter(limited).map(Watched::limits).collect();
        }
        let by = |asked: Asked<'_>| {
            let strictly =
                self.counting.iter().find(|watched| watched.fits(&asked)).filter(limited);
            strictly.or_else(|| {
                let lax = path::as_read_laxly(asked.path);
                let laxly = self.counting.iter().find(|watched| watched.fits_laxly(&asked, &lax));
                laxly.filter(limited)
            })
        };
        asked.meanings().find_map(by).map(Watched::limits).into_iter().collect()
    }

    /// The route of a request, and the item that it names.
    #[must_use]
    pub fn find(&self, asked: &Asked<'_>) -> (&Arc<Route>, Option<Item>) {
        self.listed
            .iter()
            .find_map(|route| route.fits(asked).map(|item| (route, item)))
            .unwrap_or((&self.rest, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(path: &'a str, query: &'a str) -> Asked<'a> {
        Asked { method: &Method::GET, host: "shop.test", path, query }
    }

    fn routes() -> Routes {
        let route = |name: &str| Route { name: name.into(), ..Route::rest(false) };
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
                Route { hosts: vec!["blog.test".into()], ..route("blog") },
            ],
            route("rest"),
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
            let (route, found) = routes.find(&asked(path, query));
            assert_eq!(&*route.name, name, "{path}?{query}");
            assert_eq!(found.as_ref().map(Item::as_str), item, "{path}?{query}");
        }
    }

    #[test]
    fn a_guarded_path_is_for_those_who_are_allowed_in_any_spelling() {
        let pattern = |text: &str| PathPattern::parse(text).unwrap();
        let net = |text: &str| vec![text.parse().unwrap()];
        let all = || ["0.0.0.0/0", "::/0"].map(|net| net.parse().unwrap()).to_vec();
        let route = || Route::rest(false);
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
            let asked = asked(&path, query);
            for (address, expected) in
                [(None, !is_guarded), (Some("192.0.2.1"), !is_guarded), (Some("10.0.0.1"), true)]
            {
                let may_come =
                    routes.may_come(&asked, target, address.map(|text| text.parse().unwrap()));
                let expected = expected && !(address.is_none() && path == "/admin/open");
                assert_eq!(may_come, expected, "{target} {address:?}");
            }
        }
    }

    #[test]
    fn methods_and_hosts_choose_a_route() {
        let routes = routes();
        let post = Asked { method: &Method::POST, ..asked("/", "") };
        assert_eq!(&*routes.find(&post).0.name, "post");
        let blog = Asked { host: "blog.test", ..asked("/", "") };
        assert_eq!(&*routes.find(&blog).0.name, "blog");
    }
}
