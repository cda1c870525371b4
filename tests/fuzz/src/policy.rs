//! The policy as a whole: random requests and responses, and the 304s behind them.

use std::sync::Arc;
use std::time::Duration;

use anteroom_cache::entry::{Entry, LifetimeSource, StoredValue};
use anteroom_cache::page_fields::PageFields;
use anteroom_cache::purge::PurgeSnapshot;
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::request_directives::RequestDirectives;
use anteroom_cache::rules::verdict::{
    Access, CacheSettings, RequestView, ResponseView, Sharing, Storing, can_cache, may_store,
};
use anteroom_http::conditional::{
    Condition, fits, judge, strip_for_not_modified, update, validators,
};
use anteroom_http::etag::{ETag, recoded};
use anteroom_http::field_set::FieldSet;
use anteroom_http::freshness::initial_age;
use anteroom_http::query::QueryRule;
use anteroom_http::targeted::CDN_CACHE_CONTROL;
use anteroom_policy::route::{Route, Ttl};
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;
use http::header::{
    AGE, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, DATE,
    ETAG, EXPIRES, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
    LAST_MODIFIED, SET_COOKIE, VARY,
};
use http::{HeaderMap, Method, StatusCode};

use crate::input::{Input, fields, lines_of, with};

/// Sun, 06 Nov 1994 08:49:37 GMT
const NOW: u64 = 784_111_777;

/// Conditions: a 304 is said only by what the client has, our own questions are answered by it, and it
/// changes nothing that describes the body.
pub(crate) fn conditions(data: &[u8]) {
    let mut input = Input(data);
    let [request, stored, from_304] = [(); 3].map(|()| fields(input.block()));
    let judged = judge(&request, StatusCode::OK, &stored, NOW);
    let is_guarded = [IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|n| request.contains_key(n));
    assert_eq!(judged == Condition::NotOurs, is_guarded);
    if judged == Condition::NotModified {
        let by_tag = request.contains_key(IF_NONE_MATCH);
        assert!(by_tag || request.contains_key(IF_MODIFIED_SINCE));
        let is_star = lines_of(&request, IF_NONE_MATCH) == [b"*"];
        assert!(!by_tag || is_star || ETag::of(&stored).is_some());
    }
    let other = judge(&request, StatusCode::NOT_FOUND, &stored, NOW);
    assert_ne!(other, Condition::NotModified);
    ask_ourselves(&stored);
    assert!(fits(&stored, &stored));
    not_modified(&stored);
    updated(&stored, &from_304);
}

/// A request with the validators that we hold is answered with a 304.
fn ask_ourselves(stored: &HeaderMap) {
    if let Some(tag) = validators(stored).if_none_match {
        let parsed = ETag::parse(tag.as_bytes()).expect("we ask with tags alone");
        assert!(parsed.is_weakly(&parsed) && parsed.is_strongly(&parsed) != parsed.is_weak());
        let ours = recoded(&tag).expect("a tag can be made weak");
        let ours = ETag::parse(ours.as_bytes()).expect("and is one then");
        assert!(ours.is_weak() && ours.is_weakly(&parsed) && !ours.is_strongly(&parsed));
        let mut request = HeaderMap::new();
        request.insert(IF_NONE_MATCH, tag.clone());
        assert_eq!(judge(&request, StatusCode::OK, stored, NOW), Condition::NotModified);
    }
}

fn not_modified(stored: &HeaderMap) {
    let mut said = stored.clone();
    strip_for_not_modified(&mut said);
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_TYPE] {
        assert!(!said.contains_key(name));
    }
    for name in [ETAG, CACHE_CONTROL, EXPIRES, VARY, DATE] {
        assert_eq!(lines_of(&said, &name), lines_of(stored, &name));
    }
    let once = said.clone();
    strip_for_not_modified(&mut said);
    assert_eq!(said, once);
}

fn updated(stored: &HeaderMap, from_304: &HeaderMap) {
    let updated = update(stored, from_304);
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, ETAG] {
        assert_eq!(lines_of(&updated, &name), lines_of(stored, &name));
    }
    for name in [AGE, DATE, CONNECTION] {
        let said = lines_of(from_304, &name);
        let kept = if name == CONNECTION { lines_of(stored, &name) } else { Vec::new() };
        assert!(lines_of(&updated, &name).iter().all(|l| said.contains(l) || kept.contains(l)));
    }
    for name in stored.keys().filter(|name| **name != AGE && **name != DATE) {
        if !from_304.contains_key(name) {
            assert_eq!(lines_of(&updated, name), lines_of(stored, name));
        }
    }
    // Age and date are set again each time, and all else is there already.
    assert_eq!(update(&updated, from_304), updated);
}

