//! Suggests the name that was probably intended.

/// What nginx, Varnish, HAProxy, Caddy and Traefik call a key: the table, their name, and the key's path here.
pub(super) const CALLED_ELSEWHERE: [(&str, &str, &str); 45] = [
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
];

/// The path of the key that other proxies call `name`, in the table at `table`.
pub(super) fn called_elsewhere(table: &str, name: &str) -> Option<&'static str> {
    let table = without_numbers(table);
    let found =
        CALLED_ELSEWHERE.iter().find(|(there, called, _)| *there == table && *called == name);
    found.map(|(_, _, path)| *path)
}

/// The name among `valid` that was probably intended.
pub(super) fn nearest<'n>(name: &str, valid: &[&'n str]) -> Option<&'n str> {
    // The comparison costs the product of both lengths, so long names are skipped.
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let apart = |known: &&'n str| (strsim::osa_distance(name, known), *known);
    let (distance, near) = valid.iter().map(apart).min()?;
    (distance <= near.len().div_ceil(3)).then_some(near)
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
