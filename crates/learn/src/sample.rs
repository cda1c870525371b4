//! The answers of a page that are kept: few, and those that differ or may show why.

use std::collections::HashSet;

use anteroom_cache::purge::PurgeSnapshot;
use anteroom_cache::rules::leak_kind::LeakKind;

use crate::causes::{Causes, CookieSet, FIELDS};
use crate::changes::Changes;
use crate::evidence::{Label, labels, values};
use crate::pieces::AnswerPieces;

/// The most answers of a page that are kept.
pub(crate) const ANSWERS_MAX: usize = 48;
/// The most of one visitor.
const OF_ONE_MAX: usize = 4;
/// A value of a cause that fewer answers have is worth a further one.
const RARE: usize = 3;
/// Of how many answers it is found out whether a cause of theirs is rare, before one goes.
const RARE_LOOKS: usize = 8;
/// Of the answers that promise nothing new one of so many is looked at: what it depends on may be said by nothing.
const THINNED: u64 = 16;
/// The most answers that differ from each other in most of their pieces.
const FORMS_MAX: usize = 4;
/// The most places at which answers are compared.
const COLUMNS_MAX: usize = 96;
/// The most inserted pieces that are looked for in all answers.
const INSERTED_MAX: usize = 256;

/// What is known of an answer besides its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerSeen {
    /// Whose it is: a keyed hash.
    pub visitor: u64,
    /// How many cookies were known then that tell no visitors apart. An answer of another time is not compared.
    pub renewed_known: u32,
    /// What it may depend on.
    pub causes: Causes,
    /// Whether the visitor would get the page that others get, by the configuration in force.
    pub is_shared: bool,
    /// What of the visitor's own words stands in it.
    pub finding: Option<LeakKind>,
    /// When it was asked for, in Unix seconds.
    pub at: u64,
}

/// An answer that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) seen: AnswerSeen,
    /// Which of the forms it is like.
    form: usize,
    changes: Changes,
    /// What holds the visitor's own words.
    own: Vec<u32>,
}

/// The answers of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Answers that stand for those like them.
    forms: Vec<AnswerPieces>,
    /// In time.
    observations: Vec<Observation>,
    /// How often an answer that promised nothing was asked about.
    passed: u64,
    /// Which purges outdate the answers.
    marks: Option<PurgeSnapshot>,
}

impl Sample {
    /// Whether a further answer would tell something.
    pub(crate) fn wants(&mut self, visitor: u64, causes: &Causes) -> bool {
        let own = self.of(visitor);
        if own >= OF_ONE_MAX {
            return false;
        }
        if self.observations.len() < ANSWERS_MAX || own > 0 || self.has_rare(causes) {
            return true;
        }
        self.passed += 1;
        self.passed.is_multiple_of(THINNED)
    }

    fn of(&self, visitor: u64) -> usize {
        self.observations.iter().filter(|one| one.seen.visitor == visitor).count()
    }

    /// Whether a cause has a value that few answers have. A cause that has a value of its own with nearly each visitor
    /// does not count.
    fn has_rare(&self, causes: &Causes) -> bool {
        let is_rare = |value: &dyn Fn(&Causes) -> u32| {
            let own = value(causes);
            let all = || self.observations.iter().map(|one| value(&one.seen.causes));
            let is_rare = all().filter(|other| *other == own).nth(RARE - 1).is_none();
            is_rare && values(&labels(all().map(Some))) * 2 <= self.observations.len()
        };
        (0..FIELDS.len()).any(|field| is_rare(&|causes: &Causes| causes.fields[field]))
            || self.cookies(causes).any(|place| {
                is_rare(&|causes: &Causes| causes.cookie(place))
                    || is_rare(&|causes: &Causes| causes.cookie(place).min(1))
            })
    }

    /// The cookies of a request and of all answers.
    fn cookies(&self, causes: &Causes) -> impl Iterator<Item = u8> + use<> {
        let set = causes.cookie_set() | self.cookie_set();
        (0..CookieSet::BITS as u8).filter(move |place| set & 1 << place != 0)
    }

    /// The cookies that came.
    pub(crate) fn cookie_set(&self) -> CookieSet {
        self.observations.iter().fold(0, |set, one| set | one.seen.causes.cookie_set())
    }

