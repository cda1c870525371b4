//! `hash_request` computes the key under which a page is stored.

use ::http::{HeaderMap, HeaderName, HeaderValue};
use anteroom_fault::fault;
use sha2::{Digest, Sha256};

use anteroom_http::cookie::rebuild;
use anteroom_http::field_condition::FieldCondition;
use anteroom_http::ident::PageKey;
use anteroom_http::vary::selecting_value;

/// Version of the fields below, and of what may be kept under a key: another version makes other keys. Two
/// versions of this program on one store therefore never share pages if their sharing rules differ.
const FORMAT: u8 = 1;

/// The visitors with whom a stored page is shared. Pages of different classes have different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShareClass {
    /// Visitors without a login.
    Anonymous,
    /// All visitors, because the origin said `public` and the configuration trusts this.
    Public,
    /// All visitors, because the configuration says so.
    Everyone,
    /// Visitors with a login in one segment.
    Segment,
    /// One visitor with a login, in one session.
    User,
}

impl ShareClass {
    /// The name of the class, for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Public => "public",
            Self::Everyone => "everyone",
            Self::Segment => "segment",
            Self::User => "user",
        }
    }

    /// Whether a fill identifies the visitor to the origin and carries the visitor's session.
    #[must_use]
    pub fn is_personal(self) -> bool {
        matches!(self, Self::Segment | Self::User)
    }

    /// Whether a stranger can fetch the pages, so that the proxy can fetch them without a visitor. What is fetched for
    /// `Public` may carry `Authorization`.
    #[must_use]
    pub fn has_recipes(self) -> bool {
        matches!(self, Self::Anonymous | Self::Everyone)
    }
}

/// The parts of a page's key. GET and HEAD share a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a> {
    /// The origin; `""` is the main one.
    pub site: &'a str,
    /// The visitor's scheme.
    pub scheme: &'a str,
    /// Lower-case `host` or `host:port`.
    pub host: &'a str,
    /// The raw path.
    pub path: &'a str,
    /// The query after removal of the ignored parameters.
    pub query: &'a str,
    /// The class of visitors with whom the page is shared.
    pub class: ShareClass,
    /// The segment or session with which it is shared; empty for the other classes.
    pub group: &'a [u8],
    /// The request's fields, from which the keyed ones are read.
    pub headers: &'a HeaderMap,
    /// Cookies that are part of the key.
    pub key_cookies: &'a [String],
    /// Fields that are part of the key.
    pub key_headers: &'a [HeaderName],
    /// The conditions on request fields by which the route of the page was chosen.
    pub conditions: &'a [FieldCondition],
    /// Whether the route of the page was chosen because there is a query, or because there is none.
    pub by_query: Option<bool>,
}

/// Appends a field with a length prefix, so that different lists of fields never have the same encoding.
fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Computes the key of a request's page.
#[must_use]
pub fn hash_request(parts: &KeyParts<'_>) -> PageKey {
    let mut encoded = Vec::new();
    encode(parts, &mut encoded);
    digest(&encoded)
}

/// The key for encoded parts.
#[must_use]
pub fn digest(encoded: &[u8]) -> PageKey {
    PageKey(Sha256::digest(encoded).into())
}

/// Appends the encoded parts of a page's key. Different parts never have the same encoding.
pub fn encode(parts: &KeyParts<'_>, out: &mut Vec<u8>) {
    out.push(FORMAT);
    for text in [
        parts.site,
        if fault!("scheme") { "" } else { parts.scheme },
        if fault!("host") { "" } else { parts.host },
        parts.path,
        if fault!("query") { "" } else { parts.query },
        if fault!("class") { "" } else { parts.class.as_str() },
        // The group follows; it is not text.
    ] {
        field(out, text.as_bytes());
    }
    field(out, parts.group);
    // In the form in which a fill sends them: of cookies with one name, an origin may take the first or the
    // last, and may or may not remove the quotes.
    for name in parts.key_cookies.iter().filter(|_| !fault!("cookie")) {
        let line = rebuild(parts.headers, |cookie| cookie == name.as_bytes());
        chosen(out, name.as_bytes(), line.as_ref().map(HeaderValue::as_bytes));
    }
    for name in parts.key_headers {
        let value = selecting_value(parts.headers, name);
        chosen(out, name.as_str().as_bytes(), value.as_deref());
    }
    // SECURITY: a client chooses a route with conditions on fields for any URL, and with it other rules on what may be
    // shared. Its pages stay apart from those that other routes store for the same URL. The mark is one that no keyed
    // cookie or field has.
    for condition in parts.conditions {
        field(out, condition.name.as_str().as_bytes());
        out.push(2);
        field(out, condition.as_str().as_bytes());
    }
    // SECURITY: the same for a route by the presence of a query. Two routes may leave out other parameters.
    if let Some(is_there) = parts.by_query {
        field(out, b"");
        out.push(if is_there { 3 } else { 4 });
    }
}

