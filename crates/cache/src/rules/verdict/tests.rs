//! Tables of cases for `can_cache` and `may_store`. Each row states only what differs from an anonymous
//! visitor's plain GET of `/`, answered with an HTML page without cache directives.

use ::http::HeaderValue;
use anteroom_http::field_set::FieldSet;
use anteroom_http::query::QueryRule;
use anteroom_policy::route::Ttl;

use super::*;

const NOW: u64 = 784_111_777;
/// [`NOW`] as a date, and one hour before and after it.
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const NEXT_HOUR: &str = "Sun, 06 Nov 1994 09:49:37 GMT";
const LAST_HOUR: &str = "Sun, 06 Nov 1994 07:49:37 GMT";

const POLICY: CacheSettings = CacheSettings {
    default_ttl: Duration::from_secs(300),
    stale_while_revalidate: Duration::ZERO,
    stale_if_error: Duration::from_secs(3600),
    static_for_all: true,
    max_object: 1_000,
    client_directives: false,
};

type Lines<'a> = &'a [(&'a str, &'a str)];

fn fields(lines: Lines<'_>) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    };
    let mut fields = HeaderMap::new();
    for (name, value) in lines.iter().map(field) {
        fields.append(name, value);
    }
    fields
}

fn rest(trust_public: bool) -> Route {
    Route::rest(trust_public, QueryRule::default())
}

fn ttl(seconds: u64) -> Ttl {
    Ttl::all(Duration::from_secs(seconds))
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// A request: an anonymous visitor's plain GET of `target`.
fn get<'a>(target: &'a str, headers: &'a HeaderMap) -> RequestView<'a> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    RequestView {
        method: &Method::GET,
        path,
        query,
        headers,
        fields: FieldSet::of(headers),
        has_body: false,
        bound: false,
        who: Sharing::Anonymous,
    }
}

/// A response, and the fill that it belongs to.
#[derive(Clone)]
struct Case {
    target: &'static str,
    sent: HeaderMap,
    class: ShareClass,
    status: u16,
    headers: HeaderMap,
    length: Option<u64>,
    unframed: bool,
    age: u64,
    route: Route,
    policy: CacheSettings,
}

impl Case {
    /// A 200 with exactly these fields.
    fn with(lines: Lines<'_>) -> Self {
        Self {
            target: "/",
            sent: HeaderMap::new(),
            class: ShareClass::Anonymous,
            status: 200,
            headers: fields(lines),
            length: Some(5),
            unframed: false,
            age: 0,
            route: rest(false),
            policy: POLICY,
        }
    }

    /// An HTML page with these additional fields.
    fn html(lines: Lines<'_>) -> Self {
        Self::typed("text/html; charset=utf-8", lines)
    }

    fn typed(kind: &str, lines: Lines<'_>) -> Self {
        Self::with(&[&[("content-type", kind)], lines].concat())
    }

    fn verdict(&self) -> Result<Storing, Reason> {
        let answer = ResponseView {
            status: StatusCode::from_u16(self.status).unwrap(),
            headers: &self.headers,
            length: self.length,
            unframed: self.unframed,
            age: self.age,
            now: NOW,
        };
        let request = get(self.target, &self.sent);
        may_store(&request, self.class, &answer, &self.route, &self.policy)
    }

    /// The lifetime and its source.
    fn lifetime(&self) -> Result<(u64, LifetimeSource), Reason> {
        self.verdict().map(|storing| (storing.lifetime, storing.source))
    }

    #[track_caller]
    fn is_refused(&self, reason: Reason) {
        assert_eq!(self.lifetime(), Err(reason), "{} {:?}", self.status, self.headers);
    }

    #[track_caller]
    fn is_stored(&self, lifetime: u64, source: LifetimeSource) {
        assert_eq!(self.lifetime(), Ok((lifetime, source)), "{} {:?}", self.status, self.headers);
    }
}

mod asking {
    use super::*;

    /// The access of an anonymous visitor's GET of `target` with these fields on a plain route.
    fn access(target: &str, lines: Lines<'_>) -> Access {
        can_cache(&get(target, &fields(lines)), &rest(false), &POLICY)
    }

    const ANONYMOUS: Access = Access::Shared(ShareClass::Anonymous);
    const LOGIN: &[(&str, &str)] = &[("authorization", "Basic YWxpY2U6")];

    /// The reasons why a visitor may be unknown.
    const UNKNOWN: [Sharing; 4] = [
        Sharing::Unknown(Reason::UnknownToken),
        Sharing::Unknown(Reason::StoreAway),
        Sharing::Unknown(Reason::BadSessionCookie),
        Sharing::Unknown(Reason::UnknownCookie),
    ];

    /// The reasons why a known visitor may be excluded from the segment.
    const APART: [Sharing; 3] = [
        Sharing::Apart(Reason::Unconfirmed),
        Sharing::Apart(Reason::UnknownCookie),
        Sharing::Apart(Reason::ClientCertificate),
    ];

    fn everybody() -> impl Iterator<Item = Sharing> {
        [Sharing::Anonymous, Sharing::Known].into_iter().chain(APART).chain(UNKNOWN)
    }

    /// The verdict for each kind of visitor, with and without Authorization.
    fn for_each(route: &Route, policy: &CacheSettings, expected: impl Fn(Sharing, bool) -> Access) {
        for who in everybody() {
            for authorized in [false, true] {
                let headers = fields(if authorized { LOGIN } else { &[] });
                let request = RequestView { who, ..get("/", &headers) };
                let found = can_cache(&request, route, policy);
                assert_eq!(found, expected(who, authorized), "{who:?}, {authorized}, {route:?}");
            }
        }
    }

    /// The reason why a visitor does not count as anonymous, if there is one.
    fn not_a_stranger(who: Sharing, authorized: bool) -> Option<Reason> {
        match who {
            Sharing::Anonymous => authorized.then_some(Reason::Authorization),
            Sharing::Known | Sharing::Apart(_) => Some(Reason::Login),
            Sharing::Unknown(reason) => Some(reason),
        }
    }

