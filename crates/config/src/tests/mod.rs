//! What an operator meets: defaults and sources here, problems and the shipped file beside it.

mod cases;
mod chapter;
mod examples;
mod fingerprint;
mod include;
mod networks;
mod origins;
mod paths;
mod problems;
mod shipped;

use std::path::PathBuf;
use std::time::Duration;

use anteroom_http::ident::TokenStorage;
use anteroom_http::pattern::Pattern;
use anteroom_policy::answer::StatusDetail;
use anteroom_policy::route::Share;

use super::apps::APPS;
use super::*;

/// The smallest useful file.
const ORIGIN: &str = "[origin]\nurl = \"http://127.0.0.1:3000\"\n";

#[test]
fn the_smallest_useful_file_names_the_origin() {
    assert_eq!(read(&file(ORIGIN)), usual());
}

#[test]
fn no_file_is_needed_where_the_command_line_names_the_origin() {
    let overrides = Overrides {
        listen: vec!["127.0.0.1:8081".to_owned(), "[::1]:8081".to_owned()],
        origin: Some("http://app:9000".to_owned()),
        store: Some("redis://127.0.0.1".to_owned()),
        admin: Some("off".to_owned()),
        threads: Some("3".to_owned()),
    };
    let plan = read(&ConfigSources { overrides, ..ConfigSources::default() });
    let listen: Vec<String> =
        plan.listen.iter().filter_map(|one| Some(one.address.tcp()?.to_string())).collect();
    assert_eq!(listen, ["127.0.0.1:8081", "[::1]:8081"]);
    assert_eq!(plan.origin.url, OriginUrl::http("app", 9000));
    assert_eq!(plan.store.url, StoreUrl::Redis(Secret::new("redis://127.0.0.1")));
    assert_eq!((plan.admin.address, plan.threads), (None, 3));
}

