//! The command that explains what would be done with a request.

use hyper::body::Incoming;

use super::commands::{CommandRefusal, Commands, bad, read};
use crate::proxy::{Explanation, Question, explain};

impl Commands {
    /// Explains it, and changes nothing.
    pub(super) async fn explain(&self, body: Incoming) -> Result<Explanation, CommandRefusal> {
        let question: Question = read(body).await?;
        explain(&self.worker, &question).await.map_err(|error| bad(&error))
    }
}