    #[test]
    fn pages_for_strangers_go_to_strangers_and_what_is_static_to_all() {
        for_each(&rest(false), &POLICY, |who, authorized| {
            not_a_stranger(who, authorized).map_or(ANONYMOUS, Access::StaticOnly)
        });
    }

    #[test]
    fn without_static_for_all_only_strangers_are_served() {
        let policy = CacheSettings { static_for_all: false, ..POLICY };
        for_each(&rest(false), &policy, |who, authorized| {
            not_a_stranger(who, authorized).map_or(ANONYMOUS, Access::Bypass)
        });
    }

    #[test]
    fn where_public_is_believed_others_have_a_class_of_their_own() {
        for static_for_all in [false, true] {
            let policy = CacheSettings { static_for_all, ..POLICY };
            for_each(&rest(true), &policy, |who, authorized| {
                let public = Access::Shared(ShareClass::Public);
                not_a_stranger(who, authorized).map_or(ANONYMOUS, |_| public)
            });
        }
    }

    #[test]
    fn pages_for_everyone_go_to_everyone() {
        for trust_public in [false, true] {
            let route = Route { share: Share::Everyone, ..rest(trust_public) };
            for_each(&route, &POLICY, |_, _| Access::Shared(ShareClass::Everyone));
        }
    }

    #[test]
    fn segment_pages_are_shared_by_segment_and_among_strangers() {
        for trust_public in [false, true] {
            let route = Route { share: Share::Segment, ..rest(trust_public) };
            for_each(&route, &POLICY, |who, authorized| match who {
                Sharing::Known if authorized => Access::StaticOnly(Reason::Authorization),
                Sharing::Known => Access::Shared(ShareClass::Segment),
                Sharing::Apart(reason) => Access::StaticOnly(reason),
                _ => not_a_stranger(who, authorized).map_or(ANONYMOUS, Access::StaticOnly),
            });
        }
    }

    #[test]
    fn user_pages_go_to_known_users_only() {
        for trust_public in [false, true] {
            let route = Route { share: Share::User, ..rest(trust_public) };
            for_each(&route, &POLICY, |who, authorized| match who {
                Sharing::Known | Sharing::Apart(_) if authorized => {
                    Access::Bypass(Reason::Authorization)
                }
                Sharing::Apart(reason @ Reason::ClientCertificate) => Access::Bypass(reason),
                Sharing::Known | Sharing::Apart(_) => Access::Shared(ShareClass::User),
                Sharing::Anonymous => Access::Bypass(Reason::NotLoggedIn),
                Sharing::Unknown(reason) => Access::Bypass(reason),
            });
        }
    }

    #[test]
    fn routes_without_sharing_bypass_the_cache() {
        for trust_public in [false, true] {
            let route = Route { share: Share::None, ..rest(trust_public) };
            for_each(&route, &POLICY, |_, _| Access::Bypass(Reason::Route));
        }
    }

    /// Routes of all kinds, including those that allow more than the default.
    fn generous_routes() -> [Route; 4] {
        let ttl = seconds(60);
        [
            Route {
                share: Share::Everyone,
                ttl: Ttl { usual: ttl, ..Ttl::default() },
                override_ttl: ttl,
                ..rest(false)
            },
            Route { override_ttl: ttl, override_private: true, ..rest(true) },
            Route { share: Share::None, ..rest(false) },
            rest(false),
        ]
    }

    #[track_caller]
    fn no_route_allows(request: &RequestView<'_>, reason: Reason) {
        for route in generous_routes() {
            let found = can_cache(request, &route, &POLICY);
            assert_eq!(found, Access::Bypass(reason), "{request:?}, {route:?}");
        }
    }

    #[test]
    fn only_get_and_head_are_for_the_cache() {
        let none = HeaderMap::new();
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE", "get"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            no_route_allows(&RequestView { method: &method, ..get("/", &none) }, Reason::Method);
        }
        let head = RequestView { method: &Method::HEAD, ..get("/", &none) };
        assert_eq!(can_cache(&head, &rest(false), &POLICY), ANONYMOUS);
    }

    #[test]
    fn a_body_or_a_bound_connection_is_never_for_the_cache() {
        let none = HeaderMap::new();
        no_route_allows(&RequestView { has_body: true, ..get("/", &none) }, Reason::RequestBody);
        no_route_allows(&RequestView { bound: true, ..get("/", &none) }, Reason::BoundConnection);
    }

    #[test]
    fn a_path_that_could_mean_another_is_never_for_the_cache() {
        let none = HeaderMap::new();
        for path in ["/a/../b", "/a%2fb", "/%2e%2e/a", "/a//b", "/a\\b", "/a%00", "/a%", "*"] {
            no_route_allows(&get(path, &none), Reason::OddPath);
        }
    }

    #[test]
    fn a_session_id_in_the_url_is_never_for_the_cache() {
        let none = HeaderMap::new();
        let who = Sharing::Unknown(Reason::SessionInUrl);
        no_route_allows(&RequestView { who, ..get("/cart", &none) }, Reason::SessionInUrl);
    }

    #[test]
    fn a_range_or_no_store_in_the_request_is_never_for_the_cache() {
        for (name, value, reason) in [
            ("if-match", "\"a\"", Reason::Condition),
            ("if-unmodified-since", NEXT_HOUR, Reason::Condition),
            ("cache-control", "no-store", Reason::RequestNoStore),
            ("cache-control", "max-age=0, No-Store", Reason::RequestNoStore),
        ] {
            no_route_allows(&get("/", &fields(&[(name, value)])), reason);
        }
    }

    #[test]
    fn other_words_of_the_request_change_nothing() {
        for (name, value) in [
            ("cache-control", "no-cache"),
            ("cache-control", "max-age=0"),
            ("pragma", "no-cache"),
            ("if-none-match", "\"1\""),
            ("if-modified-since", DATE),
            ("accept", "application/json"),
            ("x-forwarded-for", "192.0.2.1"),
            ("cookie", "_ga=1"),
        ] {
            assert_eq!(access("/", &[(name, value)]), ANONYMOUS, "{name}: {value}");
        }
    }

    #[test]
    fn a_fragment_is_for_the_cache_only_where_its_field_is_keyed() {
        for name in ["x-requested-with", "x-pjax", "hx-request", "x-inertia", "turbo-frame", "rsc"]
        {
            let headers = fields(&[(name, "1")]);
            no_route_allows(&get("/", &headers), Reason::Fragment);
            let key_headers = vec![name.parse().unwrap()];
            let keyed = Route { key_headers, ..rest(false) };
            assert_eq!(can_cache(&get("/", &headers), &keyed, &POLICY), ANONYMOUS, "{name}");
        }
    }

    #[test]
    fn a_keyed_fragment_field_speaks_for_itself_only() {
        let headers = fields(&[("hx-request", "true"), ("x-requested-with", "XMLHttpRequest")]);
        let keyed = Route { key_headers: vec!["hx-request".parse().unwrap()], ..rest(false) };
        let found = can_cache(&get("/", &headers), &keyed, &POLICY);
        assert_eq!(found, Access::Bypass(Reason::Fragment));
    }

    #[test]
    fn queries_that_get_no_lifetime_of_ours_are_still_looked_up() {
        // The origin may give such a page a lifetime. Only a configured lifetime is withheld.
        assert_eq!(access("/?token=9f3", &[]), ANONYMOUS);
    }
}