#[test]
fn short_forms_stand_for_a_table_with_one_key() {
    for (short, long) in [
        (r#"origin = "http://app:9000""#, r#"origin.url = "http://app:9000""#),
        (r#"origin = "app:9000""#, r#"origin.url = "http://app:9000""#),
        (
            "origin = \"app\"\nlisten = \"127.0.0.1:1\"",
            "origin.url = \"app\"\n[[listen]]\naddress = \"127.0.0.1:1\"",
        ),
        (
            "origin = \"app\"\nlisten = 8080",
            "origin.url = \"app\"\nlisten = [{ address = \":8080\" }]",
        ),
        (
            "origin = \"app\"\nlisten = [\":80\", \"unix:/a\"]",
            "origin.url = \"app\"\nlisten = [{ address = \"[::]:80\" }, { address = \"unix:/a\" }]",
        ),
        (
            "origin.url = \"app\"\norigin.hosts = \"a.net\"\n[[listen]]\naddress = \":443\"\ntls = \"auto\"",
            "origin.url = \"app\"\norigin.hosts = \"a.net\"\n[[listen]]\naddress = \":443\"\ntls.cert = [\"auto\"]",
        ),
        (
            "origin = \"app\"\nstore = \"redis://r\"\nadmin = \"off\"",
            "origin.url = \"app\"\nstore.url = \"redis://r\"\nadmin.address = \"off\"",
        ),
        (
            "origin = \"app\"\nroute = [{ match = \"/a\" }, { match = [\"/b\", \"/c\"] }]",
            "origin.url = \"app\"\nroute = [{ match.path = \"/a\" }, { match.path = [\"/b\", \"/c\"] }]",
        ),
    ] {
        assert_eq!(read(&file(short)), read(&file(long)), "{short}");
    }
    // Another source replaces a single key of such a table, in whatever form it is written.
    let mut sources = file("origin = \"app:1\"\nadmin.socket = \"/a.sock\"\nstore.prefix = \"a:\"");
    sources.env = variables(&[
        ("ANTEROOM__ORIGIN__HOST", "a.test"),
        ("ANTEROOM__LISTEN", ":81"),
        ("ANTEROOM__ADMIN", "off"),
        ("ANTEROOM__STORE", "redis://r"),
        ("ANTEROOM__STORE__TIMEOUT", "40ms"),
    ]);
    let plan = read(&sources);
    assert_eq!((plan.admin.address, plan.admin.socket), (None, Some(PathBuf::from("/a.sock"))));
    assert_eq!(plan.store.url, StoreUrl::Redis(Secret::new("redis://r")));
    assert_eq!((plan.store.prefix.as_str(), plan.store.timeout.as_millis()), ("a:", 40));
    assert_eq!(
        (plan.origin.url.port, plan.listen[0].address.to_string()),
        (1, "[::]:81".to_owned())
    );
    sources.overrides.origin = Some("localhost:3000".to_owned());
    assert_eq!(read(&sources).origin.url, OriginUrl::http("localhost", 3000));
}

#[test]
fn variables_with_one_underscore_are_told_unless_a_secret_names_them() {
    let text = format!("{ORIGIN}[admin]\ntoken = {{ env = \"ANTEROOM_ADMIN_TOKEN\" }}\n");
    let mut sources = file(&text);
    sources.env = variables(&[
        ("ANTEROOM_ORIGIN_URL", "http://app"),
        ("ANTEROOM_ADMIN_TOKEN", "0123456789abcdef0123456789abcdef"),
        ("ANTEROOM_LOG", "debug"),
    ]);
    let (_, warnings) = Plan::read(&sources).unwrap();
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let ignored =
        "ANTEROOM_ORIGIN_URL: is ignored; for origin.url write ANTEROOM__ORIGIN__URL".to_owned();
    let about_variables: Vec<&String> =
        told.iter().filter(|line| line.starts_with("ANTEROOM")).collect();
    assert_eq!(about_variables, [&ignored]);
}

#[test]
fn the_environment_wins_over_the_file_and_the_command_line_over_both() {
    let mut sources =
        file("threads = 1\n[origin]\nurl = \"http://file\"\n[cache]\nstatus = \"off\"");
    sources.env = variables(&[
        ("ANTEROOM__THREADS", "2"),
        ("ANTEROOM__ORIGIN__URL", "http://env"),
        ("ANTEROOM__CACHE__DEFAULT_TTL", "60s"),
        ("ANTEROOM__LISTEN", "[{ address = \"127.0.0.1:1\" }, { address = \"127.0.0.1:2\" }]"),
        ("ANTEROOM__ORIGIN__HOSTS", "Example.com"),
        ("ANTEROOM__STORE__PREFIX", "123"),
        ("ANTEROOM__ROUTE", "[{ match.path = \"/a/**\", share = \"none\" }]"),
        ("ANTEROOM_ADMIN_TOKEN", "not a setting"),
    ]);
    sources.overrides.origin = Some("http://flag".to_owned());
    let plan = read(&sources);
    assert_eq!((plan.threads, plan.origin.url.host.as_str()), (2, "flag"));
    assert_eq!(plan.cache.default_ttl, Duration::from_secs(60));
    assert_eq!(plan.cache.status, StatusDetail::Off);
    assert_eq!(plan.listen.len(), 2);
    assert_eq!(plan.origin.hosts[0].as_str(), "example.com");
    assert_eq!(plan.store.prefix, "123");
    assert_eq!(plan.routes[0].share, Share::None);
}

#[test]
fn secrets_come_from_files_and_variables_without_their_line_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "from-file\r\n").unwrap();
    let mut sources = file(&format!(
        "{ORIGIN}secret = {{ env = \"KEY\" }}\n[admin]\ntoken = {{ file = {path:?} }}\n\
         [store]\nurl = {{ env = \"REDIS\" }}\n"
    ));
    sources.env = variables(&[("KEY", "from-env\n"), ("REDIS", "redis://:pw@127.0.0.1")]);
    let plan = read(&sources);
    assert_eq!(plan.origin.secret.as_ref().map(Secret::expose), Some("from-env"));
    assert_eq!(plan.admin.token.as_ref().map(Secret::expose), Some("from-file"));
    let StoreUrl::Redis(url) = &plan.store.url else { panic!("{:?}", plan.store.url) };
    assert_eq!(url.expose(), "redis://:pw@127.0.0.1");
    assert_eq!(plan.session.token_storage, TokenStorage::Plain);
    let written = print(&plan);
    for secret in ["from-env", "from-file", "pw@"] {
        assert!(!written.contains(secret) && !format!("{plan:?}").contains(secret), "{written}");
    }
    sources.file = Some((PathBuf::from("printed.toml"), written));
    assert_eq!(read(&sources), plan);
}

