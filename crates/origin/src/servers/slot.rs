//! A place at a server, held while the server works on a request.

use std::sync::Arc;

use super::health::RunningTrial;
use super::{ServerFailure, ServerList};

/// A place at a server. When dropped, it goes to the next waiting request.
#[derive(Debug)]
pub(crate) struct ServerSlot {
    /// `None` if there is no place to return.
    servers: Option<Arc<ServerList>>,
    server: usize,
    /// Set if the request tests whether the server is back.
    trial: Option<RunningTrial>,
}

impl ServerSlot {
    pub(super) fn new(
        server_list: Arc<ServerList>,
        server: usize,
        trial: Option<RunningTrial>,
    ) -> Self {
        Self { servers: Some(server_list), server, trial }
    }

    /// The index of its server.
    pub(crate) fn server(&self) -> usize {
        self.server
    }

    /// The server has answered, or failed.
    pub(crate) fn judge(&mut self, failure: Option<ServerFailure>) {
        let trial = self.trial.take();
        if let Some(server_list) = &self.servers {
            server_list.judge(self.server, trial, failure);
        }
    }

    /// The place was never handed out.
    pub(super) fn forget(mut self) {
        self.servers = None;
    }
}

impl Drop for ServerSlot {
    fn drop(&mut self) {
        if let Some(server_list) = self.servers.take() {
            server_list.leave(self.server, self.trial);
        }
    }
}
