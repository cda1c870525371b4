//! Reading along what a client of HTTP/2 sends, frame by frame: whether it is in the middle of
//! something, and whether it keeps us busy for nothing.
//!
//! The library bounds what a frame may cost in memory, but answers every PING and SETTINGS that comes.
//! Frames that ask for nothing are paid for here from a budget, which grows with time and with what the
//! client is sent. This knows no socket and no clock.

use std::time::Duration;

use crate::telemetry::metrics::Cut;

/// The length of the client's preface, which comes before all frames (RFC 9113 §3.4).
const PREFACE: usize = 24;

/// The length of a frame's head (RFC 9113 §4.1).
pub(super) const HEAD: usize = 9;

/// What the budget holds at most.
const BUDGET: i64 = 2_000;

/// By how much it grows in a second.
const PER_SECOND: u128 = 100;

/// Bytes sent to the client by which it grows by one: a frame of data pays for all the WINDOW_UPDATE and
/// PING that a busy client answers it with.
const BYTES_SENT: u64 = 256;

/// A request that is taken back cost us most of what answering it would have.
const RESET: i64 = 10;

/// New settings concern all streams.
const SETTINGS: i64 = 10;

/// A padded frame of data up to this length may hold nothing but padding.
const ALL_PADDING: usize = 256;

/// Frames by their numbers (RFC 9113 §6).
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

/// Of DATA and HEADERS; of SETTINGS and PING, that it is an answer.
const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// What the client is in the middle of, after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Nothing, or a frame of data, whose pauses are looked after where bodies are read.
    Between,
    /// The same as before: the preface, a head, or another frame that is to be acted on whole.
    Within,
    /// Another such thing than before.
    WithinAnother,
}

/// The meter of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    place: Place,
    /// Whether the first SETTINGS have come, which belong to the preface.
    has_begun: bool,
    /// Whether a head has begun that has not ended.
    head_is_open: bool,
    budget: i64,
    /// When the budget was last topped up, on the caller's clock.
    topped_up: Duration,
    /// Bytes sent that have not made a whole unit yet.
    sent: u64,
    /// Whether requests may be taken back for nothing.
    forgives_resets: bool,
    /// The last stream on which a request has begun.
    last_stream: u32,
}

#[derive(Debug)]
enum Place {
    /// So many bytes of the preface are to come.
    Preface(usize),
    /// So many bytes of a frame's head have come.
    Head([u8; HEAD], usize),
    /// So many bytes of a frame's payload are to come.
    Payload(Frame, usize),
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: u8,
    flags: u8,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            place: Place::Preface(PREFACE),
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

impl Meter {
    /// The meter of a connection that carries many visitors: whoever leaves takes his request back, and one
    /// of them shall not end the connection for all.
    pub(super) fn of_many() -> Self {
        Self { forgives_resets: true, ..Self::default() }
    }

    /// The last stream that may have been acted on.
    pub(super) fn last_stream(&self) -> u32 {
        self.last_stream
    }

    /// The client sent `bytes`; `age` is the connection's.
    ///
    /// # Errors
    /// When the budget is spent, or the first frame is another than SETTINGS.
    pub(super) fn came(&mut self, mut bytes: &[u8], age: Duration) -> Result<Stand, Cut> {
        let mut was_between = false;
        while !bytes.is_empty() {
            let taken = match &mut self.place {
                Place::Preface(left) => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    if *left == 0 {
                        self.place = Place::Head([0; HEAD], 0);
                    }
                    taken
                }
                Place::Head(head, have) => {
                    let taken = bytes.len().min(HEAD - *have);
                    head[*have..*have + taken].copy_from_slice(&bytes[..taken]);
                    *have += taken;
                    if *have == HEAD {
                        let head = *head;
                        was_between |= self.begins(head, age)?;
                    }
                    taken
                }
                Place::Payload(frame, left) => {
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
            false => Stand::Between,
            true if was_between => Stand::WithinAnother,
            true => Stand::Within,
        })
    }

    /// The client was sent so many bytes.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        let units = i64::try_from(self.sent / BYTES_SENT).unwrap_or(BUDGET);
        self.sent %= BYTES_SENT;
        self.budget = BUDGET.min(self.budget.saturating_add(units));
    }

