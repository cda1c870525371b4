//! What is told of a configuration with something wrong in it.

use super::{ORIGIN, file, problems, read, told, usual, variables, warnings};
use crate::{ConfigSources, Plan, Secret, StoreUrl, print};

#[test]
fn every_problem_is_told_at_once_by_its_place() {
    let mut sources = file(
        "treads = 2\n\
         [cache]\n\
         default_ttl = 300\n\
         default_tll = \"5m\"\n\
         memory = \"lots\"\n\
         [origin]\n\
         host = \"a b\"\n",
    );
    sources.env = variables(&[("ANTEROOM__LOG__ACCESS", "xml"), ("ANTEROOM__CAHCE__MEMORY", "1")]);
    sources.overrides.threads = Some("many".to_owned());
    assert_eq!(
        problems(&sources),
        [
            "proxy.toml:1: treads: unknown key; did you mean threads?",
            "proxy.toml:3: [cache] default_ttl: found 300, without a unit; write \"300s\" for \
             seconds",
            "proxy.toml:4: [cache] default_tll: unknown key; did you mean default_ttl?",
            "proxy.toml:5: [cache] memory: found \"lots\"; expected a size such as \"64KiB\", \
             \"8MiB\" or \"1GiB\", or \"auto\"",
            "proxy.toml:6: [origin] url: missing; write url = \"http://127.0.0.1:3000\", or give \
             --origin",
            "proxy.toml:7: [origin] host: found \"a b\"; expected a host such as \"example.com\" \
             or \"example.com:8080\", or \"preserve\"",
            "ANTEROOM__CAHCE__MEMORY: cahce: unknown key; did you mean cache?",
            "ANTEROOM__LOG__ACCESS: [log] access: found \"xml\"; expected \"json\", \"combined\" \
             or \"off\"",
            "--threads: threads: found \"many\"; expected a number from 1 to 512",
        ]
    );
}

#[test]
fn a_missing_origin_is_told_with_and_without_a_file() {
    let missing = "[origin] url: missing; write url = \"http://127.0.0.1:3000\", or give --origin";
    assert_eq!(problems(&ConfigSources::default()), [missing]);
    assert_eq!(problems(&file("")), [format!("proxy.toml: {missing}")]);
    assert_eq!(problems(&file("\n[origin]\n")), [format!("proxy.toml:2: {missing}")]);
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    for (text, line) in [
        ("a = 1\nb = = 2\n", 2),
        ("[cache\n", 1),
        ("a = \"x\nb = 1\n", 1),
        ("\n\nx", 3),
        ("a = \"x\n[cache\nb\n", 1),
    ] {
        let told = problems(&file(text));
        let start = format!("proxy.toml:{line}: not TOML: ");
        assert!(told[0].starts_with(&start), "{text:?}: {told:?}");
    }
}

#[test]
fn a_key_that_is_set_twice_is_told_with_both_places() {
    for (text, expected) in [
        (
            "[cache]\ndefault_ttl = \"1s\"\nmemory = \"1GiB\"\ndefault_ttl = \"2s\"\n",
            "proxy.toml:4: [cache] default_ttl: is already set at proxy.toml:2; remove one of the two",
        ),
        (
            "[cache]\n[log]\n[cache]\n",
            "proxy.toml:3: cache: this table begins at proxy.toml:1 already; put all its keys there",
        ),
        (
            "[[route]]\n[[route]]\nmatch = { path = \"/a\", path = \"/b\" }\n",
            "proxy.toml:3: [[route]] match.path: is already set at proxy.toml:3; remove one of the two",
        ),
    ] {
        assert_eq!(problems(&file(text)), [expected], "{text}");
    }
}

#[test]
fn a_file_of_another_program_is_one_problem() {
    for (text, expected) in [
        (
            "server {\n    listen 80;\n    location / {\n    }\n}\n",
            "proxy.toml:1: this looks like an nginx configuration (\"server {\"), and Anteroom reads TOML: begin \
             with origin = \"http://127.0.0.1:3000\", and see docs/guides/from-nginx-or-varnish.md",
        ),
        (
            "# One line.\nserver { listen 80; location / { root /srv; } }\n",
            "proxy.toml:2: this looks like an nginx configuration (\"server { listen 80; location / { root /srv; } }\"), \
             and Anteroom reads TOML: begin with origin = \"http://127.0.0.1:3000\", and see docs/guides/from-nginx-or-varnish.md",
        ),
        (
            "user hunter2@shop;\nhttp {\n}\n",
            "proxy.toml:1: this looks like an nginx configuration, and Anteroom reads TOML: begin with \
             origin = \"http://127.0.0.1:3000\", and see docs/guides/from-nginx-or-varnish.md",
        ),
    ] {
        assert_eq!(problems(&file(text)), [expected]);
    }
}

#[test]
fn a_block_without_its_sign_is_no_file_of_another_program() {
    for text in ["listen { address = \":80\" }\n", "http {\n"] {
        let told = problems(&file(text)).join("\n");
        assert!(!told.contains("this looks like"), "{text}: {told}");
    }
}

#[test]
fn a_second_table_of_a_list_is_told_once() {
    let expected = "proxy.toml:3: route: this table begins at proxy.toml:1 already; write [[route]] at both places";
    for second in ["[route]", "[[route]]"] {
        let text = format!("[route]\nmatch = \"/a\"\n{second}\nmatch = \"/b\"\n");
        assert_eq!(problems(&file(&text)), [expected], "{second}");
    }
}

#[test]
fn no_message_about_a_line_shows_a_password() {
    for text in [
        "store = redis://:hunter2@redis.example\n",
        "[admin]\ntoken = hunter2\n",
        "[admin]\ntoken: \"hunter2\"\n",
        "store = “redis://:hunter2@redis.example”\n",
        "origin = \"http://me:hunter2@app/path\"\n",
        "store = \"redis://:${PASSWORD}hunter2@redis.example\"\n",
    ] {
        let told = problems(&file(text)).join("\n");
        assert!(!told.is_empty() && !told.contains("hunter2"), "{told}");
    }
}

