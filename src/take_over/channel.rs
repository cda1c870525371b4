//! Messages to the other process, each within its time.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::time::timeout;

use super::frame::{FrameError, FrameReader, FrameSocket, FrameWriter, Peer};
use super::message::Message;

/// What a process that does not read has not said.
const UNREAD: &str = "it has read a message";

/// Why a take-over has ended.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The socket, or what came over it.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A body is no message.
    #[error("a message of the other process cannot be read: {0}")]
    Message(#[from] serde_json::Error),
    /// It took too long.
    #[error("the other process did not say within {0:?} that {1}")]
    Late(Duration, &'static str),
    /// It has ended.
    #[error("the other process has ended before it said that {0}")]
    Ended(&'static str),
    /// It gives up.
    #[error("the other process gave up: {0}")]
    GaveUp(String),
    /// This process does not agree.
    #[error("{0}")]
    Refused(String),
    /// A socket that came is of no use.
    #[error("a socket of the other process cannot be used: {0}")]
    Socket(std::io::Error),
    /// It says something else than what is due.
    #[error("the other process said something else than that {0}")]
    Unexpected(&'static str),
}

/// A conversation with the other process.
#[derive(Debug)]
pub struct Channel(FrameSocket);

impl Channel {
    /// A conversation over this socket.
    #[must_use]
    pub fn new(socket: FrameSocket) -> Self {
        Self(socket)
    }

    /// The other process.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn peer(&self) -> std::io::Result<Peer> {
        self.0.peer()
    }

    /// Sends a message with `files` within `limit`.
    ///
    /// # Errors
    /// If the peer does not take it.
    pub async fn say(
        &mut self,
        message: &Message,
        files: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Result<(), TakeOverError> {
        let body = message.body()?;
        let sent = timeout(limit, self.0.send(&body, files)).await;
        Ok(sent.map_err(|_elapsed| TakeOverError::Late(limit, UNREAD))??)
    }

    /// The next message, and its files. `due` says in words what is waited for, for the operator.
    ///
    /// # Errors
    /// If none comes within `limit`, or the peer has ended or given up.
    pub async fn hear(
        &mut self,
        limit: Duration,
        due: &'static str,
    ) -> Result<(Message, Vec<OwnedFd>), TakeOverError> {
        let received = timeout(limit, self.0.receive()).await;
        let received = received.map_err(|_elapsed| TakeOverError::Late(limit, due))??;
        let frame = received.ok_or(TakeOverError::Ended(due))?;
        match Message::read(&frame.body)? {
            Message::Failed { why } => Err(TakeOverError::GaveUp(why)),
            message => Ok((message, frame.files)),
        }
    }

    /// Waits for this very message.
    ///
    /// # Errors
    /// As [`Self::hear`], and if it is another one.
    pub async fn expect(
        &mut self,
        message: &Message,
        limit: Duration,
        due: &'static str,
    ) -> Result<(), TakeOverError> {
        match self.hear(limit, due).await? {
            (heard, _) if heard == *message => Ok(()),
            _ => Err(TakeOverError::Unexpected(due)),
        }
    }

    /// Both directions, each for itself, for what follows [`Message::Commit`].
    #[must_use]
    pub fn into_halves(self) -> (MessageReader, MessageWriter) {
        let (reader, writer) = self.0.into_halves();
        (MessageReader(reader), MessageWriter(writer))
    }
}

/// What the other process says.
#[derive(Debug)]
pub struct MessageReader(FrameReader);

impl MessageReader {
    /// The next message, and what follows it in its frame. `None`: the other process has closed its end.
    ///
    /// # Errors
    /// If the socket breaks, or no message comes.
    pub async fn hear(&mut self) -> Result<Option<(Message, Vec<u8>)>, TakeOverError> {
        let Some(body) = self.0.receive().await? else { return Ok(None) };
        Ok(Some(Message::read_with_rest(body)?))
    }
}

/// What the other process is told.
#[derive(Debug)]
pub struct MessageWriter(FrameWriter);

impl MessageWriter {
    /// Sends a message, with what follows it, within `limit`.
    ///
    /// # Errors
    /// If the peer does not take it.
    pub async fn say(
        &mut self,
        message: &Message,
        rest: &[u8],
        limit: Duration,
    ) -> Result<(), TakeOverError> {
        let body = message.body_with(rest)?;
        let sent = timeout(limit, self.0.send(&body)).await;
        Ok(sent.map_err(|_elapsed| TakeOverError::Late(limit, UNREAD))??)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        let [one, other] = [one, other].map(|stream| Channel::new(FrameSocket::new(stream)));
        (one, other)
    }

    #[tokio::test]
    async fn what_is_said_is_heard() {
        let (mut one, mut other) = pair();
        one.say(&Message::Prepared, &[], LIMIT).await.unwrap();
        other.expect(&Message::Prepared, LIMIT, "it is prepared").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn each_way_to_end_is_told_apart() {
        let due = "it is ready";
        let (_one, mut other) = pair();
        let late = other.expect(&Message::Ready, LIMIT, due).await;
        assert!(matches!(late, Err(TakeOverError::Late(LIMIT, _))));

        let (one, mut other) = pair();
        drop(one);
        let ended = other.expect(&Message::Ready, LIMIT, due).await;
        assert!(matches!(ended, Err(TakeOverError::Ended(_))));

        let (mut one, mut other) = pair();
        let why = "disk full".to_owned();
        one.say(&Message::Failed { why: why.clone() }, &[], LIMIT).await.unwrap();
        let gave_up = other.expect(&Message::Ready, LIMIT, due).await;
        assert!(matches!(gave_up, Err(TakeOverError::GaveUp(told)) if told == why));

        let (mut one, mut other) = pair();
        one.say(&Message::Prepared, &[], LIMIT).await.unwrap();
        let another = other.expect(&Message::Ready, LIMIT, due).await;
        assert!(matches!(another, Err(TakeOverError::Unexpected(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_waited_for_within_the_limit() {
        let (mut one, _other) = pair();
        let why = "x".repeat(super::super::frame::BODY_MAX - 100);
        let said = one.say(&Message::Failed { why }, &[], LIMIT).await;
        assert!(matches!(said, Err(TakeOverError::Late(..))));
    }
}