mod personal {
    use super::*;

    /// The classes whose pages contain no data of a single visitor.
    const ALL_CLASSES: [ShareClass; 3] =
        [ShareClass::Anonymous, ShareClass::Public, ShareClass::Everyone];

    /// Asserts that no class and no route stores this response.
    #[track_caller]
    fn is_not_shareable(case: &Case, reason: Reason) {
        for class in ALL_CLASSES {
            for route in [
                rest(false),
                Route { ttl: ttl(60), ..rest(false) },
                Route { override_ttl: seconds(60), override_private: true, ..rest(true) },
                Route { share: Share::Everyone, override_ttl: seconds(60), ..rest(false) },
            ] {
                Case { class, route, ..case.clone() }.is_refused(reason);
            }
        }
    }

    #[test]
    fn parts_and_interim_responses_are_never_stored() {
        for status in [100, 103, 206, 304] {
            let case = Case::html(&[("cache-control", "public, max-age=60")]);
            is_not_shareable(&Case { status, ..case }, Reason::Status);
        }
    }

    #[test]
    fn responses_with_fields_for_the_proxy_are_never_stored() {
        for name in ["anteroom-login", "anteroom-logout", "anteroom-item", "x-anteroom-user"] {
            let case = Case::html(&[("cache-control", "public, max-age=60"), (name, "1")]);
            is_not_shareable(&case, Reason::Anteroom);
        }
    }

    #[test]
    fn a_page_that_sets_a_cookie_is_never_stored() {
        for line in ["a=1", "a=; Max-Age=0", "=1", "a", ""] {
            let case = Case::html(&[("cache-control", "public, max-age=60"), ("set-cookie", line)]);
            is_not_shareable(&case, Reason::SetCookie);
        }
    }

    #[test]
    fn a_fill_may_lose_the_cookies_that_its_route_names_and_no_others() {
        let strip_set_cookie = vec!["JSESSIONID".into(), "b".into()];
        let named = Route { strip_set_cookie, key_cookies: vec!["lang".into()], ..rest(false) };
        for (lines, stored) in [
            (&["JSESSIONID=1; Path=/"][..], true),
            (&[" JSESSIONID =1"], true),
            (&["JSESSIONID=1", "b=2"], true),
            (&["jsessionid=1"], false),
            (&["JSESSIONIDX=1"], false),
            (&["JSESSIONID=1", "login=2"], false),
            (&["login=JSESSIONID"], false),
            // The fill did not carry this cookie, so clearing it tells nothing about the visitor.
            (&["JSESSIONID=1", "login=deleted; Max-Age=0"], true),
            (&["login=; Expires=Thu, 01 Jan 1970 00:00:01 GMT"], true),
            (&["login=deleted", "login=2"], false),
            (&["login=2; Max-Age=1"], false),
            (&["lang=deleted; Max-Age=0"], false),
        ] {
            let mut case = Case::html(&[]);
            case.route = named.clone();
            for line in lines {
                case.headers.append("set-cookie", HeaderValue::from_static(line));
            }
            let found = case.lifetime();
            let expected =
                if stored { Ok((300, LifetimeSource::Default)) } else { Err(Reason::SetCookie) };
            assert_eq!(found, expected, "{lines:?}");
        }
    }

    #[test]
    fn a_page_may_lose_all_its_cookies_where_a_stranger_s_may_and_it_is_one() {
        let strips = Route { set_cookie: SetCookie::StripForAnonymous, ..rest(false) };
        let html = ("content-type", "text/html");
        for (status, lines, expected) in [
            (200, &[html][..], Ok(LostCookies::All)),
            (200, &[("content-type", "text/css")], Ok(LostCookies::All)),
            (404, &[html, ("cache-control", "max-age=60")], Ok(LostCookies::All)),
            (200, &[("content-type", "image/png"), ("etag", "\"1\"")], Ok(LostCookies::All)),
            (200, &[("content-type", "image/png")], Err(Reason::SetCookie)),
            (200, &[("content-type", "application/json")], Err(Reason::SetCookie)),
            (200, &[], Err(Reason::SetCookie)),
            (301, &[html], Err(Reason::SetCookie)),
            (302, &[html, ("cache-control", "max-age=60")], Err(Reason::SetCookie)),
            (200, &[html, ("x-csrf-token", "1")], Err(Reason::CsrfField)),
            (200, &[html, ("cache-control", "private")], Err(Reason::Private)),
            (200, &[html, ("anteroom-login", "alice")], Err(Reason::Anteroom)),
        ] {
            let mut case = Case { status, route: strips.clone(), ..Case::with(lines) };
            case.headers.append("set-cookie", HeaderValue::from_static("PHPSESSID=1"));
            assert_eq!(
                case.verdict().map(|storing| storing.lost_cookies),
                expected,
                "{status} {lines:?}"
            );
            for class in ALL_CLASSES.into_iter().filter(|class| *class != ShareClass::Anonymous) {
                let case = Case { class, ..case.clone() };
                assert!(case.verdict().is_err(), "{class:?} {lines:?}");
            }
        }
    }

