//! The answers of one page by what its `Vary` says: those to requests that differ in it are not compared.

use anteroom_http::ident::PageKey;

use anteroom_cache::purge::PurgeSnapshot;

use crate::causes::{Cause, Causes, CookieSet, RequestField};
use crate::judgement::{CookieEffect, Difference, Judgement};
use crate::pieces::AnswerPieces;
use crate::sample::{AnswerSeen, FieldNames, Observation, Sample};

/// The most variants of a page whose answers are compared. Those of others are not.
const VARIANTS_MAX: usize = 4;

/// The answers of a page, by variant; `None`: the answer has no `Vary`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComparedVariants(Vec<(Option<PageKey>, Sample)>);

impl ComparedVariants {
    /// Whether a further answer would tell something. Which variant it is will be known from its head.
    pub(crate) fn wants(&mut self, visitor: u64, causes: &Causes) -> bool {
        let varies = self.0.iter().any(|(variant, _)| variant.is_some());
        let has_place = self.0.is_empty() || varies && self.0.len() < VARIANTS_MAX;
        // Each one counts what it passes.
        let wanted =
            self.0.iter_mut().filter_map(|(_, sample)| sample.wants(visitor, causes).then_some(()));
        wanted.count() > 0 || has_place
    }

    /// Adds an answer of a variant. `marks`: which purges outdate it. `is_current`: whether no purge has.
    pub(crate) fn add(
        &mut self,
        variant: Option<PageKey>,
        seen: AnswerSeen,
        pieces: &AnswerPieces,
        marks: &PurgeSnapshot,
        is_current: impl Fn(&PurgeSnapshot) -> bool,
    ) {
        let known = self.0.iter().position(|(key, _)| *key == variant);
        let place = known.unwrap_or(self.0.len());
        if place == VARIANTS_MAX {
            return;
        }
        if known.is_none() {
            self.0.push((variant, Sample::default()));
        }
        self.0[place].1.add(seen, pieces, marks, is_current);
    }

    /// Takes out the answers with a cookie whose place another one gets.
    pub(crate) fn forget(&mut self, cookie: CookieSet) {
        self.samples_mut().for_each(|sample| sample.forget(cookie));
    }

    /// One hash of the first answer; `None`: there is none, or there are several variants.
    pub(crate) fn content(&self) -> Option<u64> {
        match self.0.as_slice() {
            [(_, sample)] => sample.content(),
            _ => None,
        }
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter().map(|(_, sample)| sample)
    }

    fn samples_mut(&mut self) -> impl Iterator<Item = &mut Sample> {
        self.0.iter_mut().map(|(_, sample)| sample)
    }

    /// How many answers there are.
    pub(crate) fn answers(&self) -> usize {
        self.samples().map(|sample| sample.observations().len()).sum()
    }

    /// The size in words of four bytes, about.
    pub(crate) fn size(&self) -> usize {
        self.samples().map(Sample::size).sum()
    }

    /// How many visitors the answers that `counts` are from, of the variant that has most.
    pub(crate) fn visitors(&self, counts: impl Fn(&Observation) -> bool) -> usize {
        let visitors = |sample: &Sample| {
            let answers = sample.observations().iter().filter(|one| counts(one));
            let mut visitors: Vec<u64> = answers.map(|one| one.seen.visitor).collect();
            visitors.sort_unstable();
            visitors.dedup();
            visitors.len()
        };
        self.samples().map(visitors).max().unwrap_or(0)
    }

    /// The worst difference among the answers of one variant that `counts`, but for what the causes explain that are part
    /// of the key. `None`: there is nothing to compare.
    pub(crate) fn difference(
        &self,
        counts: impl Fn(&Observation) -> bool,
        keyed: &[Cause],
        noisy: &FieldNames,
    ) -> Option<Difference> {
        let difference = |sample| Judgement::of(sample, &counts, noisy).difference_beside(keyed);
        self.samples().filter_map(difference).max()
    }

    /// The field of the request that explains a difference among all answers, those that are not shared, too.
    pub(crate) fn field(&self, noisy: &FieldNames) -> Option<RequestField> {
        self.samples().find_map(|sample| Judgement::of(sample, |_| true, noisy).field())
    }

    /// What the variants say of each cookie that came, the most of each. `known`: cookies on which pages are known to depend.
    pub(crate) fn effects(&self, known: CookieSet, noisy: &FieldNames) -> Vec<(u8, CookieEffect)> {
        let of = |sample| Judgement::of(sample, |_| true, noisy).effects(known);
        let mut effects: Vec<(u8, CookieEffect)> = self.samples().flat_map(of).collect();
        effects.sort_unstable_by(|a, b| b.cmp(a));
        effects.dedup_by_key(|(place, _)| *place);
        effects
    }

    /// The fields of the head that are known to differ each time, and those that something explains.
    pub(crate) fn fields(&self) -> (FieldNames, FieldNames) {
        self.samples().map(Judgement::fields).fold(
            Default::default(),
            |mut all: (FieldNames, FieldNames), own| {
                all.0.extend(own.0);
                all.1.extend(own.1);
                all
            },
        )
    }
}
