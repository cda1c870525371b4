//! Recodes stored pages: chooses the coding for a client, and makes that form of the page.
//!
//! This file is pure. Forms are kept by `memory`; when they are made is decided elsewhere.

use std::io::{self, BufReader, Read, Write};

use ::http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, VARY,
};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use anteroom_http::coding::{AcceptedCodings, Coding, choose, takes_as_it_is};
use anteroom_http::etag;
use anteroom_http::list::members;
use anteroom_http::vary::Vary;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;

use super::entry::Entry;
use super::page_fields::PageFields;

/// The smallest body that is compressed, in bytes: a smaller one fits into a packet or two already.
pub const SIZE_MIN: usize = 1_024;

/// How many times larger than the largest stored body a decoded body may be.
pub const DECODED_FACTOR: usize = 4;

/// The quality of brotli, of 11: about as fast as gzip's usual level, with smaller results.
const BROTLI_QUALITY: i32 = 5;
/// The level of gzip, of 9. Every client accepts gzip.
const GZIP_LEVEL: u32 = 6;
/// The level of zstd, of 22: its default.
const ZSTD_LEVEL: i32 = 3;
/// The largest zstd window that every client must support, as a power of two: 8 MiB (RFC 9659).
const ZSTD_WINDOW: u32 = 23;
/// How much is decoded at a time, in bytes.
const PIECE: usize = 16 * 1_024;

/// How a page is sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// In the stored form.
    AsStored,
    /// In this coding, or in none.
    Recoded(Coding),
    /// Not at all: the client does not accept the coding, and the page must not be transformed.
    Unreadable,
}

/// How to send a page with these fields to the client that sent `request`. `length` is the size of the body in
/// bytes. `ours` lists the codings that can be made, the most preferred first.
#[must_use]
pub fn delivery(
    request: &HeaderMap,
    page: &PageFields,
    length: usize,
    ours: &[Coding],
) -> Delivery {
    let Some(stored) = page.recodable.from else {
        let is_readable =
            page.coding == Some(Coding::Identity) || takes_as_it_is(request, &page.map());
        return if is_readable { Delivery::AsStored } else { Delivery::Unreadable };
    };
    // A body with a coding is larger than its length suggests.
    let is_large = stored != Coding::Identity || length >= SIZE_MIN;
    let is_worth_it = is_large && page.recodable.is_compressible;
    let ours = if is_worth_it { ours } else { &[] };
    match choose(&AcceptedCodings::parse(request), stored, ours) {
        Some(chosen) if chosen == stored => Delivery::AsStored,
        Some(chosen) => Delivery::Recoded(chosen),
        // RFC 9110 §12.5.3 would allow a 415, which helps neither side.
        None if stored == Coding::Identity => Delivery::AsStored,
        None => Delivery::Unreadable,
    }
}

/// Whether this client is sent plain text in whichever coding a page is stored, so that a part of it that the client
/// holds is one of plain text.
#[must_use]
pub fn is_always_sent_plain(request: &HeaderMap) -> bool {
    let accepted = AcceptedCodings::parse(request);
    let sent = |stored: &Coding| choose(&accepted, *stored, &Coding::ALL);
    Coding::ALL.iter().all(|stored| sent(stored) == Some(Coding::Identity))
}