    #[test]
    fn a_private_page_is_stored_only_where_the_operator_knows_better() {
        let habit = Route { override_ttl: seconds(60), override_private: true, ..rest(true) };
        let only_ttl = Route { override_private: false, ..habit.clone() };
        for value in
            ["private", "private, max-age=60", "public, Private=\"a\"", "private, no-store"]
        {
            for class in ALL_CLASSES {
                let case = Case { class, ..Case::html(&[("cache-control", value)]) };
                case.is_refused(Reason::Private);
                Case { route: only_ttl.clone(), ..case.clone() }.is_refused(Reason::Private);
                let case = Case { route: habit.clone(), ..case };
                // Only the anonymous class is filled without any data of the visitor.
                if class == ShareClass::Anonymous {
                    case.is_stored(60, LifetimeSource::Override);
                } else {
                    case.is_refused(Reason::Private);
                }
            }
        }
    }

    #[test]
    fn no_store_and_no_cache_are_kept_unless_overridden() {
        let overridden = Route { override_ttl: seconds(60), ..rest(false) };
        for (value, reason) in [
            ("no-store", Reason::NoStore),
            ("no-store, public, max-age=60", Reason::NoStore),
            ("no-cache", Reason::NoCache),
            ("no-cache, max-age=60", Reason::NoCache),
            ("no-cache=\"set-cookie\", max-age=60", Reason::NoCache),
            ("No-Store, No-Cache, Must-Revalidate", Reason::NoStore),
        ] {
            let case = Case::html(&[("cache-control", value)]);
            case.is_refused(reason);
            Case { route: Route { ttl: ttl(60), ..rest(false) }, ..case.clone() }
                .is_refused(reason);
            Case { route: overridden.clone(), ..case }.is_stored(60, LifetimeSource::Override);
        }
    }

    #[test]
    fn for_visitors_with_a_login_the_response_must_allow_it() {
        for (value, stored) in [
            ("max-age=60", false),
            ("must-understand, max-age=60", false),
            ("max-age=60, public", true),
            ("s-maxage=60", true),
            // RFC 9111 §3.5 lists `must-revalidate` together with the other two.
            ("max-age=60, must-revalidate", true),
            ("max-age=60, proxy-revalidate", false),
        ] {
            let class = ShareClass::Public;
            let case = Case { class, ..Case::html(&[("cache-control", value)]) };
            let expected =
                if stored { Ok((60, LifetimeSource::Explicit)) } else { Err(Reason::Login) };
            assert_eq!(case.lifetime(), expected, "{value}");
            for class in [ShareClass::Anonymous, ShareClass::Everyone] {
                Case { class, ..case.clone() }.is_stored(60, LifetimeSource::Explicit);
            }
        }
        Case { class: ShareClass::Public, ..Case::html(&[]) }.is_refused(Reason::Login);
    }

    #[test]
    fn one_users_pages_may_be_private_and_never_no_store() {
        let case = |value| Case {
            class: ShareClass::User,
            route: Route { share: Share::User, ..rest(false) },
            ..Case::html(&[("cache-control", value), ("etag", "\"1\"")])
        };
        case("private, max-age=60").is_stored(60, LifetimeSource::Explicit);
        let overridden = |value| {
            let mut case = case(value);
            case.route.override_ttl = seconds(60);
            case
        };
        overridden("private, no-cache").is_stored(60, LifetimeSource::Override);
        for value in ["no-store", "private, no-store, max-age=60"] {
            case(value).is_refused(Reason::NoStore);
            overridden(value).is_refused(Reason::NoStore);
        }
        // A user's page is never validated with the user's session, so it is not kept for validation.
        case("private, no-cache").is_refused(Reason::NoCache);
        let mut silent = case("private");
        silent.is_refused(Reason::NoLifetime);
        silent.route.ttl = Ttl::all(Duration::from_secs(60));
        silent.is_stored(60, LifetimeSource::Route);
        assert!(!silent.verdict().unwrap().guarded, "it is the user's own");
        silent.headers.append("set-cookie", HeaderValue::from_static("a=1"));
        silent.is_refused(Reason::SetCookie);
    }

    #[test]
    fn a_segment_page_that_varies_by_cookie_needs_two_equal_answers() {
        let mut case = Case {
            class: ShareClass::Segment,
            route: Route { share: Share::Segment, ..rest(false) },
            ..Case::html(&[("vary", "Cookie"), ("last-modified", LAST_HOUR)])
        };
        case.is_stored(300, LifetimeSource::Default);
        assert!(case.verdict().unwrap().guarded);
        case.route.segment.is_promised = true;
        case.is_refused(Reason::Vary);
        case.headers.remove("vary");
        case.is_stored(300, LifetimeSource::Default);
        case.policy.default_ttl = Duration::ZERO;
        case.is_refused(Reason::NoLifetime);
        for (value, reason) in [
            ("private, max-age=60", Reason::Private),
            ("no-store", Reason::NoStore),
            ("no-cache", Reason::NoCache),
        ] {
            case.headers.insert("cache-control", HeaderValue::from_static(value));
            case.is_refused(reason);
        }
    }

    #[test]
    fn unframed_or_too_large_responses_are_never_stored() {
        let case = Case::html(&[("cache-control", "public, max-age=60")]);
        is_not_shareable(&Case { unframed: true, ..case.clone() }, Reason::Unframed);
        is_not_shareable(&Case { length: Some(1_001), ..case.clone() }, Reason::TooLarge);
        for length in [None, Some(0), Some(1_000)] {
            Case { length, ..case.clone() }.is_stored(60, LifetimeSource::Explicit);
        }
    }

