//! Active health checks: each server gets requests of the proxy's own.

use std::time::Duration;

use ::http::header::{HOST, USER_AGENT};
use ::http::{HeaderValue, Request, Uri};
use futures_util::future::join_all;

use super::upstream::Upstream;
use super::{ConnectionReuse, ServerConnections, UploadBody};

/// The request of a health check, and what a good response is.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// The requested target.
    pub target: Uri,
    /// The Host of the request.
    pub host: HeaderValue,
    /// How long a response may take.
    pub timeout: Duration,
    /// The statuses that count as healthy.
    pub status: Vec<u16>,
}

impl Upstream {
    /// Checks all servers concurrently, and records the results.
    pub async fn check(&self, check: &HealthCheck) {
        let asked = self.servers().iter().enumerate().map(async |(at, server)| {
            let is_well = check.is_well(server).await;
            self.server_list().checked(at, is_well);
        });
        join_all(asked).await;
    }
}

impl HealthCheck {
    async fn is_well(&self, server: &std::rc::Rc<ServerConnections>) -> bool {
        let mut request = Request::new(UploadBody::Empty);
        *request.uri_mut() = self.target.clone();
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("anteroom-health"));
        // On a connection of its own: a kept one says nothing about new ones.
        let answer =
            tokio::time::timeout(self.timeout, server.send(request, ConnectionReuse::Alone)).await;
        match answer {
            Ok(Ok(came)) => self.status.contains(&came.response.status().as_u16()),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}
