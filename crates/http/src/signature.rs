//! Signature fields: they prove that a request or an event comes from this proxy.
//!
//! Which request is signed, and with which key, is decided elsewhere.

use ::http::{HeaderName, HeaderValue};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::ident::hex;

/// `anteroom-signature`, the signature of an event sent to a webhook.
pub static OF_EVENT: HeaderName = HeaderName::from_static("anteroom-signature");

/// `x-anteroom-signature`, the signature of a request sent to the origin.
pub static SIGNATURE: HeaderName = HeaderName::from_static("x-anteroom-signature");

/// `t=<Unix time>,v1=<HMAC-SHA256 over user, method, target and time, a line each>`.
#[must_use]
pub fn value(
    secret: &[u8],
    user: &str,
    method: &str,
    target: &str,
    now: u64,
) -> Option<HeaderValue> {
    sign(secret, now, &[format!("{user}\n{method}\n{target}\n{now}").as_bytes()])
}

/// `t=<Unix time>,v1=<HMAC-SHA256 over the time, a full stop, and the body>`, with one `v1` per key, in the
/// order of the keys. A receiver that knows any of the keys can verify it. `None` without a key.
#[must_use]
pub fn of_body(keys: &[impl AsRef<[u8]>], body: &[u8], now: u64) -> Option<HeaderValue> {
    let time = format!("{now}.");
    let tags = keys.iter().map(|key| tag(key.as_ref(), &[time.as_bytes(), body]));
    let tags: Vec<String> = tags.collect::<Option<_>>()?;
    if tags.is_empty() {
        return None;
    }
    HeaderValue::try_from(format!("t={now},v1={}", tags.join(",v1="))).ok()
}

fn sign(secret: &[u8], now: u64, parts: &[&[u8]]) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("t={now},v1={}", tag(secret, parts)?)).ok()
}

/// The HMAC-SHA256 of these parts, in hex.
fn tag(secret: &[u8], parts: &[&[u8]]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    for part in parts {
        mac.update(part);
    }
    Some(hex(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected value from `printf '1790000000.{"a":1}' | openssl dgst -sha256 -hmac key`
    #[test]
    fn a_body_is_signed_with_its_time() {
        let body = br#"{"a":1}"#;
        let signed = of_body(&["key"], body, 1_790_000_000).unwrap();
        assert_eq!(
            signed,
            "t=1790000000,v1=7a4d26944722100249410c8c7f2e76c3cc6e9735fcc98b39e44a122da5490ffc"
        );
        let by_both = of_body(&["other", "key"], body, 1_790_000_000).unwrap();
        let by_other = of_body(&["other"], body, 1_790_000_000).unwrap();
        let (_, of_key) = signed.to_str().unwrap().split_once(',').unwrap();
        assert_eq!(by_both, format!("{},{of_key}", by_other.to_str().unwrap()));
        assert_eq!(of_body(&[] as &[&str], body, 1_790_000_000), None);
    }
}
