//! What the answers of a page show: whether they differ, and by what.
//!
//! A cause explains a place of the page if equal values of it come with equal answers, again and again. Of two that do,
//! the coarser one explains it: a session has one value for each visitor and so explains everything. Where two causes
//! cannot be told apart, because they always change together, both are named, and neither is believed.

use anteroom_cache::rules::leak_kind::LeakKind;

use crate::causes::{Cause, Causes, CookieSet, FIELDS, RequestField};
use crate::evidence::{Label, Spans, is_passing, labels, refines, values};
use crate::sample::{Column, FieldNames, Observation, Sample};

/// The probability, at all places of a page together, that a visitor is taken for the cause by chance. Two visitors who
/// see a thing of their own twice, with the other between, are just enough.
const VISITOR_CHANCE: f64 = 0.03;
/// The same for another cause. There are many, and each is tried.
const CAUSE_CHANCE: f64 = 0.001;
/// A cause is suspected below this probability.
const SUSPECT_CHANCE: f64 = 0.05;
/// Above this probability, a visitor is no cause.
const NO_CAUSE_CHANCE: f64 = 0.1;
/// How many visitors must have seen something else when they asked again.
const NOISE_VISITORS: u32 = 2;
/// How many changes that takes: one may be an edit.
const NOISE_CHANGES: usize = 2;
/// How soon, in seconds: what belongs to a visitor may change, too, but seldom within minutes.
const SOON: u64 = 600;

/// How often a place must have changed for all visitors at once to be a clock. A country may have its hours, too, but not
/// so many.
const CLOCK_TIMES: usize = 4;

/// How the answers of a page differ, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// Not at all.
    Same,
    /// Even when one visitor asks twice.
    Noise,
    /// In a way that time and chance explain as well as a cause.
    Undecided(MissingEvidence),
    /// By something that is not known.
    Unexplained,
    /// By several causes, or by one of several that come together.
    SeveralCauses,
    /// By a field of the request.
    ByField(RequestField),
    /// By a cookie, by its place in the table of names.
    ByCookie(u8),
    /// By visitor: each sees the same again, and others do not see it.
    ByVisitor,
    /// They hold their visitor's own words.
    OwnWords(LeakKind),
}

/// What a decision lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MissingEvidence {
    /// More answers to visitors who ask again.
    Answers,
    /// A visitor who asks again.
    Return,
}

impl MissingEvidence {
    /// The same in words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Return => "a visitor who asks for it again",
            Self::Answers => "more answers to visitors who ask for it again",
        }
    }
}

/// What the answers of a page say of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CookieEffect {
    /// The cookie came in one form: with it and without it the page is the same.
    SameWithout,
    /// With different values the page is the same.
    Same,
    /// Time or chance would explain what was seen.
    Unclear,
    /// The same, and no visitor has asked again.
    Unreturned,
    /// It would explain a difference, and so would chance.
    Possible,
    /// It may be the cause of a difference that is not explained.
    Suspect,
    /// It has to do with a difference, which is no chance.
    Involved,
    /// The page differs by it.
    Differs,
}

/// What explains the difference at a place of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Explanation {
    Noise,
    Undecided(MissingEvidence),
    /// It is no chance: these causes have to do with it, and do not explain it.
    Unknown(Vec<Cause>),
    Visitor,
    /// One cause, or several that cannot be told apart.
    Causes(Vec<Cause>),
}

/// A possible cause: the values of the requests.
#[derive(Clone, Debug)]
struct Factor {
    /// `None`: everything that is known of the visitor.
    cause: Option<Cause>,
    values: Vec<Label>,
    /// Whether nearly each visitor has a value of its own.
    is_own: bool,
}

impl Factor {
    /// Its spans at a place of the page.
    fn spans(&self, shown: &[Label]) -> Spans {
        Spans::of(shown, &within_times(shown, &self.values))
    }
}

/// Answers of a page, side by side.
#[derive(Debug)]
pub(crate) struct Judgement<'s> {
    sample: &'s Sample,
    /// The answers, by their places in the sample.
    among: Vec<usize>,
    columns: Vec<Vec<Label>>,
    factors: Vec<Factor>,
    explanations: Vec<Explanation>,
    /// Whether there are more places than are compared.
    is_crowded: bool,
}

