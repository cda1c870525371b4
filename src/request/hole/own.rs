//! Holes that we fill ourselves, with what we know of the visitor.

use super::super::Room;
use super::super::visitor::Visitor;
use super::ask::Unfilled;
use crate::http::template::escape_html;
use crate::metrics::Count;
use crate::route::Fill;
use crate::store::{SessionStore, StoreError};

/// The html for a visitor.
///
/// # Errors
/// Where nobody is logged in whom it could be for, or the store cannot say.
pub(super) async fn html(fill: &Fill, visitor: &Visitor, room: &Room) -> Result<String, Unfilled> {
    let is_away = visitor.is_unsure();
    let why_not = if is_away { Unfilled::Store } else { Unfilled::Nobody };
    let (token, user) = visitor.known().ok_or(why_not)?;
    let mut html = String::new();
    match fill {
        // What somebody has called himself is shown to nobody as his name.
        Fill::User if !user.is_confirmed() => return Err(Unfilled::Nobody),
        Fill::User => escape_html(&String::from_utf8_lossy(user.as_bytes()), &mut html),
        Fill::CartCount => {
            let cart = told(room.store.cart(token).await, room)?;
            let count = cart.iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
            html.push_str(&count.to_string());
        }
        Fill::Recent(template) => {
            for (item, _) in told(room.store.viewed(token).await, room)? {
                template.write(item.as_str(), &mut html);
            }
        }
        Fill::From(_) => return Err(Unfilled::Nobody),
    }
    Ok(html)
}

fn told<T>(answer: Result<T, StoreError>, room: &Room) -> Result<T, Unfilled> {
    answer.map_err(|error| {
        tracing::debug!(%error, "the store could not say what a hole is filled with");
        room.sheet.count(Count::StoreReadErrors);
        Unfilled::Store
    })
}
