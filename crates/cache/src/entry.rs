//! The stored form of a page: what is kept of a response, and its encoding.
//!
//! Where and whether it is stored is decided elsewhere. The layout: magic, a version byte, a kind, then
//! numbers as LEB128 and texts with a length prefix, the body last. A value without the magic was written by
//! an app in the chapter's layout (Redis in Action, chapter 2), and is the plain body of a page.

use ::http::header::{ETAG, LAST_MODIFIED};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use anteroom_fault::fault;
use bytes::{Bytes, BytesMut};

use std::sync::Arc;

use anteroom_http::etag;
use anteroom_http::ident::PageKey;
use anteroom_http::vary::FIELDS_MAX;
use anteroom_store::{Generation, PAGE_MAGIC, PAGE_VERSION};

use super::hit_count::HitCount;
use super::page_fields::PageFields;
use super::purge::{PurgeSnapshot, SLOTS_MAX};
use super::recipe::Recipe;

/// The most variants in an index.
pub const VARIANTS_MAX: usize = 256;

/// The most field lines of a stored page: hyper accepts no more from an origin.
const LINES_MAX: u64 = 1_024;

/// How long a stale page with a validator is kept, in seconds: a 304 makes it fresh again, which costs the
/// origin less than the page.
const VALIDATED_FOR: u64 = 3_600;

/// A page is fetched again ahead of its expiry in the last of so many parts of its lifetime.
const AHEAD_PART: u64 = 10;

/// How far the clocks of proxies on one store are apart at most, in seconds.
const CLOCKS_APART: u64 = 30;

/// No text begins with these bytes, so no plain page does.
const MAGIC: [u8; 4] = PAGE_MAGIC;

/// The version of the layout. Other versions are refused, which is a cache miss.
const VERSION: u8 = PAGE_VERSION;

const KIND_PAGE: u8 = 1;
const KIND_VARIANTS: u8 = 2;

/// A value stored under a page key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredValue {
    /// A response.
    Page(Entry),
    /// An index of variants: the response depends on request fields, and each variant has its own key.
    Variants(VariantIndex),
    /// A body that an app stored in the chapter's layout: a 200 of `text/html`.
    Plain(Bytes),
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The status.
    pub status: u16,
    /// The reason phrase, if it was not the standard one.
    pub reason: Option<Bytes>,
    /// The field lines, without hop-by-hop fields.
    pub fields: PageFields,
    /// The whole body.
    pub body: Bytes,
    /// When the response arrived, in seconds since 1970.
    pub stored_at: u64,
    /// Its age on arrival, in seconds (RFC 9111 §4.2.3).
    pub initial_age: u64,
    /// Its freshness lifetime, in seconds from its origination (RFC 9111 §4.2.1).
    pub lifetime: u64,
    /// The source of the lifetime.
    pub source: LifetimeSource,
    /// How long it may be served stale.
    pub stale: StaleLifetimes,
    /// Whether visitors with a login may get it too: it is static content that an anonymous request fetched.
    pub static_proof: bool,
    /// Whether its `ETag` was made by this proxy. The origin does not know such a tag.
    pub has_own_etag: bool,
    /// The request fields that select it, at most [`FIELDS_MAX`].
    pub vary: Vec<HeaderName>,
    /// Which purges apply to it.
    pub purge_snapshot: Arc<PurgeSnapshot>,
    /// How the proxy fetches it again by itself, if it may. Not stored.
    pub recipe: Option<Arc<Recipe>>,
    /// How often it was the answer from memory. Not stored.
    pub hits: HitCount,
}

/// How long a page may be served after its freshness lifetime (RFC 5861), in seconds. Zero where this is
/// forbidden (RFC 9111 §4.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaleLifetimes {
    /// While it is revalidated or fetched.
    pub while_revalidate: u64,
    /// While the origin fails.
    pub if_error: u64,
}

