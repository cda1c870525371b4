//! An answer as it is compared with others, and what may come of it.

use crate::rules::leak_kind::LeakKind;

/// A set of answers, by their places in time.
pub(super) type Answers = u16;

/// A set of cookies, by their places in the table of names.
pub(super) type CookieSet = u64;

/// What is known of an answer besides its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSeen {
    /// Whose it is: a keyed hash.
    pub visitor: u64,
    /// How many cookies were known then that tell no visitors apart. An answer of another time is not compared.
    pub renewed_known: u32,
    /// The cookies of the request that no key has and that are not known to be harmless everywhere.
    pub cookies: u64,
    /// Whether the visitor would get the page that others get, by the configuration in force.
    pub is_shared: bool,
    /// Whether this visitor's answer could have become the shared page.
    pub could_fill: bool,
    /// What of the visitor's own words stands in it.
    pub finding: Option<LeakKind>,
}

/// How the answers of a page differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Not at all.
    Same,
    /// Even when one visitor asks twice.
    Noise,
    /// By something that is not known yet.
    Unexplained,
    /// By a cookie, by its place in the table of names.
    ByCookie(u32),
    /// By visitor: each sees the same again, and others do not see it.
    ByVisitor,
    /// They hold their visitor's own words.
    OwnWords(LeakKind),
}

/// What the answers of a page say of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CookieEffect {
    /// With it and without it the page is the same.
    Same,
    /// Time or chance would explain what was seen.
    Unclear,
    /// With it, one visitor sees another page; that is too few to be sure.
    Likely,
    /// With it, the page differs.
    Differs,
}
