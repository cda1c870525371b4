//! `[acme]`: certificates that the proxy orders itself, and the names that they are for.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anteroom_http::host_pattern::HostPattern;

use super::store::DATA;
use super::{Address, Listen, Plan};
use crate::secret::Secret;

/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Names that no public authority issues certificates for (RFC 6761, RFC 6762, RFC 7686, RFC 8375, and ICANN's
/// `internal`): these, and all below them.
const PRIVATE: [&str; 9] = [
    "example",
    "home.arpa",
    "internal",
    "invalid",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "test",
];

/// `[acme]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// `email`: where the authority reaches the operator; `None`: nowhere.
    pub email: Option<String>,
    /// `directory`, that of Let's Encrypt: the URL of the authority.
    pub directory: String,
    /// `ca`: the file of the authorities that sign the directory's own certificate; `None` (`"system"`): those that
    /// the system trusts.
    pub ca: Option<PathBuf>,
    /// `profile`: the kind of certificate that is ordered; `None`: the authority's default.
    pub profile: Option<String>,
    /// `hosts`: the names; empty: those of `[origin] hosts` and of routes.
    pub hosts: Vec<HostPattern>,
    /// `challenge`: how names are proved; `None` (`"auto"`): by the listeners.
    pub challenge: Option<AcmeChallenge>,
    /// `dns_hook`: the program that sets records for dns-01.
    pub dns_hook: Option<PathBuf>,
    /// `secret`: what proxies on one store seal shared keys with.
    pub secret: Option<Secret>,
    /// `folder`: where keys and certificates are. Default: `acme` in the folder of the data.
    pub folder: PathBuf,
}

impl Default for AcmeConfig {
    fn default() -> Self {
        Self {
            email: None,
            directory: LETS_ENCRYPT.to_owned(),
            ca: None,
            profile: None,
            hosts: Vec::new(),
            challenge: None,
            dns_hook: None,
            secret: None,
            folder: Self::folder_in(Path::new(DATA)),
        }
    }
}

impl AcmeConfig {
    /// The folder in a data folder.
    pub(crate) fn folder_in(data: &Path) -> PathBuf {
        data.join("acme")
    }
}

/// How it is proved that a name is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// `"http-01"`: by an answer on port 80 (RFC 8555 §8.3).
    Http01,
    /// `"tls-alpn-01"`: by a certificate on port 443 (RFC 8737).
    TlsAlpn01,
    /// `"dns-01"`: by a record of the zone (RFC 8555 §8.4).
    Dns01,
}

impl AcmeChallenge {
    /// The name in ACME.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Dns01 => "dns-01",
        }
    }
}

/// A name that a certificate is ordered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedName {
    /// The name in lower case; `*.` stands for one label.
    pub name: String,
    /// How it is proved.
    pub challenge: AcmeChallenge,
}

/// Why no certificate can be had for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRefusal {
    /// It is an address.
    Address,
    /// It is not a name of the public DNS.
    Private,
    /// It has a sign that names in certificates have not.
    Underscore,
    /// It is a wildcard, and nothing sets records.
    Wildcard,
    /// Requests for it are refused, and so would be that of the authority.
    NotServed,
    /// The authority reaches no listener.
    Unreachable,
}

impl fmt::Display for NameRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "is an address, and certificates are ordered for names only",
            Self::Private => {
                "is no public name; write tls.cert, the files of a certificate, or set [acme] ca, for an authority of \
                 your own"
            },
            Self::Underscore => "has an underscore, which a name in a certificate cannot have",
            Self::Wildcard => "is a wildcard, which is proved by DNS alone: set [acme] dns_hook",
            Self::NotServed => "is not in [origin] hosts, so that the authority would get 421",
            Self::Unreachable => "cannot be proved: the authority reaches no [[listen]]",
        })
    }
}

/// The names of `tls = "auto"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// Those that certificates are ordered for, each once.
    pub wanted: Vec<WantedName>,
    /// Those for which none can be had.
    pub refused: Vec<(String, NameRefusal)>,
}

impl Plan {
    /// The names that certificates are ordered for, and those for which none can be had. They follow from the
    /// configuration alone, never from what clients ask for.
    #[must_use]
    pub fn certificate_names(&self) -> CertificateNames {
        let listed: Vec<&HostPattern> = match self.acme.hosts.is_empty() {
            false => self.acme.hosts.iter().collect(),
            true => {
                let of_routes = self.routes.iter().flat_map(|route| &route.hosts);
                self.origin.hosts.iter().chain(of_routes).collect()
            }
        };
        let usual = self.usual_challenge();
        let mut names = CertificateNames::default();
        for host in listed {
            let name = host.name().trim_end_matches('.');
            let is_known = names.wanted.iter().any(|wanted| wanted.name == name)
                || names.refused.iter().any(|(refused, _)| refused == name);
            if is_known {
                continue;
            }
            match self.challenge_of(host, usual) {
                Ok(challenge) => names.wanted.push(WantedName { name: name.to_owned(), challenge }),
                Err(why) => names.refused.push((name.to_owned(), why)),
            }
        }
        names
    }

    /// Whether a listener has `tls = "auto"`.
    #[must_use]
    pub fn orders_certificates(&self) -> bool {
        self.listen.iter().any(|listen| listen.tls.is_auto())
    }