/// The request, its visitor and its site, from the first bytes.
struct Setting {
    class: ShareClass,
    route: Route,
    policy: CacheSettings,
    who: Sharing,
    status: StatusCode,
}

impl Setting {
    fn read(input: &mut Input<'_>) -> Self {
        let switches = input.byte();
        let is_set = |bit: u8| switches & (1 << bit) != 0;
        let ttl = |bit, seconds| is_set(bit).then(|| Duration::from_secs(seconds));
        let class =
            [ShareClass::Anonymous, ShareClass::Public, ShareClass::Everyone, ShareClass::Segment];
        Self {
            class: class[usize::from(switches & 3)],
            route: Route {
                ttl: Ttl { usual: ttl(2, 60), ..Ttl::default() },
                override_ttl: ttl(3, 30),
                ..Route::rest(is_set(4), QueryRule::default())
            },
            policy: CacheSettings {
                default_ttl: ttl(5, 300).unwrap_or_default(),
                stale_while_revalidate: ttl(6, 10).unwrap_or_default(),
                stale_if_error: ttl(6, 3_600).unwrap_or_default(),
                static_for_all: is_set(7),
                max_object: 1_000,
                client_directives: is_set(7),
            },
            who: [Sharing::Anonymous, Sharing::Known, Sharing::Unknown(Reason::UnknownCookie)]
                [usize::from(input.byte()) % 3],
            status: StatusCode::from_u16(200 + u16::from(input.byte())).unwrap(),
        }
    }

    fn asked<'a>(&self, headers: &'a HeaderMap) -> RequestView<'a> {
        RequestView {
            method: &Method::GET,
            path: "/a",
            query: "",
            headers,
            fields: FieldSet::of(headers),
            has_body: false,
            bound: false,
            who: self.who,
        }
    }

    fn judge(&self, request: &HeaderMap, response: &HeaderMap) -> Result<Storing, Reason> {
        let answer = ResponseView {
            status: self.status,
            headers: response,
            length: Some(5),
            unframed: false,
            age: initial_age(response, NOW, NOW),
            now: NOW,
        };
        may_store(&self.asked(request), self.class, &answer, &self.route, &self.policy)
    }
}

/// `can_cache`, `may_store`, what is stored, and the same again behind a 304.
pub(crate) fn verdict(data: &[u8]) {
    let mut input = Input(data);
    let setting = Setting::read(&mut input);
    let [request, response, from_304] = [(); 3].map(|()| fields(input.block()));
    asking(&setting, &request);
    let stored = setting.judge(&request, &response);
    check(&setting, &request, &response, &stored);
    let updated = update(&response, &from_304);
    let again = setting.judge(&request, &updated);
    check(&setting, &request, &updated, &again);
    let is_new_cookie = from_304.contains_key(SET_COOKIE) && updated.contains_key(SET_COOKIE);
    assert!(!is_new_cookie || again.is_err());
}

/// A visitor who is not certainly anonymous gets only static pages, where the operator has not said more.
fn asking(setting: &Setting, request: &HeaderMap) {
    let access = can_cache(&setting.asked(request), &setting.route, &setting.policy);
    match access {
        Access::Shared(ShareClass::Anonymous) => assert_eq!(setting.who, Sharing::Anonymous),
        Access::Shared(_) => assert!(setting.route.trust_public),
        Access::StaticOnly(_) => assert!(setting.policy.static_for_all),
        Access::Bypass(_) => {}
    }
    let stricter = with(request, &CACHE_CONTROL, "no-store");
    let access = can_cache(&setting.asked(&stricter), &setting.route, &setting.policy);
    assert!(matches!(access, Access::Bypass(_)));
}

fn check(
    setting: &Setting,
    request: &HeaderMap,
    response: &HeaderMap,
    stored: &Result<Storing, Reason>,
) {
    for (name, line) in [(SET_COOKIE, "a=b"), (VARY, "*")] {
        assert!(setting.judge(request, &with(response, &name, line)).is_err());
    }
    let own = HeaderName::from_static("anteroom-login");
    assert!(setting.judge(request, &with(response, &own, "alice")).is_err());
    if !response.contains_key(&CDN_CACHE_CONTROL) {
        let private = with(response, &CACHE_CONTROL, "private");
        assert!(setting.judge(request, &private).is_err());
        let unstored = with(response, &CACHE_CONTROL, "no-store");
        let may = setting.route.override_ttl.is_some() || says(response, b"must-understand");
        assert!(may || setting.judge(request, &unstored).is_err());
    }
    if let Ok(storing) = stored {
        stored_well(setting, response, storing);
        let entry = write_down(setting, response, storing);
        wishes(setting, request, &entry);
    }
}

