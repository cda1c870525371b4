//! Holds an answer against what the origin has said, and against what has been purged.

use std::io::Read as _;
use std::time::Duration;

use anteroom_tests::wire::{Body, Fields};
use flate2::read::MultiGzDecoder;

use crate::cast::Ask;
use crate::origin::body;
use crate::world::{Event, State};

/// An answer past this is no proof that the origin is well: the proxy may have lost patience.
const SLOW: Duration = Duration::from_millis(1_500);
/// Seconds by which an `Age` may be wrong: whole seconds are added up.
const AGE_ROUNDING: f64 = 2.0;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Body,
    /// When it was asked for, in the order of things and in Unix time.
    pub(crate) begun: u64,
    pub(crate) begun_at: f64,
    pub(crate) ended_at: f64,
    pub(crate) took: Duration,
}

impl Answer {
    /// The number of the origin's answer behind it; `None`: the proxy speaks for itself.
    pub(crate) fn number(&self) -> Option<usize> {
        self.fields.get("x-event")?.parse().ok()
    }

    /// In short, for the story.
    pub(crate) fn text(&self) -> String {
        let Self { status, body, .. } = self;
        let told = ["x-event", "age", "cache-status"].map(|name| self.fields.get(name));
        format!("{status} {told:?} {} bytes, whole: {}", body.length, body.whole)
    }

    pub(crate) fn cache_status(&self) -> &str {
        self.fields.get("cache-status").unwrap_or("")
    }

    fn says(&self, word: &str) -> bool {
        self.cache_status().split(';').any(|part| part.trim() == word)
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.says("hit") && self.says("detail=stale")
    }

    /// Whether it is the origin's word to this visitor, passed on as it came.
    fn is_forwarded(&self) -> bool {
        self.cache_status().contains("fwd=") && self.cache_status().contains("detail=")
    }

    /// Whether the origin was spared, or asked once for several.
    pub(crate) fn is_hit(&self) -> bool {
        self.says("hit") || self.says("collapsed")
    }

    pub(crate) fn is_validated(&self) -> bool {
        self.says("fwd-status=304")
    }
}

/// Says what is wrong with an answer.
pub(crate) fn check(state: &mut State, ask: &Ask, got: &Answer) -> Result<(), String> {
    let Some(number) = got.number() else { return own_word(state, ask, got) };
    let event = state.events.get(number).cloned().ok_or("the origin has never said that")?;
    if event.seen.url != ask.url {
        return Err(format!("it is another page's: {:?}", event.seen.url));
    }
    whole(state, ask, got, &event)?;
    for name in ["anteroom-item", "surrogate-key"] {
        if got.fields.get(name).is_some() {
            return Err(format!("{name} is for the proxy alone"));
        }
    }
    if let Some(id) = event.seen.id {
        return if id != ask.id {
            Err(format!("it is the answer to the visitor of {id}"))
        } else if got.is_hit() {
            Err("his own answer calls itself a hit".to_owned())
        } else {
            Ok(())
        };
    }
    // What is not shared goes to the visitor whose request was sent as a fetch, and to no other.
    if event.page.speaks_of_visitor && !got.is_forwarded() {
        return Err("an answer to all speaks of a visitor".to_owned());
    }
    if got.is_forwarded() {
        if !event.is_as_asked(ask) {
            return Err("it was passed on, and is not what he asked for".to_owned());
        }
    } else {
        event.suits(ask)?;
        let unwanted = ["set-cookie", "cdn-cache-control"];
        if let Some(name) = unwanted.into_iter().find(|name| got.fields.get(name).is_some()) {
            return Err(format!("{name} on what is for all"));
        }
    }
    timely(state, ask, got, &event)?;
    aged(got, &event)
}

/// What the proxy says itself is that the origin failed.
fn own_word(state: &State, ask: &Ask, got: &Answer) -> Result<(), String> {
    let has_cause = state.has_failed(&ask.url, got.begun_at) || got.took > SLOW;
    if got.status >= 500 && has_cause {
        return Ok(());
    }
    Err("an answer of the proxy's own, without a cause".to_owned())
}

