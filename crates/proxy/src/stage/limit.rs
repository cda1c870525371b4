//! Limits decide which clients a route serves, and how many requests of each.
//!
//! A request is charged four times: to its address and to its session, each for all requests and for its
//! route. The value that a stage returns is the proof of the charge.

use std::net::IpAddr;

use anteroom_fault::fault;
use anteroom_http::peer::{Peer, is_in};
use anteroom_policy::rate_limit::{Limit, RateKey, RequestLimits};

use super::admit::AdmittedRequest;
use crate::connection::client::Client;
use crate::context::{Mode, WorkerContext, route_input};
use crate::error::Error;
use crate::visitor::Visitor;

/// A request that its route serves, charged to its address for all requests.
pub(crate) struct CountedRequest {
    request: AdmittedRequest,
    /// Whether the request counts among all requests. A fragment does not: it was counted with its page.
    pub(super) counts_in_all: bool,
}

impl std::ops::Deref for CountedRequest {
    type Target = AdmittedRequest;

    fn deref(&self) -> &AdmittedRequest {
        &self.request
    }
}

impl CountedRequest {
    /// A request for a fragment of a page that was counted.
    pub(crate) fn with_its_page(
        worker: &WorkerContext,
        request: AdmittedRequest,
    ) -> Result<Self, Error> {
        may_come(worker, &request)?;
        Ok(Self { request, counts_in_all: false })
    }

    pub(super) fn into_request(self) -> AdmittedRequest {
        self.request
    }
}

/// Counts a request among all requests of its address. A purge from a client that may purge is exempt.
pub(super) fn count(
    worker: &WorkerContext,
    client: &Client,
    request: AdmittedRequest,
    mode: Mode<'_>,
) -> Result<CountedRequest, Error> {
    if mode.knows_address() && !fault!("networks") {
        may_come(worker, &request)?;
    }
    let purge = worker.settings.purge_method(&request.head.method).filter(|_| !fault!("counted"));
    let is_exempt = purge.is_some_and(|method| fault!("uncounted") || method.is_for(client.peer));
    if mode.counts() && !is_exempt && !fault!("all-late") {
        RateCheck::of(worker, &request).count(&worker.settings.rates.all)?;
    }
    if mode.knows_address() && fault!("networks") {
        may_come(worker, &request)?;
    }
    Ok(CountedRequest { request, counts_in_all: true })
}

/// Whether the request's route serves its address.
pub(crate) fn serves(worker: &WorkerContext, request: &AdmittedRequest) -> bool {
    let AdmittedRequest { head, admitted, .. } = request;
    let asked = route_input(head, admitted);
    worker.settings.routes.may_come(&asked, head.uri.path(), admitted.address)
}

fn may_come(worker: &WorkerContext, request: &AdmittedRequest) -> Result<(), Error> {
    serves(worker, request).then_some(()).ok_or(Error::Denied)
}

/// A request as the rate limits see it.
pub(crate) struct RateCheck<'a> {
    worker: &'a WorkerContext,
    /// The client's address, if known.
    address: Option<IpAddr>,
    has_body: bool,
}

impl<'a> RateCheck<'a> {
    pub(crate) fn of(worker: &'a WorkerContext, request: &AdmittedRequest) -> Self {
        let address = request.admitted.address;
        Self { worker, address, has_body: request.has_body }
    }
}

impl RateCheck<'_> {
    /// Counts the request for its address.
    pub(crate) fn count(&self, limits: &RequestLimits) -> Result<(), Error> {
        let Some(limit) = &limits.address else { return Ok(()) };
        let Some(address) = self.address.filter(|address| self.counts(*address)) else {
            return Ok(());
        };
        self.take(limit, RateKey::at(address))
    }

    /// Counts the request for its session if that is known, otherwise for its address. Made-up tokens
    /// therefore gain nothing.
    pub(crate) fn count_visitor(
        &self,
        limits: &RequestLimits,
        visitor: &Visitor,
    ) -> Result<(), Error> {
        let Some(limit) = &limits.session else { return Ok(()) };
        if self.address.is_some_and(|address| !self.counts(address)) {
            return Ok(());
        }
        let counters = self.worker.settings.rates.counters.as_ref();
        let session = counters.zip(visitor.known());
        let session = session.map(|(counters, (token, _))| counters.session(token));
        session
            .or_else(|| self.address.map(RateKey::at))
            .map_or(Ok(()), |who| self.take(limit, who))
    }

    /// Whether an address is counted. Exempt addresses are not, nor is a trusted proxy that does not
    /// name its client.
    fn counts(&self, address: IpAddr) -> bool {
        let settings = &self.worker.settings;
        let is_exempt = is_in(Some(address), &settings.rates.exempt);
        !is_exempt && !Peer::at(address).is_among(&settings.trusted_proxies)
    }

    fn take(&self, limit: &Limit, who: RateKey) -> Result<(), Error> {
        let Err(retry) = limit.take(who) else { return Ok(()) };
        self.worker.thread_metrics.limited(&limit.name);
        if limit.may_log() {
            let (route, client) = (&*limit.name, self.address.map(tracing::field::display));
            tracing::warn!(route, client, "a rate limit is reached; logged at most once a minute");
        }
        Err(Error::TooMany { retry, has_body: self.has_body })
    }
}
