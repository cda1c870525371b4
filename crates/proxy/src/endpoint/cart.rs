//! The visitor's cart: which changes a body may request, and how a cart is shown.

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, Method};
use anteroom_http::ident::Item;
use anteroom_origin::{self, BodyFault, RequestBody};
use anteroom_session::cart::{is_count, setting};
use anteroom_store::{Cart, CartAnswer, CartChange, CartOwner};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

use super::{EndpointAnswer, EndpointError, EndpointRequest, InCart};
use crate::error::Error;
use crate::settle::user_purge;
use crate::settle::visitor_token::CartChangeError;
use crate::visitor::Visitor;

/// The largest body of a change, in bytes.
const BODY_MAX: u64 = 64 << 10;
/// The longest error text about a body, in bytes. The text may quote the body.
const COMPLAINT_MAX: usize = 200;

/// The body of a call, which is read at most once.
pub(super) struct CartBody {
    body: RequestBody,
    is_read: bool,
}

impl CartBody {
    pub(super) fn new(body: RequestBody) -> Self {
        Self { is_read: body.is_none(), body }
    }

    /// Whether the connection holds no unread part of the body.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    async fn read(&mut self, call: &EndpointRequest<'_>) -> Result<Bytes, EndpointError> {
        let Some(body) = self.body.take() else { return Ok(Bytes::new()) };
        let settings = &call.worker.settings;
        let max = settings.body_max.unwrap_or(BODY_MAX).min(BODY_MAX);
        if body.size_hint().lower() > max {
            return Err(EndpointError::TooLarge);
        }
        // A body this small arrives quickly. A timeout covers all of it, so that a slow sender cannot
        // hold the call.
        let upload = anteroom_origin::Upload::new(body, max, settings.stall, |_| {});
        let upload = upload.telling(call.client.state.body_is_read());
        let whole = tokio::time::timeout(settings.stall, upload.collect()).await;
        let whole = whole.unwrap_or(Err(BodyFault::Stalled)).map_err(|fault| match fault {
            BodyFault::TooLarge => EndpointError::TooLarge,
            BodyFault::Stalled => EndpointError::Stalled,
            BodyFault::Broken => EndpointError::Malformed("the body broke off".to_owned()),
        })?;
        self.is_read = true;
        Ok(whole.to_bytes())
    }
}

/// Carries out a PUT or a DELETE for a session, and returns the cart after it.
pub(super) async fn change(
    call: &EndpointRequest<'_>,
    owner: &CartOwner,
    upload: &mut CartBody,
) -> Result<EndpointAnswer<'static>, EndpointError> {
    let worker = call.worker;
    let answer = match requested(call, upload).await? {
        None => worker.sessions.empty_cart(&worker.store, owner).await?,
        Some(counts) => worker.sessions.add_to_cart(&worker.store, owner, counts).await?,
    };
    if matches!(answer, CartAnswer::Changed(_)) {
        user_purge::has_changed_cart(worker, owner).await;
    }
    cart_answer(answer)
}

/// The same for a visitor without a login. A token may be created for the visitor.
pub(super) async fn change_without_login(
    call: &EndpointRequest<'_>,
    visitor: &Visitor,
    upload: &mut CartBody,
) -> Result<EndpointAnswer<'static>, EndpointError> {
    let may_have_one = call.visitor_token.token(visitor).is_some()
        || call.visitor_token.may_begin(call.worker.settings.visitor_tokens.as_ref(), visitor);
    if !may_have_one {
        return Err(EndpointError::NotLoggedIn);
    }
    let requested = requested(call, upload).await?;
    let change = requested.map_or(CartChange::Empty, setting);
    match call.visitor_token.change_cart(&call.around(), visitor, &change).await {
        Ok(answer) => cart_answer(answer),
        Err(CartChangeError::Store(error)) => Err(error.into()),
        Err(CartChangeError::NotGiven) => Err(EndpointError::StoreAway),
        Err(CartChangeError::TooMany(retry)) => {
            Err(EndpointError::TooMany(Error::TooMany { retry, has_body: false }))
        }
    }
}

/// The counts to set; `None`: empty the cart.
async fn requested(
    call: &EndpointRequest<'_>,
    upload: &mut CartBody,
) -> Result<Option<Vec<(Item, i64)>>, EndpointError> {
    let empties = call.request.head.method == Method::DELETE;
    let needs_no_type = empties && upload.is_read();
    if !needs_no_type && !is_json(&call.request.head.headers) {
        return Err(EndpointError::NotJson);
    }
    if empties {
        return Ok(None);
    }
    parse(&upload.read(call).await?).map(Some)
}

fn cart_answer(answer: CartAnswer) -> Result<EndpointAnswer<'static>, EndpointError> {
    match answer {
        CartAnswer::Changed(cart) => Ok(show(cart)),
        CartAnswer::NotLoggedIn => Err(EndpointError::NotLoggedIn),
        CartAnswer::Full => Err(EndpointError::Full),
    }
}

/// The JSON form of a cart.
pub(super) fn show(cart: Cart) -> EndpointAnswer<'static> {
    let items = cart.into_iter();
    let items = items.map(|(item, count)| InCart { item: item.as_str().to_owned(), count });
    EndpointAnswer::Cart { items: items.collect() }
}

