//! The flusher: writes the pending visits of the queue.

use std::sync::Arc;

use anteroom_http::clock::unix_now;
use anteroom_session::Sessions;
use anteroom_session::visit::{VisitQueue, WriteProgress};
use anteroom_store::{AnyStore, StoreError};

use super::{NextStep, Task};

/// Drains the visit queue as it falls due.
#[derive(Clone, Debug)]
pub struct Visits {
    /// The store.
    pub store: AnyStore,
    /// The queue.
    pub queue: Arc<VisitQueue>,
    /// The sessions, which learn the users of tokens from visits.
    pub sessions: Arc<Sessions>,
}

impl Visits {
    /// One flush step: of what is due, or of all. The sessions remember the store's answers, from
    /// the time before the call.
    pub(super) async fn write(&self, all: bool) -> WriteProgress {
        let asked = self.sessions.asking(unix_now());
        let progress = match all {
            true => self.queue.drain_all(&self.store).await,
            false => self.queue.drain(&self.store).await,
        };
        self.sessions.renew(&progress.touched, asked);
        progress
    }
}

impl Task for Visits {
    const NAME: &'static str = "visits";

    /// A store that refuses is no failure here: the refused visits wait in the queue, which also
    /// keeps the back-off.
    async fn step(&self) -> Result<NextStep, StoreError> {
        let progress = self.write(false).await;
        if let Some(error) = &progress.failure {
            tracing::debug!(%error, waiting = self.queue.backlog(), "visits wait for the store");
        }
        Ok(if progress.more && progress.failure.is_none() {
            NextStep::Again
        } else {
            NextStep::Idle
        })
    }

    async fn rest(&self) {
        self.queue.due().await;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::{TokenStorage, User};
    use anteroom_session::{PreviousIdentity, Rules};
    use anteroom_store::LogInStore as _;
    use anteroom_store::scratch::with_store;

    use super::*;

    #[test]
    fn sessions_learn_their_user_from_visits_of_any_writer() {
        with_store(async |store| {
            let sessions =
                Arc::new(Sessions::new(TokenStorage::Plain, Rules::default(), Arc::default()));
            let queue = Arc::new(VisitQueue::new(100, 25));
            let visits = Visits { store, queue, sessions };
            let (store, sessions, now) = (&visits.store, &visits.sessions, unix_now());
            let user = User::new(b"alice").unwrap();
            for all in [false, true] {
                let token = sessions
                    .log_in(store, PreviousIdentity::default(), user.clone(), now)
                    .await
                    .unwrap();
                let token = sessions.stored(&token);
                for there in [true, true, false] {
                    let found = sessions.check_token(store, &token, now).await.unwrap();
                    assert_eq!(found.as_ref(), Some(&user), "the user was looked up");
                    visits.queue.note(token.clone(), user.clone(), None, now);
                    if !there {
                        // By another instance.
                        store.revoke_token(&token).await.unwrap();
                    }
                    visits.queue.due().await;
                    let progress = visits.write(all).await;
                    let held: Vec<_> = progress.touched.iter().map(|it| it.held).collect();
                    assert_eq!(held, [there]);
                }
                assert_eq!(sessions.check_token(store, &token, now).await.unwrap(), None);
            }
        });
    }
}
