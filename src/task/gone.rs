//! Sessions that another process on the store has ended: they are nobody's here at once, and not only when
//! their second is over.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Next, Task};
use crate::ident::StoredToken;
use crate::session::Sessions;
use crate::store::{AnyStore, StoreError};

/// Hears of them.
#[derive(Debug)]
pub struct Gone {
    /// The store.
    pub store: AnyStore,
    /// The sessions.
    pub sessions: Arc<Sessions>,
    /// What was told last.
    pub told: RefCell<Vec<StoredToken>>,
}

impl Task for Gone {
    const NAME: &'static str = "gone";

    async fn step(&self) -> Result<Next, StoreError> {
        self.sessions.hear_gone(&self.told.take());
        Ok(Next::Idle)
    }

    async fn rest(&self) {
        let told = self.store.gone_told().await;
        self.told.replace(told);
    }
}