impl<'s> Judgement<'s> {
    /// Compares the answers that `counts`.
    /// `noisy`: fields of the head that are known to differ each time.
    pub(crate) fn of(
        sample: &'s Sample,
        counts: impl Fn(&Observation) -> bool,
        noisy: &FieldNames,
    ) -> Self {
        let all = sample.observations();
        let among: Vec<usize> = (0..all.len()).filter(|at| counts(&all[*at])).collect();
        let has_finding = among.iter().any(|at| all[*at].seen.finding.is_some());
        let mut columns: Vec<Column> = Vec::new();
        let (all_columns, is_crowded) = sample.columns();
        for column in all_columns {
            let labels = labels(among.iter().map(|at| column.labels[*at]));
            // A field that is another each time is the number of the request, or a clock: no page is different by it.
            let is_number = !has_finding && column.field.is_some_and(|name| noisy.contains(&name));
            let column = Column { labels, field: column.field };
            if values(&column.labels) > 1 && !is_number && !columns.contains(&column) {
                columns.push(column);
            }
        }
        let factors = if columns.is_empty() { Vec::new() } else { factors(sample, &among) };
        let places = columns.len();
        let times: Vec<u64> = among.iter().map(|at| all[*at].seen.at).collect();
        let explained = columns.into_iter().filter_map(|Column { labels, field }| {
            let explanation = explain(&labels, &factors, places, &times);
            let matters = field.is_none() || has_finding || explanation != Explanation::Noise;
            matters.then_some((labels, explanation))
        });
        let (columns, explanations) = explained.unzip();
        let mut judgement = Self { sample, among, columns, factors, explanations, is_crowded };
        judgement.explain_the_rest();
        judgement.explain_by_time();
        judgement
    }

    /// Where a place changed again and again for all visitors at once, time explains it, and what changed with it.
    fn explain_by_time(&mut self) {
        let Some(visitors) = self.factors.first().map(|factor| &factor.values) else { return };
        let clocks: Vec<&Vec<Label>> =
            self.columns.iter().filter(|column| is_clock(column, visitors)).collect();
        for (column, explanation) in self.columns.iter().zip(&mut self.explanations) {
            let is_undecided = matches!(explanation, Explanation::Undecided(_));
            if is_undecided && clocks.iter().any(|clock| refines(clock, column)) {
                *explanation = Explanation::Noise;
            }
        }
    }

    /// A cause that explains one place of the page also explains another one at which no value of it shows two things,
    /// though that alone would be no evidence. Of several, the one counts that there is most evidence for.
    fn explain_the_rest(&mut self) {
        let mut believed: Vec<(f64, &Factor)> = Vec::new();
        for (column, explanation) in self.columns.iter().zip(&self.explanations) {
            let Explanation::Causes(causes) = explanation else { continue };
            let [cause] = causes.as_slice() else { continue };
            for factor in self.factors.iter().filter(|factor| factor.cause == Some(*cause)) {
                let spans = factor.spans(column);
                if spans.differ == 0 {
                    believed.push((spans.chance(), factor));
                }
            }
        }
        believed.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (column, explanation) in self.columns.iter().zip(&mut self.explanations) {
            if matches!(explanation, Explanation::Noise | Explanation::Unknown(_)) {
                continue;
            }
            // Whatever was there before and after a change: it must hold for the page as a whole.
            let holds = |factor: &Factor| Spans::of(column, &factor.values).differ == 0;
            let best = believed.iter().find(|(_, factor)| holds(factor));
            if let Some(cause) = best.and_then(|(_, factor)| factor.cause) {
                *explanation = Explanation::Causes(vec![cause]);
            }
        }
    }

