//! The command that lists the proxies on the store.

use anteroom_store::fleet::FleetReport;

use super::commands::{CommandRefusal, Commands, store_failed};

impl Commands {
    pub(super) async fn list_fleet(&self) -> Result<FleetReport, CommandRefusal> {
        let (who, entry) = (self.worker.pages.purged.who, &self.entry);
        self.fleet.look(&self.store, who, entry).await.map_err(|error| store_failed(&error))
    }
}
