//! Requests of the proxy's own: active health checks, and one attempt for `anteroom check --connect`.

use std::time::Duration;

use ::http::header::{HOST, USER_AGENT};
use ::http::{HeaderValue, Method, Request, StatusCode, Uri};
use futures_util::future::join_all;

use super::upstream::Upstream;
use super::{ConnectionReuse, OriginError, ServerConnections, UploadBody};

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

    /// Sends `HEAD /` to all servers concurrently, each within `limit`, and records nothing. The results
    /// are in the order of the servers.
    pub async fn probe(
        &self,
        host: &HeaderValue,
        limit: Duration,
    ) -> Vec<Result<StatusCode, ProbeError>> {
        let asked = self.servers().iter().map(async |server| {
            let mut request = Request::new(UploadBody::Empty);
            *request.method_mut() = Method::HEAD;
            request.headers_mut().insert(HOST, host.clone());
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("anteroom-check"));
            let answer = tokio::time::timeout(limit, server.send(request, ConnectionReuse::Alone));
            Ok(answer.await.map_err(|_| ProbeError::TimedOut)??.response.status())
        });
        join_all(asked).await
    }
}

/// Why a server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There was no answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The connection or the exchange failed.
    #[error(transparent)]
    Origin(#[from] OriginError),
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
