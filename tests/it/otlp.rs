//! Traces by OTLP: what a receiver is sent, of which requests, and what happens when it is away.
//!
//! `tests/interop/otlp.py` reads each export with the schema of OpenTelemetry.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::client::Ask;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};
use crate::support::upstream::{Authority, Upstream};
use crate::support::{DEADLINE, free_port, python, wait_until, wait_within};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const EVERYONE: &str =
    "[[route]]\nname = \"shop\"\nmatch.path = \"/**\"\nshare = \"everyone\"\nttl = \"300s\"";

fn receiver() -> Origin {
    Origin::always(Reply::typed("application/json", "{}"))
}

/// Lines of a configuration that sends traces to `receiver`.
fn settings(receiver: SocketAddr, more: &str) -> String {
    format!("traces.endpoint = \"http://{receiver}\"\n{more}")
}

/// Ends the proxy, which sends what waits, and returns all spans that its receiver was sent.
fn spans(proxy: &mut Proxy, receiver: &Origin) -> Vec<Value> {
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    sent(receiver)
}

/// All spans that a receiver was sent. Each export follows the schema.
fn sent(receiver: &Origin) -> Vec<Value> {
    let mut exports = Vec::new();
    for seen in receiver.seen() {
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/v1/traces"));
        assert_eq!(seen.header("Content-Type"), Some("application/json"));
        exports.push(serde_json::from_slice::<Value>(&seen.body.bytes).unwrap());
    }
    let spans: Vec<Value> = exports.iter().flat_map(spans_of).collect();
    assert_eq!(read_by_the_schema(&exports), spans.len());
    spans
}

fn spans_of(export: &Value) -> Vec<Value> {
    let scopes = export["resourceSpans"][0]["scopeSpans"].as_array().unwrap();
    scopes.iter().flat_map(|scope| scope["spans"].as_array().unwrap().clone()).collect()
}

/// How many spans the schema's own reader finds.
fn read_by_the_schema(exports: &[Value]) -> usize {
    let mut reader = Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/interop/otlp.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = serde_json::to_vec(exports).unwrap();
    reader.stdin.take().unwrap().write_all(&text).unwrap();
    let read = reader.wait_with_output().unwrap();
    assert!(read.status.success());
    String::from_utf8(read.stdout).unwrap().trim().parse().unwrap()
}

fn text<'v>(span: &'v Value, name: &str) -> &'v str {
    span[name].as_str().unwrap_or_default()
}

/// An attribute of a span, as text.
fn attribute(span: &Value, name: &str) -> Option<String> {
    let all = span["attributes"].as_array()?;
    let value = &all.iter().find(|one| one["key"] == name)?["value"];
    let text = value["stringValue"].as_str().or_else(|| value["intValue"].as_str());
    text.map(str::to_owned)
}

/// The spans of requests, in the order of their beginnings.
fn roots(spans: &[Value]) -> Vec<&Value> {
    let mut roots: Vec<_> = spans.iter().filter(|span| span["kind"] == 2).collect();
    roots.sort_by_key(|span| text(span, "startTimeUnixNano").to_owned());
    roots
}

/// The spans of a request behind its root: names, each behind that of its parent.
fn parts(spans: &[Value], root: &Value) -> Vec<String> {
    let of_trace: Vec<_> = spans.iter().filter(|span| span["traceId"] == root["traceId"]).collect();
    let by_id: HashMap<_, _> = of_trace.iter().map(|span| (text(span, "spanId"), span)).collect();
    assert_eq!(by_id.len(), of_trace.len(), "ids are unique");
    let time = |span: &Value, name: &str| text(span, name).parse::<u64>().unwrap();
    let path = |span: &Value| {
        let parent = by_id[text(span, "parentSpanId")];
        assert!(time(parent, "startTimeUnixNano") <= time(span, "startTimeUnixNano"));
        assert!(time(span, "endTimeUnixNano") <= time(parent, "endTimeUnixNano"));
        match parent["spanId"] == root["spanId"] {
            true => text(span, "name").to_owned(),
            false => format!("{} > {}", text(parent, "name"), text(span, "name")),
        }
    };
    of_trace.iter().filter(|span| span["spanId"] != root["spanId"]).map(|span| path(span)).collect()
}