    fn is_within(&self) -> bool {
        let within = match &self.place {
            Place::Preface(_) => true,
            Place::Head(_, have) => *have > 0,
            Place::Payload(frame, _) => frame.kind != kind::DATA,
        };
        within || self.head_is_open || !self.has_begun
    }

    /// A frame's head is there. Whether nothing is open behind it.
    fn begins(&mut self, head: [u8; HEAD], age: Duration) -> Result<bool, Cut> {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let frame = Frame { kind, flags };
        // RFC 9113 §3.4, which the library does not hold a client to.
        if !self.has_begun && (kind != kind::SETTINGS || flags & ACK != 0) {
            return Err(Cut::Protocol);
        }
        if kind == kind::HEADERS {
            // The first bit means nothing (RFC 9113 §4.1).
            self.last_stream = self.last_stream.max(u32::from_be_bytes(stream) & (u32::MAX >> 1));
        }
        let is_forgiven = self.forgives_resets && kind == kind::RST_STREAM;
        if let Some((price, flood)) = price(frame, length).filter(|_| !is_forgiven) {
            self.pay(price, age).map_err(|Spent| flood)?;
        }
        if length == 0 {
            return Ok(self.ended(frame));
        }
        self.place = Place::Payload(frame, length);
        Ok(false)
    }

    /// A frame is there as a whole. Whether nothing is open behind it.
    fn ended(&mut self, frame: Frame) -> bool {
        self.place = Place::Head([0; HEAD], 0);
        match frame.kind {
            kind::SETTINGS if frame.flags & ACK == 0 => self.has_begun = true,
            kind::HEADERS | kind::CONTINUATION => {
                self.head_is_open = frame.flags & END_HEADERS == 0;
            }
            _ => {}
        }
        !self.is_within()
    }

    fn pay(&mut self, price: i64, age: Duration) -> Result<(), Spent> {
        self.budget -= price;
        if self.budget >= 0 {
            return Ok(());
        }
        let grown = age.saturating_sub(self.topped_up).as_millis() * PER_SECOND / 1_000;
        let grown = i64::try_from(grown).unwrap_or(BUDGET).min(BUDGET);
        self.budget += grown;
        self.topped_up = age;
        if self.budget < 0 { Err(Spent) } else { Ok(()) }
    }
}

/// The budget is.
struct Spent;

