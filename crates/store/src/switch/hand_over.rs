//! The hand-over of the store to the process that takes over from this one.
//!
//! An embedded store has one owner. While it is between two, all calls wait, and nothing above the store knows of it. When
//! the successor has it, they go there; if it is taken back, they go on here.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use super::{HOLD_WAIT, Phase, Switch};
use crate::StoreError;
use crate::engine::Engine;

/// How long a call waits while the store is between two processes.
const SUCCESSOR_WAIT: Duration = Duration::from_secs(20);

/// Why calls are not held for a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// A move to another store goes on or is done, or the process has just begun, or there is a successor already.
    #[error("the store is being moved, or was moved, or another process takes it over")]
    Moving,
    /// A change did not end in time.
    #[error("a change of the store did not end within {} s", HOLD_WAIT.as_secs())]
    Busy,
}

/// Calls that are held. They go on when this is dropped, unless all changes have ended.
struct Hold<'a> {
    switch: &'a Switch,
    is_quiet: bool,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if !self.is_quiet {
            self.switch.take_back();
        }
    }
}

impl Switch {
    /// Holds all calls, until [`Self::hand_over_to`] or [`Self::take_back`]. Returns when no change is in flight. If it is
    /// dropped before, calls go on.
    ///
    /// # Errors
    /// If the store cannot be given away now, or if a change does not end: then calls go on.
    pub async fn hold_for_successor(&self) -> Result<(), HoldError> {
        let [usual, handing] = [Phase::Usual, Phase::Handing].map(|phase| phase as u8);
        let (order, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        let held = self.phase.compare_exchange(usual, handing, order, failure);
        held.map_err(|_other| HoldError::Moving)?;
        let mut hold = Hold { switch: self, is_quiet: false };
        let quiet = timeout(HOLD_WAIT, self.quiet()).await;
        hold.is_quiet = quiet.is_ok();
        quiet.map_err(|_elapsed| HoldError::Busy)
    }

    /// Sends the calls that are held, and all later ones, to the successor.
    pub fn hand_over_to(&self, successor: Engine) {
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(successor);
        self.turn_from(&[Phase::Handing], Phase::Handed);
    }

    /// The store stays with this process: calls that are held go on here, and so do all later ones. The store must have
    /// been resumed before.
    pub fn take_back(&self) {
        self.turn_from(&[Phase::Handing, Phase::Handed], Phase::Usual);
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn turn_from(&self, before: &[Phase], after: Phase) {
        let turn = |now| before.contains(&Phase::of(now)).then_some(after as u8);
        if self.phase.fetch_update(Ordering::SeqCst, Ordering::SeqCst, turn).is_ok() {
            self.turns.notify_waiters();
        }
    }

    /// Whether the successor has the store.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.phase() == Phase::Handed
    }

    /// The successor, if there is one.
    pub(super) fn successor(&self) -> Option<Engine> {
        // No code that can panic runs under this lock.
        self.successor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when no change is in flight.
    async fn quiet(&self) {
        loop {
            let turn = self.turns.notified();
            if self.changes.load(Ordering::SeqCst) == 0 {
                return;
            }
            turn.await;
        }
    }

    /// Returns once the store is no longer between two processes.
    pub(super) async fn handed(&self) -> Result<(), StoreError> {
        let handed = async {
            loop {
                let turn = self.turns.notified();
                if self.phase() != Phase::Handing {
                    return;
                }
                turn.await;
            }
        };
        timeout(SUCCESSOR_WAIT, handed).await.map_err(|_elapsed| StoreError::Away)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use anteroom_http::ident::{CookieHash, StoredToken, User};
    use tokio::time::Instant;

    use super::*;
    use crate::scratch::embedded_in;
    use crate::traits::*;
    use crate::{AnyStore, MigrationOrder, MigrationState, NextStore, OpenStore, StoreState};

    /// A store, and another in place of the successor's.
    struct Bench {
        open: OpenStore,
        store: AnyStore,
        other: OpenStore,
        _folders: [tempfile::TempDir; 2],
    }

    impl Bench {
        async fn new() -> Self {
            let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
            let open = OpenStore::open(&embedded_in(folders[0].path())).await.unwrap();
            let other = OpenStore::open(&embedded_in(folders[1].path())).await.unwrap();
            Self { store: open.thread_handle(), open, other, _folders: folders }
        }

        fn switch(&self) -> &Switch {
            self.open.switch()
        }

        fn hand_over(&self) {
            self.switch().hand_over_to(self.other.thread_handle().engine().clone());
        }

        async fn log_in(&self) -> Result<(), StoreError> {
            self.store.update_token(&token(), &User::new(b"ann").unwrap(), None, 1.0).await
        }

        async fn is_logged_in(&self) -> bool {
            is_in(&self.store).await
        }
    }

    async fn is_in(store: &AnyStore) -> bool {
        store.check_token(&token()).await.unwrap().is_some()
    }

    fn token() -> StoredToken {
        StoredToken::from_store(b"token-0001").unwrap()
    }

    /// Whether a call waits, when it has been given the chance to end.
    async fn waits<T>(call: &mut (impl Future<Output = T> + Unpin)) -> bool {
        tokio::select! {
            biased;
            _ = call => false,
            () = tokio::task::yield_now() => true,
        }
    }

    #[tokio::test]
    async fn calls_wait_and_go_on_here_when_the_store_is_taken_back() {
        let bench = Bench::new().await;
        bench.switch().hold_for_successor().await.unwrap();
        assert_eq!(bench.store.state(), StoreState::Connected, "calls wait, and do not fail");
        {
            let mut read = pin!(bench.is_logged_in());
            let mut change = pin!(bench.log_in());
            assert!(waits(&mut read).await && waits(&mut change).await);
            bench.switch().take_back();
            change.await.unwrap();
            assert!(read.await, "it came after the change");
        }
        assert!(is_in(&bench.open.fixed_handle()).await);
    }

    #[tokio::test]
    async fn calls_go_to_the_successor_until_the_store_is_taken_back() {
        let bench = Bench::new().await;
        bench.switch().hold_for_successor().await.unwrap();
        {
            let mut change = pin!(bench.log_in());
            assert!(waits(&mut change).await);
            bench.hand_over();
            assert!(bench.switch().is_handed_over());
            change.await.unwrap();
        }
        assert!(bench.is_logged_in().await);
        assert!(is_in(&bench.other.fixed_handle()).await);
        assert!(!is_in(&bench.open.fixed_handle()).await);
        bench.switch().take_back();
        assert!(!bench.is_logged_in().await);
        // It can be given away again.
        bench.switch().hold_for_successor().await.unwrap();
        bench.hand_over();
        assert!(bench.is_logged_in().await);
    }

    /// Else a process that takes the store back would know an answer that was made void meanwhile.
    #[tokio::test]
    async fn an_answer_that_is_void_is_void_in_both_processes() {
        let bench = Bench::new().await;
        let (cookies, hour) = (CookieHash([1; 32]), Duration::from_secs(3_600));
        assert!(bench.store.remember(&cookies, None, "ann".into(), hour).await.unwrap());
        bench.switch().hold_for_successor().await.unwrap();
        bench.hand_over();
        bench.store.void(&[cookies], "mark".into(), hour).await.unwrap();
        for open in [&bench.open, &bench.other] {
            let answer = open.fixed_handle().recall(&cookies).await.unwrap();
            assert_eq!(answer.unwrap(), "mark");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_refused_when_the_store_does_not_change_hands_in_time() {
        let bench = Bench::new().await;
        bench.switch().hold_for_successor().await.unwrap();
        let began = Instant::now();
        assert!(matches!(bench.log_in().await, Err(StoreError::Away)));
        assert_eq!(began.elapsed(), SUCCESSOR_WAIT);
        assert!(matches!(bench.store.check_token(&token()).await, Err(StoreError::Away)));
        assert!(matches!(bench.store.move_state().await, Err(StoreError::Away)));
    }

    #[tokio::test]
    async fn the_store_is_held_when_the_last_change_has_ended() {
        let bench = Bench::new().await;
        let change = bench.switch().admit(|| true).await.unwrap();
        let mut hold = pin!(bench.switch().hold_for_successor());
        assert!(waits(&mut hold).await);
        drop(change);
        hold.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_does_not_end_keeps_the_store_here() {
        let bench = Bench::new().await;
        let _change = bench.switch().admit(|| true).await.unwrap();
        assert_eq!(bench.switch().hold_for_successor().await, Err(HoldError::Busy));
        bench.switch().admit(|| true).await.unwrap().expect("changes go on here");
        // A hold that is given up is none.
        assert!(waits(&mut pin!(bench.switch().hold_for_successor())).await);
        bench.switch().admit(|| true).await.unwrap().expect("changes go on here");
    }

    fn copying_to(label: &str) -> String {
        MigrationState::Copying(MigrationOrder { id: "a".to_owned(), to: label.to_owned() }).text()
    }

    #[tokio::test]
    async fn news_of_a_move_do_not_end_a_hold() {
        let bench = Bench::new().await;
        bench.switch().hold_for_successor().await.unwrap();
        for state in [None, Some(copying_to("there"))] {
            bench.switch().hear(state.as_deref(), Instant::now()).await;
            assert_eq!(bench.switch().phase(), Phase::Handing);
        }
        bench.hand_over();
        bench.switch().hear(None, Instant::now()).await;
        assert!(bench.switch().is_handed_over());
    }

    #[tokio::test]
    async fn a_store_that_is_moved_is_not_given_away() {
        let bench = Bench::new().await;
        let folder = tempfile::tempdir().unwrap();
        let next = NextStore { settings: embedded_in(folder.path()), pages_url: None };
        let copying = copying_to(&next.label());
        bench.switch().set_wanted(Some(next));
        bench.switch().hear(Some(&copying), Instant::now()).await;
        assert_eq!(bench.switch().hold_for_successor().await, Err(HoldError::Moving));
        assert!(bench.switch().is_moving());
    }
}
