//! The field that proves to the origin that a request came through us.
//!
//! Which request is signed, and with which key, is decided elsewhere.

use ::http::{HeaderName, HeaderValue};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::ident::hex;

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
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    mac.update(format!("{user}\n{method}\n{target}\n{now}").as_bytes());
    let tag = hex(&mac.finalize().into_bytes());
    HeaderValue::try_from(format!("t={now},v1={tag}")).ok()
}
