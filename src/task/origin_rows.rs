//! The origin as a source of rows.

use std::rc::Rc;

use ::http::header::{ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, HOST};
use ::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use anteroom_http::cache_control::CacheControl;
use anteroom_http::clock::unix_now;
use anteroom_http::forwarded as fwd;
use anteroom_http::host::Scheme;
use anteroom_http::list;
use anteroom_http::signature::{self, SIGNATURE};
use anteroom_http::vary::Vary;
use anteroom_origin::{ConnectionReuse, Requester, UploadBody, Upstream};
use anteroom_store::ROW_JSON_MAX;
use bytes::{Bytes, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use anteroom_rows::FetchError;

/// `X-Anteroom-Session`
const SESSION: HeaderName = HeaderName::from_static("x-anteroom-session");
/// Unreserved characters in a target (RFC 3986 §2.3); all others in a row are encoded.
const IN_TARGET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An origin that has rows.
#[derive(Debug)]
pub struct RowOrigin {
    /// The origin, for this thread.
    pub upstream: Rc<Upstream>,
    /// Its Host.
    pub host: HeaderValue,
    /// Whether the request says that no user is logged in.
    pub sessions: bool,
    /// The key of the signature.
    pub secret: Option<RowSecret>,
}

/// The location of a source's rows at an origin, which is asked as by a visitor without a login. Other
/// parts of its answers, such as cookies, are dropped.
#[derive(Debug)]
pub struct RowLocation {
    /// The text before the id.
    pub before: String,
    /// The text after it.
    pub behind: String,
    /// The scheme that the origin sees.
    pub scheme: Scheme,
    /// The origin.
    pub origin: RowOrigin,
}

/// The key with which requests to the origin are signed.
pub struct RowSecret(pub Vec<u8>);

impl std::fmt::Debug for RowSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RowSecret(…)")
    }
}

impl RowLocation {
    fn target(&self, id: &str) -> Result<String, FetchError> {
        // As a segment these would name another path, encoded or not.
        if matches!(id, "." | ".." | "") {
            return Err(FetchError::NoPlace);
        }
        Ok(format!("{}{}{}", self.before, utf8_percent_encode(id, IN_TARGET), self.behind))
    }

    /// Requests the row `id`.
    pub(super) async fn fetch(&self, id: &str) -> Result<Bytes, FetchError> {
        let (target, origin) = (self.target(id)?, &self.origin);
        let request = origin.request(&target, self.scheme)?;
        let source = |error| FetchError::Source(Box::new(error));
        let sent =
            origin.upstream.send(request, ConnectionReuse::Pool(None), Requester::BACKGROUND).await;
        let came = sent.map_err(source)?;
        if came.response.status() != StatusCode::OK {
            return Err(FetchError::Status(came.response.status().as_u16()));
        }
        if came.unframed {
            return Err(FetchError::Unframed);
        }
        may_be_kept(came.response.headers())?;
        let mut body = came.response.into_body();
        let mut content = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(source)?;
            let Some(part) = frame.data_ref() else { continue };
            if content.len() + part.len() > ROW_JSON_MAX {
                return Err(FetchError::TooLarge);
            }
            content.extend_from_slice(part);
        }
        Ok(content.freeze())
    }
}

impl RowOrigin {
    fn request(&self, target: &str, scheme: Scheme) -> Result<Request<UploadBody>, FetchError> {
        let mut request = Request::new(UploadBody::Empty);
        *request.uri_mut() = Uri::try_from(target).map_err(|_| FetchError::NoPlace)?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(&fwd::X_FORWARDED_PROTO, fwd::x_forwarded_proto(scheme));
        headers.insert(&fwd::X_FORWARDED_HOST, self.host.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.sessions {
            headers.insert(SESSION, HeaderValue::from_static("none"));
            let signed = self.secret.as_ref().and_then(|RowSecret(secret)| {
                signature::value(secret, "", "GET", target, unix_now() as u64)
            });
            if let Some(value) = signed {
                headers.insert(&SIGNATURE, value);
            }
        }
        Ok(request)
    }
}

/// Whether the content of this answer may be kept as a row. `no-store` and `Set-Cookie` are
/// ignored: the operator has declared the rows to be for everyone, the request was anonymous, and
/// the cookie is dropped.
fn may_be_kept(headers: &HeaderMap) -> Result<(), FetchError> {
    if CacheControl::parse(headers, &CACHE_CONTROL).private {
        return Err(FetchError::Private);
    }
    if Vary::parse(headers) == Vary::Any {
        return Err(FetchError::Varies);
    }
    let mut codings = list::members(headers, &CONTENT_ENCODING);
    match codings.find(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        Some(coding) => Err(FetchError::Encoded(String::from_utf8_lossy(coding).into_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &'static str, value: &'static str) -> Result<(), FetchError> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        may_be_kept(&headers)
    }

    #[test]
    fn a_personal_response_is_no_row() {
        for (name, value) in [
            ("cache-control", "no-store"),
            ("cache-control", "max-age=0, public"),
            ("set-cookie", "a=b"),
            ("vary", "Cookie"),
            ("content-encoding", "Identity"),
        ] {
            assert!(judged(name, value).is_ok(), "{name}: {value}");
        }
        let refused = |name, value| judged(name, value).unwrap_err().to_string();
        for private in ["private", "max-age=5, Private", "private=\"set-cookie\""] {
            assert!(refused("cache-control", private).contains("private"), "{private}");
        }
        assert!(refused("vary", "accept, *").contains("Vary: *"));
        assert!(refused("content-encoding", "gzip").contains("\"gzip\""));
    }
}
