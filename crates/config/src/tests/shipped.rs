//! The shipped `proxy.toml`: every key, at its default, and nothing else.

use std::num::NonZeroU32;
use std::time::Duration;

use ::http::header::{USER_AGENT, X_FRAME_OPTIONS};
use ::http::{HeaderName, Method};
use anteroom_http::extract::{ExpectedValue, Extractor, ResponseMatcher};
use anteroom_http::field_condition::FieldCondition;
use anteroom_http::harden::Hardening;
use anteroom_http::host_pattern::HostPattern;
use anteroom_http::path::PathPattern;
use anteroom_http::pattern::Pattern;
use anteroom_http::query::QueryRule;
use anteroom_policy::login::{LoginUser, RequestPattern, Success};
use anteroom_policy::rate_limit::Rate;
use anteroom_policy::route::{
    FieldTemplate, QueryCondition, QueryValue, Rewrite, Route, TemplateVariable, Ttl,
};

use super::{file, read, usual, variables};
use crate::key_paths::KeyPaths;
use crate::reader::{Reader, SettingLocations};
use crate::schema::walk;
use crate::suggest::{CALLED_ELSEWHERE, called_elsewhere};
use crate::{
    DatabaseConfig, Login, OriginConfig, OriginUrl, Plan, Rows, Secret, SettingLocation,
    StoreLayout, Verify,
};

const SHIPPED: &str = include_str!("../../../../proxy.toml");

#[test]
fn the_shipped_file_works_as_it_is() {
    assert_eq!(read(&file(SHIPPED)), usual());
    let said = SHIPPED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(said.collect::<Vec<_>>(), ["[origin]", "url = \"http://127.0.0.1:3000\""]);
}

/// Takes out what the file shows of the store and has no default.
fn take_examples_of_the_store(plan: &mut Plan) {
    assert!(plan.store.pages_url.take().is_some());
    let next = std::mem::take(&mut plan.store.next);
    assert!(next.url.is_some() && next.pages_url.is_some());
    assert_eq!((next.prefix.as_deref(), next.layout), (Some(""), Some(StoreLayout::Sharded)));
}

fn take_examples_of_rows(plan: &mut Plan) {
    let rows = Rows {
        name: "inventory".to_owned(),
        path: Some("/api/inventory/{row}".to_owned()),
        origin: Some("blog".to_owned()),
        ..Rows::default()
    };
    let of_database = Rows {
        name: "prices".to_owned(),
        database: Some("shop".to_owned()),
        query: Some("select id, price from prices where id = any($1)".to_owned()),
        batch: 500,
        rows_query: Some("select id from items where active".to_owned()),
        listen: Some("item_changed".to_owned()),
        ..Rows::default()
    };
    assert_eq!(std::mem::take(&mut plan.rows), [rows, of_database]);
    let url = Secret::from_env("postgres://db", "ANTEROOM_SHOP_URL");
    let shop = DatabaseConfig { url, ..DatabaseConfig::default() };
    assert_eq!(plan.databases.pop(), Some(("shop".to_owned(), shop)));
}

