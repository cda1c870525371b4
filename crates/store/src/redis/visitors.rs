//! Visitor tokens in Redis: `visitors:` lists them, `cart:` and `viewed:` hold their data.

use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};
use redis::pipe;

use super::{EVICT_BATCH, RedisCall, RedisStore, TOUCH_BATCH, script};
use crate::{
    CART_MAX, Cart, CartAnswer, CartChange, CartStore as _, MergeResult, StoreError, TokenCreation,
    VISITOR_CART_MAX, ViewStore as _, VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};

impl RedisStore {
    async fn touch_some(&self, visits: &[VisitorVisit]) -> Result<Vec<u8>, StoreError> {
        let mut script = self.script(&script::TOUCH_VISITORS);
        script.arg("keep", self.limits().viewed_items);
        for VisitorVisit { token, seen, items } in visits {
            script.another_key(self.keys().viewed(token.as_stored()));
            script.another(token.as_str()).another(*seen).another(items.len());
            for (item, seen) in items {
                script.another(*seen).another(item.as_str());
            }
        }
        self.invoke(RedisCall::Write, &script).await
    }
}

impl VisitorStore for RedisStore {
    async fn begin_visitor(
        &self,
        token: &VisitorToken,
        item: &Item,
        now: f64,
    ) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut begin = pipe();
        begin.atomic();
        begin.cmd("ZADD").arg(&keys.visitors).arg(now).arg(token.as_str());
        begin.cmd("ZADD").arg(keys.viewed(token.as_stored())).arg(now).arg(item.as_str());
        // A write, but with a read's time: a page waits for it. If it is lost, no client has the
        // token.
        self.query_all(RedisCall::Read, &begin).await
    }

    async fn touch_visitors(&self, visits: &[VisitorVisit]) -> Result<Vec<bool>, StoreError> {
        let mut recorded = Vec::with_capacity(visits.len());
        for batch in visits.chunks(TOUCH_BATCH) {
            let reply = self.touch_some(batch).await?;
            recorded.extend((0..batch.len()).map(|at| reply.get(at) == Some(&b'1')));
        }
        Ok(recorded)
    }

    async fn change_visitor_cart(
        &self,
        token: &VisitorToken,
        begins: TokenCreation,
        change: &CartChange,
        now: f64,
    ) -> Result<CartAnswer, StoreError> {
        let mut script = self.script(&script::CHANGE_VISITOR_CART);
        script.key("cart", self.keys().cart(token.as_stored())).arg("token", token.as_str());
        script.arg("begins", u8::from(begins == TokenCreation::Now)).arg("now", now);
        script.arg("is_emptied", u8::from(*change == CartChange::Empty));
        script.arg("cart_max", VISITOR_CART_MAX);
        match self.run_change(script, change).await? {
            Some(answer) => Ok(answer),
            None => Ok(CartAnswer::Changed(self.visitor_cart(token).await?)),
        }
    }

    async fn visitor_cart(&self, token: &VisitorToken) -> Result<Cart, StoreError> {
        self.cart(token.as_stored()).await
    }

    async fn visitor_viewed(&self, token: &VisitorToken) -> Result<Vec<(Item, f64)>, StoreError> {
        self.viewed(token.as_stored()).await
    }

    async fn merge_visitor(
        &self,
        token: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> Result<MergeResult, StoreError> {
        let mut script = self.script(&script::MERGE_VISITOR);
        script.arg("token", session.as_str()).arg("user", user.as_stored());
        script.arg("visitor", token.as_str());
        script.arg("views_max", self.limits().viewed_items).arg("cart_max", CART_MAX);
        Ok(match self.acknowledge::<usize>(&script).await? {
            0 => MergeResult::NoSession,
            1 => MergeResult::Nothing,
            _ => MergeResult::Done,
        })
    }

    async fn forget_visitor(&self, token: &VisitorToken) -> Result<(), StoreError> {
        let (keys, stored) = (self.keys(), token.as_stored());
        let mut forget = pipe();
        forget.atomic();
        forget.cmd("ZREM").arg(&keys.visitors).arg(token.as_str());
        forget.cmd("UNLINK").arg(keys.viewed(stored)).arg(keys.cart(stored));
        self.write(&forget).await
    }

    async fn evict_visitors(&self, how: VisitorEviction) -> Result<VisitorsEvicted, StoreError> {
        let mut script = self.script(&script::EVICT_VISITORS);
        script.arg("keep", how.keep).arg("before", how.before);
        script.arg("batch", how.batch.min(EVICT_BATCH));
        let (removed, kept) = self.invoke(RedisCall::Write, &script).await?;
        Ok(VisitorsEvicted { removed, kept })
    }
}
