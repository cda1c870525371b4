//! The command that explains what would be done with a request.

use anteroom_proxy::{Explanation, Question, explain};

use super::commands::{CommandRefusal, Commands, bad, read};

impl Commands {
    /// Explains it, and changes nothing.
    pub(super) async fn explain(&self, body: &[u8]) -> Result<Explanation, CommandRefusal> {
        let question: Question = read(body)?;
        explain(&self.worker, &question).await.map_err(|error| bad(&error))
    }
}