    #[test]
    fn fields_have_a_bound_in_bytes() {
        let control = ("cache-control", "public, max-age=60");
        let beside = control.0.len() + control.1.len() + "x-long".len();
        let kept = |extra: Lines<'_>, length: usize| {
            let long = "x".repeat(length - beside);
            Case::with(&[&[control, ("x-long", &long)], extra].concat())
        };
        kept(&[], FIELDS_BYTES_MAX).is_stored(60, LifetimeSource::Explicit);
        let tags = "tag ".repeat(1_000);
        kept(&[("surrogate-key", &tags)], FIELDS_BYTES_MAX).is_stored(60, LifetimeSource::Explicit);
        is_not_shareable(&kept(&[], FIELDS_BYTES_MAX + 1), Reason::Fields);
        is_not_shareable(&kept(&[("x", "y")], FIELDS_BYTES_MAX), Reason::Fields);
    }

    #[test]
    fn a_page_varies_by_so_many_fields_and_no_more() {
        let names = |count| (0..count).map(|n| format!("x-{n}")).collect::<Vec<_>>().join(", ");
        let case = |count, more: Lines<'_>| {
            let vary = names(count);
            let lines = [("cache-control", "public, max-age=60"), ("vary", &*vary)];
            Case::html(&[&lines, more].concat())
        };
        let coded = [("content-encoding", "gzip")];
        case(16, &[]).is_stored(60, LifetimeSource::Explicit);
        case(15, &coded).is_stored(60, LifetimeSource::Explicit);
        is_not_shareable(&case(17, &[]), Reason::VaryAny);
        is_not_shareable(&case(16, &coded), Reason::VaryAny);
    }

    #[test]
    fn responses_with_vary_star_are_never_stored() {
        for value in ["*", "accept, *", "a b"] {
            let case = Case::html(&[("cache-control", "public, max-age=60"), ("vary", value)]);
            is_not_shareable(&case, Reason::VaryAny);
        }
    }
}

mod by_status {
    use super::*;

    fn route() -> Route {
        let lifetime = Duration::from_secs;
        let by_status = vec![(302, lifetime(60)), (404, lifetime(90)), (503, lifetime(1))];
        Route { ttl: Ttl { usual: None, by_status }, ..rest(false) }
    }

    fn page(status: u16, lines: Lines<'_>) -> Case {
        Case { status, route: route(), ..Case::html(lines) }
    }

    #[test]
    fn a_named_status_has_its_own_lifetime() {
        for (status, lifetime) in [(302, 60), (404, 90), (503, 1)] {
            page(status, &[]).is_stored(lifetime, LifetimeSource::Route);
        }
    }

    #[test]
    fn other_statuses_have_the_default_of_the_cache() {
        page(200, &[]).is_stored(300, LifetimeSource::Default);
        page(307, &[]).is_refused(Reason::Status);
        page(410, &[]).is_refused(Reason::Status);
    }

    #[test]
    fn what_forbids_sharing_comes_first() {
        page(302, &[("set-cookie", "a=b")]).is_refused(Reason::SetCookie);
        page(302, &[("cache-control", "private")]).is_refused(Reason::Private);
        page(404, &[("cache-control", "no-store")]).is_refused(Reason::NoStore);
        page(404, &[("cache-control", "max-age=5")]).is_stored(5, LifetimeSource::Explicit);
    }
}

mod explicit {
    use super::*;

    #[test]
    fn the_origin_s_word_is_taken_before_ours() {
        for (lines, lifetime) in [
            (&[("cache-control", "max-age=60")][..], 60),
            (&[("cache-control", "max-age=60, s-maxage=90")], 90),
            (&[("cache-control", "max-age=90, s-maxage=60")], 60),
            (&[("cache-control", "max-age=60"), ("expires", LAST_HOUR)], 60),
            (&[("cache-control", "max-age=60"), ("pragma", "no-cache")], 60),
            (&[("expires", NEXT_HOUR), ("date", DATE)], 3_600),
            (&[("expires", NEXT_HOUR)], 3_600),
            (&[("cache-control", "public"), ("expires", NEXT_HOUR)], 3_600),
        ] {
            for route in [rest(false), Route { ttl: ttl(7), ..rest(false) }] {
                let case = Case { route, ..Case::html(lines) };
                case.is_stored(lifetime, LifetimeSource::Explicit);
            }
        }
    }

    #[test]
    fn no_default_helps_what_is_stale_by_the_origin_s_word() {
        for lines in [
            &[("cache-control", "max-age=0")][..],
            &[("cache-control", "max-age=60, s-maxage=0")],
            &[("cache-control", "max-age=soon")],
            &[("expires", LAST_HOUR), ("date", DATE)],
            &[("expires", "0")],
            &[("expires", "-1")],
        ] {
            for route in [rest(false), Route { ttl: ttl(60), ..rest(false) }] {
                Case { route, ..Case::html(lines) }.is_refused(Reason::Stale);
            }
        }
    }

    #[test]
    fn a_page_that_is_older_than_its_lifetime_is_not_stored() {
        let page = |age| Case { age, ..Case::html(&[("cache-control", "max-age=60")]) };
        page(59).is_stored(60, LifetimeSource::Explicit);
        page(60).is_refused(Reason::Stale);
        page(61).is_refused(Reason::Stale);
    }

    #[test]
    fn any_status_and_type_may_have_a_lifetime_of_the_origin_s() {
        for status in
            [200, 201, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 410, 500, 503]
        {
            for kind in ["text/html", "application/json", "image/png", "application/pdf"] {
                let case = Case::typed(kind, &[("cache-control", "max-age=60")]);
                Case { status, ..case }.is_stored(60, LifetimeSource::Explicit);
            }
        }
    }

    #[test]
    fn fields_that_withhold_our_lifetime_leave_the_origin_lifetime() {
        let control = ("cache-control", "max-age=60");
        for field in [
            ("content-disposition", "attachment"),
            ("refresh", "1"),
            ("www-authenticate", "Basic"),
            ("pragma", "no-cache"),
        ] {
            Case::html(&[control, field]).is_stored(60, LifetimeSource::Explicit);
        }
        for target in ["/?token=9f3", "/account/x.css"] {
            let case = Case { target, ..Case::html(&[control]) };
            case.is_stored(60, LifetimeSource::Explicit);
        }
        let sent = fields(&[("accept", "application/json")]);
        Case { sent, ..Case::html(&[control]) }.is_stored(60, LifetimeSource::Explicit);
    }

