//! The order to purge.

use hyper::body::Incoming;

use super::commands::{Clerk, Refused, read};
use crate::cache::purger::{Done, Order};

impl Clerk {
    /// Purges, and tells what that came to.
    pub(super) async fn purge(&self, body: Incoming) -> Result<Done, Refused> {
        let order: Order = read(body).await?;
        let done = self.purger.carry_out(&self.store, &order).await;
        done.map_err(|error| (error.status(), error.to_string()))
    }
}
