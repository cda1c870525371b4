//! `/_anteroom/…`: answers questions of the browser about the visitor, for scripts on pages that are the
//! same for every visitor.
//!
//! No request under the prefix reaches the origin, in any spelling. `origin_check` decides which
//! requests may change a cart; `cart` reads the changes.

mod cart;
pub(crate) mod challenge;
pub(crate) mod https_redirect;
mod origin_check;
pub(crate) mod purge_method;
pub(crate) mod route_redirect;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use ::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use ::http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use anteroom_fault::fault;
use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};
use anteroom_http::path::is_odd;
use anteroom_origin::RequestBody;
use anteroom_policy::answer::Endpoint;
use anteroom_store::{Cart, CartStore as _, StoreError, ViewStore as _, VisitorStore as _};
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::metrics::{Count, Outcome};
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;
use serde::Serialize;

use crate::connection::client::Client;
use crate::context::{RequestFacts, WorkerContext};
use crate::deliver::body::Body;
use crate::deliver::headers;
use crate::error::{Error, RETRY_SECONDS};
use crate::record::RequestRecord;
use crate::settle::visitor_token::TokenContext;
use crate::stage::admit::AdmittedRequest;
use crate::stage::divert::PREFIX;
use crate::stage::limit::{CountedRequest, RateCheck};
use crate::stage::{detect_upgrade, identify};
use crate::visitor::Visitor;
use crate::visitor_token::VisitorTokenState;

static RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The number of most viewed items that are listed.
const TOP_MAX: u32 = 25;

/// The endpoint that a path names. A path that could be decoded to another path names none.
fn endpoint_of(admitted: &RequestFacts, path: &str) -> Option<Endpoint> {
    let name = admitted.path.strip_prefix('/')?.strip_prefix(PREFIX)?.strip_prefix('/')?;
    let endpoint = match name {
        "me" => Endpoint::Me,
        "cart" => Endpoint::Cart,
        "recent" => Endpoint::Recent,
        "top" => Endpoint::Top,
        _ => return None,
    };
    (!is_odd(path)).then_some(endpoint)
}

fn allowed_methods(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Cart => "GET, HEAD, PUT, DELETE",
        Endpoint::Me | Endpoint::Recent | Endpoint::Top => "GET, HEAD",
    }
}

/// A request to an endpoint.
pub(super) struct EndpointRequest<'a> {
    pub(super) worker: &'a Rc<WorkerContext>,
    pub(super) client: &'a Rc<Client>,
    pub(super) request: CountedRequest,
    /// The token of a visitor without a login, if any.
    pub(super) visitor_token: &'a VisitorTokenState,
}

impl EndpointRequest<'_> {
    fn around(&self) -> TokenContext<'_> {
        let AdmittedRequest { admitted, now, .. } = &*self.request;
        let (scheme, address) = (admitted.scheme, admitted.address);
        TokenContext { worker: self.worker, scheme, address, now: *now }
    }
}

/// The content of an answer, in the form of its JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum EndpointAnswer<'a> {
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
        items: Vec<ViewedItem>,
    },
    Top {
        items: Vec<ItemViews>,
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
struct ViewedItem {
    item: String,
    viewed: f64,
}

#[derive(Serialize)]
struct ItemViews {
    item: String,
    views: f64,
}

/// Why a call is refused.
#[derive(Debug, thiserror::Error)]
enum EndpointError {
    #[error("not found")]
    NotFound,
    #[error("method not allowed")]
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
    /// A rate limit is reached. The response is the same as for other requests.
    #[error("one call too many")]
    TooMany(Error),
    #[error("a cart holds 500 items at most")]
    Full,
    #[error("please try again in a few seconds")]
    StoreAway,
}

impl From<StoreError> for EndpointError {
    fn from(error: StoreError) -> Self {
        tracing::debug!(%error, "the store failed in a request to an endpoint");
        Self::StoreAway
    }
}

impl EndpointError {
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

    /// The response, with the fields that the refusal decides.
    fn into_response(self) -> Response<Bytes> {
        let mut response = json_response(&EndpointAnswer::Error { error: self.to_string() });
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        match self {
            Self::Method(allowed) => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::StoreAway => {
                headers.insert(RETRY_AFTER, RETRY_SECONDS);
            }
            // RFC 9110 §15.5.2 requires a scheme. The login belongs to the app and is proved by a
            // cookie.
            Self::NotLoggedIn => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Cookie"));
            }
            _ => {}
        }
        response
    }
}

