//! Checks of health: each server is asked by itself whether it is well.

use std::time::Duration;

use ::http::header::{HOST, USER_AGENT};
use ::http::{HeaderValue, Request, Uri};
use futures_util::future::join_all;

use super::upstream::Upstream;
use super::{Keep, Origin, Outgoing};

/// What servers are asked, and what a good answer is.
#[derive(Clone, Debug)]
pub struct Check {
    /// What is asked for.
    pub target: Uri,
    /// The Host that servers get.
    pub host: HeaderValue,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The statuses that are well.
    pub status: Vec<u16>,
}

impl Upstream {
    /// Asks all servers, side by side, and notes what they say.
    pub async fn check(&self, check: &Check) {
        let asked = self.servers().iter().enumerate().map(async |(at, server)| {
            let is_well = check.is_well(server).await;
            self.roster().checked(at, is_well);
        });
        join_all(asked).await;
    }
}

impl Check {
    async fn is_well(&self, server: &std::rc::Rc<Origin>) -> bool {
        let mut request = Request::new(Outgoing::Empty);
        *request.uri_mut() = self.target.clone();
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("anteroom-health"));
        // On a connection of its own: one that was kept says nothing of new ones.
        let answer = tokio::time::timeout(self.timeout, server.send(request, Keep::Alone)).await;
        match answer {
            Ok(Ok(came)) => self.status.contains(&came.response.status().as_u16()),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}
