//! The gate: whose requests are served at all, by address, and how many of them.
//!
//! The lists and limits come from the operator; which address is the client's is known from admission.

use std::net::IpAddr;

use ::http::request::Parts;

use crate::http::peer::{Peer, is_in};
use crate::policy::rate_limit::{Limit, Limits, Who};
use crate::proxy::context::Admitted;
use crate::proxy::context::{WorkerContext, asked};
use crate::proxy::error::Error;
use crate::proxy::settings::Settings;
use crate::proxy::visitor::Visitor;

/// Refuses whom the operator does not serve.
pub(in crate::proxy) fn admit_guest(
    settings: &Settings,
    address: Option<IpAddr>,
) -> Result<(), Error> {
    settings.guests.may_come(address).then_some(()).ok_or(Error::Denied)
}

/// Refuses whom a route does not serve.
pub(in crate::proxy) fn admit_to_route(
    room: &WorkerContext,
    head: &Parts,
    admitted: &Admitted,
) -> Result<(), Error> {
    let (asked, path) = (asked(head, admitted), head.uri.path());
    let may_come = room.settings.routes.may_come(&asked, path, admitted.address);
    may_come.then_some(()).ok_or(Error::Denied)
}

/// A request as the limits see it.
pub(in crate::proxy) struct Turn<'a> {
    pub(in crate::proxy) room: &'a WorkerContext,
    /// The client's address.
    pub(in crate::proxy) address: Option<IpAddr>,
    pub(in crate::proxy) has_body: bool,
}

impl Turn<'_> {
    /// Counts the request for its address.
    pub(in crate::proxy) fn count(&self, limits: &Limits) -> Result<(), Error> {
        let Some(limit) = &limits.address else { return Ok(()) };
        let Some(address) = self.address.filter(|address| self.counts(*address)) else {
            return Ok(());
        };
        self.take(limit, Who::at(address))
    }

    /// Counts the request for its session, where that is known, else for its address: who makes tokens
    /// up gains nothing.
    pub(in crate::proxy) fn count_visitor(
        &self,
        limits: &Limits,
        visitor: &Visitor,
    ) -> Result<(), Error> {
        let Some(limit) = &limits.session else { return Ok(()) };
        if self.address.is_some_and(|address| !self.counts(address)) {
            return Ok(());
        }
        let counters = self.room.settings.rates.counters.as_ref();
        let session = counters.zip(visitor.known());
        let session = session.map(|(counters, (token, _))| counters.session(token));
        session.or_else(|| self.address.map(Who::at)).map_or(Ok(()), |who| self.take(limit, who))
    }

    /// Not where the operator says so, and not a proxy of ours that does not say for whom it asks.
    fn counts(&self, address: IpAddr) -> bool {
        let settings = &self.room.settings;
        let is_exempt = is_in(Some(address), &settings.rates.exempt);
        !is_exempt && !Peer::at(address).is_among(&settings.trusted_proxies)
    }

    fn take(&self, limit: &Limit, who: Who) -> Result<(), Error> {
        let Err(retry) = limit.take(who) else { return Ok(()) };
        self.room.sheet.limited(&limit.name);
        if limit.is_to_be_told() {
            let (route, client) = (&*limit.name, self.address.map(tracing::field::display));
            tracing::warn!(route, client, "a rate limit is reached; told once a minute");
        }
        Err(Error::TooMany { retry, has_body: self.has_body })
    }
}
