//! Fragments that the proxy fills itself, with data about the visitor.

use anteroom_http::ident::{Item, VisitorToken};
use anteroom_http::template::escape_html;
use anteroom_policy::route::Fill;
use anteroom_store::{Cart, CartStore as _, StoreError, ViewStore as _, VisitorStore as _};
use anteroom_telemetry::metrics::Count;

use super::content::FragmentError;
use crate::context::WorkerContext;
use crate::visitor::Visitor;

/// The HTML of a fragment for a visitor. `token`: the visitor's without a login, if there is one.
///
/// # Errors When there is no user to show it for, or the store fails.
pub(super) async fn html(
    fill: &Fill,
    visitor: &Visitor,
    token: Option<&VisitorToken>,
    worker: &WorkerContext,
) -> Result<String, FragmentError> {
    let mut html = String::new();
    match fill {
        Fill::User(template) => {
            // An unconfirmed name is the visitor's own claim. It is not shown as the user's name.
            let user = visitor.user().filter(|user| user.is_confirmed());
            let user = user.ok_or_else(|| why_not(visitor))?;
            let name = String::from_utf8_lossy(user.as_bytes());
            match template {
                Some(template) => template.write(&name, &mut html),
                None => escape_html(&name, &mut html),
            }
        }
        Fill::CartCount => {
            let cart = cart(visitor, token, worker).await?;
            let count = cart.iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
            html.push_str(&count.to_string());
        }
        Fill::Recent(template) => {
            for (item, _) in viewed(visitor, token, worker).await? {
                template.write(item.as_str(), &mut html);
            }
        }
        Fill::From(_) | Fill::Row(_) => return Err(FragmentError::Nobody),
    }
    Ok(html)
}

/// Why there is nothing for a visitor without known data.
fn why_not(visitor: &Visitor) -> FragmentError {
    if visitor.is_unsure() { FragmentError::Store } else { FragmentError::Nobody }
}

async fn cart(
    visitor: &Visitor,
    token: Option<&VisitorToken>,
    worker: &WorkerContext,
) -> Result<Cart, FragmentError> {
    let cart = match (visitor.known(), token) {
        (Some((session, _)), _) => worker.store.cart(session).await,
        (None, Some(token)) => worker.store.visitor_cart(token).await,
        (None, None) => return Err(why_not(visitor)),
    };
    store_answer(cart, worker)
}

async fn viewed(
    visitor: &Visitor,
    token: Option<&VisitorToken>,
    worker: &WorkerContext,
) -> Result<Vec<(Item, f64)>, FragmentError> {
    let viewed = match (visitor.known(), token) {
        (Some((session, _)), _) => worker.store.viewed(session).await,
        (None, Some(token)) => worker.store.visitor_viewed(token).await,
        (None, None) => return Err(why_not(visitor)),
    };
    store_answer(viewed, worker)
}

fn store_answer<T>(
    answer: Result<T, StoreError>,
    worker: &WorkerContext,
) -> Result<T, FragmentError> {
    answer.map_err(|error| {
        tracing::debug!(%error, "reading the content of a fragment from the store failed");
        worker.thread_metrics.count(Count::StoreReadErrors);
        FragmentError::Store
    })
}
