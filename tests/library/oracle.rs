//! Our rules beside those of another cache library, on random responses to strangers: whether a
//! response is stored, how old it is, and for how long it is fresh.
//!
//! The other one, `http-cache-semantics`, is told each response in the *plain* form in which it reads
//! what we read; what is changed to that end is a [`Kind`] of disagreement, and each is listed with the
//! reason why we are right, or on the safe side. What remains must agree to the second. A kind that
//! makes no difference in a whole run fails, too, so that the list stays true.
//!
//! `ORACLE_SEED` and `ORACLE_CASES` try other responses, and more of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where its input is not as arranged"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::verdict::{
    Access, CacheSettings, RequestView, ResponseView, Sharing, can_cache, may_store,
};
use anteroom_http::field_set::FieldSet;
use anteroom_http::freshness::initial_age;
use anteroom_http::query::QueryRule;
use anteroom_policy::route::Route;
use anteroom_telemetry::reason::Reason;
use fastrand::Rng;
use http::header::{
    AGE, CACHE_CONTROL, DATE, ETAG, EXPIRES, LAST_MODIFIED, PRAGMA, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_cache_semantics::{CacheOptions, CachePolicy};

/// Sun, 06 Nov 1994 08:49:37 GMT
const NOW: u64 = 784_111_777;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// The origin's word alone, as in the profile for the public cache tests.
const POLICY: CacheSettings = CacheSettings {
    default_ttl: Duration::ZERO,
    stale_while_revalidate: Duration::ZERO,
    stale_if_error: Duration::ZERO,
    static_for_all: true,
    max_object: 1 << 20,
    client_directives: true,
};

/// Where the other one disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    AnyCase,
    Commas,
    Quoted,
    FieldBytes,
    NoNumber,
    LargeNumber,
    Repeated,
    ProxyRevalidate,
    Immutable,
    MustUnderstand,
    Targeted,
    Pragma,
    OldDate,
    OtherZone,
    ShortDay,
    TwoLines,
    AgeText,
    ApparentAge,
    Guess,
    SetCookie,
    VaryAny,
    Status,
    Useless,
}

