//! Clients that others have written: nghttp and h2load of nghttp2, and curl.

use std::process::Command;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error} (tests/run installs it)"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program}: {text}{:?}", output.stderr);
    text
}

#[test]
fn nghttp_is_answered() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let said = run("nghttp", &["--timeout=10", &format!("http://{}/", proxy.address())]);
    assert_eq!(said, "hello");
}

#[test]
fn curl_is_answered_by_prior_knowledge() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let url = format!("http://{}/", proxy.address());
    let format = "%{http_version} %{http_code}";
    let common = ["--silent", "--max-time", "10", "--http2-prior-knowledge", "--write-out", format];
    assert_eq!(run("curl", &[&common[..], &[&url]].concat()), "hello2 200");
    let large = "x".repeat(100_000);
    let upload = ["--data-binary", &large, &url];
    assert_eq!(run("curl", &[&common[..], &upload].concat()), "hello2 200");
    assert_eq!(origin.last().body.length, 100_000);
}

#[test]
fn h2load_gets_every_answer() {
    let body = "x".repeat(20_000);
    let origin = Origin::always(Reply::html(&body).header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    let url = format!("http://{}/", proxy.address());
    let said =
        run("h2load", &["-n2000", "-c10", "-m50", "--connection-inactivity-timeout=10", &url]);
    assert!(said.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert!(said.contains("status codes: 2000 2xx"), "{said}");
}
