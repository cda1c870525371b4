//! One order, a step at a time. Each step may be repeated: what it needs was saved before, and the authority keeps the
//! rest.

use std::path::Path;

use anteroom_config::{AcmeChallenge, WantedName};
use anteroom_fault::may_crash;
use anteroom_store::{CertificateStore, LeaseStore};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeStatus,
    ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
};

use crate::answers::{ChallengeAnswers, ChallengeName};
use crate::failure::{FailureKind, StepFailure, refuses_replacing, text_of_problem};
use crate::hook::{self, HookAction};
use crate::issued::{HeldCertificate, signing_request};
use crate::schedule::poll_after;
use crate::share::Share;
use crate::state::OrderRecord;
use crate::time::now;

/// What follows a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The next step, after so many seconds.
    After(i64),
    /// The authority was asked to check the name. The next step, after so many seconds.
    Asked(i64),
    /// The certificate was issued: its chain, in PEM.
    Issued(String),
}

/// What an order needs.
pub(crate) struct OrderContext<'a, S> {
    pub(crate) account: &'a Account,
    pub(crate) wanted: &'a WantedName,
    pub(crate) profile: Option<&'a str>,
    pub(crate) dns_hook: Option<&'a Path>,
    pub(crate) answers: &'a ChallengeAnswers,
    pub(crate) share: Option<&'a Share<S>>,
}

