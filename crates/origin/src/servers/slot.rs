//! A place at a server, held while the server works on a request.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::health::RunningTrial;
use super::{ServerFailure, ServerList, SlotUse};

/// A place at a server. When dropped, it goes to the next waiting request.
#[derive(Debug)]
pub(crate) struct ServerSlot {
    /// `None` if there is no place to return.
    servers: Option<Arc<ServerList>>,
    server: usize,
    /// Set if the request tests whether the server is back.
    trial: Option<RunningTrial>,
    slot_use: SlotUse,
}

impl ServerSlot {
    pub(super) fn new(
        server_list: Arc<ServerList>,
        server: usize,
        trial: Option<RunningTrial>,
        slot_use: SlotUse,
    ) -> Self {
        Self { servers: Some(server_list), server, trial, slot_use }
    }

    /// The index of its server.
    pub(crate) fn server(&self) -> usize {
        self.server
    }

    /// The server has answered, or failed.
    pub(crate) fn judge(&mut self, failure: Option<ServerFailure>) {
        let trial = self.trial.take();
        if let Some(server_list) = &self.servers {
            server_list.judge(self.server, trial, failure, &mut self.slot_use);
        }
    }
}

impl Drop for ServerSlot {
    fn drop(&mut self) {
        let Some(server_list) = self.servers.take() else { return };
        let (server, trial, slot_use) = (self.server, self.trial, self.slot_use);
        // A client that hangs up gains no place by it: the server works on.
        let works_on = server_list.works_on(server, &slot_use);
        match Handle::try_current().ok().filter(|_| !works_on.is_zero()) {
            None => server_list.leave(server, trial, &slot_use),
            Some(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(works_on).await;
                server_list.leave(server, trial, &slot_use);
            })),
        }
    }
}
