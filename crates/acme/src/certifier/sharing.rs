//! Sharing with the other proxies on a store: which one orders, and what goes from one to the others.

use std::cell::Cell;

use anteroom_store::{CertificateStore, LeaseStore};

use super::Certifier;
use crate::failure::{FailureKind, StepFailure};
use crate::name::NameRecord;
use crate::share::{Share, SharedCertificate, SharedIndex};
use crate::time::now;

/// How many names a look covers where each takes a request to the store.
const TURN: usize = 8;

impl<S: CertificateStore + LeaseStore> Certifier<S> {
    /// Whether this process orders for all on the store. Looks at what the others share.
    pub(super) async fn is_leader(&self, share: &Share<S>) -> bool {
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
    async fn lead(&self, share: &Share<S>, led: bool) -> Result<(), StepFailure> {
        if !led {
            self.take_over(share).await?;
        }
        let index = self.follow(share).await?;
        self.publish_missing(share, &index, true).await?;
        self.publish_account(share).await?;
        let wishes = share.wishes().await?;
        if !wishes.is_empty() {
            self.board.put_wishes(wishes.clone());
            if self.note_wishes().await {
                share.end_wishes(&wishes).await?;
            }
        }
        Ok(())
    }

    /// Goes on where the proxy that ordered until now has stopped.
    async fn take_over(&self, share: &Share<S>) -> Result<(), StepFailure> {
        tracing::info!("this proxy orders certificates for all on the store");
        *self.account.borrow_mut() = None;
        self.board.renew_wishes();
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

    async fn follow_leader(&self, share: &Share<S>) -> Result<(), StepFailure> {
        // Before the certificates, which are shared before the state that has no wish any more.
        self.end_noted_wishes(share).await?;
        let index = self.follow(share).await?;
        self.publish_missing(share, &index, false).await?;
        self.pass_on(share).await?;
        // Operators see at each proxy why an order fails.
        for place in self.take_turn(&self.states_turn) {
            if let Some(state) = share.state(&self.name(place)).await? {
                self.names.borrow_mut()[place].state = state;
            }
        }
        Ok(())
    }

    /// The places of the names whose turn it is at this look. `next` is the first of them.
    fn take_turn(&self, next: &Cell<usize>) -> Vec<usize> {
        let (count, first) = (self.count(), next.get());
        next.set((first + TURN) % count.max(1));
        (0..TURN.min(count)).map(|beyond| (first + beyond) % count).collect()
    }

    /// Puts into use what the proxy that orders has shared since.
    async fn follow(&self, share: &Share<S>) -> Result<SharedIndex, StepFailure> {
        let index = share.index().await?;
        let is_newer = |record: &NameRecord| {
            index.get(&record.wanted.name).is_some_and(|shared| record.is_older_than(shared))
        };
        for (place, name) in self.names_that(is_newer) {
            let Some(pem) = share.certificate(&name).await? else { continue };
            match self.folder.install(&name, &pem, now()) {
                Ok(held) => {
                    tracing::info!(name, "a certificate that another proxy has ordered is in use");
                    // One that was passed on is older than this certificate.
                    if self.board.has_seen_wish(&name) {
                        self.board.end_wish(&name);
                    }
                    self.names.borrow_mut()[place].held = Some(held);
                    self.names.borrow_mut()[place].counts_from = None;
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
        for record in self.names.borrow_mut().iter_mut() {
            if let Some(shared) = index.get(&record.wanted.name) {
                record.note_shared(shared);
            }
        }
        Ok(index)
    }

    /// Shares what is in use here and is not in the store: it was moved, or has lost something, as one does that is full.
    /// Whether a certificate that the index names is there is asked for some names at each look. `leads`: what is in use
    /// here counts also against a later one, which only the index has, and was not refused here.
    async fn publish_missing(
        &self,
        share: &Share<S>,
        index: &SharedIndex,
        leads: bool,
    ) -> Result<(), StepFailure> {
        // The index of proxies with another secret does not open here. Only the proxy that orders replaces it: two would
        // do so by turns, at each look.
        if !leads && index.is_empty() && share.has_index().await? {
            return Ok(());
        }
        let turn = self.take_turn(&self.certificates_turn);
        for (place, name) in self.names_that(|record| record.issued().is_some()) {
            let record = self.get(place);
            let (Some(held), counts_from) = (record.issued(), record.counts_from()) else {
                continue;
            };
            let is_missing = match index.get(&name) {
                None => true,
                Some(shared) if shared.digest != held.digest => {
                    let is_refused = record.refused.as_ref() == Some(&shared.digest);
                    (leads && !is_refused) || counts_from > Some(shared.not_before)
                }
                Some(_) => turn.contains(&place) && self.is_lost(share, &name, leads).await?,
            };
            if is_missing {
                tracing::debug!(name, "the certificate in use is shared");
                self.publish(share, &record).await?;
            }
        }
        Ok(())
    }

    /// Whether the store lacks the certificate in use, which its index names. Where two proxies have shared at once, it may
    /// have that of the other one, which the proxy that orders replaces.
    async fn is_lost(
        &self,
        share: &Share<S>,
        name: &str,
        leads: bool,
    ) -> Result<bool, StepFailure> {
        let Some(shared) = share.certificate(name).await? else { return Ok(true) };
        Ok(leads && self.folder.pem(name).is_ok_and(|own| own != shared))
    }

    /// Shares the account, if the store has none: the next proxy that orders shall not make another.
    async fn publish_account(&self, share: &Share<S>) -> Result<(), StepFailure> {
        if share.account().await?.is_none()
            && let Some(account) = self.folder.account()
        {
            share.put_account(&account).await?;
        }
        Ok(())
    }

    /// Shares a certificate that was issued here. It counts as later than the one that is shared until now.
    pub(super) async fn publish_issued(
        &self,
        share: &Share<S>,
        record: &mut NameRecord,
    ) -> Result<(), StepFailure> {
        let index = share.index().await?;
        record.count_after(index.get(&record.wanted.name).map(|shared| shared.not_before));
        self.publish(share, record).await
    }

    /// Shares the certificate in use for a name.
    async fn publish(&self, share: &Share<S>, record: &NameRecord) -> Result<(), StepFailure> {
        let (Some(held), Some(not_before)) = (record.issued(), record.counts_from()) else {
            return Ok(());
        };
        let name = &record.wanted.name;
        let pem = self.folder.pem(name).map_err(|error| StepFailure::here(&error))?;
        let digest = held.digest.clone();
        share.put_certificate(name, &pem, SharedCertificate { digest, not_before }).await
    }

    /// Ends the wishes that were passed on and that the proxy which orders has saved.
    async fn end_noted_wishes(&self, share: &Share<S>) -> Result<(), StepFailure> {
        for (name, is_passed_on) in self.board.seen_wishes() {
            if is_passed_on && share.state(&name).await?.is_some_and(|state| state.is_requested) {
                self.board.end_wish(&name);
            }
        }
        Ok(())
    }

    /// Tells the proxy that orders what operators want here: at each look, until it has saved the wish, or another
    /// certificate is there. The store may lose what it is told by.
    async fn pass_on(&self, share: &Share<S>) -> Result<(), StepFailure> {
        let wishes = self.board.wishes();
        let (known, strange): (Vec<_>, Vec<_>) =
            wishes.into_iter().partition(|name| self.place_of(name).is_some());
        strange.iter().for_each(|name| self.board.end_wish(name));
        if known.is_empty() {
            return Ok(());
        }
        share.wish_renewals(&known).await?;
        known.iter().for_each(|name| self.board.see_wish(name));
        Ok(())
    }
}
