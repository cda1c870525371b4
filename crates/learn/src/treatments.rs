//! Which routes the written configuration gets: what was learned of single pages, said of as few patterns as possible.
//!
//! A page that differs, or is not decided, is an exception from its surroundings. Pages that nobody asked for, and those
//! that one visitor alone asked for, are treated as their siblings are. Where an exception and a page that may be shared
//! would fall under one pattern, there is no such pattern.

use std::collections::BTreeMap;

use anteroom_http::path::decoded;

use crate::report::pages_are;

/// From how many siblings on a segment of a path is taken for a name that may be any.
const SIBLINGS_MIN: usize = 5;
/// From how many points on a pattern is served: a page that several visitors saw alike has three, one that two saw has
/// one.
const POINTS_MIN: usize = 6;
const POINTS_SURE: usize = 3;
/// A pattern is served if it has so many pages that may be shared for each exception.
const EXCEPTIONS_PART: usize = 3;
/// From how many exceptions on, without a page that may be shared, a pattern stands for them.
const ALIKE_MIN: usize = 3;
/// The most routes that are written.
const ROUTES_MAX: usize = 50;

/// The line of a route whose pages are not shared.
pub(crate) const UNSHARED: &str = "share = \"none\"";
/// That of one that is served where the rest learns on.
const SERVES: &str = "mode = \"serve\"";
/// That of a route that learns on.
pub(crate) const LEARNS: &str = "mode = \"learn\"";

/// What becomes of a page in the written configuration, what is stricter last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Treatment {
    /// One visitor alone has seen it, or so few that nothing is known.
    Unseen,
    /// It is shared. `is_sure`: several visitors have seen it alike.
    Shared { is_sure: bool },
    /// It is shared by this line of a route.
    Keyed(String),
    /// Its route learns on.
    Learns,
    /// It is not shared.
    Unshared,
}

/// A page, as a route would match it.
#[derive(Clone, Debug)]
pub(crate) struct TreatedPage<'p> {
    pub(crate) path: &'p str,
    pub(crate) treatment: Treatment,
    /// Why, for an exception.
    pub(crate) reason: String,
}

/// A route to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LearnedRouteLine {
    /// The pattern, as it stands between the quotes of TOML.
    pub(crate) path: String,
    pub(crate) line: String,
    pub(crate) reason: String,
}

/// The routes for the pages of a route, or of what none matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Treatments {
    /// In the order in which they are tried.
    pub(crate) lines: Vec<LearnedRouteLine>,
    /// Whether what none of them matches is served.
    pub(crate) serves_rest: bool,
}