/// Adds `Accept-Encoding` to `Vary`, if it is missing, because the page is available in several codings.
pub fn vary_by_coding(page: &mut HeaderMap) {
    let vary = Vary::parse(page);
    if vary != Vary::Any && !vary.names(&ACCEPT_ENCODING) {
        page.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// The fields of `page` for its form in `coding`: fields that describe the exact bytes are removed or
/// changed.
#[must_use]
pub fn fields(page: &HeaderMap, coding: Coding) -> HeaderMap {
    let mut fields = page.clone();
    for name in OF_BYTES.iter().chain([&CONTENT_ENCODING, &CONTENT_LENGTH, &ACCEPT_RANGES]) {
        fields.remove(name);
    }
    if let Some(tag) = fields.remove(ETAG).and_then(|tag| etag::recoded(&tag)) {
        fields.insert(ETAG, tag);
    }
    if coding != Coding::Identity {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
    }
    vary_by_coding(&mut fields);
    fields
}

/// Makes the form of a page in `coding`. `None`: the body cannot be decoded, is larger than `max_decoded`
/// bytes without coding, or is stored without coding and would not become smaller.
#[must_use]
pub fn form(page: &Entry, coding: Coding, max_decoded: usize) -> Option<Entry> {
    let stored = page.fields.coding?;
    let plain = decode(&page.body, stored, max_decoded)?;
    let body = if coding == Coding::Identity { plain } else { encode(&plain, coding).ok()? };
    if stored == Coding::Identity && body.len() >= page.body.len() {
        return None;
    }
    Some(with_body(page, coding, body))
}

/// The form of a page in `coding` with an existing body.
#[must_use]
pub fn with_body(page: &Entry, coding: Coding, body: Bytes) -> Entry {
    let fields = PageFields::of(&fields(&page.fields.map(), coding));
    Entry { fields, body, ..page.clone() }
}

/// The body of a response without coding; `None` if it cannot be decoded, or is larger than `max` bytes.
#[must_use]
pub fn plain(headers: &HeaderMap, body: &Bytes, max: usize) -> Option<Bytes> {
    match Coding::of(headers) {
        Some(coding) => decode(body, coding, max),
        // No form that the cache makes has this coding.
        None => {
            let mut codings = members(headers, &CONTENT_ENCODING);
            let is_deflate = codings.next()?.eq_ignore_ascii_case(b"deflate");
            let is_alone = is_deflate && codings.next().is_none();
            is_alone.then(|| inflate(body, max)).flatten()
        }
    }
}

/// "deflate" is the zlib format (RFC 9110 §8.4.1.2), but some servers send raw deflate.
fn inflate(body: &[u8], max: usize) -> Option<Bytes> {
    match body {
        [first, second, ..] if is_zlib([*first, *second]) => {
            read_whole(ZlibDecoder::new(body), max)
        }
        raw => read_whole(DeflateDecoder::new(raw), max),
    }
}

/// Whether a body of the coding "deflate" begins as the zlib format does.
pub(crate) fn is_zlib(start: [u8; 2]) -> bool {
    start[0] & 0x0f == 8 && u16::from_be_bytes(start).is_multiple_of(31)
}

/// Decodes a body. `None`: it is damaged, or its decoded form is larger than `max` bytes.
#[must_use]
pub fn decode(body: &Bytes, coding: Coding, max: usize) -> Option<Bytes> {
    let raw = body.as_ref();
    match coding {
        Coding::Identity => Some(body.clone()),
        Coding::Gzip => read_whole(MultiGzDecoder::new(raw), max),
        Coding::Brotli if raw.first().is_some_and(|first| has_large_window(*first)) => None,
        Coding::Brotli => read_whole(brotli::Decompressor::new(raw, PIECE), max),
        Coding::Zstd => read_whole(unzstd(raw).ok()?, max),
    }
}

fn read_whole(reader: impl Read, max: usize) -> Option<Bytes> {
    let mut whole = Vec::new();
    reader.take(max as u64 + 1).read_to_end(&mut whole).ok()?;
    whole.shrink_to_fit();
    (whole.len() <= max).then(|| whole.into())
}

/// A zstd decoder that needs no more memory than clients have for it.
pub(crate) fn unzstd<R: Read>(
    raw: R,
) -> io::Result<zstd::stream::read::Decoder<'static, BufReader<R>>> {
    let mut decoder = zstd::stream::read::Decoder::new(raw)?;
    decoder.window_log_max(ZSTD_WINDOW)?;
    Ok(decoder)
}

/// Whether a brotli stream that begins with this byte has a window of up to 1 GiB. RFC 7932 does not include
/// this extension: these bits are invalid there (§9.1).
pub(crate) fn has_large_window(first: u8) -> bool {
    first & 0x7f == 0x11
}

fn encode(body: &[u8], coding: Coding) -> io::Result<Bytes> {
    // Text usually shrinks to a third or less.
    let mut coded = Vec::with_capacity(body.len() / 2);
    match coding {
        Coding::Identity => coded.extend_from_slice(body),
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(coded, Compression::new(GZIP_LEVEL));
            encoder.write_all(body)?;
            coded = encoder.finish()?;
        }
        Coding::Brotli => {
            let params = BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                size_hint: body.len(),
                ..BrotliEncoderParams::default()
            };
            let mut body = body;
            brotli::BrotliCompress(&mut body, &mut coded, &params)?;
        }
        Coding::Zstd => coded = zstd::bulk::compress(body, ZSTD_LEVEL)?,
    }
    coded.shrink_to_fit();
    Ok(coded.into())
}