/// The source of a freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifetimeSource {
    /// The origin.
    Explicit,
    /// `default_ttl`.
    Default,
    /// A route's `ttl`.
    Route,
    /// A route's `override_ttl`.
    Override,
    /// A heuristic by `Last-Modified` (RFC 9111 §4.2.2).
    Heuristic,
}

/// The keys of a page's variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantIndex {
    /// The request fields that select a variant, at most [`FIELDS_MAX`].
    pub fields: Vec<HeaderName>,
    /// The variants' keys, at most [`VARIANTS_MAX`].
    pub keys: Vec<PageKey>,
}

impl Entry {
    /// The age at `now`, in seconds (RFC 9111 §4.2.3), for the `Age` field. A request that has waited for a fetch has an
    /// earlier `now`.
    #[must_use]
    pub fn age(&self, now: u64) -> u64 {
        self.initial_age.saturating_add(now.saturating_sub(self.stored_at))
    }

    /// Whether a clock that was ahead has stored it: how old it is, is not known.
    #[must_use]
    pub fn is_from_the_future(&self, now: u64) -> bool {
        self.stored_at > now.saturating_add(CLOCKS_APART)
    }

    /// Whether the page is fresh at `now` (RFC 9111 §4.2).
    #[must_use]
    pub fn is_fresh(&self, now: u64) -> bool {
        self.lifetime > self.age(now)
    }

    /// The page as if it were fetched again at `now`, in Unix seconds. `current`: the marks of a page at its URL.
    #[must_use]
    pub fn fetched_again(&self, now: u64, current: &PurgeSnapshot) -> Self {
        let snapshot = current.clone().with(&self.purge_snapshot.slots);
        Self { stored_at: now, purge_snapshot: Arc::new(snapshot), ..self.clone() }
    }

    /// Seconds of freshness left at `now`; negative if it is stale.
    #[must_use]
    pub fn ttl(&self, now: u64) -> i64 {
        let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        signed(self.lifetime).saturating_sub(signed(self.age(now)))
    }

    /// Whether the page is fresh, and so close to its expiry that it is fetched again ahead of it: the last tenth of
    /// its lifetime, and at least one second. `spread` is some number of the page, such as a byte of its key: it
    /// shortens the tenth by up to half, so that pages that were stored together are not fetched together.
    #[must_use]
    pub fn is_due_ahead(&self, now: u64, spread: u8) -> bool {
        let tenth = self.lifetime / AHEAD_PART;
        let ahead = (tenth - tenth / 2 * u64::from(spread) / 256).max(1);
        let age = self.age(now);
        self.lifetime > age && self.lifetime - age <= ahead
    }

    /// Seconds for which it has been stale at `now`; 0 while it is fresh.
    #[must_use]
    pub fn staleness(&self, now: u64) -> u64 {
        self.age(now).saturating_sub(self.lifetime)
    }

    /// Whether it may be served at `now` while it is revalidated (RFC 5861 §3).
    #[must_use]
    pub fn serves_while_revalidating(&self, now: u64) -> bool {
        self.staleness(now) < self.stale.while_revalidate
            || (fault!("meanwhile") && self.stale.while_revalidate > 0)
    }

    /// Whether it may be served at `now` while the origin fails (RFC 5861 §4).
    #[must_use]
    pub fn serves_on_error(&self, now: u64) -> bool {
        fault!("on-error")
            || self.staleness(now) < self.stale.if_error.max(self.stale.while_revalidate)
    }

    /// Whether it has a validator for revalidation with the origin (RFC 9111 §4.3.1).
    #[must_use]
    pub fn has_validator(&self) -> bool {
        self.status == 200 && !self.has_own_etag && self.fields.has_validator
    }

    /// Gives a page without a validator a generated `ETag`, so that browsers can revalidate their copies. The
    /// body must be whole.
    pub fn tag(&mut self) {
        let has_any = [ETAG, LAST_MODIFIED].iter().any(|name| self.fields.has(name));
        if self.status == 200 && !has_any {
            self.fields = self.fields.tagged(&etag::of_body(&self.body));
            self.has_own_etag = true;
        }
    }

