//! The keys of `[[listen]]` and `[client]`.

use std::time::Duration;

use super::network::{networks, peers};
use super::path::{CertificatePattern, PathText, path};
use super::shared::{TTL, named, paths};
use crate::credential::SecretRefs;
use crate::form::{Either, Flag, List, Optional, Span, Text, Words};
use crate::plan::{ClientCerts, ClientConfig, Listen, TlsConfig, TlsVersion};
use crate::text;
use crate::walk::Walk;

pub(super) fn listen(at: &mut impl Walk, listen: &mut Listen) {
    let address = Text { parse: text::listen_address, show: ToString::to_string };
    let address = PathText { prefix: "unix:", word: None, form: address };
    let hint = "write address = \"127.0.0.1:8080\"";
    at.required("address", &mut listen.address, &address, hint);
    let mode = Text { parse: text::mode, show: |mode| format!("{mode:04o}") };
    at.key("mode", &mut listen.mode, &mode);
    at.section("proxy_protocol", |at| at.key("from", &mut listen.balancers, &peers()));
    at.key("h2", &mut listen.h2, &Flag);
    let redirect = Text { parse: text::https, show: text::show_https };
    at.key("redirect", &mut listen.redirect, &Either("off", redirect));
    at.key("redirect_except", &mut listen.redirect_except, &List::of(paths()));
    at.section("tls", |at| tls(at, &mut listen.tls));
}

pub(super) fn tls(at: &mut impl Walk, tls: &mut TlsConfig) {
    at.key("cert", &mut tls.cert, &List::of(CertificatePattern));
    at.key("key", &mut tls.key, &Optional(path()));
    at.key("default", &mut tls.default, &Optional(named(text::host)));
    let certs = [
        ("off", ClientCerts::Off),
        ("optional", ClientCerts::Optional),
        ("required", ClientCerts::Required),
    ];
    at.key("client_certs", &mut tls.client_certs, &Words(&certs));
    at.key("client_ca", &mut tls.client_ca, &Optional(path()));
    let versions = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
    at.key("min_version", &mut tls.min_version, &Words(&versions));
    at.key("ticket_secret", &mut tls.ticket_secret, &SecretRefs);
    let second = Duration::from_secs(1);
    at.key("hsts", &mut tls.hsts, &Either("off", Span { min: second, max: TTL.max * 10 }));
    at.key("hsts_subdomains", &mut tls.hsts_subdomains, &Flag);
}

pub(super) fn client(at: &mut impl Walk, client: &mut ClientConfig) {
    at.key("allow", &mut client.allow, &networks());
    at.key("deny", &mut client.deny, &networks());
    at.key("trusted_proxies", &mut client.trusted_proxies, &peers());
    let words = Words(&[("drop", false), ("pass", true)]);
    let field = Text { parse: text::send_header, show: ToString::to_string };
    at.key("request_id", &mut client.request_id, &Either("off", field));
    at.key("underscore_headers", &mut client.pass_underscore_headers, &words);
}
