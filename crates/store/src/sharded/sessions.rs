//! Sessions, visits and carts: each in the shard of its token.

use anteroom_http::ident::{CookieHash, Item, StoredToken, User, VisitorToken};
use futures_util::future::{join_all, try_join_all};

use super::ShardedStore;
use crate::{
    AnswerStore, Cart, CartAnswer, CartChange, CartOwner, CartStore, LogIn, MergeResult,
    RevocationStore, SessionLifetimes, StoreError, TokenCreation, TokenStore, UncountedViews,
    Visit, VisitStore, VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};

impl TokenStore for ShardedStore {
    async fn check_token(&self, token: &StoredToken) -> Result<Option<User>, StoreError> {
        self.of(token.as_str()).check_token(token).await
    }

    async fn live_token(
        &self,
        token: &StoredToken,
        terms: &SessionLifetimes,
    ) -> Result<Option<LogIn>, StoreError> {
        self.of(token.as_str()).live_token(token, terms).await
    }
}

impl VisitStore for ShardedStore {
    async fn touch_tokens(&self, visits: &[Visit]) -> Result<Vec<bool>, StoreError> {
        all_recorded(self.touch_parts(visits).await)
    }

    async fn touch_within_reach(&self, visits: &[Visit]) -> Result<Vec<Option<bool>>, StoreError> {
        recorded_within_reach(self.touch_parts(visits).await)
    }

    async fn count_views(&self, views: &[(Item, u64)]) -> Result<(), StoreError> {
        // Views are not counted twice: those of a shard that is away are lost, unless all are.
        self.count_within_reach(views).await.map(drop)
    }

    async fn count_within_reach(
        &self,
        views: &[(Item, u64)],
    ) -> Result<UncountedViews, StoreError> {
        let by_shard = self.by_shard(views, |(item, _)| item.as_str());
        let counted = by_shard.into_iter().map(|(shard, views)| async move {
            let of_shard: Vec<_> = views.into_iter().map(|(_, view)| view.clone()).collect();
            (shard.count_views(&of_shard).await, of_shard)
        });
        let (mut uncounted, mut answered, mut refused) = (UncountedViews::default(), false, None);
        for (counted, views) in join_all(counted).await {
            match counted {
                Ok(()) => answered = true,
                Err(error) => {
                    let part = match error.is_unknown() {
                        true => &mut uncounted.unknown,
                        false => &mut uncounted.not_sent,
                    };
                    part.extend(views);
                    // What is unknown is not sent again, so that error counts where all fail.
                    let keeps = refused.as_ref().is_some_and(StoreError::is_unknown);
                    refused = if keeps { refused } else { Some(error) };
                }
            }
        }
        match refused {
            Some(error) if !answered => Err(error),
            _ => Ok(uncounted),
        }
    }
}

/// What a shard has answered about its visits, and their places among all.
type Part = (Vec<usize>, Result<Vec<bool>, StoreError>);

impl ShardedStore {
    async fn touch_parts(&self, visits: &[Visit]) -> Vec<Part> {
        let by_shard = self.by_shard(visits, |visit| visit.token.as_str());
        join_all(by_shard.into_iter().map(|(shard, visits)| async move {
            let (places, of_shard): (Vec<usize>, Vec<Visit>) =
                visits.into_iter().map(|(place, visit)| (place, visit.clone())).unzip();
            let held = shard.touch_tokens(&of_shard).await;
            (places, held)
        }))
        .await
    }

    async fn touch_visitor_parts(&self, visits: &[VisitorVisit]) -> Vec<Part> {
        let by_shard = self.by_shard(visits, |visit| visit.token.as_str());
        join_all(by_shard.into_iter().map(|(shard, visits)| async move {
            let (places, of_shard): (Vec<usize>, Vec<VisitorVisit>) =
                visits.into_iter().map(|(place, visit)| (place, visit.clone())).unzip();
            let held = shard.touch_visitors(&of_shard).await;
            (places, held)
        }))
        .await
    }
}

/// What was recorded, in the order of the visits. A shard that is away fails it when the others have recorded their
/// part: a visit may be recorded twice.
fn all_recorded(parts: Vec<Part>) -> Result<Vec<bool>, StoreError> {
    let mut recorded = vec![false; parts.iter().map(|(places, _)| places.len()).sum()];
    for (places, held) in parts {
        for (place, held) in places.into_iter().zip(held?) {
            recorded[place] = held;
        }
    }
    Ok(recorded)
}

