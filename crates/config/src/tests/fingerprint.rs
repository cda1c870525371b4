//! Which settings of two proxies differ, as far as a fleet minds.

use super::*;

/// Dotted, so that other dotted keys may follow.
const SMALLEST: &str = "origin.url = \"http://127.0.0.1:3000\"\n";

/// The names of the settings, and of the tables, that differ between two files.
fn differ(one: &str, other: &str) -> (Vec<String>, Vec<String>) {
    let read = |text: &str| fingerprint(&read(&file(&format!("{SMALLEST}{text}"))));
    let (one, other) = (read(one), read(other));
    let named = |one: &std::collections::BTreeMap<String, String>, other: &_| {
        let other: &std::collections::BTreeMap<String, String> = other;
        let names = one.iter().filter(|(name, hash)| other.get(*name) != Some(*hash));
        names.map(|(name, _)| name.clone()).collect()
    };
    (named(&one.alike, &other.alike), named(&one.tables, &other.tables))
}

const ROWS: &str = "[[rows]]\nname = \"stock\"\npath = \"/stock/{row}\"\n";

#[test]
fn settings_that_proxies_must_have_alike_are_named() {
    let verify = "[session.verify]\npath = \"/whoami\"\nuser = { header = \"X-User\" }\n\
                  nobody = { status = [401] }\n";
    for (one, other, alike, tables) in [
        ("", "", &[][..], &[][..]),
        ("session.token_storage = \"plain\"", "", &["session.token_storage"], &["session"]),
        ("session.viewed_items = 9", "", &["session.viewed_items"], &["session"]),
        ("session.cookie = \"sid\"", "", &["session.cookie"], &["session"]),
        (verify, "", &["session.verify"], &["session"]),
        (ROWS, "", &["rows"], &["rows"]),
        ("[[route]]\nmatch.path = \"/a\"", "", &[], &["route"]),
        ("acme.profile = \"tlsserver\"", "", &[], &["acme"]),
        ("cache.default_ttl = \"5s\"", "cache.default_ttl = \"6s\"", &[], &["cache"]),
    ] {
        let found = differ(one, other);
        assert_eq!(found.0, alike, "{one} / {other}");
        assert_eq!(found.1, tables, "{one} / {other}");
    }
}

#[test]
fn what_is_a_machines_own_and_what_is_at_its_default_does_not_count() {
    for own in [
        "threads = 3",
        "acme.folder = \"/elsewhere\"",
        "listen = [\"127.0.0.1:1\"]",
        "admin.address = \"off\"",
        "log.access = \"off\"",
        "store.url = \"embedded:/elsewhere\"",
        "session.viewed_items = 25",
    ] {
        assert_eq!(differ(own, ""), (Vec::new(), Vec::new()), "{own}");
    }
}

#[test]
fn the_databases_of_rows_are_compared_without_their_urls() {
    let of = |url: &str, more: &str| {
        format!(
            "[databases.shop]\nurl = \"{url}\"\n{more}\n[[rows]]\nname = \"a\"\ndatabase = \"shop\"\n\
             query = \"select $1\"\n"
        )
    };
    let one = of("postgres://replica-1/shop", "");
    assert_eq!(differ(&one, &of("postgres://replica-2/shop", "")), (vec![], vec![]));
    let tables = vec!["databases".to_owned()];
    assert_eq!(
        differ(&one, &of("postgres://replica-1/shop", "timeout = \"1s\"")),
        (vec![], tables)
    );
    let rows = vec!["rows".to_owned()];
    let other_query = one.replace("select $1", "select 1 + $1");
    assert_eq!(differ(&one, &other_query), (rows.clone(), rows));
}

#[test]
fn the_rules_of_pages_change_with_what_decides_who_shares_them() {
    let rules = |text: &str| page_rules(&read(&file(&format!("{SMALLEST}{text}"))));
    let route = |more: &str| rules(&format!("[[route]]\nmatch.path = \"/a/**\"\n{more}\n"));
    assert_eq!(rules("").len(), 1);
    let usual = route("");
    assert_eq!(usual.len(), 2);
    assert_eq!(usual[1], rules("")[0], "what no route matches");
    assert_ne!(usual[0], usual[1]);
    for same in [
        "ttl = \"7s\"",
        "access_log = false",
        "max_strangers = 2",
        "name = \"shop\"",
        "audit = \"1/7\"",
        "share = \"anonymous\"",
    ] {
        assert_eq!(route(same), usual, "{same}");
    }
    for other in [
        "share = \"none\"",
        "keep_query = [\"page\"]",
        "key_cookies = [\"currency\"]",
        "key_headers = [\"DNT\"]",
    ] {
        assert_ne!(route(other)[0], usual[0], "{other}");
        assert_eq!(route(other)[1], usual[1], "{other}");
    }
    let ignored = rules("cache.ignore_cookies = [\"currency\"]");
    assert_ne!(ignored, rules(""));
    assert_eq!(rules("cache.default_ttl = \"7s\""), rules(""));
    assert_eq!(rules("cache.memory = \"64MiB\""), rules(""));
    let moved = rules("[[route]]\nmatch.path = \"/b\"\n[[route]]\nmatch.path = \"/a/**\"\n");
    assert_eq!(moved[1], usual[0], "its place among the routes does not matter");
}