/// One wrong value each; what is told first begins with the text given.
const WRONG_VALUES: &[(&str, &str)] = &[
    ("cache.default_ttl = true", "[cache] default_ttl: found true; expected a duration"),
    (
        r#"cache.default_ttl = "366d""#,
        r#"[cache] default_ttl: found "366d"; expected a duration from "0s" to "365d""#,
    ),
    (
        r#"origin.connect_timeout = "0s""#,
        r#"[origin] connect_timeout: found "0s"; expected a duration from "1ms" to "1d""#,
    ),
    (
        "cache.memory = 64",
        r#"[cache] memory: found 64, without a unit; write "64B" for bytes, or "auto""#,
    ),
    (
        r#"limits.request_head = "4KiB""#,
        r#"[limits] request_head: found "4KiB"; expected a size from "8KiB" to "1MiB""#,
    ),
    (
        r#"limits.max_body = "all""#,
        r#"[limits] max_body: found "all"; expected a size such as "64KiB", "8MiB" or "1GiB", or "none""#,
    ),
    (r#"cache.trust_public = "yes""#, r#"[cache] trust_public: found "yes"; write true"#),
    ("session.max_sessions = -1", "[session] max_sessions: found -1; expected a number from 1"),
    (
        "session.max_sessions = 99999999999999999999",
        "[session] max_sessions: found 99999999999999999999; expected",
    ),
    (
        r#"session.same_site = "lax""#,
        r#"[session] same_site: found "lax"; expected "Lax", "Strict" or "None""#,
    ),
    (
        r#"session.identity_header = "Cookie""#,
        r#"[session] identity_header: found "Cookie"; expected a field of your own"#,
    ),
    (
        r#"session.cookie = ["a", "b;", "*"]"#,
        r#"[session] cookie: found "b;"; expected the name of a cookie"#,
    ),
    (r#"session.verifi = { path = "/me" }"#, "[session] verifi: unknown key; did you mean verify?"),
    (
        r#"session.verify = { path = "/me", nobody = { status = 401 } }"#,
        "[session] verify.user: missing; write user = { json = \"/user/name\" }",
    ),
    (
        r#"session.verify = { path = "/me", user = { json = "/name" } }"#,
        "[session] verify.nobody: missing; write nobody = { status = [401] }",
    ),
    (
        r#"session.verify = { user = { jsno = "/name" } }"#,
        "[session] verify.user: unknown key jsno; did you mean json?",
    ),
    (
        r#"session.verify = { user = { json = "name" } }"#,
        "[session] verify.user: found \"name\"; expected a JSON pointer such as",
    ),
    (
        r#"session.verify = { user = { json = "/name", regex = "x" } }"#,
        "[session] verify.user: found a table; expected a table such as { json = ",
    ),
    (
        r#"session.verify = { user = { regex = "a(" } }"#,
        "[session] verify.user: found \"a(\"; expected a regular expression (error: unclosed group)",
    ),
    (
        r#"session.verify = { nobody = { json = "/id" } }"#,
        "[session] verify.nobody: found a table; expected a table such as { status = [401] }",
    ),
    (
        r#"session.verify = { attributes = { Group = { json = "/id" } } }"#,
        "[session] verify.attributes: found \"Group\"; expected a name of 1 to 32 lower-case",
    ),
    (
        r#"session = { mint = true, verify = { path = "/me", user = { json = "/a" }, nobody = { status = 401 } } }"#,
        "[session] verify.path: is for an app with its own sessions, but mint = true",
    ),
    (
        r#"session.login = { match = { path = "/login" }, success.status = 302, user.form = "u" }"#,
        "[session] login.success: needs set_cookie, location or header, or verify = true",
    ),
    (
        r#"session.login = { match = { path = "/login" }, success.location = "/" }"#,
        "[session] login.user: missing; write user = { form = \"username\" }, or verify = true",
    ),
    (
        r#"session.login = { match = { path = "/login" }, verify = true }"#,
        "[session] login.verify: needs [session.verify] path",
    ),
    (
        r#"session.login.user.form = "u""#,
        "[session] login.match: missing; write match = { method = \"POST\", path = ",
    ),
    (
        r#"session.logout.match = { method = "GET" }"#,
        "[session] logout.match: found a table; expected a table such as { method = ",
    ),
    ("warmth.keep = 1", "warmth: unknown key; valid here: include, threads, listen, "),
    (
        r#"store = { url = "redis://127.0.0.1", pages_url = "embedded:./pages" }"#,
        "[store] pages_url: must be a Redis URL: the embedded store keeps its own pages",
    ),
    (
        r#"origin = { url = "https://a", tls.ca = "/missing.pem" }"#,
        r#"[origin] tls.ca: the file /missing.pem: not found; expected a PEM file of certificates, or "system""#,
    ),
    (
        r#"origin = { url = "https://a", tls.ca = "Cargo.toml" }"#,
        concat!(
            "[origin] tls.ca: the file ",
            env!("CARGO_MANIFEST_DIR"),
            "/Cargo.toml: contains no certificate; expected a PEM file of certificates, or \"system\""
        ),
    ),
    (
        r#"origin = { url = "https://a", tls.ca = "/" }"#,
        "[origin] tls.ca: the file /: cannot be read: ",
    ),
    (
        r#"origin = { url = "https://a", tls.key = "/missing.pem" }"#,
        r#"[origin] tls.key: the file /missing.pem: not found; expected a PEM file of a private key, or "none""#,
    ),
    (
        r#"listen = [{ address = ":443", tls = "acme" }]"#,
        r#"[[listen]] tls.cert: found "acme", and no file has that name; did you mean "auto"?"#,
    ),
    (
        r#"origin = { url = "https://a", tls.server_name = "a b" }"#,
        r#"[origin] tls.server_name: found "a b"; expected a name such as"#,
    ),
    ("cache = 5", "cache: found 5; expected a table of keys"),
    ("route = 5", "[[route]]: found 5; expected a table of keys such as name"),
    ("listen = 80800", r#"[[listen]] address: found ":80800"; expected a port from 1 to 65535"#),
    (r#"cache.memory = "256MB""#, r#"[cache] memory: found "256MB"; write "256MiB", or "auto""#),
    (r#"default_ttl = "5m""#, "default_ttl: unknown key; did you mean default_ttl in [cache]?"),
    ("[[route]]\npath = \"/a\"", "[[route]] path: unknown key; did you mean match.path?"),
    ("[admin]\nlisten = \":1\"", "[admin] listen: unknown key; did you mean address?"),
    ("backend = \"a:1\"", "backend: unknown key; did you mean url in [origin]?"),
    ("[cache]\ngrace = \"1s\"", "[cache] grace: unknown key; did you mean stale_while_revalidate?"),
    ("listen = []", "listen: expected at least one [[listen]]"),
    ("listen = [{}]", r#"[[listen]] address: missing; write address = "127.0.0.1:8080""#),
    (
        r#"listen = [{ address = "/run/a.sock" }]"#,
        r#"[[listen]] address: found "/run/a.sock"; expected an address and port"#,
    ),
    (r#"listen = [{ address = "unix:" }]"#, r#"[[listen]] address: found "unix:"; expected an"#),
    (
        r#"listen = [{ address = "systemd:a b" }]"#,
        r#"[[listen]] address: found "systemd:a b"; expected "systemd:" and the FileDescriptorName"#,
    ),
    (
        r#"listen = [{ address = "unix:a", mode = "0999" }]"#,
        r#"[[listen]] mode: found "0999"; expected a file mode such as "0660""#,
    ),
    (
        r#"listen = [{ address = "[::]:80", proxy_protocol = { from = "lb" } }]"#,
        r#"[[listen]] proxy_protocol.from: found "lb"; expected an address or a network such as "10.0.0.0/8", or "unix""#,
    ),
    (
        r#"route = [{ share = "users" }]"#,
        r#"[[route]] share: found "users"; expected "anonymous", "everyone", "segment", "user" or "none""#,
    ),
    (
        r#"route = [{ segment = ["logged_in", "user"] }]"#,
        r#"[[route]] segment: found "user"; expected "logged_in", "attribute:group", "#,
    ),
    (r#"route = [{ segment = ["attribute:Group"] }]"#, "[[route]] segment: found "),
    (r#"route = [{ segment = ["cookie:a b"] }]"#, "[[route]] segment: found "),
    (r#"route = [{ segment = ["language:de||en"] }]"#, "[[route]] segment: found "),
    (
        r#"route = [{ segment_proof = "one" }]"#,
        r#"[[route]] segment_proof: found "one"; expected "second_user" or "none""#,
    ),
    (
        r#"route = [{ match.paths = "/a" }]"#,
        "[[route]] match.paths: unknown key; did you mean path?",
    ),
    (
        r#"route = [{ match.path = "/a**" }]"#,
        r#"[[route]] match.path: found "/a**"; expected `**` as a whole segment, as in `/feed/**`"#,
    ),
    (
        r#"route = [{ match.method = "get" }]"#,
        r#"[[route]] match.method: found "get"; expected "GET": methods"#,
    ),
    (
        r#"route = [{ match.query = "id" }]"#,
        r#"[[route]] match.query: found "id"; expected "any", "none", or a table such as { id = "{item}" }"#,
    ),
    (
        r#"route = [{ match.headers = "bot" }]"#,
        r#"[[route]] match.headers: found "bot"; expected a table such as { user-agent = "~ (?i)bot" }"#,
    ),
    (
        r#"route = [{ match.headers = { User-Agent = "a*b*" } }]"#,
        r#"[[route]] match.headers: found "a*b*"; expected a pattern with one * at most, or ~ and a regular expression"#,
    ),
    (
        r#"route = [{ match.headers = { User-Agent = "~ (" } }]"#,
        r#"[[route]] match.headers: found "~ ("; expected ~ and a regular expression ("#,
    ),
    (
        r#"route = [{ match.headers = { Cookie = "a" } }]"#,
        r#"[[route]] match.headers: found "Cookie"; expected another field"#,
    ),
    (
        r#"route = [{ match.headers = { Accept = "a", accept = "b" } }]"#,
        r#"[[route]] match.headers: found accept twice; field names ignore case"#,
    ),
    (
        r#"route = [{ match.query = { id = "{x}" } }]"#,
        r#"[[route]] match.query: found "{x}"; expected a literal value"#,
    ),
    (
        r#"route = [{ key_headers = ["Cookie"] }]"#,
        r#"[[route]] key_headers: found "Cookie"; expected another field"#,
    ),
    (
        r#"route = [{ key_headers = ["X-Country", "Client-Cert"] }]"#,
        r#"[[route]] key_headers: found "Client-Cert"; expected another field: this one is removed"#,
    ),
    (
        r#"route = [{ key_headers = ["X_Real_IP"] }]"#,
        r#"[[route]] key_headers: found "X_Real_IP"; expected another field: this one is removed"#,
    ),
    (
        r#"route = [{ send_headers = ["X-Anteroom-Signature"] }]"#,
        r#"[[route]] send_headers: found "X-Anteroom-Signature"; expected another field"#,
    ),
    (
        r#"route = [{ key_headers = ["HTTP2-Settings"] }]"#,
        r#"[[route]] key_headers: found "HTTP2-Settings"; expected another field"#,
    ),
    (
        r#"route = [{ key_headers = ["X-Rewrite-URL"] }]"#,
        r#"[[route]] key_headers: found "X-Rewrite-URL"; expected another field: an app may take"#,
    ),
    (
        r#"route = [{ send_headers = ["X-Method-Override"] }]"#,
        r#"[[route]] send_headers: found "X-Method-Override"; expected another field: an app may take"#,
    ),
    (
        r#"route = [{ key_cookies = ["a*"] }]"#,
        r#"[[route]] key_cookies: found "a*"; expected the name of a cookie"#,
    ),
    (
        r#"store.url = "redis+sentinel://a""#,
        "[store] url: names no primary; expected Sentinels and the name of the primary, such as redis+sentinel://a:26379,b:26379/mymaster",
    ),
    (
        r#"session.on_expire = "webhook:ftp://a""#,
        r#"[session] on_expire: found "webhook:ftp://a"; expected a URL such as "https://crm.example.com/carts", without user and fragment, after "webhook:""#,
    ),
    (r#"session.on_expire = "webhook:https://""#, "[session] on_expire: found"),
    (r#"session.on_expire = "webhook:https://a@b/c""#, "[session] on_expire: found"),
    (
        r#"session.on_expire = "webhook:https://crm:hunter2@host/x""#,
        r#"[session] on_expire: found "webhook:https://crm:(hidden)@host/x"; expected a URL"#,
    ),
    (r#"session.on_expire = "webhook:https://a/b#c""#, "[session] on_expire: found"),
    (r#"session.on_expire = "webhook:https://a/b c""#, "[session] on_expire: found"),
    (
        r#"traces.endpoint = "http://a:4318/v1/traces""#,
        "[traces] endpoint: found \"http://a:4318/v1/traces\"; expected a URL without /v1/traces, which is added",
    ),
    (
        r#"traces.endpoint = "127.0.0.1:4318""#,
        "[traces] endpoint: found \"127.0.0.1:4318\"; expected a URL",
    ),
    (r#"traces.endpoint = "http://a?q""#, "[traces] endpoint: found"),
    (
        "traces.sample = 1.5",
        "[traces] sample: found 1.5; expected a number from 0 to 1 such as 0.01",
    ),
    (r#"traces.sample = "1%""#, "[traces] sample: found"),
    (
        r#"traces.headers = { "X-Api-Key" = "hunter2" }"#,
        "[traces] headers: a secret is never written",
    ),
    (
        r#"traces.headers = { "Host" = { file = "../../rustfmt.toml" } }"#,
        "[traces] headers: found \"Host\"",
    ),
    (r#"traces.service_name = """#, "[traces] service_name: found \"\"; expected a name"),
    (
        r#"session.webhook_secret = "hunter2""#,
        "[session] webhook_secret: a secret is never written",
    ),
    (
        r#"session.webhook_secret = [{ file = "../../rustfmt.toml" }, "hunter2"]"#,
        "[session] webhook_secret: a secret is never written",
    ),
    (
        "listen = [{ address = \":1\", tls.ticket_secret = \"hunter2\" }]",
        "[[listen]] tls.ticket_secret: a secret is never written",
    ),
    (r#"store.url = "redis+cluster://a/3""#, "[store] url: a Cluster has one database only"),
    (
        r#"store = { url = "redis+cluster://a", layout = "single" }"#,
        r#"[store] layout: "single" needs all keys in one slot of the Cluster: use "sharded", or a prefix with a hash tag, such as "{shop}:""#,
    ),
    (
        r#"store = { url = "redis+cluster://a", prefix = "{shop}:" }"#,
        "[store] prefix: has a hash tag, which would keep all shards in one slot: leave out { and }",
    ),
    (
        r#"origin.secret = "hunter2""#,
        "[origin] secret: a secret is never written in the configuration itself; write { file = ",
    ),
    (
        r#"admin.token = { env = "GONE" }"#,
        "[admin] token: the environment variable GONE is not set",
    ),
    (
        r#"admin.token = { file = "/nonexistent/t" }"#,
        "[admin] token: cannot read the file /nonexistent/t: ",
    ),
    (r#"route = [{ purges = "/a*" }]"#, "[[route]] purges: found "),
    (
        r#"route = [{ remove_headers = ["Set-Cookie"] }]"#,
        "[[route]] remove_headers: found \"Set-Cookie\"; expected another field: cookies are cut by strip_set_cookie",
    ),
    (r#"route = [{ remove_headers = ["a b"] }]"#, "[[route]] remove_headers: found "),
    (
        r#"purge.after = [{ purges = "/" }]"#,
        "[purge] after: found a table; expected a table such as ",
    ),
    (
        r#"purge.after = [{ match = { path = "/a" }, purges = "/a*" }]"#,
        "[purge] after: found \"/a*\"; expected a path",
    ),
    (
        r#"purge.after = [{ match = { method = "GET", path = "/a" }, purges = "/" }]"#,
        "[purge] after: GET changes nothing; write a method such as POST",
    ),
    (r#"purge.purge_from = "somewhere""#, "[purge] purge_from: found "),
    (r#"admin.token = { file = "a", env = "b" }"#, "[admin] token: expected { file = "),
    (r#"admin.tokens = ["a"]"#, "[admin] tokens: found \"a\"; expected a table such as { name = "),
    (
        r#"admin.tokens = [{ name = "a" }]"#,
        "[admin] tokens: found a table; expected a table such as { name = ",
    ),
    (
        r#"admin.tokens = [{ name = "a b", role = "read" }]"#,
        "[admin] tokens: found \"a b\"; expected a name of 1 to 32 letters, digits, or any of - _ . @",
    ),
    (
        r#"admin.tokens = [{ name = "admin", role = "read" }]"#,
        "[admin] tokens: found \"admin\"; expected another name: this is the one of [admin] token",
    ),
    (
        r#"admin.tokens = [{ name = "a", role = "write" }]"#,
        "[admin] tokens: found \"write\"; expected \"read\", \"purge\", \"sessions\" or \"all\"",
    ),
    (
        r#"admin.tokens = [{ name = "a", role = "read", token = "hunter2" }]"#,
        "[admin] tokens: a secret is never written in the configuration itself",
    ),
    (
        r#"client.trusted_proxies = ["10.0.0.0/33"]"#,
        r#"[client] trusted_proxies: found "10.0.0.0/33"; expected an address or a network"#,
    ),
    (
        r#"log.redact_paths = ["users"]"#,
        r#"[log] redact_paths: found "users"; expected a path that begins with /"#,
    ),
];

#[test]
fn a_wrong_value_is_told_with_what_was_expected() {
    for (text, expected) in WRONG_VALUES {
        let mut sources = file(text);
        sources.overrides.origin = Some("http://app".to_owned());
        let told = problems(&sources).remove(0);
        let (_, problem) = told.split_once(": ").expect("a place");
        assert!(problem.starts_with(expected), "{text:?}\n told: {problem}\n want: {expected}");
    }
}

#[test]
fn a_field_that_http_or_the_proxy_needs_is_not_removed() {
    for name in [
        "Content-Length",
        "Content-Type",
        "Content-Encoding",
        "Content-Range",
        "Content-Disposition",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Proxy-Authenticate",
        "TE",
        "Trailer",
        "Upgrade",
        "Cache-Status",
        "Age",
        "Date",
        "Vary",
        "Cache-Control",
        "CDN-Cache-Control",
        "Surrogate-Control",
        "Surrogate-Key",
        "Cache-Tag",
        "Expires",
        "ETag",
        "Last-Modified",
        "Location",
        "WWW-Authenticate",
        "Sec-WebSocket-Accept",
        "Accept-Ranges",
        "Anteroom-Login",
        "grpc-status",
    ] {
        let mut sources = file(&format!("route = [{{ remove_headers = [{name:?}] }}]"));
        sources.overrides.origin = Some("http://app".to_owned());
        let expected = format!(
            "proxy.toml:1: [[route]] remove_headers: found {name:?}; expected another field: {name} is \
             needed by HTTP or by the proxy"
        );
        assert_eq!(problems(&sources), [expected]);
    }
}

/// Settings that are fine alone and wrong together; each text is all that is told.
const CONTRADICTIONS: &[(&str, &str)] = &[
    (
        "[origin]\ntls.server_name = \"app\"",
        "proxy.toml:2: [origin] tls.server_name: needs an [origin] url that begins with https:",
    ),
    (
        "[[listen]]\naddress = \"[::1]:80\"\n[[listen]]\naddress = \"[::1]:80\"",
        "proxy.toml:4: [[listen]] address: [::1]:80 is already the address of another [[listen]]",
    ),
    (
        "[[listen]]\naddress = \"127.0.0.1:80\"\n[[listen]]\naddress = \"[::]:80\"",
        "proxy.toml:4: [[listen]] address: 127.0.0.1:80 and [::]:80 overlap",
    ),
    (
        "[[listen]]\naddress = \"unix:a\"\n[[listen]]\naddress = \"unix:a\"",
        "proxy.toml:4: [[listen]] address: is already the address of another [[listen]]",
    ),
    (
        "[[listen]]\naddress = \"systemd\"\n[[listen]]\naddress = \"systemd:web\"",
        "proxy.toml:4: [[listen]] address: an earlier [[listen]] already uses these sockets",
    ),
    (
        "[[listen]]\naddress = \"[::]:80\"\nmode = \"0600\"",
        "proxy.toml:3: [[listen]] mode: needs an address that begins with \"unix:\"",
    ),
    (
        "[[listen]]\naddress = \"unix:a\"\nproxy_protocol.from = \"10.0.0.0/8\"",
        "proxy.toml:3: [[listen]] proxy_protocol.from: no connection from 10.0.0.0/8 can arrive at this address",
    ),
    (
        "[origin]\nsessions = false\n[[route]]\nshare = \"user\"",
        "proxy.toml:4: [[route]] share: \"user\" needs an origin with sessions = true",
    ),
    (
        "[origins.blog]\nurl = \"http://b\"\n[[route]]\nshare = \"segment\"\norigin = \"blog\"",
        "proxy.toml:4: [[route]] share: \"segment\" needs an origin with sessions = true",
    ),
    (
        "[origins.blog]\nurl = \"http://b\"\n[[route]]\nmatch.path = \"/\"\nshare = \"everyone\"\n\
         fragments = [{ selector = \"b\", from = \"/b\", share = \"user\" }]\n\
         [[route]]\nmatch.path = \"/b\"\norigin = \"blog\"",
        "proxy.toml:6: [[route]] fragments: \"user\" needs an origin with sessions = true",
    ),
    (
        "[session]\ncookie = []\n[[route]]\nshare = \"everyone\"\n\
         fragments = [{ selector = \"b\", from = \"/b\", share = \"user\" }]",
        "proxy.toml:5: [[route]] fragments: \"user\" needs a [session] cookie",
    ),
    (
        "[[route]]\nshare = \"everyone\"\nmatch.path = \"/\"\n\
         fragments = [{ selector = \"b\", from = \"/b?c=d\", share = \"user\" }]\n\
         [[route]]\nmatch.query = { c = \"d\" }\nstrip_set_cookie = [\"login\"]",
        "proxy.toml:4: [[route]] fragments: a route of /b?c=d removes the session cookie login, which share = \"user\" always keeps",
    ),
    (
        "[[route]]\nshare = \"everyone\"\n\
         fragments = [{ selector = \"b\", from = \"/b\", share = \"segment\" }]",
        "proxy.toml:3: [[route]] fragments: share = \"segment\" for /b uses the segment of this route; write share = \"segment\" here too, or add a route for /b with a segment",
    ),
    (
        "[session]\ncookie = []\n[[route]]\nshare = \"segment\"",
        "proxy.toml:4: [[route]] share: \"segment\" needs a [session] cookie",
    ),
    (
        "[[route]]\nshare = \"segment\"\nsegment = [\"cookie:login\"]",
        "proxy.toml:3: [[route]] segment: login is a session cookie, which cannot be part of the page key",
    ),
    (
        "[[route]]\nshare = \"segment\"\nsegment = [\"language\", \"language:de|en\"]",
        "proxy.toml:3: [[route]] segment: lists language twice",
    ),
    (
        "[[route]]\nshare = \"user\"\nstrip_set_cookie = [\"login\"]",
        "proxy.toml:3: [[route]] strip_set_cookie: login is a session cookie, which share = \"user\" always keeps; remove it from the list",
    ),
    (
        "[origins.b]\nurl = \"http://127.0.0.1:8080\"\n[[listen]]\naddress = \"[::]:8080\"",
        "proxy.toml:2: [origins] b.url: http://127.0.0.1:8080 is [::]:8080, where Anteroom listens; write the address of the app",
    ),
    (
        "[origins.b]\nurls = [\"http://localhost:81\"]\n[[listen]]\naddress = \"[::]:81\"",
        "proxy.toml:2: [origins] b.urls: http://localhost:81 is [::]:81, where Anteroom listens; write the address of the app",
    ),
    (
        "[origins.b]\nurl = \"unix:/run/a.sock\"\n[[listen]]\naddress = \"unix:/run/a.sock\"",
        "proxy.toml:2: [origins] b.url: unix:/run/a.sock is unix:/run/a.sock, where Anteroom listens; write the address of the app",
    ),
    (
        "[admin]\naddress = \"127.0.0.1:8080\"",
        "proxy.toml:2: [admin] address: 127.0.0.1:8080 is already a [[listen]] address",
    ),
    (
        "[session]\ncookie = \"anteroom_admin\"",
        "proxy.toml:2: [session] cookie: anteroom_admin is the cookie of the dashboard, which is cut off from visitors' requests; expected another name",
    ),
    (
        "[visitor]\ncookie = \"anteroom_admin\"",
        "proxy.toml:2: [visitor] cookie: anteroom_admin is the cookie of the dashboard, which is cut off from visitors' requests; expected another name",
    ),
    (
        "[admin]\naddress = \"0.0.0.0:9180\"",
        "proxy.toml:2: [admin] address: 0.0.0.0:9180 is reachable from other hosts; set token, too",
    ),
    (
        "[purge]\nmethod = true\npurge_token = \"none\"",
        "proxy.toml:2: [purge] method: needs purge_from, the peers that may purge",
    ),
    (
        "[purge]\nmethod = true\npurge_from = [\"127.0.0.1\"]",
        "proxy.toml:2: [purge] method: needs [admin] token; or, for an app here that cannot send one, purge_token = \"none\"",
    ),
    (
        "[purge]\nmethod = true\npurge_from = [\"10.1.0.0/16\", \"8.8.8.8\"]\npurge_token = \"none\"",
        "proxy.toml:4: [purge] purge_token: \"none\" is allowed for loopback and private addresses only; found 8.8.8.8/32",
    ),
    (
        "[client]\ntrusted_proxies = [\"10.1.2.3\"]\n[purge]\nmethod = true\n\
         purge_from = [\"10.0.0.0/8\"]\npurge_token = \"none\"",
        "proxy.toml:6: [purge] purge_token: \"none\" is not allowed for 10.0.0.0/8, which overlaps [client] trusted_proxies",
    ),
    (
        "[session]\nmint = true\ncookie = [\"a\", \"b\"]",
        "proxy.toml:2: [session] mint: needs [session] cookie to be one name without *",
    ),
    (
        "[session]\nmint = true\ncookie = \"a*\"",
        "proxy.toml:2: [session] mint: needs [session] cookie to be one name without *",
    ),
    (
        "[session]\nmint = true\n[origin]\nsessions = false",
        "proxy.toml:2: [session] mint: needs [origin] sessions = true: the origin logs visitors in",
    ),
    (
        "[session]\nsame_site = \"None\"\nsecure = \"never\"",
        r#"proxy.toml:2: [session] same_site: "None" needs secure = "always" or "auto": browsers reject such a cookie without Secure"#,
    ),
    (
        "[session]\nmint = true\ncookie = \"__Host-sid\"\nsecure = \"never\"",
        "proxy.toml:4: [session] secure: is \"never\", but browsers accept a cookie of this name only with Secure; remove this line",
    ),
    (
        "[session]\ncookie_lifetime = \"30d\"",
        "proxy.toml:2: [session] cookie_lifetime: needs [session] mint = true: otherwise the app creates the sessions",
    ),
    (
        "[traces]\nheaders = { \"X-A\" = { file = \"../../deny.toml\" } }",
        "proxy.toml:2: [traces] headers: expected a value of visible ASCII, as header fields require",
    ),
    (
        "[traces]\nheaders = { \"X-A\" = { file = \"../demo/src/templates/made.html\" } }",
        "proxy.toml:2: [traces] headers: has no effect without endpoint: set it, too",
    ),
    (
        "[session]\non_expire = \"webhook:https://crm/carts\"",
        "proxy.toml:1: [session] webhook_secret: is required by on_expire = \"webhook:…\": the receiver verifies requests with it",
    ),
    (
        "[session]\nwebhook_secret = [{ file = \"../../rustfmt.toml\" }, { file = \"../../rustfmt.toml\" }]",
        "proxy.toml:2: [session] webhook_secret: lists one key twice: the second is for the key that the first replaces",
    ),
    (
        "[session]\nwebhook_secret = [{ file = \"../../rustfmt.toml\" }, { file = \"../../clippy.toml\" }, { file = \"../../deny.toml\" }]",
        "proxy.toml:2: [session] webhook_secret: lists more than two keys: expected the new one and the previous one",
    ),
    (
        "[[listen]]\naddress = \":443\"\ntls = { key = \"/site.key\" }",
        "proxy.toml:3: [[listen]] tls: needs cert, such as cert = \"/etc/anteroom/tls/*.pem\"",
    ),
    (
        "[session]\ncart_idle = \"2h\"",
        "proxy.toml:2: [session] cart_idle: needs on_expire, which names the receiver",
    ),
    (
        "[session]\non_expire = \"file:a\"\nidle_timeout = \"1h\"\ncart_idle = \"1h\"",
        "proxy.toml:4: [session] cart_idle: must be shorter than idle_timeout: otherwise the session ends first",
    ),
    (
        "[session]\nmax_per_user = 3",
        "proxy.toml:2: [session] max_per_user: needs [session] mint = true: otherwise the app creates the sessions",
    ),
    (
        "[session]\nidle_timeout = \"2h\"\nabsolute_timeout = \"1h\"",
        "proxy.toml:2: [session] idle_timeout: is longer than absolute_timeout, so it never ends a session",
    ),
    (
        "[cache]\nmemory = \"4MiB\"",
        "proxy.toml:1: [cache] max_object: 8MiB exceeds [cache] memory, 4MiB: pages of this size could not be stored",
    ),
    (
        "[limits]\nuri = \"64KiB\"",
        "proxy.toml:2: [limits] uri: exceeds request_head, which contains it",
    ),
    (
        "[cache]\nignore_cookies = [\"log*\"]",
        r#"proxy.toml:2: [cache] ignore_cookies: "log*" matches a session cookie, which is never harmless"#,
    ),
    (
        "[[route]]\noverride_ttl = \"60s\"",
        "proxy.toml:2: [[route]] override_ttl: needs a match.path other than /**, or a route before this one with share = \"none\" for the paths that are left out",
    ),
    (
        "[[route]]\nmatch.path = [\"/a\", \"/**\"]\noverride_ttl = \"60s\"",
        "proxy.toml:3: [[route]] override_ttl: needs a match.path other than /**, or a route before this one with share = \"none\" for the paths that are left out",
    ),
    (
        "[[route]]\nmatch = { path = \"/admin/**\", query = { a = \"b\" } }\nshare = \"none\"\n[[route]]\nmatch.path = \"/**\"\noverride_ttl = \"60s\"",
        "proxy.toml:6: [[route]] override_ttl: needs a match.path other than /**, or a route before this one with share = \"none\" for the paths that are left out",
    ),
    (
        "[session]\napp = \"php\"\n[[route]]\nmatch.path = \"/admin/**\"\nshare = \"none\"\n[[route]]\nmatch.path = \"/**\"\noverride_ttl = \"60s\"\noverride_private = true",
        "proxy.toml:9: [[route]] override_private: needs a match.path other than /**",
    ),
    (
        "[[route]]\nmatch.path = \"/{item}\"\nmatch.query = { id = \"{item}\" }",
        "proxy.toml:3: [[route]] match.query: {item} may appear only once, in the path or in the query",
    ),
    (
        "[[route]]\nmatch.query = { a = \"b\" }\nallow_from = \"10.0.0.0/8\"",
        "proxy.toml:3: [[route]] allow_from: cannot be combined with match.query: clients choose the query, and could avoid this route",
    ),
    (
        "[[route]]\nmatch.headers = { user-agent = \"a\" }\nallow_from = \"10.0.0.0/8\"",
        "proxy.toml:3: [[route]] allow_from: cannot be combined with match.headers: clients choose what they send, and could avoid this route",
    ),
    (
        "[[route]]\nmatch = \"/a\"\nallow_from = []",
        "proxy.toml:3: [[route]] allow_from: found an empty list, which names no network that may use the route; write deny = true to refuse all requests of this route, or leave allow_from out to serve all networks",
    ),
    (
        "[[route]]\nmatch = \"/a\"\ndeny = true\nallow_from = \"10.0.0.0/8\"",
        "proxy.toml:4: [[route]] allow_from: cannot be combined with deny = true, which refuses these networks, too; to exempt them, put a route with this allow_from before, and remove deny",
    ),
    (
        "[[route]]\nmatch.query = { author = \"1\" }\ndeny = true",
        "proxy.toml:3: [[route]] deny: cannot be combined with parameters in match.query, which a client may repeat to avoid this route; write \"any\" or \"none\", or deny the path",
    ),
    (
        "[[route]]\nmatch.host = \"a.test\"\ndeny = true",
        "proxy.toml:3: [[route]] deny: needs [origin] hosts beside match.host: otherwise another spelling of the Host avoids this route",
    ),
    (
        "[[route]]\nmatch = \"/a\"\nclass = \"login\"\nmax_strangers = 2",
        "proxy.toml:4: [[route]] max_strangers: has no effect with class = \"login\", which is not that of strangers",
    ),
    (
        "[session]\nidentity_header = \"X-User\"\n[[route]]\nmatch.headers = { x-user = \"a\" }",
        "proxy.toml:4: [[route]] match.headers: x-user is the identity header, which the proxy sets itself",
    ),
    (
        "[[route]]\nkey_cookies = \"login\"",
        "proxy.toml:2: [[route]] key_cookies: login is a session cookie, which cannot be part of the page key",
    ),
    (
        "[session]\nidentity_header = \"X-User\"\n[[route]]\nkey_headers = \"X-User\"",
        "proxy.toml:4: [[route]] key_headers: x-user is the identity header, which the proxy sets itself",
    ),
    (
        "[[route]]\nmatch.host = \"a.test\"\nrequests_per_address = \"1/s\"",
        "proxy.toml:3: [[route]] requests_per_address: needs [origin] hosts beside match.host: otherwise another spelling of the Host avoids this route",
    ),
    (
        "[[route]]\nmatch.host = \"a.test\"\nrequests_per_session = \"1/s\"",
        "proxy.toml:3: [[route]] requests_per_session: needs [origin] hosts beside match.host: otherwise another spelling of the Host avoids this route",
    ),
    (
        "[[route]]\nmatch.host = [\"a.test\", \"c.test\"]\nallow_from = \"10.0.0.0/8\"\n\
         [origin]\nhosts = [\"a.test\", \"b.test\"]",
        "proxy.toml:2: [[route]] match.host: c.test is not in [origin] hosts, so allow_from never applies",
    ),
    (
        "[[route]]\nmatch.host = [\"a.test\", \"b.test:81\"]\nallow_from = \"10.0.0.0/8\"\n\
         [origin]\nhosts = [\"a.test\", \"*.test\"]",
        "proxy.toml:2: [[route]] match.host: b.test:81 has a port, and [origin] hosts serves each port: a request for another one avoids this route; write \"b.test\", or the port there, too",
    ),
    (
        "[session]\ncookie = \"s\"\n[[route]]\nmatch.path = \"/a\"\noverride_private = true",
        "proxy.toml:5: [[route]] override_private: needs override_ttl",
    ),
    (
        "[session]\ncookie = \"s\"\n[[route]]\nmatch.path = \"/a\"\noverride_ttl = \"1s\"\nshare = \"everyone\"\noverride_private = true",
        r#"proxy.toml:7: [[route]] override_private: needs share = "anonymous""#,
    ),
    (
        "[[route]]\nmatch.path = \"/a\"\nshare = \"everyone\"\nset_cookie = \"strip_for_anonymous\"",
        r#"proxy.toml:4: [[route]] set_cookie: "strip_for_anonymous" needs share = "anonymous"; with share = "everyone", name the cookies that stored pages lose: strip_set_cookie = ["login"]"#,
    ),
    (
        "[session]\napp = \"php\"\n[[route]]\nmatch.path = \"/a\"\nshare = \"segment\"\nset_cookie = \"strip_for_anonymous\"",
        r#"proxy.toml:6: [[route]] set_cookie: "strip_for_anonymous" needs share = "anonymous"; with share = "segment", name the cookies that stored pages lose: strip_set_cookie = ["PHPSESSID"]"#,
    ),
    (
        "[[route]]\nmatch.path = \"/a\"\nshare = \"none\"\nset_cookie = \"strip_for_anonymous\"",
        r#"proxy.toml:4: [[route]] set_cookie: "strip_for_anonymous" needs share = "anonymous""#,
    ),
    (
        "[[route]]\nmatch.path = \"/**\"\nshare = \"everyone\"\nleak_guard = \"off\"",
        r#"proxy.toml:4: [[route]] leak_guard: "off" needs a match.path other than /**"#,
    ),
    (
        "[[route]]\nmatch.path = \"/a\"\nleak_guard = \"off\"",
        r#"proxy.toml:3: [[route]] leak_guard: "off" needs share = "everyone"; found share = "anonymous""#,
    ),
    (
        "[[route]]\nmatch.path = \"/a\"\nshare = \"segment\"\nleak_guard = \"off\"",
        r#"proxy.toml:4: [[route]] leak_guard: "off" needs share = "everyone"; found share = "segment""#,
    ),
    (
        "[[route]]\nmatch.path = \"/a\"\nshare = \"user\"\nleak_guard = \"off\"",
        r#"proxy.toml:4: [[route]] leak_guard: "off" needs share = "everyone"; found share = "user""#,
    ),
    (
        "[[route]]\nmatch.path = \"/a\"\noverride_ttl = \"1s\"\noverride_private = true",
        "proxy.toml:4: [[route]] override_private: needs an explicit [session] cookie or app",
    ),
    (
        "session.cookie = \"*_visitor\"\nvisitor.cookie = \"a_visitor\"\n[[route]]\n\
         match.path = \"/{item}\"\nvisitor_token = true",
        "proxy.toml:2: [visitor] cookie: a_visitor is a session cookie, by [session] cookie = \"*_visitor\"",
    ),
    (
        "cache.ignore_cookies = [\"a_*\"]\nvisitor.cookie = \"a_visitor\"\n[[route]]\n\
         match.path = \"/{item}\"\nvisitor_token = true",
        "proxy.toml:2: [visitor] cookie: a_visitor is also matched by [cache] ignore_cookies = \"a_*\"; remove it there, because the app never receives it",
    ),
    (
        "visitor.cookie = \"a_visitor\"\n[[route]]\nmatch.path = \"/{item}\"\nvisitor_token = true\n\
         key_cookies = [\"a_visitor\"]",
        "proxy.toml:1: [visitor] cookie: a_visitor is part of the key of route \"/{item}\", but the app never receives it",
    ),
    (
        "session.secure = \"never\"\nvisitor.cookie = \"__Host-v\"\n[[route]]\n\
         match.path = \"/{item}\"\nvisitor_token = true",
        "proxy.toml:2: [visitor] cookie: has a name that browsers accept only with Secure, and [session] secure is \"never\"",
    ),
    (
        "rows = [{ name = \"stock\", path = \"/stock/{row}\" }]\n[[route]]\nmatch.path = \"/{item}\"\n\
         rows = \"stock\"\nvisitor_token = true",
        "proxy.toml:5: [[route]] visitor_token: has no effect on a route with rows, which are not viewed as pages",
    ),
];

#[test]
fn the_cookie_of_visitors_is_looked_at_where_it_is_used() {
    let route = "session.cookie = \"*_visitor\"\norigin.hosts = \"example.com\"\n[[route]]\n\
                 match.path = \"/{item}\"\n";
    let mut sources = file(route);
    sources.overrides.origin = Some("http://app".to_owned());
    assert!(Plan::read(&sources).is_ok());
    let mut sources = file(&format!("{route}visitor_token = true"));
    sources.overrides.origin = Some("http://app".to_owned());
    assert_eq!(problems(&sources).len(), 1);
}

#[test]
fn a_token_without_anything_to_remember_is_warned_of() {
    let told = |more: &str| {
        warnings(&format!(
            "{ORIGIN}hosts = \"example.com\"\nsessions = false\n[visitor]\nendpoints = [\"me\"{more}]\n\
             [[route]]\nmatch.path = \"/shop/**\"\nvisitor_token = true\n"
        ))
    };
    assert!(told("")[0].contains("has nothing to store"), "{:?}", told(""));
    assert_eq!(told(", \"cart\""), [""; 0]);
}

#[test]
fn a_route_for_known_visitors_is_warned_of_where_none_is_known() {
    let told =
        |text: &str| warnings(&format!("{ORIGIN}hosts = \"example.com\"\n{text}\n")).join("\n");
    let route = |settings: &str| format!("[[route]]\nmatch.path = \"/a/**\"\n{settings}");
    for (settings, start) in [
        ("share = \"user\"", "[[route]] share: \"user\" is for visitors that are known"),
        ("share = \"segment\"", "[[route]] share: \"segment\" is for visitors that are known"),
        (
            "share = \"segment\"\nsegment = [\"attribute:group\", \"language\"]",
            "[[route]] share: \"segment\" is for visitors that are known",
        ),
        (
            "share = \"none\"\nrequire = \"login\"",
            "[[route]] require: \"login\" is for visitors that are known",
        ),
    ] {
        let alone = told(&route(settings));
        assert!(alone.contains(start) && alone.lines().count() == 1, "{settings}: {alone}");
        // A cookie alone does not say whose session it is.
        let named = told(&format!("[session]\ncookie = \"sid\"\n{}", route(settings)));
        assert!(named.contains(start), "{settings}: {named}");
        for known in [
            "[session]\nmint = true",
            "[session]\napp = \"mediawiki\"",
            "[session.verify]\npath = \"/me\"\nuser = { json = \"/name\" }\nnobody = { status = [401] }",
            "[session.login]\nmatch = { path = \"/login\" }\nsuccess = { set_cookie = \"login\" }\n\
             user = { form = \"name\" }",
            "[store]\nurl = \"redis://127.0.0.1\"",
        ] {
            let text = told(&format!("{known}\n{}", route(settings)));
            assert!(!text.contains("visitors that are known"), "{known}: {text}");
        }
    }
    for fine in [
        "share = \"segment\"\nsegment = [\"language\"]",
        "share = \"segment\"\nsegment = [\"cookie:currency\"]",
        "share = \"everyone\"",
        "require = \"none\"",
    ] {
        let text = told(&route(fine));
        assert!(!text.contains("visitors that are known"), "{fine}: {text}");
    }
    let both =
        format!("{}\n[[route]]\nmatch.path = \"/b\"\nshare = \"user\"", route("share = \"user\""));
    assert_eq!(told(&both).matches("visitors that are known").count(), 1, "one line is enough");
}

#[test]
fn a_redirect_to_https_that_nothing_serves_is_warned_of() {
    let told = |text: &str| {
        let text =
            format!("origin = {{ url = \"app\", hosts = [\"shop.example.com\"] }}\n{text}\n");
        warnings(&text).join("\n")
    };
    let plain = "[[listen]]\naddress = \":80\"\nredirect = \"https\"\n";
    let expected =
        "proxy.toml:4: [[listen]] redirect: leads to port 443, and no [[listen]] has tls";
    assert!(told(plain).starts_with(expected), "{}", told(plain));
    for more in [
        "[[listen]]\naddress = \":443\"\ntls = \"auto\"",
        "[client]\ntrusted_proxies = \"10.0.0.1\"",
    ] {
        let text = told(&format!("{plain}{more}"));
        assert!(!text.contains("leads to port 443"), "{more}: {text}");
    }
    for other in [
        "redirect = \"https:8443\"",
        "redirect = \"off\"",
        "proxy_protocol.from = \"10.0.0.1\"\nredirect = \"https\"",
    ] {
        let text = told(&format!("[[listen]]\naddress = \":80\"\n{other}\n"));
        assert!(!text.contains("leads to port 443"), "{other}: {text}");
    }
}

#[test]
fn contradictions_are_told() {
    for &(text, expected) in CONTRADICTIONS {
        let mut sources = file(text);
        sources.overrides.origin = Some("http://app".to_owned());
        assert_eq!(problems(&sources), [expected], "{text}");
    }
}

#[test]
fn an_unreadable_value_causes_no_further_problems() {
    let text = "[[route]]\nmatch.path = \"item\"\noverride_ttl = \"60s\"\n\
                [admin]\naddress = \"0.0.0.0:1\"\ntoken = { env = \"GONE\" }\n";
    let mut sources = file(text);
    sources.overrides.origin = Some("http://app".to_owned());
    assert_eq!(
        problems(&sources),
        [
            "proxy.toml:2: [[route]] match.path: found \"item\"; expected a path that begins with /, or ~ and a \
             regular expression such as \"~^/[0-9]+$\"",
            "proxy.toml:6: [admin] token: the environment variable GONE is not set",
        ]
    );
}

#[test]
fn risky_settings_cause_warnings() {
    assert_eq!(
        warnings(ORIGIN),
        [
            "proxy.toml:1: [origin] hosts: empty: any Host is accepted and passed to the origin; list your host names"
        ]
    );
    let sited = format!("{ORIGIN}hosts = \"example.com\"\n");
    assert_eq!(warnings(&sited), [""; 0]);
    for (text, expected) in [
        (
            "[session]\nwebhook_secret = { file = \"../../rustfmt.toml\" }\non_expire = \"webhook:http://crm/\"",
            "[session] on_expire: uses http: names and carts can be read and changed on the way; use https",
        ),
        (
            "[traces]\nendpoint = \"http://collector:4318\"",
            "[traces] endpoint: uses http: paths, and keys in headers, can be read on the way; use https",
        ),
        (
            "[[listen]]\naddress = \"[::]:80\"\nproxy_protocol.from = \"::/0\"",
            "[[listen]] proxy_protocol.from: ::/0 covers every address",
        ),
        (
            "[session]\ntoken_storage = \"plain\"",
            "[session] token_storage: \"plain\" on the embedded store",
        ),
        (
            "[session]\nmint = true\ncookie_lifetime = \"30d\"\nidle_timeout = \"30m\"\nabsolute_timeout = \"12h\"",
            "[session] cookie_lifetime: exceeds absolute_timeout: browsers keep",
        ),
        (
            "[session]\nmint = true\ncookie_lifetime = \"30d\"\nidle_timeout = \"30m\"",
            "[session] cookie_lifetime: exceeds idle_timeout: browsers keep",
        ),
        (
            "[client]\ntrusted_proxies = [\"0.0.0.0/0\"]",
            "[client] trusted_proxies: 0.0.0.0/0 covers every address",
        ),
        (
            "[store]\npages_url = \"redis://127.0.0.1\"",
            "[store] pages_url: has no effect with the embedded store",
        ),
        ("[[route]]\nshare = \"none\"\nttl = \"1s\"", "[[route]] share: \"none\" stores nothing"),
        (
            "[[route]]\nshare = \"everyone\"",
            "[[route]] share: \"everyone\" shares every page of the site with all visitors",
        ),
        (
            "[[route]]\nmatch.path = \"/**\"\nshare = \"everyone\"",
            "[[route]] share: \"everyone\" shares every page of the site with all visitors",
        ),
        (
            "[[route]]\nname = \"all\"\n[[route]]\nmatch.path = \"/a\"",
            "[[route]]: is never reached: the earlier route \"all\" matches",
        ),
        (
            "[[route]]\nfragments = [{ selector = \"b\", fill = \"user\" }]",
            "[[route]] fragments: share = \"anonymous\": logged-in visitors",
        ),
        (
            "[session.verify]\npath = \"/wp-admin/profile.php\"\nuser = { json = \"/name\" }\n\
             nobody = { status = [302] }",
            "[session] verify.path: pages below /wp-admin/ do not receive the login cookies",
        ),
        (
            "[session.verify]\npath = \"/me\"\nuser = { regex = \"^1$\" }\nnobody = { status = [401] }",
            "[session] verify.user: regex finds no text but \"1\", so that all logged-in visitors are this one user",
        ),
        (
            "[session.login]\nmatch = { path = \"/login\" }\nsuccess = { set_cookie = \"login\" }\n\
             user = { set_cookie = \"name\", regex = \"name=(member);\" }",
            "[session] login.user: regex finds no text but \"member\"",
        ),
        (
            "[cache]\nignore_cookies = [\"lang*\"]\n[[route]]\nmatch = \"/a\"\nkey_cookies = [\"language\"]",
            "[[route]] key_cookies: language is also matched by [cache] ignore_cookies = \"lang*\"",
        ),
        (
            "[session]\napp = \"php\"",
            "[session] app: PHP's session cookie alone does not prove a login",
        ),
        ("[session]\napp = \"django\"", "[session] app: the name entered at login is only a"),
        (
            "[[route]]\nmatch.path = [\"/a\", \"/b\"]\n[[route]]\nmatch.path = \"/b\"",
            "[[route]]: is never reached: the earlier route \"/a\" matches",
        ),
    ] {
        let told = warnings(&format!("{sited}{text}"));
        assert!(told.len() == 1 && told[0].contains(expected), "{text}: {told:?}");
    }
    let narrower = "[[route]]\nmatch.path = \"/**\"\nmatch.method = \"GET\"\n\
                    [[route]]\nmatch.path = \"/a\"\n";
    let remembered = "[session]\nmint = true\ncookie_lifetime = \"30d\"\nidle_timeout = \"7d\"\n\
                      absolute_timeout = \"30d\"\n";
    let left_out = "[[route]]\nmatch.path = [\"/admin/**\", \"/login\"]\nshare = \"none\"\n\
                    [[route]]\nmatch.path = \"/**\"\noverride_ttl = \"60s\"\n";
    for fine in [narrower, remembered, left_out] {
        assert_eq!(warnings(&format!("{sited}{fine}")), [""; 0], "{fine}");
    }
}

#[test]
fn cookies_that_often_hold_the_session_itself_are_warned_of_where_the_app_is_asked() {
    let told = |cookies: &str, more: &str| {
        warnings(&format!(
            "{ORIGIN}hosts = \"example.com\"\n[session]\ncookie = {cookies}\n{more}\n[session.verify]\n\
             path = \"/me\"\nuser = {{ json = \"/name\" }}\nnobody = {{ status = [401] }}\n"
        ))
    };
    for (cookies, named) in [
        ("\"session\"", "session"),
        ("\"laravel_session\"", "laravel_session"),
        ("[\"remember_*\", \"_shop_session\"]", "_shop_session"),
        ("\"shop_session\"", "shop_session"),
        ("\"*_session\"", "*_session"),
        // Another wiki's.
        ("[\"shop_session\", \"wikidbUserID\"]", "shop_session"),
    ] {
        let told = told(cookies, "");
        let expected = format!("[session] cookie: {named} often contains the session itself");
        assert!(told.len() == 1 && told[0].contains(&expected), "{cookies}: {told:?}");
    }
    for (cookies, more) in [
        ("\"PHPSESSID\"", ""),
        ("\"session_id\"", ""),
        ("\"_shop_session\"", "part = \"^([^.]+)\""),
        ("[\"wikidb_session\", \"wikidbUserID\", \"wikidbToken\"]", ""),
        ("[\"*_session\", \"*Token\"]", ""),
    ] {
        assert_eq!(told(cookies, more), [""; 0], "{cookies}");
    }
}

#[test]
fn an_empty_or_unsendable_secret_is_a_problem() {
    for (value, expected) in [("\n", "is empty"), ("two words", "a token of visible ASCII")] {
        let mut sources = file(&format!("{ORIGIN}[admin]\ntoken = {{ env = \"T\" }}\n"));
        sources.env = variables(&[("T", value)]);
        let told = problems(&sources);
        assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
    }
}

#[test]
fn no_problem_shows_a_password() {
    let text = "[origin]\nurl = \"http://me:hunter2@app\"\nhost = \"http://a:hunter2@b\"\n\
                secret = \"hunter2\"\n[admin]\ntoken = [\"hunter2\"]\n\
                [session]\non_expire = \"webhook:https://crm:hunter2@host/x\"\n\
                [store]\nurl = \"redis://:hunter2@a:port\"\n";
    let told = problems(&file(text));
    assert_eq!(told.len(), 6, "{told:#?}");
    assert!(!told.concat().contains("hunter2"), "{told:#?}");

    let mut sources = file(text);
    sources.overrides.store = Some("redis://:hunter2@a".to_owned());
    assert!(!format!("{sources:?}").contains("hunter2"));
}

#[test]
fn a_printed_store_url_without_its_password_is_refused() {
    let mut plan = usual();
    plan.store.url = StoreUrl::Redis(Secret::new("redis://:hunter2@a"));
    let told = problems(&file(&print(&plan)));
    assert!(told.concat().contains("the password is (hidden)"), "{told:?}");
}

#[test]
fn deep_nesting_is_a_problem_and_no_crash() {
    const DEEP: usize = 100_000;
    for text in [
        format!("a = {}", "[".repeat(DEEP)),
        format!("a = {}", "{a=".repeat(DEEP)),
        format!("a{} = 1", ".a".repeat(DEEP)),
        format!("[a{}]", ".a".repeat(DEEP)),
    ] {
        assert!(!problems(&file(&text)).is_empty());
    }
    let mut sources = file(ORIGIN);
    sources.env = variables(&[
        (&format!("ANTEROOM__A{}", "__A".repeat(DEEP)), "1"),
        ("ANTEROOM__CACHE__STATUS", &"[".repeat(DEEP)),
    ]);
    assert_eq!(problems(&sources).len(), 2);
}

#[test]
fn rows_and_the_routes_that_name_them_fit_together() {
    let rows = "[[rows]]\nname = \"a\"\npath = \"/a/{row}\"\n";
    let fine = format!("{ORIGIN}{rows}[[route]]\nmatch.path = \"/{{item}}\"\nrows = \"a\"\n");
    assert!(Plan::read(&file(&fine)).is_ok());
    for (text, wanted) in [
        (format!("{ORIGIN}{rows}{rows}"), "is already the name of an earlier [[rows]]"),
        (format!("{fine}[[route]]\nmatch.path = \"/x\"\nrows = \"a\"\n"), "needs {item}"),
        (fine.replace("rows = \"a\"", "rows = \"b\""), "no [[rows]] with the name \"b\""),
        (format!("{fine}share = \"none\"\n"), "rows are always shared with everyone"),
        (format!("{fine}[admin]\nsocket = \"{}\"\n", "x".repeat(100)), "at most 99"),
        (fine.replace("/a/{row}", "/a"), "a path with {row} in it once"),
        (fine.replace("/a/{row}", "//{row}"), "a path with {row} in it once"),
        (fine.replace("name = \"a\"", "name = \"a:b\""), "letters, digits"),
    ] {
        let told = problems(&file(&text));
        assert!(told.len() == 1 && told[0].contains(wanted), "{told:?}");
    }
}

#[test]
fn rows_have_one_source_with_the_keys_that_belong_to_it() {
    let database = "[databases.shop]\nurl = \"postgres://db/shop\"\n";
    let rows = "[[rows]]\nname = \"a\"\ndatabase = \"shop\"\nquery = \"select 1 where 1 = $1\"\n";
    let fine = format!("{ORIGIN}{database}{rows}");
    assert!(Plan::read(&file(&fine)).is_ok());
    for (text, wanted) in [
        (format!("{fine}path = \"/a/{{row}}\"\n"), "rows come from one source; remove path"),
        (format!("{ORIGIN}[[rows]]\nname = \"a\"\n"), "or database and query"),
        (fine.replace("= $1", "= 1"), "has no parameter for the row id; write it as $1"),
        (fine.replace("postgres:", "mysql:"), "write it as ?"),
        (fine.replace("database = \"shop\"", "database = \"shpo\""), "did you mean \"shop\"?"),
        (fine.replace("database = \"shop\"\n", ""), "[databases.NAME] that the query is for"),
        (fine.replace(database, ""), "there is no [databases.shop]; write it with its url"),
        (format!("{fine}scheme = \"https\"\n"), "has no effect with query"),
        (
            format!("{ORIGIN}[[rows]]\nname = \"a\"\npath = \"/{{row}}\"\nmany = true\n"),
            "has no effect with path",
        ),
        (fine.replace("postgres://db/shop", "postgres"), "not a database; expected postgres://"),
        (
            fine.replace("[databases.shop]", "[databases.shop]\nconnections = 5"),
            "expected a number from 1 to 4",
        ),
    ] {
        let told = problems(&file(&text));
        assert!(told.len() == 1 && told[0].contains(wanted), "{wanted}: {told:?}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_reading_panic(parts in proptest::collection::vec(FRAGMENTS, 0..12)) {
        let text = parts.concat();
        let mut sources = file(&text);
        if let Err(problems) = Plan::read(&sources) {
            told(&problems);
        }
        sources.file = None;
        sources.env = variables(&[("ANTEROOM__ROUTE", &text), ("ANTEROOM__STORE", &text)]);
        if let Err(problems) = Plan::read(&sources) {
            told(&problems);
        }
    }
}

/// Pieces of configuration, of TOML, and of anything.
const FRAGMENTS: &str = "\\[|\\]|\\{|\\}|=|\n|\"|,|\\.|[0-9]{1,25}|url|route|match|path|cache|listen|\
                         address|store|redis://|:|@|\\*|/|\\PC|\u{0}|\r";

#[test]
fn a_hole_that_cannot_be_filled_is_told() {
    let cart = r##"selector = "#cart", from = "/partials/cart""##;
    for (holes, beside, expected) in [
        ("from = \"/a\"", "", "selector is missing"),
        (
            "selector = \"a + b\", from = \"/a\"",
            "",
            "expected a CSS selector that works on a streamed page",
        ),
        ("selector = \"b\"", "", "write from = \"/partials/cart\", or fill"),
        ("selector = \"b\", from = \"a\"", "", "expected a path such as"),
        ("selector = \"b\", from = \"//a\"", "", "expected a path such as"),
        ("selector = \"b\", from = \"/_anteroom/me\"", "", "none under /_anteroom/"),
        ("selector = \"b\", from = \"/a\", fill = \"user\"", "", "found from and fill"),
        (
            "selector = \"b\", fill = \"me\"",
            "",
            "expected \"user\", \"cart_count\", \"recent\" or a row",
        ),
        ("selector = \"b\", fill = \"cart_count\", template = \"{item}\"", "", "template needs"),
        ("selector = \"b\", fill = \"user\", template = \"{item}\"", "", "html with {user} in it"),
        ("selector = \"b\", fill = \"recent\"", "", "needs template"),
        (
            "selector = \"b\", fill = \"recent\", template = \"<a {item}>\"",
            "",
            "within a quoted attribute",
        ),
        ("selector = \"b\", fill = \"user\", share = \"none\"", "", "share applies to from only"),
        (
            "selector = \"b\", fill = \"user\", on = \"never\"",
            "",
            "expected \"all\" or \"session\"",
        ),
        ("selecter = \"b\", fill = \"user\"", "", "did you mean selector?"),
        (cart, "share = \"none\"", "need shared pages"),
        (cart, "esi = true", "remove one of them"),
    ] {
        let share = if beside.contains("share") { "" } else { "share = \"everyone\"" };
        let text = format!("{ORIGIN}[[route]]\n{share}\n{beside}\nfragments = [{{ {holes} }}]\n");
        let told = problems(&file(&text));
        assert!(told.iter().any(|line| line.contains(expected)), "{holes} {beside}: {told:?}");
        let at = "[[route]] fragments: ";
        assert!(told.iter().all(|line| line.contains(at)), "{told:?}");
    }
    for (beside, expected) in [
        ("esi = 1", "expected true, false or \"always\""),
        (
            "rows = \"r\"\nmatch.path = \"/{item}\"\nesi = true\n[[rows]]\nname = \"r\"\npath = \"/{row}\"",
            "rows",
        ),
    ] {
        let told = problems(&file(&format!("{ORIGIN}[[route]]\n{beside}\n")));
        assert!(told.len() == 1 && told[0].contains(expected), "{beside}: {told:?}");
    }
}

#[test]
fn a_row_that_cannot_fill_a_hole_is_told() {
    for (hole, expected) in [
        (
            "selector = \"b\", fill = \"row:stock\", template = \"{qty}\"",
            "expected a row: \"row:inventory:{item}\" for the item",
        ),
        ("selector = \"b\", fill = \"row:a b:7\", template = \"{qty}\"", "expected a row"),
        ("selector = \"b\", fill = \"row:a:{id}\", template = \"{qty}\"", "expected a row"),
        ("selector = \"b\", fill = \"row:a:7\"", "a row needs template"),
        ("selector = \"b\", fill = \"row:a:7\", template = \"qty\"", "the fields of the row"),
        (
            "selector = \"b\", fill = \"row:a:7\", template = \"{qty}\", share = \"none\"",
            "a row is the same for everyone",
        ),
        (
            "selector = \"b\", fill = \"row:a:7\", template = \"{qty}\", on = \"session\"",
            "a row is the same for everyone",
        ),
        (
            "selector = \"b\", fill = \"row:a:7\", template = \"{qty}\"",
            "there is no [[rows]] with the name \"a\"; write them",
        ),
        (
            "selector = \"b\", fill = \"row:a:{item}\", template = \"{qty}\"",
            "\"row:a:{item}\" needs {item} in match.path",
        ),
    ] {
        let text = format!("{ORIGIN}[[route]]\nfragments = [{{ {hole} }}]\n");
        let told = problems(&file(&text));
        assert!(told.iter().any(|line| line.contains(expected)), "{hole}: {told:?}");
        assert!(told.iter().all(|line| line.contains("[[route]] fragments: ")), "{told:?}");
    }
}

#[test]
fn a_row_that_fills_a_hole_has_a_source() {
    let rows = "[[rows]]\nname = \"inventory\"\npath = \"/{row}\"\n";
    let hole = "fragments = [{ selector = \"b\", fill = \"row:inventory:{item}\", template = \"{qty}\" }]\n";
    let route = "[[route]]\nmatch.path = \"/item/{item}\"\n";
    // Rows are the same for everyone: the page may be shared as it was without them.
    for share in ["anonymous", "everyone", "user"] {
        let session = "session.cookie = \"login\"\n";
        let text = format!("{session}{ORIGIN}{rows}{route}share = {share:?}\n{hole}");
        let told = warnings(&text);
        assert!(!told.iter().any(|line| line.contains("fragments")), "{share}: {told:?}");
    }
    let told =
        problems(&file(&format!("{ORIGIN}{rows}{route}{}", hole.replace("row:inv", "row:in"))));
    assert!(told[0].contains("\"inentory\"; did you mean \"inventory\"?"), "{told:?}");
    let told = problems(&file(&format!("{ORIGIN}{rows}{route}{}", hole.replace("inventory", "x"))));
    assert!(told[0].contains("\"x\"; there are inventory"), "{told:?}");
}

#[test]
fn holes_are_printed_as_they_are_read() {
    let text = format!(
        "{ORIGIN}hosts = \"example.com\"\n[[route]]\nshare = \"everyone\"\nfragments = [\
         {{ selector = \"#a\", from = \"/a?b=c\", share = \"none\", fallback = \"<b>\\\"\" }}, \
         {{ selector = \"i\", fill = \"user\", on = \"session\" }}, \
         {{ selector = \"s\", fill = \"user\", template = \"Hello, {{user}}\" }}, \
         {{ selector = \"u\", fill = \"cart_count\" }}, \
         {{ selector = \"p\", fill = \"recent\", template = '<a href=\"/i/{{item}}\">{{item}}</a>' }}, \
         {{ selector = \"b\", fill = \"row:a:{{data-id}}\", template = \"{{{{x}}}} {{qty}}\" }}]\n\
         [[rows]]\nname = \"a\"\npath = \"/{{row}}\"\n\
         [[route]]\nesi = \"always\"\nmatch.method = \"GET\"\n[[route]]\nesi = true\n"
    );
    let (plan, _) = Plan::read(&file(&text)).unwrap();
    assert_eq!(plan.routes[0].fragments.len(), 6);
    let (again, _) = Plan::read(&file(&print(&plan))).unwrap();
    assert_eq!(again, plan);
}

#[test]
fn conditions_of_a_route_read_back_as_they_were_written() {
    let routes = "[[route]]\nmatch.headers = { User-Agent = \"~ (?i)bot\", accept = \"application/json*\" }\nmatch.query = \"any\"\n\
                  [[route]]\nmatch.query = \"none\"\ndeny = true\n";
    let plan = read(&file(&format!("{ORIGIN}{routes}")));
    let names: Vec<&str> =
        plan.routes[0].headers.iter().map(|condition| condition.name.as_str()).collect();
    assert_eq!(names, ["accept", "user-agent"]);
    assert!(plan.routes[1].deny);
    let (again, _) = Plan::read(&file(&print(&plan))).unwrap();
    assert_eq!(again.routes, plan.routes);
}

#[test]
fn what_a_route_that_denies_does_not_need_is_told() {
    let routes = "[[route]]\nmatch = \"/a\"\ndeny = true\nname = \"old\"\naccess_log = false\nttl = \"60s\"\n";
    assert_eq!(
        warnings(&format!("{ORIGIN}{routes}"))
            .iter()
            .filter(|warning| warning.contains("deny"))
            .collect::<Vec<_>>(),
        [
            "proxy.toml:8: [[route]] ttl: has no effect beside deny = true, which refuses all requests of the route"
        ]
    );
}

#[test]
fn the_rules_of_a_route_keep_sharing_safe() {
    let route = |settings: &str| {
        let text = format!("{ORIGIN}[[route]]\nmatch.path = \"/a/**\"\n{settings}");
        problems(&file(&text)).first().cloned().unwrap_or_default()
    };
    for (settings, why) in [
        ("set_headers = { Vary = \"*\" }", "Vary is needed by HTTP or by the proxy"),
        ("set_headers = { Set-Cookie = \"a=b\" }", "cookies are cut by strip_set_cookie"),
        ("set_headers = { Transfer-Encoding = \"chunked\" }", "needed by HTTP"),
        ("set_headers = { Anteroom-Item = \"a\" }", "needed by HTTP or by the proxy"),
        ("set_headers = { Cache-Control = \"public\" }", "needs share = \"everyone\""),
        ("set_headers = { X-A = \"{query}\" }", "no other variable than {scheme}, {host}, {path}"),
        ("set_headers = \"DENY\"", "a table such as { \"X-Frame-Options\" = \"DENY\" }"),
        ("set_headers = \"X-A: b\"", "write { \"X-A\" = \"b\" }"),
        (
            "set_request_headers = { X-A = \"{client_address}\" }",
            "no other variable than {scheme}, {host}",
        ),
        ("set_request_headers = { Cookie = \"a=b\" }", "another field"),
        ("set_request_headers = { X-Anteroom-User = \"root\" }", "X-Anteroom-User"),
        ("set_request_headers = { X-Rewrite-URL = \"/b\" }", "another field"),
        ("remove_request_headers = [\"Host\"]", "another field"),
        ("remove_request_headers = [\"CDN-Loop\"]", "another field"),
        ("set_request_headers = { CDN-Loop = \"edge\" }", "another field"),
        ("redirect = \"{path}\"", "a URL or a path"),
        ("redirect = \"//evil.example\"", "a URL or a path"),
        ("redirect = \"/{path}\"", "a URL or a path"),
        ("redirect_status = 200", "301, 302, 303, 307 or 308"),
        ("require = \"admin\"", "\"none\" or \"login\""),
        ("require = \"login\"\nmatch.query = { a = \"b\" }", "clients choose the query"),
        ("require = \"login\"\nmatch.host = \"a.test\"", "needs [origin] hosts"),
        ("ttl = { 404 = \"10s\", 206 = \"10s\" }", "206 is never stored"),
        ("ttl = { 700 = \"10s\" }", "a status such as 404"),
        ("ttl = { 404 = 10 }", "write \"10s\""),
        ("match.query = { id = \"{item}\" }\nkeep_query = [\"page\"]", "names the item"),
        ("match.query = { id = \"{item}\" }\nignore_query = [\"i*\"]", "names the item"),
    ] {
        let found = route(settings);
        assert!(found.contains(why), "{settings}: {found:?}");
    }
    let regex = |settings: &str| {
        problems(&file(&format!("{ORIGIN}[[route]]\nmatch = \"~^/a\"\n{settings}"))).join("\n")
    };
    assert!(regex("allow_from = [\"10.0.0.0/8\"]").contains("every spelling"));
    assert!(regex("require = \"login\"").contains("every spelling"));
    read(&file(&format!("{ORIGIN}[[route]]\nmatch = \"~^/a\"\nttl = \"60s\"")));
}

#[test]
fn an_authority_that_reaches_no_listener_is_told_with_what_to_write() {
    let auto = |hosts: &str, more: &str| {
        format!(
            "origin = {{ url = \"app\", hosts = [{hosts}] }}\n{more}\n\
             [[listen]]\naddress = \":8443\"\ntls = \"auto\"\n"
        )
    };
    let needed = |names: &str| {
        format!(
            "proxy.toml:5: [[listen]] tls.cert: a certificate for {names} needs a [[listen]] without tls on \
             port 80, or this one on port 443: add [[listen]] with address = \":80\"; where a port mapping or \
             another proxy forwards port 80 to this one, write challenge = \"http-01\" in [acme]; where it \
             forwards port 443 and leaves TLS to this one, \"tls-alpn-01\"; where neither port leads here, \
             \"dns-01\" with dns_hook"
        )
    };
    assert_eq!(problems(&file(&auto("\"a.net\"", ""))), [needed("a.net")]);
    let five = "\"a.net\", \"b.net\", \"c.net\", \"d.net\", \"e.net\"";
    let shown = "a.net, b.net, c.net and 2 more";
    assert_eq!(problems(&file(&auto(five, ""))), [needed(shown)]);
    // A name that is proved otherwise has its certificate.
    let hook = "acme.dns_hook = \"/hook\"";
    assert_eq!(warnings(&auto("\"a.net\", \"*.b.net\"", hook)), [needed("a.net")]);
    for challenge in ["http-01", "tls-alpn-01"] {
        let more = format!("acme.challenge = \"{challenge}\"");
        assert_eq!(warnings(&auto("\"a.net\"", &more)), [""; 0]);
    }
    // The reason is all that is said, though there is no name left.
    let private = problems(&file(&auto("\"a.test\"", "")));
    assert!(matches!(&private[..], [one] if one.contains("a.test")), "{private:?}");
}

#[test]
fn names_without_a_certificate_are_told_with_what_helps() {
    let auto = |hosts: &str, more: &str| {
        format!(
            "origin = {{ url = \"app\", hosts = [{hosts}] }}\n{more}\n\
             [[listen]]\naddress = \":443\"\ntls = \"auto\"\n"
        )
    };
    let cert = "proxy.toml:5: [[listen]] tls.cert:";
    assert_eq!(
        problems(&file(&auto("", ""))),
        [format!(
            "{cert} there is no name to order a certificate for: set [origin] hosts, such as hosts = [\"example.com\"]"
        )]
    );
    assert_eq!(
        warnings(&auto("\"a.net\", \"*.a.net\", \"a.test\"", "")),
        [
            format!(
                "{cert} no certificate can be had for *.a.net: it is a wildcard, which is proved by DNS \
                 alone: set [acme] dns_hook"
            ),
            format!(
                "{cert} no certificate can be had for a.test: it is no public name; write tls.cert, the \
                 files of a certificate, or set [acme] ca, for an authority of your own"
            ),
        ]
    );
    let redis = "store = \"redis://r\"\nacme.secret = { env = \"SHORT\" }";
    let mut sources = file(&auto("\"a.net\"", redis));
    sources.env = variables(&[("SHORT", "0123456789abcdef0123456789abcde")]);
    let short = "proxy.toml:3: [acme] secret: expected at least 32 bytes: it seals private keys";
    assert_eq!(problems(&sources), [short]);
    let unused = format!("{ORIGIN}hosts = [\"a.net\"]\n[acme]\nprofile = \"tlsserver\"\n");
    assert_eq!(
        warnings(&unused),
        ["proxy.toml:4: acme: has no effect: no [[listen]] has tls = \"auto\""]
    );
}
