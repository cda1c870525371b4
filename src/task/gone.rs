//! Sessions that another process on the store has ended: they end here at once, and not only when
//! the memory of one second is over.

use std::cell::RefCell;
use std::sync::Arc;

use anteroom_http::ident::StoredToken;
use anteroom_session::Sessions;
use anteroom_store::{AnyStore, StoreError};

use super::{NextStep, Task};

/// Receives their tokens.
#[derive(Debug)]
pub struct EndedSessions {
    /// The store.
    pub store: AnyStore,
    /// The sessions.
    pub sessions: Arc<Sessions>,
    /// The tokens reported last.
    pub gone: RefCell<Vec<StoredToken>>,
}

impl Task for EndedSessions {
    const NAME: &'static str = "gone";

    async fn step(&self) -> Result<NextStep, StoreError> {
        self.sessions.hear_gone(&self.gone.take());
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        let gone = self.store.ended_sessions().await;
        self.gone.replace(gone);
    }
}
