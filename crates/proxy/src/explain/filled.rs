//! What fills the fragments of an explained page.

use anteroom_http::ident::Item;
use anteroom_policy::route::{Fill, Fragment, RowFill, RowId};

use crate::context::RequestContext;

/// Notes on the fragments of a page, whose request names `item`. Nothing is requested for them.
pub(super) async fn notes(cx: &RequestContext<'_>, item: Option<&Item>) -> Vec<String> {
    let mut notes = vec![
        match cx.route.has_personal_fragments() {
            true => {
                "fragments are filled in for each visitor: the response is complete, in gzip or without coding, \
                 and other caches may not store it"
            }
            false => {
                "fragments are filled in from rows: the response is complete, in gzip or without coding, and caches \
                 and browsers ask for it each time"
            }
        }
        .to_owned(),
    ];
    for Fragment { selector, fill, .. } in &cx.route.fragments {
        if let Fill::Row(row) = fill {
            notes.push(format!(
                "{} is filled in from {}",
                selector.as_str(),
                source(cx, row, item).await
            ));
        }
    }
    notes
}

/// Where the content of a fragment comes from.
async fn source(cx: &RequestContext<'_>, fill: &RowFill, item: Option<&Item>) -> String {
    let (worker, name) = (cx.worker, &fill.rows);
    let id = match &fill.id {
        RowId::Attribute(attribute) => {
            return format!("the row of {name} that its {attribute} names");
        }
        RowId::Item => item.map_or("", Item::as_str),
        RowId::Fixed(id) => id,
    };
    let Some(row) = worker.settings.rows.row(name, id) else {
        return format!("{name}, which has no row {id:?}: the page's own content stays");
    };
    let standing = match worker.rows.peek(&worker.store, &row).await {
        Ok(Some(_)) => "which is stored",
        Ok(None) if worker.is_on_demand(&row) => "which is fetched when a page needs it",
        Ok(None) => "which is not stored: the page's own content stays",
        Err(_) => "and the store is unavailable: the page's own content stays",
    };
    format!("row {id} of {name}, {standing}")
}