/// Every kind once, and why our answer is the better one.
const KINDS: [(Kind, &str); 23] = [
    (Kind::AnyCase, "RFC 9111 §5.2: directives are case-insensitive; it reads lower case only"),
    (Kind::Commas, "RFC 9110 §5.6.4: a comma in a quoted string divides nothing; it divides there"),
    (
        Kind::Quoted,
        "RFC 9111 §5.2: no directive is quoted whole; where one that forbids is, we obey it, for nothing \
         else can be meant; it does not",
    ),
    (
        Kind::FieldBytes,
        "RFC 9110 §5.5: obs-text is opaque data; it drops the whole line, `private` and all",
    ),
    (
        Kind::NoNumber,
        "RFC 9111 §4.2.1: invalid freshness is stale; it takes a sign and spaces for a number's, and \
         looks at Expires where a directive has no argument",
    ),
    (Kind::LargeNumber, "RFC 9111 §1.2.2: too large is 2^31; it takes what fits, and else 0"),
    (
        Kind::Repeated,
        "RFC 9111 §4.2.1: of contradicting values the first or stale; ours is the smallest, so that \
         no response lives longer for being sent twice; it takes the first",
    ),
    (
        Kind::ProxyRevalidate,
        "RFC 9111 §5.2.2.8: binds once the response is stale; it never takes it for fresh",
    ),
    (Kind::Immutable, "RFC 8246 §2: says nothing of how long; it makes a day of it"),
    (
        Kind::MustUnderstand,
        "RFC 9111 §5.2.2.3: with a status that is understood no-store does not count, and without \
         nothing is stored; it does not know the directive",
    ),
    (Kind::Targeted, "RFC 9213 §2.2: CDN-Cache-Control outweighs the others; it does not know it"),
    (
        Kind::Pragma,
        "RFC 9111 §5.4: says nothing in a response; where the origin names a lifetime that counts, \
         and where it names none we guess none; it obeys it only without Cache-Control",
    ),
    (Kind::OldDate, "RFC 9110 §5.6.7: three forms are dates; it reads one of them"),
    (Kind::OtherZone, "RFC 9110 §5.6.7: a date of HTTP is in GMT; it takes other zones"),
    (Kind::ShortDay, "RFC 9110 §5.6.7: a day has two digits; it takes one"),
    (
        Kind::TwoLines,
        "RFC 9111 §4.2.1, §5.3: two Expires are invalid, so expired, and two Dates are none; it \
         takes the first",
    ),
    (
        Kind::AgeText,
        "RFC 9111 §5.1: the first member counts, parameters do not, too much is 2^31, and what is no \
         number is ignored; it takes a sign, and nothing for the others",
    ),
    (Kind::ApparentAge, "RFC 9111 §4.2.3: the age by Date counts, too; it looks at Age alone"),
    (Kind::Guess, "RFC 9111 §4.2.2: how much is guessed is the cache's; we guess 300 s at most"),
    (
        Kind::SetCookie,
        "RFC 9111 §7.3: caching is not forbidden, and a cookie of one visitor would go to all; it \
         stores it",
    ),
    (
        Kind::VaryAny,
        "RFC 9111 §4.1: fits no later request; it stores it, and sees a lone star only",
    ),
    (
        Kind::Status,
        "RFC 9111 §3: with a lifetime, or public, any final status may be stored but 206 and 304; \
         it wants to know the status",
    ),
    (
        Kind::Useless,
        "RFC 9111 §3: storing is never a duty; what is stale on arrival helps nobody without a \
         validator, or where a word was against guessing; it calls it storable",
    ),
];

