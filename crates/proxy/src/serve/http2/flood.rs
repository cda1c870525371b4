//! Follows what an HTTP/2 client sends, frame by frame: whether it is in the middle of something, and whether
//! it causes work without purpose.
//!
//! The library limits the memory that a frame may cost, but answers every PING and SETTINGS frame. Frames
//! that request nothing are charged to a budget, which grows with time and with the bytes sent to the client.
//! This module uses neither a socket nor a clock.

use std::time::Duration;

use anteroom_telemetry::metrics::ConnectionCut;

/// The length of the client's preface, which precedes all frames (RFC 9113 §3.4).
const PREFACE: usize = 24;

/// The length of a frame's header (RFC 9113 §4.1).
pub(super) const HEAD: usize = 9;

/// The maximum of the budget.
const BUDGET: i64 = 2_000;

/// How much it grows per second.
const PER_SECOND: u128 = 100;

/// Bytes sent to the client for which it grows by one: a DATA frame pays for all WINDOW_UPDATE and PING
/// frames with which a busy client answers it.
const BYTES_SENT: u64 = 256;

/// How much it grows for an answer that has been sent whole. A client answers it with a WINDOW_UPDATE for the stream, one
/// for the connection, and at times with a PING: honest work earns its frames. A request alone earns nothing.
const ANSWER_SENT: i64 = 8;

/// The same for a DATA frame of at least [`MESSAGE_MIN`] bytes: a message of a call that goes on.
const DATA_SENT: i64 = 4;

/// The least bytes of data that earn. A client that opens its window by a byte at a time makes the server send frames
/// that are all header (CVE-2019-9511); nginx takes a connection for a flood where an eighth of its bytes is payload.
const MESSAGE_MIN: usize = 4;

/// A cancelled request costs most of the work of answering it.
const RESET: i64 = 10;

/// New settings affect all streams.
const SETTINGS: i64 = 10;

/// A padded DATA frame up to this length may contain only padding.
const ALL_PADDING: usize = 256;

/// Frame types by number (RFC 9113 §6).
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const PRIORITY: u8 = 2;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

/// The flag END_STREAM of DATA and HEADERS; on SETTINGS and PING the same bit means ACK.
const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// What the client is in the middle of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameState {
    /// Nothing, or a DATA frame, whose pauses are limited where bodies are read.
    Between,
    /// The same as before: the preface, a header section, or another frame that is processed as a whole.
    Within,
    /// A new one of these.
    WithinAnother,
}

/// The meter of one connection.
#[derive(Debug)]
pub(super) struct FloodBudget {
    place: FramePosition,
    /// Whether the first SETTINGS frame, which belongs to the preface, has arrived.
    has_begun: bool,
    /// Whether a header section has begun that has not ended.
    head_is_open: bool,
    budget: i64,
    /// When the budget last grew, on the caller's clock.
    topped_up: Duration,
    /// Bytes sent that do not make a whole unit yet.
    sent: u64,
    /// Whether cancelled requests are free.
    forgives_resets: bool,
    /// The last stream on which a request has begun.
    last_stream: u32,
}

#[derive(Debug)]
enum FramePosition {
    /// This many bytes of the preface are still to come.
    Preface(usize),
    /// This many bytes of a frame's header have arrived.
    Head([u8; HEAD], usize),
    /// This many bytes of a frame's payload are still to come.
    Payload(Frame, usize),
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: u8,
    flags: u8,
}

impl Default for FloodBudget {
    fn default() -> Self {
        Self {
            place: FramePosition::Preface(PREFACE),
            has_begun: false,
            head_is_open: false,
            budget: BUDGET,
            topped_up: Duration::ZERO,
            sent: 0,
            forgives_resets: false,
            last_stream: 0,
        }
    }
}

impl FloodBudget {
    /// The meter of a connection that carries many visitors: a visitor that leaves cancels its request, and
    /// one visitor must not end the connection for all.
    pub(super) fn of_many() -> Self {
        Self { forgives_resets: true, ..Self::default() }
    }

    /// The last stream that may have been processed.
    pub(super) fn last_stream(&self) -> u32 {
        self.last_stream
    }

