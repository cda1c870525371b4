//! The background tasks: those that last as long as the process, and those that a reload begins anew.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::hints::Hints;
use super::parts::{self, Shared};
use super::turn::Turn;
use super::{origins, rows, webhook};
use crate::config::Plan;
use crate::store::AnyStore;
use crate::task::{
    self, Clean, CleanVisitors, FlushVisitors, Gone, LogOuts, Purges, Rescale, Visits,
};
use crate::telemetry::metrics::Sheet;

/// The background tasks.
#[derive(Debug)]
pub(super) struct Jobs {
    lasting: Vec<JoinHandle<()>>,
    of_turn: Vec<JoinHandle<()>>,
    /// Ends those of this turn; a child of what ends all.
    turn_ends: CancellationToken,
    stop: CancellationToken,
    sheet: Arc<Sheet>,
}

impl Jobs {
    /// Starts them on this thread's runtime. They end at `stop`.
    pub(super) fn start(
        (plan, turn): (&Plan, &Turn),
        shared: &Arc<Shared>,
        lane: &AnyStore,
        stop: &CancellationToken,
    ) -> Self {
        let sheet = shared.metrics.sheet();
        let turn_ends = stop.child_token();
        Self {
            lasting: lasting(shared, lane, &sheet, stop),
            of_turn: of_turn((plan, turn), shared, lane, (&sheet, &turn_ends)),
            turn_ends,
            stop: stop.clone(),
            sheet,
        }
    }

    /// Ends those that go by the old plan, and begins those of the new.
    pub(super) async fn change(
        &mut self,
        (plan, turn): (&Plan, &Turn),
        shared: &Arc<Shared>,
        lane: &AnyStore,
    ) {
        self.turn_ends.cancel();
        wait(std::mem::take(&mut self.of_turn)).await;
        self.turn_ends = self.stop.child_token();
        self.of_turn = of_turn((plan, turn), shared, lane, (&self.sheet, &self.turn_ends));
    }

    /// Returns when all have ended.
    pub(super) async fn ended(self) {
        wait(self.lasting).await;
        wait(self.of_turn).await;
    }
}

async fn wait(jobs: Vec<JoinHandle<()>>) {
    for job in jobs {
        if let Err(error) = job.await {
            tracing::error!(%error, "a background task did not end well");
        }
    }
}

fn visits(shared: &Shared, lane: &AnyStore) -> Visits {
    Visits {
        store: lane.clone(),
        queue: Arc::clone(&shared.visits),
        sessions: Arc::clone(&shared.sessions),
    }
}

fn lasting(
    shared: &Arc<Shared>,
    lane: &AnyStore,
    sheet: &Arc<Sheet>,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let log_outs = LogOuts { store: lane.clone(), sessions: Arc::clone(&shared.sessions) };
    let purges = Purges {
        store: lane.clone(),
        purged: Arc::clone(&shared.pages.purged),
        said: Default::default(),
        said_waiting: Default::default(),
    };
    let visits = visits(shared, lane);
    let flush_visitors =
        FlushVisitors { store: lane.clone(), visits: Arc::clone(&shared.visitor_visits) };
    let gone = Gone {
        store: lane.clone(),
        sessions: Arc::clone(&shared.sessions),
        told: Default::default(),
    };
    vec![
        tokio::task::spawn_local(task::drive(gone, Arc::clone(sheet), stop.clone())),
        tokio::task::spawn_local(task::drive(purges, Arc::clone(sheet), stop.clone())),
        tokio::task::spawn_local(task::drive(visits, Arc::clone(sheet), stop.clone())),
        tokio::task::spawn_local(task::drive(flush_visitors, Arc::clone(sheet), stop.clone())),
        tokio::task::spawn_local(task::drive(log_outs, Arc::clone(sheet), stop.clone())),
    ]
}

fn of_turn(
    (plan, turn): (&Plan, &Turn),
    shared: &Arc<Shared>,
    lane: &AnyStore,
    (sheet, stop): (&Arc<Sheet>, &CancellationToken),
) -> Vec<JoinHandle<()>> {
    let clean = Clean {
        store: lane.background(),
        visits: visits(shared, lane),
        keep: plan.session.max_sessions,
        unseen: parts::session_rules(&plan.session).longest(),
        batch: plan.session.clean_batch,
        every: plan.session.clean_every,
        carts: plan.session.clean_carts,
        expiring: parts::expiring(&plan.session),
        sheet: Arc::clone(sheet),
        said: Default::default(),
        said_lost: Default::default(),
    };
    // Also where none are given out any more: what there is has to go in its time.
    let clean_visitors = CleanVisitors {
        store: lane.background(),
        visits: Arc::clone(&shared.visitor_visits),
        keep: plan.visitor.max_tokens,
        unseen: plan.visitor.token_lifetime,
        batch: plan.session.clean_batch,
        every: plan.session.clean_every,
        kept: Arc::clone(&shared.visitor_tokens),
        sheet: Arc::clone(sheet),
    };
    let rescale = Rescale {
        store: lane.background(),
        keep_top: plan.views.keep_top,
        factor: f64::from(plan.views.rescale_percent) / 100.0,
        every: plan.views.rescale_every,
    };
    let hints = Hints {
        kinds: parts::cookie_kinds(plan),
        metrics: Arc::clone(&shared.metrics),
        told: Arc::clone(&shared.hints_told),
    };
    let mut jobs = vec![
        tokio::task::spawn_local(task::drive(hints, Arc::clone(sheet), stop.clone())),
        tokio::task::spawn_local(task::drive(rescale, Arc::clone(sheet), stop.clone())),
        tokio::task::spawn_local(task::drive(clean, Arc::clone(sheet), stop.clone())),
        tokio::task::spawn_local(task::drive(clean_visitors, Arc::clone(sheet), stop.clone())),
    ];
    jobs.extend(rows::start(plan, shared, sheet, lane, stop));
    jobs.extend(webhook::start((plan, turn), shared, sheet, lane, stop));
    jobs.extend(origins::start_checks(plan, shared, sheet, stop));
    jobs
}