/// Whether the word stands anywhere in what is said of caching, in any case.
fn says(response: &HeaderMap, word: &[u8]) -> bool {
    [CACHE_CONTROL, CDN_CACHE_CONTROL.clone()].iter().any(|name| {
        lines_of(response, name)
            .iter()
            .any(|line| line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
    })
}

fn stored_well(setting: &Setting, response: &HeaderMap, storing: &Storing) {
    let age = initial_age(response, NOW, NOW);
    let most = match storing.source {
        LifetimeSource::Explicit => largest_said(response),
        LifetimeSource::Override => 30 + age,
        LifetimeSource::Route => 60 + age,
        LifetimeSource::Default => 300 + age,
        LifetimeSource::Heuristic => 300,
    };
    assert!(storing.lifetime <= most, "{storing:?} above {most}");
    assert_eq!(storing.is_fresh, storing.lifetime > age);
    assert!(!matches!(setting.status.as_u16(), 206 | 304));
    if setting.class == ShareClass::Public {
        assert!(
            [&b"public"[..], b"s-maxage", b"must-revalidate"].iter().any(|w| says(response, w))
        );
    }
    if storing.static_proof {
        assert_eq!((setting.class, setting.status), (ShareClass::Anonymous, StatusCode::OK));
        assert!(!storing.vary.contains(&COOKIE) && !storing.guarded);
        assert!(response.contains_key(ETAG) || response.contains_key(LAST_MODIFIED));
    }
    if response.contains_key(CONTENT_ENCODING) {
        assert!(storing.vary.iter().any(|name| name == "accept-encoding"));
    }
    if let [kind] = lines_of(response, CONTENT_TYPE)[..] {
        let is_html = kind.len() >= 9 && kind[..9].eq_ignore_ascii_case(b"text/html");
        assert!(!is_html || storing.guarded || kind.len() > 9);
    }
}

/// No lifetime is longer than the largest number that is said, or than `Expires` lets it be.
fn largest_said(response: &HeaderMap) -> u64 {
    let numbers = [CACHE_CONTROL, CDN_CACHE_CONTROL.clone()];
    let said = numbers.iter().flat_map(|name| lines_of(response, name)).flat_map(|line| {
        line.split(|byte| !byte.is_ascii_digit()).map(|digits| {
            digits
                .iter()
                .fold(0_u64, |sum, d| sum.saturating_mul(10).saturating_add(u64::from(d - b'0')))
        })
    });
    let by_date = if response.contains_key(EXPIRES) { u64::MAX } else { 0 };
    said.chain([by_date]).max().unwrap_or(0)
}

/// What is kept of it says the same when it is read again.
fn write_down(setting: &Setting, response: &HeaderMap, storing: &Storing) -> Entry {
    let entry = Entry {
        recipe: None,
        hits: anteroom_cache::hit_count::HitCount::default(),
        status: setting.status.as_u16(),
        reason: None,
        fields: PageFields::of(response),
        body: Bytes::from_static(b"hello"),
        stored_at: NOW,
        initial_age: initial_age(response, NOW, NOW),
        lifetime: storing.lifetime,
        source: storing.source,
        stale: storing.stale,
        static_proof: storing.static_proof,
        has_own_etag: false,
        vary: storing.vary.clone(),
        purge_snapshot: Arc::new(PurgeSnapshot::default()),
    };
    assert_eq!(entry.fields.map(), *response);
    assert_eq!(entry.is_fresh(NOW), storing.is_fresh);
    assert!(!entry.is_fresh(NOW.saturating_add(storing.lifetime)));
    let stored = StoredValue::Page(entry.clone());
    assert_eq!(StoredValue::decode(stored.encode()), Ok(stored));
    entry
}

/// A request is heard where it may wish, and only there.
fn wishes(setting: &Setting, request: &HeaderMap, entry: &Entry) {
    let honours = setting.policy.client_directives;
    let is_met =
        |request: &HeaderMap| RequestDirectives::of(request, honours).is_met_by(entry, NOW);
    assert!(honours || is_met(request));
    assert_eq!(is_met(&with(request, &CACHE_CONTROL, "no-cache")), !honours);
    let newest = is_met(&with(request, &CACHE_CONTROL, "max-age=0"));
    assert!(!newest || !honours || entry.age(NOW) == 0);
    assert!(
        RequestDirectives::of(&with(request, &CACHE_CONTROL, "only-if-cached"), honours)
            .only_if_cached
    );
}