/// A piece of a response: as it is sent, and in plain words, where these are others.
#[derive(Clone, Copy, Debug)]
struct Word {
    sent: &'static str,
    plain: Option<(Kind, &'static str)>,
}

const fn same(sent: &'static str) -> Word {
    Word { sent, plain: None }
}

const fn odd(sent: &'static str, kind: Kind, plain: &'static str) -> Word {
    Word { sent, plain: Some((kind, plain)) }
}

/// Directives that name a lifetime, for which each response takes one at most of each group.
const MAX_AGE: [Word; 16] = [
    same("max-age=0"),
    same("max-age=60"),
    same("max-age=3600"),
    same("max-age=\"600\""),
    same("max-age=x"),
    same("max-age=-60"),
    same("max-age=1.5"),
    same("max-age="),
    odd("MaX-aGe=3600", Kind::AnyCase, "max-age=3600"),
    odd("max-age=+3600", Kind::NoNumber, "max-age=0"),
    odd("max-age= 3600", Kind::NoNumber, "max-age=0"),
    odd("max-age", Kind::NoNumber, "max-age=0"),
    odd("max-age=4294967296", Kind::LargeNumber, "max-age=2147483648"),
    odd("max-age=99999999999999999999", Kind::LargeNumber, "max-age=2147483648"),
    odd("max-age=3600, max-age=60", Kind::Repeated, "max-age=60"),
    odd("max-age=60, max-age=3600", Kind::Repeated, "max-age=60"),
];
const S_MAXAGE: [Word; 7] = [
    same("s-maxage=0"),
    same("s-maxage=30"),
    same("s-maxage=7200"),
    odd("S-MAXAGE=7200", Kind::AnyCase, "s-maxage=7200"),
    odd("s-maxage", Kind::NoNumber, "s-maxage=0"),
    odd("s-maxage=7200,s-maxage=30", Kind::Repeated, "s-maxage=30"),
    odd("s-maxage=99999999999999999999", Kind::LargeNumber, "s-maxage=2147483648"),
];
const OTHERS: [Word; 23] = [
    same("public"),
    same("public"),
    same("private"),
    same("no-store"),
    same("no-cache"),
    same("no-cache=\"set-cookie\""),
    same("private=\"set-cookie\""),
    same("must-revalidate"),
    same("no-transform"),
    same("unknown=1"),
    same("=private"),
    odd("\"private\"", Kind::Quoted, "private"),
    same("xmax-age=3600"),
    odd("Private", Kind::AnyCase, "private"),
    odd("NO-STORE", Kind::AnyCase, "no-store"),
    odd("No-Cache", Kind::AnyCase, "no-cache"),
    odd("Public", Kind::AnyCase, "public"),
    odd("ext=\"a, no-store, b\"", Kind::Commas, "ext=a"),
    odd("no-cache=\"a, private\"", Kind::Commas, "no-cache"),
    odd("ext=\"\u{e9}\"", Kind::FieldBytes, "ext=e"),
    odd("proxy-revalidate", Kind::ProxyRevalidate, "ext"),
    odd("immutable", Kind::Immutable, "ext"),
    odd("must-understand", Kind::MustUnderstand, "ext"),
];

const TARGETED: [Word; 8] = [
    odd("max-age=120", Kind::Targeted, "max-age=120"),
    odd("max-age=120, s-maxage=90", Kind::Targeted, "s-maxage=90"),
    odd("max-age=120;a=b, private=?0", Kind::Targeted, "max-age=120"),
    odd("private, max-age=120", Kind::Targeted, "private"),
    odd("no-store", Kind::Targeted, "no-store"),
    odd("public", Kind::Targeted, "public"),
    // Not of the right type, or no dictionary: the others count.
    odd("max-age=\"120\"", Kind::Targeted, ""),
    odd("Max-Age=120", Kind::Targeted, ""),
];
const AGES: [Word; 11] = [
    same("0"),
    same("59"),
    same("61"),
    same("-61"),
    same("x"),
    odd("+61", Kind::AgeText, "0"),
    odd("61, 0", Kind::AgeText, "61"),
    odd("0, 61", Kind::AgeText, "0"),
    odd("61;a=b", Kind::AgeText, "61"),
    odd("4294967296", Kind::AgeText, "2147483648"),
    odd("99999999999999999999", Kind::AgeText, "2147483648"),
];
const VARIES: [Word; 6] = [
    same("Accept-Encoding"),
    same("Accept, User-Agent"),
    same(""),
    odd("*", Kind::VaryAny, "*"),
    odd("Accept, *", Kind::VaryAny, "*"),
    odd("no name", Kind::VaryAny, "*"),
];
const STATUSES: [u16; 18] =
    [200, 200, 200, 200, 203, 204, 206, 301, 302, 304, 307, 403, 404, 410, 418, 500, 503, 599];

/// How a date is written.
#[derive(Clone, Copy, Debug)]
enum Form {
    Plain,
    Rfc850,
    Asctime,
    OtherZone,
    ShortDay,
    Garbage,
    Twice,
}

const FORMS: [Form; 10] = [
    Form::Plain,
    Form::Plain,
    Form::Plain,
    Form::Plain,
    Form::Rfc850,
    Form::Asctime,
    Form::OtherZone,
    Form::ShortDay,
    Form::Garbage,
    Form::Twice,
];

/// A moment in a response.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    at: u64,
    form: Form,
}

