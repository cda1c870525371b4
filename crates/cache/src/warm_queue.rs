//! The pages that are to be fetched again by their recipes, in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::recipe::Recipe;

/// The most recipes that wait. Beyond that, later ones are dropped: their pages are fetched when they are requested.
const WAITING_MAX: usize = 1_000;

/// A page that is to be fetched.
#[derive(Clone, Debug)]
pub struct WarmRequest {
    /// How.
    pub recipe: Arc<Recipe>,
    /// Why.
    pub occasion: WarmOccasion,
}

/// Why a page is fetched without a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmOccasion {
    /// It was purged.
    Purged,
    /// It is popular, and expires soon.
    ExpiresSoon,
}

/// Pages that wait to be fetched, for all threads.
#[derive(Debug, Default)]
pub struct WarmQueue {
    waiting: Mutex<VecDeque<WarmRequest>>,
    added: Notify,
}

impl WarmQueue {
    /// Adds pages at the end, as far as there is room; returns whether there was room for all.
    pub fn add(
        &self,
        recipes: impl IntoIterator<Item = Arc<Recipe>>,
        occasion: WarmOccasion,
    ) -> bool {
        let mut waiting = self.lock();
        let mut requests =
            recipes.into_iter().map(|recipe| WarmRequest { recipe, occasion }).peekable();
        let room = WAITING_MAX.saturating_sub(waiting.len());
        waiting.extend(requests.by_ref().take(room));
        drop(waiting);
        self.added.notify_one();
        requests.peek().is_none()
    }

    /// The next page, as soon as there is one. Cancel safe.
    pub async fn next(&self) -> WarmRequest {
        loop {
            let next = {
                let mut waiting = self.lock();
                let next = waiting.pop_front();
                // Another thread may wait for the rest.
                if next.is_some() && !waiting.is_empty() {
                    self.added.notify_one();
                }
                next
            };
            match next {
                Some(request) => return request,
                None => self.added.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<WarmRequest>> {
        // No code that holds this lock panics.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;
    use ::http::uri::PathAndQuery;

    use super::*;
    use crate::page_fields::PageFields;

    fn recipes(count: usize) -> Vec<Arc<Recipe>> {
        let recipe = |number| Recipe {
            is_https: false,
            site: "shop.test".to_owned(),
            target: PathAndQuery::try_from(format!("/{number}")).unwrap(),
            fields: PageFields::of(&HeaderMap::new()),
            local: [127, 0, 0, 1].into(),
        };
        (0..count).map(recipe).map(Arc::new).collect()
    }

    #[tokio::test]
    async fn recipes_come_in_order_and_the_last_ones_find_no_room() {
        let queue = WarmQueue::default();
        assert!(queue.add(recipes(WAITING_MAX - 1), WarmOccasion::Purged));
        assert!(!queue.add(recipes(2), WarmOccasion::Purged));
        for expected in (0..WAITING_MAX - 1).chain([0]) {
            assert_eq!(queue.next().await.recipe.target.as_str(), format!("/{expected}"));
        }
        let next = tokio::time::timeout(std::time::Duration::from_millis(1), queue.next());
        assert!(next.await.is_err(), "no more");
    }
}
