//! The line between the two processes from `Commit` on: messages, and the store calls of the process that had the store.
//!
//! Both directions go on at once, in a task of the main thread. It ends when the other process does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_store::remote::RemoteCall;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

use crate::take_over::channel::{Channel, TakeOverError};
use crate::take_over::message::Message;

/// How long the other process may take to read a message. It reads all the time, so later it never will.
const READ: Duration = Duration::from_secs(5);
/// The most messages that wait until this process expects them. There are two in all.
const HEARD_MAX: usize = 8;
/// The most calls that are carried out at a time. The other process has no more of them open.
const CALLS_MAX: usize = 1_024;
/// How often the task that reads gets its turn after the time for a message.
const TURNS: usize = 64;
/// With so many noted replies, those that are not waited for any more are forgotten.
const REPLIES_MAX: usize = 2 * CALLS_MAX;

/// A message to say, and what follows it.
type Utterance = (Message, Vec<u8>);

/// Takes the messages that the other process has said.
type Inbox = mpsc::Sender<Message>;

/// The line to the other process. If it is dropped, the calls go on.
#[derive(Debug)]
pub(super) struct Line {
    said: UnboundedSender<Utterance>,
    heard: mpsc::Receiver<Message>,
    task: JoinHandle<()>,
}

impl Line {
    /// The line to the process that has taken over. Calls that are put into the sender travel over it.
    pub(super) fn to_successor(channel: Channel) -> (Self, UnboundedSender<RemoteCall>) {
        // Bounded by the places of the store.
        let (sender, calls) = mpsc::unbounded_channel();
        let line = Self::open(|_said, to_say, heard| send_calls(channel, calls, to_say, heard));
        (line, sender)
    }

    /// The line to the process that was taken over from, whose calls are carried out.
    pub(super) fn to_predecessor(
        channel: Channel,
        carry_out: impl AsyncFn(&[u8]) -> Vec<u8> + 'static,
    ) -> Self {
        Self::open(|said, to_say, heard| answer_calls(channel, carry_out, said, to_say, heard))
    }

    fn open<F>(
        talk: impl FnOnce(UnboundedSender<Utterance>, UnboundedReceiver<Utterance>, Inbox) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), TakeOverError>> + 'static,
    {
        // Bounded by the calls that are open.
        let (said, to_say) = mpsc::unbounded_channel();
        let (tell, heard) = mpsc::channel(HEARD_MAX);
        let talk = talk(said.clone(), to_say, tell);
        let task = tokio::task::spawn_local(async {
            if let Err(error) = talk.await {
                tracing::warn!(%error, "the line to the other process broke");
            }
        });
        Self { said, heard, task }
    }

    /// Says a message. That the other process has ended is seen where something is expected.
    pub(super) fn say(&self, message: Message) {
        if self.said.send((message, Vec::new())).is_err() {
            tracing::debug!("the other process is not there any more");
        }
    }

    /// Waits for this very message. `due` says in words what is waited for, for the operator.
    pub(super) async fn expect(
        &mut self,
        message: &Message,
        limit: Duration,
        due: &'static str,
    ) -> Result<(), TakeOverError> {
        match self.next(limit, due).await? {
            Some(heard) if heard == *message => Ok(()),
            Some(Message::Failed { why }) => Err(TakeOverError::GaveUp(why)),
            Some(_) => Err(TakeOverError::Unexpected(due)),
            None => Err(TakeOverError::Ended(due)),
        }
    }

    /// Waits for this very message, or the end of the other process, without a limit. `false`: something else was said.
    pub(super) async fn expect_or_end(mut self, message: &Message) -> bool {
        self.heard.recv().await.is_none_or(|heard| heard == *message)
    }

