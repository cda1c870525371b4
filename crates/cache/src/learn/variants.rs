//! The answers of one page by what its `Vary` says: those to requests that differ in it are not compared.

use anteroom_http::ident::PageKey;

use super::answer::{AnswerSeen, CookieEffect, CookieSet, Difference};
use super::compared::ComparedPage;
use super::text_parts::TextParts;
use crate::purge::PurgeSnapshot;

/// The most variants of a page whose answers are compared. Those of others are not.
const VARIANTS_MAX: usize = 4;

/// The answers of a page, by variant; `None`: the answer has no `Vary`.
#[derive(Clone, Debug, Default)]
pub(super) struct ComparedVariants(Vec<(Option<PageKey>, ComparedPage)>);

impl ComparedVariants {
    /// Whether a further answer would tell something. Which variant it is will be known from its head.
    pub(super) fn wants(&self, visitor: u64, cookies: CookieSet) -> bool {
        let varies = self.0.iter().any(|(variant, _)| variant.is_some());
        self.0.is_empty()
            || varies && self.0.len() < VARIANTS_MAX
            || self.0.iter().any(|(_, page)| page.wants(visitor, cookies))
    }

    /// Adds an answer of a variant. `marks`: which purges outdate it. `is_current`: whether no purge has.
    pub(super) fn add(
        &mut self,
        variant: Option<PageKey>,
        (answer, parts): (AnswerSeen, &TextParts),
        marks: &PurgeSnapshot,
        is_current: impl Fn(&PurgeSnapshot) -> bool,
    ) {
        let known = self.0.iter().position(|(key, _)| *key == variant);
        let place = known.unwrap_or(self.0.len());
        if place == VARIANTS_MAX {
            return;
        }
        if known.is_none() {
            self.0.push((variant, ComparedPage::default()));
        }
        self.0[place].1.add(answer, parts, marks, is_current);
    }

    /// Takes out the answers with a cookie whose place another one gets.
    pub(super) fn forget(&mut self, cookie: CookieSet) {
        self.0.iter_mut().for_each(|(_, page)| page.forget(cookie));
    }

    /// One hash of the first answer; `None`: there is none, or there are several variants.
    pub(super) fn content(&self) -> Option<u64> {
        match self.0.as_slice() {
            [(_, page)] => page.content(),
            _ => None,
        }
    }

    fn pages(&self) -> impl Iterator<Item = &ComparedPage> {
        self.0.iter().map(|(_, page)| page)
    }

    /// How many answers there are.
    pub(super) fn answers(&self) -> usize {
        self.pages().map(ComparedPage::answers).sum()
    }

    pub(super) fn parts(&self) -> usize {
        self.pages().map(ComparedPage::parts).sum()
    }

    /// Whether there are answers to two visitors to compare.
    pub(super) fn is_compared(&self) -> bool {
        let has_two = |page: &ComparedPage| {
            let first = page.visitors().next();
            page.visitors().any(|visitor| Some(visitor) != first)
        };
        self.pages().any(has_two)
    }

    /// How many visitors they are from.
    pub(super) fn visitors(&self) -> usize {
        let mut visitors: Vec<u64> = self.pages().flat_map(ComparedPage::visitors).collect();
        visitors.sort_unstable();
        visitors.dedup();
        visitors.len()
    }

    /// The worst difference among the answers of one variant. `None`: there is nothing to compare.
    pub(super) fn difference(&self) -> Option<Difference> {
        self.pages().filter_map(ComparedPage::difference).max()
    }

    /// The most that a variant says of a cookie.
    pub(super) fn effect(&self, cookie: u32) -> Option<CookieEffect> {
        self.pages().filter_map(|page| page.effect(cookie)).max()
    }
}