/// Digest fields that do not match recoded bytes.
pub static OF_BYTES: [HeaderName; 4] = [
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
];

#[cfg(test)]
mod tests {
    use ::http::header::LAST_MODIFIED;
    use proptest::prelude::*;

    use super::Coding::{Brotli, Gzip, Identity, Zstd};
    use super::*;
    use crate::entry::{LifetimeSource, StaleLifetimes};

    const OURS: [Coding; 3] = [Zstd, Brotli, Gzip];

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    fn page(lines: &[(&'static str, &'static str)], body: impl Into<Bytes>) -> Entry {
        Entry {
            status: 200,
            reason: None,
            fields: PageFields::of(&headers(lines)),
            body: body.into(),
            stored_at: 0,
            initial_age: 0,
            lifetime: 300,
            source: LifetimeSource::Default,
            stale: StaleLifetimes::default(),
            static_proof: false,
            has_own_etag: false,
            vary: Vec::new(),
            purge_snapshot: std::sync::Arc::default(),
            recipe: None,
            hits: crate::hit_count::HitCount::default(),
        }
    }

    #[test]
    fn only_what_may_be_touched_is_recoded() {
        for (lines, expected) in [
            (&[("content-type", "text/html")][..], Some(Identity)),
            (&[("content-type", "text/html"), ("content-encoding", "br")], Some(Brotli)),
            (&[("content-type", "image/png"), ("content-encoding", "gzip")], Some(Gzip)),
            (&[("content-type", "image/png")], None),
            (&[], None),
            (&[("content-type", "text/html"), ("content-encoding", "deflate")], None),
            (&[("content-type", "text/html"), ("content-encoding", "gzip, br")], None),
            (&[("content-type", "text/html"), ("cache-control", "no-transform")], None),
            (
                &[
                    ("content-type", "text/html"),
                    ("content-encoding", "gzip"),
                    ("cache-control", "public, No-Transform"),
                ],
                None,
            ),
        ] {
            assert_eq!(PageFields::of(&headers(lines)).recodable.from, expected, "{lines:?}");
        }
    }

    #[test]
    fn a_client_is_sent_a_coding_it_accepts() {
        let html = ("content-type", "text/html");
        let (gzip, fixed) = (("content-encoding", "gzip"), ("cache-control", "no-transform"));
        for (accepted, stored, length, expected) in [
            ("gzip, br", &[html][..], 1_024, Delivery::Recoded(Brotli)),
            ("gzip, br", &[html], 1_023, Delivery::AsStored),
            ("identity;q=0, gzip", &[html], 1_023, Delivery::AsStored),
            ("identity;q=0", &[html], 1_024, Delivery::AsStored),
            ("gzip, br", &[html, fixed], 1_024, Delivery::AsStored),
            ("gzip, br", &[html, gzip], 1_024, Delivery::AsStored),
            ("br", &[html, gzip], 1_024, Delivery::Recoded(Brotli)),
            ("br", &[html, gzip], 100, Delivery::Recoded(Brotli)),
            ("", &[html, gzip], 1_024, Delivery::Recoded(Identity)),
            ("*;q=0", &[html, gzip], 1_024, Delivery::Unreadable),
            ("gzip", &[html, gzip, fixed], 1_024, Delivery::AsStored),
            ("br", &[html, gzip, fixed], 1_024, Delivery::Unreadable),
            ("br", &[gzip], 1_024, Delivery::Recoded(Identity)),
        ] {
            let request = headers(&[("accept-encoding", accepted)]);
            let page = headers(stored);
            let found = delivery(&request, &PageFields::of(&page), length, &OURS);
            assert_eq!(found, expected, "{accepted} {stored:?} {length}");
        }
    }

