//! Finds the route of a request, and applies the route's limits to the client's address.

use std::sync::Arc;

use anteroom_fault::fault;
use anteroom_http::cookie;
use anteroom_http::field_set::FieldSet;
use anteroom_http::ident::Item;
use anteroom_policy::rate_limit::RequestLimits;
use anteroom_policy::route::{CompiledRoute, Route};
use anteroom_telemetry::metrics::CookieEvent;

use super::admit::AdmittedRequest;
use super::limit::{CountedRequest, RateCheck};
use crate::context::{Mode, RewrittenPath, WorkerContext, route_input, route_of};
use crate::error::Error;
use crate::record::RequestRecord;

/// A request on its route, charged to its address there.
pub(crate) struct RoutedRequest<'w> {
    pub(super) request: AdmittedRequest,
    pub(super) counts_in_all: bool,
    pub(super) route: &'w Arc<CompiledRoute>,
    pub(super) limits: Vec<&'w RequestLimits>,
    /// The item that the request names on its route.
    pub(super) item: Option<Item>,
}

/// Finds a request's route, and charges the request to its address there.
pub(crate) fn route<'w>(
    worker: &'w WorkerContext,
    counted: CountedRequest,
    mode: Mode<'_>,
    record: &mut RequestRecord,
) -> Result<RoutedRequest<'w>, Error> {
    let (route, item) = route_of(worker, &counted.head, &counted.admitted);
    record.route(route);
    refuse_denied(worker, &counted, route, record)?;
    // SECURITY: a rewrite opens no path of the origin that its own route keeps for some addresses.
    if let Some(rewritten) = RewrittenPath::of(route, &counted.head)
        && mode.knows_address()
    {
        let (asked, path) = rewritten.input(&counted.head, &counted.admitted);
        if !worker.settings.routes.may_come(&asked, path, counted.admitted.address) {
            return Err(Error::Denied);
        }
    }
    if mode.counts() && counted.counts_in_all {
        // PERF: no look at the fields of a request without cookies.
        let has_cookies = counted.admitted.fields.has(FieldSet::COOKIE);
        let names = has_cookies.then(|| cookie::named(&counted.head.headers));
        worker.thread_metrics.cookies(CookieEvent::Came, names.into_iter().flatten());
    }
    let path = counted.head.uri.path();
    let limits =
        worker.settings.routes.limits(&route_input(&counted.head, &counted.admitted), path);
    if mode.counts() {
        let is_late = fault!("asked-first") || fault!("address-late") || fault!("address-last");
        let limits = if is_late { &[][..] } else { &limits[..] };
        let check = RateCheck::of(worker, &counted);
        limits.iter().try_for_each(|limits| check.count(limits))?;
    }
    if fault!("all-late") && mode.counts() {
        RateCheck::of(worker, &counted).count(&worker.settings.rates.all)?;
    }
    let counts_in_all = counted.counts_in_all;
    Ok(RoutedRequest { request: counted.into_request(), counts_in_all, route, limits, item })
}

/// Refuses a request that a route denies, by its own path or by the one that the origin would get.
fn refuse_denied(
    worker: &WorkerContext,
    request: &AdmittedRequest,
    route: &Route,
    record: &mut RequestRecord,
) -> Result<(), Error> {
    let AdmittedRequest { head, admitted, .. } = request;
    let routes = &worker.settings.routes;
    let by_rewrite = || {
        let rewritten = RewrittenPath::of(route, head)?;
        let (asked, path) = rewritten.input(head, admitted);
        routes.denying(&asked, path)
    };
    let denying = routes.denying(&route_input(head, admitted), head.uri.path()).or_else(by_rewrite);
    refuse_by(denying, record)
}

/// Refuses a call of one of the proxy's own endpoints that a route denies.
pub(super) fn refuse_denied_call(
    worker: &WorkerContext,
    request: &AdmittedRequest,
    record: &mut RequestRecord,
) -> Result<(), Error> {
    let AdmittedRequest { head, admitted, .. } = request;
    let routes = &worker.settings.routes;
    refuse_by(routes.denying(&route_input(head, admitted), head.uri.path()), record)
}

fn refuse_by(
    denying: Option<&Arc<CompiledRoute>>,
    record: &mut RequestRecord,
) -> Result<(), Error> {
    let Some(denying) = denying else { return Ok(()) };
    // Also where another spelling of the path was sent.
    record.route(denying);
    Err(Error::DeniedByRoute(Arc::clone(denying)))
}

impl<'w> RoutedRequest<'w> {
    /// The route that serves the request.
    pub(crate) fn route(&self) -> &'w Arc<CompiledRoute> {
        self.route
    }

    /// The request.
    pub(crate) fn request(&self) -> &AdmittedRequest {
        &self.request
    }

    /// The same request on a route with other sharing, as for a fragment.
    pub(crate) fn on<'r>(self, route: &'r Arc<CompiledRoute>) -> RoutedRequest<'r>
    where
        'w: 'r,
    {
        let Self { request, counts_in_all, limits, item, .. } = self;
        RoutedRequest { request, counts_in_all, route, limits, item }
    }
}
