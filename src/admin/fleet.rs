//! The command that lists the proxies on the store.

use anteroom_store::FleetStore as _;
use anteroom_store::fleet::FleetReport;

use super::commands::{CommandRefusal, Commands, store_failed};

impl Commands {
    pub(super) async fn list_fleet(&self) -> Result<FleetReport, CommandRefusal> {
        let (who, entry) = (self.worker.pages.purged.who, &self.entry);
        let looked = self.fleet.look(&self.store, who, entry).await;
        let mut report = looked.map_err(|error| store_failed(&error))?;
        // The list is of use without them.
        report.other_prefixes = self.store.other_prefixes().await.unwrap_or_default();
        Ok(report)
    }
}
