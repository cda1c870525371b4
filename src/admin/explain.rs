//! The command that explains what would be done with a request.

use super::commands::{CommandRefusal, Commands, bad, read};
use crate::proxy::{Explanation, Question, explain};

impl Commands {
    /// Explains it, and changes nothing.
    pub(super) async fn explain(&self, body: &[u8]) -> Result<Explanation, CommandRefusal> {
        let question: Question = read(body)?;
        explain(&self.worker, &question).await.map_err(|error| bad(&error))
    }
}
