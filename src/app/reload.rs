//! The reload: applies another plan while requests are answered, as a whole or not at all.
//!
//! Everything that can fail is tried first. Then the configuration is swapped, and listeners, workers,
//! administration and tasks follow; these steps cannot fail. Connections, tunnels, sessions and visits are kept,
//! and pages are, too, but for those of routes whose rules for pages changed.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_config::{LoadedPlan, Plan};
use anteroom_http::clock;
use anteroom_store::AnyStore;
use anteroom_telemetry::access_log::AccessLog;
use arc_swap::ArcSwap;
use tokio::time::timeout;

use super::acme;
use super::admin;
use super::admin_sockets::AdminSockets;
use super::jobs::Jobs;
use super::listeners::Listeners;
use super::live_config::LiveConfig;
use super::outdated::{self, outdated};
use super::service_manager;
use super::shared_state::{SharedState, has_others};
use super::start_error::StartError;
use super::store;
use super::worker::{self, Worker};
use crate::admin::{AdminHandle, ReloadReport, ReloadResult};

/// How long a reload waits for the store.
const PURGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Refuses a reload while a successor prepares, which has read the configuration already.
pub(super) async fn refuse_reload(shared: &SharedState) {
    service_manager::reloading().await;
    tracing::error!("a reload was refused: another process is taking over");
    shared.reloads.count_refused(&["another process is taking over".to_owned()]);
    service_manager::reloaded(false).await;
}

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
enum ReloadRefusal {
    #[error("these changes need a restart: {}", .0.join(", "))]
    NeedsRestart(Vec<&'static str>),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// The parts of the running proxy that a reload concerns.
#[derive(Debug)]
pub(super) struct RunningProxy {
    pub(super) live: Arc<ArcSwap<LiveConfig>>,
    pub(super) listeners: Listeners,
    pub(super) workers: Vec<Worker>,
    pub(super) shared: Arc<SharedState>,
    pub(super) store: AnyStore,
    pub(super) admin_handle: Rc<AdminHandle>,
    pub(super) admin_sockets: AdminSockets,
    pub(super) jobs: Jobs,
}

impl RunningProxy {
    /// Reopens the log files, for logrotate.
    pub(super) fn reopen(&self, log: Option<&AccessLog>) {
        if let Some(log) = log {
            log.reopen();
        }
        self.admin_handle.audit().reopen();
    }

    /// Applies `next`. If it could not be read, it has the problems, and the log has them, too.
    pub(super) async fn reload(&mut self, next: Result<LoadedPlan, Vec<String>>) -> ReloadResult {
        let next = match next {
            Ok(next) => next,
            Err(problems) => {
                tracing::error!("cannot read the configuration; the old one stays in force");
                self.shared.reloads.count_refused(&problems);
                return Err(problems);
            }
        };
        let warnings = next.warnings.clone();
        match self.put_into_force(next).await {
            Ok(()) => {
                self.shared.reloads.count_done();
                clock::accept_step();
                tracing::info!("the new configuration is in force");
                Ok(ReloadReport { warnings })
            }
            Err(refused) => {
                tracing::error!(%refused, "the old configuration stays in force");
                let problems = vec![refused.to_string()];
                self.shared.reloads.count_refused(&problems);
                Err(problems)
            }
        }
    }

    /// A plan with the store that is in use: after a move, `[store]` may name the store that was left, or already the next.
    pub(super) fn in_use(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        let switch = &self.shared.fleet.switch;
        if (switch.has_moved() || switch.is_elsewhere())
            && !switch.uses(&store::place(&plan))
            && let Some(next) = plan.store.next()
        {
            plan.store = next;
        }
        plan
    }

    /// Has a further move leave the store that the last one went to, once the configuration names it.
    fn settle_move(&self, plan: &Plan) {
        let switch = &self.shared.fleet.switch;
        if self.shared.moving.is_free() && switch.uses(&store::place(plan)) {
            switch.settle();
        }
    }

    async fn put_into_force(&mut self, next: LoadedPlan) -> Result<(), ReloadRefusal> {
        let old = self.live.load_full();
        let fixed = self.in_use(&old.plan).needs_restart(&self.in_use(&next.plan));
        if !fixed.is_empty() {
            return Err(ReloadRefusal::NeedsRestart(fixed));
        }
        let next = LiveConfig::new(next, &self.shared, &old.origins)?;
        let awaited = acme::prepare(&next.plan, true)?;
        let change = self.listeners.prepare(&next.plan.listen)?;
        // No step below can fail.
        let outdated = outdated(&old.plan, &next.plan);
        let purged = &self.shared.pages.purged;
        // Now, so that no page of the old rules is served under the new ones, and again when no worker stores
        // pages by the old ones any more. On a fleet, the last proxy that reloads outdates what the others stored
        // until then.
        purged.purge_later(&outdated.targets);
        self.live.store(Arc::clone(&next));
        next.tell_rules(&self.shared);
        self.settle_move(&next.plan);
        self.shared.fleet.switch.set_wanted(store::next(&next.plan));
        if has_others(&next.plan) {
            purged.expect_others();
        }
        self.shared.certificates.board.expect(awaited);
        self.listeners.carry_out(change).await;
        worker::tell(&self.workers, &next, self.listeners.take_entrances()).await;
        if !outdated.targets.is_empty() {
            tracing::info!(paths = outdated.paths, "stored pages of changed routes are outdated");
            let purge = purged.purge(&self.store, &outdated.targets);
            if !matches!(timeout(PURGE_TIMEOUT, purge).await, Ok(Ok(_))) {
                tracing::warn!(
                    "the other proxies learn of the outdated pages when the store takes the purge"
                );
            }
        }
        if outdated::teaches_another(&old.plan, &next.plan) {
            self.shared.learning.restart();
        }
        let commands = admin::commands(&next, &self.shared, &self.store, self.listeners.secured());
        self.admin_handle.replace(commands, admin::operators(&next.plan));
        self.jobs.restart(&next, &self.shared, &self.store).await;
        Ok(())
    }
}