#[test]
fn a_request_is_a_tree_of_spans() {
    let receiver = receiver();
    let origin = Origin::start(|request| match request.path() {
        "/own" => Reply::unstored("own"),
        _ => Reply::html("page"),
    });
    let settings = settings(
        receiver.address(),
        &format!("traces.sample = 1\ntraces.service_name = \"front\"\n{EVERYONE}"),
    );
    let mut proxy = Proxy::embedded(&origin, &settings);
    let targets = ["/a?q=1", "/a?q=1", "/own"];
    targets.iter().for_each(|target| assert_eq!(proxy.get(target).send().status, 200));
    proxy.post("/form").send();
    let spans = spans(&mut proxy, &receiver);

    let roots = roots(&spans);
    let told: Vec<_> = roots.iter().map(|root| parts(&spans, root)).collect();
    let usual = |asked: &[&str]| {
        let parts = ["recognise", "look up"].iter().chain(asked).chain(&["deliver"]);
        parts.map(ToString::to_string).collect::<Vec<_>>()
    };
    let fill = ["fill", "fill > origin"];
    let form = ["recognise", "forward", "forward > origin", "deliver"].map(str::to_owned).to_vec();
    assert_eq!(told, [usual(&fill), usual(&[]), usual(&fill), form]);

    let [miss, hit, ..] = roots[..] else { panic!("{roots:?}") };
    for (root, cache) in [(miss, "miss"), (hit, "hit_memory")] {
        assert_eq!(text(root, "name"), "GET shop");
        for (name, value) in [
            ("http.request.method", "GET"),
            ("http.route", "shop"),
            ("url.path", "/a"),
            ("url.scheme", "http"),
            ("server.address", "shop.test"),
            ("http.response.status_code", "200"),
            ("http.response.body.size", "4"),
            ("network.protocol.version", "1.1"),
            ("anteroom.cache", cache),
            ("anteroom.visitor", "anonymous"),
        ] {
            assert_eq!(attribute(root, name).as_deref(), Some(value), "{name}: {root}");
        }
        assert!(root.get("status").is_none() && root.get("parentSpanId").is_none());
    }
    let export: Value = serde_json::from_slice(&receiver.seen()[0].body.bytes).unwrap();
    let service = &export["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(
        (&service["key"], &service["value"]["stringValue"]),
        (&"service.name".into(), &"front".into())
    );

    // What the origin was told is the span of the proxy that asked it.
    let mut told: Vec<_> =
        origin.seen().iter().map(|seen| seen.header("traceparent").unwrap().to_owned()).collect();
    let clients = spans.iter().filter(|span| span["kind"] == 3);
    for span in clients.clone() {
        assert_eq!(attribute(span, "server.address").as_deref(), Some("127.0.0.1"), "{span}");
        let port = origin.address().port().to_string();
        assert_eq!(attribute(span, "server.port"), Some(port), "{span}");
    }
    let mut expected: Vec<_> = clients
        .map(|span| format!("00-{}-{}-01", text(span, "traceId"), text(span, "spanId")))
        .collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
}

#[test]
fn a_stranger_does_not_choose_what_is_traced() {
    for (more, trusted, traced) in [
        ("traces.sample = 0", false, 0),
        ("traces.sample = 0", true, 1),
        ("traces.sample = 0\ntraces.parent = \"ignore\"", true, 0),
        ("traces.sample = 1\ntraces.parent = \"ignore\"", true, 1),
    ] {
        let (receiver, origin) = (receiver(), Origin::always(Reply::unstored("own")));
        let trust = if trusted { "client.trusted_proxies = \"127.0.0.1\"" } else { "" };
        let settings = settings(receiver.address(), &format!("{more}\n{trust}"));
        let mut proxy = Proxy::embedded(&origin, &settings);
        let incoming = format!("00-{TRACE}-{SPAN}-01");
        let ask = proxy.post("/").header("traceparent", &incoming).header("tracestate", "a=1");
        ask.send();
        let seen = origin.last();
        let told = seen.header("traceparent").unwrap();
        assert_eq!(told.contains(TRACE), trusted, "{told}");
        assert_eq!(told.ends_with("-01"), traced == 1, "{told}");
        assert_eq!(seen.header("tracestate").is_some(), trusted);
        let spans = spans(&mut proxy, &receiver);
        let roots = roots(&spans);
        assert_eq!(roots.len(), traced, "{more}");
        for root in roots {
            assert_eq!((text(root, "traceId"), text(root, "parentSpanId")), (TRACE, SPAN));
            parts(&spans, root);
        }
    }
}

