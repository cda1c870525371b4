//! Converts a plan's `[[rows]]` into their names and the task that refreshes them.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::origins::{self, Origins};
use crate::config::{DatabaseConfig, Plan, Rows};
use crate::origin::Upstreams;
use crate::row::RowNames;
use crate::row::database::{Database, DatabaseSettings, RowQuery};
use crate::store::AnyStore;
use crate::task::{
    self, CacheRows, RowLocation, RowOrigin, RowPlace, RowSecret, RowSources, RowsQuery,
};
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
    let source = source(plan, &origins.reach(thread_metrics), thread_metrics);
    let rows = CacheRows::new(store.background(), source, Arc::clone(thread_metrics));
    Some(tokio::task::spawn_local(task::drive(rows, Arc::clone(thread_metrics), stop.clone())))
}

fn source(plan: &Plan, upstreams: &Upstreams, thread_metrics: &Arc<ThreadMetrics>) -> RowSources {
    let databases = databases(plan);
    let places = plan.rows.iter().map(|rows| match &rows.path {
        Some(path) => RowPlace::Origin(location(plan, upstreams, rows, path)),
        None => RowPlace::Database(RowsQuery {
            // The check has verified each name.
            database: Rc::clone(&databases[database_index(plan, rows).unwrap_or_default()]),
            query: query(rows),
            thread_metrics: Arc::clone(thread_metrics),
        }),
    });
    RowSources { names: names(plan), places: places.collect() }
}

fn location(plan: &Plan, upstreams: &Upstreams, rows: &Rows, path: &str) -> RowLocation {
    let (before, behind) = path.split_once("{row}").unwrap_or((path, ""));
    RowLocation {
        before: before.to_owned(),
        behind: behind.to_owned(),
        scheme: rows.scheme,
        origin: row_origin(plan, upstreams, origins::origin_index(plan, rows.origin.as_deref())),
    }
}

/// Each database of the plan. None is connected to yet.
fn databases(plan: &Plan) -> Vec<Rc<Database>> {
    let database =
        |(_, database): &(String, DatabaseConfig)| Rc::new(Database::new(&settings(database)));
    plan.databases.iter().map(database).collect()
}

/// How to reach a database.
pub(super) fn settings(database: &DatabaseConfig) -> DatabaseSettings {
    DatabaseSettings {
        url: database.url.expose().to_owned(),
        connections: database.connections as usize,
        timeout: database.timeout,
    }
}

/// The place of the database that `rows` come from.
pub(super) fn database_index(plan: &Plan, rows: &Rows) -> Option<usize> {
    let name = rows.database.as_deref();
    plan.databases.iter().position(|(known, _)| Some(known.as_str()) == name)
}

/// The query of `rows`.
pub(super) fn query(rows: &Rows) -> RowQuery {
    RowQuery {
        sql: rows.query.clone().unwrap_or_default(),
        id_column: rows.id.clone(),
        many: rows.many,
        batch: (rows.batch > 1).then_some(rows.batch as usize),
    }
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