    fn answers(&self) -> impl Iterator<Item = &'s Observation> {
        let all = self.sample.observations();
        self.among.iter().map(move |at| &all[*at])
    }

    /// How many visitors the answers are from.
    pub(crate) fn visitors(&self) -> usize {
        let mut visitors: Vec<u64> = self.answers().map(|one| one.seen.visitor).collect();
        visitors.sort_unstable();
        visitors.dedup();
        visitors.len()
    }

    /// How the answers differ, but for what these causes explain: they are part of the page's key. `None`: there are not two
    /// visitors to compare, and nothing was found.
    pub(crate) fn difference_beside(&self, keyed: &[Cause]) -> Option<Difference> {
        let of_many = self.visitors() > 1;
        let found = self.answers().find_map(|one| {
            let is_own = !of_many || !self.sample.is_for_all_visitors(one, &self.among);
            one.seen.finding.filter(|_| is_own)
        });
        let differs = !self.columns.is_empty() || self.is_crowded;
        if let Some(found) = found.filter(|_| !of_many || differs) {
            return Some(Difference::OwnWords(found));
        }
        let is_keyed = |explanation: &&Explanation| match explanation {
            Explanation::Causes(causes) => {
                matches!(causes.as_slice(), [one] if keyed.contains(one))
            }
            _ => false,
        };
        let left = self.explanations.iter().filter(|one| !is_keyed(one));
        let crowded = self.is_crowded.then_some(Difference::Undecided(MissingEvidence::Answers));
        let worst = left.map(Self::difference_of).max().max(crowded);
        let mut causes = self.causes();
        causes.retain(|cause| !keyed.contains(cause));
        if worst.is_none() {
            return of_many.then_some(Difference::Same);
        }
        match worst {
            // Places that differ by one cause each differ by several.
            Some(Difference::ByCookie(_) | Difference::ByField(_)) if causes.len() > 1 => {
                Some(Difference::SeveralCauses)
            }
            worst => worst,
        }
    }

    /// The fields of the head that visitors see another value of when they ask again, and those that something explains.
    pub(crate) fn fields(sample: &Sample) -> (FieldNames, FieldNames) {
        let (columns, _) = sample.columns();
        let mut found = (FieldNames::new(), FieldNames::new());
        if columns.iter().all(|column| column.field.is_none()) {
            return found;
        }
        let all: Vec<usize> = (0..sample.observations().len()).collect();
        let times: Vec<u64> = sample.observations().iter().map(|one| one.seen.at).collect();
        let factors = factors(sample, &all);
        for column in columns.iter() {
            let Some(name) = column.field else { continue };
            match explain(&column.labels, &factors, columns.len(), &times) {
                Explanation::Noise => drop(found.0.insert(name)),
                Explanation::Undecided(_) => {}
                Explanation::Causes(_) | Explanation::Visitor | Explanation::Unknown(_) => {
                    found.1.insert(name);
                }
            }
        }
        found
    }

    /// The field of the request that explains a place by itself.
    pub(crate) fn field(&self) -> Option<RequestField> {
        self.explanations.iter().find_map(|explanation| match Self::difference_of(explanation) {
            Difference::ByField(field) => Some(field),
            _ => None,
        })
    }

    fn difference_of(explanation: &Explanation) -> Difference {
        match explanation {
            Explanation::Noise => Difference::Noise,
            Explanation::Undecided(missing) => Difference::Undecided(*missing),
            Explanation::Unknown(_) => Difference::Unexplained,
            Explanation::Visitor => Difference::ByVisitor,
            Explanation::Causes(causes) => match causes.as_slice() {
                [Cause::Cookie(place)] => Difference::ByCookie(*place),
                [Cause::Field(field)] => Difference::ByField(*field),
                _ => Difference::SeveralCauses,
            },
        }
    }

    /// The causes that explain a place, each once.
    fn causes(&self) -> Vec<Cause> {
        let of = |explanation: &Explanation| match explanation {
            Explanation::Causes(causes) => causes.clone(),
            _ => Vec::new(),
        };
        let mut causes: Vec<Cause> = self.explanations.iter().flat_map(of).collect();
        causes.sort_unstable();
        causes.dedup();
        causes
    }

    /// What the answers say of each cookie that came. `known`: the cookies on which pages are known to depend; where one of
    /// them is as likely a cause, no other one is suspected.
    pub(crate) fn effects(&self, known: CookieSet) -> Vec<(u8, CookieEffect)> {
        let came = self.answers().fold(0, |set, one| set | one.seen.causes.cookie_set());
        let came = (0..CookieSet::BITS as u8).filter(|place| came & 1 << place != 0);
        came.filter_map(|place| Some((place, self.effect(place, known)?))).collect()
    }

    fn effect(&self, place: u8, known: CookieSet) -> Option<CookieEffect> {
        let cookie = Cause::Cookie(place);
        let blamed = self.columns.iter().zip(&self.explanations);
        let blamed = blamed.filter_map(|(column, explanation)| match explanation {
            Explanation::Noise => None,
            Explanation::Causes(causes) if *causes == [cookie] => Some(CookieEffect::Differs),
            Explanation::Causes(causes) | Explanation::Unknown(causes)
                if !causes.is_empty() && !causes.contains(&cookie) =>
            {
                None
            }
            Explanation::Causes(_)
            | Explanation::Visitor
            | Explanation::Unknown(_)
            | Explanation::Undecided(MissingEvidence::Answers) => {
                self.suspicion(place, column, known)
            }
            Explanation::Undecided(MissingEvidence::Return) => self
                .suspicion(place, column, known)
                .map(|found| found.max(CookieEffect::Unreturned)),
        });
        blamed.max().or_else(|| self.sameness(place))
    }

    /// Whether a cookie may be the cause at a place that is not explained. `None`: it has one value.
    fn suspicion(&self, place: u8, column: &[Label], known: CookieSet) -> Option<CookieEffect> {
        let spans_of = |place: u8| {
            let is_of = move |factor: &&Factor| factor.cause == Some(Cause::Cookie(place));
            self.factors.iter().filter(is_of).map(|factor| factor.spans(column))
        };
        let mut own = spans_of(place).peekable();
        own.peek()?;
        let places = self.columns.len() as f64;
        let suspects = own.filter(|spans| {
            spans.spans > 0 && (spans.differ == 0 || spans.chance() * places < CAUSE_CHANCE)
        });
        let Some(chance) = suspects.map(|spans| spans.chance()).reduce(f64::min) else {
            return Some(CookieEffect::Unclear);
        };
        let others =
            (0..CookieSet::BITS as u8).filter(|other| known & 1 << other != 0 && *other != place);
        let is_known = others.flat_map(spans_of).any(|spans| spans.chance() <= chance);
        Some(match chance * places {
            _ if is_known => CookieEffect::Unclear,
            chance if chance < CAUSE_CHANCE => CookieEffect::Involved,
            chance if chance < SUSPECT_CHANCE => CookieEffect::Suspect,
            _ => CookieEffect::Possible,
        })
    }

    /// Whether the page was the same with different values of a cookie, the causes that explain something held fixed.
    fn sameness(&self, place: u8) -> Option<CookieEffect> {
        let fixed: Vec<&Factor> = self.fixed();
        let held = |at: usize| fixed.iter().map(|factor| factor.values[at]).collect::<Vec<_>>();
        let groups = labels((0..self.among.len()).map(|at| Some(held(at))));
        let values: Vec<u32> = self.answers().map(|one| one.seen.causes.cookie(place)).collect();
        let differing = |is_one: &dyn Fn(u32) -> bool| {
            let pairs = groups.iter().zip(&values).filter(|(_, value)| is_one(**value));
            let mut first: Vec<(Label, u32)> = Vec::new();
            pairs.into_iter().any(|(group, value)| {
                match first.iter().find(|(known, _)| known == group) {
                    Some((_, known)) => known != value,
                    None => {
                        first.push((*group, *value));
                        false
                    }
                }
            })
        };
        match (differing(&|value| value != 0), differing(&|_| true)) {
            (true, _) => Some(CookieEffect::Same),
            (false, true) => Some(CookieEffect::SameWithout),
            (false, false) => None,
        }
    }

    fn fixed(&self) -> Vec<&Factor> {
        let causes = self.causes();
        let explains = |factor: &&Factor| factor.cause.is_some_and(|cause| causes.contains(&cause));
        self.factors.iter().filter(explains).collect()
    }
}