    /// The next message; `None`: the other process has ended.
    async fn next(
        &mut self,
        limit: Duration,
        due: &'static str,
    ) -> Result<Option<Message>, TakeOverError> {
        if let Ok(heard) = timeout(limit, self.heard.recv()).await {
            return Ok(heard);
        }
        // A process that stood still finds that the time is over before its task has read what came meanwhile.
        for _ in 0..TURNS {
            yield_now().await;
            match self.heard.try_recv() {
                Ok(heard) => return Ok(Some(heard)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => {}
            }
        }
        Err(TakeOverError::Late(limit, due))
    }

    /// Ends it: calls that wait for an answer get none.
    pub(super) fn end(self) {
        self.task.abort();
    }
}

/// Passes a message on to what waits for it.
fn pass_on(heard: &Inbox, message: Message) {
    if heard.try_send(message).is_err() {
        tracing::debug!("a message of the other process is not waited for");
    }
}

/// Sends calls, and gives their answers to the callers.
async fn send_calls(
    channel: Channel,
    mut calls: UnboundedReceiver<RemoteCall>,
    mut to_say: UnboundedReceiver<Utterance>,
    heard: Inbox,
) -> Result<(), TakeOverError> {
    let (mut reader, mut writer) = channel.into_halves();
    let replies = RefCell::new(Replies::default());
    let speak = async {
        loop {
            tokio::select! {
                Some((message, rest)) = to_say.recv() => writer.say(&message, &rest, READ).await?,
                Some(RemoteCall { call, reply, place }) = calls.recv() => {
                    if !reply.is_closed() {
                        let id = replies.borrow_mut().note(reply);
                        writer.say(&Message::Call { id }, &call, READ).await?;
                    }
                    drop(place);
                }
                else => return Ok::<(), TakeOverError>(()),
            }
        }
    };
    let hear = async {
        while let Some((message, rest)) = reader.hear().await? {
            match message {
                Message::Answer { id } => replies.borrow_mut().give(id, rest),
                message => pass_on(&heard, message),
            }
        }
        Ok::<(), TakeOverError>(())
    };
    tokio::select! {
        ended = speak => ended,
        ended = hear => ended,
    }
}

/// Carries out the calls that come, and sends their answers.
async fn answer_calls(
    channel: Channel,
    carry_out: impl AsyncFn(&[u8]) -> Vec<u8> + 'static,
    said: UnboundedSender<Utterance>,
    mut to_say: UnboundedReceiver<Utterance>,
    heard: Inbox,
) -> Result<(), TakeOverError> {
    let (mut reader, mut writer) = channel.into_halves();
    let (carry_out, places) = (Rc::new(carry_out), Arc::new(Semaphore::new(CALLS_MAX)));
    let speak = async {
        while let Some((message, rest)) = to_say.recv().await {
            writer.say(&message, &rest, READ).await?;
        }
        Ok::<(), TakeOverError>(())
    };
    let hear = async {
        while let Some((message, rest)) = reader.hear().await? {
            let Message::Call { id } = message else {
                pass_on(&heard, message);
                continue;
            };
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
            let (carry_out, said) = (Rc::clone(&carry_out), said.clone());
            // By itself: it is carried out also where the other process ends meanwhile.
            tokio::task::spawn_local(async move {
                let answer = (*carry_out)(&rest).await;
                if said.send((Message::Answer { id }, answer)).is_err() {
                    tracing::debug!("a call has ended after the process that sent it");
                }
                drop(place);
            });
        }
        Ok::<(), TakeOverError>(())
    };
    tokio::select! {
        ended = speak => ended,
        ended = hear => ended,
    }
}

/// The ways back to the callers.
#[derive(Debug, Default)]
struct Replies {
    last: u64,
    open: HashMap<u64, oneshot::Sender<Vec<u8>>>,
}

impl Replies {
    /// Notes one, and returns the id of its call.
    fn note(&mut self, reply: oneshot::Sender<Vec<u8>>) -> u64 {
        if self.open.len() >= REPLIES_MAX {
            self.open.retain(|_, reply| !reply.is_closed());
        }
        self.last += 1;
        self.open.insert(self.last, reply);
        self.last
    }

