//! The state of a client's connection, shared by its socket and by the service that answers on it.

pub(crate) mod interim_queue;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use anteroom_origin::BodyReadState;
use bytes::Bytes;
use tokio::time::Instant;

use self::interim_queue::{InterimQueue, Receiver};

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// The rest of a head, or the first head.
    Head,
    /// Another request.
    Idle,
    /// The response to a request in progress.
    Answer,
}

/// The connection's state, shared by its socket and by the service that answers on it.
#[derive(Debug)]
pub struct ConnectionState {
    /// The number of requests in progress.
    open: Cell<usize>,
    /// Since when the rest of a head is awaited.
    head_since: Cell<Option<Instant>>,
    /// Since when the connection is idle.
    idle_since: Cell<Instant>,
    /// Whether a parser reports heads, so that they need not be guessed from incoming bytes.
    heads_are_reported: Cell<bool>,
    timed_out: Cell<bool>,
    must_reset: Cell<bool>,
    /// Interim responses to the request in progress.
    interims: Receiver,
    /// Whether a write is blocked.
    stalled: Cell<bool>,
    /// How far the last request's body was read; it may still be arriving after the response. `None`:
    /// the request has no body.
    body: RefCell<Option<Rc<Cell<BodyReadState>>>>,
    /// Whether that body is chunked.
    is_chunked: Cell<bool>,
    /// Whether the connection accepts no more requests.
    is_over: Cell<bool>,
}

impl ConnectionState {
    /// The state of a connection that was just accepted.
    #[must_use]
    pub fn new() -> Rc<Self> {
        let now = Instant::now();
        Rc::new(Self {
            open: Cell::new(0),
            head_since: Cell::new(Some(now)),
            idle_since: Cell::new(now),
            heads_are_reported: Cell::new(false),
            timed_out: Cell::new(false),
            must_reset: Cell::new(false),
            interims: Receiver::default(),
            stalled: Cell::new(false),
            body: RefCell::default(),
            is_chunked: Cell::new(false),
            is_over: Cell::new(false),
        })
    }

    /// Takes interim responses to the request in progress from `line`.
    pub(crate) fn listen(&self, line: InterimQueue) {
        self.interims.set(Some(line));
    }

    /// Ends the interim responses: the final response has arrived, or the request has failed.
    pub(crate) fn hang_up(&self) {
        self.interims.set(None);
    }

    /// Takes the interim responses to send now. Wakes the caller's task when there are more.
    #[must_use]
    pub fn interims(&self, waker: &Waker) -> Bytes {
        self.interims.take(waker)
    }

    /// A request's head has arrived: the client waits for the response.
    pub fn request_begins(&self) {
        self.open.update(|open| open + 1);
        if !self.heads_are_reported.get() {
            self.head_since.set(None);
        }
    }

    /// The response has been handed over, at `now`. Unless other requests are in progress, the connection is idle.
    pub fn request_ends(&self, now: Instant) {
        self.open.update(|open| open.saturating_sub(1));
        self.idle_since.set(now);
    }

