//! Checks of `[acme]`, and of the names that certificates are ordered for.

use super::ConfigCheck;
use crate::plan::{AcmeChallenge, AcmeConfig, CertificateNames, NameRefusal, StoreUrl, TlsConfig};

/// The most names: each has a certificate of its own, and authorities limit how many are ordered in a week.
const NAMES_MAX: usize = 100;
/// The most names that one message has.
const SHOWN_MAX: usize = 3;
/// The fewest bytes of the secret, which seals private keys.
const SECRET_MIN: usize = 32;

impl ConfigCheck<'_> {
    pub(super) fn acme(&mut self) {
        let plan = self.plan;
        let mut settings = Vec::new();
        for (index, listen) in plan.listen.iter().enumerate() {
            let setting = format!("listen[{index}].tls.cert");
            if listen.tls.is_auto() {
                self.own_key(index, &listen.tls);
                settings.push(setting);
            } else if listen.tls.cert.iter().any(|one| one == TlsConfig::AUTO) {
                let text = "\"auto\" stands alone: use another [[listen]] for certificate files";
                self.problem(&setting, text);
            }
        }
        let Some(setting) = settings.first() else { return self.acme_without_listener() };
        self.names(setting, &plan.certificate_names());
        self.fleet_secret();
        let by_dns = plan.acme.challenge == Some(AcmeChallenge::Dns01);
        if by_dns && plan.acme.dns_hook.is_none() && !self.unread("acme.dns_hook") {
            let text = "\"dns-01\" needs dns_hook, the program that sets records";
            self.problem("acme.challenge", text);
        }
    }

    fn own_key(&mut self, index: usize, tls: &TlsConfig) {
        if tls.key.is_some() {
            let text =
                "belongs to certificate files; with \"auto\" the proxy makes its keys itself";
            self.problem(&format!("listen[{index}].tls.key"), text);
        }
        let names = self.plan.certificate_names().wanted;
        let is_for = |name: &str, host: &str| match name.strip_prefix("*.") {
            Some(parent) => host.split_once('.').is_some_and(|(_, above)| above == parent),
            None => host == name,
        };
        if let Some(default) = &tls.default
            && !names.iter().any(|wanted| is_for(&wanted.name, default))
        {
            let text =
                format!("no certificate is ordered for {default}; expected one of the names");
            self.problem(&format!("listen[{index}].tls.default"), text);
        }
    }

    fn acme_without_listener(&mut self) {
        let acme = &self.plan.acme;
        let usual = AcmeConfig { folder: acme.folder.clone(), ..AcmeConfig::default() };
        if *acme != usual {
            self.warning("acme", "has no effect: no [[listen]] has tls = \"auto\"");
        }
    }

    fn names(&mut self, setting: &str, names: &CertificateNames) {
        let is_unread =
            ["origin.hosts", "acme.hosts", "acme.ca", "acme.dns_hook", "acme.challenge"]
                .iter()
                .any(|key| self.unread(key));
        if is_unread {
            return;
        }
        let (unreachable, others): (Vec<_>, Vec<_>) =
            names.refused.iter().partition(|(_, why)| *why == NameRefusal::Unreachable);
        let mut texts: Vec<String> = others
            .iter()
            .map(|(name, why)| format!("no certificate can be had for {name}: it {why}"))
            .collect();
        if !unreachable.is_empty() {
            let unreachable: Vec<&str> =
                unreachable.iter().map(|(name, _)| name.as_str()).collect();
            texts.push(what_reaches(&unreachable));
        }
        if names.wanted.is_empty() && texts.is_empty() {
            let text = "there is no name to order a certificate for: set [origin] hosts, such as \
                        hosts = [\"example.com\"]";
            self.problem(setting, text);
        }
        for text in texts {
            // Without any name the listener has nothing to show.
            match names.wanted.is_empty() {
                true => self.problem(setting, text),
                false => self.grave_warning(setting, text),
            }
        }
        if names.wanted.len() > NAMES_MAX {
            let count = names.wanted.len();
            let text = format!("{count} names need a certificate; expected at most {NAMES_MAX}");
            self.problem(setting, text);
        }
    }

    fn fleet_secret(&mut self) {
        let is_shared = matches!(self.plan.store.url, StoreUrl::Redis(_));
        match &self.plan.acme.secret {
            Some(secret) if secret.expose().len() < SECRET_MIN => {
                let text = format!("expected at least {SECRET_MIN} bytes: it seals private keys");
                self.problem("acme.secret", text);
            }
            Some(_) if !is_shared => {
                self.warning("acme.secret", "has no effect: only proxies on one Redis share keys");
            }
            None if is_shared && !self.unread("acme.secret") => {
                let text = "without secret each proxy on this Redis orders certificates of its own, and a \
                            challenge that reaches another proxy fails";
                self.warning("acme", text);
            }
            Some(_) | None => {}
        }
    }
}

/// What lets the authority reach this proxy, for names that it cannot check now.
fn what_reaches(names: &[&str]) -> String {
    let shown = names[..names.len().min(SHOWN_MAX)].join(", ");
    let more = match names.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "a certificate for {shown}{more} needs a [[listen]] without tls on port 80, or this one on port 443: add \
         [[listen]] with address = \":80\"; where a port mapping or another proxy forwards port 80 to this one, \
         write challenge = \"http-01\" in [acme]; where it forwards port 443 and leaves TLS to this one, \
         \"tls-alpn-01\"; where neither port leads here, \"dns-01\" with dns_hook"
    )
}
