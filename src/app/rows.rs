//! Converts a plan's `[[rows]]` and `[databases.NAME]` into what the tasks of rows take.

use std::rc::Rc;
use std::sync::Arc;

use anteroom_config::{DatabaseConfig, Plan, Rows};
use anteroom_origin::Upstreams;
use anteroom_policy::row_schedule::RowIds;
use anteroom_rows::RowNames;
use anteroom_rows::database::{Database, DatabaseSettings, RowQuery};
use anteroom_telemetry::metrics::ThreadMetrics;

use super::origins;
use crate::task::{
    OnDemand, RowLocation, RowOrigin, RowPlace, RowSecret, RowSources, RowsQuery, SourceSchedule,
};

/// The names of all rows.
pub(super) fn names(plan: &Plan) -> RowNames {
    RowNames::new(plan.rows.iter().map(|rows| rows.name.as_str()))
}

/// Where the rows of each source come from, and how they are scheduled.
pub(super) fn sources(
    plan: &Plan,
    upstreams: &Upstreams,
    databases: &[Rc<Database>],
    thread_metrics: &Arc<ThreadMetrics>,
) -> RowSources {
    let places = plan.rows.iter().map(|rows| match &rows.path {
        Some(path) => RowPlace::Origin(location(plan, upstreams, rows, path)),
        None => RowPlace::Database(RowsQuery {
            // The check has verified each name.
            database: Rc::clone(&databases[database_index(plan, rows).unwrap_or_default()]),
            query: query(rows),
            thread_metrics: Arc::clone(thread_metrics),
        }),
    });
    let names = names(plan);
    let schedules = plan.rows.iter().map(|rows| schedule(rows, &names));
    RowSources { places: places.collect(), schedules: schedules.collect(), names }
}

fn schedule(rows: &Rows, names: &RowNames) -> SourceSchedule {
    let ids = rows.rows.iter().flat_map(RowIds::ids);
    SourceSchedule {
        every: rows.every,
        rows: ids.filter_map(|id| names.row(&rows.name, &id)).collect(),
        listed_by: rows.rows_query.clone().map(|sql| (sql, rows.rows_every)),
        on_demand: rows
            .on_demand
            .then_some(OnDemand { idle: rows.idle, most: rows.on_demand_max as usize }),
    }
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
pub(super) fn databases(plan: &Plan) -> Vec<Rc<Database>> {
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