    /// The client sent `bytes`; `age` is the connection's.
    ///
    /// # Errors
    /// If the budget is spent, or the first frame is not SETTINGS.
    pub(super) fn count_frames(
        &mut self,
        mut bytes: &[u8],
        age: Duration,
    ) -> Result<FrameState, ConnectionCut> {
        let mut was_between = false;
        while !bytes.is_empty() {
            let taken = match &mut self.place {
                FramePosition::Preface(left) => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    if *left == 0 {
                        self.place = FramePosition::Head([0; HEAD], 0);
                    }
                    taken
                }
                FramePosition::Head(head, have) => {
                    let taken = bytes.len().min(HEAD - *have);
                    head[*have..*have + taken].copy_from_slice(&bytes[..taken]);
                    *have += taken;
                    if *have == HEAD {
                        let head = *head;
                        was_between |= self.begins(head, age)?;
                    }
                    taken
                }
                FramePosition::Payload(frame, left) => {
                    let (frame, taken) = (*frame, bytes.len().min(*left));
                    *left -= taken;
                    if *left == 0 {
                        was_between |= self.ended(frame);
                    }
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        Ok(match self.is_within() {
            false => FrameState::Between,
            true if was_between => FrameState::WithinAnother,
            true => FrameState::Within,
        })
    }

    /// This many bytes were sent to the client, and what they have completed.
    pub(super) fn sent(&mut self, bytes: usize, completed: CompletedFrames) {
        self.sent += bytes as u64;
        let units = i64::try_from(self.sent / BYTES_SENT).unwrap_or(BUDGET);
        self.sent %= BYTES_SENT;
        let earned = completed.answers * ANSWER_SENT + completed.data * DATA_SENT;
        self.budget = BUDGET.min(self.budget.saturating_add(units).saturating_add(earned));
    }

    fn is_within(&self) -> bool {
        let within = match &self.place {
            FramePosition::Preface(_) => true,
            FramePosition::Head(_, have) => *have > 0,
            FramePosition::Payload(frame, _) => frame.kind != kind::DATA,
        };
        within || self.head_is_open || !self.has_begun
    }

    /// A frame's header is complete. Returns whether nothing is open after it.
    fn begins(&mut self, head: [u8; HEAD], age: Duration) -> Result<bool, ConnectionCut> {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let frame = Frame { kind, flags };
        // RFC 9113 §3.4, which the library does not enforce.
        if !self.has_begun && (kind != kind::SETTINGS || flags & ACK != 0) {
            return Err(ConnectionCut::Protocol);
        }
        if kind == kind::HEADERS {
            // The first bit is reserved (RFC 9113 §4.1).
            self.last_stream = self.last_stream.max(u32::from_be_bytes(stream) & (u32::MAX >> 1));
        }
        let is_forgiven = self.forgives_resets && kind == kind::RST_STREAM;
        if let Some((price, flood)) = price(frame, length).filter(|_| !is_forgiven) {
            self.pay(price, age).map_err(|BudgetExceeded| flood)?;
        }
        if length == 0 {
            return Ok(self.ended(frame));
        }
        self.place = FramePosition::Payload(frame, length);
        Ok(false)
    }

    /// A frame is complete. Returns whether nothing is open after it.
    fn ended(&mut self, frame: Frame) -> bool {
        self.place = FramePosition::Head([0; HEAD], 0);
        match frame.kind {
            kind::SETTINGS if frame.flags & ACK == 0 => self.has_begun = true,
            kind::HEADERS | kind::CONTINUATION => {
                self.head_is_open = frame.flags & END_HEADERS == 0;
            }
            _ => {}
        }
        !self.is_within()
    }

    fn pay(&mut self, price: i64, age: Duration) -> Result<(), BudgetExceeded> {
        self.budget -= price;
        if self.budget >= 0 {
            return Ok(());
        }
        let grown = age.saturating_sub(self.topped_up).as_millis() * PER_SECOND / 1_000;
        let grown = i64::try_from(grown).unwrap_or(BUDGET).min(BUDGET);
        self.budget += grown;
        self.topped_up = age;
        if self.budget < 0 { Err(BudgetExceeded) } else { Ok(()) }
    }
}

/// What was sent whole to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompletedFrames {
    /// Answers.
    pub(super) answers: i64,
    /// DATA frames with a message that do not end an answer.
    pub(super) data: i64,
}

impl CompletedFrames {
    /// Counts a frame that was sent whole.
    pub(super) fn add(&mut self, kind: u8, flags: u8, length: usize) {
        match kind {
            kind::DATA | kind::HEADERS if flags & END_STREAM != 0 => self.answers += 1,
            kind::DATA if length >= MESSAGE_MIN => self.data += 1,
            _ => {}
        }
    }
}

/// The budget is spent.
struct BudgetExceeded;

/// The cost of a frame that requests nothing. The library has its own budget for small DATA frames, and a
/// limit for header sections that do not end.
fn price(frame: Frame, length: usize) -> Option<(i64, ConnectionCut)> {
    match frame.kind {
        kind::HEADERS => None,
        kind::DATA => {
            let most = if frame.flags & PADDED == 0 { 0 } else { ALL_PADDING };
            let is_empty = length <= most && frame.flags & END_STREAM == 0;
            is_empty.then_some((1, ConnectionCut::Data))
        }
        kind::PRIORITY => Some((1, ConnectionCut::Priority)),
        kind::RST_STREAM => Some((RESET, ConnectionCut::Reset)),
        kind::SETTINGS if frame.flags & ACK == 0 => Some((SETTINGS, ConnectionCut::Settings)),
        kind::SETTINGS => Some((1, ConnectionCut::Settings)),
        kind::PING => Some((1, ConnectionCut::Ping)),
        kind::WINDOW_UPDATE => Some((1, ConnectionCut::WindowUpdate)),
        kind::CONTINUATION => Some((1, ConnectionCut::Continuation)),
        _ => Some((1, ConnectionCut::Other)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn begun() -> FloodBudget {
        let mut meter = FloodBudget::default();
        let bytes = [PREFACE, &frame(kind::SETTINGS, 0, &[])].concat();
        assert_eq!(meter.count_frames(&bytes, Duration::ZERO), Ok(FrameState::Between));
        meter
    }

    /// How many frames of a kind pass at once.
    fn passing(bytes: &[u8]) -> (usize, ConnectionCut) {
        let mut meter = begun();
        let mut count = 0;
        loop {
            match meter.count_frames(bytes, Duration::ZERO) {
                Ok(_) => count += 1,
                Err(flood) => return (count, flood),
            }
            assert!(count < 10_000, "never cut");
        }
    }

    #[test]
    fn frames_that_ask_for_nothing_are_cut_by_their_kind() {
        let left = usize::try_from(BUDGET - SETTINGS).unwrap();
        for (bytes, count, flood) in [
            (frame(kind::PING, 0, &[0; 8]), left, ConnectionCut::Ping),
            (frame(kind::PING, ACK, &[0; 8]), left, ConnectionCut::Ping),
            (frame(kind::SETTINGS, 0, &[]), left / 10, ConnectionCut::Settings),
            (frame(kind::SETTINGS, ACK, &[]), left, ConnectionCut::Settings),
            (frame(kind::PRIORITY, 0, &[0; 5]), left, ConnectionCut::Priority),
            (frame(kind::RST_STREAM, 0, &[0; 4]), left / 10, ConnectionCut::Reset),
            (frame(kind::WINDOW_UPDATE, 0, &[0; 4]), left, ConnectionCut::WindowUpdate),
            (frame(kind::CONTINUATION, 0, &[]), left, ConnectionCut::Continuation),
            (frame(kind::DATA, 0, &[]), left, ConnectionCut::Data),
            (frame(kind::DATA, PADDED, &[3, 0, 0, 0]), left, ConnectionCut::Data),
            (frame(0x42, 0, b"x"), left, ConnectionCut::Other),
        ] {
            assert_eq!(passing(&bytes), (count, flood));
        }
    }

    #[test]
    fn a_connection_for_many_clients_may_reset_many_streams() {
        let opening = [PREFACE, &frame(kind::SETTINGS, 0, &[])].concat();
        let reset = frame(kind::RST_STREAM, 0, &[0; 4]);
        let mut meter = FloodBudget::of_many();
        meter.count_frames(&opening, Duration::ZERO).unwrap();
        for _ in 0..10_000 {
            meter.count_frames(&reset, Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn settings_come_first() {
        for first in [frame(kind::PING, 0, &[0; 8]), frame(kind::SETTINGS, ACK, &[])] {
            let bytes = [PREFACE, &first].concat();
            assert_eq!(
                FloodBudget::default().count_frames(&bytes, Duration::ZERO),
                Err(ConnectionCut::Protocol)
            );
        }
    }

    #[test]
    fn requests_and_bodies_cost_nothing() {
        let mut meter = begun();
        for _ in 0..10_000 {
            meter.count_frames(&frame(kind::HEADERS, END_HEADERS, b"x"), Duration::ZERO).unwrap();
            meter.count_frames(&frame(kind::DATA, 0, b"x"), Duration::ZERO).unwrap();
            meter.count_frames(&frame(kind::DATA, END_STREAM, &[]), Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn the_budget_grows_with_time_and_with_what_is_sent() {
        let ping = frame(kind::PING, 0, &[0; 8]);
        let mut meter = begun();
        while meter.count_frames(&ping, Duration::ZERO).is_ok() {}
        let mut meter = FloodBudget { budget: 0, ..begun() };
        for second in 1..100 {
            for _ in 0..100 {
                meter.count_frames(&ping, Duration::from_secs(second)).unwrap();
            }
        }
        assert_eq!(meter.count_frames(&ping, Duration::from_secs(99)), Err(ConnectionCut::Ping));
        let mut meter = FloodBudget { budget: 0, ..begun() };
        for _ in 0..100_000 {
            meter.sent(16_393, CompletedFrames::default());
            for _ in 0..64 {
                meter.count_frames(&ping, Duration::ZERO).unwrap();
            }
        }
    }

    #[test]
    fn honest_work_earns_its_frames() {
        let update = frame(kind::WINDOW_UPDATE, 0, &[0, 0, 0, 2]);
        let ping = frame(kind::PING, 0, &[0; 8]);
        let request = frame(kind::HEADERS, END_STREAM | END_HEADERS, b"x");
        let (answer, data) =
            (CompletedFrames { answers: 1, data: 0 }, CompletedFrames { answers: 0, data: 1 });
        for (completed, frames) in
            [(answer, &[&request, &update, &update, &ping][..]), (data, &[&update, &update, &ping])]
        {
            let mut meter = begun();
            for _ in 0..100_000 {
                frames.iter().for_each(|one| {
                    meter.count_frames(one, Duration::ZERO).unwrap();
                });
                meter.sent(20, completed);
            }
        }
        // What is only asked for earns nothing.
        let mut meter = begun();
        let reset = frame(kind::RST_STREAM, 0, &[0; 4]);
        let cut = (0..1_000).find_map(|_| {
            meter.sent(20, CompletedFrames::default());
            let asked = meter.count_frames(&request, Duration::ZERO);
            asked.and_then(|_| meter.count_frames(&reset, Duration::ZERO)).err()
        });
        assert_eq!(cut, Some(ConnectionCut::Reset));
    }

    #[test]
    fn the_meter_knows_where_in_a_frame_the_client_is() {
        use FrameState::{Between, Within, WithinAnother};
        let mut meter = FloodBudget::default();
        let mut after = |bytes: &[u8]| meter.count_frames(bytes, Duration::ZERO).unwrap();
        assert_eq!(after(PREFACE), Within, "its SETTINGS are to come");
        assert_eq!(after(&frame(kind::SETTINGS, 0, &[])), Between);
        let head = frame(kind::HEADERS, 0, b"xyz");
        assert_eq!(after(&head[..4]), Within);
        assert_eq!(after(&head[4..]), Within, "the head goes on");
        assert_eq!(after(&frame(kind::CONTINUATION, 0, b"x")), Within);
        assert_eq!(after(&frame(kind::CONTINUATION, END_HEADERS, b"x")), Between);
        let data = frame(kind::DATA, 0, b"abc");
        assert_eq!(after(&data[..10]), Between, "bodies have their own deadline");
        assert_eq!(after(&[&data[10..], &head[..2]].concat()), WithinAnother);
        let ended = frame(kind::PING, 0, &[0; 8]);
        assert_eq!(after(&[&head[2..], &ended[..3]].concat()), Within, "the head is open still");
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_changes_nothing(
            kinds in prop::collection::vec((0_u8..12, any::<u8>(), 0_usize..40), 0..30),
            cuts in prop::collection::vec(1_usize..50, 1..20),
        ) {
            let kinds = [(kind::SETTINGS, 0, 0)].into_iter().chain(kinds);
            let frames = kinds.flat_map(|(kind, flags, length)| {
                frame(kind, flags, &vec![7; length])
            });
            let bytes: Vec<u8> = PREFACE.iter().copied().chain(frames).collect();
            let mut whole = FloodBudget::default();
            let at_once = whole.count_frames(&bytes, Duration::ZERO);
            let mut parts = FloodBudget::default();
            let (mut rest, mut last) = (&bytes[..], Ok(FrameState::Within));
            for cut in cuts.iter().cycle() {
                let (part, behind) = rest.split_at((*cut).min(rest.len()));
                last = parts.count_frames(part, Duration::ZERO);
                rest = behind;
                if rest.is_empty() || last.is_err() {
                    break;
                }
            }
            let is_between = |stand: Result<FrameState, ConnectionCut>| stand.map(|s| s == FrameState::Between);
            prop_assert_eq!(is_between(at_once), is_between(last));
            prop_assert_eq!(whole.budget, parts.budget);
        }

        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut meter = FloodBudget::default();
            let stand = meter.count_frames(&bytes, Duration::ZERO);
            prop_assert!(meter.budget <= BUDGET);
            prop_assert!(stand.is_err() || meter.budget >= 0);
        }
    }
}
