//! Parameters of a query that change from request to request, and nothing of the answer: each request asks for another
//! page, and none of them hits.

use std::collections::{BTreeMap, HashMap};

use crate::report::Proposal;
use crate::state::{LearnedPage, LearnedState};

/// From how many addresses of a path on its parameters are looked at.
const ADDRESSES_MIN: usize = 20;
/// How many addresses become one page, on average, without a parameter that is proposed.
const MERGED_MIN: usize = 2;
/// Addresses with the same value of it come within one of so many parts of the time, on average.
const FLEETING_PART: u64 = 10;
/// The most names of a path that are looked at, the most frequent ones: a client may send any.
const NAMES_MAX: usize = 16;
/// The most paths that are proposed.
const PATHS_MAX: usize = 20;

/// A part of a query that may change for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part<'p> {
    Named(&'p str),
    Unnamed,
}

/// The lines that follow, by path.
pub(crate) fn proposals(learned: &LearnedState) -> impl Iterator<Item = Proposal> {
    let mut paths: BTreeMap<(&str, &str), Vec<&LearnedPage>> = BTreeMap::new();
    for page in learned.pages.values().filter(|page| page.simulated.may_be_stored()) {
        paths.entry((&page.name.path, &page.name.host)).or_default().push(page);
    }
    let mut last = None;
    let told = paths.into_iter().filter(|((path, _), _)| is_literal(path));
    let told = told.filter_map(|((path, _), pages)| Some((path, proposal(path, &pages)?)));
    let once = told.filter(move |(path, _)| last.replace(*path) != Some(*path));
    let proposals: Vec<Proposal> = once.map(|(_, proposal)| proposal).take(PATHS_MAX).collect();
    proposals.into_iter()
}

/// The line for a path, of which these are all pages.
fn proposal(path: &str, pages: &[&LearnedPage]) -> Option<Proposal> {
    if pages.len() < ADDRESSES_MIN {
        return None;
    }
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for name in pages.iter().flat_map(|page| &page.name.parameters) {
        *names.entry(name).or_default() += 1;
    }
    // What has no name is left out by naming the others, so they must be few.
    let rest = (names.len() <= NAMES_MAX && names.keys().all(|name| is_literal(name)))
        .then_some(Part::Unnamed);
    let mut frequent: Vec<(usize, &str)> =
        names.iter().map(|(name, pages)| (*pages, *name)).collect();
    frequent.retain(|(pages, name)| *pages >= ADDRESSES_MIN && is_literal(name));
    frequent.sort_unstable_by(|a, b| b.cmp(a));
    let frequent = frequent.into_iter().take(NAMES_MAX).map(|(_, name)| Part::Named(name));
    let idle = idle(&frequent.chain(rest).collect::<Vec<_>>(), pages);
    let has_idle_rest = idle.contains(&Part::Unnamed);
    let (idle, kept): (Vec<&str>, Vec<&str>) =
        names.into_keys().partition(|name| idle.contains(&Part::Named(name)));
    let quoted = |names: &[&str]| {
        names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    };
    let (what, line) = match (has_idle_rest, idle.is_empty(), kept.is_empty()) {
        (false, true, _) => return None,
        (false, false, _) => (idle.join(", "), format!("ignore_query = [{}]", quoted(&idle))),
        (true, _, true) => ("its query".to_owned(), "ignore_query = [\"*\"]".to_owned()),
        (true, _, false) => {
            let more: String = idle.iter().map(|name| format!(", and by {name}")).collect();
            let what = format!("what has no name in the query{more}");
            (what, format!("keep_query = [{}]", quoted(&kept)))
        }
    };
    let lines = ["[[route]]".to_owned(), format!("match.path = {path:?}"), line];
    Some(Proposal {
        reason: format!(
            "{path}: {} addresses that differ by {what} were answered the same; without it they hit, and the app \
             does not see it",
            pages.len()
        ),
        // What the app does with it besides its answer, such as counting, is not seen here.
        toml: lines.map(|line| format!("# {line}")).join("\n"),
        route: None,
    })
}

/// Whether a path or a name stands for itself in a pattern.
fn is_literal(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./~%".contains(c))
}