#[test]
fn errors_and_slow_requests_are_always_traced() {
    let (receiver, late) = (receiver(), Duration::from_secs(3));
    let origin = Origin::start(move |request| match request.path() {
        "/broken" => {
            Reply::status("200 OK").header("Content-Length", "100").bytes("part").closing()
        }
        "/failed" => Reply::status("500 Internal Server Error").body("oh"),
        "/late" => Reply::unstored("late").after(late),
        "/gone" => Reply::nothing(),
        _ => Reply::unstored("fine"),
    });
    let settings = settings(receiver.address(), "traces.sample = 0\ntraces.slow = \"3s\"");
    let mut proxy = Proxy::embedded(&origin, &settings);
    for target in ["/fine", "/failed", "/late", "/gone", "/missing"] {
        proxy.get(target).send();
    }
    let mut client = proxy.connect();
    proxy.get("/broken").start_on(&mut client);
    client.until("part");
    wait_until("the body broke off", || client.is_closed());
    let spans = spans(&mut proxy, &receiver);
    let told: Vec<_> = roots(&spans)
        .into_iter()
        .map(|root| {
            let path = attribute(root, "url.path").unwrap();
            (path, attribute(root, "error.type"), root["status"]["code"] == 2)
        })
        .collect();
    let error = |path: &str, word: &str| (path.to_owned(), Some(word.to_owned()), true);
    assert_eq!(
        told,
        [
            error("/failed", "500"),
            ("/late".to_owned(), None, false),
            error("/gone", "502"),
            error("/broken", "broken_body"),
        ]
    );
    let failed = spans.iter().filter(|span| span["kind"] == 3 && span["status"]["code"] == 2);
    assert_eq!(failed.count(), 1, "the app gave no answer to /gone");
    // They were not drawn, so the origin was not told to record them.
    assert!(origin.seen().iter().all(|seen| seen.header("traceparent").unwrap().ends_with("-00")));
}

#[test]
fn a_receiver_that_is_away_costs_traces_and_nothing_else() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let origin = Origin::always(Reply::html("page"));
    let mut proxy =
        Proxy::embedded(&origin, &settings(address, &format!("traces.sample = 1\n{EVERYONE}")));
    const REQUESTS: usize = 4_300;
    let mut client = proxy.connect();
    for _ in 0..REQUESTS {
        assert_eq!(proxy.get("/a").send_on(&mut client).status, 200);
    }
    // A hit has four spans.
    wait_until("the queue is full", || proxy.metric("anteroom_traces_dropped_total") > 4.0 * 190.0);
    assert_eq!(proxy.metric("anteroom_traces_exported_total"), 0.0);
    let receiver = Origin::at(address, |_| Reply::typed("application/json", "{}"));
    // It is found again without being told.
    let kept = 4_096.0 * 4.0;
    // The pause after failures is up to 30 seconds.
    wait_within(4 * DEADLINE, "the rest arrives", || {
        proxy.metric("anteroom_traces_exported_total") >= kept
    });
    client.leave();
    let spans = spans(&mut proxy, &receiver);
    assert_eq!(roots(&spans).len(), 4_096);
    assert!(receiver.seen().len() >= 32, "in batches of at most 512");
}

