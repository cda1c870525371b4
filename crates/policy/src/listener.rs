//! What a listener does with requests of any route.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::HeaderValue;

use anteroom_http::path::PathPattern;

/// The settings that hold for all requests at one listener.
#[derive(Debug, Default)]
pub struct ListenerRules {
    /// The redirect for requests by http.
    pub redirect: Option<Redirect>,
    /// The `Strict-Transport-Security` of responses by https.
    pub hsts: Option<HeaderValue>,
    /// The names for which neither holds yet.
    pub awaited: Arc<AwaitedCertificates>,
}

/// The names whose first certificate is not there yet. A browser that is sent to https would only be warned there, and
/// one that is told to use https only could not go on at all.
#[derive(Debug, Default)]
pub struct AwaitedCertificates {
    /// Whether there are any. PERF: mostly there are none, and no request waits for the lock.
    any: AtomicBool,
    /// The names that certificates are ordered for, in lower case, each with whether the first is not there yet. `*.`
    /// stands for one label.
    names: Mutex<HashMap<String, bool>>,
}

impl AwaitedCertificates {
    /// Replaces the names that certificates are ordered for: each with whether its first one is not there yet.
    pub fn set(&self, names: HashMap<String, bool>) {
        // No code that can panic runs under this lock.
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(names.values().any(|is_awaited| *is_awaited), Ordering::Relaxed);
        *known = names;
    }

    /// Whether the first certificate for a host, in any case and without a port, is not there yet. Where the host has one
    /// of its own, a wildcard's does not matter.
    #[must_use]
    pub fn has(&self, host: &str) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let host = host.to_ascii_lowercase();
        let known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let of_wildcard =
            || host.split_once('.').and_then(|(_, parent)| known.get(&format!("*.{parent}")));
        known.get(&host).or_else(of_wildcard).copied().unwrap_or(false)
    }
}

/// How requests by http are redirected to https.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// The port for https.
    pub port: u16,
    /// The paths that are served by http all the same.
    pub except: Vec<PathPattern>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_awaited_until_its_certificate_is_there() {
        let awaited = AwaitedCertificates::default();
        assert!(!awaited.has("a.net"));
        let set = |names: &[(&str, bool)]| {
            let names = names.iter().map(|(name, is_awaited)| ((*name).to_owned(), *is_awaited));
            awaited.set(names.collect());
        };
        set(&[("a.net", true), ("*.b.net", true), ("own.b.net", false)]);
        assert!(awaited.has("a.net") && awaited.has("A.NET") && awaited.has("x.b.net"));
        assert!(!awaited.has("b.net") && !awaited.has("y.x.b.net") && !awaited.has("c.net"));
        assert!(!awaited.has("own.b.net"), "it has a certificate");
        set(&[("a.net", false)]);
        assert!(!awaited.has("a.net"));
    }
}
