//! The keys of `[acme]`.

use super::path::path;
use super::shared::{hosts, named};
use crate::credential::SecretRef;
use crate::form::{Either, List, Optional, Words};
use crate::pem::PemFile;
use crate::plan::{AcmeChallenge, AcmeConfig};
use crate::text;
use crate::walk::Walk;

/// The words of `challenge`.
const CHALLENGES: [(&str, AcmeChallenge); 3] = [
    ("http-01", AcmeChallenge::Http01),
    ("tls-alpn-01", AcmeChallenge::TlsAlpn01),
    ("dns-01", AcmeChallenge::Dns01),
];

pub(super) fn acme(at: &mut impl Walk, acme: &mut AcmeConfig) {
    at.key("email", &mut acme.email, &Optional(named(text::acme_email)));
    at.key("directory", &mut acme.directory, &named(text::acme_directory));
    at.key("ca", &mut acme.ca, &Either("system", PemFile::Certificates));
    at.key("profile", &mut acme.profile, &Optional(named(text::acme_profile)));
    at.key("hosts", &mut acme.hosts, &List::of(hosts()));
    at.key("challenge", &mut acme.challenge, &Either("auto", Words(&CHALLENGES)));
    at.key("dns_hook", &mut acme.dns_hook, &Optional(path()));
    at.key("secret", &mut acme.secret, &Optional(SecretRef));
    at.key("folder", &mut acme.folder, &path());
}
