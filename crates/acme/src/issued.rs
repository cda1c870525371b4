//! Certificates and keys that are made here, and what is known of one that is in use.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use anteroom_config::certificate::Certificate;
use anteroom_http::ident::hex;
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::parse_x509_certificate;

/// The protocol by which an authority asks for a tls-alpn-01 challenge (RFC 8737 §4).
pub const ALPN_PROTOCOL: &[u8] = b"acme-tls/1";

/// What is known of a certificate in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldCertificate {
    /// The Unix times from and until which it is valid.
    pub(crate) valid: RangeInclusive<i64>,
    /// Whether it was made here, for the time until the first order is done.
    pub(crate) is_self_signed: bool,
    /// The SHA-256 of the certificate, in hex.
    pub(crate) digest: String,
    /// The name of the authority.
    pub(crate) issuer: String,
    /// The certificate itself.
    pub(crate) der: CertificateDer<'static>,
}

impl HeldCertificate {
    /// What is known of a certificate that was read; `None`: it has no leaf that can be parsed.
    pub(crate) fn of(certificate: &Certificate) -> Option<Self> {
        let der = certificate.keyed.cert.first()?.clone();
        let (is_self_signed, issuer) = {
            let (_, parsed) = parse_x509_certificate(&der).ok()?;
            let is_self_signed = parsed.issuer().as_raw() == parsed.subject().as_raw();
            (is_self_signed, parsed.issuer().to_string())
        };
        Some(Self {
            valid: certificate.not_before..=certificate.not_after,
            is_self_signed,
            digest: hex(digest(&SHA256, &der).as_ref()),
            issuer,
            der,
        })
    }
}

/// Whether a certificate was made here, for the time until the first order is done.
#[must_use]
pub fn is_self_signed(certificate: &Certificate) -> bool {
    HeldCertificate::of(certificate).is_some_and(|held| held.is_self_signed)
}

/// Whether a certificate is for `name`, which may begin with `*.`.
pub(crate) fn covers(certificate: &Certificate, name: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(parent) => certificate.names.below.iter().any(|known| known == parent),
        None => certificate.names.exact.iter().any(|known| known == name),
    }
}

/// A key for a certificate, in PEM.
pub(crate) fn new_key() -> Result<String, rcgen::Error> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// The request (CSR) that a certificate for `name` is issued by, in DER. `key` is in PEM.
pub(crate) fn signing_request(key: &str, name: &str) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&KeyPair::from_pem(key)?)?;
    Ok(request.der().to_vec())
}

/// A self-signed certificate for `name` with its key, in PEM. It counts as older than any other, so that it is shown
/// only where there is no other.
pub(crate) fn self_signed(name: &str) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Anteroom, until a certificate is issued");
    let key = KeyPair::generate()?;
    Ok(params.self_signed(&key)?.pem() + &key.serialize_pem())
}

/// The certificate that answers a tls-alpn-01 challenge for `name` (RFC 8737 §3). `answer` is the key authorization.
///
/// # Errors
/// If `name` is no host name, or the system has no random numbers.
pub fn challenge_certificate(name: &str, answer: &str) -> Result<CertifiedKey, rustls::Error> {
    let refused = |error: rcgen::Error| rustls::Error::General(error.to_string());
    if name.parse::<IpAddr>().is_ok() {
        return Err(rustls::Error::General("an address has no such challenge".to_owned()));
    }
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(refused)?;
    let sum = digest(&SHA256, answer.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(sum.as_ref())];
    let key = KeyPair::generate().map_err(refused)?;
    let certificate = params.self_signed(&key).map_err(refused)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = anteroom_tls::provider().key_provider.load_private_key(key)?;
    // Not `from_der`: it looks whether the key fits, and refuses a critical extension that it does not know.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_by_a_critical_extension_with_the_sum_of_the_answer() {
        let keyed = challenge_certificate("a.net", "token.thumb").unwrap();
        let (_, parsed) = parse_x509_certificate(&keyed.cert[0]).unwrap();
        let found =
            parsed.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let found = found.unwrap();
        assert!(found.critical);
        let expected = [&[4, 32][..], digest(&SHA256, b"token.thumb").as_ref()].concat();
        assert_eq!(found.value, expected);
        assert!(challenge_certificate("192.0.2.1", "").is_err());
    }

    #[test]
    fn a_request_is_made_with_a_saved_key() {
        let key = new_key().unwrap();
        for name in ["a.net", "*.a.net"] {
            assert!(!signing_request(&key, name).unwrap().is_empty());
        }
        assert!(signing_request("no key", "a.net").is_err());
    }
}