    /// Seconds for which the page is worth keeping at `now`: while it is fresh, while it may be served stale,
    /// and longer if a 304 can make it fresh again.
    #[must_use]
    pub fn worth(&self, now: u64) -> u64 {
        let validated = if self.has_validator() { VALIDATED_FOR } else { 0 };
        let window = validated.max(self.stale.while_revalidate).max(self.stale.if_error);
        self.lifetime.saturating_add(window).saturating_sub(self.age(now))
    }

    /// The approximate memory use of the page, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + 4 * self.purge_snapshot.slots.len()
            + self.fields.as_bytes().len()
            + self.body.len()
            + self.reason.as_ref().map_or(0, Bytes::len)
            + self.recipe.as_ref().map_or(0, |recipe| recipe.weight())
    }
}

/// The stored value is not a valid page: truncated, damaged, or of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored page is malformed")]
pub struct MalformedPage;

impl StoredValue {
    /// Encodes the page in a buffer of nearly its size.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Page(entry) => encode_page(entry),
            Self::Variants(index) => encode_variants(index),
            Self::Plain(body) => body.clone(),
        }
    }

    /// Decodes a stored value; a large body shares the buffer of `bytes`.
    ///
    /// # Errors
    /// [`MalformedPage`] if the bytes begin with the magic, or are a prefix of it, and are not exactly one page
    /// or index of this version.
    pub fn decode(bytes: Bytes) -> Result<Self, MalformedPage> {
        let magic = &bytes[..bytes.len().min(MAGIC.len())];
        if magic != &MAGIC[..magic.len()] {
            return Ok(Self::Plain(bytes));
        }
        let mut reader = EntryReader(bytes);
        reader.take(MAGIC.len())?;
        if reader.byte()? != VERSION {
            return Err(MalformedPage);
        }
        let stored = match reader.byte()? {
            KIND_PAGE => Self::Page(decode_page(&mut reader)?),
            KIND_VARIANTS => Self::Variants(decode_variants(&mut reader)?),
            _ => return Err(MalformedPage),
        };
        if reader.0.is_empty() { Ok(stored) } else { Err(MalformedPage) }
    }
}

impl LifetimeSource {
    fn code(self) -> u8 {
        match self {
            Self::Explicit => 0,
            Self::Default => 1,
            Self::Route => 2,
            Self::Override => 3,
            Self::Heuristic => 4,
        }
    }

    fn from_code(code: u8) -> Result<Self, MalformedPage> {
        match code {
            0 => Ok(Self::Explicit),
            1 => Ok(Self::Default),
            2 => Ok(Self::Route),
            3 => Ok(Self::Override),
            4 => Ok(Self::Heuristic),
            _ => Err(MalformedPage),
        }
    }
}

fn encode_page(entry: &Entry) -> Bytes {
    /// An upper bound for the magic and all numbers.
    const FIXED: usize = 96;
    /// The space for the two lengths of a line.
    const LENGTHS: usize = 5;
    let (count, lines) = entry.fields.lines().fold((0, 0), |(count, size), (name, value)| {
        (count + 1, size + LENGTHS + name.len() + value.len())
    });
    let slots = 3 * entry.purge_snapshot.slots.len();
    let mut writer = EntryWriter::new(KIND_PAGE, FIXED + slots + lines + entry.body.len());
    writer.number(u64::from(entry.status));
    writer.byte(entry.source.code());
    writer.byte(u8::from(entry.static_proof));
    writer.byte(u8::from(entry.has_own_etag));
    writer.number(entry.stored_at);
    writer.number(entry.initial_age);
    writer.number(entry.lifetime);
    writer.number(entry.stale.while_revalidate);
    writer.number(entry.stale.if_error);
    writer.byte(u8::from(entry.reason.is_some()));
    writer.text(entry.reason.as_deref().unwrap_or_default());
    writer.names(&entry.vary);
    writer.snapshot(&entry.purge_snapshot);
    writer.number(count);
    for (name, value) in entry.fields.lines() {
        writer.text(name);
        writer.text(value);
    }
    writer.text(&entry.body);
    writer.0.freeze()
}