/// The possible causes that have several values among these answers. The visitor is the first.
fn factors(sample: &Sample, among: &[usize]) -> Vec<Factor> {
    let all = sample.observations();
    let answers = || among.iter().map(|at| &all[*at].seen);
    let visitors = labels(answers().map(|seen| Some(seen.visitor)));
    let count = values(&visitors);
    let mut factors = vec![Factor { cause: None, values: visitors, is_own: true }];
    let mut add = |cause: Cause, value: &dyn Fn(&Causes) -> u32| {
        let labels = labels(answers().map(|seen| Some(value(&seen.causes))));
        let values = values(&labels);
        if values > 1 {
            factors.push(Factor { cause: Some(cause), values: labels, is_own: values * 2 > count });
        }
    };
    for (at, field) in FIELDS.into_iter().enumerate() {
        add(Cause::Field(field), &|causes| causes.fields[at]);
    }
    let cookies = sample.cookie_set();
    for place in (0..CookieSet::BITS as u8).filter(|place| cookies & 1 << place != 0) {
        add(Cause::Cookie(place), &|causes| causes.cookie(place));
        add(Cause::Cookie(place), &|causes| causes.cookie(place).min(1));
    }
    factors
}

/// What explains a place of the page. `places`: how many there are; at one of many, chance does more.
fn explain(shown: &[Label], factors: &[Factor], places: usize, times: &[u64]) -> Explanation {
    let places = places as f64;
    let (mut explaining, mut concerned): (Vec<&Factor>, Vec<&Factor>) = Default::default();
    for factor in factors {
        let spans = factor.spans(shown);
        let most = if factor.cause.is_none() { VISITOR_CHANCE } else { CAUSE_CHANCE };
        if spans.chance() * places < most {
            concerned.push(factor);
            if spans.differ == 0 {
                explaining.push(factor);
            }
        }
    }
    match (coarsest(&explaining), concerned.is_empty()) {
        (Some(explanation), _) => explanation,
        (None, false) => Explanation::Unknown(causes_of(&concerned)),
        (None, true) => without_cause(shown, &factors[0].values, times),
    }
}

