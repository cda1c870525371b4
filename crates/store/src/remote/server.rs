//! The process that has the store: it carries out the calls of another.

use anteroom_http::ident::{CookieHash, StoredToken};
use serde_json::{Value, json};

use super::REMOTE_MESSAGE_MAX;
use super::calls::dispatch;
use super::wire::{FromWire, ToWire};
use crate::{AnyStore, PurgePosition, Rotation, RotationResult, StoreError};

/// What a call has changed that the process which carried it out has in memory, too. It counts before the answer is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallEffects {
    /// Sessions that were ended, or may have been.
    pub ended_sessions: Vec<StoredToken>,
    /// The cookies whose answers are void.
    pub void_cookies: Vec<CookieHash>,
    /// Whether there may be another purge.
    pub has_purge: bool,
}

/// Carries out a call of another process. Returns the answer for it, at most [`REMOTE_MESSAGE_MAX`] bytes, and what this
/// process must do before it sends the answer.
pub async fn answer(store: &AnyStore, call: &[u8]) -> (Vec<u8>, CallEffects) {
    let call: Value = serde_json::from_slice(call).unwrap_or_default();
    let name = call["call"].as_str().unwrap_or_default();
    let args = call["args"].as_array().map(Vec::as_slice).unwrap_or_default();
    note_follower(store, name, args);
    let answer = dispatch(store, name, args).await.unwrap_or(Err(StoreError::Away));
    let effects = CallEffects::of(name, args, answer.as_ref().ok());
    (encode(answer), effects)
}

/// A process that asks for purges has seen those up to where it asks from.
fn note_follower(store: &AnyStore, call: &str, args: &[Value]) {
    if call == "news_since"
        && let [process_id, known] = args
        && let Some(process_id) = u64::from_wire(process_id)
        && let Some(known) = PurgePosition::from_wire(known)
    {
        store.note_follower(process_id, known.at);
    }
}

fn encode(answer: Result<Value, StoreError>) -> Vec<u8> {
    let message = match answer {
        Ok(value) => json!({ "ok": value }),
        Err(error) => error.to_wire(),
    };
    let message = message.to_string();
    if message.len() <= REMOTE_MESSAGE_MAX {
        return message.into_bytes();
    }
    // A change has been made.
    let error = StoreError::Unanswered("the answer is too long for another process".into());
    error.to_wire().to_string().into_bytes()
}

