//! Holes that we fill ourselves, with what we know of the visitor.

use super::super::Room;
use super::super::visitor::Visitor;
use super::ask::Unfilled;
use crate::http::template::escape_html;
use crate::ident::{Item, VisitorToken};
use crate::metrics::Count;
use crate::route::Fill;
use crate::store::{Cart, CartStore as _, StoreError, ViewStore as _, VisitorStore as _};

/// A visitor, and the token that he may hold without a login.
type Whose<'v> = (&'v Visitor, Option<&'v VisitorToken>);

/// The html for a visitor.
///
/// # Errors
/// Where there is nobody whom it could be for, or the store cannot say.
pub(super) async fn html(fill: &Fill, whose: Whose<'_>, room: &Room) -> Result<String, Unfilled> {
    let mut html = String::new();
    match fill {
        Fill::User => {
            // What somebody has called himself is shown to nobody as his name.
            let user = whose.0.user().filter(|user| user.is_confirmed());
            let user = user.ok_or_else(|| why_not(whose.0))?;
            escape_html(&String::from_utf8_lossy(user.as_bytes()), &mut html);
        }
        Fill::CartCount => {
            let cart = cart(whose, room).await?;
            let count = cart.iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
            html.push_str(&count.to_string());
        }
        Fill::Recent(template) => {
            for (item, _) in viewed(whose, room).await? {
                template.write(item.as_str(), &mut html);
            }
        }
        Fill::From(_) => return Err(Unfilled::Nobody),
    }
    Ok(html)
}

/// Why there is nothing for a visitor of whom nothing is known.
fn why_not(visitor: &Visitor) -> Unfilled {
    if visitor.is_unsure() { Unfilled::Store } else { Unfilled::Nobody }
}

async fn cart((visitor, token): Whose<'_>, room: &Room) -> Result<Cart, Unfilled> {
    let cart = match (visitor.known(), token) {
        (Some((session, _)), _) => room.store.cart(session).await,
        (None, Some(token)) => room.store.visitor_cart(token).await,
        (None, None) => return Err(why_not(visitor)),
    };
    told(cart, room)
}

async fn viewed((visitor, token): Whose<'_>, room: &Room) -> Result<Vec<(Item, f64)>, Unfilled> {
    let viewed = match (visitor.known(), token) {
        (Some((session, _)), _) => room.store.viewed(session).await,
        (None, Some(token)) => room.store.visitor_viewed(token).await,
        (None, None) => return Err(why_not(visitor)),
    };
    told(viewed, room)
}

fn told<T>(answer: Result<T, StoreError>, room: &Room) -> Result<T, Unfilled> {
    answer.map_err(|error| {
        tracing::debug!(%error, "the store could not say what a hole is filled with");
        room.sheet.count(Count::StoreReadErrors);
        Unfilled::Store
    })
}
