//! The command that lists the proxies on the store.

use anteroom_store::FleetStore as _;
use anteroom_store::fleet::FleetReport;

use super::commands::{CommandRefusal, Commands, store_failed};

impl Commands {
    pub(super) async fn list_fleet(&self) -> Result<FleetReport, CommandRefusal> {
        let (process_id, entry) = (self.worker.pages.purged.process_id, &self.entry);
        let looked = self.fleet.look(&self.store, process_id, entry).await;
        let mut report = looked.map_err(|error| store_failed(&error))?;
        // The list is of use without them.
        report.other_prefixes = self.store.other_prefixes().await.unwrap_or_default();
        Ok(report)
    }
}
