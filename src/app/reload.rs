//! The reload: another plan is put into force while requests are answered, as a whole or not at all.
//!
//! Whatever can fail is tried first; then listeners, threads, tasks and administration change, none of
//! which can. Connections, tunnels, pages, sessions and visits live on.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::jobs::Jobs;
use super::listeners::Listeners;
use super::parts::{self, Shared};
use super::turn::Turn;
use super::worker::{self, Worker};
use super::{StartError, admin_token, rows};
use crate::admin::Post;
use crate::config::Plan;
use crate::store::AnyStore;
use crate::telemetry::metrics::Metrics;

/// How reloads went.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    done: AtomicU64,
    refused: AtomicU64,
}

impl Reloads {
    /// Adds the figures that are read at each scrape.
    pub(super) fn register(self: &Arc<Self>, metrics: &Metrics) {
        let this = Arc::clone(self);
        metrics.counter("anteroom_reloads", "Configurations put into force by a reload", {
            move || this.done.load(Ordering::Relaxed)
        });
        let this = Arc::clone(self);
        metrics.counter("anteroom_reloads_refused", "Reloads that changed nothing", move || {
            this.refused.load(Ordering::Relaxed)
        });
    }
}

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("what differs is read at the start only: {}", .0.join(", "))]
    NeedsRestart(Vec<&'static str>),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What a reload changes.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) plan: Plan,
    pub(super) turn: Arc<Turn>,
    pub(super) listeners: Listeners,
    pub(super) workers: Vec<Worker>,
    pub(super) shared: Arc<Shared>,
    pub(super) lane: AnyStore,
    pub(super) post: Rc<Post>,
    pub(super) jobs: Jobs,
}

impl Live {
    /// Puts `next` into force; `None`: it could not be read, which has been told.
    pub(super) async fn reload(&mut self, next: Option<Plan>) {
        let Some(next) = next else {
            tracing::error!("the configuration cannot be read: the old one stays in force");
            return self.count_refused();
        };
        match self.carry_out(next).await {
            Ok(()) => {
                self.shared.reloads.done.fetch_add(1, Ordering::Relaxed);
                tracing::info!("the new configuration is in force");
            }
            Err(refused) => {
                tracing::error!(%refused, "the old configuration stays in force");
                self.count_refused();
            }
        }
    }

    fn count_refused(&self) {
        self.shared.reloads.refused.fetch_add(1, Ordering::Relaxed);
    }

    async fn carry_out(&mut self, next: Plan) -> Result<(), Refused> {
        let fixed = self.plan.needs_restart(&next);
        if !fixed.is_empty() {
            return Err(Refused::NeedsRestart(fixed));
        }
        let turn = Turn::new(&next, &self.shared)?;
        let change = self.listeners.prepare(&next.listen)?;
        // Nothing fails from here on.
        self.shared.pages.change_default_ttl(next.cache.default_ttl);
        self.shared.caps.change(parts::most(&next));
        self.shared.sessions.change(parts::session_rules(&next.session));
        self.shared.origins.store(Arc::clone(&turn.origins));
        self.listeners.carry_out(change);
        worker::tell(&self.workers, &turn, self.listeners.take_entrances()).await;
        let clerk = rows::clerk(&next, &turn, &self.shared, &self.lane);
        self.post.change(clerk, admin_token(&next));
        self.jobs.change((&next, &turn), &self.shared, &self.lane).await;
        self.turn = turn;
        self.plan = next;
        Ok(())
    }
}