/// The parts that change for nothing: each alone, or else all of them together.
fn idle<'p>(all: &[Part<'p>], pages: &[&'p LearnedPage]) -> Vec<Part<'p>> {
    let fleeting: Vec<_> = all.iter().copied().filter(|part| is_fleeting(*part, pages)).collect();
    let alone: Vec<_> = fleeting.iter().copied().filter(|part| is_idle(&[*part], pages)).collect();
    match alone.is_empty() {
        true if is_idle(&fleeting, pages) => fleeting,
        _ => alone,
    }
}

/// Whether the values of this part do not return: what has the same one is asked for within a part of the time. A time
/// and the id of a click are so. The name of a page is not, and may count for the app even where the answers are the
/// same.
fn is_fleeting(part: Part<'_>, pages: &[&LearnedPage]) -> bool {
    let mut all = Span::default();
    let mut by_value: HashMap<u32, Span> = HashMap::new();
    for page in pages {
        let (first, last) = page.asked;
        all.add(first, last);
        if let Some((_, value)) = parts(page).into_iter().find(|(own, _)| *own == part) {
            by_value.entry(value).or_default().add(first, last);
        }
    }
    let spans: u64 = by_value.values().map(|span| span.seconds() * span.addresses).sum();
    let addresses: u64 = by_value.values().map(|span| span.addresses).sum();
    addresses > 0 && spans * FLEETING_PART <= all.seconds() * addresses
}

/// The time in which addresses were asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    times: Option<(u64, u64)>,
    addresses: u64,
}

impl Span {
    fn add(&mut self, first: u64, last: u64) {
        let (begin, end) = self.times.unwrap_or((first, last));
        self.times = Some((begin.min(first), end.max(last)));
        self.addresses += 1;
    }

    fn seconds(&self) -> u64 {
        self.times.map_or(0, |(begin, end)| end - begin)
    }
}

