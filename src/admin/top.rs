//! The query for the most viewed items.

use anteroom_store::ViewStore;
use serde::{Deserialize, Serialize};

use super::commands::{CommandRefusal, Commands, bad, store_failed};

/// Items in one answer, at most.
pub const TOP_MAX: u32 = 10_000;

/// The most viewed items, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Top {
    /// The items.
    pub items: Vec<TopViews>,
}

/// How often an item was viewed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopViews {
    /// The item.
    pub item: String,
    /// Its views, halved at each rescaling: not a whole number.
    pub views: f64,
}

impl Commands {
    /// Answers `most=N`, the number of items.
    pub(super) async fn top(&self, query: Option<&str>) -> Result<Top, CommandRefusal> {
        let most = query.and_then(|query| query.strip_prefix("most="));
        let most = most.and_then(|most| most.parse().ok()).filter(|most| *most <= TOP_MAX);
        let most = most.ok_or_else(|| bad(&format!("most=N is required, up to {TOP_MAX}")))?;
        let items = self.store.top(most).await.map_err(|error| store_failed(&error))?;
        let items = items
            .into_iter()
            .map(|(item, views)| TopViews { item: item.as_str().to_owned(), views });
        Ok(Top { items: items.collect() })
    }
}