    fn give(&mut self, id: u64, answer: Vec<u8>) {
        let reply = self.open.remove(&id);
        if reply.is_none_or(|reply| reply.send(answer).is_err()) {
            tracing::debug!("an answer of the store came too late");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;
    use tokio::task::LocalSet;

    use super::*;
    use crate::take_over::frame::FrameSocket;

    const LIMIT: Duration = Duration::from_secs(5);

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        let [one, other] = [one, other].map(|stream| Channel::new(FrameSocket::new(stream)));
        (one, other)
    }

    /// Sends a call; the receiver of its answer.
    fn call(calls: &UnboundedSender<RemoteCall>, text: &str) -> oneshot::Receiver<Vec<u8>> {
        let (reply, answer) = oneshot::channel();
        let place = Arc::new(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap());
        assert!(calls.send(RemoteCall { call: text.into(), reply, place }).is_ok());
        answer
    }

    async fn locally(test: impl AsyncFnOnce()) {
        LocalSet::new().run_until(test()).await;
    }

    #[tokio::test]
    async fn calls_and_messages_travel_at_once() {
        locally(async || {
            let (one, other) = pair();
            let (mut old, calls) = Line::to_successor(one);
            let first_waits = Rc::new(Semaphore::new(0));
            let gate = Rc::clone(&first_waits);
            let mut new = Line::to_predecessor(other, async move |call: &[u8]| {
                if call == b"first" {
                    gate.acquire().await.unwrap().forget();
                }
                [call, b" done"].concat()
            });
            let (first, second) = (call(&calls, "first"), call(&calls, "second"));
            assert_eq!(second.await.unwrap(), b"second done", "it waits for no other");
            new.say(Message::Accepting);
            old.expect(&Message::Accepting, LIMIT, "it accepts").await.unwrap();
            old.say(Message::Main);
            new.expect(&Message::Main, LIMIT, "it drains").await.unwrap();
            // Calls go on when nothing more is said.
            drop((old, new));
            first_waits.add_permits(1);
            assert_eq!(first.await.unwrap(), b"first done");
        })
        .await;
    }

    #[tokio::test]
    async fn a_call_is_lost_when_the_other_process_ends() {
        locally(async || {
            let (one, mut other) = pair();
            let (mut old, calls) = Line::to_successor(one);
            let lost = call(&calls, "lost");
            let sent = other.hear(LIMIT, "a call").await;
            assert!(sent.is_err(), "what follows the message is none");
            drop(other);
            assert!(lost.await.is_err());
            let accepting = old.expect(&Message::Accepting, LIMIT, "it accepts").await;
            assert!(matches!(accepting, Err(TakeOverError::Ended(_))));
            calls.closed().await;
        })
        .await;
    }

    #[tokio::test]
    async fn what_fails_is_told_over_the_line() {
        locally(async || {
            let (one, other) = pair();
            let (old, calls) = Line::to_successor(one);
            let mut new = Line::to_predecessor(other, async |_: &[u8]| Vec::new());
            old.say(Message::Failed { why: "too late".to_owned() });
            let told = new.expect(&Message::Main, LIMIT, "it drains").await;
            assert!(matches!(told, Err(TakeOverError::GaveUp(why)) if why == "too late"));
            old.end();
            calls.closed().await;
        })
        .await;
    }

    #[tokio::test]
    async fn a_message_that_has_come_is_heard_after_its_time() {
        locally(async || {
            let (mut one, other) = pair();
            let mut new = Line::to_predecessor(other, async |_: &[u8]| Vec::new());
            one.say(&Message::Main, &[], LIMIT).await.unwrap();
            new.expect(&Message::Main, Duration::ZERO, "it drains").await.unwrap();
            let late = new.expect(&Message::Main, Duration::ZERO, "it drains").await;
            assert!(matches!(late, Err(TakeOverError::Late(..))));
            one.say(&Message::Main, &[], LIMIT).await.unwrap();
            assert!(new.expect_or_end(&Message::Main).await);

            let (one, other) = pair();
            let new = Line::to_predecessor(other, async |_: &[u8]| Vec::new());
            drop(one);
            assert!(new.expect_or_end(&Message::Main).await);
        })
        .await;
    }

    #[tokio::test]
    async fn replies_that_are_not_waited_for_are_forgotten() {
        let mut replies = Replies::default();
        let (kept, answer) = oneshot::channel();
        let id = replies.note(kept);
        for _ in 0..2 * REPLIES_MAX {
            replies.note(oneshot::channel().0);
        }
        assert!(replies.open.len() <= REPLIES_MAX);
        replies.give(id, b"here".to_vec());
        assert_eq!(answer.await.unwrap(), b"here");
    }
}
