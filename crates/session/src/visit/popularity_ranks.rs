//! Whether an item is popular, remembered for a moment: pages are requested more often than ranks
//! change.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anteroom_http::ident::Item;
use quick_cache::sync::Cache;

use anteroom_store::{StoreError, TopBound, ViewStore};

/// The most answers remembered; the least used are evicted first.
const MEMO_MAX: usize = 50_000;
/// How long an answer is remembered, in seconds.
const MEMO_TTL: f64 = 2.0;
/// How long the bound of the most viewed is used, in seconds, where the store has one.
const BOUND_TTL: f64 = 5.0;
/// The most bounds remembered: one for each number that a route has.
const BOUNDS_MAX: usize = 1_000;

/// Ranks, shared by all threads.
#[derive(Debug)]
pub struct PopularityRanks {
    memo: Cache<(Item, u64), (bool, f64)>,
    /// By the number of items: the bound, and when it was found. Never held across an await.
    bounds: Mutex<HashMap<u64, (TopBound, f64)>>,
}

impl Default for PopularityRanks {
    fn default() -> Self {
        Self { memo: Cache::new(MEMO_MAX), bounds: Mutex::default() }
    }
}

impl PopularityRanks {
    /// Whether an item is among the `top` most viewed; while fewer are known, every item is. `now`
    /// is Unix time in seconds.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn is_in_top<S: ViewStore>(
        &self,
        store: &S,
        item: &Item,
        top: u64,
        now: f64,
    ) -> Result<bool, StoreError> {
        let asked = (item.clone(), top);
        if let Some(is_under) = still_true(self.memo.get(&asked), now) {
            return Ok(is_under);
        }
        let is_under = self.look_up(store, item, top, now).await?;
        self.memo.insert(asked, (is_under, now));
        Ok(is_under)
    }

    /// The same, and the result is not remembered.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn peek<S: ViewStore>(
        &self,
        store: &S,
        item: &Item,
        top: u64,
        now: f64,
    ) -> Result<bool, StoreError> {
        match still_true(self.memo.peek(&(item.clone(), top)), now) {
            Some(is_under) => Ok(is_under),
            None => store.ranks_under(item, top).await,
        }
    }

    async fn look_up<S: ViewStore>(
        &self,
        store: &S,
        item: &Item,
        top: u64,
        now: f64,
    ) -> Result<bool, StoreError> {
        match self.bound(store, top, now).await? {
            Some(bound) => store.ranks_within(item, top, bound).await,
            None => store.ranks_under(item, top).await,
        }
    }

    /// The bound of the most viewed, if the store has one. One caller renews it, and others use the old one meanwhile.
    async fn bound<S: ViewStore>(
        &self,
        store: &S,
        top: u64,
        now: f64,
    ) -> Result<Option<TopBound>, StoreError> {
        let known = {
            let mut bounds = self.lock();
            let known = bounds.get_mut(&top);
            match known {
                Some((bound, at)) if (now - *at).abs() < BOUND_TTL => return Ok(Some(*bound)),
                Some((bound, at)) => {
                    *at = now;
                    Some(*bound)
                }
                None => None,
            }
        };
        match store.bound_of_top(top).await {
            Ok(Some(bound)) => {
                let mut bounds = self.lock();
                if bounds.len() < BOUNDS_MAX || bounds.contains_key(&top) {
                    bounds.insert(top, (bound, now));
                }
                Ok(Some(bound))
            }
            Ok(None) => Ok(None),
            Err(error) => known.map(Some).ok_or(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (TopBound, f64)>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The remembered answer, if it is recent.
fn still_true(remembered: Option<(bool, f64)>, now: f64) -> Option<bool> {
    remembered.filter(|(_, at)| (now - at).abs() < MEMO_TTL).map(|(is_under, _)| is_under)
}