#[test]
fn the_shipped_file_shows_every_key_at_its_default() {
    // A key alone is refused, and the default of cert is none.
    let without_key: String = uncommented().replacen("\ntls.key = ", "\n#tls.key = ", 1);
    let mut sources = file(&without_key);
    sources.env = variables(&[
        ("ANTEROOM_ORIGIN_SECRET", "s"),
        ("ANTEROOM_ADMIN_TOKEN", "t"),
        ("ANTEROOM_WEBHOOK_SECRET", "w"),
        ("ANTEROOM_TICKET_SECRET", "0123456789abcdef0123456789abcdef"),
        ("ANTEROOM_SHOP_URL", "postgres://db"),
        ("ANTEROOM_ACME_SECRET", "0123456789abcdef0123456789abcdef"),
        // The example has a limit beside a host.
        ("ANTEROOM__ORIGIN__HOSTS", "example.com"),
    ]);
    let mut plan = read(&sources);
    assert_eq!(std::mem::take(&mut plan.origin.hosts), [host("example.com")]);

    // What has no default of its own is shown by an example.
    plan.threads = usual().threads;
    take_examples_of_the_store(&mut plan);
    let session = &mut plan.session;
    assert!(session.part.take().is_some());
    assert_eq!(std::mem::take(&mut session.webhook_secret).len(), 1);
    assert_eq!(std::mem::take(&mut session.verify), verify_example());
    assert_eq!(std::mem::take(&mut session.login), login_example());
    assert!(std::mem::take(&mut session.logout).matching.is_some());
    take_examples_of_https(&mut plan);
    assert!(plan.origin.secret.take().is_some() && plan.admin.token.take().is_some());
    assert!(plan.admin.audit_log.take().is_some() && plan.traces.endpoint.take().is_some());
    assert_eq!(plan.origin.servers.health.path.take().as_deref(), Some("/healthz"));
    let blog = OriginUrl { port: 4000, ..usual().origin.url };
    assert_eq!(plan.origins.pop(), Some(("blog".to_owned(), OriginConfig::further(blog))));
    take_example_of_networks(&mut plan);
    let route = plan.routes.pop().expect("the example");
    let conditions = Route {
        name: "/item/{item}".into(),
        paths: vec![PathPattern::parse("/item/{item}").unwrap()],
        hosts: vec![host("example.com")],
        methods: vec![Method::GET, Method::HEAD],
        query: QueryCondition::Parameters(vec![(
            "view".to_owned(),
            QueryValue::Exactly("full".to_owned()),
        )]),
        headers: vec![FieldCondition::parse(USER_AGENT, "~ (?i)gptbot|bytespider").unwrap()],
        query_rule: QueryRule {
            ignore: usual().cache.ignore_query,
            keep: Some(["page", "sort"].map(|name| Pattern::Exact(name.to_owned())).into()),
        },
        ttl: Ttl::all(Duration::from_secs(300)),
        override_ttl: Some(Duration::from_secs(60)),
        stale_while_revalidate: Some(Duration::from_secs(30)),
        stale_if_error: Some(Duration::from_secs(24 * 3600)),
        audit: usual().cache.audit,
        only_top: Some(10_000),
        set_headers: vec![(X_FRAME_OPTIONS, template("DENY"))],
        set_request_headers: vec![(HeaderName::from_static("x-shop"), template("{host}"))],
        rewrite: Rewrite {
            strip_prefix: Some("/item".to_owned()),
            add_prefix: Some("/shop".to_owned()),
        },
        redirect: Some(template("https://www.example.com{path}{query}")),
        requires_login: Some(false),
        login_page: Some(template("/login?next={path}")),
        rows: Some("inventory".into()),
        origin: Some("blog".into()),
        requests_per_address: Some(rate(10, 10)),
        requests_per_session: Some(rate(30, 60)),
        ..Route::default()
    };
    assert_eq!(route, conditions);
    let cookies =
        Hardening { names: vec![Pattern::Exact("PHPSESSID".to_owned())], ..Hardening::default() };
    assert_eq!(plan.cookies.pop(), Some(cookies));
    take_examples_of_rows(&mut plan);
    assert_eq!(plan, usual());
}

fn take_examples_of_https(plan: &mut Plan) {
    let tls = &mut plan.listen[0].tls;
    assert!(tls.default.take().is_some() && tls.client_ca.take().is_some());
    assert_eq!(std::mem::take(&mut tls.ticket_secret).len(), 1);
    let acme = &mut plan.acme;
    assert!(acme.email.take().is_some() && acme.profile.take().is_some());
    assert!(acme.dns_hook.take().is_some() && acme.secret.take().is_some());
}

