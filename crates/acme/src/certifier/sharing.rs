//! Sharing with the other proxies on a store: which one orders, and what goes from one to the others.

use super::Certifier;
use crate::failure::{FailureKind, StepFailure};
use crate::issued::HeldCertificate;
use crate::name::NameRecord;
use crate::share::{Share, SharedCertificate, SharedIndex};
use crate::time::now;

impl Certifier {
    /// Whether this process orders for all on the store. Looks at what the others share.
    pub(super) async fn is_leader(&self, share: &Share) -> bool {
        let led = self.leads.take();
        let looked = match share.leads().await {
            Ok(true) => self.lead(share, led).await.map(|()| true),
            Ok(false) => self.follow_leader(share).await.map(|()| false),
            Err(error) => Err(StepFailure::here(&error)),
        };
        match looked {
            Ok(leads) => {
                self.leads.set(leads);
                leads
            }
            Err(error) => {
                // Another proxy may lead. A certificate has weeks, and an order can wait for the store; what the last one
                // has begun is read first, whenever the store answers.
                tracing::debug!(%error, "certificates wait for the store");
                false
            }
        }
    }

    /// Orders for all. `led`: it did so at the last step, too.
    async fn lead(&self, share: &Share, led: bool) -> Result<(), StepFailure> {
        if !led {
            self.take_over(share).await?;
        }
        let index = self.follow(share).await?;
        // Also after the store was moved, or has lost something.
        self.publish_missing(share, &index).await?;
        let wishes = share.wishes().await?;
        if !wishes.is_empty() {
            self.request(&wishes).await;
            share.clear_wishes().await?;
        }
        Ok(())
    }

    /// Goes on where the proxy that ordered until now has stopped.
    async fn take_over(&self, share: &Share) -> Result<(), StepFailure> {
        tracing::info!("this proxy orders certificates for all on the store");
        *self.account.borrow_mut() = None;
        for place in 0..self.count() {
            let name = self.name(place);
            if let Some(state) = share.state(&name).await? {
                let state = state.resumed(&self.settings.directory, now());
                self.folder.put_state(&name, &state)?;
                self.names.borrow_mut()[place].state = state;
            }
        }
        Ok(())
    }

    async fn follow_leader(&self, share: &Share) -> Result<(), StepFailure> {
        self.follow(share).await?;
        // One name at a time, so that operators see at each proxy why an order fails.
        let place = self.watched.get() % self.count().max(1);
        self.watched.set(place + 1);
        if place < self.count()
            && let Some(state) = share.state(&self.name(place)).await?
        {
            self.names.borrow_mut()[place].state = state;
        }
        Ok(())
    }

    /// Puts into use what the proxy that orders has shared since.
    async fn follow(&self, share: &Share) -> Result<SharedIndex, StepFailure> {
        let index = share.index().await?;
        let is_newer = |record: &NameRecord| {
            index.get(&record.wanted.name).is_some_and(|shared| record.is_older_than(shared))
        };
        for (place, name) in self.names_that(is_newer) {
            let Some(pem) = share.certificate(&name).await? else { continue };
            match self.folder.install(&name, &pem, now()) {
                Ok(held) => {
                    tracing::info!(name, "a certificate that another proxy has ordered is in use");
                    self.names.borrow_mut()[place].held = Some(held);
                    (self.reload)();
                }
                Err(error) => {
                    tracing::warn!(name, %error, "a shared certificate is not used");
                    if error.kind == FailureKind::Refused {
                        let digest = index.get(&name).map(|shared| shared.digest.clone());
                        self.names.borrow_mut()[place].refused = digest;
                    }
                }
            }
        }
        Ok(index)
    }

    /// Shares what is in use here and is not in the store.
    async fn publish_missing(&self, share: &Share, index: &SharedIndex) -> Result<(), StepFailure> {
        let is_missing = |record: &NameRecord| {
            record.issued().is_some_and(|held| {
                let shared = index.get(&record.wanted.name);
                shared.is_none_or(|shared| shared.digest != held.digest)
            })
        };
        for (place, name) in self.names_that(is_missing) {
            if let Some(held) = self.get(place).issued() {
                self.publish(share, &name, held).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn publish(
        &self,
        share: &Share,
        name: &str,
        held: &HeldCertificate,
    ) -> Result<(), StepFailure> {
        let pem = self.folder.pem(name).map_err(|error| StepFailure::here(&error))?;
        let (digest, not_before) = (held.digest.clone(), *held.valid.start());
        share.put_certificate(name, &pem, SharedCertificate { digest, not_before }).await
    }

    /// Tells the proxy that orders what operators want here.
    pub(super) async fn pass_on(&self, share: &Share, wishes: Vec<String>) {
        if wishes.is_empty() {
            return;
        }
        if let Err(error) = share.wish_renewals(&wishes).await {
            tracing::warn!(%error, "the proxy that orders is told later to renew");
            self.board.put_wishes(wishes);
        }
    }
}