/// What a frame costs that asks for nothing. The library has a budget of its own for small frames of
/// data, and a bound for heads that do not end.
fn price(frame: Frame, length: usize) -> Option<(i64, Cut)> {
    match frame.kind {
        kind::HEADERS => None,
        kind::DATA => {
            let most = if frame.flags & PADDED == 0 { 0 } else { ALL_PADDING };
            let is_empty = length <= most && frame.flags & END_STREAM == 0;
            is_empty.then_some((1, Cut::Data))
        }
        kind::PRIORITY => Some((1, Cut::Priority)),
        kind::RST_STREAM => Some((RESET, Cut::Reset)),
        kind::SETTINGS if frame.flags & ACK == 0 => Some((SETTINGS, Cut::Settings)),
        kind::SETTINGS => Some((1, Cut::Settings)),
        kind::PING => Some((1, Cut::Ping)),
        kind::WINDOW_UPDATE => Some((1, Cut::WindowUpdate)),
        kind::CONTINUATION => Some((1, Cut::Continuation)),
        _ => Some((1, Cut::Other)),
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

    fn begun() -> Meter {
        let mut meter = Meter::default();
        let bytes = [PREFACE, &frame(kind::SETTINGS, 0, &[])].concat();
        assert_eq!(meter.came(&bytes, Duration::ZERO), Ok(Stand::Between));
        meter
    }

    /// How many of a frame pass at once.
    fn passing(bytes: &[u8]) -> (usize, Cut) {
        let mut meter = begun();
        let mut count = 0;
        loop {
            match meter.came(bytes, Duration::ZERO) {
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
            (frame(kind::PING, 0, &[0; 8]), left, Cut::Ping),
            (frame(kind::PING, ACK, &[0; 8]), left, Cut::Ping),
            (frame(kind::SETTINGS, 0, &[]), left / 10, Cut::Settings),
            (frame(kind::SETTINGS, ACK, &[]), left, Cut::Settings),
            (frame(kind::PRIORITY, 0, &[0; 5]), left, Cut::Priority),
            (frame(kind::RST_STREAM, 0, &[0; 4]), left / 10, Cut::Reset),
            (frame(kind::WINDOW_UPDATE, 0, &[0; 4]), left, Cut::WindowUpdate),
            (frame(kind::CONTINUATION, 0, &[]), left, Cut::Continuation),
            (frame(kind::DATA, 0, &[]), left, Cut::Data),
            (frame(kind::DATA, PADDED, &[3, 0, 0, 0]), left, Cut::Data),
            (frame(0x42, 0, b"x"), left, Cut::Other),
        ] {
            assert_eq!(passing(&bytes), (count, flood));
        }
    }

    #[test]
    fn who_carries_many_takes_back_what_they_do() {
        let opening = [PREFACE, &frame(kind::SETTINGS, 0, &[])].concat();
        let reset = frame(kind::RST_STREAM, 0, &[0; 4]);
        let mut meter = Meter::of_many();
        meter.came(&opening, Duration::ZERO).unwrap();
        for _ in 0..10_000 {
            meter.came(&reset, Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn settings_come_first() {
        for first in [frame(kind::PING, 0, &[0; 8]), frame(kind::SETTINGS, ACK, &[])] {
            let bytes = [PREFACE, &first].concat();
            assert_eq!(Meter::default().came(&bytes, Duration::ZERO), Err(Cut::Protocol));
        }
    }

    #[test]
    fn requests_and_bodies_cost_nothing() {
        let mut meter = begun();
        for _ in 0..10_000 {
            meter.came(&frame(kind::HEADERS, END_HEADERS, b"x"), Duration::ZERO).unwrap();
            meter.came(&frame(kind::DATA, 0, b"x"), Duration::ZERO).unwrap();
            meter.came(&frame(kind::DATA, END_STREAM, &[]), Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn the_budget_grows_with_time_and_with_what_is_sent() {
        let ping = frame(kind::PING, 0, &[0; 8]);
        let mut meter = begun();
        while meter.came(&ping, Duration::ZERO).is_ok() {}
        let mut meter = Meter { budget: 0, ..begun() };
        for second in 1..100 {
            for _ in 0..100 {
                meter.came(&ping, Duration::from_secs(second)).unwrap();
            }
        }
        assert_eq!(meter.came(&ping, Duration::from_secs(99)), Err(Cut::Ping));
        let mut meter = Meter { budget: 0, ..begun() };
        for _ in 0..100_000 {
            meter.sent(16_393);
            for _ in 0..64 {
                meter.came(&ping, Duration::ZERO).unwrap();
            }
        }
    }

    #[test]
    fn what_the_client_is_in_the_middle_of() {
        use Stand::{Between, Within, WithinAnother};
        let mut meter = Meter::default();
        let mut after = |bytes: &[u8]| meter.came(bytes, Duration::ZERO).unwrap();
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
            let mut whole = Meter::default();
            let at_once = whole.came(&bytes, Duration::ZERO);
            let mut parts = Meter::default();
            let (mut rest, mut last) = (&bytes[..], Ok(Stand::Within));
            for cut in cuts.iter().cycle() {
                let (part, behind) = rest.split_at((*cut).min(rest.len()));
                last = parts.came(part, Duration::ZERO);
                rest = behind;
                if rest.is_empty() || last.is_err() {
                    break;
                }
            }
            let is_between = |stand: Result<Stand, Cut>| stand.map(|s| s == Stand::Between);
            prop_assert_eq!(is_between(at_once), is_between(last));
            prop_assert_eq!(whole.budget, parts.budget);
        }

        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut meter = Meter::default();
            let stand = meter.came(&bytes, Duration::ZERO);
            prop_assert!(meter.budget <= BUDGET);
            prop_assert!(stand.is_err() || meter.budget >= 0);
        }
    }
}