fn decode_page(reader: &mut EntryReader) -> Result<Entry, MalformedPage> {
    let status = u16::try_from(reader.number()?).map_err(|_| MalformedPage)?;
    let source = LifetimeSource::from_code(reader.byte()?)?;
    let static_proof = reader.flag()?;
    let has_own_etag = reader.flag()?;
    let (stored_at, initial_age, lifetime) = (reader.number()?, reader.number()?, reader.number()?);
    let stale = StaleLifetimes { while_revalidate: reader.number()?, if_error: reader.number()? };
    let has_reason = reader.flag()?;
    let reason = Some(reader.text()?).filter(|_| has_reason);
    let vary = reader.names()?;
    let snapshot = reader.snapshot()?;
    let fields = PageFields::of(&decode_headers(reader)?);
    let body = own(reader.text()?, fields.as_bytes().len());
    // RFC 9110 §15: three digits; only final responses are stored.
    if !(200..=999).contains(&status) {
        return Err(MalformedPage);
    }
    Ok(Entry {
        status,
        reason,
        fields,
        body,
        stored_at,
        initial_age,
        lifetime,
        source,
        stale,
        static_proof,
        has_own_etag,
        vary,
        purge_snapshot: Arc::new(snapshot),
        recipe: None,
        hits: HitCount::default(),
    })
}

/// The body by itself, where it would keep much of the stored value in memory beside it.
fn own(body: Bytes, fields: usize) -> Bytes {
    /// A copy of so many bytes costs next to nothing.
    const SMALL: usize = 16 * 1024;
    let is_copied = body.len() <= SMALL || body.len() / 8 < fields;
    if is_copied { Bytes::copy_from_slice(&body) } else { body }
}

