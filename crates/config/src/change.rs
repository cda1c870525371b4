//! Which changes of a plan a running process can adopt.

use super::Plan;

impl Plan {
    /// The keys that differ in `next` and are read only at start. Empty: `next` can take effect while
    /// requests are answered.
    #[must_use]
    pub fn needs_restart(&self, next: &Self) -> Vec<&'static str> {
        let (store, session, cache) = (&self.store, &self.session, &self.cache);
        let (limits, log, admin) = (&self.limits, &self.log, &self.admin);
        let differs = [
            ("threads", self.threads != next.threads),
            ("store.url", store.url != next.store.url),
            ("store.pages_url", store.pages_url != next.store.pages_url),
            ("store.timeout", store.timeout != next.store.timeout),
            ("store.pages", store.pages != next.store.pages),
            ("store.max_page", store.max_page != next.store.max_page),
            ("store.prefix", store.prefix != next.store.prefix),
            ("store.layout", store.layout != next.store.layout),
            ("session.token_storage", session.token_storage != next.session.token_storage),
            ("session.viewed_items", session.viewed_items != next.session.viewed_items),
            ("cache.memory", cache.memory != next.cache.memory),
            ("limits.in_flight", limits.in_flight != next.limits.in_flight),
            ("limits.waiters", limits.waiters != next.limits.waiters),
            ("limits.variants", limits.variants != next.limits.variants),
            ("limits.visit_queue", limits.visit_queue != next.limits.visit_queue),
            ("log.access", log.access != next.log.access),
            ("log.to", log.to != next.log.to),
            ("log.redact_paths", log.redact_paths != next.log.redact_paths),
            ("admin.address", admin.address != next.admin.address),
            ("admin.socket", admin.socket != next.admin.socket),
            ("admin.audit_log", admin.audit_log != next.admin.audit_log),
        ];
        differs.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
    }
}
