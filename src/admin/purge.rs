//! The purge command.

use hyper::body::Incoming;

use super::commands::{CommandRefusal, Commands, read};
use crate::cache::purger::{PurgeDone, PurgeOrder};

impl Commands {
    /// Purges, and reports the result.
    pub(super) async fn purge(&self, body: Incoming) -> Result<PurgeDone, CommandRefusal> {
        let order: PurgeOrder = read(body).await?;
        let done = self.purger.carry_out(&self.store, &order).await;
        done.map_err(|error| (error.status(), error.to_string()))
    }
}
