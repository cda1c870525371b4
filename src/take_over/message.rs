//! What the process that serves and its successor say to each other, in JSON.
//!
//! The two may be of different versions, in either order. A field that is added has a default; a message that is not
//! known is [`Message::Unknown`], and ends the take-over. [`PROTOCOL`] goes up when an older version could not go on.

use serde::{Deserialize, Serialize};

/// The protocol of this version.
pub const PROTOCOL: u32 = 1;

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The successor begins.
    Hello(Hello),
    /// The process that serves agrees, and its sockets follow. Its standard error comes with this if it has started the
    /// successor, whose own it reads: the successor uses it from [`Self::Commit`] on.
    Welcome(Welcome),
    /// Listening sockets, in the order of the files of this frame.
    Sockets {
        /// What each of them is.
        sockets: Vec<HandedSocket>,
        /// Whether others follow.
        #[serde(default)]
        more: bool,
    },
    /// The successor has all that it needs of the other process, but the store.
    Prepared,
    /// A part of what the process that serves knows; see [`Part`]. Those of an embedded store come before
    /// [`Self::StoreReleased`], all others before [`Self::Commit`].
    Part(Part),
    /// The store is closed, and all parts of its memory are sent.
    StoreReleased,
    /// The successor has opened the store.
    StoreOpened,
    /// The threads of the successor stand ready. It has changed nothing so far.
    Ready,
    /// The successor may accept connections, and change the store.
    Commit,
    /// It accepts connections: the other process stops to, and drains.
    Accepting,
    /// The service manager has been told that the successor is the main process: what it sends now is heard.
    Main,
    /// A call of the store that the sender had before. It follows in the frame, behind a line break.
    Call {
        /// Names it in its answer.
        id: u64,
    },
    /// The answer to a call, which follows likewise.
    Answer {
        /// The call.
        id: u64,
    },
    /// The sender gives up. The process that serves goes on as before.
    Failed {
        /// Why, for the operator.
        why: String,
    },
    /// A message of another version.
    #[serde(other)]
    Unknown,
}

/// The first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The protocols that the successor speaks.
    pub protocols: Vec<u32>,
    /// Its version, for the log.
    pub version: String,
    /// The format of an embedded store that it reads and writes.
    #[serde(default)]
    pub store_format: u64,
    /// Where its store is, in words that are compared and never shown: a hash.
    #[serde(default)]
    pub store: String,
    /// The id under which it reports to the proxies on a store. Where it ends before it serves, the other process takes that
    /// id back: purges would wait for it.
    #[serde(default)]
    pub process_id: Option<u64>,
    /// Whether it takes in parts between [`Message::Ready`] and [`Message::Commit`].
    #[serde(default)]
    pub takes_memory: bool,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The protocol from here on.
    pub protocol: u32,
    /// The version of the process that serves, for the log.
    pub version: String,
    /// Whether the store is embedded: then it changes hands.
    #[serde(default)]
    pub hands_over_store: bool,
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedSocket {
    /// What it is for.
    pub purpose: Purpose,
    /// As `address` in the configuration; for sockets of systemd, their name.
    pub address: String,
    /// The inode of the file of a Unix socket: a file that has replaced it is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u64>,
}

/// The clients of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Visitors.
    Visitors,
    /// Operators, by HTTP.
    Operators,
    /// The commands of the program.
    Commands,
    /// Clients that only another version knows. The socket is dropped.
    #[serde(other)]
    Unknown,
}

/// A part of the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is of. A part with a name that the successor does not know is passed over: the successor learns it again.
    pub name: String,
    /// Its layout. The successor passes over one that it does not know.
    pub layout: u32,
    /// Its text, to be put behind that of the part before with this name.
    pub text: String,
}

/// The highest protocol that both speak.
#[must_use]
pub fn common_protocol(theirs: &[u32]) -> Option<u32> {
    theirs.iter().copied().filter(|protocol| (1..=PROTOCOL).contains(protocol)).max()
}

