//! Suggests the name that was probably intended.

pub(super) use anteroom_http::ident::nearest;

/// Tables that a file may have several of, each under a header of its own.
pub(super) const LISTS: [&str; 4] = ["listen", "route", "cookies", "rows"];

/// What nginx, Varnish, HAProxy, Caddy and Traefik call a key: the table, their name, and the key's path here.
pub(super) const CALLED_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("", "bind", "listen"),
    ("", "port", "listen"),
    ("", "workers", "threads"),
    ("", "worker_processes", "threads"),
    ("", "backend", "origin.url"),
    ("", "upstream", "origin.url"),
    ("", "proxy_pass", "origin.url"),
    ("", "target", "origin.url"),
    ("", "server_name", "origin.hosts"),
    ("", "domains", "origin.hosts"),
    ("", "redis", "store.url"),
    ("", "ttl", "cache.default_ttl"),
    ("", "location", "route[].match.path"),
    ("origin", "target", "origin.url"),
    ("origin", "server_name", "origin.hosts"),
    ("origin", "domains", "origin.hosts"),
    ("store", "redis", "store.url"),
    ("cache", "ttl", "cache.default_ttl"),
    ("cache", "size", "cache.memory"),
    ("cache", "max_size", "cache.memory"),
    ("cache", "grace", "cache.stale_while_revalidate"),
    ("route[]", "grace", "route[].stale_while_revalidate"),
    ("route[]", "location", "route[].match.path"),
    ("route[]", "prefix", "route[].match.path"),
    ("admin", "listen", "admin.address"),
    ("admin", "port", "admin.address"),
    ("log", "file", "log.to"),
    ("listen[]", "server_name", "origin.hosts"),
    ("listen[]", "ssl_certificate", "listen[].tls.cert"),
    ("listen[]", "ssl_certificate_key", "listen[].tls.key"),
    ("listen[]", "ssl_session_ticket_key", "listen[].tls.ticket_secret"),
    ("limits", "client_max_body_size", "limits.max_body"),
    ("origin", "timeout", "origin.first_byte_timeout"),
    ("origin", "proxy_read_timeout", "origin.first_byte_timeout"),
    ("cache", "cookie", "session.cookie"),
    ("cache", "proxy_cache_valid", "cache.default_ttl"),
    ("route[].match", "prefix", "route[].match.path"),
    ("route[]", "add_header", "route[].set_headers"),
    ("route[]", "add_headers", "route[].set_headers"),
    ("route[]", "headers", "route[].set_headers"),
    ("route[]", "proxy_set_header", "route[].set_request_headers"),
    ("route[]", "proxy_hide_header", "route[].remove_headers"),
    ("route[]", "proxy_cache_min_uses", "route[].min_uses"),
    ("route[]", "return", "route[].redirect"),
    ("route[]", "rewrite", "route[].strip_prefix"),
    ("route[]", "proxy_pass", "route[].origin"),
    ("", "rule", "route[].match.path"),
    ("", "rules", "route[].match.path"),
    ("listen[]", "listen", "listen[].address"),
    ("listen[]", "bind", "listen[].address"),
    ("listen[]", "port", "listen[].address"),
    ("listen[]", "ssl", "listen[].tls.cert"),
    ("origin", "servers", "origin.urls"),
    ("origin", "server", "origin.url"),
    ("origin", "address", "origin.url"),
    ("origin", "port", "origin.url"),
    ("session", "cookie_name", "session.cookie"),
    ("session", "name", "session.cookie"),
    ("session", "timeout", "session.idle_timeout"),
    ("session", "ttl", "session.idle_timeout"),
    ("cache", "path", "store.url"),
    ("cache", "dir", "store.url"),
    ("log", "path", "log.to"),
    ("log", "output", "log.to"),
    ("log", "format", "log.access"),
    ("limits", "timeout", "origin.first_byte_timeout"),
    ("limits", "request_timeout", "origin.first_byte_timeout"),
    ("limits", "rate", "limits.requests_per_address"),
    ("purge", "allow", "purge.purge_from"),
    ("purge", "acl", "purge.purge_from"),
    ("route[]", "limit_req", "route[].requests_per_address"),
    ("route[]", "try_files", "route[].match.path"),
    ("listen[].tls", "certificate", "listen[].tls.cert"),
    ("listen[].tls", "private_key", "listen[].tls.key"),
    ("", "redirect", "listen[].redirect"),
    ("", "gzip", "cache.compress"),
    ("cache", "keys_zone", "cache.memory"),
];

/// Tables of other proxies that have no counterpart, and what to write for what is in them.
const ADVICE: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["http", "server", "servers", "frontend", "site", "sites", "vhost", "entryPoints"],
        "write listen = \":80\" and origin = { url = \"http://127.0.0.1:3000\", hosts = [\"shop.example\"] } \
         above the first [table]",
    ),
    (
        "",
        &["tls", "ssl", "https"],
        "a certificate belongs to a [[listen]]: write address = \":443\" there, with tls = \"auto\" for one by ACME, or \
         with tls.cert, its files",
    ),
    (
        "route[]",
        &["cache", "no_cache", "nocache", "bypass", "pass", "proxy_cache", "proxy_no_cache"],
        "a page that is never stored has share = \"none\"",
    ),
    (
        "cache",
        &["enabled", "enable", "disabled", "off", "on"],
        "pages that are never stored have a [[route]] with share = \"none\"",
    ),
    (
        "cache",
        &["key", "cache_key", "hash", "vary"],
        "a page depends on host, path and query, and on key_headers and key_cookies in a [[route]]",
    ),
    (
        "log",
        &["level", "error_log", "debug"],
        "the environment variable ANTEROOM_LOG sets how much is logged, as in ANTEROOM_LOG=debug",
    ),
    (
        "listen[]",
        &["acme", "letsencrypt", "auto_https"],
        "for certificates by ACME write tls = \"auto\"; for those of certbot tls.cert is the path of its fullchain.pem",
    ),
];

/// What to write in place of a key or a table that has no counterpart.
pub(super) fn advice(table: &str, name: &str) -> Option<&'static str> {
    let table = without_numbers(table);
    let found = ADVICE.iter().find(|(there, names, _)| *there == table && names.contains(&name));
    found.map(|(_, _, advice)| *advice)
}

/// The path of the key that other proxies call `name`, in the table at `table`.
pub(super) fn called_elsewhere(table: &str, name: &str) -> Option<&'static str> {
    let table = without_numbers(table);
    let found =
        CALLED_ELSEWHERE.iter().find(|(there, called, _)| *there == table && *called == name);
    found.map(|(_, _, path)| *path)
}

/// The path with `[2]` as `[]`.
pub(super) fn without_numbers(path: &str) -> String {
    let mut parts = path.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('[');
        plain.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    plain
}