/// The routes for pages that no route in force matches. `is_whole`: whether all pages were followed; where some were not,
/// the rest learns on.
pub(crate) fn of_rest(pages: &[TreatedPage<'_>], is_whole: bool) -> Treatments {
    let tree = Tree::of(pages);
    if is_whole && tree.root.counts().is_served() && tree.is_writable {
        let lines = tree.root.lines("", true, false);
        if lines.len() <= ROUTES_MAX {
            return Treatments { lines, serves_rest: true };
        }
    }
    Treatments { lines: within(tree.root.served("")), serves_rest: false }
}

/// The exceptions from a route of the operator. `serves_rest`: whether enough is known of it to serve the others, and all
/// exceptions can be written.
pub(crate) fn exceptions(pages: &[TreatedPage<'_>], is_whole: bool) -> Treatments {
    let tree = Tree::of(pages);
    let lines = tree.root.lines("", true, false);
    let is_served = is_whole && tree.root.counts().is_served();
    let serves_rest = is_served && tree.is_writable && lines.len() <= ROUTES_MAX;
    Treatments { lines: if serves_rest { lines } else { Vec::new() }, serves_rest }
}

/// Served patterns with their exceptions, as long as there is room for both, and then what differs. No two of these groups
/// match the same page, so their order is free.
fn within(mut groups: Vec<Vec<LearnedRouteLine>>) -> Vec<LearnedRouteLine> {
    groups.sort_by_key(|group| group.last().is_none_or(|line| line.line != SERVES));
    let mut lines = Vec::new();
    for group in groups {
        if lines.len() + group.len() <= ROUTES_MAX {
            lines.extend(group);
        }
    }
    lines
}

/// The paths, by their segments.
struct Tree {
    root: Node,
    /// Whether a pattern can be written for each exception.
    is_writable: bool,
}

impl Tree {
    fn of(pages: &[TreatedPage<'_>]) -> Self {
        let (mut root, mut is_writable) = (Node::default(), true);
        for page in pages {
            match plain_path(page.path) {
                Some(path) => root.add(&path, page),
                None => is_writable &= page.treatment < Treatment::Learns,
            }
        }
        Self { root, is_writable }
    }
}

/// A path as the pattern that stands for it alone, without its first slash: patterns are compared with decoded paths.
/// `None`: there is none, or the path is not known whole.
fn plain_path(path: &str) -> Option<String> {
    let decoded = decoded(path).filter(|_| path.is_ascii())?;
    let is_plain = |c: char| c.is_ascii_graphic() && !"*{}\"\\;?#".contains(c);
    let rest = decoded.strip_prefix('/')?;
    decoded.chars().all(is_plain).then(|| rest.to_owned())
}

/// What is known of a path.
#[derive(Clone, Debug)]
struct Leaf {
    treatment: Treatment,
    reason: String,
    /// How much speaks for it, of a page that is shared.
    points: usize,
}

impl Leaf {
    /// The stricter of both; whether one of them is shared otherwise without the other.
    fn join(&mut self, other: &Self) -> bool {
        let is_shared = |leaf: &Self| matches!(leaf.treatment, Treatment::Shared { .. });
        let is_keyed = |leaf: &Self| matches!(leaf.treatment, Treatment::Keyed(_));
        let conflicts = match (is_shared(self), is_shared(other)) {
            (true, true) => false,
            (true, false) => other.treatment != Treatment::Unseen,
            (false, true) => self.treatment != Treatment::Unseen,
            (false, false) => {
                self.treatment != other.treatment && (is_keyed(self) || is_keyed(other))
            }
        };
        let points = self.points + other.points;
        if is_keyed(self) && is_keyed(other) && self.treatment != other.treatment {
            // One route has one key, and neither page may be shared with the other's.
            self.treatment = Treatment::Unshared;
        } else if other.treatment > self.treatment {
            *self = other.clone();
        }
        self.points = points;
        conflicts
    }

    /// Whether it may be shared by itself.
    fn is_sure(&self) -> bool {
        matches!(self.treatment, Treatment::Shared { .. }) && self.points >= POINTS_SURE
    }
}

#[derive(Clone, Debug, Default)]
struct Node {
    here: Option<Leaf>,
    below: BTreeMap<String, Self>,
}

/// What is known of the pages below a path.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    points: usize,
    shared: usize,
    exceptions: usize,
}

impl Counts {
    fn is_served(self) -> bool {
        self.points >= POINTS_MIN && self.exceptions * EXCEPTIONS_PART <= self.shared
    }

    fn plus(self, other: Self) -> Self {
        Self {
            points: self.points + other.points,
            shared: self.shared + other.shared,
            exceptions: self.exceptions + other.exceptions,
        }
    }

    fn of(leaf: &Leaf) -> Self {
        let (shared, exceptions) = match &leaf.treatment {
            Treatment::Unseen => (0, 0),
            Treatment::Shared { .. } => (1, 0),
            Treatment::Keyed(_) | Treatment::Learns | Treatment::Unshared => (0, 1),
        };
        Self { points: leaf.points, shared, exceptions }
    }
}

impl Node {
    fn add(&mut self, path: &str, page: &TreatedPage<'_>) {
        let mut node = self;
        for segment in path.split('/') {
            node = node.below.entry(segment.to_owned()).or_default();
        }
        let points = match page.treatment {
            Treatment::Shared { is_sure: true } => POINTS_SURE,
            Treatment::Shared { is_sure: false } => 1,
            _ => 0,
        };
        let (treatment, reason) = (page.treatment.clone(), page.reason.clone());
        let leaf = Leaf { treatment, reason, points };
        match &mut node.here {
            // Pages that differ in their query: a pattern for one of them stands for all.
            Some(known) => drop(known.join(&leaf)),
            None => node.here = Some(leaf),
        }
    }

    fn counts(&self) -> Counts {
        let here = self.here.as_ref().map(Counts::of).unwrap_or_default();
        self.below.values().map(Self::counts).fold(here, Counts::plus)
    }

    /// The routes for what is below `prefix`, which is served but for them. `is_covered`: whether siblings speak for a page
    /// that one visitor alone has seen.
    fn lines(&self, prefix: &str, is_root: bool, is_covered: bool) -> Vec<LearnedRouteLine> {
        if let Some(all) = self.all_alike(prefix, is_root) {
            return vec![all];
        }
        let mut lines: Vec<LearnedRouteLine> =
            self.here.iter().filter_map(|leaf| leaf_line(prefix, leaf, is_covered)).collect();
        // Single pages at the top have nothing in common.
        let is_covered = !is_root && (is_covered || self.siblings_speak());
        let of = |(name, node): (&str, &Self)| {
            node.lines(&format!("{prefix}/{name}"), false, is_covered)
        };
        match self.any_below().filter(|_| !is_root) {
            Some(any) => {
                // `*` stands for no empty name.
                lines.extend(self.below.get("").into_iter().flat_map(|node| of(("", node))));
                lines.extend(of(("*", &any)));
            }
            None => lines.extend(self.below.iter().flat_map(|(name, node)| of((name, node)))),
        }
        lines
    }

    /// Whether enough siblings may be shared to speak for one that one visitor alone has seen.
    fn siblings_speak(&self) -> bool {
        let siblings = self.below.values().filter_map(|node| node.here.as_ref()).map(Counts::of);
        let counts = siblings.fold(Counts::default(), Counts::plus);
        counts.shared >= SIBLINGS_MIN && counts.is_served()
    }

    /// What is below, whatever the name of the next segment is; `None`: there are few, or they do not agree.
    fn any_below(&self) -> Option<Self> {
        let named = self.below.iter().filter(|(name, _)| !name.is_empty());
        let mut nodes = named.clone().map(|(_, node)| node);
        let mut all = nodes.next().filter(|_| named.count() >= SIBLINGS_MIN)?.clone();
        nodes.all(|node| !all.join(node)).then_some(all)
    }

    /// Takes the pages of another node in; whether they do not agree.
    fn join(&mut self, other: &Self) -> bool {
        let mut conflicts = match (&mut self.here, &other.here) {
            (Some(here), Some(leaf)) => here.join(leaf),
            (None, Some(leaf)) => {
                self.here = Some(leaf.clone());
                false
            }
            (_, None) => false,
        };
        for (name, node) in &other.below {
            conflicts |= self.below.entry(name.clone()).or_default().join(node);
        }
        conflicts
    }

    /// One route for all pages below, of which several are exceptions and none may be shared.
    fn all_alike(&self, prefix: &str, is_root: bool) -> Option<LearnedRouteLine> {
        let counts = self.counts();
        let (count, shared) = (counts.exceptions, counts.shared);
        let leaves = self.leaves();
        let worst = leaves.iter().max_by(|a, b| a.treatment.cmp(&b.treatment))?;
        let is_alike = |leaf: &&&Leaf| leaf.treatment != worst.treatment;
        let line = line_of(&worst.treatment)?;
        let is_keyed = matches!(worst.treatment, Treatment::Keyed(_));
        let differ = leaves.iter().filter(is_alike).count();
        (!is_root && count >= ALIKE_MIN && shared == 0 && (!is_keyed || differ == 0)).then(|| {
            let reason = format!("{count} pages, such as {}", worst.reason);
            LearnedRouteLine { path: format!("{prefix}/**"), line, reason }
        })
    }

    fn leaves(&self) -> Vec<&Leaf> {
        let below = self.below.values().flat_map(Self::leaves);
        self.here.iter().chain(below).collect()
    }

    /// The largest patterns that may be served where the rest learns on, each with its exceptions before it; and the pages that
    /// are known to differ.
    fn served(&self, prefix: &str) -> Vec<Vec<LearnedRouteLine>> {
        let (counts, is_root) = (self.counts(), prefix.is_empty());
        let serves = |path: String, reason: String| LearnedRouteLine {
            path,
            line: SERVES.to_owned(),
            reason,
        };
        if counts.is_served() && !is_root {
            let mut lines = self.lines(prefix, false, self.siblings_speak());
            let reason = format!("{} the same for all", pages_are(counts.shared as u64));
            lines.push(serves(format!("{prefix}/**"), reason));
            return vec![lines];
        }
        let here = self.here.as_ref().and_then(|leaf| match &leaf.treatment {
            Treatment::Shared { .. } if leaf.is_sure() => {
                Some(serves(path_of(prefix), "it is the same for all".to_owned()))
            }
            // What is known to differ is said, whatever the operator makes of the rest.
            Treatment::Keyed(_) | Treatment::Unshared => leaf_line(prefix, leaf, true),
            Treatment::Shared { .. } | Treatment::Unseen | Treatment::Learns => None,
        });
        let here = here.map(|line| vec![line]);
        let below =
            self.below.iter().flat_map(|(name, node)| node.served(&format!("{prefix}/{name}")));
        here.into_iter().chain(below).collect()
    }
}

fn path_of(prefix: &str) -> String {
    if prefix.is_empty() { "/".to_owned() } else { prefix.to_owned() }
}

fn leaf_line(prefix: &str, leaf: &Leaf, is_covered: bool) -> Option<LearnedRouteLine> {
    let line = match &leaf.treatment {
        Treatment::Unseen | Treatment::Shared { .. } if !is_covered && !leaf.is_sure() => {
            line_of(&Treatment::Learns)
        }
        treatment => line_of(treatment),
    };
    Some(LearnedRouteLine { path: path_of(prefix), line: line?, reason: leaf.reason.clone() })
}

/// The line of an exception.
fn line_of(treatment: &Treatment) -> Option<String> {
    match treatment {
        Treatment::Unseen | Treatment::Shared { .. } => None,
        Treatment::Keyed(line) => Some(line.clone()),
        Treatment::Learns => Some(LEARNS.to_owned()),
        Treatment::Unshared => Some(UNSHARED.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SURE: Treatment = Treatment::Shared { is_sure: true };

    fn page(path: &str, treatment: Treatment) -> TreatedPage<'_> {
        TreatedPage { path, treatment, reason: format!("{path}: why") }
    }

    fn lines(treatments: &Treatments) -> Vec<(&str, &str)> {
        treatments.lines.iter().map(|one| (one.path.as_str(), one.line.as_str())).collect()
    }

    fn items(count: usize, treatment: &Treatment) -> Vec<(String, Treatment)> {
        (0..count).map(|n| (format!("/item/{n}"), treatment.clone())).collect()
    }

    fn of(pages: &[(String, Treatment)]) -> Treatments {
        let pages: Vec<_> =
            pages.iter().map(|(path, treatment)| page(path, treatment.clone())).collect();
        of_rest(&pages, true)
    }

    fn with(mut pages: Vec<(String, Treatment)>, more: &[(&str, Treatment)]) -> Treatments {
        pages.extend(more.iter().map(|(path, treatment)| ((*path).to_owned(), treatment.clone())));
        of(&pages)
    }

    #[test]
    fn a_site_that_is_the_same_for_all_is_served_as_a_whole() {
        let treatments = with(items(10, &SURE), &[("/", SURE), ("/item/99", Treatment::Unseen)]);
        assert_eq!((lines(&treatments), treatments.serves_rest), (Vec::new(), true));
    }

    #[test]
    fn a_page_that_differs_is_an_exception() {
        let treatments = with(items(10, &SURE), &[("/me", Treatment::Unshared)]);
        assert_eq!(lines(&treatments), [("/me", "share = \"none\"")]);
        assert!(treatments.serves_rest);
    }

    #[test]
    fn a_page_that_one_visitor_saw_learns_on_unless_its_siblings_speak_for_it() {
        let more = [("/rare", Treatment::Unseen), ("/item/new", Treatment::Unseen)];
        assert_eq!(lines(&with(items(10, &SURE), &more)), [("/rare", "mode = \"learn\"")]);
    }

    #[test]
    fn a_pattern_for_any_name_does_not_hide_the_page_without_one() {
        let (own, shared) = (Treatment::Unshared, SURE);
        let mut pages = items(60, &SURE);
        for n in 0..6 {
            pages.push((format!("/shop/{n}/"), own.clone()));
            pages.push((format!("/shop/{n}/basket"), own.clone()));
            pages.push((format!("/shop/{n}/about"), shared.clone()));
        }
        pages.push(("/shop/".to_owned(), own));
        let expected =
            ["/shop/", "/shop/*/", "/shop/*/basket"].map(|path| (path, "share = \"none\""));
        assert_eq!(lines(&of(&pages)), expected);
    }

    #[test]
    fn siblings_without_evidence_do_not_speak_for_each_other() {
        let mut pages = items(20, &SURE);
        pages.extend((0..9).map(|n| (format!("/u/{n}"), Treatment::Unseen)));
        pages.extend((0..9).map(|n| (format!("/top{n}"), SURE)));
        pages.push(("/near".to_owned(), Treatment::Unseen));
        let expected = [("/near", "mode = \"learn\""), ("/u/*", "mode = \"learn\"")];
        assert_eq!(lines(&of(&pages)), expected);
    }

    #[test]
    fn pages_of_one_path_with_two_keys_are_not_shared() {
        let keyed = |line: &str| Treatment::Keyed(line.to_owned());
        let more =
            [("/list", keyed("key_cookies = [\"a\"]")), ("/list", keyed("key_headers = [\"b\"]"))];
        assert_eq!(lines(&with(items(20, &SURE), &more)), [("/list", "share = \"none\"")]);
    }

    #[test]
    fn the_rest_learns_on_where_some_pages_were_not_followed_and_a_route_of_which_little_is_known()
    {
        let pages: Vec<(String, Treatment)> = items(20, &SURE);
        let pages: Vec<_> = pages.iter().map(|(path, one)| page(path, one.clone())).collect();
        let sampled = of_rest(&pages, false);
        assert_eq!(
            (lines(&sampled), sampled.serves_rest),
            (vec![("/item/**", "mode = \"serve\"")], false)
        );
        assert!(exceptions(&pages, true).serves_rest && !exceptions(&pages, false).serves_rest);
        assert!(!exceptions(&pages[..1], true).serves_rest);
    }

    #[test]
    fn exceptions_of_one_folder_have_one_route() {
        let mut pages = items(20, &SURE);
        pages.extend((0..4).map(|n| (format!("/user/{n}"), Treatment::Unshared)));
        assert_eq!(lines(&of(&pages)), [("/user/**", "share = \"none\"")]);
    }

    #[test]
    fn exceptions_below_any_name_have_one_pattern() {
        let mut pages = Vec::new();
        for n in 0..12 {
            pages.push((format!("/shop/{n}"), SURE));
            pages.push((format!("/shop/{n}/basket"), Treatment::Unshared));
            pages.push((format!("/shop/{n}/about"), SURE));
            pages.push((format!("/shop/{n}/map"), SURE));
            pages.push((format!("/shop/{n}/news"), SURE));
        }
        assert_eq!(lines(&of(&pages)), [("/shop/*/basket", "share = \"none\"")]);
    }

    #[test]
    fn where_much_differs_what_is_the_same_is_served_and_the_rest_learns_on() {
        let mut pages = items(8, &SURE);
        pages.extend((0..9).map(|n| (format!("/a{n}"), Treatment::Learns)));
        pages.push(("/item/5/mine".to_owned(), Treatment::Unshared));
        let treatments = of(&pages);
        assert!(!treatments.serves_rest);
        let expected = [("/item/*/mine", "share = \"none\""), ("/item/**", "mode = \"serve\"")];
        assert_eq!(lines(&treatments), expected);
    }

    #[test]
    fn of_too_many_exceptions_none_is_lost() {
        let mut pages = items(400, &SURE);
        pages.extend((0..60).map(|n| (format!("/p{n}"), Treatment::Unshared)));
        let treatments = of(&pages);
        assert!(!treatments.serves_rest && treatments.lines.len() == ROUTES_MAX);
        assert_eq!(lines(&treatments)[0], ("/item/**", "mode = \"serve\""));
    }

    #[test]
    fn nothing_is_served_where_little_is_known() {
        let treatments = of(&items(10, &Treatment::Unseen));
        assert_eq!((lines(&treatments), treatments.serves_rest), (Vec::new(), false));
    }

    #[test]
    fn an_exception_that_cannot_be_written_makes_the_rest_learn_on() {
        assert!(!with(items(10, &SURE), &[("/a%22b", Treatment::Unshared)]).serves_rest);
        assert!(with(items(10, &SURE), &[("/a%22b", SURE)]).serves_rest);
    }

    #[test]
    fn a_path_is_written_as_routes_read_it() {
        assert_eq!(plain_path("/a%2Db/c").as_deref(), Some("a-b/c"));
        for path in [
            "/caf%C3%A9",
            "/a%20b",
            "/a%3Fb",
            "/%E2%80%AE",
            "/%zz",
            "/%2A",
            "/a%22b",
            "/%0a",
            "/user/*/**",
            "/a;-",
            "/long…",
            "*",
        ] {
            assert_eq!(plain_path(path), None, "{path}");
        }
    }
}
