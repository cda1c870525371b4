//! The fields that prove that a request came through us, or from us.
//!
//! Which request is signed, and with which key, is decided elsewhere.

use ::http::{HeaderName, HeaderValue};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::ident::hex;

/// `anteroom-signature`, of what we tell others.
pub static OF_EVENT: HeaderName = HeaderName::from_static("anteroom-signature");

/// `x-anteroom-signature`
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

/// `t=<Unix time>,v1=<HMAC-SHA256 over the time, a full stop, and the body>`.
#[must_use]
pub fn of_body(secret: &[u8], body: &[u8], now: u64) -> Option<HeaderValue> {
    sign(secret, now, &[format!("{now}.").as_bytes(), body])
}

fn sign(secret: &[u8], now: u64, parts: &[&[u8]]) -> Option<HeaderValue> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    for part in parts {
        mac.update(part);
    }
    let tag = hex(&mac.finalize().into_bytes());
    HeaderValue::try_from(format!("t={now},v1={tag}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf '1790000000.{"a":1}' | openssl dgst -sha256 -hmac key`
    #[test]
    fn a_body_is_signed_with_its_time() {
        let signed = of_body(b"key", br#"{"a":1}"#, 1_790_000_000).unwrap();
        assert_eq!(
            signed,
            "t=1790000000,v1=7a4d26944722100249410c8c7f2e76c3cc6e9735fcc98b39e44a122da5490ffc"
        );
    }
}
