//! Whether an item is popular, remembered for a moment: pages are asked for more often than ranks
//! change.

use quick_cache::sync::Cache;

use crate::ident::Item;
use crate::store::{StoreError, ViewStore};

/// Answers remembered, at most; the least used are forgotten first.
const MEMO_MAX: usize = 50_000;
/// How long an answer is remembered, in seconds.
const MEMO_TTL: f64 = 2.0;

/// Ranks, shared by all threads.
#[derive(Debug)]
pub struct Ranks {
    memo: Cache<(Item, u64), (bool, f64)>,
}

impl Default for Ranks {
    fn default() -> Self {
        Self { memo: Cache::new(MEMO_MAX) }
    }
}

impl Ranks {
    /// Whether an item is among the `top` most viewed; while fewer are known, every one is. `now`
    /// is Unix time in seconds.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn is_under<S: ViewStore>(
        &self,
        store: &S,
        item: &Item,
        top: u64,
        now: f64,
    ) -> Result<bool, StoreError> {
        let asked = (item.clone(), top);
        match self.memo.get(&asked) {
            Some((is_under, at)) if (now - at).abs() < MEMO_TTL => return Ok(is_under),
            _ => {}
        }
        let is_under = store.ranks_under(item, top).await?;
        self.memo.insert(asked, (is_under, now));
        Ok(is_under)
    }
}