/// Answers a request to an endpoint.
pub(crate) async fn answer(
    call: &EndpointRequest<'_>,
    body: RequestBody,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    let mut upload = cart::CartBody::new(body);
    let answered = match dispatch(call, &mut upload, record).await {
        Err(EndpointError::TooMany(error)) => return Err(error),
        answered => answered,
    };
    record.outcome(Outcome::Endpoint, Some(Reason::Endpoint));
    let mut response = answered.unwrap_or_else(EndpointError::into_response);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Pages of other sites cannot load the response as a script or picture, not even into their process.
    headers.insert(RESOURCE_POLICY.clone(), HeaderValue::from_static("same-origin"));
    // An unread rest of the body would be parsed as the next request.
    if !upload.is_read() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    headers::put_status(call.worker, headers, &headers::bypassed(Reason::Endpoint));
    Ok(response.map(Body::full))
}

async fn dispatch(
    call: &EndpointRequest<'_>,
    upload: &mut cart::CartBody,
    record: &mut RequestRecord,
) -> Result<Response<Bytes>, EndpointError> {
    if fault!("no-endpoint") {
        charge(call, &visitor_of(call).await)?;
    }
    let endpoint = endpoint_of(&call.request.admitted, call.request.head.uri.path())
        .filter(|endpoint| call.worker.settings.endpoints.contains(endpoint))
        .ok_or(EndpointError::NotFound)?;
    let reads = matches!(call.request.head.method, Method::GET | Method::HEAD);
    let changes = endpoint == Endpoint::Cart
        && matches!(call.request.head.method, Method::PUT | Method::DELETE);
    if fault!("method") {
        charge(call, &visitor_of(call).await)?;
    }
    if detect_upgrade::is_extended(&call.request.head) || (!reads && !changes) {
        return Err(EndpointError::Method(allowed_methods(endpoint)));
    }
    if fault!("foreign") {
        charge(call, &visitor_of(call).await)?;
    }
    if changes && !origin_check::is_same_origin(&call.request.head.headers, &call.request.admitted)
    {
        return Err(EndpointError::Foreign);
    }
    let visitor = visitor_of(call).await;
    record.visitor(visitor.class, visitor.user().filter(|_| call.worker.settings.log_user));
    if fault!("visit") {
        note_visit(call, &visitor);
    }
    if !(fault!("no-endpoint") || fault!("method") || fault!("foreign")) {
        charge(call, &visitor)?;
    }
    call.visitor_token.settle(&call.around(), &visitor).await;
    if !fault!("visit") {
        note_visit(call, &visitor);
    }
    let answer = match endpoint {
        Endpoint::Me => me(&visitor),
        Endpoint::Cart if changes => {
            match visitor.cart_owner(call.worker.sessions.terms(call.request.now)) {
                Some(owner) => cart::change(call, &owner, upload).await?,
                None => cart::change_without_login(call, &visitor, upload).await?,
            }
        }
        Endpoint::Cart => cart::show(cart_of(call, &owner_of(call, &visitor)?).await?),
        Endpoint::Recent => recent(viewed_by(call, &owner_of(call, &visitor)?).await?),
        Endpoint::Top => top(call).await?,
    };
    Ok(json_response(&answer))
}

/// Counts the call among the requests of its session.
fn charge(call: &EndpointRequest<'_>, visitor: &Visitor) -> Result<(), EndpointError> {
    let limits = &call.worker.settings.rates.all;
    let check = RateCheck::of(call.worker, &call.request);
    check.count_visitor(limits, visitor).map_err(EndpointError::TooMany)
}