/// Whether the pages are few without these parts of their queries, and those that become one are the same.
fn is_idle(left_out: &[Part<'_>], pages: &[&LearnedPage]) -> bool {
    let mut merged: HashMap<Vec<(Part<'_>, u32)>, u64> = HashMap::new();
    let mut addresses = 0;
    for page in pages {
        let (without, kept): (Vec<_>, Vec<_>) =
            parts(page).into_iter().partition(|(part, _)| left_out.contains(part));
        let (false, Some(content)) = (without.is_empty(), page.compared.content()) else {
            continue;
        };
        addresses += 1;
        if *merged.entry(kept).or_insert(content) != content {
            return false;
        }
    }
    addresses >= ADDRESSES_MIN && merged.len() * MERGED_MIN <= addresses
}

/// The parts of a page's query, in one order.
fn parts(page: &LearnedPage) -> Vec<(Part<'_>, u32)> {
    let (names, values) = (&page.name.parameters, &page.name.values);
    let named = names.iter().map(|name| Part::Named(name)).zip(values.named.iter().copied());
    let mut parts: Vec<_> = named.collect();
    parts.extend(values.unnamed.map(|value| (Part::Unnamed, value)));
    parts.sort_unstable();
    parts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::http::HeaderMap;
    use ahash::RandomState;
    use anteroom_cache::purge::PurgeSnapshot;
    use anteroom_cache::rules::key::digest;
    use anteroom_telemetry::shown_path::parameter_names;

    use super::*;
    use crate::{
        AnswerPieces, AnswerSeen, AnswerText, Causes, ComparedAnswer, Learning, PageName,
        PageRequest, PredictedOutcome, QueryValues, Report, ReportContext,
    };

    /// The lines that follow where each of these addresses of `/image` was asked for once, and answered so.
    fn proposed(answers: impl IntoIterator<Item = (String, String)>) -> Vec<Proposal> {
        let learning = Learning::default();
        let route = Arc::from("default");
        for (visitor, (query, body)) in (0..).zip(answers) {
            let key = digest(query.as_bytes());
            let now = 1_700_000_000 + 60 * visitor;
            let causes = Causes::default();
            let request = PageRequest {
                key,
                route: &route,
                is_for_all: false,
                visitor,
                causes: Some(&causes),
                now,
            };
            let name = |key: &RandomState| {
                let parameters = parameter_names(Some(&query));
                let values = QueryValues::of(key, Some(&query), &parameters);
                PageName { host: String::new(), path: "/image".to_owned(), parameters, values }
            };
            learning.asked(&request, PredictedOutcome::Fetch { is_seen: true }, name, Clone::clone);
            let answer = AnswerSeen {
                visitor,
                renewed_known: 0,
                causes: Causes::default(),
                is_shared: true,
                finding: None,
                at: 0,
            };
            let text = AnswerText {
                head: b"200",
                fields: &HeaderMap::new(),
                body: body.as_bytes(),
                is_text: false,
                now: 0,
            };
            let compared = ComparedAnswer {
                answer,
                pieces: &AnswerPieces::of(&learning.hash_key(), &text, None),
                variant: None,
                marks: &PurgeSnapshot::default(),
            };
            learning.compare(&key, compared, |_| true);
        }
        let all = report(&learning).proposals;
        all.into_iter().filter(|one| one.toml.contains("_query")).collect()
    }

    fn report(learning: &Learning) -> Report {
        learning.report(&ReportContext {
            mode: "learn".to_owned(),
            cookies: HashMap::new(),
            session_cookies: Vec::new(),
            ignored_cookies: Vec::new(),
            has_default_ttl: true,
        })
    }

    fn line(proposals: &[Proposal]) -> Option<&str> {
        assert!(proposals.len() <= 1, "{proposals:?}");
        proposals.first().map(|one| one.toml.lines().last().unwrap())
    }

    #[test]
    fn a_time_without_a_name_is_left_out_by_the_names_that_count() {
        let answers =
            (0..40).map(|n| (format!("id=page{}&17000000{n}", n % 4), format!("{}", n % 4)));
        let proposals = proposed(answers);
        assert_eq!(line(&proposals), Some("# keep_query = [\"id\"]"));
        let expected = "# [[route]]\n# match.path = \"/image\"\n# keep_query = [\"id\"]".to_owned();
        assert_eq!(proposals[0].toml, expected);
        assert!(proposals[0].reason.starts_with("/image: 40 addresses"), "{proposals:?}");
    }

    #[test]
    fn a_query_that_is_a_time_alone_is_ignored() {
        let answers = (0..40).map(|n| (format!("17000000{n}"), "a picture".to_owned()));
        assert_eq!(line(&proposed(answers)), Some("# ignore_query = [\"*\"]"));
    }

    #[test]
    fn a_parameter_that_changes_for_nothing_is_ignored_and_one_that_counts_is_not() {
        let answers =
            || (0..40).map(|n| (format!("size={}&click=x{n}", n % 2), format!("{}", n % 2)));
        assert_eq!(line(&proposed(answers())), Some("# ignore_query = [\"click\"]"));
        let both = (0..).zip(answers()).map(|(n, (query, body))| (format!("{query}&{n}"), body));
        assert_eq!(line(&proposed(both)), Some("# keep_query = [\"size\"]"), "only together");
    }

    #[test]
    fn a_parameter_on_which_an_answer_depends_is_not_ignored() {
        let all = (0..40).map(|n| (format!("q=word{n}"), format!("{n}")));
        assert_eq!(line(&proposed(all)), None);
        let one = (0..40).map(|n| (format!("q=word{n}"), format!("{}", n == 30)));
        assert_eq!(line(&proposed(one)), None);
    }

    #[test]
    fn what_returns_is_kept_even_where_the_answers_are_the_same() {
        let answers =
            (0..60).map(|n| (format!("id=page{}&t={}", n % 20, n / 2), "a picture".to_owned()));
        assert_eq!(line(&proposed(answers)), Some("# ignore_query = [\"t\"]"));
    }

    #[test]
    fn a_page_that_is_asked_for_again_is_kept_too() {
        let again = (0..120).map(|n| (format!("id=page{}", n % 30), "a picture".to_owned()));
        assert_eq!(line(&proposed(again)), None);
        let once = (0..120).map(|n| (format!("click={n}"), "a picture".to_owned()));
        assert_eq!(line(&proposed(once)), Some("# ignore_query = [\"click\"]"));
    }

    #[test]
    fn names_that_clients_make_up_are_not_looked_at() {
        let answers = (0..60).map(|n| (format!("x{n}=1&17000000{n}"), "a picture".to_owned()));
        assert_eq!(line(&proposed(answers)), None);
        let quoted = (0..60).map(|n| (format!("a*b=c{n}"), "a picture".to_owned()));
        assert_eq!(line(&proposed(quoted)), None, "a pattern for other names");
    }

    #[test]
    fn few_addresses_say_nothing() {
        let few = (0..19).map(|n| (format!("t={n}"), "a picture".to_owned()));
        assert_eq!(line(&proposed(few)), None);
        // Without the parameter nothing more would hit.
        let once = (0..40).map(|n| (format!("id={n}&t={n}"), format!("{n}")));
        assert_eq!(line(&proposed(once)), None);
    }
}