    /// Adds an answer. `marks`: which purges outdate it. `is_current`: whether no purge has.
    pub(crate) fn add(
        &mut self,
        seen: AnswerSeen,
        pieces: &AnswerPieces,
        marks: &PurgeSnapshot,
        is_current: impl Fn(&PurgeSnapshot) -> bool,
    ) {
        if self.marks.as_ref().is_some_and(|marks| !is_current(marks)) {
            // A change of the page is no difference between visitors.
            *self = Self::default();
        }
        if self.of(seen.visitor) >= OF_ONE_MAX {
            return;
        }
        self.marks.get_or_insert_with(|| marks.clone());
        let (form, changes) = self.place(pieces);
        let own = pieces.own.clone();
        self.observations.push(Observation { seen, form, changes, own });
        if self.observations.len() > ANSWERS_MAX {
            let least = self.least();
            self.observations.remove(least);
        }
    }

    /// The form that an answer is like, and how it differs from it.
    fn place(&mut self, pieces: &AnswerPieces) -> (usize, Changes) {
        let alike = self.forms.iter().enumerate();
        let alike =
            alike.filter_map(|(form, first)| Some((form, Changes::between(first, pieces)?)));
        if let Some(found) = alike.min_by_key(|(_, changes)| changes.size()) {
            return found;
        }
        if self.forms.len() == FORMS_MAX {
            self.drop_unused_form();
        }
        if self.forms.len() < FORMS_MAX {
            // Where its pieces end is of no use here.
            self.forms.push(AnswerPieces { ends: Vec::new(), ..pieces.clone() });
        }
        let last = self.forms.len() - 1;
        let changes = Changes::between(&self.forms[last], pieces);
        (last, changes.unwrap_or_else(|| Changes::whole(&self.forms[last], pieces)))
    }

    /// Drops a form that no answer is like any more.
    fn drop_unused_form(&mut self) {
        let is_used = |form: usize| self.observations.iter().any(|one| one.form == form);
        let Some(unused) = (0..self.forms.len()).find(|form| !is_used(*form)) else { return };
        self.forms.remove(unused);
        self.observations.iter_mut().filter(|one| one.form > unused).for_each(|one| one.form -= 1);
    }

    /// The answer that says least: it is like many others, its visitor has no other one, and each of its causes has a
    /// value that others have, too. The first answer stays.
    fn least(&self) -> usize {
        let last = self.observations.len() - 1;
        let like = labels(self.observations.iter().map(|one| Some((one.form, &one.changes))));
        // A page that shows something else to each visitor has no answer that is like another.
        let is_varied = values(&like) * 2 >= like.len();
        let cost = |place: usize| {
            let others = like.iter().filter(|label| **label == like[place]).count();
            let is_last_of_kind = others == 1 && !is_varied;
            let returns = self.of(self.observations[place].seen.visitor) > 1;
            // Between two that show something else, it is what time does not explain.
            let next = like.get(place + 1).is_some_and(|next| *next != like[place]);
            let divides = next || like[place - 1] != like[place];
            (is_last_of_kind, returns, divides, usize::MAX - others)
        };
        // The newest goes first, so that the others are there when their visitors return.
        let mut places: Vec<usize> = (1..=last).rev().collect();
        places.sort_by_cached_key(|place| cost(*place));
        // PERF: whether a cause is rare is found out of few.
        let goes = |place: &&usize| !self.has_rare(&self.observations[**place].seen.causes);
        places
            .iter()
            .take(RARE_LOOKS)
            .find(goes)
            .or_else(|| places.first())
            .copied()
            .unwrap_or(last)
    }

    /// Takes out the answers with a cookie whose place another one gets.
    pub(crate) fn forget(&mut self, cookies: CookieSet) {
        self.observations.retain(|one| one.seen.causes.cookie_set() & cookies == 0);
    }

    /// What the answers show where they differ, one column for each place of the page, and one for those at which they
    /// show the same; and whether there are more such places than are compared.
    pub(crate) fn columns(&self) -> (Vec<Column>, bool) {
        let all = &self.observations;
        let mut columns = Columns::default();
        columns.add(labels(all.iter().map(|one| Some(one.changes.head))), None);
        columns.add(labels(all.iter().map(|one| Some(one.form))), None);
        for name in self.changed_fields() {
            columns.add(labels(all.iter().map(|one| Some(self.field(one, name)))), Some(name));
        }
        for form in 0..self.forms.len() {
            let of_form = |one: &Observation| one.form == form;
            for place in places(all.iter().filter(|one| of_form(one))) {
                let shown = |one: &Observation| of_form(one).then(|| one.changes.at(place));
                columns.add(labels(all.iter().map(shown)), None);
            }
        }
        for piece in self.inserted() {
            columns.add(labels(all.iter().map(|one| Some(self.has(one, piece)))), None);
        }
        (columns.columns, columns.is_crowded)
    }

