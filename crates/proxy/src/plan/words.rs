//! What is decided, in words, for tables of tests.

use anteroom_cache::CacheTier;

use super::{Decision, PageDecision};

/// What is decided, in words.
pub(crate) fn in_words(decision: &Decision) -> String {
    let page = match decision {
        Decision::Row(_) => return "row".to_owned(),
        Decision::Upgrade => return "upgrade".to_owned(),
        Decision::Forward(reason) => return format!("forward {}", reason.as_str()),
        Decision::NotStored => return "not stored".to_owned(),
        Decision::Page(page) => page,
    };
    match page {
        PageDecision::Hit(_, CacheTier::Memory) => "hit in memory".to_owned(),
        PageDecision::Hit(_, CacheTier::Store) => "hit in store".to_owned(),
        PageDecision::Stale { renews: true, .. } => "stale, renewed".to_owned(),
        PageDecision::Stale { renews: false, .. } => "stale".to_owned(),
        PageDecision::AsItCame { reason, .. } => format!("as it came, {}", reason.as_str()),
        PageDecision::Fetch { candidate: None, .. } => "fetch".to_owned(),
        PageDecision::Fetch { candidate: Some(stale), .. } => {
            let on_error = if stale.serves_on_error { ", served on error" } else { "" };
            format!("fetch again{on_error}")
        }
    }
}