#[test]
fn a_receiver_may_ask_for_time_or_refuse() {
    let page = Origin::always(Reply::html("page"));
    let receiver = Origin::start(|request| match request.target.as_str() {
        "/busy/v1/traces" => {
            Reply::status("503 Service Unavailable").header("Retry-After", "1").body("")
        }
        "/never/v1/traces" => Reply::status("400 Bad Request").body(r#"{"message":"no"}"#),
        _ => Reply::typed(
            "application/json",
            r#"{"partialSuccess":{"rejectedSpans":"12","errorMessage":"too old"}}"#,
        ),
    });
    for (path, exported, failed) in
        [("busy", 0.0, 0.0), ("never", 0.0, 512.0), ("part", 500.0, 12.0)]
    {
        let endpoint = format!("traces.endpoint = \"http://{}/{path}/\"", receiver.address());
        let before = receiver.count();
        let more = format!("{endpoint}\ntraces.sample = 1\n{EVERYONE}");
        let proxy = Proxy::embedded(&page, &more);
        let mut client = proxy.connect();
        for _ in 0..127 {
            proxy.get("/a").send_on(&mut client);
        }
        // The first one was a miss, with six spans: a batch is complete with the next to last one.
        proxy.get("/a").send_on(&mut client);
        let count = |name: &str| proxy.metric(&format!("anteroom_traces_{name}_total"));
        let is_told = || (count("exported"), count("failed"));
        match path {
            "busy" => wait_until("it is tried again", || receiver.count() > before + 1),
            _ => wait_until("it is counted", || is_told().0 + is_told().1 > 500.0),
        }
        let (is_exported, has_failed) = is_told();
        let near = |found: f64, expected: f64| (found - expected).abs() <= 4.0;
        assert!(near(is_exported, exported) && near(has_failed, failed), "{path}: {:?}", is_told());
        assert_eq!(count("dropped"), 0.0);
    }
}

#[test]
fn traces_hold_no_secrets() {
    let receiver = receiver();
    let origin = shop(|_| Reply::unstored("page"));
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "hunter2-key\n").unwrap();
    let more = format!(
        "traces.sample = 1\ntraces.headers = {{ \"X-Api-Key\" = {{ file = {key:?} }} }}\n\
         session.mint = true\nlog.redact_paths = [\"/user/*\"]"
    );
    let mut proxy = Proxy::embedded(&origin, &settings(receiver.address(), &more));
    let session = log_in(&proxy, "hunter2-user");
    proxy
        .get("/page;jsessionid=hunter2-path?q=hunter2-query")
        .header("Referer", "http://shop.test/hunter2-referer")
        .header("Authorization", "Bearer hunter2-token")
        .cookie(&format!("{session}; a=hunter2-cookie"))
        .send();
    proxy.get("/user/hunter2-name").send();
    let folder_of_proxy = proxy.folder().to_owned();
    let printed =
        anteroom().args(["config", "print"]).current_dir(folder_of_proxy).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("x-api-key") && !printed.contains("hunter2"), "{printed}");
    let token = session.strip_prefix("login=").unwrap().to_owned();
    let complaints = proxy.complaints();
    let spans = spans(&mut proxy, &receiver);
    assert!(roots(&spans).len() >= 3);
    for seen in receiver.seen() {
        assert_eq!(seen.header("X-Api-Key"), Some("hunter2-key"));
        let body = String::from_utf8(seen.body.bytes.clone()).unwrap();
        for secret in ["hunter2", &token] {
            assert!(!body.contains(secret), "{secret}: {body}");
        }
    }
    // The app is on the same machine as the client.
    let of_client = spans.iter().filter(|span| span["kind"] != 3).map(ToString::to_string);
    of_client.for_each(|span| assert!(!span.contains("127.0.0.1"), "{span}"));
    assert!(!complaints.contains("hunter2"), "{complaints}");
}

#[test]
fn traces_leave_within_seconds_and_over_a_reload() {
    let receiver = receiver();
    let origin = Origin::always(Reply::unstored("own"));
    let proxy = Proxy::embedded(&origin, &settings(receiver.address(), "traces.sample = 1"));
    proxy.get("/").send();
    wait_until("it is sent by itself", || receiver.count() == 1);
    proxy.get("/").send();
    proxy.edit(|text| text.replace("traces.sample = 1", "traces.sample = 0"));
    assert!(proxy.reload());
    assert_eq!(receiver.count(), 2);
    proxy.get("/").send();
    proxy.edit(|text| text.replace("traces.endpoint", "#traces.endpoint"));
    assert!(proxy.reload());
    proxy.get("/").send();
    assert_eq!(roots(&sent(&receiver)).len(), 2);
}

#[test]
fn fragments_are_in_the_span_of_their_page() {
    let receiver = receiver();
    let origin = Origin::start(|request| match request.path() {
        "/page" => Reply::html("<esi:include src=\"/part\"/>"),
        "/part" => Reply::unstored("part"),
        _ => Reply::status("404 Not Found").body(""),
    });
    let more = "traces.sample = 1\n[[route]]\nmatch.path = \"/page\"\nshare = \"everyone\"\nttl = \"300s\"\n\
                esi = \"always\"";
    let mut proxy = Proxy::embedded(&origin, &settings(receiver.address(), more));
    let incoming = format!("00-{TRACE}-{SPAN}-01");
    let ask = proxy.get("/page").header("traceparent", &incoming).header("tracestate", "a=1");
    assert_eq!(ask.send().text(), "part");
    let seen = origin.seen();
    let part = seen.iter().find(|seen| seen.path() == "/part").expect("the fragment is asked for");
    let spans = spans(&mut proxy, &receiver);
    let root = roots(&spans)[0];
    assert_ne!(text(root, "traceId"), TRACE);
    assert_eq!(part.header("tracestate"), None, "a stranger's");
    let told = parts(&spans, root);
    let fragment = spans.iter().find(|span| text(span, "name").starts_with("fragment ")).unwrap();
    assert_eq!(fragment["parentSpanId"], root["spanId"]);
    for (name, value) in [("url.path", "/part"), ("http.response.status_code", "200")] {
        assert_eq!(attribute(fragment, name).as_deref(), Some(value), "{fragment}");
    }
    // The app is told the span of the proxy that asked for the fragment.
    let sent = part.header("traceparent").unwrap().split('-').nth(2).unwrap().to_owned();
    let asking = spans.iter().find(|span| text(span, "spanId") == sent).unwrap();
    assert_eq!((text(asking, "name"), &asking["kind"]), ("origin", &3.into()));
    let name = text(fragment, "name");
    assert!(told.iter().any(|one| one.starts_with(&format!("{name} > f"))), "{told:?}");
    assert!(told.iter().any(|one| one == "fill > origin"), "{told:?}");
}

