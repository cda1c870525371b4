//! Where rows come from: a path of an app, or a query of a database.

use anteroom_policy::database::{DatabaseKind, SQLITE_CHANNEL};
use anteroom_policy::row_schedule::{RowIds, SCHEDULED_MAX};

use super::ConfigCheck;
use crate::plan::Rows;
use crate::suggest::nearest;

impl ConfigCheck<'_> {
    /// Checks each database.
    pub(super) fn databases(&mut self) {
        for (name, database) in &self.plan.databases {
            let setting = format!("databases.{name}.url");
            let Some(kind) = DatabaseKind::of_url(database.url.expose()) else { continue };
            if !kind.is_built() {
                let feature = kind.feature();
                self.problem(
                    &setting,
                    format!(
                        "this binary was built without the feature {feature:?}; build it with \
                         `cargo build --release --features {feature}`, or install a package, \
                         which has all databases"
                    ),
                );
            }
            let is_used = self.plan.rows.iter().any(|rows| rows.database.as_ref() == Some(name));
            if !is_used && !self.unread_rows() {
                self.warning(&setting, "is not used: no [[rows]] names this database");
            }
        }
    }

    /// Checks that rows have one source, and that its keys belong together.
    pub(super) fn source_of_rows(&mut self, table: &str, rows: &Rows) {
        let at = |key: &str| format!("{table}.{key}");
        if ["path", "query", "database"].iter().any(|key| self.unread(&at(key))) {
            return;
        }
        match (&rows.path, &rows.query) {
            (Some(_), Some(_)) => self.problem(
                &at("query"),
                "rows come from one source; remove path to read them from the database, or query \
                 to read them from the app",
            ),
            (None, None) => self.problem(
                &at("path"),
                "is missing; write path = \"/api/inventory/{row}\", or database and query",
            ),
            (Some(_), None) => self.only_with_query(table, rows),
            (None, Some(query)) => self.query_of_rows(table, rows, query),
        }
    }

    /// Checks how rows come into the schedule.
    pub(super) fn schedule_of_rows(&mut self, table: &str, rows: &Rows) {
        let at = |key: &str| format!("{table}.{key}");
        let usual = Rows::default();
        let count: u64 = rows.rows.iter().map(RowIds::count).fold(0, u64::saturating_add);
        if count > SCHEDULED_MAX {
            let text = format!("names {count} rows; at most {SCHEDULED_MAX} are scheduled");
            self.problem(&at("rows"), text);
        }
        if rows.rows_query.is_none() && rows.rows_every != usual.rows_every {
            self.problem(&at("rows_every"), "has no effect without rows_query");
        }
        if !rows.on_demand {
            let set = [
                ("idle", rows.idle != usual.idle),
                ("on_demand_max", rows.on_demand_max != usual.on_demand_max),
            ];
            for (key, _) in set.iter().filter(|(_, is_set)| *is_set) {
                self.problem(&at(key), "has no effect without on_demand = true");
            }
        }
        if rows.listen.is_none() && !rows.listen_purges.is_empty() {
            self.problem(&at("listen_purges"), "has no effect without listen");
        }
    }

    /// Checks that the database can announce changes.
    fn announcements(&mut self, table: &str, rows: &Rows, kind: DatabaseKind) {
        let Some(channel) = &rows.listen else { return };
        let listen = format!("{table}.listen");
        match kind {
            DatabaseKind::Postgres => {}
            DatabaseKind::Mysql => self.problem(
                &listen,
                "MySQL and MariaDB announce no changes; rows are read each `every`",
            ),
            DatabaseKind::Sqlite if channel != SQLITE_CHANNEL => self.problem(
                &listen,
                format!("SQLite has no channels; write listen = {SQLITE_CHANNEL:?}, and rows are due when another program has written the file"),
            ),
            DatabaseKind::Sqlite if !rows.listen_purges.is_empty() => self.problem(
                &format!("{table}.listen_purges"),
                "has no effect with SQLite, which tells only that the file has changed",
            ),
            DatabaseKind::Sqlite => {}
        }
    }

    fn only_with_query(&mut self, table: &str, rows: &Rows) {
        let usual = Rows::default();
        let set = [
            ("database", rows.database.is_some()),
            ("batch", rows.batch != usual.batch),
            ("id", rows.id != usual.id),
            ("many", rows.many != usual.many),
            ("rows_query", rows.rows_query.is_some()),
            ("listen", rows.listen.is_some()),
        ];
        for (key, _) in set.iter().filter(|(_, is_set)| *is_set) {
            self.problem(&format!("{table}.{key}"), "has no effect with path; it belongs to query");
        }
    }

    fn query_of_rows(&mut self, table: &str, rows: &Rows, query: &str) {
        let at = |key: &str| format!("{table}.{key}");
        let set =
            [("origin", rows.origin.is_some()), ("scheme", rows.scheme != Rows::default().scheme)];
        for (key, _) in set.iter().filter(|(_, is_set)| *is_set) {
            self.problem(&at(key), "has no effect with query; it belongs to path");
        }
        let Some(name) = &rows.database else {
            return self.problem(
                &at("database"),
                "is missing; write the name of the [databases.NAME] that the query is for",
            );
        };
        let known: Vec<&str> = self.plan.databases.iter().map(|(name, _)| name.as_str()).collect();
        let Some(place) = known.iter().position(|known| known == name) else {
            if self.unread.iter().any(|unread| unread.starts_with("databases")) {
                return;
            }
            let hint = match (nearest(name, &known), known.is_empty()) {
                (Some(near), _) => format!("; did you mean {near:?}?"),
                (None, true) => "; write it with its url".to_owned(),
                (None, false) => format!("; there are {}", known.join(", ")),
            };
            return self.problem(&at("database"), format!("there is no [databases.{name}]{hint}"));
        };
        let url = self.plan.databases[place].1.url.expose();
        let Some(kind) = DatabaseKind::of_url(url) else { return };
        self.announcements(table, rows, kind);
        if !has_parameter(kind, query) {
            let parameter = kind.parameter();
            self.problem(
                &at("query"),
                format!(
                    "has no parameter for the row id; write it as {parameter}, such as where id = {parameter}"
                ),
            );
        }
    }
}

/// Whether a query has a parameter. The database itself counts them: `anteroom check --connect`.
fn has_parameter(kind: DatabaseKind, query: &str) -> bool {
    match kind {
        DatabaseKind::Postgres => query.contains("$1"),
        DatabaseKind::Mysql => query.contains('?'),
        DatabaseKind::Sqlite => query.contains(['?', '$', ':', '@']),
    }
}
