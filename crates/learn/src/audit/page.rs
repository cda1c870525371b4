//! A page that was compared, and what follows from a comparison.

use std::sync::Arc;

use super::cause::AuditedRequest;

/// A page that was compared.
#[derive(Clone, Debug)]
pub struct AuditedPage {
    /// The site.
    pub host: String,
    /// The pattern of its URL: the path with `*` where pages of one kind differ.
    pub pattern: String,
    /// The route.
    pub route: Arc<str>,
    /// A hash of what the configuration says of the page: under other rules it must be seen anew.
    pub rules: Arc<str>,
    /// How often pages were stopped before this one was compared and, in the upper half, shared again: after that it must be
    /// seen anew.
    pub page_changes: u64,
    /// A hash of its path.
    pub digest: String,
    /// The path as it may be shown.
    pub path: String,
    /// The network of the visitor.
    pub network: u32,
    /// What the answer may depend on.
    pub request: AuditedRequest,
}

/// What follows from a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternVerdict {
    /// Nothing new.
    Nothing,
    /// Visitors of so many networks see something else, which is too few, or may be chance.
    Doubtful(usize),
    /// The page must not be shared any more: visitors of so many networks see something else.
    PageDiffers(usize),
    /// The same of all pages of the pattern.
    PatternDiffers(usize),
    /// The same: one of them held a visitor's own words.
    Leak,
}
