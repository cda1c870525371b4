//! Origins, their servers and rows.

use anteroom_http::host::Scheme;
use anteroom_policy::route::Route;

use super::ConfigCheck;
use crate::plan::{Address, OriginConfig, leads_to};
use crate::suggest::nearest;

/// The most servers of one origin.
const SERVERS_MAX: usize = 64;

impl ConfigCheck<'_> {
    pub(super) fn origin(&mut self) {
        if self.plan.origin.hosts.is_empty() && !self.unread("origin.hosts") {
            self.warning(
                "origin.hosts",
                "empty: any Host is accepted and passed to the origin; list your host names",
            );
        }
        let further = self.plan.origins.iter().map(|(_, origin)| origin);
        let mut origins = std::iter::once(&self.plan.origin).chain(further);
        if self.plan.session.mint && !origins.any(|origin| origin.sessions) {
            self.problem(
                "session.mint",
                "needs [origin] sessions = true: the origin logs visitors in",
            );
        }
    }

    /// TLS settings need an `https:` origin, and a certificate needs its key.
    pub(super) fn origin_tls(&mut self) {
        let origin = &self.plan.origin;
        let tls = &origin.tls;
        let is_tls = origin.url.scheme == Scheme::Https || self.unread("origin.url");
        for (key, is_said) in [
            ("ca", tls.ca.is_some()),
            ("server_name", tls.server_name.is_some()),
            ("cert", tls.cert.is_some()),
            ("key", tls.key.is_some()),
            ("verify", !tls.verify),
        ] {
            if is_said && !is_tls {
                let setting = format!("origin.tls.{key}");
                self.problem(&setting, "needs an [origin] url that begins with https:");
            }
        }
        let unread = self.unread("origin.tls.cert") || self.unread("origin.tls.key");
        match (&tls.cert, &tls.key) {
            (Some(_), None) if !unread => {
                self.problem("origin.tls.cert", "needs key, the private key of the certificate")
            }
            (None, Some(_)) if !unread => {
                self.problem("origin.tls.key", "needs cert, the certificate of the key")
            }
            _ => {}
        }
        if !tls.verify {
            self.warning(
                "origin.tls.verify",
                "is false: any server on the way to the origin can impersonate it",
            );
        }
        if !tls.verify && tls.ca.is_some() {
            self.problem("origin.tls.ca", "has no effect with verify = false");
        }
    }

    pub(super) fn rows(&mut self) {
        let rows = &self.plan.rows;
        for (index, one) in rows.iter().enumerate() {
            if rows[..index].iter().any(|earlier| earlier.name == one.name) {
                let text = format!("{:?} is already the name of an earlier [[rows]]", one.name);
                self.problem(&format!("rows[{index}].name"), text);
            }
            self.names_origin(&format!("rows[{index}].origin"), one.origin.as_deref());
            self.source_of_rows(&format!("rows[{index}]"), one);
            self.schedule_of_rows(&format!("rows[{index}]"), one);
        }
    }

    /// Checks that a named origin exists.
    pub(super) fn names_origin(&mut self, setting: &str, name: Option<&str>) {
        let Some(name) = name else { return };
        let known: Vec<&str> = self.plan.origins.iter().map(|(name, _)| name.as_str()).collect();
        if known.contains(&name) || self.unread.iter().any(|unread| unread.starts_with("origins")) {
            return;
        }
        let hint = match (nearest(name, &known), known.is_empty()) {
            (Some(near), _) => format!("; did you mean {near:?}?"),
            (None, true) => {
                "; write it with the url of that app, or remove this line to use [origin]"
                    .to_owned()
            }
            (None, false) => format!("; there are {}", known.join(", ")),
        };
        self.problem(setting, format!("there is no [origins.{name}]{hint}"));
    }

    /// Checks the servers of each origin.
    pub(super) fn servers(&mut self) {
        let plan = self.plan;
        self.servers_of("origin", &plan.origin);
        self.strangers_of("origin", &plan.origin);
        for (name, origin) in &plan.origins {
            self.servers_of(&format!("origins.{name}"), origin);
            self.strangers_of(&format!("origins.{name}"), origin);
        }
    }

    /// The limit of one network is one of those that all networks share.
    fn strangers_of(&mut self, table: &str, origin: &OriginConfig) {
        let servers = &origin.servers;
        let (all, one) = (servers.max_strangers, servers.max_strangers_per_network);
        if let Some((all, one)) = all.zip(one).filter(|(all, one)| one > all) {
            let text = format!("has no effect: {one} is more than max_strangers, {all}");
            self.problem(&format!("{table}.max_strangers_per_network"), text);
        }
    }

    fn servers_of(&mut self, table: &str, origin: &OriginConfig) {
        let at = |key: &str| format!("{table}.{key}");
        let servers = &origin.servers;
        if self.unread(&at("urls")) || self.unread(&at("url")) {
            return;
        }
        if self.places.said(&at("url"))
            && servers.urls.first().is_some_and(|first| *first != origin.url)
        {
            self.problem(&at("url"), "differs from the first of urls; remove one of the two keys");
        }
        for (index, url) in servers.urls.iter().enumerate() {
            if servers.urls[..index].contains(url) {
                self.problem(&at("urls"), format!("{}:{} is listed twice", url.host, url.port));
            }
        }
        self.leads_elsewhere(table, origin);
        if servers.urls.len() > SERVERS_MAX {
            let text = format!("found {}; expected at most {SERVERS_MAX}", servers.urls.len());
            self.problem(&at("urls"), text);
        }
        let (weights, servers) = (servers.weights.len(), origin.urls().len());
        if weights != 0 && weights != servers {
            self.problem(&at("weights"), format!("found {weights} weights for {servers} servers"));
        }
    }

    /// Checks that no server of an origin is a listener of this proxy: its requests would go round.
    fn leads_elsewhere(&mut self, table: &str, origin: &OriginConfig) {
        let plan = self.plan;
        if self.unread.iter().any(|setting| setting.starts_with("listen")) {
            return;
        }
        let listen = plan.listen.iter().map(|one| one.address.clone());
        let own: Vec<_> = listen.chain(plan.admin.address.map(Address::Tcp)).collect();
        let key = if origin.servers.urls.is_empty() { "url" } else { "urls" };
        for url in origin.urls() {
            let Some(address) = leads_to(url, &own) else { continue };
            let text =
                format!("{url} is {address}, where Anteroom listens; write the address of the app");
            self.problem(&format!("{table}.{key}"), text);
        }
    }

    pub(super) fn knows_sessions(&self, route: Option<&Route>) -> bool {
        let named = route.and_then(|route| route.origin.as_deref());
        let others = self.plan.origins.iter().map(|(name, origin)| (Some(name.as_str()), origin));
        let mut origins = std::iter::once((None, &self.plan.origin)).chain(others);
        origins.all(|(name, origin)| name != named || origin.sessions)
    }

    pub(super) fn unread_rows(&self) -> bool {
        self.unread.iter().any(|setting| setting.starts_with("rows"))
    }
}