fn take_example_of_networks(plan: &mut Plan) {
    let usual = usual();
    let route = Route {
        name: "/admin/**".into(),
        paths: vec![PathPattern::parse("/admin/**").unwrap()],
        query_rule: QueryRule { ignore: usual.cache.ignore_query, keep: None },
        audit: usual.cache.audit,
        allow_from: vec!["10.0.0.0/8".parse().unwrap()],
        ..Route::default()
    };
    assert_eq!(plan.routes.pop(), Some(route));
}

fn template(text: &str) -> FieldTemplate {
    let all = [TemplateVariable::OF_TARGET, TemplateVariable::OF_RESPONSE].concat();
    FieldTemplate::parse(text, &all).unwrap()
}

fn rate(requests: u32, burst: u32) -> Rate {
    let some = |number| NonZeroU32::new(number).unwrap();
    Rate { requests: some(requests), per: Duration::from_secs(60), burst: some(burst) }
}

#[test]
fn the_shipped_file_names_every_key_of_the_schema() {
    let paths = KeyPaths::of_schema();
    // The keys of a further origin are those of [origin].
    let own = paths.all().iter().filter(|path| !path.starts_with("origins."));
    let named = |path: &String| path.replace("databases.NAME", "databases.shop");
    let keys = own.map(named).chain(["origins".to_owned()]);

    let mut plan = usual();
    let sources = file(&uncommented());
    let tree = sources.merged().expect("TOML").tree;
    let mut reader = Reader::new(&tree, &[], SettingLocations::new(SettingLocation::Nowhere));
    walk(&mut reader, &mut plan);
    let (places, _) = reader.finish();
    // The keys of rows from an app and from a database exclude each other.
    let said = |key: &String| ["[0]", "[1]"].iter().any(|at| places.said(&key.replace("[]", at)));
    let missing: Vec<String> = keys.filter(|key| !said(key)).collect();
    assert_eq!(missing, [""; 0]);
}

/// The shipped file with each key taken out of its comment.
fn uncommented() -> String {
    let key = |line: &'static str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with([' ', ':']) => key,
        _ => line,
    };
    SHIPPED.lines().map(key).collect::<Vec<_>>().join("\n")
}

fn verify_example() -> Verify {
    Verify {
        path: Some("/api/whoami".to_owned()),
        user: Some(Extractor::Json("/user/name".to_owned())),
        anonymous: Some(ResponseMatcher::Json("/user".to_owned(), ExpectedValue::Null)),
        attributes: vec![("group".to_owned(), Extractor::Json("/user/group".to_owned()))],
        ..Verify::default()
    }
}

fn login_example() -> Login {
    let matching = RequestPattern {
        methods: vec![Method::POST],
        paths: vec![PathPattern::parse("/login").unwrap()],
        query: Vec::new(),
    };
    let success = Success {
        status: vec![302, 303],
        location: Some(Pattern::parse("/account*").unwrap()),
        ..Success::default()
    };
    let user = Some(LoginUser::Form("username".to_owned()));
    Login { matching: Some(matching), success, verify: false, user }
}

#[test]
fn what_others_call_a_key_leads_to_a_key() {
    let paths = KeyPaths::of_schema();
    let is_there = |path: &str| {
        paths.all().iter().any(|known| known == path || known.starts_with(&format!("{path}[]")))
    };
    for &(table, name, path) in CALLED_ELSEWHERE {
        assert!(is_there(path), "{path}");
        let own = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        assert!(!is_there(&own), "{own} is a key");
        assert_eq!(called_elsewhere(&table.replace("[]", "[3]"), name), Some(path));
    }
    assert_eq!(paths.place("admin", "admin.address"), "address");
    assert_eq!(paths.place("", "listen"), "listen");
    assert_eq!(paths.place("cache", "route[].match.path"), "match.path in a [[route]]");
}

fn host(text: &str) -> HostPattern {
    HostPattern::parse(text).unwrap()
}