fn decode_headers(reader: &mut EntryReader) -> Result<HeaderMap, MalformedPage> {
    let lines = reader.number()?;
    if lines > LINES_MAX {
        return Err(MalformedPage);
    }
    let mut headers = HeaderMap::new();
    for _ in 0..lines {
        let name = HeaderName::from_bytes(&reader.text()?).map_err(|_| MalformedPage)?;
        let value = HeaderValue::from_maybe_shared(reader.text()?).map_err(|_| MalformedPage)?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn encode_variants(index: &VariantIndex) -> Bytes {
    let keys = &index.keys[..index.keys.len().min(VARIANTS_MAX)];
    let mut writer = EntryWriter::new(KIND_VARIANTS, 64 + 32 * keys.len());
    writer.names(&index.fields);
    writer.number(keys.len() as u64);
    for key in keys {
        writer.0.extend_from_slice(&key.0);
    }
    writer.0.freeze()
}

fn decode_variants(reader: &mut EntryReader) -> Result<VariantIndex, MalformedPage> {
    let fields = reader.names()?;
    let count = reader.count(VARIANTS_MAX)?;
    let keys = (0..count)
        .map(|_| <[u8; 32]>::try_from(&*reader.take(32)?).map(PageKey).map_err(|_| MalformedPage))
        .collect::<Result<_, _>>()?;
    Ok(VariantIndex { fields, keys })
}

/// Writes the parts of a stored value after its magic.
struct EntryWriter(BytesMut);

impl EntryWriter {
    fn new(kind: u8, capacity: usize) -> Self {
        let mut buffer = BytesMut::with_capacity(capacity);
        buffer.extend_from_slice(&MAGIC);
        buffer.extend_from_slice(&[VERSION, kind]);
        Self(buffer)
    }

    fn byte(&mut self, byte: u8) {
        self.0.extend_from_slice(&[byte]);
    }

    /// Writes LEB128: seven bits per byte, the lowest first; the top bit marks that more bytes follow.
    fn number(&mut self, mut number: u64) {
        loop {
            let low = (number & 0x7f) as u8;
            number >>= 7;
            if number == 0 {
                return self.byte(low);
            }
            self.byte(low | 0x80);
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text);
    }

    fn snapshot(&mut self, snapshot: &PurgeSnapshot) {
        self.number(snapshot.since.era);
        self.number(snapshot.since.number);
        self.number(snapshot.slots.len() as u64);
        for slot in &snapshot.slots {
            self.number(u64::from(*slot));
        }
    }

    fn names(&mut self, names: &[HeaderName]) {
        let names = &names[..names.len().min(FIELDS_MAX)];
        self.number(names.len() as u64);
        for name in names {
            self.text(name.as_str().as_bytes());
        }
    }
}

/// Reads the parts of a stored value, and validates each.
struct EntryReader(Bytes);

impl EntryReader {
    fn take(&mut self, length: usize) -> Result<Bytes, MalformedPage> {
        if length > self.0.len() {
            return Err(MalformedPage);
        }
        Ok(self.0.split_to(length))
    }

    fn byte(&mut self) -> Result<u8, MalformedPage> {
        self.take(1).map(|byte| byte[0])
    }

    fn flag(&mut self) -> Result<bool, MalformedPage> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MalformedPage),
        }
    }

    fn number(&mut self) -> Result<u64, MalformedPage> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if low.checked_shl(shift).is_none_or(|shifted| shifted >> shift != low) {
                return Err(MalformedPage);
            }
            number |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(MalformedPage)
    }

    fn count(&mut self, most: usize) -> Result<usize, MalformedPage> {
        let count = usize::try_from(self.number()?).map_err(|_| MalformedPage)?;
        if count > most { Err(MalformedPage) } else { Ok(count) }
    }

    fn text(&mut self) -> Result<Bytes, MalformedPage> {
        let length = usize::try_from(self.number()?).map_err(|_| MalformedPage)?;
        self.take(length)
    }

    fn snapshot(&mut self) -> Result<PurgeSnapshot, MalformedPage> {
        let since = Generation { era: self.number()?, number: self.number()? };
        let count = self.count(SLOTS_MAX)?;
        let slots = (0..count).map(|_| u32::try_from(self.number()?).map_err(|_| MalformedPage));
        PurgeSnapshot::stored(since, slots.collect::<Result<_, _>>()?).ok_or(MalformedPage)
    }

    fn names(&mut self) -> Result<Vec<HeaderName>, MalformedPage> {
        let count = self.count(FIELDS_MAX)?;
        (0..count)
            .map(|_| HeaderName::from_bytes(&self.text()?).map_err(|_| MalformedPage))
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ::http::header::CONTENT_TYPE;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn entry() -> Entry {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        headers.append("x-two", HeaderValue::from_static("1"));
        headers.append("x-two", HeaderValue::from_bytes(b"\xfc").unwrap());
        Entry {
            status: 200,
            reason: Some(Bytes::from_static(b"Fine")),
            fields: PageFields::of(&headers),
            body: Bytes::from_static(b"<p>hello"),
            stored_at: 1_000,
            initial_age: 10,
            lifetime: 300,
            source: LifetimeSource::Default,
            stale: StaleLifetimes::default(),
            static_proof: true,
            has_own_etag: false,
            vary: vec![CONTENT_TYPE],
            recipe: None,
            hits: HitCount::default(),
            purge_snapshot: Arc::new(
                PurgeSnapshot::stored(Generation { era: 7, number: 300 }, vec![1, 70_000]).unwrap(),
            ),
        }
    }

    #[test]
    fn age_grows_from_what_it_was_at_arrival() {
        for (now, age, ttl, fresh) in [
            (1_000, 10, 290, true),
            (1_289, 299, 1, true),
            (1_290, 300, 0, false),
            (1_300, 310, -10, false),
            (0, 10, 290, true),
            (u64::MAX, u64::MAX - 990, 300 - i64::MAX, false),
        ] {
            let entry = entry();
            assert_eq!(
                (entry.age(now), entry.ttl(now), entry.is_fresh(now)),
                (age, ttl, fresh),
                "{now}"
            );
        }
    }

    #[test]
    fn a_page_of_a_clock_that_was_ahead_is_from_the_future() {
        let is_from_it = |now| entry().is_from_the_future(now);
        assert_eq!([1_000, 970, 969, 0].map(is_from_it), [false, false, true, true]);
    }

    #[test]
    fn a_page_is_due_in_the_last_part_of_its_lifetime() {
        let due = |lifetime: u64, spread: u8| {
            let page = Entry { stored_at: 1_000, initial_age: 0, lifetime, ..entry() };
            let due = (0..=lifetime).filter(|age| page.is_due_ahead(1_000 + age, spread));
            due.collect::<Vec<_>>()
        };
        assert_eq!(due(100, 0), (90..100).collect::<Vec<_>>());
        assert_eq!(due(100, 255), (94..100).collect::<Vec<_>>(), "half of it");
        assert_eq!(due(2, 0), [1], "a second at least");
        assert_eq!(due(1, 200), [0]);
        assert_eq!(due(0, 0), [0; 0], "never fresh");
    }

    #[test]
    fn a_page_comes_back_as_it_was_and_a_large_one_shares_its_buffer() {
        for (length, is_shared) in [(8, false), (100_000, true)] {
            let page = Entry { body: vec![b'x'; length].into(), ..entry() };
            let bytes = StoredValue::Page(page.clone()).encode();
            let Ok(StoredValue::Page(back)) = StoredValue::decode(bytes.clone()) else {
                panic!("not a page");
            };
            assert_eq!(back, page);
            let range = bytes.as_ptr_range();
            assert_eq!(range.contains(&back.body.as_ptr()), is_shared, "{length}");
        }
    }

    #[test]
    fn an_app_s_own_value_is_a_plain_body() {
        for text in ["<html>", "x", "\u{0}", "\u{0}x", "{}"] {
            let bytes = Bytes::from(text.to_owned());
            let stored = StoredValue::decode(bytes.clone());
            // A lone NUL could be the start of a truncated value in this layout.
            match text {
                "\u{0}" => assert_eq!(stored, Err(MalformedPage)),
                _ => assert_eq!(stored, Ok(StoredValue::Plain(bytes.clone()))),
            }
            assert_eq!(StoredValue::Plain(bytes.clone()).encode(), bytes);
        }
        assert_eq!(StoredValue::decode(Bytes::new()), Err(MalformedPage));
    }

    #[test]
    fn another_version_or_kind_is_refused() {
        for (at, byte) in [(4, 0), (4, VERSION + 1), (5, 0), (5, 3)] {
            let mut bytes = StoredValue::Page(entry()).encode().to_vec();
            bytes[at] = byte;
            assert_eq!(StoredValue::decode(bytes.into()), Err(MalformedPage), "{at} {byte}");
        }
    }

    #[test]
    fn more_behind_the_body_is_malformed() {
        let mut bytes = StoredValue::Page(entry()).encode().to_vec();
        bytes.push(0);
        assert_eq!(StoredValue::decode(bytes.into()), Err(MalformedPage));
    }

    #[test]
    fn counts_that_promise_too_much_are_refused() {
        let most =
            VariantIndex { fields: vec![CONTENT_TYPE], keys: vec![PageKey([7; 32]); VARIANTS_MAX] };
        assert_eq!(
            StoredValue::decode(StoredValue::Variants(most.clone()).encode()),
            Ok(StoredValue::Variants(most))
        );
        let promise = |tail: &[u8]| [&MAGIC[..], &[VERSION, KIND_VARIANTS], tail].concat();
        for tail in [
            &[0, 0x81, 0x02][..],
            &[17],
            &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
        ] {
            assert_eq!(StoredValue::decode(promise(tail).into()), Err(MalformedPage), "{tail:?}");
        }
        assert!(StoredValue::decode(promise(&[0, 0]).into()).is_ok());
    }

    #[test]
    fn weight_counts_body_and_lines() {
        let (light, mut heavy) = (entry(), entry());
        heavy.body = Bytes::from(vec![0; 1_000_000]);
        let mut headers = heavy.fields.map();
        headers.insert("x-long", HeaderValue::from_str(&"y".repeat(1_000)).unwrap());
        heavy.fields = PageFields::of(&headers);
        assert!(light.weight() > light.body.len());
        assert!(heavy.weight() > light.weight() + 1_000_900);
    }

    prop_compose! {
        fn any_entry()(
            numbers in (200_u16..=999, any::<u64>(), any::<u64>(), any::<u64>()),
            lines in proptest::collection::vec(("[a-z-]{1,12}", "[ -~]{0,20}"), 0..8),
            vary in proptest::collection::vec("[a-z-]{1,8}", 0..=FIELDS_MAX),
            reason in proptest::option::of("[ -~]{0,12}"),
            body in proptest::collection::vec(any::<u8>(), 0..64),
            (source, static_proof) in (0_u8..4, any::<bool>()),
            (era, number, slots) in
                (any::<u64>(), any::<u64>(), proptest::collection::vec(0..131_073_u32, 0..SLOTS_MAX)),
        ) -> Entry {
            let (status, stored_at, initial_age, lifetime) = numbers;
            let name = |text: &String| text.parse::<HeaderName>().unwrap();
            let mut headers = HeaderMap::new();
            for (line, value) in &lines {
                headers.append(name(line), value.parse().unwrap());
            }
            Entry {
                fields: PageFields::of(&headers),
                status, stored_at, initial_age, lifetime, static_proof, has_own_etag: false,
                reason: reason.map(Bytes::from),
                body: body.into(),
                source: LifetimeSource::from_code(source).unwrap(),
                stale: StaleLifetimes::default(),
                vary: vary.iter().map(name).collect(),
                purge_snapshot: Arc::new(PurgeSnapshot::stored(Generation { era, number }, slots).unwrap()),
                recipe: None,
                hits: HitCount::default(),
            }
        }
    }

    proptest! {
        #[test]
        fn a_stored_entry_decodes_to_the_same_entry(entry in any_entry()) {
            let stored = StoredValue::Page(entry);
            prop_assert_eq!(StoredValue::decode(stored.encode()), Ok(stored));
        }

        #[test]
        fn a_truncated_entry_is_malformed(entry in any_entry(), at: prop::sample::Index) {
            let bytes = StoredValue::Page(entry).encode();
            let truncated = bytes.slice(..at.index(bytes.len()));
            prop_assert_eq!(StoredValue::decode(truncated), Err(MalformedPage));
        }

        #[test]
        fn a_damaged_byte_never_breaks_it(entry in any_entry(), at: prop::sample::Index, byte: u8) {
            let mut bytes = StoredValue::Page(entry).encode().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = StoredValue::decode(bytes.into());
        }

        #[test]
        fn arbitrary_bytes_never_break_it(tail in proptest::collection::vec(any::<u8>(), 0..64), kind in 0_u8..4) {
            let ours = [&MAGIC[..], &[VERSION, kind], &tail].concat();
            let _ = (StoredValue::decode(ours.into()), StoredValue::decode(tail.into()));
        }

        #[test]
        fn an_index_comes_back(
            fields in proptest::collection::vec("[a-z-]{1,8}", 0..=FIELDS_MAX),
            keys in proptest::collection::vec(any::<[u8; 32]>(), 0..6),
        ) {
            let stored = StoredValue::Variants(VariantIndex {
                fields: fields.iter().map(|name| name.parse().unwrap()).collect(),
                keys: keys.into_iter().map(PageKey).collect(),
            });
            prop_assert_eq!(StoredValue::decode(stored.encode()), Ok(stored));
        }
    }
}
