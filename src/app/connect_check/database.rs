//! The queries of `[[rows]]`: each is prepared by its database, and none is run.

use super::{ConnectFinding, Findings, causes, failed, fine};
use crate::app::rows;
use crate::config::Plan;
use crate::row::database::Database;

/// One for each `[[rows]]` with a query.
pub(super) async fn findings(plan: &Plan) -> Vec<ConnectFinding> {
    let mut findings = Findings::about("rows");
    for source in plan.rows.iter().filter(|rows| rows.query.is_some()) {
        let Some(place) = rows::database_index(plan, source) else { continue };
        let (name, settings) = &plan.databases[place];
        let database = Database::new(&rows::settings(settings));
        let checked = database.check(&rows::query(source)).await;
        let result = match checked {
            Ok(()) => fine(format!("[databases.{name}] has prepared the query")),
            Err(why) => failed(format!("[databases.{name}]: {}", causes(&why))),
        };
        findings.add(&source.name, result);
    }
    findings.found
}