/// Whether the request has a single `Content-Type`, and it is JSON. A form on another site cannot send
/// that.
fn is_json(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let kind = line.as_bytes().split(|&b| b == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// `{"item": …, "count": …}`, or `{"items": [{"item": …, "count": …}, …]}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedChange {
    item: Option<String>,
    count: Option<ItemCount>,
    items: Option<Vec<CartLine>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CartLine {
    item: String,
    count: ItemCount,
}

/// A whole number in any notation: in JSON, 2 and 2.0 are the same number.
#[derive(Clone, Copy)]
struct ItemCount(i64);

impl<'de> Deserialize<'de> for ItemCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(from)?;
        let whole = |number: f64| number.fract() == 0.0 && number >= i64::MIN as f64;
        let count = number.as_i64().or_else(|| {
            // The conversion saturates at the largest integer.
            number.as_f64().filter(|&number| whole(number)).map(|number| number as i64)
        });
        count.map(Self).ok_or_else(|| D::Error::custom("a count is a whole number"))
    }
}

fn parse(body: &[u8]) -> Result<Vec<(Item, i64)>, EndpointError> {
    // Serde would accept an array in place of an object.
    let shape: Value =
        serde_json::from_slice(body).map_err(|error| malformed(&error.to_string()))?;
    let lines = shape.get("items").and_then(Value::as_array);
    if !shape.is_object() || !lines.is_none_or(|lines| lines.iter().all(Value::is_object)) {
        return Err(malformed("the body, and each of its items, must be an object"));
    }
    let requested: RequestedChange =
        serde_json::from_slice(body).map_err(|error| malformed(&error.to_string()))?;
    let lines = match requested {
        RequestedChange { item: Some(item), count: Some(count), items: None } => {
            vec![CartLine { item, count }]
        }
        RequestedChange { item: None, count: None, items: Some(lines) } => lines,
        _ => return Err(malformed("either item and count, or items")),
    };
    lines.iter().map(requested_line).collect()
}

fn requested_line(line: &CartLine) -> Result<(Item, i64), EndpointError> {
    let item = Item::new(&line.item)
        .ok_or_else(|| malformed("an item has 1 to 128 bytes without control characters"))?;
    let ItemCount(count) = line.count;
    if !is_count(count) {
        return Err(malformed("a count is 1,000,000 at most"));
    }
    Ok((item, count))
}

fn malformed(why: &str) -> EndpointError {
    EndpointError::Malformed(why[..why.floor_char_boundary(COMPLAINT_MAX)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str) -> Result<Vec<(String, i64)>, String> {
        let counts = parse(body.as_bytes()).map_err(|refusal| refusal.to_string())?;
        Ok(counts.into_iter().map(|(item, count)| (item.as_str().to_owned(), count)).collect())
    }

    #[test]
    fn a_change_names_one_item_or_several() {
        let mug = |count| Ok(vec![("mug".to_owned(), count)]);
        assert_eq!(parsed(r#"{"item":"mug","count":2}"#), mug(2));
        assert_eq!(parsed(r#" {"count":-7,"item":"mug"} "#), mug(-7));
        assert_eq!(parsed(r#"{"items":[{"item":"mug","count":1000000}]}"#), mug(1_000_000));
        assert_eq!(parsed(r#"{"items":[]}"#), Ok(Vec::new()));
        // In JSON this is the same number.
        assert_eq!(parsed(r#"{"item":"mug","count":2.0}"#), mug(2));
        assert_eq!(parsed(r#"{"item":"mug","count":2e0}"#), mug(2));
    }

    #[test]
    fn invalid_changes_are_explained() {
        let long = format!(r#"{{"item":"{}","count":1}}"#, "x".repeat(129));
        let unknown = format!(r#"{{"{}":1}}"#, "y".repeat(500));
        for (body, told) in [
            ("", "EOF"),
            ("mug", "expected value"),
            ("[]", "must be an object"),
            ("null", "must be an object"),
            (r#"["mug",1,null]"#, "must be an object"),
            (r#"{"items":[["mug",1]]}"#, "must be an object"),
            ("{}", "either item and count, or items"),
            (r#"{"item":"mug"}"#, "either"),
            (r#"{"item":"mug","count":1,"items":[]}"#, "either"),
            (r#"{"item":"mug","count":1,"price":0}"#, "unknown field `price`"),
            (r#"{"items":[{"item":"mug","count":1,"x":0}]}"#, "unknown field `x`"),
            (r#"{"items":[{"item":"mug"}]}"#, "missing field `count`"),
            (r#"{"item":"mug","item":"tea","count":1}"#, "duplicate field"),
            (r#"{"item":"mug","count":1.5}"#, "whole number"),
            (r#"{"item":"mug","count":-1e300}"#, "whole number"),
            (r#"{"item":"mug","count":1e300}"#, "1,000,000"),
            (r#"{"item":"mug","count":"1"}"#, "invalid type: string"),
            (r#"{"item":7,"count":1}"#, "invalid type: integer"),
            (r#"{"item":"mug","count":18446744073709551615}"#, "1,000,000"),
            (r#"{"item":"mug","count":1000001}"#, "1,000,000"),
            (r#"{"item":"","count":1}"#, "1 to 128"),
            (r#"{"item":"a\u0000","count":1}"#, "control"),
            (&long, "1 to 128"),
            (&unknown, "unknown field"),
            (r#"{"item":"mug","count":1} x"#, "trailing"),
        ] {
            let why = parsed(body).unwrap_err();
            assert!(why.contains(told) && why.len() <= COMPLAINT_MAX, "{body}: {why}");
        }
    }
}