impl Stamp {
    fn plain(self) -> String {
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(self.at))
    }

    /// The lines as they are sent.
    fn lines(self) -> Vec<String> {
        let plain = self.plain();
        let [day, date, month, year, time] =
            [0..3, 5..7, 8..11, 12..16, 17..25].map(|part| &plain[part]);
        vec![match self.form {
            Form::Plain => plain,
            Form::Rfc850 => {
                let long = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
                let long = long.into_iter().find(|long| long.starts_with(day));
                format!("{}, {date}-{month}-{} {time} GMT", long.unwrap_or("Sunday"), &year[2..])
            }
            Form::Asctime => format!("{day} {month} {date} {time} {year}"),
            Form::OtherZone => plain.replace("GMT", "+0000"),
            Form::ShortDay => plain.replace(", 0", ", "),
            Form::Garbage => "0".to_owned(),
            Form::Twice => return vec![plain.clone(), plain],
        }]
    }

    /// What of it is not for everyone to read, and whether it is a date.
    fn reading(self) -> (Option<Kind>, bool) {
        match self.form {
            Form::Plain => (None, true),
            Form::Rfc850 | Form::Asctime => (Some(Kind::OldDate), true),
            Form::OtherZone => (Some(Kind::OtherZone), false),
            Form::ShortDay if self.plain().contains(", 0") => (Some(Kind::ShortDay), false),
            Form::ShortDay => (None, true),
            Form::Garbage => (None, false),
            Form::Twice => (Some(Kind::TwoLines), false),
        }
    }

    fn is_date(self) -> bool {
        self.reading().1
    }
}

/// A response and what asked for it.
#[derive(Clone, Debug)]
struct Case {
    request_control: Option<Word>,
    status: u16,
    control: Vec<Word>,
    in_lines: bool,
    targeted: Option<Word>,
    expires: Option<Stamp>,
    date: Option<Stamp>,
    last_modified: Option<Stamp>,
    age: Option<Word>,
    vary: Option<Word>,
    pragma: bool,
    set_cookie: bool,
    etag: bool,
}

fn one_in(rng: &mut Rng, count: u32) -> bool {
    rng.u32(0..count) == 0
}

fn maybe(rng: &mut Rng, count: u32, words: &[Word]) -> Option<Word> {
    one_in(rng, count).then(|| *rng.choice(words).unwrap())
}

impl Case {
    fn random(rng: &mut Rng) -> Self {
        let mut control: Vec<_> = [maybe(rng, 2, &MAX_AGE), maybe(rng, 6, &S_MAXAGE)]
            .into_iter()
            .flatten()
            .chain((0..rng.u32(0..3)).map(|_| *rng.choice(&OTHERS).unwrap()))
            .collect();
        rng.shuffle(&mut control);
        let stamp = |rng: &mut Rng, count, offsets: &[i64]| {
            one_in(rng, count).then(|| Stamp {
                at: NOW.saturating_add_signed(*rng.choice(offsets).unwrap()),
                form: *rng.choice(&FORMS).unwrap(),
            })
        };
        Self {
            request_control: maybe(
                rng,
                12,
                &[same("no-store"), odd("No-Store", Kind::AnyCase, "no-store"), same("no-cache")],
            ),
            status: *rng.choice(&STATUSES).unwrap(),
            control,
            in_lines: rng.bool(),
            targeted: maybe(rng, 10, &TARGETED),
            expires: stamp(rng, 3, &[-DAY, -10, 0, 10, HOUR, DAY]),
            date: stamp(rng, 2, &[-2 * DAY, -HOUR, -50, -1, 0, 0, 5, HOUR]),
            last_modified: stamp(rng, 2, &[-100 * DAY, -HOUR, -600, 0, HOUR]),
            age: maybe(rng, 4, &AGES),
            vary: maybe(rng, 5, &VARIES),
            pragma: one_in(rng, 6),
            set_cookie: one_in(rng, 8),
            etag: rng.bool(),
        }
    }

