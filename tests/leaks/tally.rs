//! How much there was of everything, and whether that is enough.

use std::collections::BTreeMap;

use crate::app::Kind;
use crate::check::{AnswerContent, Does, SentRequest};
use crate::support::client::Answer;

/// What may be shared, of which each kind has to be.
const SHAREABLE: [Kind; 7] =
    [Kind::Plain, Kind::Vary, Kind::Strips, Kind::Stale, Kind::Holes, Kind::Segment, Kind::My];

/// Fewer answers than this prove nothing of what was not tried.
const ENOUGH: u64 = 1_000;

/// What has to come more often than once, in so many answers: a cart that is empty leaks nothing.
const OFTEN: [(&str, u64); 3] = [("own cart", 6), ("own recent", 6), ("token joined", 5)];

/// Pages of a kind that may be shared.
#[derive(Clone, Copy, Debug, Default)]
struct SharedPages {
    asked: u64,
    hits: u64,
}

/// How much there was.
#[derive(Debug)]
pub(crate) struct Tally {
    answers: u64,
    pub(crate) unanswered: u64,
    shared: BTreeMap<&'static str, SharedPages>,
    /// What has to come at least once, or as [`OFTEN`] says, by name.
    tried: BTreeMap<String, u64>,
}

impl Tally {
    /// `faults`: all that may fail.
    pub(crate) fn new(faults: impl IntoIterator<Item = String>) -> Self {
        let tried = [
            "login",
            "logout",
            "revoked",
            "over",
            "over at once",
            "purge",
            "waited",
            "known",
            "HEAD",
            "not modified",
            "hole",
            "count",
            "cart",
            "recent",
            "trailers",
            "token",
            "token joined",
            "token over",
            "own cart",
            "own recent",
            "joined cart",
        ];
        let tried = tried.into_iter().map(str::to_owned).chain(faults);
        Self {
            answers: 0,
            unanswered: 0,
            shared: SHAREABLE.map(|kind| (kind.word(), SharedPages::default())).into(),
            tried: tried.map(|name| (name, 0)).collect(),
        }
    }

    /// One more of that.
    pub(crate) fn count(&mut self, what: &str) {
        self.count_if(true, what);
    }

    fn count_if(&mut self, is_so: bool, what: &str) {
        *self.tried.get_mut(what).expect("what is counted is named at the start") +=
            u64::from(is_so);
    }

    /// An answer that is as it must be.
    pub(crate) fn answer(&mut self, asked: &SentRequest, answer: &Answer, seen: AnswerContent) {
        self.answers += 1;
        self.count_if(answer.cache_status().contains("collapsed"), "waited");
        self.count_if(answer.status == 304, "not modified");
        self.count_if(asked.method == "HEAD", "HEAD");
        let AnswerContent { known, hole, count, cart, recent, trailers, .. } = seen;
        let AnswerContent { own_cart, own_recent, joined_cart, .. } = seen;
        for (is_so, what) in [
            (known, "known"),
            (hole, "hole"),
            (count, "count"),
            (cart, "cart"),
            (recent, "recent"),
            (trailers, "trailers"),
            (own_cart, "own cart"),
            (own_recent, "own recent"),
            (joined_cart, "joined cart"),
        ] {
            self.count_if(is_so, what);
        }
        if answer.status == 303 {
            self.count_if(matches!(asked.does, Does::LogIn(_)), "login");
            self.count_if(matches!(asked.does, Does::LogOut(_)), "logout");
        }
    }

    /// A page that may be for another visitor.
    pub(crate) fn shareable(&mut self, asked: &SentRequest, answer: &Answer) {
        let kind = asked.kind.map_or("", Kind::word);
        let shared = self.shared.get_mut(kind).expect("the kind may be shared");
        shared.asked += 1;
        shared.hits += u64::from(answer.is_hit());
    }

    pub(crate) fn text(&self) -> String {
        let Self { answers, unanswered, shared, tried } = self;
        format!("{answers} answers, {unanswered} unanswered, {shared:?}, {tried:?}")
    }

    /// Whether enough was tried for what was not found to mean something.
    pub(crate) fn check(&self) {
        let asked: u64 = self.shared.values().map(|shared| shared.asked).sum();
        let hits: u64 = self.shared.values().map(|shared| shared.hits).sum();
        assert!(hits * 2 >= asked, "the cache is of little use: {}", self.text());
        if self.answers < ENOUGH {
            return;
        }
        let never_hit = self.shared.iter().find(|(_, shared)| shared.hits == 0);
        assert!(never_hit.is_none(), "the cache is of little use: {never_hit:?} {}", self.text());
        let least = |name: &str| OFTEN.iter().find(|often| often.0 == name).map_or(1, |it| it.1);
        let untried = self.tried.iter().find(|(name, count)| **count < least(name));
        assert!(untried.is_none(), "not all was tried: {untried:?} {}", self.text());
    }
}
