//! Reads `Anteroom-Item` and `Anteroom-Cart`, by which a cooperating app states the visitor's item and
//! cart on the response to a forwarded request.

use ::http::{HeaderMap, HeaderName};
use anteroom_http::ident::Item;
use anteroom_http::list;
use anteroom_session::cart::{is_count, setting};
use anteroom_store::{CartAnswer, CartOwner, StoreError};
use percent_encoding::percent_decode;

use super::change::SessionChange;
use super::visitor_token::{CartChangeError, TokenContext};
use crate::context::RequestContext;

static ITEM: HeaderName = HeaderName::from_static("anteroom-item");
static CART: HeaderName = HeaderName::from_static("anteroom-cart");

/// The item that was viewed, as the app states it.
pub(crate) fn item(cx: &RequestContext<'_>, headers: &HeaderMap) -> Option<Item> {
    let value = headers.get(&ITEM).filter(|_| cx.rules().sessions)?;
    let item = decoded(value.as_bytes());
    if item.is_none() {
        tracing::warn!("the origin's Anteroom-Item is not a valid item id; it is ignored");
    }
    item
}

/// The counts that the app sets in the visitor's cart.
pub(super) fn cart(cx: &RequestContext<'_>, headers: &HeaderMap) -> Vec<(Item, i64)> {
    if cx.rules().sessions { counts(headers) } else { Vec::new() }
}

/// Writes the counts to the cart, in the store before the response goes out. `change` is what the same
/// response did to the session. Returns whether the cart was changed.
pub(super) async fn fill_cart(
    cx: &RequestContext<'_>,
    counts: Vec<(Item, i64)>,
    change: &SessionChange,
) -> Result<bool, StoreError> {
    let worker = cx.worker;
    let owner = match change {
        SessionChange::LoggedIn { token, user, .. } => {
            let (token, user, now) = (token.clone(), Some(user.clone()), cx.now);
            Some(CartOwner { token, user, now, terms: worker.sessions.terms(now) })
        }
        SessionChange::LoggedOut { .. } => None,
        SessionChange::Nothing | SessionChange::Watched { .. } => {
            cx.visitor.cart_owner(worker.sessions.terms(cx.now))
        }
    };
    let Some(owner) = owner else {
        if matches!(change, SessionChange::Nothing) && cx.route.visitor_token {
            return fill_without_login(cx, counts).await;
        }
        tracing::debug!("the origin's Anteroom-Cart is ignored: the visitor is not logged in");
        return Ok(false);
    };
    let is_guess = owner.user.is_none() && !worker.settings.cookies.minted;
    let answer = match worker.sessions.add_to_cart(&worker.store, &owner, counts).await {
        // The cookie may not belong to a login, and the app has processed the request. Its response
        // goes out.
        Err(StoreError::Away) if is_guess => {
            tracing::debug!(
                "the origin's Anteroom-Cart is ignored: the store cannot say whether the visitor is logged in"
            );
            return Ok(false);
        }
        answer => answer?,
    };
    match answer {
        CartAnswer::Changed(_) => Ok(true),
        CartAnswer::NotLoggedIn => {
            tracing::debug!(
                "the origin's Anteroom-Cart is ignored: the visitor is no longer logged in"
            );
            Ok(false)
        }
        CartAnswer::Full => {
            tracing::warn!("the origin's Anteroom-Cart is ignored: the cart is full");
            Ok(false)
        }
    }
}

/// The same for a visitor without a login. A token may be created for the visitor.
async fn fill_without_login(
    cx: &RequestContext<'_>,
    counts: Vec<(Item, i64)>,
) -> Result<bool, StoreError> {
    let change = setting(counts);
    let why = match cx.visitor_token.change_cart(&TokenContext::of(cx), cx.visitor, &change).await {
        Ok(CartAnswer::Changed(_)) => return Ok(true),
        Ok(CartAnswer::NotLoggedIn) => "the visitor is unknown",
        Ok(CartAnswer::Full) => "the cart is full",
        Err(CartChangeError::Store(error)) => return Err(error),
        Err(CartChangeError::TooMany(_)) => "the client's address has been given too many tokens",
        Err(CartChangeError::NotGiven) => "no token could be made",
    };
    tracing::debug!(why, "the origin's Anteroom-Cart is ignored");
    Ok(false)
}

/// The valid members of all lines.
fn counts(headers: &HeaderMap) -> Vec<(Item, i64)> {
    let lines = headers.get_all(&CART).iter();
    let members = lines.flat_map(|line| line.as_bytes().split(|&b| b == b','));
    let mut counts = Vec::new();
    for member in members.map(list::trim).filter(|member| !member.is_empty()) {
        match count(member) {
            Some(count) => counts.push(count),
            None => tracing::warn!("a value of the origin's Anteroom-Cart is not <item>;count=<n>"),
        }
    }
    counts
}

/// Parses `<item>;count=<n>`, with the item percent-encoded.
fn count(member: &[u8]) -> Option<(Item, i64)> {
    let (item, parameter) = list::divide(member, b';');
    let (name, value) = list::divide(parameter?, b'=');
    if !list::trim(name).eq_ignore_ascii_case(b"count") {
        return None;
    }
    let count = std::str::from_utf8(list::trim(value?)).ok()?.parse().ok()?;
    Some((decoded(list::trim(item))?, count)).filter(|_| is_count(count))
}

fn decoded(value: &[u8]) -> Option<Item> {
    let text: Vec<u8> = percent_decode(value.trim_ascii()).collect();
    Item::new(std::str::from_utf8(&text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&'static str]) -> Vec<(String, i64)> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&CART, ::http::HeaderValue::from_static(line));
        }
        let found = counts(&headers).into_iter();
        found.map(|(item, count)| (item.as_str().to_owned(), count)).collect()
    }

    #[test]
    fn lines_and_lists_are_read_alike() {
        let both = vec![("mug".to_owned(), 2), ("Zoë, 100%".to_owned(), -1)];
        assert_eq!(read(&["mug;count=2", "Zo%C3%AB%2C%20100%25;count=-1"]), both);
        assert_eq!(read(&[" mug ; Count = 2 ,, Zo%C3%AB%2C%20100%25;count=-1 "]), both);
    }

    #[test]
    fn unreadable_cart_lines_are_left_out() {
        let bad = "mug, ;count=1, mug;count=, mug;count=x, mug;count=1.5, mug;size=1, %00;count=1, \
                   %ff;count=1, mug;count=1000001, mug;count=1;count=2, tea;count=3";
        assert_eq!(read(&[bad]), [("tea".to_owned(), 3)]);
    }
}
