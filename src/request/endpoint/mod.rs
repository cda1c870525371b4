//! `/_anteroom/…`: what the visitor's browser may ask us about the visitor, for scripts on pages
//! that are the same for everybody.
//!
//! Nothing under the prefix ever reaches the origin, in whatever spelling. Who may change a cart is
//! decided in `origin_check`, what a cart may be told in `cart`.

mod cart;
mod origin_check;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use ::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use ::http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use bytes::Bytes;
use hyper::body::Incoming;
use serde::Serialize;

use super::admit::Admitted;
use super::client::Client;
use super::error::{Error, RETRY_SECONDS};
use super::gate::Turn;
use super::trail::Trail;
use super::verify::Asking;
use super::visitor::{self, Visitor};
use super::{Body, Room, deliver, route_of, upgrade};
use crate::http::lenient;
use crate::http::path::is_odd;
use crate::ident::{StoredToken, User};
use crate::log::VisitorClass;
use crate::metrics::{Count, Outcome};
use crate::reason::Reason;
use crate::store::{SessionStore, StoreError, ViewStore};

static RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The first segment of what is ours.
const PREFIX: &str = "_anteroom";
/// How many of the most viewed items are told.
const TOP_MAX: u32 = 25;

/// What is answered under `/_anteroom/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Who the visitor is.
    Me,
    /// The visitor's cart.
    Cart,
    /// The items that the visitor viewed last.
    Recent,
    /// The items that all visitors view most.
    Top,
}

impl Endpoint {
    /// The endpoint that a path names. One that could mean another path names none.
    fn of(admitted: &Admitted, path: &str) -> Option<Self> {
        let name = admitted.path.strip_prefix('/')?.strip_prefix(PREFIX)?.strip_prefix('/')?;
        let endpoint = match name {
            "me" => Self::Me,
            "cart" => Self::Cart,
            "recent" => Self::Recent,
            "top" => Self::Top,
            _ => return None,
        };
        (!is_odd(path)).then_some(endpoint)
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::Cart => "GET, HEAD, PUT, DELETE",
            Self::Me | Self::Recent | Self::Top => "GET, HEAD",
        }
    }
}

/// A request for us.
pub(super) struct Call<'a> {
    pub(super) room: &'a Rc<Room>,
    pub(super) client: &'a Rc<Client>,
    pub(super) head: &'a ::http::request::Parts,
    pub(super) admitted: Admitted,
    /// It as the limits see it.
    pub(super) turn: Turn<'a>,
    /// Unix time in seconds.
    pub(super) now: f64,
}

/// Whether a path lies under the prefix, or could to a lenient origin.
pub(super) fn is_ours(path: &str) -> bool {
    lenient::may_begin_with(path, PREFIX)
}

/// What is told, as it stands in the JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Told<'a> {
    Me {
        user: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        attributes: BTreeMap<&'a str, &'a str>,
        session: &'static str,
    },
    Cart {
        items: Vec<InCart>,
    },
    Recent {
        items: Vec<Viewed>,
    },
    Top {
        items: Vec<Views>,
    },
    Error {
        error: String,
    },
}

#[derive(Serialize)]
struct InCart {
    item: String,
    count: i64,
}

#[derive(Serialize)]
struct Viewed {
    item: String,
    viewed: f64,
}

#[derive(Serialize)]
struct Views {
    item: String,
    views: f64,
}

/// Why a call is not answered with what it asks for.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("there is nothing here")]
    NotFound,
    #[error("this is not asked for like that")]
    Method(&'static str),
    #[error("a change must come from a page of this site")]
    Foreign,
    #[error("nobody is logged in")]
    NotLoggedIn,
    #[error("the body must be application/json")]
    NotJson,
    #[error("the body is over 64 KiB")]
    TooLarge,
    #[error("the body stopped")]
    Stalled,
    #[error("{0}")]
    Malformed(String),
    /// One call too many, which is answered as any such request is.
    #[error("one call too many")]
    TooMany(Error),
    #[error("a cart holds 500 items at most")]
    Full,
    #[error("please try again in a few seconds")]
    StoreAway,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::debug!(%error, "the store could not answer an endpoint");
        Self::StoreAway
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Foreign => StatusCode::FORBIDDEN,
            Self::NotLoggedIn => StatusCode::UNAUTHORIZED,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Stalled => StatusCode::REQUEST_TIMEOUT,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Full => StatusCode::CONFLICT,
            Self::StoreAway => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooMany(error) => error.status(),
        }
    }

    /// The response, as far as the refusal decides it.
    fn into_response(self) -> Response<Bytes> {
        let mut response = json_response(&Told::Error { error: self.to_string() });
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        match self {
            Self::Method(allowed) => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::StoreAway => {
                headers.insert(RETRY_AFTER, RETRY_SECONDS);
            }
            // RFC 9110 §15.5.2 wants a scheme; the log-in is the app's, and its proof a cookie.
            Self::NotLoggedIn => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Cookie"));
            }
            _ => {}
        }
        response
    }
}

