//! Several origins, and several servers of each.

use super::*;

const TWO: &str = "[origin]\nurls = [\"http://a:1\", \"http://b:1\"]\nweights = [2, 1]\n\
                   balance = \"sticky\"\nmax_connections = 50\nhealth.path = \"/healthz\"\n\
                   health.status = [200, 204]\n[origins.blog]\nurl = \"http://blog\"\n\
                   health.every = \"1s\"\n[origins.api]\nurl = \"http://api\"\nsessions = true\n\
                   [[route]]\nmatch.path = \"/blog/**\"\norigin = \"blog\"\n";

#[test]
fn further_origins_have_names_and_no_sessions() {
    let plan = read(&file(TWO));
    let names: Vec<_> = plan.origins.iter().map(|(name, o)| (name.as_str(), o.sessions)).collect();
    assert_eq!(names, [("api", true), ("blog", false)]);
    assert_eq!(plan.routes[0].origin.as_deref(), Some("blog"));
    assert_eq!(plan.origin.urls().len(), 2);
    assert_eq!(plan.origin.url, plan.origin.urls()[0]);
    assert_eq!(plan.origins[1].1.urls(), [plan.origins[1].1.url.clone()]);
}

#[test]
fn a_host_may_have_letters_beyond_ascii() {
    for (written, host) in [
        ("bücher.example", "xn--bcher-kva.example"),
        ("*.BÜCHER.example:8080", "*.xn--bcher-kva.example:8080"),
        ("пример.рф:81", "xn--e1afmkfd.xn--p1ai:81"),
    ] {
        let text =
            format!("{ORIGIN}hosts = [\"{written}\"]\n[[route]]\nmatch.host = \"{written}\"\n");
        let plan = read(&file(&text));
        assert_eq!(plan.origin.hosts[0].as_str(), host);
        assert_eq!(plan.routes[0].hosts[0].as_str(), host);
        assert_eq!(read(&file(&print(&plan))), plan, "{}", print(&plan));
    }
    for no_host in ["bü cher.example", "bücher.example:0", "bücher.example/", "é:é", "*.é.*"]
    {
        let found = problems(&file(&format!("{ORIGIN}hosts = [\"{no_host}\"]\n")));
        assert!(found.len() == 1 && found[0].contains("expected"), "{no_host}: {found:?}");
    }
}

#[test]
fn printed_origins_read_back_unchanged() {
    let plan = read(&file(TWO));
    let written = print(&plan);
    assert_eq!(read(&file(&written)), plan, "{written}");
}

#[test]
fn invalid_origins_are_reported() {
    for (text, expected) in [
        ("[[route]]\norigin = \"blgo\"", "there is no [origins.blgo]; did you mean \"blog\"?"),
        ("[[route]]\norigin = \"shop\"", "there is no [origins.shop]; there are blog"),
        ("[origins.\"a b\"]\nurl = \"http://x\"", "a name of 1 to"),
        ("[origins.origin]\nurl = \"http://x\"", "this is the one of [origin]"),
        ("[origins.news]\nsessions = true", "missing; write url"),
        ("[origins.news]\nurl = \"http://x\"\nhosts = \"x\"", "unknown key"),
        ("[origins.news]\nurls = [\"http://x\", \"http://x\"]", "is listed twice"),
        (
            "[origins.news]\nurl = \"http://y\"\nurls = \"http://x\"",
            "differs from the first of urls",
        ),
        ("[origins.news]\nurl = \"http://x\"\nweights = [1, 2]", "found 2 weights for 1 servers"),
        ("[[rows]]\nname = \"a\"\npath = \"/{row}\"\norigin = \"x\"", "there is no [origins.x]"),
        (
            "[origins.news]\nurl = \"http://x\"\nmax_strangers = 2\nmax_strangers_per_network = 3",
            "max_strangers_per_network: has no effect: 3 is more than max_strangers, 2",
        ),
        ("[origins.news]\nurl = \"http://x\"\nhealth.path = \"healthz\"", "a path such as"),
    ] {
        let text = format!("{ORIGIN}[origins.blog]\nurl = \"http://blog\"\n{text}\n");
        let found = problems(&file(&text));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
}
