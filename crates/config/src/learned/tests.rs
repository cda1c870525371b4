use std::path::PathBuf;

use anteroom_policy::learn::CacheMode;
use anteroom_policy::route::Share;

use super::*;
use crate::{ConfigSources, Plan};

const BEFORE: &str = "# The shop\n[origin]\nurl = \"http://127.0.0.1:3000\" # the app\n\n[cache]\nmode = \"learn\"\n\n# all of it\n[[route]]\nmatch.path = \"/shop/**\"\n";
const ORIGIN: &str = "[origin]\nurl = \"http://127.0.0.1:3000\"\nhosts = [\"shop.example\"]\n";

fn lines<'p>(reason: &'p str, toml: &'p str, route: Option<&'p str>) -> LearnedLines<'p> {
    LearnedLines { reason, toml, route }
}

fn session() -> LearnedLines<'static> {
    lines("sid is a visitor", "[session]\ncookie = [\"old\", \"sid\"]", None)
}

fn ignored() -> LearnedLines<'static> {
    lines("no page\ndepends on it", "[cache]\nignore_cookies = [\"seen\", \"consent\"]", None)
}

fn me(route: Option<&str>) -> LearnedLines<'_> {
    lines("it differs", "[[route]]\nmatch.path = \"/me\"\nshare = \"none\"", route)
}

/// What is written is read again, and has no problem.
fn plan(text: &str) -> Plan {
    let file = Some((PathBuf::from("next.toml"), text.to_owned()));
    let sources = ConfigSources { file, ..ConfigSources::default() };
    match Plan::read(&sources) {
        Ok((plan, _)) => plan,
        Err(problems) => panic!("{text}\n{problems:?}"),
    }
}

fn learned<'p>(text: &str, proposals: impl IntoIterator<Item = LearnedLines<'p>>) -> String {
    learned_config(text, proposals.into_iter(), true).unwrap()
}

#[test]
fn keys_are_set_routes_come_last_and_the_rest_stays() {
    let proposals = [
        lines("sid is a visitor", "[session]\ncookie = [\"sid\"]", None),
        lines("no page\ndepends on it", "[cache]\nignore_cookies = [\"consent\"]", None),
        me(None),
        lines("few values", "# key_cookies = [\"lang\"]", None),
    ];
    let written = learned(BEFORE, proposals);
    let expected = "# The shop\n[origin]\nurl = \"http://127.0.0.1:3000\" # the app\n\n[cache]\nmode = \"serve\"\n# Learned: no page depends on it\nignore_cookies = [\"consent\"]\n\n# all of it\n[[route]]\nmatch.path = \"/shop/**\"\n\n[session]\n# Learned: sid is a visitor\ncookie = [\"sid\"]\n\n# Learned: it differs\n[[route]]\nmatch.path = \"/me\"\nshare = \"none\"\n\n# Learned: few values\n# key_cookies = [\"lang\"]\n";
    assert_eq!(written, expected);
}

#[test]
fn an_empty_configuration_gets_what_was_learned() {
    let written = learned("", [me(None)]);
    assert!(written.parse::<DocumentMut>().is_ok(), "{written}");
    assert!(written.contains("mode = \"serve\""));
    assert!(learned_config("[origin", std::iter::empty(), true).is_err());
}

#[test]
fn what_only_learns_ends_with_learning() {
    for learn in [
        "[cache]\nmode = \"learn\"\n[learn]\nprobe = true # ask\n",
        "[cache]\nmode = \"learn\"\n[learn]\nmirror = true\nprobe = true\n",
        "learn = { mirror = true, probe = true }\ncache.mode = \"learn\"\n",
        "learn.probe = true\ncache = { mode = \"learn\" }\n",
    ] {
        let text = format!("{learn}{ORIGIN}");
        let written = learned(&text, [session(), ignored(), me(None)]);
        let plan = plan(&written);
        assert_eq!(plan.cache.mode, CacheMode::Serve, "{written}");
        assert!(!plan.learn.mirror && !plan.learn.probe, "{written}");
        assert_eq!(written.contains("# ask"), text.contains("# ask"), "{written}");
    }
    let routes = "[[route]]\nmatch.path = \"/a\"\nmode = \"learn\"\n";
    let written = learned(&format!("learn.probe = true\n{ORIGIN}{routes}"), [session()]);
    assert!(plan(&written).learn.probe, "a route learns on: {written}");
}

#[test]
fn comments_stay_in_every_form_of_a_table() {
    for text in [
        "cache.mode = \"learn\" # c1\n# c2\nsession.cookie = [\"old\"] # c3\n# c4\ncache.ignore_cookies = [\"seen\"]\n",
        "# c1\nsession = { cookie = [\"old\"] } # c2\n# c3\ncache = { mode = \"learn\", ignore_cookies = [\"seen\"] } # c4\n",
        "[session]\n# c1\ncookie = [ # c2\n  \"old\", # c3\n  # c4\n]\n[cache]\nignore_cookies = [\n  \"seen\" # c5\n]\nmode = 'learn'\n",
        "[session] # c1\ncookie = \"old\" # c2\n[cache]\nmode = \"learn\"\nignore_cookies = \"seen\" # c3\n",
    ] {
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            let text = text + ORIGIN;
            let written = learned(&text, [session(), ignored(), me(None)]);
            let plan = plan(&written);
            let names = |patterns: &[anteroom_http::pattern::Pattern]| {
                patterns.iter().map(ToString::to_string).collect::<Vec<_>>()
            };
            assert_eq!(names(&plan.session.cookies), ["old", "sid"], "{written}");
            assert_eq!(names(&plan.cache.ignore_cookies), ["seen", "consent"], "{written}");
            for comment in ["# c1", "# c2", "# c3", "# c4", "# c5"] {
                assert_eq!(written.contains(comment), text.contains(comment), "{written}");
            }
            let bare = written.replace("\r\n", "").contains('\n');
            assert_eq!(bare, !text.contains('\r'), "one kind of line ends: {written:?}");
        }
    }
}

