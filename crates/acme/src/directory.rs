//! An authority's directory, as far as it says what can be ordered.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::http::Request;
use instant_acme::{BodyWrapper, HttpClient as _};
use rustls::ClientConfig;
use serde::Deserialize;

use crate::client::CaClient;

/// What an authority offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorityOffer {
    /// The names of its kinds of certificates.
    pub profiles: Vec<String>,
    /// Whether an account needs a key from elsewhere (RFC 8555 §7.3.4).
    pub needs_external_account: bool,
    /// Whether it suggests when certificates are renewed (RFC 9773).
    pub suggests_renewals: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Directory {
    /// Without it, this is no directory.
    #[serde(rename = "newOrder")]
    _new_order: String,
    renewal_info: Option<String>,
    #[serde(default)]
    meta: DirectoryMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DirectoryMeta {
    profiles: BTreeMap<String, String>,
    external_account_required: bool,
}

/// Asks the authority at `url` what it offers.
///
/// # Errors
/// In words, if it does not answer, or not with a directory.
pub async fn authority_offer(url: &str, tls: Arc<ClientConfig>) -> Result<AuthorityOffer, String> {
    let request = Request::builder().uri(url).body(BodyWrapper::default());
    let request = request.map_err(|error| error.to_string())?;
    let answer = CaClient::new(tls).request(request).await;
    let mut answer = answer.map_err(|error| error.to_string())?;
    if !answer.parts.status.is_success() {
        return Err(format!("the answer is {}", answer.parts.status));
    }
    let body = answer.body.into_bytes().await.map_err(|error| error.to_string())?;
    offer_in(&body)
}

fn offer_in(body: &[u8]) -> Result<AuthorityOffer, String> {
    let read = serde_json::from_slice::<Directory>(body);
    let directory = read.map_err(|error| format!("the answer is no directory: {error}"))?;
    Ok(AuthorityOffer {
        profiles: directory.meta.profiles.into_keys().collect(),
        needs_external_account: directory.meta.external_account_required,
        suggests_renewals: directory.renewal_info.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_says_what_can_be_ordered() {
        let plain = offer_in(br#"{"newOrder":"https://a/o","newNonce":"https://a/n"}"#);
        assert_eq!(plain, Ok(AuthorityOffer::default()));
        let full = br#"{"newOrder":"o","renewalInfo":"r",
            "meta":{"profiles":{"short":"s"},"externalAccountRequired":true,"website":"w"}}"#;
        let expected = AuthorityOffer {
            profiles: vec!["short".to_owned()],
            needs_external_account: true,
            suggests_renewals: true,
        };
        assert_eq!(offer_in(full), Ok(expected));
        assert!(offer_in(b"<html>").unwrap_err().contains("no directory"));
        assert!(offer_in(b"{}").is_err());
    }
}