    fn request(&self, plain: &Plain) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(word) = self.request_control {
            headers.insert(CACHE_CONTROL, plain.word(word).parse().unwrap());
        }
        headers
    }

    /// The response as it is sent.
    fn sent(&self) -> HeaderMap {
        let mut headers = self.rest();
        let separator = if self.in_lines { "\n" } else { ", " };
        let control: Vec<_> = self.control.iter().map(|word| word.sent).collect();
        for line in control.join(separator).lines() {
            append(&mut headers, CACHE_CONTROL, line);
        }
        if let Some(word) = self.targeted {
            append(&mut headers, HeaderName::from_static("cdn-cache-control"), word.sent);
        }
        for (name, stamp) in
            [(EXPIRES, self.expires), (DATE, self.date), (LAST_MODIFIED, self.last_modified)]
        {
            for line in stamp.into_iter().flat_map(Stamp::lines) {
                append(&mut headers, name.clone(), &line);
            }
        }
        for (name, word) in [(AGE, self.age), (VARY, self.vary)] {
            if let Some(word) = word {
                append(&mut headers, name, word.sent);
            }
        }
        headers
    }

    /// What needs no translation.
    fn rest(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value, is_there) in [
            (PRAGMA, "no-cache", self.pragma),
            (SET_COOKIE, "a=b", self.set_cookie),
            (ETAG, "\"1\"", self.etag),
        ] {
            if is_there {
                append(&mut headers, name, value);
            }
        }
        headers
    }
}

/// As text, whatever its bytes: an `é` is sent in Latin-1.
fn append(headers: &mut HeaderMap, name: HeaderName, line: &str) {
    let bytes: Vec<_> = line.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    headers.append(name, HeaderValue::from_bytes(&bytes).unwrap());
}

/// What is said in plain words: all kinds, or all but one.
struct Plain {
    but: Option<Kind>,
}

impl Plain {
    fn says(&self, kind: Kind) -> bool {
        self.but != Some(kind)
    }

