//! A place at a server, held while the server works on a request.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

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
    /// Whether the request may have reached the server.
    is_sent: bool,
}

impl ServerSlot {
    pub(super) fn new(
        server_list: Arc<ServerList>,
        server: usize,
        trial: Option<RunningTrial>,
        slot_use: SlotUse,
    ) -> Self {
        Self { servers: Some(server_list), server, trial, slot_use, is_sent: false }
    }

    /// The index of its server.
    pub(crate) fn server(&self) -> usize {
        self.server
    }

    /// The request is sent now.
    pub(crate) fn sent(&mut self) {
        self.is_sent = true;
    }

    /// The server has answered, or failed.
    pub(crate) fn judge(&mut self, failure: Option<ServerFailure>) {
        self.judge_at(failure, Instant::now());
    }

    /// The same, where it is known what time it is.
    pub(crate) fn judge_at(&mut self, failure: Option<ServerFailure>, now: Instant) {
        let trial = self.trial.take();
        if let Some(server_list) = &self.servers {
            server_list.judge(self.server, trial, failure, &mut self.slot_use, now);
        }
    }
}

impl Drop for ServerSlot {
    fn drop(&mut self) {
        let Some(server_list) = self.servers.take() else { return };
        let (server, slot_use) = (self.server, &self.slot_use);
        if let Some(trial) = self.trial {
            server_list.end_trial(server, trial);
        }
        // A client that hangs up gains no place by it: the server works on.
        let works_on = match self.is_sent {
            true => server_list.works_on(server, slot_use),
            false => Duration::ZERO,
        };
        // PERF: the runtime is looked for only where there is something to wait for.
        let runtime = if works_on.is_zero() { None } else { Handle::try_current().ok() };
        let Some(runtime) = runtime else { return server_list.leave(server, slot_use) };
        let slot_use = *slot_use;
        drop(runtime.spawn(async move {
            tokio::time::sleep(works_on).await;
            server_list.leave(server, &slot_use);
        }));
    }
}
