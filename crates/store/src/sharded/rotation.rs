//! Logins, and what they hand over from one shard to another.
//!
//! A login that replaces a token of the same shard is one step. Otherwise the order is: the new session begins; the
//! old one ends, and in the same step a record in its shard holds what the new one gets; the new one gets it; the
//! record goes. A process that stops in between leaves the record, and any process finishes it: taking over twice is
//! as good as once. A client gets its new token when the old session has ended: from then on nothing fails the
//! login, since its client would be left with neither session. What is not done yet follows from the record.

use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};
use tokio::time::{Instant, timeout_at};

use super::ShardedStore;
use crate::redis::{Handover, TakenOver};
use crate::{
    EndedCarts, ExpiryAction, LogInStore, MergeResult, Rotation, RotationResult, StoreError,
    TokenStore as _, VisitStore as _,
};

/// A record that is this old, in seconds, was left by a process that stopped.
const LEFT_BEHIND: f64 = 10.0;

impl LogInStore for ShardedStore {
    async fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        let deadline = self.deadline();
        self.of(token.as_str()).update_uncounted(token, user, item, now).await?;
        let Some(item) = item else { return Ok(()) };
        // The login stands, also where the shard of the item is away.
        if !matches!(timeout_at(deadline, self.count_views(&[(item.clone(), 1)])).await, Ok(Ok(())))
        {
            tracing::debug!("the view of a login was not counted");
        }
        Ok(())
    }

    async fn rotate_token(&self, rotation: &Rotation) -> Result<RotationResult, StoreError> {
        let deadline = self.deadline();
        let (mut rotated, taken) = until(deadline, self.begin(rotation)).await?;
        let handed_over = self.hand_the_rest_over(rotation, taken);
        if let Err(error) = until(deadline, handed_over).await {
            if rotation.old.is_none() {
                return Err(error);
            }
            tracing::debug!(%error, "a login is finished later");
        }
        let limited = self.end_over_limit(rotation, &mut rotated);
        if let Err(error) = until(deadline, limited).await {
            tracing::debug!(%error, "a user keeps a session too many until the next login");
        }
        Ok(rotated)
    }

    async fn revoke_token(&self, token: &StoredToken) -> Result<(), StoreError> {
        self.of(token.as_str()).revoke_token(token).await
    }

    async fn dismiss_token(
        &self,
        token: &StoredToken,
        expiry_action: &ExpiryAction,
    ) -> Result<EndedCarts, StoreError> {
        self.of(token.as_str()).dismiss_token(token, expiry_action).await
    }

    async fn finish_handovers(&self, now: f64) -> Result<usize, StoreError> {
        let left =
            self.at_those_there(|shard| async move { shard.handovers(now - LEFT_BEHIND).await });
        let mut finished = 0;
        for taken in left.await?.into_iter().flatten() {
            self.take_over(&taken).await?;
            finished += 1;
        }
        Ok(finished)
    }
}

/// Calls that are given up at this time.
async fn until<T>(
    deadline: Instant,
    calls: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout_at(deadline, calls).await.unwrap_or(Err(StoreError::TimedOut))
}

impl ShardedStore {
    /// When a step of several calls that begins now is given up.
    fn deadline(&self) -> Instant {
        Instant::now() + self.any.limits().write_timeout
    }

    /// Several calls within the budget of one.
    pub(super) async fn within_budget<T>(
        &self,
        calls: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        until(self.deadline(), calls).await
    }

    /// The new session begins, and the old one ends. Returns what the new one gets, too.
    async fn begin(
        &self,
        rotation: &Rotation,
    ) -> Result<(RotationResult, Option<TakenOver>), StoreError> {
        let shard = self.of(rotation.new.as_str());
        let is_here = |name: &str| self.index_of(name) == shard.index();
        let within = Rotation {
            old: rotation.old.clone().filter(|old| is_here(old.as_str())),
            visitor: rotation.visitor.clone().filter(|visitor| is_here(visitor.as_str())),
            // The limit holds over all shards: see `end_over_limit`.
            most: 0,
            ..rotation.clone()
        };
        let mut rotated = shard.rotate_token(&within).await?;
        if rotation.old.is_none() || within.old.is_some() {
            return Ok((rotated, None));
        }
        let handover = self.begin_handover(rotation).await?;
        rotated.ended_carts.add(handover.ended_carts);
        Ok((rotated, handover.taken))
    }

