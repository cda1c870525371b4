//! An origin as one thread reaches it: its servers, each with this thread's connections to it.
//!
//! Which server gets a request is the roster's word, shared by all threads. Whether a request that failed
//! is sent to another server is decided here.

use std::rc::Rc;
use std::sync::Arc;

use ::http::{Request, StatusCode};

use super::pool::Bound;
use super::send::{Failed, is_repeatable};
use super::servers::{Failure, NoPlace, Place, Roster, Wish};
use super::upgrade::Answer;
use super::{Keep, Origin, OriginError, OriginResponse, Outgoing, Settings};
use crate::http::upgrade::Protocol;
use crate::telemetry::metrics::{Count, Sheet};

/// An origin, as one thread reaches it.
#[derive(Debug)]
pub struct Upstream {
    roster: Arc<Roster>,
    servers: Vec<Rc<Origin>>,
    sheet: Arc<Sheet>,
}

/// All origins, in the places by which routes name them.
pub type Upstreams = Rc<[Rc<Upstream>]>;

impl Upstream {
    /// For one thread. `servers` are those of the roster, in its order.
    #[must_use]
    pub fn new(roster: Arc<Roster>, servers: Vec<Settings>, sheet: Arc<Sheet>) -> Rc<Self> {
        let servers = servers.into_iter().map(|settings| Origin::new(settings, Arc::clone(&sheet)));
        Rc::new(Self { roster, servers: servers.collect(), sheet })
    }

    /// Its name: `origin`, or that of its `[origins.NAME]`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.roster.name()
    }

    /// Whether it may take calls of gRPC, which are of HTTP/2.
    #[must_use]
    pub fn may_speak_http2(&self) -> bool {
        self.servers.iter().any(|server| server.may_speak_http2())
    }

    pub(super) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    pub(super) fn servers(&self) -> &[Rc<Origin>] {
        &self.servers
    }

    /// Sends a request to one of the servers and waits for the head of the response. `session` keeps to a
    /// server where the operator wants that.
    ///
    /// Where that server fails, the request goes to another one, once: any of which nothing was written,
    /// and a GET or HEAD without body that got no answer, for as long as there are not too many.
    ///
    /// # Errors
    /// See [`OriginError`].
    pub async fn send(
        &self,
        request: Request<Outgoing>,
        keep: Keep,
        session: Option<&str>,
    ) -> Result<OriginResponse, OriginError> {
        if self.roster.is_plain() {
            return self.servers[0].send(request, keep).await;
        }
        self.roster.count_request();
        let wish = Wish {
            session,
            is_repeatable: is_repeatable(&request),
            not: None,
            only: self.bound_to(&keep),
        };
        let place = self.place(&wish).await?;
        let first = place.server();
        let failed = match self.try_at(place, request, keep.clone()).await {
            Ok(came) => return Ok(came),
            Err(failed) => failed,
        };
        let Failed { error, again: Some(request), .. } = failed else { return Err(failed.error) };
        // A log-in of a connection that is gone has to begin anew, which the client does.
        let is_free = matches!(keep, Keep::Pool(_));
        if !is_free || !(error.reached_nobody() || self.roster.may_send_again()) {
            return Err(error);
        }
        let wish = Wish { not: Some(first), ..wish };
        let Ok(place) = self.roster.place(&wish).await else { return Err(error) };
        self.sheet.count(Count::OriginRetriesElsewhere);
        self.try_at(place, request, keep).await.map_err(|failed| failed.error)
    }

    /// Sends a request for another protocol to one of the servers, and to no second one.
    ///
    /// # Errors
    /// As [`Origin::upgrade`].
    pub async fn upgrade(
        &self,
        request: Request<Outgoing>,
        protocol: &Protocol,
        session: Option<&str>,
    ) -> Result<Answer, OriginError> {
        if self.roster.is_plain() {
            return self.servers[0].upgrade(request, protocol).await;
        }
        self.roster.count_request();
        let wish = Wish { session, is_repeatable: false, not: None, only: None };
        let mut place = self.place(&wish).await?;
        let mut came = self.servers[place.server()].upgrade(request, protocol).await;
        match &mut came {
            Ok(Answer::Http(came)) => {
                let fails = says_it_cannot(came.response.status());
                place.judge(fails.then_some(Failure::Unanswered));
                came.response.body_mut().hold(place);
            }
            Ok(Answer::Switched(switched)) => {
                place.judge(None);
                switched.hold(place);
            }
            Err(error) if error.is_ours() => {}
            Err(error) => place.judge(Some(failure(error))),
        }
        came
    }

    async fn place(&self, wish: &Wish<'_>) -> Result<Place, OriginError> {
        self.roster.place(wish).await.map_err(|why| {
            self.sheet.count(Count::OriginRefused);
            match why {
                NoPlace::Crowded => OriginError::Crowded,
                NoPlace::Resting => OriginError::Resting,
            }
        })
    }

    /// The server to which a client's connection is bound.
    fn bound_to(&self, keep: &Keep) -> Option<usize> {
        let Keep::Bound(slot) = keep else { return None };
        let slot = slot.borrow();
        let bound: &Bound = slot.as_ref()?;
        self.servers.iter().position(|server| bound.is_of(server))
    }

    async fn try_at(
        &self,
        mut place: Place,
        request: Request<Outgoing>,
        keep: Keep,
    ) -> Result<OriginResponse, Failed> {
        let mut sent = self.servers[place.server()].try_send(request, keep).await;
        match &mut sent {
            Ok(came) => {
                let fails = says_it_cannot(came.response.status());
                place.judge(fails.then_some(Failure::Unanswered));
                came.response.body_mut().hold(place);
            }
            // A client's own fault says nothing of the server, and neither does ours.
            Err(Failed {
                error: OriginError::ClientBody(_) | OriginError::Unsendable(_), ..
            }) => {}
            Err(Failed { error, is_telling, .. }) if !*is_telling || error.is_ours() => {}
            Err(Failed { error, .. }) => place.judge(Some(failure(error))),
        }
        sent
    }
}

fn failure(error: &OriginError) -> Failure {
    if error.reached_nobody() { Failure::Unreachable } else { Failure::Unanswered }
}

/// The statuses by which a server says that it cannot work, and not that the request is wrong.
fn says_it_cannot(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}