/// The key of the variant that `sent` selects by `fields`, of the page `primary`.
#[must_use]
pub fn variant_key(primary: &PageKey, fields: &[HeaderName], sent: &HeaderMap) -> PageKey {
    let mut encoded = vec![FORMAT];
    field(&mut encoded, &primary.0);
    for name in fields {
        chosen(&mut encoded, name.as_str().as_bytes(), selecting_value(sent, name).as_deref());
    }
    digest(&encoded)
}

/// Appends a name with its value, or with the mark for an absent one.
fn chosen(out: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    field(out, name);
    match value {
        Some(value) => {
            out.push(1);
            field(out, value);
        }
        None => out.push(0),
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::{ACCEPT_ENCODING, COOKIE, USER_AGENT};

    use super::*;

    fn parts<'a>(headers: &'a HeaderMap) -> KeyParts<'a> {
        KeyParts {
            site: "",
            scheme: "http",
            host: "shop.test",
            path: "/a",
            query: "b=1",
            class: ShareClass::Anonymous,
            group: b"",
            headers,
            key_cookies: &[],
            key_headers: &[],
            conditions: &[],
            by_query: None,
        }
    }

    #[test]
    fn every_part_makes_another_key() {
        let headers = HeaderMap::new();
        let base = parts(&headers);
        let lang = ["lang".to_owned()];
        let agent = [USER_AGENT];
        let of_bots = |text: &str| [FieldCondition::parse(USER_AGENT, text).unwrap()];
        let [bots, other_bots] = ["~ bot", "bot*"].map(of_bots);
        let others = [
            base,
            KeyParts { site: "x", ..base },
            KeyParts { scheme: "https", ..base },
            KeyParts { host: "shop.test:8080", ..base },
            KeyParts { path: "/A", ..base },
            KeyParts { path: "/ab=1", query: "", ..base },
            KeyParts { query: "b=2", ..base },
            KeyParts { class: ShareClass::Everyone, ..base },
            KeyParts { class: ShareClass::Public, ..base },
            KeyParts { class: ShareClass::Segment, ..base },
            KeyParts { class: ShareClass::User, ..base },
            KeyParts { class: ShareClass::Segment, group: b"a", ..base },
            KeyParts { class: ShareClass::Segment, group: b"b", ..base },
            KeyParts { key_cookies: &lang, ..base },
            KeyParts { key_headers: &agent, ..base },
            KeyParts { conditions: &bots, ..base },
            KeyParts { conditions: &other_bots, ..base },
            KeyParts { by_query: Some(true), ..base },
            KeyParts { by_query: Some(false), ..base },
            KeyParts { conditions: &bots, by_query: Some(true), ..base },
        ];
        let mut keys: Vec<_> = others.iter().map(hash_request).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), others.len());
    }

    #[test]
    fn a_keyed_cookie_splits_and_others_do_not() {
        let lang = ["lang".to_owned()];
        let key = |cookie: &'static str| {
            let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_static(cookie))]);
            hash_request(&KeyParts { key_cookies: &lang, ..parts(&headers) })
        };
        assert_eq!(key("lang=de; _ga=1"), key("_ga=2; lang=de"));
        assert_ne!(key("lang=de"), key("lang=en"));
        assert_ne!(key("lang="), key("x=y"), "empty is not absent");
        assert_ne!(key("lang=de"), key("lang=de; lang=en"), "a fill sends both");
        assert_ne!(key("lang=de"), key("lang=\"de\""), "a fill sends the quotes");
    }

    #[test]
    fn variants_differ_by_the_fields_that_were_sent() {
        let primary = PageKey([7; 32]);
        let key = |coding: Option<&'static str>| {
            let sent = coding.map(|c| (ACCEPT_ENCODING, HeaderValue::from_static(c)));
            variant_key(&primary, &[ACCEPT_ENCODING], &sent.into_iter().collect())
        };
        assert_ne!(key(None), key(Some("gzip")));
        assert_ne!(key(Some("")), key(None));
        assert_eq!(key(Some("gzip,br")), key(Some("gzip, br")));
        assert_ne!(key(None), primary);
    }
}