/// A body is the origin's, from its first byte to its last.
fn whole(state: &State, ask: &Ask, got: &Answer, event: &Event) -> Result<(), String> {
    let is_validation = event.of != event.number;
    if got.status == 304 {
        // Weakly: another coding of it is the same page.
        let strong = |tag: &str| tag.trim_start_matches("W/").to_owned();
        let is_his = ask.tag.is_some()
            && ask.tag.as_deref().map(strong) == got.fields.get("etag").map(strong);
        return if is_his { Ok(()) } else { Err("he has no such page".to_owned()) };
    }
    if is_validation && event.seen.id.is_some() {
        return Err("the origin said 304 to him".to_owned());
    }
    if got.status != event.page.status {
        return Err(format!("the origin's status was {}", event.page.status));
    }
    if !got.body.whole {
        return if event.is_cut { Ok(()) } else { Err("it broke off".to_owned()) };
    }
    if ask.method == "HEAD" || got.status == 204 {
        return Ok(());
    }
    let first = state.events.get(event.of).ok_or("there is no such page")?;
    let bytes = decoded(ask, got)?;
    if bytes != body(first.number, &first.page).as_bytes() {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        return Err(format!(
            "the body is not that of {}: {} bytes, {start:?}",
            first.number, got.body.length
        ));
    }
    Ok(())
}

/// The body without its coding.
fn decoded(ask: &Ask, got: &Answer) -> Result<Vec<u8>, String> {
    let Some(coding) = got.fields.get("content-encoding") else {
        return Ok(got.body.bytes.clone());
    };
    if ask.coding != Some(coding) {
        return Err("he cannot read that coding".to_owned());
    }
    let mut bytes = Vec::new();
    let read = MultiGzDecoder::new(got.body.bytes.as_slice()).read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|error| format!("its coding is broken: {error}"))
}

/// Nothing from before a purge, nothing stale as if it were fresh, and what is for one to one.
fn timely(state: &mut State, ask: &Ask, got: &Answer, event: &Event) -> Result<(), String> {
    let mut is_outdated = false;
    let later = state.purges.iter().rev().take_while(|purge| {
        // Purges by writes are in order of their beginnings, too.
        purge.begun > event.asked
    });
    for purge in later.filter(|purge| purge.ended.is_some_and(|ended| ended < got.begun)) {
        if purge.hits(event) {
            is_outdated = true;
            if purge.is_hard {
                return Err(format!("it is from before {purge:?}"));
            }
        }
    }
    if got.is_stale() {
        let fails = state.has_failed(&ask.url, got.begun_at) || got.took > SLOW;
        return if event.serves_stale(got.begun_at, fails) {
            Ok(())
        } else {
            Err(format!("it may not be served stale (the origin fails: {fails})"))
        };
    }
    // The origin was asked for it after this visitor had asked.
    let is_first_hand = event.asked > got.begun;
    let uses = &mut state.events[event.number].uses;
    *uses += 1;
    let is_for_one = !event.is_for_all() || got.is_forwarded();
    if is_for_one && (*uses > 1 || !is_first_hand) {
        return Err(format!("it is for one visitor alone, and this is the use {uses} of it"));
    }
    if is_first_hand {
        return Ok(());
    }
    if !event.is_fresh(got.begun_at) {
        return Err(format!(
            "it is stale since {:.1} s",
            got.begun_at - event.fresh_until().unwrap_or(event.came)
        ));
    }
    if is_outdated {
        return Err("it was purged, and is served as if it were fresh".to_owned());
    }
    Ok(())
}

/// `Age` is right.
fn aged(got: &Answer, event: &Event) -> Result<(), String> {
    // What is only forwarded has the age that the origin said.
    let age = got
        .fields
        .get("age")
        .filter(|_| !got.is_forwarded())
        .and_then(|age| age.parse::<f64>().ok());
    let Some(age) = age else { return Ok(()) };
    let least = event.age(got.begun_at) - AGE_ROUNDING;
    let most = event.age(got.ended_at) + (event.came - event.asked_at) + AGE_ROUNDING;
    if (least..=most).contains(&age) {
        return Ok(());
    }
    Err(format!("it says the age {age}, which is between {least:.1} and {most:.1}"))
}
