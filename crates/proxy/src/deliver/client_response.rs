//! A response on its way to the client.

use std::fmt;
use std::sync::Arc;

use ::http::header::{ACCEPT_ENCODING, AGE, VARY};
use ::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use anteroom_cache::entry::Entry;
use anteroom_cache::recoded;
use anteroom_http::cache_status::CACHE_STATUS;
use anteroom_http::field_line;
use anteroom_http::vary::Vary;

use super::body::Body;

/// A response on its way to the client.
///
/// PERF: a whole page from the cache needs no map of its fields: most clients get the lines as they are stored. What
/// changes a field asks for the map, and turns the page into a response like any other. Boxed, because a response
/// moves through several layers.
#[derive(Debug)]
pub enum ClientResponse {
    /// A whole stored page.
    Stored(Box<StoredResponse>),
    /// Any other response.
    Other(Box<Response<Body>>),
}

/// A whole stored page with the status 200.
pub struct StoredResponse {
    pub(super) page: Arc<Entry>,
    /// The value of `Age`, in seconds.
    pub(super) age: u64,
    /// Whether `Vary: Accept-Encoding` is added.
    pub(super) adds_vary: bool,
    pub(super) cache_status: Option<HeaderValue>,
    /// Further lines: of fields that the page does not have, and of `Vary`.
    pub(super) more: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Body,
}

impl ClientResponse {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Stored(_) => StatusCode::OK,
            Self::Other(response) => response.status(),
        }
    }

    /// What the proxy knows about the response.
    pub(crate) fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<&T> {
        match self {
            Self::Stored(_) => None,
            Self::Other(response) => Extensions::get(response.extensions()),
        }
    }

    /// The fields, for changes.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.as_http().headers_mut()
    }

    /// Adds a field unless the response has it.
    pub(crate) fn add_missing(&mut self, name: &HeaderName, value: &HeaderValue) {
        match self {
            Self::Stored(stored) if stored.has(name) => {}
            Self::Stored(stored) => stored.more.push((name.clone(), value.clone())),
            Self::Other(response) => {
                response.headers_mut().entry(name).or_insert_with(|| value.clone());
            }
        }
    }

    /// Names these request fields in `Vary`, unless it names them.
    ///
    /// PERF: the map is not needed for that: hits on a site with routes by fields stay as they are stored.
    pub(crate) fn vary_by(&mut self, names: &[&HeaderName]) {
        let vary = match self {
            Self::Stored(stored) => Vary::parse(&stored.page.fields.some(&[VARY])),
            Self::Other(response) => Vary::parse(response.headers()),
        };
        if vary == Vary::Any {
            return;
        }
        for name in names.iter().copied().filter(|name| !vary.names(name)) {
            let value = HeaderValue::from_name(name.clone());
            match self {
                Self::Stored(stored) if stored.adds_vary && *name == ACCEPT_ENCODING => {}
                Self::Stored(stored) => stored.more.push((VARY, value)),
                Self::Other(response) => {
                    response.headers_mut().append(VARY, value);
                }
            }
        }
    }

    pub(crate) fn body_mut(&mut self) -> &mut Body {
        match self {
            Self::Stored(stored) => &mut stored.body,
            Self::Other(response) => response.body_mut(),
        }
    }

    /// The response with a map of its fields, for changes.
    pub(crate) fn as_http(&mut self) -> &mut Response<Body> {
        if let Self::Stored(_) = self {
            let stored = std::mem::replace(self, Self::from(Response::new(Body::empty())));
            *self = Self::from(stored.into_http());
        }
        match self {
            Self::Other(response) => response,
            Self::Stored(_) => unreachable!("it was replaced above"),
        }
    }

    /// The response with a map of its fields.
    #[must_use]
    pub fn into_http(self) -> Response<Body> {
        match self {
            Self::Stored(stored) => stored.into_http(),
            Self::Other(response) => *response,
        }
    }
}

impl From<Response<Body>> for ClientResponse {
    fn from(response: Response<Body>) -> Self {
        Self::Other(Box::new(response))
    }
}

