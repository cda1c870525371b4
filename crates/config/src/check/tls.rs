//! Contradictions in a listener's TLS settings, and errors in the files that they name.
//!
//! The files are read as they will be at start, so that a problem names its line.

use std::collections::HashMap;
use std::sync::Arc;

use anteroom_http::clock::unix_now;

use super::ConfigCheck;
use crate::certificate;
use crate::certificate::{Certificate, CertificateTable};
use crate::plan::{ClientCerts, Listen, TlsConfig};
use crate::text::HTTPS;

/// The least length of a ticket secret, in bytes. A ticket is a means to try secrets without asking the proxy.
const TICKET_SECRET_MIN: usize = 32;

impl ConfigCheck<'_> {
    /// Checks each listener.
    pub(super) fn tls(&mut self) {
        let plan = self.plan;
        for (index, listen) in plan.listen.iter().enumerate() {
            let at = |key: &str| format!("listen[{index}].{key}");
            self.redirect(&at("redirect"), listen);
            if listen.is_secured() {
                self.client_certs(&at, &listen.tls);
                self.hsts(&at, &listen.tls);
                self.ticket_secret(&at, &listen.tls);
                // Those that are ordered may not be there yet.
                if !listen.tls.cert.iter().any(|one| one == TlsConfig::AUTO) {
                    self.certificates(&at, &listen.tls);
                }
            } else {
                self.without_certificate(&at, &listen.tls);
            }
        }
    }

    fn redirect(&mut self, setting: &str, listen: &Listen) {
        if listen.redirect.is_some() && listen.is_secured() {
            self.problem(setting, "needs a listener without tls: this one serves https");
        }
        // Another port than the usual one says where https is served.
        if listen.redirect == Some(HTTPS) && listen.balancers.is_empty() && self.lacks_https() {
            let text = "leads to port 443, and no [[listen]] has tls: write one, such as { address = \":443\", tls = \
                        \"auto\" }; or, where a proxy in front serves https, name it in [client] trusted_proxies: \
                        otherwise its requests are redirected again and again";
            self.warning(setting, text);
        }
    }

    /// Whether https is served by no listener, and by no proxy in front that is named.
    fn lacks_https(&self) -> bool {
        let has_proxies = !self.plan.client.trusted_proxies.is_empty();
        !has_proxies && !self.plan.listen.iter().any(Listen::is_secured)
    }

    fn without_certificate(&mut self, at: &impl Fn(&str) -> String, tls: &TlsConfig) {
        if *tls == TlsConfig::default() || self.unread(&at("tls.cert")) {
            return;
        }
        // The listener would serve plain http where https is meant.
        let means_https = tls.key.is_some() || tls.hsts.is_some();
        if means_https || tls.client_certs != ClientCerts::Off {
            self.problem(&at("tls"), "needs cert, such as cert = \"/etc/anteroom/tls/*.pem\"");
        } else {
            self.warning(&at("tls"), "has no effect without cert, the certificate files");
        }
    }

    fn client_certs(&mut self, at: &impl Fn(&str) -> String, tls: &TlsConfig) {
        match (&tls.client_ca, tls.client_certs) {
            (None, ClientCerts::Optional | ClientCerts::Required) => {
                if !self.unread(&at("tls.client_ca")) {
                    let text = "needs client_ca, the authorities that issue the certificates";
                    self.problem(&at("tls.client_certs"), text);
                }
            }
            (Some(_), ClientCerts::Off) if !self.unread(&at("tls.client_certs")) => {
                let text = "needs client_certs = \"optional\" or \"required\": otherwise no \
                            certificate is requested";
                self.problem(&at("tls.client_ca"), text);
            }
            (Some(path), _) => {
                if let Err(fault) = certificate::authorities(path) {
                    self.problem(&at("tls.client_ca"), fault.to_string());
                }
            }
            (None, ClientCerts::Off) => {}
        }
    }

    fn hsts(&mut self, at: &impl Fn(&str) -> String, tls: &TlsConfig) {
        if tls.hsts_subdomains && tls.hsts.is_none() && !self.unread(&at("tls.hsts")) {
            self.problem(&at("tls.hsts_subdomains"), "needs hsts, such as hsts = \"180d\"");
        }
    }

    fn ticket_secret(&mut self, at: &impl Fn(&str) -> String, tls: &TlsConfig) {
        let setting = at("tls.ticket_secret");
        let secrets = tls.ticket_secret.as_slice();
        if !secrets.is_empty() && tls.client_certs != ClientCerts::Off {
            let text = "has no effect with client_certs: a ticket says who the client is, and so \
                        it is good at this process alone";
            self.warning(&setting, text);
        }
        if secrets.iter().any(|secret| secret.expose().len() < TICKET_SECRET_MIN) {
            let text = format!(
                "expected at least {TICKET_SECRET_MIN} random characters, as from openssl rand -base64 48"
            );
            self.problem(&setting, text);
        }
        match secrets {
            [new, old] if new.expose() == old.expose() => {
                let text =
                    "lists one secret twice: the second is for the one that the first replaces";
                self.problem(&setting, text);
            }
            [] | [_] | [_, _] => {}
            _ => {
                let text = "lists more than two secrets: expected the new one and the previous one";
                self.problem(&setting, text);
            }
        }
    }

    fn certificates(&mut self, at: &impl Fn(&str) -> String, tls: &TlsConfig) {
        let setting = at("tls.cert");
        let sources = tls.sources();
        let (files, faults) = certificate::find(&sources);
        for fault in faults {
            self.problem(&setting, fault.to_string());
        }
        let now = unix_now() as i64;
        let mut read = Vec::new();
        for file in &files {
            match certificate::read(file, sources.key.as_deref()) {
                Ok(certificate) => {
                    if let Some(fault) = certificate.out_of_time(now) {
                        self.grave_warning(&setting, fault.to_string());
                    }
                    read.push(Arc::new(certificate));
                }
                Err(fault) => self.problem(&setting, fault.to_string()),
            }
        }
        if let Some(name) = &tls.default
            && read.len() == files.len()
            && !CertificateTable::new(&read, None).has(name)
        {
            let text = format!("no certificate covers {name}; expected a name in one of them");
            self.problem(&at("tls.default"), text);
        }
        self.names_twice(&setting, &read);
    }

    /// Two certificates for one name may be intended, an old one and a new one, or one may be forgotten.
    fn names_twice(&mut self, setting: &str, read: &[Arc<Certificate>]) {
        let mut known: HashMap<String, &Certificate> = HashMap::new();
        for certificate in read {
            for name in certificate.names.iter() {
                let Some(other) = known.insert(name.clone(), certificate) else { continue };
                let (one, two) = (other.path.display(), certificate.path.display());
                let text =
                    format!("{one} and {two} both cover {name}; the newer valid one is used");
                self.warning(setting, text);
                // One name per pair of files is enough to find it.
                break;
            }
        }
    }
}