#[test]
fn a_printed_plan_reads_back_unchanged() {
    let text = format!(
        "threads = 3\n{ORIGIN}host = \"app.internal\"\nhosts = [\"Example.com\", \"[::1]:80\"]\n\
         [[listen]]\naddress = \"unix:/run/\\\"a.sock\"\nmode = \"0600\"\nproxy_protocol.from = \"unix\"\n\
         [[listen]]\naddress = \"127.0.0.1:1\"\ntls.ticket_secret = {{ file = \"../../rustfmt.toml\" }}\n\
         [[listen]]\naddress = \"systemd:web\"\nproxy_protocol = {{ from = [\"10.0.0.0/8\", \"unix\"] }}\n\
         [client]\ntrusted_proxies = [\"10.1.2.3\", \"fd00::/8\", \"unix\"]\nunderscore_headers = \"pass\"\n\
         [session]\ncookie = [\"*_session\", \"remember\"]\nsecure = \"always\"\n\
         token_storage = \"plain\"\n\
         webhook_secret = [{{ file = \"../../rustfmt.toml\" }}, {{ file = \"../../clippy.toml\" }}]\n\
         [cache]\ndefault_ttl = \"1500ms\"\nunknown_cookies = \"ignore\"\ntrust_public = true\n\
         [[route]]\nmatch.path = \"/item/{{item}}\"\nmatch.query = {{ \"a.b\" = \"say \\\"x\\\"\" }}\n\
         ttl = \"90s\"\noverride_ttl = \"2h\"\noverride_private = true\nkey_headers = \"X-A\"\n\
         [[route]]\nname = \"rest\"\nshare = \"none\"\ntrust_public = false\n\
         [admin]\naddress = \"off\"\n[log]\nto = \"/var/log/\\u0007\\\\a.log\"\n\
         [traces]\nendpoint = \"https://otlp.example.com/a\"\nsample = 0.25\nslow = \"off\"\n\
         headers = {{ \"X-Api-Key\" = {{ file = \"../demo/src/templates/made.html\" }} }}\n\
         [limits]\nmax_body = \"10MiB\"\n"
    );
    let plan = read(&file(&text));
    assert!(plan.routes[0].trust_public && !plan.routes[1].trust_public);
    let written = print(&plan);
    assert_eq!(read(&file(&written)), plan, "{written}");
    assert_eq!(read(&file(&print(&usual()))), usual());
}

#[test]
fn ordered_certificates_have_a_file_for_each_name() {
    let text = "origin = { url = \"app\", hosts = [\"a.net\", \"*.b.net\"] }\n\
                acme = { dns_hook = \"/hook\", folder = \"/certs\" }\n\
                listen = [\":80\", { address = \":443\", tls = \"auto\" }]";
    let plan = read(&file(text));
    assert!(plan.orders_certificates() && plan.listen[1].is_secured());
    let files = ["/certs/a.net.pem", "/certs/_wildcard_.b.net.pem"];
    assert_eq!(plan.listen[1].tls.sources().certificates, files);
    let written = print(&plan);
    assert_eq!(read(&file(&written)), plan, "{written}");
}

#[test]
fn app_presets_apply_unless_the_file_overrides_them() {
    let hosts = format!("{ORIGIN}hosts = \"example.com\"\n");
    for (name, app) in APPS.into_iter().filter(|(_, app)| app.is_some()) {
        let text = format!("{hosts}[session]\napp = \"{name}\"\n");
        let plan = read(&file(&text));
        assert_eq!(plan.session.app, app);
        assert_ne!(plan.session.cookies, usual().session.cookies, "{name}");
        let written = print(&plan);
        assert_eq!(read(&file(&written)), plan, "{written}");
        let own = format!("{text}cookie = \"mine\"\n[cache]\nignore_cookies = []\n");
        let plan = read(&file(&own));
        assert_eq!(plan.session.cookies, [Pattern::Exact("mine".to_owned())], "{name}");
        assert!(plan.cache.ignore_cookies.is_empty(), "{name}");
        assert_eq!(read(&file(&print(&plan))), plan, "{name}");
    }
    let wiki = format!("{hosts}[session]\napp = \"mediawiki\"\nverify.path = \"/w/api.php\"\n");
    let verify = read(&file(&wiki)).session.verify;
    assert_eq!(verify.path.as_deref(), Some("/w/api.php"));
    assert!(verify.user.is_some() && verify.anonymous.is_some());
    assert_eq!(warnings(&wiki), [""; 0]);
}

fn file(text: &str) -> ConfigSources {
    ConfigSources {
        file: Some((PathBuf::from("proxy.toml"), text.to_owned())),
        ..ConfigSources::default()
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn read(sources: &ConfigSources) -> Plan {
    match Plan::read(sources) {
        Ok((plan, _)) => plan,
        Err(problems) => panic!("{}", told(&problems).join("\n")),
    }
}

/// What is told of `sources`, a line a problem.
fn problems(sources: &ConfigSources) -> Vec<String> {
    told(&Plan::read(sources).expect_err("a configuration with problems"))
}

fn told(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let (_, warnings) = Plan::read(&file(text)).expect("a configuration without problems");
    warnings.iter().map(ToString::to_string).collect()
}

/// The plan of [`ORIGIN`], in a file of the working directory.
fn usual() -> Plan {
    let mut plan = Plan::new(OriginUrl::http("127.0.0.1", 3000));
    plan.keep_data_in(&std::env::current_dir().unwrap().join("anteroom-data"));
    plan
}