    #[test]
    fn without_a_default_ttl_the_origin_s_word_is_the_only_one() {
        let policy = CacheSettings { default_ttl: Duration::ZERO, ..POLICY };
        Case { policy, ..Case::html(&[]) }.is_refused(Reason::NoLifetime);
        // A tenth of the hour would be six minutes; the limit is five.
        let last_modified = Case::html(&[("date", DATE), ("last-modified", LAST_HOUR)]);
        Case { policy, ..last_modified.clone() }.is_stored(300, LifetimeSource::Heuristic);
        Case { policy, class: ShareClass::Public, ..last_modified }.is_refused(Reason::Login);
        // Kept for validation.
        let tagged = Case::html(&[("etag", "\"a\"")]);
        Case { policy, ..tagged }.is_stored(0, LifetimeSource::Explicit);
        let spoken = Case::html(&[("cache-control", "max-age=60")]);
        Case { policy, ..spoken }.is_stored(60, LifetimeSource::Explicit);
        let route = Route { ttl: ttl(7), ..rest(false) };
        Case { policy, route, ..Case::html(&[]) }.is_stored(7, LifetimeSource::Route);
    }
}

mod default_ttl {
    use super::*;

    #[test]
    fn a_plain_page_has_the_default_lifetime_from_its_arrival_on() {
        for age in [0, 1, 299, 300, 10_000] {
            Case { age, ..Case::html(&[]) }.is_stored(300 + age, LifetimeSource::Default);
        }
    }

    #[test]
    fn these_statuses_have_it_and_no_others() {
        for status in 200..600 {
            let case = Case { status, ..Case::html(&[]) };
            match status {
                200 | 203 | 301 | 308 => case.is_stored(300, LifetimeSource::Default),
                _ => case.is_refused(Reason::Status),
            }
        }
    }

    #[test]
    fn a_redirect_of_any_type_has_it() {
        for status in [301, 308] {
            for case in [Case::with(&[]), Case::typed("application/json", &[])] {
                let case = Case { status, ..case };
                case.is_stored(300, LifetimeSource::Default);
            }
        }
    }

    #[test]
    fn these_types_have_it_by_themselves() {
        for kind in [
            "text/html",
            "TEXT/HTML;charset=utf-8",
            "application/xhtml+xml",
            "text/css",
            "text/javascript",
            "application/javascript",
        ] {
            for status in [200, 203] {
                let case = Case { status, ..Case::typed(kind, &[]) };
                case.is_stored(300, LifetimeSource::Default);
            }
        }
    }

    #[test]
    fn these_types_have_it_with_a_validator_only() {
        for kind in ["image/png", "image/svg+xml", "font/woff2", "audio/ogg", "video/mp4"] {
            Case::typed(kind, &[]).is_refused(Reason::NoValidator);
            for validator in [("etag", "\"1\""), ("etag", "W/\"1\""), ("last-modified", LAST_HOUR)]
            {
                Case::typed(kind, &[validator]).is_stored(300, LifetimeSource::Default);
            }
        }
    }

    #[test]
    fn other_types_have_it_by_no_validator() {
        for kind in [
            "application/json",
            "application/ld+json",
            "application/xml",
            "application/rss+xml",
            "text/plain",
            "text/event-stream",
            "application/pdf",
            "application/octet-stream",
            "html",
            "",
        ] {
            Case::typed(kind, &[]).is_refused(Reason::ContentType);
            Case::typed(kind, &[("etag", "\"1\"")]).is_refused(Reason::ContentType);
        }
        Case::with(&[]).is_refused(Reason::ContentType);
        let twice = Case::html(&[("content-type", "text/html")]);
        twice.is_refused(Reason::ContentType);
    }

    /// The default lifetime, a route's `ttl`, and `override_ttl`. All three are withheld in the same cases.
    fn all_of_ours() -> [Route; 3] {
        [
            rest(false),
            Route { ttl: ttl(300), ..rest(false) },
            Route { override_ttl: seconds(300), ..rest(false) },
        ]
    }

    #[track_caller]
    fn ours_is_withheld(case: &Case, reason: Reason) {
        for route in all_of_ours() {
            Case { route, ..case.clone() }.is_refused(reason);
        }
    }

    #[track_caller]
    fn ours_is_granted(case: &Case) {
        for route in all_of_ours() {
            let found = Case { route, ..case.clone() }.verdict().map(|storing| storing.lifetime);
            assert_eq!(found, Ok(300), "{} {:?}", case.target, case.headers);
        }
    }

    #[test]
    fn fields_that_mark_a_response_as_momentary_or_personal_withhold_it() {
        for (name, value) in [
            ("refresh", "5; url=/next"),
            ("refresh", ""),
            ("www-authenticate", "Basic realm=x"),
            ("content-disposition", "attachment"),
            ("content-disposition", "Attachment; filename=a.html"),
            ("content-disposition", "ATTACHMENT;filename=a.html"),
        ] {
            ours_is_withheld(&Case::html(&[(name, value)]), Reason::ResponseField);
        }
        for value in ["inline", "inline; filename=attachment", "attach", ""] {
            ours_is_granted(&Case::html(&[("content-disposition", value)]));
        }
        let twice = [("content-disposition", "inline"), ("content-disposition", "attachment")];
        ours_is_withheld(&Case::html(&twice), Reason::ResponseField);
    }

    #[test]
    fn pragma_withholds_it_unless_overridden() {
        for lines in [
            &[("pragma", "no-cache")][..],
            &[("pragma", "No-Cache")],
            &[("pragma", "x, no-cache")],
            &[("pragma", "x"), ("pragma", "no-cache")],
        ] {
            let case = Case::html(lines);
            case.is_refused(Reason::ResponseField);
            let ttl = Route { ttl: ttl(60), ..rest(false) };
            Case { route: ttl, ..case.clone() }.is_refused(Reason::ResponseField);
            let overridden = Route { override_ttl: seconds(60), ..rest(false) };
            Case { route: overridden, ..case }.is_stored(60, LifetimeSource::Override);
        }
        Case::html(&[("pragma", "x")]).is_stored(300, LifetimeSource::Default);
    }

