//! Operators' purges: turns an order into marks in the table of purges, and reports how far the purge has
//! spread.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::cache::Pages;
use crate::cache::purge::PurgeTable;
use crate::cache::purge::scope::{EVERY_SITE, PurgeTarget, Scope};
use crate::cache::warm_queue::WarmOccasion;
use crate::http::path;
use crate::http::query::QueryRules;
use crate::http::reference::{absolute, resolve};
use crate::http::tags::TAG_MAX;
use crate::store::{AnyStore, Generation, PURGE_MARKS_MAX, PurgeStore as _, StoreError};

/// How long to wait for the store.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for other processes. After this time, a process that has not learnt of the purge is cut
/// off from the store, and stops showing pages for long.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The first and the longest interval between checks: a process that is cut off keeps many callers waiting.
const LOOKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// An order to purge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PurgeOrder {
    /// Pages, each with all its forms: `http://host/path?query`, or `/path?query` on each of `[origin]
    /// hosts`.
    pub urls: Vec<String>,
    /// Paths with everything below them, in the same form.
    pub prefixes: Vec<String>,
    /// Paths with `*`, in the same form. Everything below the folder before the first `*` is purged, which may
    /// be more than the pattern matches: a purge by prefix costs one look per page, and one by pattern would
    /// cost one per pattern and page.
    pub globs: Vec<String>,
    /// Tags that the origin gave to pages.
    pub tags: Vec<String>,
    /// Whether everything is purged.
    pub all: bool,
    /// Whether the pages are removed instead of only becoming stale.
    pub hard: bool,
}

/// The result of a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeDone {
    /// How many pages in the memory of the answering process it hit.
    pub pages: usize,
    /// Whether all processes have confirmed the purge. A process that has not is cut off from the store:
    /// there the purge takes effect within a second.
    pub confirmed: bool,
    /// Why no page was hit, if the order names a host that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl PurgeOrder {
    /// The sites that the order names.
    pub fn sites(&self) -> impl Iterator<Item = String> {
        let named = self.urls.iter().chain(&self.prefixes).chain(&self.globs);
        named
            .filter_map(|url| url_parts(url).ok())
            .map(|(site, _)| site)
            .filter(|it| it != EVERY_SITE)
    }
}

/// Why a purge failed.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The order is invalid.
    #[error("{0}")]
    PurgeOrder(String),
    /// The store does not have the purge yet. It is in effect in this process, and is sent again.
    #[error("only this process knows of the purge, until the store takes it: {0}")]
    Store(#[from] StoreError),
}

impl PurgeError {
    /// The HTTP status for the error.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::PurgeOrder(_) => StatusCode::BAD_REQUEST,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Carries out purges for operators and requests.
#[derive(Debug)]
pub struct Purger {
    /// The pages of this process.
    pub pages: Arc<Pages>,
    /// The rules on the queries of stored pages' URLs.
    pub query_rules: QueryRules,
    /// `warm_after_purge`: how many of the hottest pages that a purge hits are fetched again.
    pub warm_after_purge: usize,
}

impl Purger {
    /// Purges what an order names, in all processes.
    ///
    /// # Errors
    /// If the order is invalid, or the store does not take it.
    pub async fn carry_out(
        &self,
        store: &AnyStore,
        order: &PurgeOrder,
    ) -> Result<PurgeDone, PurgeError> {
        let targets = self.targets(order)?;
        let pages = self.pages.count_hit(&targets);
        let confirmed = self.purge_and_warm(store, &targets).await?;
        Ok(PurgeDone { pages, confirmed, note: None })
    }

    /// Whether an order is valid.
    ///
    /// # Errors
    /// If it is not, and why.
    pub fn check(&self, order: &PurgeOrder) -> Result<(), PurgeError> {
        self.targets(order).map(drop)
    }

    /// Purges the page at a URL; `query` is the original one. Returns whether all processes have confirmed
    /// it.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn purge_url(
        &self,
        store: &AnyStore,
        site: &str,
        path: &str,
        query: &str,
    ) -> Result<bool, PurgeError> {
        let forms = self.query_rules.forms(query);
        let targets: Vec<_> = forms
            .iter()
            .map(|query| Scope::Url { site, path, query }.purge_target(false))
            .collect();
        self.purge_and_warm(store, &targets).await
    }