impl CallEffects {
    /// Those of a call with this answer. After an error it may have been carried out all the same.
    fn of(call: &str, args: &[Value], answer: Option<&Value>) -> Self {
        let mut effects = Self::default();
        match (call, args) {
            ("revoke_token" | "dismiss_token" | "mark_revoked", [token, ..]) => {
                effects.ended_sessions.extend(StoredToken::from_wire(token));
            }
            ("rotate_token", [rotation, ..]) => {
                let rotation = Rotation::from_wire(rotation);
                effects.ended_sessions.extend(rotation.and_then(|rotation| rotation.old));
                let rotated = answer.and_then(RotationResult::from_wire).unwrap_or_default();
                effects.ended_sessions.extend(rotated.gone);
            }
            ("void", [cookies, ..]) => {
                effects.void_cookies = Vec::from_wire(cookies).unwrap_or_default();
            }
            ("purge", _) => effects.has_purge = true,
            _ => {}
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anteroom_http::ident::{PageKey, User};
    use futures_util::future::join_all;
    use tempfile::TempDir;
    use tokio::sync::mpsc::{self, UnboundedReceiver};

    use super::*;
    use crate::remote::{OPEN_MAX, RemoteCall, RemoteStore};
    use crate::scratch::embedded_in;
    use crate::traits::*;
    use crate::{Generation, OpenStore, StoreState};

    const COOKIES: CookieHash = CookieHash([1; 32]);

    /// The store of a process, and that of another whose calls it gets.
    struct Pair {
        store: AnyStore,
        remote: RemoteStore,
        asked: UnboundedReceiver<RemoteCall>,
        _folder: TempDir,
    }

    impl Pair {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let open = OpenStore::open(&embedded_in(folder.path())).await.unwrap();
            let (calls, asked) = mpsc::unbounded_channel();
            let remote = RemoteStore::new(calls);
            Self { store: open.thread_handle(), remote, asked, _folder: folder }
        }

        /// Carries calls out until `work` is done, and returns the effects of all of them.
        async fn serve<T>(
            &mut self,
            work: impl AsyncFnOnce(&RemoteStore) -> T,
        ) -> (T, Vec<CallEffects>) {
            let Self { store, remote, asked, .. } = self;
            let mut effects = Vec::new();
            let work = work(&*remote);
            tokio::pin!(work);
            loop {
                tokio::select! {
                    biased;
                    done = &mut work => return (done, effects),
                    call = asked.recv() => {
                        let RemoteCall { call, reply, .. } = call.unwrap();
                        let (answer, effect) = answer(store, &call).await;
                        effects.push(effect);
                        reply.send(answer).unwrap();
                    }
                }
            }
        }
    }

    fn token(number: usize) -> StoredToken {
        StoredToken::from_store(format!("token-{number:04}").as_bytes()).unwrap()
    }

    fn user() -> User {
        User::new(b"ann").unwrap()
    }

    fn rotation(old: usize, new: usize) -> Rotation {
        let (old, new, user) = (Some(token(old)), token(new), user());
        Rotation { old, new, user, now: 2.0, most: 1, expiry_action: None, visitor: None }
    }

    #[tokio::test]
    async fn a_call_is_carried_out_by_the_other_process() {
        let mut pair = Pair::new().await;
        let work = async |remote: &RemoteStore| {
            remote.update_token(&token(1), &user(), None, 1.0).await.unwrap();
            remote.check_token(&token(1)).await.unwrap()
        };
        assert_eq!(pair.serve(work).await.0, Some(user()));
        assert_eq!(pair.store.check_token(&token(1)).await.unwrap(), Some(user()));
        assert_eq!(pair.remote.state(), StoreState::Connected);
    }

    #[tokio::test]
    async fn a_call_that_is_not_known_finds_the_store_away() {
        let pair = Pair::new().await;
        for call in [
            r#"{"call":"fly","args":[]}"#,
            r#"{"call":"check_token","args":[]}"#,
            r#"{"call":"check_token","args":["short"]}"#,
            r#"{"call":"evict_oldest","args":[]}"#,
            r#"{"args":1}"#,
            "[]",
            "no JSON",
        ] {
            let (answer, effects) = answer(&pair.store, call.as_bytes()).await;
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert!(matches!(StoreError::from_wire(&answer), Some(StoreError::Away)), "{call}");
            assert_eq!(effects, CallEffects::default(), "{call}");
        }
        assert!(matches!(pair.remote.page(&PageKey([1; 32])).await, Err(StoreError::Away)));
        assert!(matches!(pair.remote.outbox().await, Err(StoreError::Away)));
    }

    #[tokio::test]
    async fn an_error_of_the_other_store_comes_back() {
        let mut pair = Pair::new().await;
        let known = PurgePosition { at: Generation { era: 1, number: 0 }, nonce: 0 };
        let purge = async |remote: &RemoteStore| remote.purge(known, &[u32::MAX]).await;
        let (purged, _) = pair.serve(purge).await;
        assert!(
            matches!(purged, Err(StoreError::Failed(why)) if why.to_string().contains("marks"))
        );
    }

    #[tokio::test]
    async fn a_call_whose_connection_breaks_is_away_or_unanswered() {
        let Pair { remote, mut asked, .. } = Pair::new().await;
        let (token, user) = (token(1), user());
        let read = remote.check_token(&token);
        let (read, ()) = tokio::join!(read, async { drop(asked.recv().await) });
        assert!(matches!(read, Err(StoreError::Away)));
        let change = remote.update_token(&token, &user, None, 1.0);
        let (change, ()) = tokio::join!(change, async { drop(asked.recv().await) });
        assert!(matches!(change, Err(StoreError::Unanswered(_))));
    }

    #[tokio::test]
    async fn without_a_receiver_the_store_is_away() {
        let Pair { remote, asked, .. } = Pair::new().await;
        drop(asked);
        assert_eq!(remote.state(), StoreState::Away);
        let change = remote.update_token(&token(1), &user(), None, 1.0).await;
        assert!(matches!(change, Err(StoreError::Away)), "nothing was done");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_answered_ends() {
        let Pair { remote, asked: _asked, .. } = Pair::new().await;
        assert!(matches!(remote.check_token(&token(1)).await, Err(StoreError::TimedOut)));
        let change = remote.update_token(&token(1), &user(), None, 1.0).await;
        assert!(matches!(change, Err(StoreError::TimedOut)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_has_ended_keeps_its_place_in_the_queue() {
        let Pair { remote, mut asked, .. } = Pair::new().await;
        let token = token(1);
        for _ in 0..2 {
            let calls = (0..OPEN_MAX).map(|_| remote.check_token(&token));
            let answers = join_all(calls).await;
            assert!(answers.iter().all(|one| matches!(one, Err(StoreError::TimedOut))));
            assert_eq!(asked.len(), OPEN_MAX, "others wait for a place");
        }
        drop(asked.recv().await);
        assert!(remote.check_token(&token).await.is_err());
        assert_eq!(asked.len(), OPEN_MAX, "there was one place");
    }

    #[tokio::test]
    async fn a_call_that_is_too_long_is_not_sent() {
        let pair = Pair::new().await;
        let many = vec![COOKIES; REMOTE_MESSAGE_MAX / 64];
        let void = pair.remote.void(&many, "mark".into(), Duration::from_secs(1)).await;
        assert!(matches!(void, Err(StoreError::Failed(_))));
        assert!(pair.asked.is_empty());
    }

    #[tokio::test]
    async fn what_the_process_must_do_before_it_answers_is_told() {
        let mut pair = Pair::new().await;
        let known = PurgePosition { at: Generation { era: 1, number: 0 }, nonce: 0 };
        let work = async |remote: &RemoteStore| {
            remote.update_token(&token(1), &user(), None, 1.0).await.unwrap();
            remote.update_token(&token(2), &user(), None, 1.0).await.unwrap();
            let rotated = remote.rotate_token(&rotation(1, 3)).await.unwrap();
            assert_eq!(rotated.gone, [token(2)]);
            remote.revoke_token(&token(3)).await.unwrap();
            remote.void(&[COOKIES], "mark".into(), Duration::from_secs(1)).await.unwrap();
            remote.purge(known, &[7]).await.unwrap().unwrap();
        };
        let ((), effects) = pair.serve(work).await;
        let ended = |sessions: &[usize]| CallEffects {
            ended_sessions: sessions.iter().copied().map(token).collect(),
            ..CallEffects::default()
        };
        let void = CallEffects { void_cookies: vec![COOKIES], ..CallEffects::default() };
        let purge = CallEffects { has_purge: true, ..CallEffects::default() };
        assert_eq!(effects, [ended(&[]), ended(&[]), ended(&[1, 2]), ended(&[3]), void, purge]);
    }

    #[tokio::test]
    async fn a_purge_waits_until_the_other_process_has_seen_it() {
        let mut pair = Pair::new().await;
        let begin = PurgePosition { at: Generation { era: 1, number: 0 }, nonce: 0 };
        let ask = async |remote: &RemoteStore| remote.purged_since(7, begin).await.unwrap();
        pair.serve(ask).await;
        let purge = pair.store.purge(begin, &[3]).await.unwrap().unwrap();
        assert!(!pair.store.is_seen(purge.at).await.unwrap());
        let ask = async |remote: &RemoteStore| {
            let news = remote.purged_since(7, begin).await.unwrap();
            assert_eq!(news.upto(), purge);
            assert!(!remote.is_seen(purge.at).await.unwrap(), "it has only been sent");
            remote.purged_since(7, purge).await.unwrap();
            remote.is_seen(purge.at).await.unwrap()
        };
        assert!(pair.serve(ask).await.0);
        let next = pair.store.purge(purge, &[3]).await.unwrap().unwrap();
        assert!(!pair.store.is_seen(next.at).await.unwrap());
        pair.serve(async |remote: &RemoteStore| remote.leave(7).await.unwrap()).await;
        assert!(pair.store.is_seen(next.at).await.unwrap());
    }
}