#[test]
fn a_fragment_that_is_not_traced_by_itself_is_kept_with_its_slow_page() {
    let (receiver, late) = (receiver(), Duration::from_secs(3));
    let origin = Origin::start(move |request| match request.path() {
        "/page" => Reply::html("<esi:include src=\"/part\"/>").after(late),
        _ => Reply::unstored("part"),
    });
    let more = "traces.sample = 0\ntraces.slow = \"3s\"\n[[route]]\nmatch.path = \"/page\"\n\
                share = \"everyone\"\nttl = \"300s\"\nesi = \"always\"";
    let mut proxy = Proxy::embedded(&origin, &settings(receiver.address(), more));
    for _ in 0..2 {
        assert_eq!(proxy.get("/page").send().text(), "part");
    }
    let spans = spans(&mut proxy, &receiver);
    assert_eq!(roots(&spans).len(), 1, "the hit was not slow");
    let fragments = spans.iter().filter(|span| text(span, "name").starts_with("fragment "));
    assert_eq!(fragments.count(), 1);
}

#[test]
fn times_have_traces_as_examples_in_openmetrics_only() {
    let receiver = receiver();
    let origin = Origin::always(Reply::unstored("own"));
    let mut proxy = Proxy::embedded(&origin, &settings(receiver.address(), "traces.sample = 1"));
    proxy.get("/").send();
    let page = |accept: &str| {
        let ask = Ask::new(proxy.admin_address(), "GET", "/metrics");
        ask.host(&proxy.admin_address().to_string()).header("Accept", accept).send().text()
    };
    let open = "application/openmetrics-text;version=1.0.0";
    let mut found = None;
    wait_until("the request is over", || {
        found = page(open).lines().find(|line| line.contains(" # {")).map(str::to_owned);
        found.is_some()
    });
    assert!(!page("text/plain;version=0.0.4").contains("trace_id"));
    let line = found.unwrap();
    let id = line.split_once("# {trace_id=\"").unwrap().1.split_once("\"} ").unwrap().0.to_owned();
    assert!(line.starts_with("anteroom_request_seconds_bucket{"), "{line}");
    let spans = spans(&mut proxy, &receiver);
    assert_eq!(text(roots(&spans)[0], "traceId"), id);
}

#[test]
fn a_receiver_by_https_gets_traces_where_its_certificate_is_believed() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let origin = Origin::always(Reply::unstored("own"));
    for (believed, is_sent) in [(&authority, true), (&stranger, false)] {
        let folder = tempfile::tempdir().unwrap();
        let tls = authority.server(&authority.issue("localhost", false), &["http/1.1"], false);
        let receiver = Upstream::http(Some(tls), false, |_| http::Response::default());
        let line = format!("export SSL_CERT_FILE={}", believed.file(folder.path()).display());
        let endpoint = format!("traces.endpoint = \"https://localhost:{}\"", receiver.port());
        let settings = format!("{endpoint}\ntraces.sample = 1");
        let mut proxy = Proxy::behind_with(&line, &origin, &settings);
        proxy.get("/").send();
        proxy.terminate();
        assert_eq!(proxy.exit_code(), Some(0));
        assert_eq!(receiver.seen().len(), usize::from(is_sent));
        assert_eq!(proxy.complaints().contains("no TLS"), !is_sent, "{}", proxy.complaints());
    }
    let line = "export SSL_CERT_FILE=/nowhere/ca.pem SSL_CERT_DIR=/nowhere";
    let proxy = Proxy::behind_with(line, &origin, "traces.endpoint = \"http://localhost:9\"");
    proxy.edit(|text| text.replace("http://localhost:9", "https://localhost:9"));
    assert!(!proxy.reload());
    assert!(proxy.complaints().contains("cannot set up TLS to the endpoint in [traces]"));
}