    /// The new session gets what the old one had, and what the visitor's token has.
    async fn hand_the_rest_over(
        &self,
        rotation: &Rotation,
        taken: Option<TakenOver>,
    ) -> Result<(), StoreError> {
        let of_old = match taken {
            Some(taken) => self.take_over(&taken).await.map(drop),
            None => Ok(()),
        };
        let shard = self.index_of(rotation.new.as_str());
        let visitor = rotation.visitor.as_ref();
        let of_visitor = match visitor.filter(|it| self.index_of(it.as_str()) != shard) {
            Some(visitor) => {
                let handed = self.hand_visitor_over(visitor, &rotation.new, &rotation.user);
                handed.await.map(drop)
            }
            None => Ok(()),
        };
        of_old.and(of_visitor)
    }

    /// Ends the old session of a login, whose new one is in another shard and has begun. What the new one gets is in a
    /// record until [`Self::take_over`].
    ///
    /// # Errors
    /// Those of a write.
    pub async fn begin_handover(&self, rotation: &Rotation) -> Result<Handover, StoreError> {
        let old = rotation.old.as_ref().unwrap_or(&rotation.new);
        let new = self.of(rotation.new.as_str());
        let (has_cart, has_views) = new.has_data(&rotation.new).await?;
        self.of(old.as_str()).end_for(old, rotation, has_cart, has_views).await
    }

    /// Gives a session what another shard holds for it, and removes the record. A session that has ended meanwhile
    /// gets nothing.
    async fn take_over(&self, taken: &TakenOver) -> Result<bool, StoreError> {
        let is_there = self.of(taken.token.as_str()).take_over(taken).await?;
        self.any.of_shard(taken.shard).forget_handover(taken).await?;
        Ok(is_there)
    }

    /// Gives a session what a visitor's token has.
    pub(super) async fn hand_visitor_over(
        &self,
        visitor: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> Result<MergeResult, StoreError> {
        let holder = self.of(session.as_str()).check_token(session).await?;
        if !holder.is_some_and(|holder| holder.is_same(user)) {
            return Ok(MergeResult::NoSession);
        }
        let Handover { taken, .. } =
            self.of(visitor.as_str()).end_visitor_for(visitor, session, user).await?;
        let Some(taken) = taken else { return Ok(MergeResult::Nothing) };
        Ok(match self.take_over(&taken).await {
            Ok(false) => MergeResult::NoSession,
            Ok(true) => MergeResult::Done,
            // The visitor's token has ended, and the record is there.
            Err(error) => {
                tracing::debug!(%error, "a visitor's cart is handed over later");
                MergeResult::Done
            }
        })
    }

    /// Ends the user's sessions over the limit, if there is one, the oldest login first. Those in a shard that is away
    /// stay until the next login.
    async fn end_over_limit(
        &self,
        rotation: &Rotation,
        rotated: &mut RotationResult,
    ) -> Result<(), StoreError> {
        if rotation.most == 0 {
            return Ok(());
        }
        let sessions = self.sessions_within_reach(&rotation.user).await?;
        let over = sessions.len().saturating_sub(rotation.most as usize);
        let others = sessions.into_iter().filter(|session| session.token != rotation.new);
        for session in others.take(over) {
            let shard = self.of(session.token.as_str());
            let ended = match &rotation.expiry_action {
                Some(action) => shard.dismiss_token(&session.token, action).await?,
                None => {
                    shard.revoke_token(&session.token).await?;
                    EndedCarts::default()
                }
            };
            rotated.ended_carts.add(ended);
            rotated.gone.push(session.token);
        }
        Ok(())
    }
}
