//! A store that another process has: calls travel to it as JSON, and answers come back.
//!
//! A process whose store was taken over finishes its requests like this. What requests need travels. All other calls find
//! the store away, and so do calls that the other process does not know. How calls get across is not known here.

mod away;
mod calls;
mod server;
mod types;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

pub use self::server::{CallEffects, answer};
use self::wire::FromWire;
use super::{StoreError, StoreState};

/// The longest call or answer, in bytes.
pub const REMOTE_MESSAGE_MAX: usize = 900 << 10;
/// Calls that are open at a time; others wait.
const OPEN_MAX: usize = 1_024;
/// How long a read may take: much longer than one in this process, but not than a page.
const READ_WAIT: Duration = Duration::from_secs(2);
/// How long a change may take.
const CHANGE_WAIT: Duration = Duration::from_secs(5);

/// The store of another process, as one thread uses it. Clones are the same store.
#[derive(Clone, Debug)]
pub struct RemoteStore(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    calls: mpsc::UnboundedSender<RemoteCall>,
    /// One for each call that may be open: so the queue is bounded.
    places: Arc<Semaphore>,
}

/// A call on its way.
pub struct RemoteCall {
    /// The call, for [`answer`]: JSON, at most [`REMOTE_MESSAGE_MAX`] bytes.
    pub call: Vec<u8>,
    /// Takes the answer. If it is dropped, there is none, and the call may have been carried out. A caller that does not
    /// wait any more has closed it.
    pub reply: oneshot::Sender<Vec<u8>>,
    /// The place that it takes up until this is dropped, and as long as its caller waits. A caller may give up long
    /// before the call is taken out of the queue.
    pub place: Arc<OwnedSemaphorePermit>,
}

impl fmt::Debug for RemoteCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SECURITY: a call holds tokens.
        f.write_str("RemoteCall(…)")
    }
}

/// What a call does in the other store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    Read,
    Change,
}

impl RemoteStore {
    /// The store that answers the calls sent here. When the receiver is dropped, it is away.
    #[must_use]
    pub fn new(calls: mpsc::UnboundedSender<RemoteCall>) -> Self {
        Self(Arc::new(Connection { calls, places: Arc::new(Semaphore::new(OPEN_MAX)) }))
    }

    pub(super) fn state(&self) -> StoreState {
        if self.0.calls.is_closed() { StoreState::Away } else { StoreState::Connected }
    }

    /// Sends a call and waits for its answer.
    async fn ask<T: FromWire>(
        &self,
        kind: CallKind,
        name: &str,
        args: Vec<Value>,
    ) -> Result<T, StoreError> {
        let call = json!({ "call": name, "args": Value::Array(args) }).to_string().into_bytes();
        if call.len() > REMOTE_MESSAGE_MAX {
            return Err(StoreError::Failed("the call is too long for another process".into()));
        }
        let wait = match kind {
            CallKind::Read => READ_WAIT,
            CallKind::Change => CHANGE_WAIT,
        };
        let received = timeout(wait, self.send(kind, call)).await;
        read(&received.map_err(|_elapsed| StoreError::TimedOut)??)
    }

    async fn send(&self, kind: CallKind, call: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let place = Arc::clone(&self.0.places).acquire_owned().await;
        let place = Arc::new(place.map_err(|_closed| StoreError::Away)?);
        let (reply, receiver) = oneshot::channel();
        let sent = self.0.calls.send(RemoteCall { call, reply, place: Arc::clone(&place) });
        sent.map_err(|_closed| StoreError::Away)?;
        receiver.await.map_err(|broken| match kind {
            CallKind::Read => StoreError::Away,
            CallKind::Change => StoreError::Unanswered(broken.into()),
        })
    }
}

/// Reads what the other process has said of a call.
fn read<T: FromWire>(received: &[u8]) -> Result<T, StoreError> {
    let strange = || StoreError::Unanswered("another version has said something unknown".into());
    let received: Value = serde_json::from_slice(received).map_err(|_error| strange())?;
    match received.get("ok") {
        Some(value) => T::from_wire(value).ok_or_else(strange),
        None => Err(StoreError::from_wire(&received).unwrap_or_else(strange)),
    }
}
