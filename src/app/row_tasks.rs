//! Starts the tasks of rows.

use std::rc::Rc;
use std::sync::Arc;

use anteroom_config::Plan;
use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::ThreadMetrics;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::live_config::LiveConfig;
use super::rows;
use super::shared_state::SharedState;
use crate::task::{
    self, CacheRows, ListenForChanges, ListenedSource, RowsOnDemand, ScheduleRows, Task,
};

/// Starts the tasks of rows on this thread's runtime, if there are `[[rows]]`.
pub(super) fn start(
    live: &LiveConfig,
    shared: &SharedState,
    thread_metrics: &Arc<ThreadMetrics>,
    store: &AnyStore,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let plan = &live.plan;
    if plan.rows.is_empty() {
        return Vec::new();
    }
    let databases = rows::databases(plan);
    let upstreams = live.origins.reach(thread_metrics);
    let sources = Rc::new(rows::sources(plan, &upstreams, &databases, thread_metrics));
    let (leads, led) = watch::channel(false);
    let store = store.background();
    let refresh = CacheRows::new(
        store.clone(),
        Rc::clone(&sources),
        Arc::clone(&shared.rows),
        Arc::clone(thread_metrics),
    );
    let process_id = shared.pages.purged.process_id;
    let schedule = ScheduleRows::new(
        store.clone(),
        process_id,
        Rc::clone(&sources),
        Arc::clone(&shared.rows),
        leads,
    );
    let on_demand = RowsOnDemand::new(
        store.clone(),
        Rc::clone(&sources),
        Arc::clone(&shared.rows),
        Arc::clone(thread_metrics),
    );
    let mut jobs = vec![
        spawn(refresh, thread_metrics, stop),
        spawn(schedule, thread_metrics, stop),
        spawn(on_demand, thread_metrics, stop),
    ];
    for (place, database) in databases.into_iter().enumerate() {
        let listened = listened(plan, place);
        if listened.is_empty() {
            continue;
        }
        let listen = ListenForChanges {
            store: store.clone(),
            database,
            listened,
            sources: Rc::clone(&sources),
            shared: Arc::clone(&shared.rows),
            purger: Arc::clone(&live.purger),
            leads: led.clone(),
            thread_metrics: Arc::clone(thread_metrics),
            failure_logged: Default::default(),
            refusal_logged: Default::default(),
        };
        jobs.push(spawn(listen, thread_metrics, stop));
    }
    jobs
}

fn spawn<T: Task + 'static>(
    task: T,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    tokio::task::spawn_local(task::drive(task, Arc::clone(thread_metrics), stop.clone()))
}

/// The sources that listen to the database at this place of the plan.
fn listened(plan: &Plan, database: usize) -> Vec<ListenedSource> {
    let of_database =
        plan.rows.iter().filter(|rows| rows::database_index(plan, rows) == Some(database));
    let listened = of_database.filter_map(|rows| {
        Some(ListenedSource {
            channel: rows.listen.clone()?,
            name: rows.name.clone(),
            purges: rows.listen_purges.clone(),
        })
    });
    listened.collect()
}