/// The same; `None` for the visits of a shard that is away, unless all are.
fn recorded_within_reach(parts: Vec<Part>) -> Result<Vec<Option<bool>>, StoreError> {
    let mut recorded = vec![None; parts.iter().map(|(places, _)| places.len()).sum()];
    let (mut answered, mut refused) = (false, None);
    for (places, held) in parts {
        match held {
            Ok(held) => {
                answered = true;
                for (place, held) in places.into_iter().zip(held) {
                    recorded[place] = Some(held);
                }
            }
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if !answered => Err(error),
        _ => Ok(recorded),
    }
}

impl CartStore for ShardedStore {
    async fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> Result<(), StoreError> {
        self.of(token.as_str()).add_to_cart(token, item, count).await
    }

    async fn change_cart(
        &self,
        owner: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, StoreError> {
        self.of(owner.token.as_str()).change_cart(owner, change).await
    }

    async fn cart(&self, token: &StoredToken) -> Result<Cart, StoreError> {
        self.of(token.as_str()).cart(token).await
    }
}

/// In the shard of the token's hash: a mark that comes from another store has no token.
impl RevocationStore for ShardedStore {
    async fn mark_revoked(&self, token: &StoredToken, now: f64) -> Result<(), StoreError> {
        self.of(&token.digest()).mark_revoked(token, now).await
    }

    async fn is_revoked(&self, token: &StoredToken, now: f64) -> Result<bool, StoreError> {
        self.of(&token.digest()).is_revoked(token, now).await
    }
}

impl VisitorStore for ShardedStore {
    async fn begin_visitor(
        &self,
        token: &VisitorToken,
        item: &Item,
        now: f64,
    ) -> Result<(), StoreError> {
        self.of(token.as_str()).begin_visitor(token, item, now).await
    }

    async fn touch_visitors(&self, visits: &[VisitorVisit]) -> Result<Vec<bool>, StoreError> {
        all_recorded(self.touch_visitor_parts(visits).await)
    }

    async fn touch_visitors_within_reach(
        &self,
        visits: &[VisitorVisit],
    ) -> Result<Vec<Option<bool>>, StoreError> {
        recorded_within_reach(self.touch_visitor_parts(visits).await)
    }

    async fn change_visitor_cart(
        &self,
        token: &VisitorToken,
        begins: TokenCreation,
        change: &CartChange,
        now: f64,
    ) -> Result<CartAnswer, StoreError> {
        self.of(token.as_str()).change_visitor_cart(token, begins, change, now).await
    }

    async fn visitor_cart(&self, token: &VisitorToken) -> Result<Cart, StoreError> {
        self.of(token.as_str()).visitor_cart(token).await
    }

    async fn visitor_viewed(&self, token: &VisitorToken) -> Result<Vec<(Item, f64)>, StoreError> {
        self.of(token.as_str()).visitor_viewed(token).await
    }

    async fn merge_visitor(
        &self,
        token: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> Result<MergeResult, StoreError> {
        self.within_budget(self.hand_visitor_over(token, session, user)).await
    }

    async fn forget_visitor(&self, token: &VisitorToken) -> Result<(), StoreError> {
        self.of(token.as_str()).forget_visitor(token).await
    }

    async fn evict_visitors(&self, how: VisitorEviction) -> Result<VisitorsEvicted, StoreError> {
        self.evict_visitors_of_all(how).await
    }
}

impl AnswerStore for ShardedStore {
    async fn recall(&self, cookies: &CookieHash) -> Result<Option<bytes::Bytes>, StoreError> {
        self.of(&cookies.hex()).recall(cookies).await
    }

    async fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&bytes::Bytes>,
        answer: bytes::Bytes,
        ttl: std::time::Duration,
    ) -> Result<bool, StoreError> {
        self.of(&cookies.hex()).remember(cookies, before, answer, ttl).await
    }

    async fn void(
        &self,
        cookies: &[CookieHash],
        mark: bytes::Bytes,
        ttl: std::time::Duration,
    ) -> Result<(), StoreError> {
        let voided = cookies.iter().map(|cookies| {
            let (shard, mark) = (self.of(&cookies.hex()), mark.clone());
            async move { shard.void(std::slice::from_ref(cookies), mark, ttl).await }
        });
        try_join_all(voided).await.map(drop)
    }
}
