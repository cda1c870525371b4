//! An order to purge, read into the targets that it means.

use std::collections::BTreeSet;

use anteroom_http::path;
use anteroom_http::query::QueryRules;
use anteroom_http::reference::{absolute, resolve};
use anteroom_http::tags::TAG_MAX;
use anteroom_store::PURGE_MARKS_MAX;
use serde::{Deserialize, Serialize};

use crate::purge::scope::{EVERY_SITE, PurgeTarget, Scope};

/// The most of the things that an order names that are told one by one.
pub const ITEMS_MAX: usize = 100;

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
    /// Whether nothing is purged, and only what would be is told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What an item of an order names. The words are those of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderedKind {
    /// A page.
    Url,
    /// A path with everything below it.
    Prefix,
    /// A path with `*`.
    Glob,
    /// A tag.
    Tag,
    /// Everything.
    All,
}

/// What an order means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderedTargets {
    /// All that is purged, at most [`PURGE_MARKS_MAX`].
    pub targets: BTreeSet<PurgeTarget>,
    /// The things that it names, in its order: the first [`ITEMS_MAX`].
    pub items: Vec<OrderedItem>,
}

/// One of the things that an order names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedItem {
    /// What it is.
    pub kind: OrderedKind,
    /// As the order names it; empty for everything.
    pub name: String,
    /// What is purged for it.
    pub targets: Vec<PurgeTarget>,
}

/// An order is invalid: why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOrder(String);

impl PurgeOrder {
    /// The sites that the order names.
    pub fn sites(&self) -> impl Iterator<Item = String> {
        let named = self.urls.iter().chain(&self.prefixes).chain(&self.globs);
        named
            .filter_map(|url| url_parts(url).ok())
            .map(|(site, _)| site)
            .filter(|it| it != EVERY_SITE)
    }

    /// What the order means.
    ///
    /// # Errors
    /// If the order is invalid, or names too much.
    pub fn read(&self, query_rules: &QueryRules) -> Result<OrderedTargets, InvalidOrder> {
        let mut reader = OrderReader { is_hard: self.hard, ordered: OrderedTargets::default() };
        for url in &self.urls {
            let (site, target) = url_parts(url)?;
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let path = decoded(path)?;
            let forms = query_rules.forms(query);
            let scopes = forms.iter().map(|query| Scope::Url { site: &site, path: &path, query });
            reader.add(OrderedKind::Url, url, scopes)?;
        }
        for prefix in &self.prefixes {
            reader.add_prefix(OrderedKind::Prefix, prefix, prefix)?;
        }
        for glob in &self.globs {
            reader.add_prefix(OrderedKind::Glob, glob, before_wildcard(glob))?;
        }
        for tag in &self.tags {
            if tag.is_empty() || tag.len() > TAG_MAX {
                return Err(wrong(format!("a tag has 1 to {TAG_MAX} bytes")));
            }
            reader.add(OrderedKind::Tag, tag, [Scope::Tag(tag.as_bytes())])?;
        }
        if self.all {
            reader.add(OrderedKind::All, "", [Scope::Everything])?;
        }
        if reader.ordered.targets.is_empty() {
            return Err(wrong(
                "nothing to purge: name URLs, tags or prefixes, or say all".to_owned(),
            ));
        }
        Ok(reader.ordered)
    }
}

/// Reads one order: at most as many targets as one purge takes, for any number of URLs, prefixes, tags and sites.
struct OrderReader {
    is_hard: bool,
    ordered: OrderedTargets,
}

impl OrderReader {
    fn add<'s>(
        &mut self,
        kind: OrderedKind,
        name: &str,
        scopes: impl IntoIterator<Item = Scope<'s>>,
    ) -> Result<(), InvalidOrder> {
        let scopes = scopes.into_iter();
        let targets: Vec<_> = scopes.map(|scope| scope.purge_target(self.is_hard)).collect();
        let OrderedTargets { targets: all, items } = &mut self.ordered;
        all.extend(&targets);
        if all.len() > PURGE_MARKS_MAX {
            return Err(wrong(format!("at most {PURGE_MARKS_MAX} things are purged at a time")));
        }
        if items.len() < ITEMS_MAX {
            items.push(OrderedItem { kind, name: name.to_owned(), targets });
        }
        Ok(())
    }

    fn add_prefix(
        &mut self,
        kind: OrderedKind,
        name: &str,
        prefix: &str,
    ) -> Result<(), InvalidOrder> {
        let (site, target) = url_parts(prefix)?;
        if target.contains('?') {
            return Err(wrong(format!("{prefix}: a prefix has no query; it means all of them")));
        }
        let path = decoded(&target)?;
        self.add(kind, name, [Scope::Prefix { site: &site, path: &path }])
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
fn url_parts(url: &str) -> Result<(String, String), InvalidOrder> {
    let expected =
        || wrong(format!("{url}: write a path, or the whole URL, such as http://example.com/path"));
    if let (None, target) = resolve("/", url) {
        let is_path = url.starts_with('/');
        return is_path.then(|| (EVERY_SITE.to_owned(), target)).ok_or_else(expected);
    }
    let (scheme, host, target) = absolute(url).ok_or_else(expected)?;
    Ok((host.normalised(scheme).into_owned(), target))
}

fn decoded(path: &str) -> Result<String, InvalidOrder> {
    path::decoded(path).ok_or_else(|| wrong(format!("{path}: its encoding is broken")))
}

fn wrong(why: String) -> InvalidOrder {
    InvalidOrder(why)
}

#[cfg(test)]
mod tests {
    use anteroom_http::query::QueryRule;

    use super::*;

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
        let rules = QueryRules::new(QueryRule::default(), std::iter::empty());
        let read = |paths: u32| {
            let urls = (0..2 * paths).map(|path| format!("/{}", path % paths)).collect();
            PurgeOrder { urls, ..PurgeOrder::default() }.read(&rules)
        };
        let ordered = read(1_000).unwrap();
        assert_eq!(ordered.targets.len(), 1_000, "what is named twice counts once");
        assert_eq!(ordered.items.len(), ITEMS_MAX);
        assert!(read(1_001).unwrap_err().to_string().contains("at most 1000"));
        // Entries beyond the limit are not checked.
        let urls = [(0..1_001).map(|path| format!("/{path}")).collect(), vec!["no URL".to_owned()]];
        let error = PurgeOrder { urls: urls.concat(), ..PurgeOrder::default() }.read(&rules);
        assert!(error.unwrap_err().to_string().contains("at most 1000"));
    }
}