    fn word(&self, word: Word) -> &'static str {
        match word.plain {
            Some((kind, plain)) if self.says(kind) => plain,
            _ => word.sent,
        }
    }

    /// The lines of a date: as they are where everyone reads them alike, else the plain form, or
    /// `otherwise` where it is none.
    fn stamp(&self, stamp: Stamp, otherwise: Option<&str>) -> Vec<String> {
        match stamp.reading() {
            (Some(kind), true) if self.says(kind) => vec![stamp.plain()],
            (Some(kind), false) if self.says(kind) => {
                otherwise.into_iter().map(str::to_owned).collect()
            }
            _ => stamp.lines(),
        }
    }

    /// The status and the response in words that the other one understands as we do.
    fn response(&self, case: &Case) -> (u16, HeaderMap) {
        let mut headers = case.rest();
        let mut control: Vec<_> = case.control.iter().map(|word| self.word(*word)).collect();
        let mut expires = case.expires;
        if let Some(word) = case.targeted.filter(|_| self.says(Kind::Targeted)) {
            let (_, plain) = word.plain.unwrap();
            let is_garbled = plain.is_empty();
            if !is_garbled {
                control = vec![plain];
            }
            // What was meant is not known, or was meant for others: nothing is guessed from it.
            if !names_lifetime(&control) && (is_garbled == expires.is_none()) {
                control.push("no-cache");
            }
            expires = expires.filter(|_| is_garbled);
        }
        let is_explicit = names_lifetime(&control) || expires.is_some();
        if case.pragma && self.says(Kind::Pragma) {
            headers.remove(PRAGMA);
            if !is_explicit {
                control.push("no-cache");
            }
        }
        let status = self.status(case, &mut control, is_explicit);
        let personal = [(Kind::SetCookie, case.set_cookie), (Kind::VaryAny, has_star(case.vary))];
        if personal.into_iter().any(|(kind, is_there)| is_there && self.says(kind)) {
            control.push("no-store");
        }
        // In lines, so that what it cannot read in one hides none of the others from it.
        let control = control.join(if case.in_lines { "\n" } else { ", " });
        control.lines().for_each(|line| append(&mut headers, CACHE_CONTROL, line));
        if let Some(word) = case.vary {
            append(&mut headers, VARY, word.sent);
        }
        let expires = expires.map_or_else(Vec::new, |stamp| self.stamp(stamp, Some("0")));
        expires.iter().for_each(|line| append(&mut headers, EXPIRES, line));
        let date = case.date.map_or_else(Vec::new, |stamp| self.stamp(stamp, None));
        date.iter().for_each(|line| append(&mut headers, DATE, line));
        self.guess(case, &mut headers);
        self.age(case, &mut headers);
        (status, headers)
    }

    fn status(&self, case: &Case, control: &mut Vec<&str>, is_explicit: bool) -> u16 {
        let is_known = matches!(case.status, 200 | 203 | 204 | 301 | 302 | 307 | 404 | 410);
        let must = case.targeted.is_none_or(|word| word.plain.is_some_and(|(_, p)| p.is_empty()))
            && case.control.iter().any(|word| word.sent == "must-understand");
        if must && self.says(Kind::MustUnderstand) {
            control.retain(|directive| !directive.eq_ignore_ascii_case("no-store"));
            if !is_known {
                control.push("no-store");
            }
        }
        let is_public = control.iter().any(|directive| directive.eq_ignore_ascii_case("public"));
        let is_stored = (is_explicit || is_public) && !matches!(case.status, 206 | 304);
        if !is_known && is_stored && self.says(Kind::Status) { 200 } else { case.status }
    }

    /// `Last-Modified`, and no longer ago than leads to 300 s.
    fn guess(&self, case: &Case, headers: &mut HeaderMap) {
        let Some(stamp) = case.last_modified else {
            return;
        };
        let made = case.date.filter(|date| date.is_date()).map_or(NOW, |date| date.at);
        if stamp.is_date() && made.saturating_sub(stamp.at) > 3_000 && self.says(Kind::Guess) {
            let form = if matches!(stamp.form, Form::ShortDay) { Form::Plain } else { stamp.form };
            let later = Stamp { at: made - 3_000, form };
            self.stamp(later, None).iter().for_each(|line| append(headers, LAST_MODIFIED, line));
        } else {
            self.stamp(stamp, None).iter().for_each(|line| append(headers, LAST_MODIFIED, line));
        }
    }

    /// `Age`, and no less than by `Date`.
    fn age(&self, case: &Case, headers: &mut HeaderMap) {
        let said = case.age.map(|word| self.word(word));
        let apparent =
            case.date.filter(|date| date.is_date()).map_or(0, |date| NOW.saturating_sub(date.at));
        let said_seconds = said.and_then(|said| said.parse().ok()).unwrap_or(0);
        if apparent > said_seconds && self.says(Kind::ApparentAge) {
            append(headers, AGE, &apparent.to_string());
        } else if let Some(said) = said {
            append(headers, AGE, said);
        }
    }
}

fn names_lifetime(control: &[&str]) -> bool {
    control.iter().any(|directive| {
        let name = directive.split('=').next().unwrap().to_ascii_lowercase();
        matches!(name.as_str(), "max-age" | "s-maxage")
    })
}

fn has_star(vary: Option<Word>) -> bool {
    vary.is_some_and(|word| word.plain.is_some())
}

/// What becomes of a response, in seconds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Dropped,
    Kept { age: u64, fresh_for: u64 },
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("dropped"),
            Self::Kept { age, fresh_for } => {
                write!(f, "kept, {age} s old, fresh for {fresh_for} s")
            }
        }
    }
}