impl<S: CertificateStore + LeaseStore> OrderContext<'_, S> {
    /// Makes the order, and returns its URL. `old` is the certificate that it replaces.
    pub(crate) async fn make(&self, old: Option<&HeldCertificate>) -> Result<String, StepFailure> {
        let identifiers = [Identifier::Dns(self.wanted.name.clone())];
        let order = || {
            let order = NewOrder::new(&identifiers);
            match self.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        let replaced = old.and_then(|old| CertificateIdentifier::try_from(&old.der).ok());
        if let Some(replaced) = replaced {
            match self.account.new_order(&order().replaces(replaced)).await {
                Ok(made) => return Ok(made.url().to_owned()),
                // It was replaced already, by an order that is lost: a second one must not fail for ever.
                Err(error) if refuses_replacing(&error) => {
                    tracing::debug!(name = self.wanted.name, %error, "an order does not replace");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.account.new_order(&order()).await?.url().to_owned())
    }

    /// Takes the next step of an order that was made.
    pub(crate) async fn advance(
        &self,
        record: &OrderRecord,
        url: &str,
    ) -> Result<Progress, StepFailure> {
        let mut order = self.account.order(url.to_owned()).await?;
        let rest = poll_after(record.began, now());
        match order.state().status {
            OrderStatus::Pending => {
                let is_asked = self.prove(&mut order, record.is_checked(now())).await?;
                Ok(if is_asked { Progress::Asked(rest) } else { Progress::After(rest) })
            }
            OrderStatus::Ready => {
                let request = signing_request(&record.key, &self.wanted.name);
                let refused = |error: rcgen::Error| {
                    StepFailure::new(FailureKind::Refused, &format!("the saved key: {error}"))
                };
                let name = &self.wanted.name;
                tracing::info!(name, "the name is proved, and the certificate is requested");
                order.finalize_csr(&request.map_err(refused)?).await?;
                may_crash("acme-requested");
                Ok(Progress::After(0))
            }
            OrderStatus::Processing => Ok(Progress::After(rest)),
            OrderStatus::Valid => match order.certificate().await? {
                Some(chain) => {
                    self.clear(&mut order).await;
                    Ok(Progress::Issued(chain))
                }
                None => Ok(Progress::After(rest)),
            },
            OrderStatus::Invalid => Err(self.reason(&mut order).await),
        }
    }

    /// Publishes the answers, and asks the authority to look at those that it was not asked to look at yet. `is_checked`:
    /// it was asked; a challenge may be pending until the check is over. Returns whether it was asked now.
    async fn prove(&self, order: &mut Order, is_checked: bool) -> Result<bool, StepFailure> {
        let mut is_asked = false;
        let wanted = challenge_type(self.wanted.challenge);
        let mut authorizations = order.authorizations();
        while let Some(found) = authorizations.next().await {
            let mut authorization = found?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let Some(mut challenge) = authorization.challenge(wanted.clone()) else {
                let kind = self.wanted.challenge.as_str();
                let text = format!("the authority offers no {kind} for {}", self.wanted.name);
                return Err(StepFailure::new(FailureKind::Refused, &text));
            };
            let is_told = is_checked || challenge.status != ChallengeStatus::Pending;
            self.publish(&challenge, is_told).await?;
            may_crash("acme-answered");
            if !is_told {
                challenge.set_ready().await?;
                is_asked = true;
                may_crash("acme-told");
                let (name, kind) = (&self.wanted.name, self.wanted.challenge.as_str());
                tracing::info!(name, challenge = kind, "the authority was asked to check the name");
            }
        }
        Ok(is_asked)
    }

    /// Makes the answer known to whatever the authority may reach. `is_told`: it has been asked to look.
    async fn publish(
        &self,
        challenge: &ChallengeHandle<'_>,
        is_told: bool,
    ) -> Result<(), StepFailure> {
        let answer = challenge.key_authorization();
        let place = match self.wanted.challenge {
            AcmeChallenge::Http01 => ChallengeName::token(&challenge.token),
            AcmeChallenge::TlsAlpn01 => ChallengeName::host(&self.wanted.name),
            AcmeChallenge::Dns01 => {
                let Some(program) = self.dns_hook.filter(|_| !is_told) else { return Ok(()) };
                let (name, value) = (self.wanted.name.as_str(), answer.dns_value());
                return hook::run(program, HookAction::Set, name, &value).await;
            }
        };
        let bad = || StepFailure::new(FailureKind::Refused, "the authority's token is malformed");
        let place = place.ok_or_else(bad)?;
        self.answers.put(place.clone(), answer.as_str(), now());
        match self.share {
            Some(share) => share.put_answer(&place, answer.as_str()).await,
            None => Ok(()),
        }
    }

    /// Removes records, once the authority does not look any more. Other answers end by themselves.
    async fn clear(&self, order: &mut Order) {
        let Some(program) = self.dns_hook else { return };
        if self.wanted.challenge != AcmeChallenge::Dns01 {
            return;
        }
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let Some(challenge) = authorization.challenge(ChallengeType::Dns01) else { continue };
            let value = challenge.key_authorization().dns_value();
            let name = self.wanted.name.as_str();
            if let Err(error) = hook::run(program, HookAction::Unset, name, &value).await {
                tracing::warn!(name = self.wanted.name, %error, "a record of dns-01 was not removed");
            }
        }
    }

    /// Why an order failed: what the authority found at the name says most.
    async fn reason(&self, order: &mut Order) -> StepFailure {
        let mut reason = order.state().error.as_ref().map(text_of_problem);
        let mut authorizations = order.authorizations();
        while let Some(Ok(authorization)) = authorizations.next().await {
            let errors = authorization.challenges.iter().filter_map(|one| one.error.as_ref());
            if let Some(error) = errors.map(text_of_problem).next() {
                reason = Some(error);
            }
        }
        let reason = reason.unwrap_or_else(|| "the authority refused the order".to_owned());
        self.clear(order).await;
        StepFailure::new(FailureKind::Refused, &reason)
    }
}

/// The window that the authority suggests for the renewal of a certificate, as Unix times, and how long that holds.
pub(crate) async fn suggested_window(
    account: &Account,
    held: &HeldCertificate,
) -> Result<((i64, i64), std::time::Duration), Error> {
    let id = CertificateIdentifier::try_from(&held.der)
        .map_err(|_| Error::Unsupported("a certificate without the key of its authority"))?;
    let (info, holds) = account.renewal_info(&id).await?;
    let window = info.suggested_window;
    Ok(((window.start.unix_timestamp(), window.end.unix_timestamp()), holds))
}

fn challenge_type(challenge: AcmeChallenge) -> ChallengeType {
    match challenge {
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        AcmeChallenge::Dns01 => ChallengeType::Dns01,
    }
}
