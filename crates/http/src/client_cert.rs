//! Passes a client certificate to the origin in fields: the certificate itself (RFC 9440), its subject and
//! its fingerprint.
//!
//! The caller has verified the certificate.

use ::http::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::ident::hex;

/// `Client-Cert` (RFC 9440 §2.2).
pub static CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
/// `X-Anteroom-Client-Cert-Subject`
pub static SUBJECT: HeaderName = HeaderName::from_static("x-anteroom-client-cert-subject");
/// `X-Anteroom-Client-Cert-Fingerprint`
pub static FINGERPRINT: HeaderName = HeaderName::from_static("x-anteroom-client-cert-fingerprint");

/// The longest subject that is sent, in bytes. Longer ones would exceed the header limits of most origins.
const SUBJECT_MAX: usize = 4 * 1024;

/// The field values that describe a client certificate to the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, as a byte sequence (RFC 9651).
    whole: HeaderValue,
    /// The subject (RFC 4514); `None` if the certificate has none.
    subject: Option<HeaderValue>,
    /// SHA-256 of the certificate, in lower-case hex.
    fingerprint: HeaderValue,
}

impl ClientCertificate {
    /// Reads a DER-encoded certificate.
    #[must_use]
    pub fn new(der: &[u8]) -> Self {
        let digits = hex(&Sha256::digest(der));
        let subject = parse_x509_certificate(der).ok().map(|(_, own)| subject(own.subject()));
        let subject = subject.filter(|text| (1..=SUBJECT_MAX).contains(&text.len()));
        Self {
            whole: value(format!(":{}:", STANDARD.encode(der))),
            subject: subject.map(value),
            fingerprint: value(digits),
        }
    }

    /// The fields for the origin, as names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&'static HeaderName, &HeaderValue)> {
        let subject = self.subject.as_ref().map(|subject| (&SUBJECT, subject));
        [(&CLIENT_CERT, &self.whole), (&FINGERPRINT, &self.fingerprint)].into_iter().chain(subject)
    }
}

/// A distinguished name in the form of RFC 4514: the last part first, with values escaped so that they cannot
/// pass for another part.
fn subject(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = name
        .iter_rdn()
        .map(|part| part.iter().map(attribute).collect::<Vec<_>>().join("+"))
        .collect();
    parts.reverse();
    parts.join(",")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let number = attribute.attr_type().to_id_string();
    let kind = match number.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.25" => "DC",
        "0.9.2342.19200300.100.1.1" => "UID",
        // RFC 4514 defines no short name for it; this is the common one.
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => &number,
    };
    let value = match attribute.as_str() {
        Ok(text) => escaped(text),
        Err(_) => format!("#{}", hex(attribute.as_slice())),
    };
    format!("{kind}={value}")
}

/// Escapes a value by RFC 4514 §2.4. Bytes other than visible ASCII are written in hex, so that the value
/// fits into a field.
fn escaped(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let last = text.len().saturating_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' | b'=' => {
                written.extend(['\\', char::from(byte)]);
            }
            b'#' if at == 0 => written.push_str("\\#"),
            b' ' if at == 0 || at == last => written.push_str("\\ "),
            b' '..=b'~' => written.push(char::from(byte)),
            _ => {
                written.push('\\');
                written.push_str(&hex(&[byte]).to_ascii_uppercase());
            }
        }
    }
    written
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("base64, hex digits and escaped text are visible ASCII")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(parts: &[(DnType, &str)]) -> ClientCertificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in parts {
            params.distinguished_name.push(kind.clone(), *text);
        }
        let key = KeyPair::generate().unwrap();
        ClientCertificate::new(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn a_subject_is_written_so_that_no_value_passes_for_a_part() {
        let certificate = certificate(&[
            (DnType::OrganizationName, "Shop, OU=admin"),
            (DnType::CommonName, " #J\u{e4}ne+\u{1}\\ "),
        ]);
        let subject = certificate.subject.unwrap();
        let expected = r"CN=\ #J\C3\A4ne\+\01\\\ ,O=Shop\, OU\=admin";
        assert_eq!(subject.to_str().unwrap(), expected);
    }

    #[test]
    fn a_certificate_without_a_subject_is_told_by_its_print() {
        let certificate = certificate(&[]);
        let names: Vec<&str> = certificate.fields().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["client-cert", "x-anteroom-client-cert-fingerprint"]);
        assert_eq!(certificate.fingerprint.len(), 64);
        let whole = certificate.whole.to_str().unwrap();
        assert!(whole.starts_with(':') && whole.ends_with(':') && whole.len() > 100);
    }

    #[test]
    fn an_invalid_certificate_is_forwarded_without_a_subject() {
        let certificate = ClientCertificate::new(b"junk");
        assert_eq!(certificate.subject, None);
        assert_eq!(certificate.whole, ":anVuaw==:");
    }
}
