//! The authority that certificates are ordered from, and where the names lead.

use std::net::IpAddr;

use anteroom_acme::{AuthorityOffer, authority_offer};
use anteroom_config::{AcmeChallenge, Plan};
use tokio::time::timeout;

use super::{ConnectFinding, ConnectResult, Findings, TIMEOUT, causes, failed, fine, warning};
use crate::app::acme;

/// One for the authority, and one for each name that it has to reach.
pub(super) async fn findings(plan: &Plan) -> Vec<ConnectFinding> {
    let mut findings = Findings::about("authority");
    let tls = match acme::authority_tls(plan) {
        Ok(Some(tls)) => tls,
        Ok(None) => return Vec::new(),
        Err(error) => {
            findings.add(&plan.acme.directory, failed(causes(&error)));
            return findings.found;
        }
    };
    let offer = timeout(TIMEOUT, authority_offer(&plan.acme.directory, tls)).await;
    let offer = offer.unwrap_or_else(|_elapsed| Err("it did not answer in time".to_owned()));
    findings.add(&plan.acme.directory, judged(offer, plan.acme.profile.as_deref()));
    let names = plan.certificate_names().wanted;
    for wanted in names.iter().filter(|wanted| wanted.challenge != AcmeChallenge::Dns01) {
        findings.add(&wanted.name, place_of(&wanted.name).await);
    }
    findings.found
}

fn judged(offer: Result<AuthorityOffer, String>, profile: Option<&str>) -> (ConnectResult, String) {
    let offer = match offer {
        Ok(offer) => offer,
        Err(error) => return failed(error),
    };
    if offer.needs_external_account {
        return failed("it wants accounts with a key from elsewhere, which is not supported");
    }
    if let Some(profile) = profile
        && !offer.profiles.iter().any(|known| known == profile)
    {
        if offer.profiles.is_empty() {
            return failed("it has no profiles; leave out [acme] profile");
        }
        let known = offer.profiles.join(", ");
        return failed(format!("it has no profile {profile:?}; it has: {known}"));
    }
    let renewals = if offer.suggests_renewals { "suggests" } else { "does not suggest" };
    fine(format!("answers, and {renewals} when to renew"))
}

/// Where a name leads, as this machine sees it. The authority may see it otherwise.
async fn place_of(name: &str) -> (ConnectResult, String) {
    let found = match timeout(TIMEOUT, tokio::net::lookup_host((name, 443))).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return warning(format!("the name cannot be looked up here: {error}")),
        Err(_) => return warning("the name was not looked up in time"),
    };
    let places: Vec<String> =
        found.map(|place| place.ip()).map(|ip: IpAddr| ip.to_string()).collect();
    fine(format!("the name leads to {}", places.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_cannot_issue_what_is_wanted_is_told() {
        let offer =
            AuthorityOffer { profiles: vec!["short".to_owned()], ..AuthorityOffer::default() };
        let result = |offer: &AuthorityOffer, profile| judged(Ok(offer.clone()), profile).0;
        assert_eq!(result(&offer, None), ConnectResult::Fine);
        assert_eq!(result(&offer, Some("short")), ConnectResult::Fine);
        assert_eq!(result(&offer, Some("long")), ConnectResult::Failed);
        let (result_without, text) = judged(Ok(AuthorityOffer::default()), Some("long"));
        assert_eq!(result_without, ConnectResult::Failed);
        assert!(text.starts_with("it has no profiles"), "{text}");
        let closed = AuthorityOffer { needs_external_account: true, ..offer };
        assert_eq!(result(&closed, None), ConnectResult::Failed);
        assert_eq!(judged(Err("why".to_owned()), None).0, ConnectResult::Failed);
    }
}
