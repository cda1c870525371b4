//! The page of a request in what was learned.

use std::sync::Arc;

use anteroom_cache::Pages;
use anteroom_cache::entry::Entry;
use anteroom_cache::purge::PurgeSnapshot;
use anteroom_cache::purge::scope::ScopeDigest;
use anteroom_cache::rules::key::ShareClass;
use anteroom_http::ident::PageKey;
use anteroom_learn::Learning;

use crate::context::RequestContext;

/// A page in what was learned.
pub(super) struct LearnedPlace {
    pub(super) learning: Arc<Learning>,
    pub(super) pages: Arc<Pages>,
    pub(super) key: PageKey,
    scopes: Vec<ScopeDigest>,
    pub(super) now: u64,
}

impl LearnedPlace {
    pub(super) fn of(cx: &RequestContext<'_>, key: PageKey, class: Option<ShareClass>) -> Self {
        Self {
            learning: Arc::clone(&cx.worker.learning),
            pages: Arc::clone(&cx.worker.pages),
            key,
            scopes: scopes(cx, class),
            now: cx.now as u64,
        }
    }

    /// Which purges outdate what is fetched now.
    pub(super) fn marks(&self) -> PurgeSnapshot {
        self.pages.purged.now(&self.scopes)
    }

    /// An entry as if it were fetched with this request.
    pub(super) fn renewed(&self, entry: &Entry) -> Entry {
        entry.fetched_again(self.now, &self.marks())
    }

    /// The answer does not show what a fetch would get.
    pub(super) fn unseen(&self) {
        self.learning.unseen(&self.key, |entry| self.renewed(entry));
    }
}

fn scopes(cx: &RequestContext<'_>, class: Option<ShareClass>) -> Vec<ScopeDigest> {
    let mut scopes = cx.purge_scopes();
    if class == Some(ShareClass::User) {
        scopes.extend(cx.own_scopes());
    }
    scopes
}