impl Message {
    /// The body of a frame.
    ///
    /// # Errors
    /// Never for what is defined here.
    pub fn body(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// The body of a frame in which something follows the message.
    ///
    /// # Errors
    /// Never for what is defined here.
    pub fn body_with(&self, rest: &[u8]) -> serde_json::Result<Vec<u8>> {
        let mut body = self.body()?;
        if !rest.is_empty() {
            // JSON has none within a string.
            body.push(b'\n');
            body.extend_from_slice(rest);
        }
        Ok(body)
    }

    /// Reads the body of a frame.
    ///
    /// # Errors
    /// If it is no message.
    pub fn read(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    /// The same, with what follows the message.
    ///
    /// # Errors
    /// If it is no message.
    pub fn read_with_rest(mut body: Vec<u8>) -> serde_json::Result<(Self, Vec<u8>)> {
        let end = body.iter().position(|byte| *byte == b'\n');
        let rest = end.map_or_else(Vec::new, |end| body.split_off(end + 1));
        Ok((Self::read(&body)?, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let (version, store) = ("0.1.0".to_owned(), String::new());
        let process_id = Some(u64::MAX);
        let takes_memory = true;
        Hello { protocols: vec![1], version, store_format: 2, store, process_id, takes_memory }
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let socket = |purpose, file| HandedSocket { purpose, address: "[::]:80".to_owned(), file };
        let sockets = vec![socket(Purpose::Visitors, None), socket(Purpose::Commands, Some(7))];
        let part = Part { name: "purges".to_owned(), layout: 1, text: "{}".to_owned() };
        for message in [
            Message::Hello(hello()),
            Message::Welcome(Welcome {
                protocol: 1,
                version: "0.2.0".to_owned(),
                hands_over_store: true,
            }),
            Message::Sockets { sockets, more: true },
            Message::Part(part),
            Message::Prepared,
            Message::StoreReleased,
            Message::StoreOpened,
            Message::Ready,
            Message::Commit,
            Message::Accepting,
            Message::Main,
            Message::Failed { why: "disk full".to_owned() },
        ] {
            assert_eq!(Message::read(&message.body().unwrap()).unwrap(), message);
        }
    }

    #[test]
    fn a_call_follows_its_message() {
        let call = b"{\"call\":\"cart\"}\n{}";
        for (message, rest) in [
            (Message::Call { id: 7 }, &call[..]),
            (Message::Answer { id: u64::MAX }, &call[..]),
            (Message::Main, b""),
            (Message::Failed { why: "two\nlines".to_owned() }, b""),
        ] {
            let body = message.body_with(rest).unwrap();
            assert_eq!(Message::read_with_rest(body).unwrap(), (message, rest.to_vec()));
        }
        assert!(Message::read_with_rest(b"\n{}".to_vec()).is_err());
    }

    #[test]
    fn what_another_version_adds_does_not_hinder() {
        let newer = br#"{"message":"hello","protocols":[1,2],"version":"9.0.0","wish":true}"#;
        let Message::Hello(read) = Message::read(newer).unwrap() else { panic!("a hello") };
        assert_eq!((read.protocols, read.store_format), (vec![1, 2], 0));
        assert_eq!((read.process_id, read.takes_memory), (None, false));
        let unknown = br#"{"message":"quantum","entangled":true}"#;
        assert_eq!(Message::read(unknown).unwrap(), Message::Unknown);
        let socket = br#"{"purpose":"quic","address":"[::]:443"}"#;
        let socket: HandedSocket = serde_json::from_slice(socket).unwrap();
        assert_eq!(socket.purpose, Purpose::Unknown);
        assert!(Message::read(b"{}").is_err());
    }

    #[test]
    fn the_highest_protocol_that_both_speak_is_used() {
        assert_eq!(common_protocol(&[1]), Some(1));
        assert_eq!(common_protocol(&[PROTOCOL + 1, PROTOCOL]), Some(PROTOCOL));
        assert_eq!(common_protocol(&[PROTOCOL + 1]), None);
        assert_eq!(common_protocol(&[0]), None);
        assert_eq!(common_protocol(&[]), None);
    }
}
