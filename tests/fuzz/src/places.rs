//! Where a request goes: paths, queries, hosts and links, as they are read for keys and purges.

use anteroom_cache::rules::key::{KeyParts, ShareClass, hash_request};
use anteroom_http::host::{Host, Scheme};
use anteroom_http::lenient::may_begin_with;
use anteroom_http::path::{PathPattern, PurgePath, decoded, is_odd};
use anteroom_http::pattern::Pattern;
use anteroom_http::query::{self, session_id_in};
use anteroom_http::reference::resolve;
use http::HeaderMap;

use crate::input::Input;

pub(crate) fn places(data: &[u8]) {
    let mut input = Input(data);
    let switches = input.number(u64::MAX);
    let [target, other, pattern] = [(); 3].map(|()| std::str::from_utf8(input.line()));
    let (Ok(target), Ok(other), Ok(pattern)) = (target, other, pattern) else {
        return;
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    paths(path, pattern);
    queries(path, query, pattern);
    keys(path, query, other);
    links(target, other);
    our_own(switches, other);
}

/// A path that is not odd means one thing only.
fn paths(path: &str, pattern: &str) {
    if !is_odd(path) {
        let decoded = decoded(path).expect("what is not odd can be read");
        let segments: Vec<_> = decoded.split('/').skip(1).collect();
        assert_eq!(decoded.matches('/').count(), path.matches('/').count());
        assert!(!decoded.contains(['\\', '\0', '\r', '\n']));
        assert!(!segments.iter().any(|segment| matches!(*segment, "." | "..")));
        assert!(segments.iter().rev().skip(1).all(|segment| !segment.is_empty()));
    }
    if let Ok(parsed) = PathPattern::parse(pattern) {
        assert_eq!(PathPattern::parse(parsed.as_str()).as_ref(), Ok(&parsed));
        let found = parsed.matches(path);
        assert!(!parsed.is_everything() || found.is_some() || !path.starts_with('/'));
        let item = found.and_then(|found| found.item);
        assert!(item.is_none_or(|item| !item.is_empty() && path.contains(item)));
    }
    if let Some(branch) = PurgePath::parse(path) {
        assert!(branch.path.starts_with('/'));
    }
}

/// What is removed is gone, what stays is as it was, and what is secret is hidden.
fn queries(path: &str, query: &str, pattern: &str) {
    let ignored: Vec<_> = ["utm_*", pattern].iter().flat_map(|text| Pattern::parse(text)).collect();
    let left = query::without(query, &ignored);
    assert_eq!(query::without(&left, &ignored), left);
    let names = |query| query::names(query).map(std::borrow::Cow::into_owned).collect::<Vec<_>>();
    let is_ignored = |name: &Vec<u8>| ignored.iter().any(|pattern| pattern.matches(name));
    let mut kept = names(query);
    kept.retain(|name| !is_ignored(name));
    assert_eq!(names(&left), kept);

    let hidden = query::path_without_session_id(path);
    assert!(!session_id_in(&hidden, ""), "{hidden}");
    let hidden = query::without_values(query);
    assert!(hidden.split('&').all(|part| part.find('=').is_none_or(|at| at + 1 == part.len())));
}

/// Two places have two keys, however their parts are divided.
fn keys(path: &str, query: &str, other: &str) {
    let none = HeaderMap::new();
    let key = |host: &str, path: &str, query: &str, class| {
        hash_request(&KeyParts {
            site: "",
            scheme: "http",
            host,
            path,
            query,
            class,
            group: b"",
            headers: &none,
            key_cookies: &[],
            key_headers: &[],
            conditions: &[],
            by_query: None,
        })
    };
    let class = ShareClass::Anonymous;
    let this = key("shop.test", path, query, class);
    assert_eq!(this, key("shop.test", path, query, class));
    assert_ne!(this, key("shop.test", path, query, ShareClass::Public));
    assert_eq!(this == key("shop.test", path, other, class), query == other);
    assert_eq!(this == key("shop.test", other, query, class), path == other);
    if !path.is_empty() {
        assert_ne!(this, key(&format!("shop.test{path}"), "", query, class));
        assert_ne!(this, key("shop.test", "", &format!("{path}{query}"), class));
    }
}

/// Links lead to a path without dots, and hosts are read as they are written, without a final dot.
fn links(target: &str, other: &str) {
    let (place, found) = resolve(target, other);
    assert!(!found.contains('#') || target.contains('#'));
    assert!(place.is_none_or(|place| other.starts_with(place)));
    if let Ok(host) = Host::parse(other.as_bytes()) {
        assert_eq!(Host::parse(host.as_str().as_bytes()).as_ref(), Ok(&host));
        let written = other.to_ascii_lowercase();
        let rest = written.strip_prefix(host.name()).unwrap();
        let port = rest.strip_prefix('.').unwrap_or(rest);
        assert_eq!(host.as_str(), format!("{}{port}", host.name()));
        let normalised = host.normalised(Scheme::Http);
        let again = Host::parse(normalised.as_bytes()).unwrap();
        assert_eq!(again.normalised(Scheme::Http), normalised);
    }
}

/// What is for us is known however it is encoded: the switches say how each letter is written.
fn our_own(switches: u64, rest: &str) {
    let mut path = ["/", "//", "/./", "/x/../", "/\\", "/%2f", "/;a/", "/%252e/"]
        [(switches & 7) as usize]
        .to_owned();
    for (at, letter) in "_anteroom".bytes().enumerate() {
        match switches >> (3 + 3 * at) & 7 {
            0 => path += &format!("%{letter:02x}"),
            1 => path += &format!("%{letter:02X}"),
            2 => path += &format!("%25{letter:02x}"),
            3 => path.push(char::from(letter.to_ascii_uppercase())),
            _ => path.push(char::from(letter)),
        }
    }
    for end in ["", "/", ";a", "%2f", "\\"] {
        let path = format!("{path}{end}{}", if end.is_empty() { "" } else { rest });
        assert!(may_begin_with(&path, "_anteroom"), "{path}");
    }
}