    fn challenge_of(
        &self,
        host: &HostPattern,
        usual: Option<AcmeChallenge>,
    ) -> Result<AcmeChallenge, NameRefusal> {
        let name = host.name();
        if name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok() {
            return Err(NameRefusal::Address);
        }
        if name.contains('_') {
            return Err(NameRefusal::Underscore);
        }
        if self.acme.ca.is_none() && is_private(name) {
            return Err(NameRefusal::Private);
        }
        let served = &self.origin.hosts;
        if !served.is_empty() && !served.iter().any(|one| one.name() == name || one.covers(host)) {
            return Err(NameRefusal::NotServed);
        }
        if host.is_wildcard() || usual == Some(AcmeChallenge::Dns01) {
            // Without a hook no name is proved by DNS, and the check says so of the key itself.
            let is_proved = self.acme.dns_hook.is_some() || !host.is_wildcard();
            return is_proved.then_some(AcmeChallenge::Dns01).ok_or(NameRefusal::Wildcard);
        }
        usual.ok_or(NameRefusal::Unreachable)
    }

    /// How names without a wildcard are proved; `None`: the authority reaches no listener.
    fn usual_challenge(&self) -> Option<AcmeChallenge> {
        if self.acme.challenge.is_some() {
            return self.acme.challenge;
        }
        let is_at = |listen: &Listen, port: u16| match &listen.address {
            Address::Tcp(address) => address.port() == port,
            // What systemd passes is known at the start only.
            Address::Systemd(_) => true,
            Address::Unix(_) => false,
        };
        let has = |fits: &dyn Fn(&Listen) -> bool| self.listen.iter().any(fits);
        if has(&|listen| !listen.is_secured() && is_at(listen, 80)) {
            return Some(AcmeChallenge::Http01);
        }
        has(&|listen| listen.tls.is_auto() && is_at(listen, 443))
            .then_some(AcmeChallenge::TlsAlpn01)
    }
}

/// Whether no public authority issues certificates for a name.
fn is_private(name: &str) -> bool {
    let name = name.trim_start_matches("*.").trim_end_matches('.');
    let is_below = |private: &str| {
        name.strip_suffix(private).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.contains('.') || PRIVATE.iter().copied().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::OriginUrl;

    fn hosts(names: &[&str]) -> Vec<HostPattern> {
        names.iter().map(|name| HostPattern::parse(name).unwrap()).collect()
    }

    /// A plan that serves these names at these addresses: with a certificate of its own on the last.
    fn plan(names: &[&str], addresses: &[&str]) -> Plan {
        let mut plan = Plan::new(OriginUrl::http("app", 80));
        plan.origin.hosts = hosts(names);
        plan.listen = addresses.iter().map(|one| Listen::at(one.parse().unwrap())).collect();
        plan.listen.last_mut().unwrap().tls.cert = vec!["auto".to_owned()];
        plan
    }

    const BOTH: [&str; 2] = ["0.0.0.0:80", "0.0.0.0:443"];

    #[test]
    fn names_are_those_of_hosts_and_routes_and_each_is_ordered_once() {
        let mut plan = plan(&[], &BOTH);
        let route = anteroom_policy::route::Route {
            hosts: hosts(&["b.shop.net", "a.shop.net:8443"]),
            ..Default::default()
        };
        plan.routes = vec![route.clone(), route];
        let names = |plan: &Plan| {
            let names = plan.certificate_names();
            assert!(names.refused.is_empty(), "{names:?}");
            names.wanted.into_iter().map(|wanted| wanted.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&plan), ["b.shop.net", "a.shop.net"]);
        plan.origin.hosts = hosts(&["*.shop.net"]);
        plan.acme.hosts = hosts(&["c.shop.net"]);
        assert_eq!(names(&plan), ["c.shop.net"]);
    }

    #[test]
    fn the_listeners_decide_how_names_are_proved_unless_the_operator_does() {
        let challenge = |plan: &Plan| {
            let names = plan.certificate_names();
            names.wanted.first().map(|wanted| wanted.challenge)
        };
        let name = ["shop.net"];
        for (addresses, expected) in [
            (&BOTH[..], Some(AcmeChallenge::Http01)),
            (&["0.0.0.0:443"][..], Some(AcmeChallenge::TlsAlpn01)),
            (&["0.0.0.0:8080", "0.0.0.0:8443"][..], None),
        ] {
            let mut plan = plan(&name, addresses);
            assert_eq!(challenge(&plan), expected, "{addresses:?}");
            plan.acme.challenge = Some(AcmeChallenge::TlsAlpn01);
            assert_eq!(challenge(&plan), plan.acme.challenge, "{addresses:?}");
        }
    }

    #[test]
    fn a_name_for_which_no_certificate_can_be_had_is_told_with_its_reason() {
        let mut plan = plan(&["*.shop.net", "192.0.2.1", "[::1]", "shop", "a.test"], &BOTH);
        plan.origin.hosts.extend(hosts(&["local", "mylocal.net", "a.internal"]));
        let refused = plan.certificate_names().refused;
        let expected = [
            ("*.shop.net", NameRefusal::Wildcard),
            ("192.0.2.1", NameRefusal::Address),
            ("[::1]", NameRefusal::Address),
            ("shop", NameRefusal::Private),
            ("a.test", NameRefusal::Private),
            ("local", NameRefusal::Private),
            ("a.internal", NameRefusal::Private),
        ];
        assert_eq!(refused, expected.map(|(name, why)| (name.to_owned(), why)));
        plan.acme.hosts = hosts(&["other.net"]);
        let refused = plan.certificate_names().refused;
        assert_eq!(refused, [("other.net".to_owned(), NameRefusal::NotServed)]);
        plan.acme.dns_hook = Some("/hook".into());
        plan.acme.ca = Some("/ca.pem".into());
        plan.acme.hosts = hosts(&["*.shop.net", "a.test"]);
        let names = plan.certificate_names();
        assert!(names.refused.is_empty(), "{names:?}");
        let challenges: Vec<_> = names.wanted.iter().map(|wanted| wanted.challenge).collect();
        assert_eq!(challenges, [AcmeChallenge::Dns01, AcmeChallenge::Http01]);
    }
}