#[test]
fn a_learned_route_keeps_the_keys_of_the_one_whose_pages_it_takes() {
    for routes in [
        "[[route]]\nname = \"first\"\nmatch.path = \"/first\"\n\n# private\n[[ route ]]\nname = \"shop\"\nmatch = { path = \"/**\", host = \"shop.example\" }\nallow_from = [\"10.0.0.0/8\"] # the office\nttl = \"60s\"\nshare = \"everyone\"\n[route.leak]\n",
        "[[route]]\nname = \"first\"\n[route.match]\npath = \"/first\"\n[[route]]\nname = \"shop\"\nallow_from = [\"10.0.0.0/8\"]\n[route.match]\n# all\npath = \"/**\"\n",
        "route = [\n  { name = \"first\", match.path = \"/first\" },\n  { name = \"shop\", match = \"/**\", allow_from = [\"10.0.0.0/8\"], share = \"everyone\" },\n]\n",
    ] {
        let routes = routes.replace("[route.leak]\n", "");
        let text = match routes.starts_with("route") {
            true => format!("{routes}{ORIGIN}"),
            false => format!("{ORIGIN}note = 1\n{routes}").replace("note = 1\n", ""),
        };
        let written = learned(
            &text,
            [
                me(Some("shop")),
                lines(
                    "few values",
                    "[[route]]\nmatch.path = \"/lang\"\nkey_cookies = [\"lang\"]",
                    None,
                ),
            ],
        );
        let plan = plan(&written);
        assert_eq!(plan.routes.len(), 4, "{written}");
        let me = &plan.routes[1];
        assert_eq!((me.paths[0].as_str(), me.share), ("/me", Share::None), "{written}");
        assert_eq!(me.allow_from, plan.routes[2].allow_from, "{written}");
        assert_eq!(me.hosts, plan.routes[2].hosts, "{written}");
        assert_eq!(plan.routes[3].paths[0].as_str(), "/lang", "{written}");
    }
}

#[test]
fn the_keys_of_the_operator_stay_however_they_are_written() {
    let routes = "[[route]]\nname = \"shop\"\nmatch = [\"/shop/**\", \"/old/**\"]\nkey_cookies = \"currency\"\n";
    let keyed = lines(
        "it differs",
        "[[route]]\nmatch.path = \"/shop/a\"\nkey_cookies = [\"lang\"]",
        Some("shop"),
    );
    let written = learned(&format!("{ORIGIN}{routes}"), [keyed]);
    let plan = plan(&written);
    let route = &plan.routes[0];
    assert_eq!(route.key_cookies, ["currency", "lang"], "{written}");
    assert_eq!(route.paths.len(), 1, "{written}");
    assert_eq!(route.paths[0].as_str(), "/shop/a", "{written}");
}

#[test]
fn a_route_that_shares_nothing_has_none_of_the_keys_for_sharing() {
    let routes = "[[route]]\nname = \"all\"\nmatch.path = \"/shop/**\"\nshare = \"everyone\"\nleak_guard = \"off\"\n";
    let plan = plan(&learned(&format!("{ORIGIN}{routes}"), [me(Some("all"))]));
    assert_eq!((plan.routes[0].share, plan.routes.len()), (Share::None, 2));
}

#[test]
fn what_is_known_of_a_route_of_another_name_is_not_served() {
    let host = "[[route]]\nmatch.host = \"shop.example\"\n";
    let twice = "[[route]]\nmatch.path = \"/a\"\nmatch.host = \"shop.example\"\n[[route]]\nmatch.path = \"/a\"\n";
    let served = |routes: &str, route: &str| {
        let written = learned(&format!("{ORIGIN}{routes}"), [me(Some(route))]);
        let plan = plan(&written);
        (plan.cache.mode == CacheMode::Serve, plan.routes.len())
    };
    assert_eq!(served(host, "/**"), (true, 2), "a route without a path has that of all");
    assert_eq!(served(twice, "/a"), (false, 2), "either may be meant");
    assert_eq!(served(host, "elsewhere"), (false, 1));
}

#[test]
fn a_header_in_a_text_is_no_header_and_a_route_of_another_file_is_left_to_the_operator() {
    let first = "[[route]]\nname = \"\"\"a\\\n[[route]]\"\"\"\nmatch.path = \"/a\"\n";
    let second = "[[route]]\nname = \"b\"\nmatch.path = \"/b\"\n\n[cache]\nmode = \"learn\"\n";
    let text = format!("{ORIGIN}{first}{second}");
    let written = learned(&text, [me(Some("b")), me(Some("elsewhere"))]);
    let plan = plan(&written);
    let paths: Vec<_> = plan.routes.iter().map(|route| route.paths[0].as_str()).collect();
    assert_eq!(paths, ["/a", "/me", "/b"], "{written}");
    assert!(written.contains("# [[route]]\n# match.path = \"/me\"\n"), "{written}");
    assert!(written.contains("mode = \"learn\""), "what cannot be said is not served: {written}");
}
