//! The order to explain what would be done about a request.

use hyper::body::Incoming;

use super::commands::{Clerk, Refused, bad, read};
use crate::proxy::{Explanation, Question, explain};

impl Clerk {
    /// Explains it, and changes nothing.
    pub(super) async fn explain(&self, body: Incoming) -> Result<Explanation, Refused> {
        let question: Question = read(body).await?;
        explain(&self.room, &question).await.map_err(|error| bad(&error))
    }
}
