//! Converts a plan's `[[rows]]` into their names and the task that refreshes them.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::origins::{self, Origins};
use crate::config::Plan;
use crate::origin::Upstreams;
use crate::row::RowNames;
use crate::store::AnyStore;
use crate::task::{self, CacheRows, OriginRows, RowLocation, RowOrigin, RowSecret};
use crate::telemetry::metrics::ThreadMetrics;

/// The names of all rows.
pub(super) fn names(plan: &Plan) -> RowNames {
    RowNames::new(plan.rows.iter().map(|rows| rows.name.as_str()))
}

/// Starts the refresh task on this thread's runtime, if there are `[[rows]]`.
pub(super) fn start(
    plan: &Plan,
    origins: &Origins,
    thread_metrics: &Arc<ThreadMetrics>,
    store: &AnyStore,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    if plan.rows.is_empty() {
        return None;
    }
    let source = source(plan, &origins.reach(thread_metrics));
    let rows = CacheRows::new(store.background(), source, Arc::clone(thread_metrics));
    Some(tokio::task::spawn_local(task::drive(rows, Arc::clone(thread_metrics), stop.clone())))
}

fn source(plan: &Plan, upstreams: &Upstreams) -> OriginRows {
    let places = plan.rows.iter().map(|rows| {
        let (before, behind) = rows.path.split_once("{row}").unwrap_or((&rows.path, ""));
        RowLocation {
            before: before.to_owned(),
            behind: behind.to_owned(),
            scheme: rows.scheme,
            origin: row_origin(
                plan,
                upstreams,
                origins::origin_index(plan, rows.origin.as_deref()),
            ),
        }
    });
    OriginRows { names: names(plan), places: places.collect() }
}

fn row_origin(plan: &Plan, upstreams: &Upstreams, place: usize) -> RowOrigin {
    let settings = origins::named(plan).nth(place).map_or(&plan.origin, |(_, origin)| origin);
    let secret = settings.secret.as_ref();
    RowOrigin {
        upstream: Rc::clone(&upstreams[place]),
        host: origins::host(settings, &plan.origin.hosts),
        sessions: settings.sessions,
        secret: secret.map(|secret| RowSecret(secret.expose().as_bytes().to_vec())),
    }
}
