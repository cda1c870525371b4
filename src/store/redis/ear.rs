//! The ear: a connection of its own on which Redis tells of purges, remade when it breaks. What is told
//! is only that there is news; whoever hears it asks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// How long one attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// After this time without a word the subscription is made anew: a dead connection is not heard.
const SILENCE: Duration = Duration::from_secs(60);

/// Listens for as long as it is there.
#[derive(Debug)]
pub(super) struct Ear {
    heard: Arc<Notify>,
    listening: AbortHandle,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Ear {
    /// Begins to listen on `channel`. In a tokio runtime only.
    pub(super) fn start(client: redis::Client, channel: &str) -> Self {
        let (heard, channel) = (Arc::new(Notify::new()), channel.to_owned());
        let tell = Arc::clone(&heard);
        #[allow(
            clippy::disallowed_methods,
            reason = "the ear owns its task and ends it on drop; it has no code that panics"
        )]
        let listening = tokio::spawn(async move {
            loop {
                match timeout(CONNECT_TIMEOUT, subscribe(&client, &channel)).await {
                    Ok(Ok(subscribed)) => listen(subscribed, &tell).await,
                    Ok(Err(error)) => tracing::debug!(%error, "purges are not told"),
                    Err(_elapsed) => tracing::debug!("purges are not told: Redis does not answer"),
                }
                sleep(PAUSE).await;
            }
        });
        Self { heard, listening: listening.abort_handle() }
    }

    /// Returns when something was told since the last call, or may have been.
    pub(super) async fn told(&self) {
        self.heard.notified().await;
    }
}

async fn subscribe(
    client: &redis::Client,
    channel: &str,
) -> redis::RedisResult<redis::aio::PubSub> {
    let mut subscribed = client.get_async_pubsub().await?;
    subscribed.subscribe(channel).await?;
    Ok(subscribed)
}

/// Listens until the connection ends.
async fn listen(mut subscribed: redis::aio::PubSub, tell: &Notify) {
    // What came before is missed.
    tell.notify_one();
    let mut words = subscribed.on_message();
    while let Ok(Some(_)) = timeout(SILENCE, words.next()).await {
        tell.notify_one();
    }
}