    /// The pieces that some answers have and their form does not, in more than one answer.
    fn inserted(&self) -> Vec<u32> {
        let mut inserted: Vec<u32> =
            self.observations.iter().flat_map(|one| &one.changes.inserted).copied().collect();
        inserted.sort_unstable();
        let several = inserted.chunk_by(|one, other| one == other).filter(|run| run.len() > 1);
        several.map(|run| run[0]).take(INSERTED_MAX).collect()
    }

    fn changed_fields(&self) -> Vec<u32> {
        let changed = self.observations.iter().flat_map(|one| &one.changes.fields);
        let mut names: Vec<u32> = changed.map(|field| field.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn field(&self, one: &Observation, name: u32) -> u32 {
        let changed = one.changes.fields.iter().find(|field| field.name == name);
        let of_form = || self.forms[one.form].fields.iter().find(|field| field.name == name);
        changed.or_else(of_form).map_or(0, |field| field.value)
    }

    fn has(&self, one: &Observation, piece: u32) -> bool {
        let body = self.forms[one.form].body.iter().zip(0..);
        one.changes.has(piece, body.filter(|(own, _)| **own == piece).map(|(_, place)| place))
    }

    /// Whether what holds the visitor's own words stands in all these answers alike: a cookie's value may be a word of the
    /// page.
    pub(crate) fn is_for_all_visitors(&self, one: &Observation, among: &[usize]) -> bool {
        let has = |other: &Observation, hash: u32| {
            other.changes.head == hash
                || self.has(other, hash)
                || other.changes.fields.iter().any(|field| field.value == hash)
                || self.forms[other.form].fields.iter().any(|field| field.value == hash)
        };
        let is_alike = |hash: &u32| among.iter().all(|at| has(&self.observations[*at], *hash));
        !one.own.is_empty() && one.own.iter().all(is_alike)
    }

    pub(crate) fn observations(&self) -> &[Observation] {
        &self.observations
    }

    /// One hash of the first answer but for its fields; `None`: there is none.
    pub(crate) fn content(&self) -> Option<u64> {
        self.forms.first().map(AnswerPieces::digest)
    }

    /// The size in words of four bytes, about.
    pub(crate) fn size(&self) -> usize {
        let forms = self.forms.iter().map(|form| form.body.len() + 2 * form.fields.len());
        let of = |one: &Observation| {
            one.changes.size() + one.own.len() + 2 * one.seen.causes.cookies.len() + 16
        };
        forms.sum::<usize>() + self.observations.iter().map(of).sum::<usize>()
    }
}

/// The places where these answers differ from their form: one for each run in which all of them stay the same.
fn places<'o>(answers: impl Iterator<Item = &'o Observation>) -> Vec<u32> {
    let changes = answers.flat_map(|one| &one.changes.body);
    // Where a change begins or ends, another run begins; a gap is a run of its own.
    let edges = changes.flat_map(|change| {
        let (start, end) = (u32::from(change.at.start), u32::from(change.at.end));
        if start == end { [2 * start, 2 * start + 1] } else { [2 * start + 1, 2 * end] }
    });
    let mut places: Vec<u32> = edges.collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// What answers show at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// One for each answer.
    pub(crate) labels: Vec<Label>,
    /// The place is this field of the head.
    pub(crate) field: Option<u32>,
}

/// Fields of the head, by hashes of their names.
pub(crate) type FieldNames = HashSet<u32>;

/// Columns that differ, and in which something differs.
#[derive(Debug, Default)]
struct Columns {
    columns: Vec<Column>,
    /// Whether there were more.
    is_crowded: bool,
}

impl Columns {
    fn add(&mut self, labels: Vec<Label>, field: Option<u32>) {
        let column = Column { labels, field };
        if values(&column.labels) < 2 || self.columns.contains(&column) {
            return;
        }
        if self.columns.len() == COLUMNS_MAX {
            self.is_crowded = true;
            return;
        }
        self.columns.push(column);
    }
}