impl StoredResponse {
    /// Appends the field lines with a CRLF each. Returns whether there is a `Content-Length`, and whether there is a
    /// `Date`.
    pub fn put_fields(&self, buffer: &mut Vec<u8>) -> (bool, bool) {
        let fields = &self.page.fields;
        // As a map would have it: a further line of a field follows those that there are.
        let (to_vary, after) = fields.around_vary();
        buffer.extend_from_slice(to_vary);
        if self.adds_vary && !to_vary.is_empty() {
            field_line::put(buffer, VARY.as_str(), b"Accept-Encoding");
        }
        buffer.extend_from_slice(after);
        field_line::put(buffer, AGE.as_str(), itoa::Buffer::new().format(self.age).as_bytes());
        if self.adds_vary && to_vary.is_empty() {
            field_line::put(buffer, VARY.as_str(), b"Accept-Encoding");
        }
        if let Some(value) = &self.cache_status {
            field_line::put(buffer, CACHE_STATUS.as_str(), value.as_bytes());
        }
        for (name, value) in &self.more {
            field_line::put(buffer, name.as_str(), value.as_bytes());
        }
        (fields.states_length(), fields.has_date)
    }

    /// An upper bound for what [`Self::put_fields`] appends, in bytes.
    #[must_use]
    pub fn fields_max(&self) -> usize {
        /// Age, Vary, and the names and ends of all lines.
        const FIXED: usize = 96;
        let more: usize =
            self.more.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let status = self.cache_status.as_ref().map_or(0, HeaderValue::len);
        FIXED + self.page.fields.as_bytes().len() + status + more
    }

    /// The length of the body, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.page.body.len() as u64
    }

    /// The body.
    #[must_use]
    pub fn into_body(self) -> Body {
        self.body
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.page.fields.has(name)
            || *name == AGE
            || self.adds_vary && *name == VARY
            || self.cache_status.is_some() && *name == CACHE_STATUS
            || self.more.iter().any(|(more, _)| more == name)
    }

    fn into_http(self) -> Response<Body> {
        let Self { page, age, adds_vary, cache_status, more, body } = self;
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        *headers = page.fields.map();
        headers.insert(AGE, HeaderValue::from(age));
        if adds_vary {
            recoded::vary_by_coding(headers);
        }
        if let Some(value) = cache_status {
            headers.append(&CACHE_STATUS, value);
        }
        headers.extend(more);
        response
    }
}

impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredResponse").field("age", &self.age).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::{
        ACCEPT_LANGUAGE, CONTENT_TYPE, SET_COOKIE, STRICT_TRANSPORT_SECURITY, USER_AGENT,
    };
    use anteroom_cache::entry::{LifetimeSource, StaleLifetimes};
    use anteroom_cache::hit_count::HitCount;
    use anteroom_cache::page_fields::PageFields;
    use anteroom_cache::purge::PurgeSnapshot;
    use anteroom_store::Generation;
    use bytes::Bytes;

    use super::*;

    fn page(lines: &[(&'static str, &'static str)]) -> Arc<Entry> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let generation = Generation { era: 7, number: 300 };
        Arc::new(Entry {
            status: 200,
            reason: Some(Bytes::from_static(b"Fine")),
            fields: PageFields::of(&headers),
            body: Bytes::from_static(b"hello"),
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
            purge_snapshot: Arc::new(PurgeSnapshot::stored(generation, vec![]).unwrap()),
        })
    }

    fn stored(page: &Arc<Entry>, adds_vary: bool, status: Option<&'static str>) -> ClientResponse {
        ClientResponse::Stored(Box::new(StoredResponse {
            page: Arc::clone(page),
            age: 7,
            adds_vary,
            cache_status: status.map(HeaderValue::from_static),
            more: Vec::new(),
            body: Body::full(page.body.clone()),
        }))
    }

    /// In the order of their names; the lines of one name keep theirs.
    fn by_name<'l>(lines: impl Iterator<Item = (&'l [u8], &'l [u8])>) -> Vec<(&'l [u8], &'l [u8])> {
        let mut lines: Vec<_> = lines.collect();
        lines.sort_by_key(|(name, _)| *name);
        lines
    }

    #[test]
    fn the_lines_are_those_of_the_map() {
        let hsts = HeaderValue::from_static("max-age=5");
        for lines in [
            &[][..],
            &[("content-type", "text/html"), ("vary", "accept-language"), ("date", "now")],
            &[("cache-status", "other; hit"), ("x-a", "1"), ("x-a", "2"), ("content-length", "5")],
            &[("strict-transport-security", "max-age=9"), ("vary", "a"), ("vary", "b")],
        ] {
            let page = page(lines);
            for (adds_vary, status, adds_hsts) in
                [(false, None, false), (true, Some("anteroom; hit"), true), (true, None, true)]
            {
                let [mut as_lines, mut as_map] = [(); 2].map(|()| stored(&page, adds_vary, status));
                if adds_hsts {
                    as_lines.add_missing(&STRICT_TRANSPORT_SECURITY, &hsts);
                    as_map.as_http();
                    as_map.add_missing(&STRICT_TRANSPORT_SECURITY, &hsts);
                }
                let ClientResponse::Stored(as_lines) = as_lines else { panic!("{as_lines:?}") };
                let mut buffer = Vec::new();
                let (has_length, has_date) = as_lines.put_fields(&mut buffer);
                assert!(buffer.len() <= as_lines.fields_max());
                let named = |name| lines.iter().any(|line| line.0 == name);
                assert_eq!((has_length, has_date), (named("content-length"), named("date")));
                let text = String::from_utf8(buffer).unwrap();
                let split = text.lines().map(|line| line.split_once(": ").unwrap());
                let split = split.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
                let as_map = as_map.into_http();
                let map = as_map.headers().iter();
                let map = map.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
                assert_eq!(by_name(split), by_name(map), "{lines:?}");
            }
        }
    }

    #[test]
    fn a_stored_page_varies_by_further_fields_without_a_map() {
        let names = [&USER_AGENT, &ACCEPT_LANGUAGE, &ACCEPT_ENCODING];
        for (lines, adds_vary, expected) in [
            (&[][..], false, "user-agent, accept-language, accept-encoding"),
            (&[][..], true, "accept-encoding, user-agent, accept-language"),
            (&[("vary", "Accept-Language")], true, "accept-language, accept-encoding, user-agent"),
            (&[("vary", "*")], false, "*"),
        ] {
            let page = page(lines);
            let mut response = stored(&page, adds_vary, None);
            response.vary_by(&names);
            let ClientResponse::Stored(as_lines) = &response else { panic!("{response:?}") };
            let mut buffer = Vec::new();
            as_lines.put_fields(&mut buffer);
            assert!(buffer.len() <= as_lines.fields_max());
            let text = String::from_utf8(buffer).unwrap().to_ascii_lowercase();
            let of_lines: Vec<_> =
                text.lines().filter_map(|line| line.strip_prefix("vary: ")).collect();
            assert_eq!(of_lines.join(", "), expected);
            let map = response.into_http();
            let of_map = map.headers().get_all(VARY).iter().map(|value| value.to_str().unwrap());
            let of_map = of_map.collect::<Vec<_>>().join(", ").to_ascii_lowercase();
            assert_eq!(of_map, expected);
        }
    }

    #[test]
    fn a_change_is_made_to_all_fields() {
        let page = page(&[("content-type", "text/html")]);
        let mut response = stored(&page, false, None);
        assert_eq!(response.status(), StatusCode::OK);
        response.headers_mut().append(SET_COOKIE, HeaderValue::from_static("a=b"));
        let ClientResponse::Other(response) = response else { panic!("{response:?}") };
        assert_eq!(response.headers()[CONTENT_TYPE], "text/html");
        assert_eq!(response.headers()[AGE], "7");
        assert_eq!(response.headers()[SET_COOKIE], "a=b");
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(5));
    }
}
