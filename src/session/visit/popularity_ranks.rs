//! Whether an item is popular, remembered for a moment: pages are requested more often than ranks
//! change.

use quick_cache::sync::Cache;

use crate::ident::Item;
use crate::store::{StoreError, ViewStore};

/// The most answers remembered; the least used are evicted first.
const MEMO_MAX: usize = 50_000;
/// How long an answer is remembered, in seconds.
const MEMO_TTL: f64 = 2.0;

/// Ranks, shared by all threads.
#[derive(Debug)]
pub struct PopularityRanks {
    memo: Cache<(Item, u64), (bool, f64)>,
}

impl Default for PopularityRanks {
    fn default() -> Self {
        Self { memo: Cache::new(MEMO_MAX) }
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
        let is_under = store.ranks_under(item, top).await?;
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
}

/// The remembered answer, if it is recent.
fn still_true(remembered: Option<(bool, f64)>, now: f64) -> Option<bool> {
    remembered.filter(|(_, at)| (now - at).abs() < MEMO_TTL).map(|(is_under, _)| is_under)
}
