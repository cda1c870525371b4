//! The ear: a connection of its own on which Redis tells of purges and of sessions that are gone, remade
//! when it breaks. Of purges it is only told that there is news, and whoever hears it asks; of sessions,
//! which: what is missed there is known by itself a second later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::ident::StoredToken;

/// How long one attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// After this time without a word the subscription is made anew: a dead connection is not heard.
const SILENCE: Duration = Duration::from_secs(60);
/// Tokens that wait to be heard of, at most.
const GONE_MAX: usize = 10_000;

/// Listens for as long as it is there.
#[derive(Debug)]
pub(super) struct Ear {
    heard: Arc<Heard>,
    listening: AbortHandle,
}

/// What was told, until somebody asks.
#[derive(Debug, Default)]
struct Heard {
    purge: Notify,
    gone: Notify,
    tokens: Mutex<VecDeque<StoredToken>>,
}

impl Heard {
    fn tokens(&self) -> MutexGuard<'_, VecDeque<StoredToken>> {
        // No code that can panic runs under this lock.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear_gone(&self, told: &[u8]) {
        let mut tokens = self.tokens();
        let room = GONE_MAX - tokens.len().min(GONE_MAX);
        let told = told.split(|byte| *byte == b' ').filter_map(StoredToken::from_store);
        tokens.extend(told.take(room));
        self.gone.notify_one();
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Ear {
    /// Begins to listen on the channels of purges and of sessions that are gone. In a tokio runtime only.
    pub(super) fn start(client: redis::Client, channels: [&str; 2]) -> Self {
        let (heard, channels) = (Arc::<Heard>::default(), channels.map(str::to_owned));
        let tell = Arc::clone(&heard);
        #[allow(
            clippy::disallowed_methods,
            reason = "the ear owns its task and ends it on drop; it has no code that panics"
        )]
        let listening = tokio::spawn(async move {
            loop {
                match timeout(CONNECT_TIMEOUT, subscribe(&client, &channels)).await {
                    Ok(Ok(subscribed)) => listen(subscribed, &channels[1], &tell).await,
                    Ok(Err(error)) => tracing::debug!(%error, "purges are not told"),
                    Err(_elapsed) => tracing::debug!("purges are not told: Redis does not answer"),
                }
                sleep(PAUSE).await;
            }
        });
        Self { heard, listening: listening.abort_handle() }
    }

    /// Returns when a purge was told since the last call, or may have been.
    pub(super) async fn told(&self) {
        self.heard.purge.notified().await;
    }

    /// The sessions that are gone since the last call, as far as that was told.
    pub(super) async fn gone(&self) -> Vec<StoredToken> {
        loop {
            let tokens: Vec<_> = self.heard.tokens().drain(..).collect();
            if !tokens.is_empty() {
                return tokens;
            }
            self.heard.gone.notified().await;
        }
    }
}

async fn subscribe(
    client: &redis::Client,
    channels: &[String; 2],
) -> redis::RedisResult<redis::aio::PubSub> {
    let mut subscribed = client.get_async_pubsub().await?;
    let [purges, gone] = channels;
    subscribed.subscribe(purges).await?;
    // Where it may not be listened to, a second does the same.
    if let Err(error) = subscribed.subscribe(gone).await {
        tracing::debug!(%error, "sessions that are gone are not told");
    }
    Ok(subscribed)
}

/// Listens until the connection ends.
async fn listen(mut subscribed: redis::aio::PubSub, of_gone: &str, tell: &Heard) {
    // What came before is missed.
    tell.purge.notify_one();
    let mut words = subscribed.on_message();
    while let Ok(Some(word)) = timeout(SILENCE, words.next()).await {
        if word.get_channel_name() == of_gone {
            tell.hear_gone(word.get_payload_bytes());
        } else {
            tell.purge.notify_one();
        }
    }
}
