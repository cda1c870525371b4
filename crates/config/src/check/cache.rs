//! The store, the cache, purges and the cookie of visitor tokens.

use anteroom_http::pattern::Pattern;
use anteroom_http::peer::Peers;
use anteroom_http::set_cookie;
use anteroom_policy::cookie::Secure;
use ipnet::IpNet;

use super::ConfigCheck;
use crate::memory_limit::{MemoryLimit, smallest_memory_limit};
use crate::plan::{Cache, NextStore, PurgeAuthorization, Store, StoreLayout, StoreUrl};
use crate::unit::show_size;

impl ConfigCheck<'_> {
    /// Checks the stores.
    pub(super) fn store(&mut self) {
        let plan = self.plan;
        self.one_store(&plan.store, "store", true);
        match plan.store.next() {
            Some(next) => self.next_store(&plan.store, &next),
            None if plan.store.next != NextStore::default() && !self.unread("store.next.url") => {
                self.problem("store.next", "needs url: where the store is to be moved");
            }
            None => {}
        }
    }

    fn next_store(&mut self, store: &Store, next: &Store) {
        // A layout that the next store has by default is not said to be without effect.
        self.one_store(next, "store.next", store.next.layout.is_some());
        let place = |store: &Store| (store.url.clone(), store.prefix.clone(), store.layout);
        if place(store) == place(next) {
            self.problem("store.next.url", "is the same store as [store]");
        }
    }

    /// Pages may have a store of their own; purges are recorded with the sessions.
    fn one_store(&mut self, store: &Store, table: &str, says_layout: bool) {
        let is_redis = |url: &StoreUrl| matches!(url, StoreUrl::Redis(_));
        let is_read = !self.unread(&format!("{table}.url"));
        match &store.pages_url {
            Some(pages) if !is_redis(pages) => {
                self.problem(
                    &format!("{table}.pages_url"),
                    "must be a Redis URL: the embedded store keeps its own pages",
                );
            }
            Some(_) if !is_redis(&store.url) && is_read => {
                self.warning(
                    &format!("{table}.pages_url"),
                    "has no effect with the embedded store, which keeps its own pages",
                );
            }
            Some(_) | None => {}
        }
        self.layout(store, table, is_read && says_layout);
    }

    /// In a Cluster the keys of one step must be in one slot.
    fn layout(&mut self, store: &Store, table: &str, is_said: bool) {
        let stores = [Some(&store.url), store.pages_url.as_ref()];
        let is_cluster = stores.into_iter().flatten().any(StoreUrl::is_cluster);
        let has_tag = has_hash_tag(&store.prefix);
        let key = format!("{table}.layout");
        match store.layout {
            StoreLayout::Single if is_cluster && !has_tag => self.problem(
                &key,
                "\"single\" needs all keys in one slot of the Cluster: use \"sharded\", or a prefix with a hash tag, such as \"{shop}:\"",
            ),
            StoreLayout::Single if is_cluster => self.warning(
                &key,
                "\"single\" keeps everything on one node of the Cluster, because of the hash tag in prefix: \"sharded\" uses all nodes",
            ),
            StoreLayout::Sharded if has_tag => self.problem(
                &format!("{table}.prefix"),
                "has a hash tag, which would keep all shards in one slot: leave out { and }",
            ),
            StoreLayout::Sharded if matches!(store.url, StoreUrl::Embedded(_)) && is_said => {
                self.warning(&key, "has no effect with the embedded store");
            }
            StoreLayout::Single | StoreLayout::Sharded => {}
        }
    }

    pub(super) fn cache(&mut self) {
        let (cache, limits) = (&self.plan.cache, &self.plan.limits);
        // What "auto" is depends on the machine; a file that is valid on one should be valid on another.
        let memory = cache.memory_within(None);
        for (name, bound) in [("[cache] memory", memory), ("[limits] in_flight", limits.in_flight)]
        {
            if cache.max_object > bound {
                let (object, bound) = (show_size(cache.max_object), show_size(bound));
                let text = format!(
                    "{object} exceeds {name}, {bound}: pages of this size could not be stored"
                );
                self.problem("cache.max_object", text);
            }
        }
        if limits.uri > limits.request_head {
            self.problem("limits.uri", "exceeds request_head, which contains it");
        }
        let limit = cache.memory.and_then(|bytes| Some((bytes, smallest_memory_limit()?)));
        if let Some(text) = limit.and_then(|(bytes, limit)| too_much_memory(bytes, &limit)) {
            self.warning("cache.memory", text);
        }
        for ignored in &cache.ignore_cookies {
            let name = ignored.to_string();
            if self.plan.session.cookies.iter().any(|cookie| overlap(cookie, ignored)) {
                let text = format!("{name:?} matches a session cookie, which is never harmless");
                self.problem("cache.ignore_cookies", text);
            }
        }
    }

    /// Checks the cookie of visitor tokens. It belongs to the proxy: it must not be a session cookie, and
    /// no page may vary by it.
    pub(super) fn visitor_cookie(&mut self) {
        if !self.plan.gives_visitor_tokens() {
            return;
        }
        let (name, session) = (&self.plan.visitor.cookie, &self.plan.session);
        let is_meant = |pattern: &&Pattern| pattern.matches(name.as_bytes());
        if let Some(cookie) = session.cookies.iter().find(is_meant) {
            let text = format!("{name} is a session cookie, by [session] cookie = \"{cookie}\"");
            self.problem("visitor.cookie", text);
        }
        if let Some(cookie) = self.plan.cache.ignore_cookies.iter().find(is_meant) {
            let text = format!(
                "{name} is also matched by [cache] ignore_cookies = \"{cookie}\"; remove it there, \
                 because the app never receives it"
            );
            self.problem("visitor.cookie", text);
        }
        if session.secure == Secure::Never && set_cookie::needs_secure(name) {
            self.problem(
                "visitor.cookie",
                "has a name that browsers accept only with Secure, and [session] secure is \"never\"",
            );
        }
    }

    /// Checks purges by method: a purge can send every visitor's request to the origin.
    pub(super) fn purge(&mut self) {
        let purge = &self.plan.purge;
        if !purge.method {
            return;
        }
        if purge.purge_from.is_empty() && !self.unread("purge.purge_from") {
            self.problem("purge.method", "needs purge_from, the peers that may purge");
        }
        match purge.purge_token {
            PurgeAuthorization::Admin
                if self.plan.admin.token.is_none() && !self.unread("admin.token") =>
            {
                let text = "needs [admin] token; or, for an app here that cannot send one, purge_token = \"none\"";
                self.problem("purge.method", text);
            }
            PurgeAuthorization::Admin => {}
            PurgeAuthorization::None => {
                if let Some(net) = purge.purge_from.iter().find(|net| !is_private(net)) {
                    let text = format!(
                        "\"none\" is allowed for loopback and private addresses only; found {net}"
                    );
                    self.problem("purge.purge_token", text);
                }
                // All visitors behind a trusted proxy have its address.
                let trusted = &self.plan.client.trusted_proxies;
                let trusted: Vec<_> = trusted.iter().filter_map(Peers::network).collect();
                let overlaps = |net: &&IpNet| trusted.iter().any(|other| meet(net, other));
                if let Some(net) = purge.purge_from.iter().find(overlaps) {
                    let text = format!(
                        "\"none\" is not allowed for {net}, which overlaps [client] trusted_proxies"
                    );
                    self.problem("purge.purge_token", text);
                }
            }
        }
    }
}