    /// Purges the pages of some scopes, at most [`PURGE_MARKS_MAX`], softly. Returns whether all processes have
    /// confirmed it.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn purge_scopes(
        &self,
        store: &AnyStore,
        scopes: &[Scope<'_>],
    ) -> Result<bool, PurgeError> {
        let targets: Vec<_> = scopes.iter().map(|scope| scope.purge_target(false)).collect();
        self.purge(store, &targets).await
    }

    /// Purges the pages of one user, and those of some sessions. If the store does not take the purge in
    /// time, it is in effect here and is sent again.
    pub async fn purge_own<'t>(
        &self,
        store: &AnyStore,
        user: Option<&'t [u8]>,
        tokens: impl Iterator<Item = &'t str>,
    ) {
        let scopes = user.map(Scope::User).into_iter().chain(tokens.map(Scope::Session));
        let targets: Vec<_> = scopes.map(|scope| scope.purge_target(true)).collect();
        for some in targets.chunks(PURGE_MARKS_MAX) {
            match timeout(TIMEOUT, self.pages.purged.purge(store, some)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a purge of sessions waits for the store")
                }
                Err(_) => tracing::debug!("a purge of sessions waits for the store"),
            }
        }
    }

    /// Purges, and then has the hottest of the purged pages fetched again. Pages that only the store or another
    /// process has are not among them.
    async fn purge_and_warm(
        &self,
        store: &AnyStore,
        targets: &[PurgeTarget],
    ) -> Result<bool, PurgeError> {
        let hottest = self.pages.hottest_hit_by(targets, self.warm_after_purge);
        let confirmed = self.purge(store, targets).await?;
        self.pages.warm_queue.add(hottest, WarmOccasion::Purged);
        Ok(confirmed)
    }

    async fn purge(&self, store: &AnyStore, targets: &[PurgeTarget]) -> Result<bool, PurgeError> {
        let purging = self.pages.purged.purge(store, targets);
        let Ok(purged) = timeout(TIMEOUT, purging).await else {
            return Err(StoreError::TimedOut.into());
        };
        Ok(is_confirmed(store, &self.pages.purged, purged?).await)
    }

    fn targets(&self, order: &PurgeOrder) -> Result<Vec<PurgeTarget>, PurgeError> {
        let mut targets = PurgeTargets { is_hard: order.hard, targets: BTreeSet::new() };
        for url in &order.urls {
            let (site, target) = url_parts(url)?;
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let path = decoded(path)?;
            for query in &self.query_rules.forms(query) {
                targets.add(Scope::Url { site: &site, path: &path, query })?;
            }
        }
        let globs = order.globs.iter().map(|glob| before_wildcard(glob));
        for prefix in order.prefixes.iter().map(String::as_str).chain(globs) {
            let (site, target) = url_parts(prefix)?;
            if target.contains('?') {
                return Err(wrong(format!(
                    "{prefix}: a prefix has no query; it means all of them"
                )));
            }
            let path = decoded(&target)?;
            targets.add(Scope::Prefix { site: &site, path: &path })?;
        }
        for tag in &order.tags {
            if tag.is_empty() || tag.len() > TAG_MAX {
                return Err(wrong(format!("a tag has 1 to {TAG_MAX} bytes")));
            }
            targets.add(Scope::Tag(tag.as_bytes()))?;
        }
        if order.all {
            targets.add(Scope::Everything)?;
        }
        if targets.targets.is_empty() {
            return Err(wrong(
                "nothing to purge: name URLs, tags or prefixes, or say all".to_owned(),
            ));
        }
        Ok(targets.targets.into_iter().collect())
    }
}

/// The part of a pattern before the segment with its first `*`.
fn before_wildcard(glob: &str) -> &str {
    let Some(first) = glob.find('*') else { return glob };
    let host = glob.find("://").map_or(0, |at| at + 3);
    let path = host + glob[host..].find('/').unwrap_or(0);
    let slash = glob[..first].rfind('/').unwrap_or(path).max(path);
    // The first slash is a path of its own.
    &glob[..slash.max(path + 1)]
}