/// Answers a request for us.
pub(super) async fn answer(
    call: &Call<'_>,
    body: Incoming,
    trail: &mut Trail,
) -> Result<Response<Body>, Error> {
    let mut upload = cart::Upload::new(body);
    let answered = match dispatch(call, &mut upload, trail).await {
        Err(Refusal::TooMany(error)) => return Err(error),
        answered => answered,
    };
    trail.outcome(Outcome::Endpoint, Some(Reason::Endpoint));
    let mut response = answered.unwrap_or_else(Refusal::into_response);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // No other site's page may have it as its script or picture: not even unread, in its own process.
    headers.insert(RESOURCE_POLICY.clone(), HeaderValue::from_static("same-origin"));
    // What was not read of the body would be taken for the next request.
    if !upload.is_read() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    deliver::put_status(call.room, headers, &deliver::bypassed(Reason::Endpoint));
    Ok(response.map(Body::full))
}

async fn dispatch(
    call: &Call<'_>,
    upload: &mut cart::Upload,
    trail: &mut Trail,
) -> Result<Response<Bytes>, Refusal> {
    let endpoint = Endpoint::of(&call.admitted, call.head.uri.path())
        .filter(|endpoint| call.room.settings.endpoints.contains(endpoint))
        .ok_or(Refusal::NotFound)?;
    let reads = matches!(call.head.method, Method::GET | Method::HEAD);
    let changes =
        endpoint == Endpoint::Cart && matches!(call.head.method, Method::PUT | Method::DELETE);
    if upgrade::is_extended(call.head) || (!reads && !changes) {
        return Err(Refusal::Method(endpoint.allowed()));
    }
    if changes && !origin_check::is_same_origin(&call.head.headers, &call.admitted) {
        return Err(Refusal::Foreign);
    }
    let visitor = recognise(call).await;
    trail.visitor(&visitor, call.room.settings.log_user);
    let limits = &call.room.settings.rates.all;
    call.turn.count_visitor(limits, &visitor).map_err(Refusal::TooMany)?;
    if let Some((token, user)) = visitor.known() {
        call.room.visits.note(token.clone(), user.clone(), None, call.now);
        call.room.sheet.count(Count::Visits);
    }
    let told = match endpoint {
        Endpoint::Me => me(&visitor),
        Endpoint::Cart if changes => {
            let terms = call.room.sessions.terms(call.now);
            let whose = visitor.cart_owner(terms).ok_or(Refusal::NotLoggedIn)?;
            cart::change(call, &whose, upload).await?
        }
        Endpoint::Cart => cart::show(call.room.store.cart(known(&visitor)?.0).await?),
        Endpoint::Recent => recent(call, known(&visitor)?.0).await?,
        Endpoint::Top => top(call).await?,
    };
    Ok(json_response(&told))
}

/// Who asks: the cookies mean what they mean on the site's own pages.
async fn recognise(call: &Call<'_>) -> Visitor {
    let Call { room, client, head, admitted, now, .. } = call;
    let (route, _) = route_of(room, head, admitted);
    let asking = Asking::Of(client, admitted);
    visitor::recognise(room, (head, &admitted.site), route, *now, asking).await
}

/// Token and user, where the visitor is known.
fn known(visitor: &Visitor) -> Result<(&StoredToken, &User), Refusal> {
    let why_not = if visitor.is_unsure() { Refusal::StoreAway } else { Refusal::NotLoggedIn };
    visitor.known().ok_or(why_not)
}

fn me(visitor: &Visitor) -> Told<'_> {
    let session = match visitor.class {
        VisitorClass::Known => "known",
        VisitorClass::Anonymous => "none",
        VisitorClass::Unknown => "unknown",
    };
    let user = visitor.user().map(|user| String::from_utf8_lossy(user.as_bytes()));
    let attributes = visitor.user().into_iter().flat_map(User::attributes).collect();
    Told::Me { user, attributes, session }
}

async fn recent(call: &Call<'_>, token: &StoredToken) -> Result<Told<'static>, Refusal> {
    let items = call.room.store.viewed(token).await?;
    let items =
        items.into_iter().map(|(item, viewed)| Viewed { item: item.as_str().to_owned(), viewed });
    Ok(Told::Recent { items: items.collect() })
}

async fn top(call: &Call<'_>) -> Result<Told<'static>, Refusal> {
    let items = call.room.store.top(TOP_MAX).await?;
    let items =
        items.into_iter().map(|(item, views)| Views { item: item.as_str().to_owned(), views });
    Ok(Told::Top { items: items.collect() })
}

fn json_response(told: &Told<'_>) -> Response<Bytes> {
    let mut text = serde_json::to_vec(told).expect("text and numbers can be written as JSON");
    text.push(b'\n');
    let mut response = Response::new(Bytes::from(text));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