/// What is wrong with so many bytes of pages in a process with this limit. A fifth of it is the least that the rest of
/// the process needs.
fn too_much_memory(bytes: u64, limit: &MemoryLimit) -> Option<String> {
    (bytes > limit.bytes / 5 * 4).then(|| {
        let at_most = show_size(Cache::auto_memory(Some(limit.bytes)));
        format!(
            "{} is too much for a process whose memory is limited to {limit}: write \"auto\", or at most \"{at_most}\"",
            show_size(bytes)
        )
    })
}

/// Whether keys with this prefix have a hash tag: text between the first `{` and the next `}`.
fn has_hash_tag(prefix: &str) -> bool {
    let inner = prefix.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inner.is_some_and(|(tag, _)| !tag.is_empty())
}

/// Whether a network contains private and loopback addresses only.
fn is_private(net: &IpNet) -> bool {
    let within = |own: &str| own.parse::<IpNet>().is_ok_and(|own| own.contains(net));
    let own =
        ["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"];
    own.into_iter().any(within)
}

/// Whether both may match a common name, if one of them is a plain name. Two patterns are compared as
/// text.
fn overlap(a: &Pattern, b: &Pattern) -> bool {
    match (a, b) {
        (Pattern::Exact(name), other) | (other, Pattern::Exact(name)) => {
            other.matches(name.as_bytes())
        }
        (a, b) => a == b,
    }
}

/// Whether two networks overlap: then one contains the other.
fn meet(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_over_the_limit_of_the_process_is_too_much() {
        let limit = MemoryLimit { bytes: 200 << 20, file: "/sys/fs/cgroup/a/memory.max".into() };
        assert_eq!(
            too_much_memory(256 << 20, &limit).as_deref(),
            Some(
                "256MiB is too much for a process whose memory is limited to 200MiB \
                 (/sys/fs/cgroup/a/memory.max): write \"auto\", or at most \"80MiB\""
            )
        );
        assert_eq!(too_much_memory(160 << 20, &limit), None);
    }
}