async fn visitor_of(call: &EndpointRequest<'_>) -> Visitor {
    identify::of_endpoint(call.worker, call.client, &call.request).await
}

fn note_visit(call: &EndpointRequest<'_>, visitor: &Visitor) {
    let worker = call.worker;
    if let Some((token, user)) = visitor.known() {
        worker.visits.note(token.clone(), user.clone(), None, call.request.now);
        worker.thread_metrics.count(Count::Visits);
    } else if let Some(token) = call.visitor_token.token(visitor) {
        worker.visitor_visits.note(token, None, call.request.now);
    }
}

/// The owner of the cart and views that the call asks for.
enum OwnerLookup<'v> {
    Session(&'v StoredToken),
    Visitor(VisitorToken),
    /// The visitor has no token yet, and may get one.
    Nobody,
}

fn owner_of<'v>(
    call: &EndpointRequest<'_>,
    visitor: &'v Visitor,
) -> Result<OwnerLookup<'v>, EndpointError> {
    match (visitor.known(), call.visitor_token.token(visitor)) {
        (Some((token, _)), _) => Ok(OwnerLookup::Session(token)),
        (None, Some(token)) => Ok(OwnerLookup::Visitor(token)),
        (None, None) if visitor.is_unsure() => Err(EndpointError::StoreAway),
        (None, None)
            if call
                .visitor_token
                .may_begin(call.worker.settings.visitor_tokens.as_ref(), visitor) =>
        {
            Ok(OwnerLookup::Nobody)
        }
        (None, None) => Err(EndpointError::NotLoggedIn),
    }
}

async fn cart_of(call: &EndpointRequest<'_>, owner: &OwnerLookup<'_>) -> Result<Cart, StoreError> {
    match owner {
        OwnerLookup::Session(token) => call.worker.store.cart(token).await,
        OwnerLookup::Visitor(token) => call.worker.store.visitor_cart(token).await,
        OwnerLookup::Nobody => Ok(Cart::new()),
    }
}

async fn viewed_by(
    call: &EndpointRequest<'_>,
    owner: &OwnerLookup<'_>,
) -> Result<Vec<(Item, f64)>, StoreError> {
    match owner {
        OwnerLookup::Session(token) => call.worker.store.viewed(token).await,
        OwnerLookup::Visitor(token) => call.worker.store.visitor_viewed(token).await,
        OwnerLookup::Nobody => Ok(Vec::new()),
    }
}

fn me(visitor: &Visitor) -> EndpointAnswer<'_> {
    let session = match visitor.class {
        VisitorClass::Known => "known",
        VisitorClass::Anonymous => "none",
        VisitorClass::Unknown => "unknown",
    };
    let user = visitor.user().map(|user| String::from_utf8_lossy(user.as_bytes()));
    let attributes = visitor.user().into_iter().flat_map(User::attributes).collect();
    EndpointAnswer::Me { user, attributes, session }
}

fn recent(items: Vec<(Item, f64)>) -> EndpointAnswer<'static> {
    let items = items
        .into_iter()
        .map(|(item, viewed)| ViewedItem { item: item.as_str().to_owned(), viewed });
    EndpointAnswer::Recent { items: items.collect() }
}

async fn top(call: &EndpointRequest<'_>) -> Result<EndpointAnswer<'static>, EndpointError> {
    let items = call.worker.store.top(TOP_MAX).await?;
    let items =
        items.into_iter().map(|(item, views)| ItemViews { item: item.as_str().to_owned(), views });
    Ok(EndpointAnswer::Top { items: items.collect() })
}

fn json_response(answer: &EndpointAnswer<'_>) -> Response<Bytes> {
    let mut text = serde_json::to_vec(answer).expect("text and numbers can be written as JSON");
    text.push(b'\n');
    let mut response = Response::new(Bytes::from(text));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