    /// Whether a deadline ended the connection.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.timed_out.get()
    }

    /// Records that a response broke off whose end is marked only by the end of the connection.
    pub fn response_broke_off(&self) {
        self.must_reset.set(true);
    }

    /// Whether the connection must be reset instead of closed. After a normal close, the client would
    /// take the partial response for a complete one.
    #[must_use]
    pub fn must_reset(&self) -> bool {
        self.must_reset.get()
    }

    /// Bytes came from the client. Between requests, they begin the head of another one.
    pub fn bytes_received(&self) {
        if !self.heads_are_reported.get() && self.open.get() == 0 && self.head_since.get().is_none()
        {
            self.head_since.set(Some(Instant::now()));
        }
    }

    /// From now on, a parser reports the heads.
    pub fn report_heads(&self) {
        self.heads_are_reported.set(true);
    }

    /// The client is in the middle of a new head, or of what precedes it. At the previous bytes it was
    /// in the middle of another head.
    pub fn head_begins(&self) {
        self.head_since.set(Some(Instant::now()));
    }

    /// The client is in the middle of a head, possibly the same as before.
    pub fn head_goes_on(&self) {
        if self.head_since.get().is_none() {
            self.head_begins();
        }
    }

    /// The client is between heads. The first time, this starts the idle time.
    pub fn head_ends(&self) {
        let first = self.head_since.take();
        if first == Some(self.idle_since.get()) {
            self.idle_since.set(Instant::now());
        }
    }

    /// A write is blocked, or moves again. A client that reads slowly is not idle in the meantime.
    pub fn stalls(&self, stalls: bool) {
        self.stalled.set(stalls);
        if !stalls {
            self.idle_since.set(Instant::now());
        }
    }

    /// Records whether the request that begins has a body. `is_chunked`: trailers may follow the body.
    pub fn takes_body(&self, takes: bool, is_chunked: bool) {
        // The previous body's reader may not have seen yet what followed the body.
        if self.is_chunked.replace(is_chunked) && !self.has_read() {
            self.is_over.set(true);
        }
        self.body.replace(takes.then(Rc::default));
    }

    /// The cell in which the reader of that body records its progress. HTTP/1.1 only.
    pub(crate) fn body_is_read(&self) -> Option<Rc<Cell<BodyReadState>>> {
        self.body.borrow().clone()
    }

    /// Whether that body was read completely, or there is none.
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.body.borrow().as_ref().is_none_or(|read| read.get() == BodyReadState::Whole)
    }

    /// Whether trailers followed that body, or may still follow.
    ///
    /// SECURITY: some parsers end trailers at a bare line feed; hyper takes what follows for more
    /// trailers. A connection therefore ends after trailers: bytes that two parsers may read differently
    /// must not be followed by another request.
    #[must_use]
    pub fn may_have_trailers(&self) -> bool {
        self.is_chunked.get() && !self.has_read()
    }

    /// Whether the connection accepts no more requests. A request that has arrived all the same is
    /// refused.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Whether no data is in transit in either direction, if no request is in progress.
    #[must_use]
    pub fn may_rest(&self) -> bool {
        !self.stalled.get() && self.has_read()
    }

    /// What the connection waits for, and since when.
    #[must_use]
    pub fn waits(&self) -> (ConnectionPhase, Instant) {
        match self.head_since.get() {
            Some(since) => (ConnectionPhase::Head, since),
            None if self.open.get() > 0 => (ConnectionPhase::Answer, self.idle_since.get()),
            None => (ConnectionPhase::Idle, self.idle_since.get()),
        }
    }

    /// Records that a deadline ended the connection.
    pub fn ran_out_of_time(&self) {
        self.timed_out.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_was_long_in_reading_is_idle_from_then_on() {
        let connection_state = ConnectionState::new();
        connection_state.request_begins();
        connection_state.request_ends(Instant::now());
        let (_, ended) = connection_state.waits();
        connection_state.stalls(true);
        assert!(!connection_state.may_rest());
        connection_state.stalls(false);
        let (phase, since) = connection_state.waits();
        assert!(phase == ConnectionPhase::Idle && since > ended && connection_state.may_rest());
    }

    #[test]
    fn a_connection_rests_when_the_body_of_its_last_request_was_read_whole() {
        let connection_state = ConnectionState::new();
        connection_state.takes_body(true, false);
        let first = connection_state.body_is_read().unwrap();
        assert!(!connection_state.may_rest());
        first.set(BodyReadState::Whole);
        assert!(connection_state.may_rest());
        connection_state.takes_body(true, false);
        first.set(BodyReadState::Whole);
        assert!(!connection_state.may_rest(), "it is another's");
        connection_state.takes_body(false, false);
        assert!(connection_state.may_rest() && connection_state.body_is_read().is_none());
    }

    #[test]
    fn no_request_is_taken_behind_trailers() {
        let after = |read: Option<BodyReadState>, is_chunked| {
            let connection_state = ConnectionState::new();
            connection_state.takes_body(true, is_chunked);
            connection_state.body_is_read().unwrap().set(read.unwrap_or_default());
            let may_have_trailers = connection_state.may_have_trailers();
            assert!(!connection_state.is_over());
            connection_state.takes_body(false, false);
            assert!(!connection_state.may_have_trailers());
            (may_have_trailers, connection_state.is_over())
        };
        assert_eq!(after(Some(BodyReadState::Trailers), true), (true, true));
        assert_eq!(after(None, true), (true, true), "they may not have been looked at");
        assert_eq!(after(Some(BodyReadState::Whole), true), (false, false));
        assert_eq!(after(None, false), (false, false));
    }

    #[test]
    fn a_connection_is_idle_when_its_last_request_has_ended() {
        let connection_state = ConnectionState::new();
        assert_eq!(connection_state.waits().0, ConnectionPhase::Head);
        connection_state.request_begins();
        connection_state.request_begins();
        connection_state.request_ends(Instant::now());
        connection_state.bytes_received();
        assert_eq!(connection_state.waits().0, ConnectionPhase::Answer);
        connection_state.request_ends(Instant::now());
        assert_eq!(connection_state.waits().0, ConnectionPhase::Idle);
        connection_state.bytes_received();
        assert_eq!(connection_state.waits().0, ConnectionPhase::Head);
    }

    #[test]
    fn a_head_that_is_told_of_has_its_deadline_beside_other_requests() {
        let connection_state = ConnectionState::new();
        connection_state.report_heads();
        connection_state.bytes_received();
        assert_eq!(
            connection_state.waits().0,
            ConnectionPhase::Head,
            "before the first head, or the preface"
        );
        connection_state.head_ends();
        assert_eq!(connection_state.waits().0, ConnectionPhase::Idle);
        connection_state.request_begins();
        connection_state.bytes_received();
        assert_eq!(connection_state.waits().0, ConnectionPhase::Answer);
        connection_state.head_goes_on();
        let (phase, since) = connection_state.waits();
        assert_eq!(phase, ConnectionPhase::Head);
        connection_state.head_goes_on();
        assert_eq!(connection_state.waits(), (ConnectionPhase::Head, since));
        connection_state.head_ends();
        assert_eq!(connection_state.waits().0, ConnectionPhase::Answer);
        connection_state.request_ends(Instant::now());
        assert_eq!(connection_state.waits().0, ConnectionPhase::Idle);
    }
}
