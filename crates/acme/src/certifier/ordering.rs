//! The work for one name: an order is begun and goes on, and the authority is asked for the time of the renewal.

use anteroom_fault::may_crash;
use anteroom_store::{CertificateStore, LeaseStore};
use instant_acme::Account;

use super::Certifier;
use crate::account::AccountSource;
use crate::failure::{FailureKind, StepFailure};
use crate::issued::{HeldCertificate, new_key};
use crate::name::NameRecord;
use crate::order::{OrderContext, Progress, suggested_window};
use crate::schedule::{ask_again, renew_at, rest_after_issue};
use crate::state::{NameState, OrderRecord, Renewal};
use crate::time::now;

impl<S: CertificateStore + LeaseStore> Certifier<S> {
    /// Saves the key of an order that is made next.
    pub(super) async fn begin(&self, place: usize) -> Result<(), StepFailure> {
        let mut record = self.get(place);
        let key = new_key().map_err(|error| StepFailure::here(&error))?;
        tracing::info!(name = record.wanted.name, "a certificate is ordered");
        let directory = self.settings.directory.clone();
        record.state.order =
            Some(OrderRecord { directory, key, began: now(), ..OrderRecord::default() });
        // The rest after the last certificate, which may be lost since.
        record.state.next_try = 0;
        record.rests_until = 0;
        self.save(place, record).await?;
        may_crash("acme-begun");
        Ok(())
    }

    pub(super) async fn advance(&self, place: usize) -> Result<(), StepFailure> {
        let mut record = self.get(place);
        let Some(order) = record.state.order.clone() else { return Ok(()) };
        if order.is_stuck(now()) {
            // The wait after failures is over: the authority is there again, or another order fails as well.
            if record.state.failures > 0 {
                record.state.order = None;
                return self.save(place, record).await;
            }
            let text = "the order has taken over 2 hours";
            return Err(StepFailure::new(FailureKind::Refused, text));
        }
        let account = self.open_account().await?;
        let context = OrderContext {
            account: &account,
            wanted: &record.wanted,
            profile: self.settings.profile.as_deref(),
            dns_hook: self.settings.dns_hook.as_deref(),
            answers: &self.board.answers,
            share: self.share.as_ref(),
        };
        let Some(url) = order.url.clone() else {
            // Another authority does not know the certificate.
            let is_of_this = |by: &String| *by == self.settings.directory;
            let is_known = record.state.issued_by.as_ref().is_none_or(is_of_this);
            let url = context.make(record.issued().filter(|_| is_known)).await?;
            may_crash("acme-made");
            record.state.order = Some(OrderRecord { url: Some(url), ..order });
            self.save(place, record).await?;
            may_crash("acme-saved");
            return Ok(());
        };
        match context.advance(&order, &url).await? {
            Progress::After(rest) => {
                record.rests_until = now() + rest;
                self.put(place, record);
                Ok(())
            }
            Progress::Asked(rest) => {
                record.rests_until = now() + rest;
                record.state.order = Some(OrderRecord { asked_at: Some(now()), ..order });
                self.save(place, record).await
            }
            Progress::Issued(chain) => {
                let pem = format!("{}\n{}", chain.trim_end(), order.key);
                self.install(place, record, &pem).await
            }
        }
    }

    /// Puts an issued certificate into use, here and then at the other proxies.
    pub(super) async fn install(
        &self,
        place: usize,
        mut record: NameRecord,
        pem: &str,
    ) -> Result<(), StepFailure> {
        let name = record.wanted.name.clone();
        let held = self.folder.install(&name, pem, now())?;
        // What was wanted until now is there. From here on operators may see it, and want another.
        self.board.end_wish(&name);
        (self.reload)();
        self.board.count_issued();
        let (not_after, issuer) = (*held.valid.end(), &held.issuer);
        tracing::info!(name, not_after, issuer, "a new certificate is in use");
        record.state = NameState {
            renewal: Some(planned(&held)),
            next_try: now() + rest_after_issue(&held.valid),
            issued_by: Some(self.settings.directory.clone()),
            ..NameState::default()
        };
        let replaced = record.counts_from();
        (record.held, record.counts_from) = (Some(held), None);
        record.count_after(replaced);
        // Before the state, so that a proxy which does not find its wish there finds the certificate.
        if let Some(share) = &self.share
            && let Err(error) = self.publish_issued(share, &mut record).await
        {
            tracing::warn!(name, %error, "the other proxies do not have the new certificate yet");
        }
        self.save(place, record).await
    }

    /// Asks the authority when a certificate is to be renewed. An answer is never needed.
    pub(super) async fn ask_window(&self, place: usize) -> Result<(), StepFailure> {
        let mut record = self.get(place);
        let Some(held) = record.issued().cloned() else { return Ok(()) };
        let known = record.renewal().cloned().unwrap_or_else(|| planned(&held));
        let asked = match self.open_account().await {
            Ok(account) => suggested_window(&account, &held).await.map_err(StepFailure::from),
            Err(failure) => Err(failure),
        };
        let renewal = match asked {
            // A point was drawn in this window, and stays.
            Ok((window, holds)) if known.window == Some(window) => {
                Renewal { ask_again: ask_again(now(), Some(holds)), ..known }
            }
            Ok((window, holds)) => Renewal {
                at: renew_at(&held.valid, Some(&(window.0..=window.1)), fastrand::f64()),
                window: Some(window),
                ask_again: ask_again(now(), Some(holds)),
                of: held.digest,
            },
            Err(error) => {
                tracing::debug!(name = record.wanted.name, %error, "no renewal window is known");
                Renewal { ask_again: ask_again(now(), None), ..known }
            }
        };
        record.state.renewal = Some(renewal);
        self.save(place, record).await
    }

    async fn open_account(&self) -> Result<Account, StepFailure> {
        let known = self.account.borrow().clone();
        if let Some(account) = known {
            return Ok(account);
        }
        let account = self.account_source().open().await?;
        *self.account.borrow_mut() = Some(account.clone());
        Ok(account)
    }

    pub(super) fn account_source(&self) -> AccountSource<'_, S> {
        AccountSource {
            client: &self.client,
            folder: &self.folder,
            share: self.share.as_ref(),
            directory: &self.settings.directory,
            email: self.settings.email.as_deref(),
        }
    }
}

/// The renewal of a certificate as long as the authority has suggested no other time: it is asked at once.
fn planned(held: &HeldCertificate) -> Renewal {
    Renewal {
        of: held.digest.clone(),
        at: renew_at(&held.valid, None, fastrand::f64()),
        window: None,
        ask_again: 0,
    }
}
