//! Contradictions in how visitors are served by https, and what is wrong with the files that it needs.
//!
//! The files are read here as they will be when the proxy starts, so that a problem names its line.

use std::collections::HashMap;
use std::sync::Arc;

use super::check::Check;
use super::plan::{ClientCerts, Listen, Tls};
use crate::certificate::{self, Certificate, Table};
use crate::clock::unix_now;

impl Check<'_> {
    /// Looks at each listener.
    pub(super) fn tls(&mut self) {
        let plan = self.plan;
        for (index, listen) in plan.listen.iter().enumerate() {
            let at = |key: &str| format!("listen[{index}].{key}");
            self.redirect(&at("redirect"), listen);
            if listen.is_secured() {
                self.client_certs(&at, &listen.tls);
                self.hsts(&at, &listen.tls);
                self.certificates(&at, &listen.tls);
            } else {
                self.without_certificate(&at, &listen.tls);
            }
        }
    }

    fn redirect(&mut self, setting: &str, listen: &Listen) {
        if listen.redirect.is_some() && listen.is_secured() {
            self.problem(setting, "is for a listener without tls: here visitors come by https");
        }
    }

    fn without_certificate(&mut self, at: &impl Fn(&str) -> String, tls: &Tls) {
        if *tls == Tls::default() || self.unread(&at("tls.cert")) {
            return;
        }
        if tls.client_certs != ClientCerts::Off || tls.hsts.is_some() {
            self.problem(&at("tls"), "needs cert = \"/etc/anteroom/tls/*.pem\", or where they are");
        } else {
            self.warning(&at("tls"), "does nothing without cert, the files of certificates");
        }
    }

    fn client_certs(&mut self, at: &impl Fn(&str) -> String, tls: &Tls) {
        match (&tls.client_ca, tls.client_certs) {
            (None, ClientCerts::Optional | ClientCerts::Required) => {
                if !self.unread(&at("tls.client_ca")) {
                    let text = "needs client_ca: the authorities that the certificates are from";
                    self.problem(&at("tls.client_certs"), text);
                }
            }
            (Some(_), ClientCerts::Off) if !self.unread(&at("tls.client_certs")) => {
                let text = "needs client_certs = \"optional\" or \"required\": nobody is asked";
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

    fn hsts(&mut self, at: &impl Fn(&str) -> String, tls: &Tls) {
        if tls.hsts_subdomains && tls.hsts.is_none() && !self.unread(&at("tls.hsts")) {
            self.problem(&at("tls.hsts_subdomains"), "needs hsts = \"180d\", or for how long");
        }
    }

    fn certificates(&mut self, at: &impl Fn(&str) -> String, tls: &Tls) {
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
            && !Table::new(&read, None).has(name)
        {
            let text = format!("no certificate is for {name}; expected a name that one is for");
            self.problem(&at("tls.default"), text);
        }
        self.names_twice(&setting, &read);
    }

    /// Two for one name may be meant, an old one and a new one; or one was forgotten.
    fn names_twice(&mut self, setting: &str, read: &[Arc<Certificate>]) {
        let mut known: HashMap<String, &Certificate> = HashMap::new();
        for certificate in read {
            for name in certificate.names.iter() {
                let Some(other) = known.insert(name.clone(), certificate) else { continue };
                let (one, two) = (other.path.display(), certificate.path.display());
                let text =
                    format!("{one} and {two} are both for {name}: the newer valid one is shown");
                self.warning(setting, text);
                // One name for each file is enough to find it.
                break;
            }
        }
    }
}
