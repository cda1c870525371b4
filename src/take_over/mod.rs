//! A process takes over from one that serves: its listening sockets, its store, and what it knows of visitors.
//!
//! [`frame`] carries messages and open files over a Unix socket, [`message`] says what they mean, [`channel`] sends and
//! waits for them within a time. What each side does with them is for [`crate::app`].

pub mod channel;
pub mod frame;
pub mod message;
