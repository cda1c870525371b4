//! Suggests the name that was probably intended.

/// What nginx, Varnish, HAProxy, Caddy and Traefik call a key: the table, their name, and the key's path here.
pub(super) const CALLED_ELSEWHERE: [(&str, &str, &str); 27] = [
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