fn ours(case: &Case) -> Result<Fate, Reason> {
    let (request, response) = (case.request(&Plain { but: Some(Kind::AnyCase) }), case.sent());
    let asked = RequestView {
        method: &Method::GET,
        path: "/",
        query: "",
        headers: &request,
        fields: FieldSet::of(&request),
        has_body: false,
        bound: false,
        who: Sharing::Anonymous,
    };
    let route = Route::rest(true, QueryRule::default());
    match can_cache(&asked, &route, &POLICY) {
        Access::Shared(ShareClass::Anonymous) => {}
        Access::Bypass(reason) => return Err(reason),
        other => panic!("a stranger's plain GET is {other:?}"),
    }
    let age = initial_age(&response, NOW, NOW);
    let answer = ResponseView {
        status: StatusCode::from_u16(case.status).unwrap(),
        headers: &response,
        length: Some(5),
        unframed: false,
        age,
        now: NOW,
    };
    let storing = may_store(&asked, ShareClass::Anonymous, &answer, &route, &POLICY)?;
    assert_eq!(storing.is_fresh, storing.lifetime > age, "{case:?}");
    Ok(Fate::Kept { age, fresh_for: storing.lifetime.saturating_sub(age) })
}

fn theirs(case: &Case, plain: &Plain) -> Fate {
    let mut request = Request::get("http://shop.test/").body(()).unwrap();
    *request.headers_mut() = case.request(plain);
    let (status, headers) = plain.response(case);
    let mut response = Response::builder().status(status).body(()).unwrap();
    *response.headers_mut() = headers;
    let now: SystemTime = UNIX_EPOCH + Duration::from_secs(NOW);
    let options = CacheOptions { shared: true, ..CacheOptions::default() };
    let policy = CachePolicy::new_options(&request, &response, now, options);
    if !policy.is_storable() {
        return Fate::Dropped;
    }
    let fresh_for = policy.time_to_live(now).as_secs();
    Fate::Kept { age: policy.age(now).as_secs(), fresh_for }
}

/// Whether we drop what would be of no use.
fn is_useless(case: &Case, ours: Result<Fate, Reason>, theirs: Fate) -> bool {
    let stale = matches!(ours, Err(Reason::NoLifetime | Reason::Stale | Reason::NoCache));
    // A guess is refused where there was a word that cannot be read.
    let no_guess = matches!(ours, Err(Reason::ResponseField));
    let can_be_asked = case.status == 200 && (case.etag || case.last_modified.is_some());
    let is_stale = matches!(theirs, Fate::Kept { fresh_for: 0, .. });
    is_stale && (no_guess || (stale && !can_be_asked))
}

/// A kind that made a difference as often as this is counted no further.
const ENOUGH: u32 = 10;

/// Compares one response, and counts the kinds that make a difference in it.
fn compare(case: &Case, counts: &mut BTreeMap<Kind, u32>) -> Result<(), String> {
    let (ours, plain) = (ours(case), theirs(case, &Plain { but: None }));
    if is_useless(case, ours, plain) {
        *counts.entry(Kind::Useless).or_default() += 1;
    } else if ours.unwrap_or(Fate::Dropped) != plain {
        return Err(format!("{case:#?}\n{:#?}\nours: {ours:?}, its: {plain:?}", case.sent()));
    }
    for (kind, _) in KINDS {
        let seen = counts.entry(kind).or_default();
        if *seen < ENOUGH && theirs(case, &Plain { but: Some(kind) }) != plain {
            *seen += 1;
        }
    }
    Ok(())
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

#[test]
fn where_another_library_says_otherwise_there_is_a_reason() {
    let seed = from_environment("ORACLE_SEED", 1994);
    let cases = from_environment("ORACLE_CASES", 50_000);
    println!("ORACLE_SEED={seed} ORACLE_CASES={cases}");
    let mut rng = Rng::with_seed(seed);
    let mut counts = BTreeMap::new();
    for number in 0..cases {
        let told = compare(&Case::random(&mut rng), &mut counts);
        assert!(told.is_ok(), "case {number}: no kind explains this:\n{}", told.unwrap_err());
    }
    for (kind, why) in KINDS {
        let count = counts.get(&kind).copied().unwrap_or(0);
        println!("{count:6} {kind:?}: {why}");
        assert!(count > 0, "{kind:?} makes no difference: {why}");
    }
}
