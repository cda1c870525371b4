//! The id of a request, by which its lines in several logs are found.

use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue};

use super::connection::client::Client;
use super::settings::ProxySettings;

/// The longest id that a trusted proxy may choose, in bytes.
const LONGEST: usize = 128;

/// The id of a request, and the field that carries it.
#[derive(Clone)]
pub(super) struct RequestId {
    pub(super) name: HeaderName,
    pub(super) id: HeaderValue,
}

impl RequestId {
    /// Gives the request an id, unless ids are off. An id from any client but a trusted proxy is replaced.
    pub(super) fn give(
        settings: &ProxySettings,
        client: &Client,
        head: &mut Parts,
    ) -> Option<Self> {
        let name = settings.request_id.clone()?;
        let is_trusted = client.peer.is_among(&settings.trusted_proxies);
        let chosen = head.headers.get(&name).filter(|id| is_trusted && is_usable(id)).cloned();
        let id = match chosen {
            Some(id) => id,
            // Hex digits are a field value.
            None => HeaderValue::try_from(format!("{:032x}", fastrand::u128(..))).ok()?,
        };
        head.headers.insert(&name, id.clone());
        Some(Self { name, id })
    }
}

/// Whether a request that fills a shared page may carry this id. What other clients get must not depend on a text
/// that a client has chosen, and 32 hex digits say nothing.
pub(super) fn may_be_shared(id: &HeaderValue) -> bool {
    id.len() == 32 && id.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

fn is_usable(id: &HeaderValue) -> bool {
    let id = id.as_bytes();
    (1..=LONGEST).contains(&id.len())
        && id.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.:+/=@".contains(b))
}