/// Of the causes that explain a place, those that no coarser one makes needless.
fn coarsest(explaining: &[&Factor]) -> Option<Explanation> {
    let is_needless = |factor: &&Factor| {
        explaining.iter().any(|other| {
            refines(&factor.values, &other.values) && !refines(&other.values, &factor.values)
        })
    };
    let left: Vec<&Factor> =
        explaining.iter().filter(|factor| !is_needless(factor)).copied().collect();
    let causes = causes_of(&left);
    match (left.is_empty(), causes.len()) {
        (true, _) => None,
        (false, 0) => Some(Explanation::Visitor),
        // Several that all have a value of their own for each visitor are the visitor.
        (false, _) if left.len() > 1 && left.iter().all(|factor| factor.is_own) => {
            Some(Explanation::Visitor)
        }
        (false, _) => Some(Explanation::Causes(causes)),
    }
}

/// The causes of these, each once.
fn causes_of(factors: &[&Factor]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = factors.iter().filter_map(|factor| factor.cause).collect();
    causes.sort_unstable();
    causes.dedup();
    causes
}

/// Whether several visitors saw each of the values.
fn is_of_several(shown: &[Label], visitors: &[Label]) -> bool {
    let saw = |label: &Label| {
        let pairs = shown.iter().zip(visitors).filter(|(shown, _)| *shown == label);
        values(&pairs.map(|(_, visitor)| *visitor).collect::<Vec<_>>()) > 1
    };
    shown.iter().all(saw)
}

/// Whether each value was there for one time only, several visitors saw it, and there were many.
fn is_clock(shown: &[Label], visitors: &[Label]) -> bool {
    is_passing(shown) && values(shown) >= CLOCK_TIMES && is_of_several(shown, visitors)
}

/// What is said of a place that no cause explains: noise, if visitors see another thing when they ask again.
fn without_cause(shown: &[Label], visitors: &[Label], times: &[u64]) -> Explanation {
    let again = Spans::of(shown, visitors);
    // A change of the page: others have seen what was there before, or what is there now.
    let is_change = is_passing(shown) && values(shown) * 2 <= values(visitors);
    if is_change && again.differ > 0
        || changes_for_one(shown, visitors, times) >= NOISE_CHANGES
            && again.differing >= NOISE_VISITORS
            && again.chance() >= NO_CAUSE_CHANCE
    {
        return Explanation::Noise;
    }
    Explanation::Undecided(match again.differ + again.spans {
        0 => MissingEvidence::Return,
        _ => MissingEvidence::Answers,
    })
}

/// How often visitors saw another thing when they asked again soon, counted so that one change of the page counts once: of
/// the spans of time between two answers, the most that have nothing in common.
fn changes_for_one(shown: &[Label], visitors: &[Label], times: &[u64]) -> usize {
    let mut last: [Option<usize>; 256] = [None; 256];
    // The last answer before the changes that are counted.
    let (mut count, mut from) = (0, 0);
    for (place, visitor) in visitors.iter().enumerate() {
        let Some(before) = visitor.and_then(|visitor| last[usize::from(visitor)].replace(place))
        else {
            continue;
        };
        let is_soon = times[place].saturating_sub(times[before]) <= SOON;
        if before >= from && is_soon && shown[before] != shown[place] {
            (count, from) = (count + 1, place);
        }
    }
    count
}

/// The values of a cause, told apart by the times between which nothing that was shown returns: what the page showed
/// before a change is not compared with what it shows after.
fn within_times(shown: &[Label], values: &[Label]) -> Vec<Label> {
    let mut last = [0; 256];
    for (at, label) in shown.iter().enumerate() {
        if let Some(label) = label {
            last[usize::from(*label)] = at;
        }
    }
    let (mut time, mut ends) = (0, 0);
    let timed = shown.iter().zip(values).enumerate().map(|(at, (label, value))| {
        if at > ends {
            time += 1;
            ends = at;
        }
        if let Some(label) = label {
            ends = ends.max(last[usize::from(*label)]);
        }
        Some((time, (*value)?))
    });
    labels(timed)
}

#[cfg(test)]
mod tests;