    #[test]
    fn a_secret_in_the_query_withholds_it() {
        for target in [
            "/?code=1",
            "/?state=1",
            "/?token=1",
            "/?key=1",
            "/?sig=1",
            "/?signature=1",
            "/?hmac=1",
            "/?nonce=1",
            "/?_wpnonce=1",
            "/?moderation-hash=1",
            "/?preview=true",
            "/?preview_nonce=1",
            "/?X-Amz-Signature=1",
            "/?x-amz-date=1",
            "/?a=1&Token=2",
            "/?a=1;token=2",
            "/?to%6ben=1",
            "/?token",
        ] {
            ours_is_withheld(&Case { target, ..Case::html(&[]) }, Reason::QueryParameter);
        }
        for target in ["/?a=token", "/?tokens=1", "/?barcode=1", "/?xkey=1", "/?", "/token"] {
            ours_is_granted(&Case { target, ..Case::html(&[]) });
        }
    }

    #[test]
    fn a_page_under_the_name_of_a_static_file_is_a_deception() {
        for target in
            ["/account/x.css", "/account/x.JS", "/account;x.css", "/account/x.png?a=1", "/a%2ecss"]
        {
            ours_is_withheld(&Case { target, ..Case::html(&[]) }, Reason::Deception);
            let json = Case { target, ..Case::typed("application/json", &[]) };
            ours_is_withheld(&json, Reason::Deception);
        }
        let style_sheet = Case::typed("text/css", &[]);
        for target in ["/x.css", "/style.php", "/style"] {
            ours_is_granted(&Case { target, ..style_sheet.clone() });
        }
        for target in ["/index.html", "/index.php", "/v1.2", "/x.css/", "/?a=x.css"] {
            ours_is_granted(&Case { target, ..Case::html(&[]) });
        }
    }

    #[test]
    fn a_client_that_asks_for_data_does_not_fill_it() {
        for (accept, stored) in [
            ("application/json", false),
            ("application/json, application/xml;q=0.9", false),
            ("text/event-stream", false),
            ("*/*;q=0", false),
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("image/avif,image/webp", true),
            ("text/css", true),
            ("application/json, */*", true),
        ] {
            let case = Case { sent: fields(&[("accept", accept)]), ..Case::html(&[]) };
            let expected =
                if stored { Ok((300, LifetimeSource::Default)) } else { Err(Reason::Accept) };
            assert_eq!(case.lifetime(), expected, "{accept}");
            let route = Route { ttl: ttl(60), ..rest(false) };
            Case { route, ..case }.is_stored(60, LifetimeSource::Route);
        }
    }
}

mod route_ttl {
    use super::*;

    fn route() -> Route {
        Route { ttl: ttl(60), ..rest(false) }
    }

    fn overridden() -> Route {
        Route { override_ttl: seconds(60), ..rest(false) }
    }

    #[test]
    fn it_is_for_every_type_and_for_these_statuses() {
        for kind in ["text/html", "application/json", "image/png", "application/pdf", "text/plain"]
        {
            for (route, source) in
                [(route(), LifetimeSource::Route), (overridden(), LifetimeSource::Override)]
            {
                for status in [200, 203, 301, 308] {
                    let case = Case::typed(kind, &[]);
                    Case { status, route: route.clone(), ..case }.is_stored(60, source);
                }
                for status in [201, 204, 300, 302, 303, 307, 400, 401, 403, 405, 429, 500, 503] {
                    let case = Case::typed(kind, &[]);
                    Case { status, route: route.clone(), ..case }.is_refused(Reason::Status);
                }
            }
        }
    }

    #[test]
    fn not_found_responses_are_kept_for_ten_seconds_at_most() {
        for status in [404, 410] {
            for (ttl, kept) in [(5, 5), (10, 10), (60, 10)] {
                for age in [0, 100] {
                    let case = Case { status, age, ..Case::html(&[]) };
                    let silent = Route { ttl: super::ttl(ttl), ..rest(false) };
                    Case { route: silent, ..case.clone() }
                        .is_stored(kept + age, LifetimeSource::Route);
                    let overridden = Route { override_ttl: seconds(ttl), ..rest(false) };
                    Case { route: overridden, ..case }
                        .is_stored(kept + age, LifetimeSource::Override);
                }
            }
            let spoken = Case::html(&[("cache-control", "max-age=60")]);
            Case { status, ..spoken }.is_stored(60, LifetimeSource::Explicit);
        }
    }

    #[test]
    fn an_override_replaces_what_the_origin_says_of_time() {
        for lines in [
            &[][..],
            &[("cache-control", "no-store, no-cache, must-revalidate"), ("pragma", "no-cache")],
            &[("cache-control", "max-age=0")],
            &[("cache-control", "max-age=9999, s-maxage=9999")],
            &[("expires", "Thu, 19 Nov 1981 08:52:00 GMT"), ("cache-control", "no-store")],
            &[("expires", NEXT_HOUR)],
        ] {
            let case = Case { route: overridden(), ..Case::html(lines) };
            case.is_stored(60, LifetimeSource::Override);
            Case { age: 500, ..case }.is_stored(560, LifetimeSource::Override);
        }
    }

    #[test]
    fn an_override_wins_over_the_route_s_default() {
        let route = Route { ttl: ttl(7), override_ttl: seconds(60), ..rest(false) };
        Case { route, ..Case::html(&[]) }.is_stored(60, LifetimeSource::Override);
    }

    #[test]
    fn a_ttl_of_nothing_stores_nothing() {
        for route in [
            Route { ttl: ttl(0), ..rest(false) },
            Route { override_ttl: seconds(0), ..rest(false) },
        ] {
            for age in [0, 100] {
                Case { route: route.clone(), age, ..Case::html(&[]) }.is_refused(Reason::Stale);
            }
        }
    }
}

mod storing {
    use super::*;

    /// The names of the fields that select the page.
    #[track_caller]
    fn vary(lines: Lines<'_>) -> Vec<String> {
        let storing = Case::html(lines).verdict().unwrap();
        storing.vary.iter().map(|name| name.as_str().to_owned()).collect()
    }