    #[test]
    fn the_fields_of_a_form_speak_of_its_own_bytes() {
        let stored = headers(&[
            ("content-type", "text/html"),
            ("content-length", "9000"),
            ("accept-ranges", "bytes"),
            ("etag", "\"a\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("repr-digest", "sha-256=:AA==:"),
            ("content-md5", "AA=="),
            ("vary", "Accept-Language"),
        ]);
        let form = fields(&stored, Zstd);
        let expected = headers(&[
            ("content-type", "text/html"),
            ("content-encoding", "zstd"),
            ("etag", "W/\"a\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("vary", "Accept-Language"),
            ("vary", "Accept-Encoding"),
        ]);
        assert_eq!(form, expected);
        let plain = fields(&form, Identity);
        assert!(!plain.contains_key(CONTENT_ENCODING) && plain.contains_key(LAST_MODIFIED));
        assert_eq!(plain[ETAG], "W/\"a\"");
        assert!(!fields(&headers(&[("etag", "bare")]), Gzip).contains_key(ETAG));
    }

    #[test]
    fn the_choice_is_told_once() {
        for (lines, expected) in [
            (&[][..], &["Accept-Encoding"][..]),
            (&[("vary", "accept-encoding")], &["accept-encoding"]),
            (&[("vary", "*")], &["*"]),
            (&[("vary", "Cookie")], &["Cookie", "Accept-Encoding"]),
        ] {
            let mut fields = headers(lines);
            vary_by_coding(&mut fields);
            let told: Vec<_> = fields.get_all(VARY).iter().collect();
            assert_eq!(told, expected, "{lines:?}");
        }
    }

    #[test]
    fn a_form_means_the_same_in_every_coding() {
        let text = "<p>The same paragraph, over and over.</p>".repeat(200);
        let html = ("content-type", "text/html");
        let plain = page(&[html], text.clone());
        for first in OURS {
            let coded = form(&plain, first, 1 << 20).unwrap();
            assert!(coded.body.len() < text.len() / 10, "{first:?}");
            for second in Coding::ALL {
                let recoded = form(&coded, second, 1 << 20).unwrap();
                assert_eq!(recoded.fields.coding, Some(second));
                assert_eq!(decode(&recoded.body, second, 1 << 20).unwrap(), text.as_bytes());
            }
            assert!(form(&coded, Identity, text.len()).is_some());
            assert!(form(&coded, Identity, text.len() - 1).is_none(), "{first:?} is a bomb");
        }
    }

    #[test]
    fn incompressible_or_unreadable_bodies_are_not_recoded() {
        let noise: Vec<u8> = (0..4_096).map(|_| fastrand::u8(..)).collect();
        let noise = page(&[("content-type", "text/plain")], noise);
        assert!(OURS.into_iter().all(|coding| form(&noise, coding, 1 << 20).is_none()));
        for coding in ["gzip", "br", "zstd", "deflate"] {
            let text =
                page(&[("content-type", "text/plain"), ("content-encoding", coding)], "text");
            assert!(form(&text, Identity, 1 << 20).is_none(), "{coding}");
        }
        let whole = form(&page(&[], "text".repeat(1_000)), Gzip, 1 << 20).unwrap();
        let cut = Entry { body: whole.body.slice(..whole.body.len() - 9), ..whole };
        assert!(form(&cut, Identity, 1 << 20).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(body in proptest::collection::vec(any::<u8>(), 0..256)) {
            let body = Bytes::from(body);
            for coding in OURS {
                let decoded = decode(&body, coding, 4_096);
                prop_assert!(decoded.is_none_or(|decoded| decoded.len() <= 4_096));
            }
        }

        #[test]
        fn an_encoded_body_decodes_to_the_same_body(body in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            for coding in OURS {
                let coded = encode(&body, coding).unwrap();
                prop_assert_eq!(decode(&coded, coding, 2_000).unwrap(), &body);
            }
        }
    }
}
