//! The subscriber: a connection of its own on which Redis reports purges and sessions that are
//! gone, replaced when it breaks. For a purge the message is only a signal to ask the store; for
//! sessions it has the tokens: a missed one is noticed a second later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anteroom_http::ident::StoredToken;
use futures_util::StreamExt as _;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::RedisAddress;
use super::fault::denial;

/// How long one attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// After this time without a message the subscription is renewed: a dead connection is silent.
const SILENCE: Duration = Duration::from_secs(60);
/// The most tokens that wait to be collected.
const GONE_MAX: usize = 10_000;

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Subscriber {
    heard: Arc<PendingNotices>,
    listening: AbortHandle,
}

/// What was reported, until it is collected.
#[derive(Debug, Default)]
struct PendingNotices {
    purge: Notify,
    gone: Notify,
    tokens: Mutex<VecDeque<StoredToken>>,
}

impl PendingNotices {
    fn tokens(&self) -> MutexGuard<'_, VecDeque<StoredToken>> {
        // No code that can panic runs under this lock.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear_gone(&self, payload: &[u8]) {
        let mut tokens = self.tokens();
        let room = GONE_MAX - tokens.len().min(GONE_MAX);
        let gone = payload.split(|byte| *byte == b' ').filter_map(StoredToken::from_store);
        tokens.extend(gone.take(room));
        self.gone.notify_one();
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Subscriber {
    /// Begins to listen on the channels of purges and of sessions that are gone. In a tokio runtime
    /// only.
    pub(super) fn start(address: &Arc<RedisAddress>, channels: [&str; 2]) -> Self {
        let (heard, channels) = (Arc::<PendingNotices>::default(), channels.map(str::to_owned));
        let address = Arc::downgrade(address);
        let shared = Arc::clone(&heard);
        #[allow(
            clippy::disallowed_methods,
            reason = "the subscriber owns its task and ends it on drop; it has no code that panics"
        )]
        let listening = tokio::spawn(async move {
            let mut told = None;
            // A Cluster passes messages on to all of its nodes: any of them will do.
            while let Some(address) = address.upgrade() {
                let client = address.client_to_listen();
                drop(address);
                let Some(client) = client else {
                    sleep(PAUSE).await;
                    continue;
                };
                match timeout(CONNECT_TIMEOUT, subscribe(&client, &channels, &mut told)).await {
                    Ok(Ok(subscribed)) => listen(subscribed, &channels[1], &shared).await,
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "purge notifications are unavailable")
                    }
                    Err(_elapsed) => tracing::debug!(
                        "purge notifications are unavailable: Redis does not answer"
                    ),
                }
                sleep(PAUSE).await;
            }
        });
        Self { heard, listening: listening.abort_handle() }
    }

    /// Returns when a purge was, or may have been, reported since the last call.
    pub(super) async fn purge_reported(&self) {
        self.heard.purge.notified().await;
    }

    /// The sessions reported as gone since the last call.
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

/// `told`: the channel of which it was told last that it is denied.
async fn subscribe(
    client: &redis::Client,
    channels: &[String; 2],
    told: &mut Option<String>,
) -> redis::RedisResult<redis::aio::PubSub> {
    let mut subscribed = client.get_async_pubsub().await?;
    let [purges, gone] = channels;
    if let Err(error) = subscribed.subscribe(purges).await {
        tell_denied(purges, &error, told);
        return Err(error);
    }
    // Without permission to subscribe, the one-second limit of the memory does the same.
    if let Err(error) = subscribed.subscribe(gone).await {
        tracing::debug!(%error, "notifications of ended sessions are unavailable");
        tell_denied(gone, &error, told);
    }
    Ok(subscribed)
}

/// Tells the operator once that a channel is denied.
fn tell_denied(channel: &str, error: &redis::RedisError, told: &mut Option<String>) {
    let is_new = |reason: &String| reason.starts_with("NOPERM") && told.as_deref() != Some(channel);
    let Some(reason) = denial(error).filter(is_new) else { return };
    *told = Some(channel.to_owned());
    tracing::warn!(
        channel,
        reason,
        "Redis denies its user a channel: what other proxies purge and log out is heard of within a second, not at once"
    );
}

/// Listens until the connection ends.
async fn listen(mut subscribed: redis::aio::PubSub, of_gone: &str, shared: &PendingNotices) {
    // Earlier messages may be missed.
    shared.purge.notify_one();
    let mut words = subscribed.on_message();
    while let Ok(Some(word)) = timeout(SILENCE, words.next()).await {
        if word.get_channel_name() == of_gone {
            shared.hear_gone(word.get_payload_bytes());
        } else {
            shared.purge.notify_one();
        }
    }
}