    #[test]
    fn a_page_depends_on_what_it_names_in_order_and_once() {
        assert_eq!(vary(&[]), [""; 0]);
        assert_eq!(vary(&[("vary", "")]), [""; 0]);
        let lines = [("vary", "User-Agent, accept"), ("vary", "Accept,COOKIE")];
        assert_eq!(vary(&lines), ["accept", "cookie", "user-agent"]);
    }

    #[test]
    fn a_coded_page_varies_by_accept_encoding_even_without_vary() {
        let coded = ("content-encoding", "gzip");
        assert_eq!(vary(&[coded]), ["accept-encoding"]);
        assert_eq!(vary(&[coded, ("vary", "Accept-Encoding")]), ["accept-encoding"]);
        assert_eq!(vary(&[coded, ("vary", "Accept")]), ["accept", "accept-encoding"]);
    }

    #[test]
    fn a_page_that_names_an_origin_for_scripts_depends_on_it() {
        let name = "access-control-allow-origin";
        assert_eq!(vary(&[(name, "*")]), [""; 0]);
        assert_eq!(vary(&[(name, "https://a.test")]), ["origin"]);
        assert_eq!(vary(&[(name, "null"), ("vary", "origin")]), ["origin"]);
        assert_eq!(vary(&[(name, "*"), (name, "https://a.test")]), ["origin"]);
        let both = [(name, "https://a.test"), ("content-encoding", "br"), ("vary", "Accept")];
        assert_eq!(vary(&both), ["accept", "accept-encoding", "origin"]);
    }

    #[track_caller]
    fn static_proof(case: &Case) -> bool {
        case.verdict().unwrap().static_proof
    }

    #[test]
    fn anonymous_responses_prove_static_types_with_a_validator() {
        let etag = ("etag", "\"1\"");
        for kind in [
            "text/css",
            "text/javascript",
            "image/png",
            "font/woff2",
            "application/font-woff",
            "audio/ogg",
            "video/mp4",
        ] {
            assert!(static_proof(&Case::typed(kind, &[etag])), "{kind}");
            assert!(static_proof(&Case::typed(kind, &[("last-modified", LAST_HOUR)])), "{kind}");
            let spoken = Case::typed(kind, &[("cache-control", "max-age=60")]);
            assert!(!static_proof(&spoken), "{kind}: without a validator");
        }
        for kind in ["text/html", "application/json", "application/xml", "application/pdf"] {
            let case = Case::typed(kind, &[etag, ("cache-control", "max-age=60")]);
            assert!(!static_proof(&case), "{kind}");
        }
    }

    #[test]
    fn there_is_no_proof_in_other_statuses_classes_or_by_cookie() {
        let lines = [("etag", "\"1\""), ("cache-control", "public, max-age=60")];
        let style_sheet = Case::typed("text/css", &lines);
        assert!(static_proof(&style_sheet));
        for status in [203, 301, 404, 500] {
            assert!(!static_proof(&Case { status, ..style_sheet.clone() }), "{status}");
        }
        for class in [ShareClass::Public, ShareClass::Everyone] {
            assert!(!static_proof(&Case { class, ..style_sheet.clone() }), "{class:?}");
        }
        for (vary, proof) in [("Cookie", false), ("Accept, cookie", false), ("Accept", true)] {
            let mut case = style_sheet.clone();
            case.headers.append("vary", HeaderValue::from_static(vary));
            assert_eq!(static_proof(&case), proof, "{vary}");
        }
    }

    #[test]
    fn the_guard_reads_what_a_browser_could_show_as_a_page() {
        for (kind, guarded) in [
            ("text/html", true),
            ("Text/HTML; charset=utf-8", true),
            ("application/xhtml+xml", true),
            ("", true),
            ("unknown/unknown", true),
            ("*/*", true),
            ("nonsense", true),
            ("text/css", false),
            ("application/json", false),
            ("image/png", false),
            ("text/plain", false),
        ] {
            for class in [ShareClass::Anonymous, ShareClass::Public, ShareClass::Everyone] {
                let case = Case::typed(kind, &[("cache-control", "public, max-age=60")]);
                let storing = Case { class, ..case }.verdict().unwrap();
                assert_eq!(storing.guarded, guarded, "{kind}, {class:?}");
            }
        }
        let untyped = Case::with(&[("cache-control", "max-age=60")]);
        assert!(untyped.verdict().unwrap().guarded);
    }

    #[test]
    fn an_override_does_not_spare_the_guard_nor_the_vary() {
        let route = Route { override_ttl: seconds(60), override_private: true, ..rest(false) };
        let lines = [("cache-control", "private, no-store"), ("vary", "Cookie")];
        let storing = Case { route, ..Case::html(&lines) }.verdict().unwrap();
        assert!(storing.guarded);
        assert_eq!(storing.vary, [COOKIE]);
    }
}

/// Fixes one fault of a case.
type Mend = fn(&mut Case);

/// A response with several faults reports the one that should be fixed first.
#[test]
fn reasons_have_an_order() {
    let mut case = Case::with(&[]);
    case.status = 302;
    case.unframed = true;
    case.length = Some(2_000);
    for (name, value) in [
        ("vary", "*"),
        ("cache-control", "private, no-store, no-cache"),
        ("set-cookie", "a=1"),
        ("anteroom-login", "alice"),
    ] {
        case.headers.insert(name, HeaderValue::from_static(value));
    }
    let mends: [(Reason, Mend); 9] = [
        (Reason::Anteroom, |case| drop(case.headers.remove("anteroom-login"))),
        (Reason::SetCookie, |case| drop(case.headers.remove("set-cookie"))),
        (Reason::Private, |case| say(case, "no-store, no-cache")),
        (Reason::NoStore, |case| say(case, "no-cache")),
        (Reason::Unframed, |case| case.unframed = false),
        (Reason::TooLarge, |case| case.length = None),
        (Reason::VaryAny, |case| drop(case.headers.remove("vary"))),
        (Reason::NoCache, |case| drop(case.headers.remove("cache-control"))),
        (Reason::Status, |case| case.status = 200),
    ];
    for (reason, mend) in mends {
        case.is_refused(reason);
        mend(&mut case);
    }
    case.is_refused(Reason::ContentType);
}

fn say(case: &mut Case, control: &'static str) {
    case.headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
}
