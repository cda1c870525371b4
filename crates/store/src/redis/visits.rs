//! Visits in Redis: `recent:` and `viewed:<token>`, and `viewed:` of all.

use anteroom_http::ident::Item;

use super::views::TRIM;
use super::{RedisCall, RedisStore, TOUCH_BATCH, pipe, script};
use crate::{POPULARITY_MAX, StoreError, Visit, VisitStore};

impl RedisStore {
    async fn touch_batch(&self, visits: &[Visit]) -> Result<Vec<u8>, StoreError> {
        let mut script = self.script(&script::TOUCH);
        script.arg("keep", self.limits().viewed_items);
        for visit in visits {
            script.another_key(self.keys().viewed(&visit.token));
            script.another(visit.token.as_str()).another(visit.user.as_stored());
            script.another(visit.seen).another(visit.items.len());
            for (item, seen) in &visit.items {
                script.another(*seen).another(item.as_str());
            }
        }
        self.invoke(RedisCall::Write, &script).await
    }
}

impl VisitStore for RedisStore {
    async fn touch_tokens(&self, visits: &[Visit]) -> Result<Vec<bool>, StoreError> {
        let mut recorded = Vec::with_capacity(visits.len());
        for batch in visits.chunks(TOUCH_BATCH) {
            let reply = self.touch_batch(batch).await?;
            recorded.extend((0..batch.len()).map(|at| reply.get(at) == Some(&b'1')));
        }
        Ok(recorded)
    }

    async fn count_views(&self, views: &[(Item, u64)]) -> Result<(), StoreError> {
        if views.is_empty() {
            return Ok(());
        }
        let mut step = pipe();
        step.atomic();
        for (item, count) in views {
            let score = format!("-{count}");
            step.cmd("ZINCRBY").arg(&self.keys().popularity).arg(score).arg(item.as_str());
        }
        // At the limit the least viewed are dropped: more than one flush adds, few enough for one
        // step.
        let last = POPULARITY_MAX + TRIM - 1;
        step.cmd("ZREMRANGEBYRANK").arg(&self.keys().popularity).arg(POPULARITY_MAX).arg(last);
        self.write(&step).await
    }
}