/// The site and the target of a URL; a path alone is that of all sites.
fn url_parts(url: &str) -> Result<(String, String), PurgeError> {
    let expected =
        || wrong(format!("{url}: write a path, or the whole URL, such as http://example.com/path"));
    if let (None, target) = resolve("/", url) {
        let is_path = url.starts_with('/');
        return is_path.then(|| (EVERY_SITE.to_owned(), target)).ok_or_else(expected);
    }
    let (scheme, host, target) = absolute(url).ok_or_else(expected)?;
    Ok((host.normalised(scheme).into_owned(), target))
}

/// The targets of one order: at most as many as one purge takes, for any number of URLs, prefixes, tags and
/// sites.
struct PurgeTargets {
    is_hard: bool,
    targets: BTreeSet<PurgeTarget>,
}

impl PurgeTargets {
    fn add(&mut self, scope: Scope<'_>) -> Result<(), PurgeError> {
        self.targets.insert(scope.purge_target(self.is_hard));
        match self.targets.len() {
            ..=PURGE_MARKS_MAX => Ok(()),
            _ => Err(wrong(format!("at most {PURGE_MARKS_MAX} things are purged at a time"))),
        }
    }
}

fn decoded(path: &str) -> Result<String, PurgeError> {
    path::decoded(path).ok_or_else(|| wrong(format!("{path}: its encoding is broken")))
}

fn wrong(why: String) -> PurgeError {
    PurgeError::PurgeOrder(why)
}

/// Waits for all other processes, for a limited time.
async fn is_confirmed(store: &AnyStore, purged: &PurgeTable, purge: Generation) -> bool {
    let is_seen = async || match purged.stands_as(purge) {
        Some(purge) => store.is_seen(purge).await.unwrap_or(false),
        None => false,
    };
    let all = async {
        let (mut pause, longest) = LOOKS;
        while !is_seen().await {
            sleep(pause).await;
            pause = (pause * 5 / 4).min(longest);
        }
    };
    timeout(OTHERS_TIMEOUT, all).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::flight::Flights;
    use crate::http::query::QueryRule;

    #[test]
    fn a_pattern_is_purged_by_what_comes_before_its_wildcard() {
        for (glob, prefix) in [
            ("/item/*", "/item"),
            ("/item/mu*", "/item"),
            ("/item/*/reviews", "/item"),
            ("/a/b/*.css", "/a/b"),
            ("/*", "/"),
            ("/*.css", "/"),
            ("/plain", "/plain"),
            ("http://a.test/*", "http://a.test/"),
            ("http://a.test/**/*.css", "http://a.test/"),
            ("http://a.test/item/*", "http://a.test/item"),
        ] {
            assert_eq!(before_wildcard(glob), prefix, "{glob}");
        }
    }

    #[test]
    fn an_order_for_too_much_ends_at_the_bound() {
        let flights = Flights::new(1 << 20, 10);
        let purged = Arc::new(PurgeTable::new(false));
        let pages = Arc::new(Pages::new(1 << 20, flights, purged, 1));
        let query_rules = QueryRules::new(QueryRule::default(), std::iter::empty());
        let purger = Purger { pages, query_rules, warm_after_purge: 0 };
        let targets = |paths: u32| {
            let urls = (0..2 * paths).map(|path| format!("/{}", path % paths)).collect();
            purger.targets(&PurgeOrder { urls, ..PurgeOrder::default() })
        };
        assert_eq!(targets(1_000).unwrap().len(), 1_000, "what is named twice counts once");
        assert!(targets(1_001).unwrap_err().to_string().contains("at most 1000"));
        // Entries beyond the limit are not checked.
        let urls = [(0..1_001).map(|path| format!("/{path}")).collect(), vec!["no URL".to_owned()]];
        let error = purger
            .targets(&PurgeOrder { urls: urls.concat(), ..PurgeOrder::default() })
            .unwrap_err();
        assert!(error.to_string().contains("at most 1000"));
    }
}
