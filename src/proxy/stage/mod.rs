//! The stages that a request passes before a source answers it, in order.
//!
//! Each stage takes what the stage before it returned, so that a wrong order does not compile:
//! `Received` → `AdmittedRequest` → `CountedRequest` → `RoutedRequest` → `IdentifiedRequest` →
//! `Decision`. Peek mode runs the same stages for `anteroom explain`. It counts, remembers and uses up
//! nothing, and sends no question to the app.

pub(in crate::proxy) mod admit;
pub(in crate::proxy) mod decide;
pub(in crate::proxy) mod detect_upgrade;
pub(in crate::proxy) mod divert;
pub(in crate::proxy) mod identify;
pub(in crate::proxy) mod limit;
pub(in crate::proxy) mod receive;
mod revoked;
pub(in crate::proxy) mod route;
pub(in crate::proxy) mod url_pattern;
pub(in crate::proxy) mod verify;
pub(in crate::proxy) mod wanted_page;

use std::rc::Rc;

use self::divert::Diverted;
use self::identify::IdentifiedRequest;
use self::receive::Received;
use super::connection::client::Client;
use super::context::{Mode, WorkerContext};
use super::error::Error;
use super::record::RequestRecord;

/// How far a request has come.
pub(in crate::proxy) enum Reached<'w> {
    /// The proxy answers the request itself.
    Diverted(Diverted<'w>),
    /// A source answers the request.
    Identified(IdentifiedRequest<'w>),
}

/// Takes a request through the stages.
pub(in crate::proxy) async fn run<'w>(
    worker: &'w Rc<WorkerContext>,
    client: &'w Rc<Client>,
    received: Received,
    mode: Mode<'_>,
    record: &mut RequestRecord,
) -> Result<Reached<'w>, Error> {
    let admitted = admit::admit(&worker.settings, client, received, mode, record)?;
    let counted = limit::count(worker, client, admitted, mode)?;
    let counted = match divert::divert(&worker.settings, client, counted) {
        Diverted::No(counted) => counted,
        diverted => return Ok(Reached::Diverted(diverted)),
    };
    let routed = route::route(worker, counted, mode, record)?;
    if routed.route().redirect.is_some() {
        return Ok(Reached::Diverted(Diverted::RouteRedirect(routed)));
    }
    let identified = identify::identify(worker, client, routed, mode, record).await?;
    Ok(Reached::Identified(identified))
}

#[cfg(test)]
mod tests;
