//! Orders and renews certificates, while this process serves.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anteroom_acme::{CertificateBoard, Certifier};
use anteroom_store::StoreError;

use super::{NextStep, Task};

/// How long there is nothing to do for a process that does not serve, unless it is woken.
const UNTIL_WOKEN: Duration = Duration::from_secs(3_600);

/// Keeps the certificates of all names.
#[derive(Debug)]
pub struct KeepCertificates {
    /// What orders and renews them.
    pub certifier: Certifier,
    /// Where operators ask for a renewal, and the process says whether it serves.
    pub board: Arc<CertificateBoard>,
    /// How long there is nothing to do, as the last step said.
    pub rest: Cell<Duration>,
}

impl Task for KeepCertificates {
    const NAME: &'static str = "certificates";
    /// What a step needs was saved before it: the next process takes it again.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        let mut serves = self.board.serves();
        let is_serving = *serves.borrow_and_update();
        if !is_serving {
            self.certifier.leave().await;
            self.rest.set(UNTIL_WOKEN);
            return Ok(NextStep::Idle);
        }
        tokio::select! {
            biased;
            // This process leaves, and another one may take the step. What it has been told so far is all there is.
            _ = serves.changed() => Ok(NextStep::Again),
            rest = self.certifier.step() => {
                self.rest.set(rest);
                Ok(if rest.is_zero() { NextStep::Again } else { NextStep::Idle })
            }
        }
    }

    async fn rest(&self) {
        tokio::select! {
            () = tokio::time::sleep(self.rest.get()) => {}
            () = self.board.wake.notified() => {}
        }
    }
}
