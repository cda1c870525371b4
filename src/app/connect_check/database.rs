//! The queries of `[[rows]]`: each is prepared by its database. The one that lists rows is run.

use anteroom_config::Plan;
use anteroom_rows::database::Database;

use super::{ConnectFinding, Findings, causes, failed, fine};
use crate::app::rows;

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
        if let Some(sql) = &source.rows_query {
            let result = match database.ids(sql).await {
                Ok(ids) => fine(format!("[databases.{name}] lists {} for rows_query", ids.len())),
                Err(why) => failed(format!("[databases.{name}]: rows_query: {}", causes(&why))),
            };
            findings.add(&source.name, result);
        }
        if let Some(channel) = &source.listen {
            let result = match database.listen(&[channel]).await {
                Ok(_) => fine(format!("[databases.{name}] announces changes on {channel}")),
                Err(why) => failed(format!("[databases.{name}]: listen: {}", causes(&why))),
            };
            findings.add(&source.name, result);
        }
    }
    findings.found
}
