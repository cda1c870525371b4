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
use super::visitor_token::{Around, Held};
use super::{Body, Room, deliver, route_of, upgrade};
use crate::http::lenient;
use crate::http::path::is_odd;
use crate::ident::{Item, StoredToken, User, VisitorToken};
use crate::log::VisitorClass;
use crate::metrics::{Count, Outcome};
use crate::reason::Reason;
use crate::store::{Cart, CartStore as _, StoreError, ViewStore as _, VisitorStore as _};

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
    /// What the visitor has without a login.
    pub(super) held: &'a Held,
    /// Unix time in seconds.
    pub(super) now: f64,
}

impl Call<'_> {
    fn around(&self) -> Around<'_> {
        let Self { room, admitted, now, .. } = self;
        Around { room, scheme: admitted.scheme, address: admitted.address, now: *now }
    }
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
    call.held.settle(&call.around(), &visitor).await;
    note_visit(call, &visitor);
    let told = match endpoint {
        Endpoint::Me => me(&visitor),
        Endpoint::Cart if changes => match visitor.cart_owner(call.room.sessions.terms(call.now)) {
            Some(whose) => cart::change(call, &whose, upload).await?,
            None => cart::change_without_login(call, &visitor, upload).await?,
        },
        Endpoint::Cart => cart::show(cart_of(call, &whose(call, &visitor)?).await?),
        Endpoint::Recent => recent(viewed_by(call, &whose(call, &visitor)?).await?),
        Endpoint::Top => top(call).await?,
    };
    Ok(json_response(&told))
}

/// Who asks: the cookies mean what they mean on the site's own pages.
async fn recognise(call: &Call<'_>) -> Visitor {
    let Call { room, client, head, admitted, now, .. } = call;
    let (route, _) = route_of(room, head, admitted);
    let asking = Asking::Of(client, admitted);
    let visitor = visitor::recognise(room, (head, &admitted.site), route, *now, asking).await;
    visitor.over(admitted.certificate(client))
}

fn note_visit(call: &Call<'_>, visitor: &Visitor) {
    let room = call.room;
    if let Some((token, user)) = visitor.known() {
        room.visits.note(token.clone(), user.clone(), None, call.now);
        room.sheet.count(Count::Visits);
    } else if let Some(token) = call.held.token(visitor) {
        room.visitor_visits.note(token, None, call.now);
    }
}

/// Whose cart and views are asked for.
enum Whose<'v> {
    Session(&'v StoredToken),
    Visitor(VisitorToken),
    /// Of somebody who has none yet, and may have.
    Nobody,
}

fn whose<'v>(call: &Call<'_>, visitor: &'v Visitor) -> Result<Whose<'v>, Refusal> {
    match (visitor.known(), call.held.token(visitor)) {
        (Some((token, _)), _) => Ok(Whose::Session(token)),
        (None, Some(token)) => Ok(Whose::Visitor(token)),
        (None, None) if visitor.is_unsure() => Err(Refusal::StoreAway),
        (None, None) if call.held.may_begin(&call.room.settings, visitor) => Ok(Whose::Nobody),
        (None, None) => Err(Refusal::NotLoggedIn),
    }
}

async fn cart_of(call: &Call<'_>, whose: &Whose<'_>) -> Result<Cart, StoreError> {
    match whose {
        Whose::Session(token) => call.room.store.cart(token).await,
        Whose::Visitor(token) => call.room.store.visitor_cart(token).await,
        Whose::Nobody => Ok(Cart::new()),
    }
}

async fn viewed_by(call: &Call<'_>, whose: &Whose<'_>) -> Result<Vec<(Item, f64)>, StoreError> {
    match whose {
        Whose::Session(token) => call.room.store.viewed(token).await,
        Whose::Visitor(token) => call.room.store.visitor_viewed(token).await,
        Whose::Nobody => Ok(Vec::new()),
    }
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

fn recent(items: Vec<(Item, f64)>) -> Told<'static> {
    let items =
        items.into_iter().map(|(item, viewed)| Viewed { item: item.as_str().to_owned(), viewed });
    Told::Recent { items: items.collect() }
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
