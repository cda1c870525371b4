//! Holes that we fill ourselves, with what we know of the visitor.

use super::super::Room;
use super::super::visitor::Visitor;
use crate::http::template::escape_html;
use crate::ident::{Item, VisitorToken};
use crate::metrics::Count;
use crate::route::Fill;
use crate::store::{Cart, SessionStore as _, StoreError, VisitorStore as _};

/// The html for a visitor, who may hold a token without a login; `None`: there is none for him, or the store
/// cannot say.
pub(super) async fn html(
    fill: &Fill,
    (visitor, token): (&Visitor, Option<&VisitorToken>),
    room: &Room,
) -> Option<String> {
    let mut html = String::new();
    match fill {
        // What somebody has called himself is shown to nobody as his name.
        Fill::User => {
            let user = visitor.user().filter(|user| user.is_confirmed())?;
            escape_html(&String::from_utf8_lossy(user.as_bytes()), &mut html);
        }
        Fill::CartCount => {
            let cart = told(cart(visitor, token, room).await?, room)?;
            let count = cart.iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
            html.push_str(&count.to_string());
        }
        Fill::Recent(template) => {
            for (item, _) in told(viewed(visitor, token, room).await?, room)? {
                template.write(item.as_str(), &mut html);
            }
        }
        Fill::From(_) => return None,
    }
    Some(html)
}

async fn cart(
    visitor: &Visitor,
    token: Option<&VisitorToken>,
    room: &Room,
) -> Option<Result<Cart, StoreError>> {
    match (visitor.known(), token) {
        (Some((session, _)), _) => Some(room.store.cart(session).await),
        (None, Some(token)) => Some(room.store.visitor_cart(token).await),
        (None, None) => None,
    }
}

async fn viewed(
    visitor: &Visitor,
    token: Option<&VisitorToken>,
    room: &Room,
) -> Option<Result<Vec<(Item, f64)>, StoreError>> {
    match (visitor.known(), token) {
        (Some((session, _)), _) => Some(room.store.viewed(session).await),
        (None, Some(token)) => Some(room.store.visitor_viewed(token).await),
        (None, None) => None,
    }
}

fn told<T>(answer: Result<T, StoreError>, room: &Room) -> Option<T> {
    answer
        .inspect_err(|error| {
            tracing::debug!(%error, "the store could not say what a hole is filled with");
            room.sheet.count(Count::StoreReadErrors);
        })
        .ok()
}
