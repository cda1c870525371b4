//! The trace that a request belongs to (W3C Trace Context): `traceparent` as it comes, and as the origin gets it.

use ::http::{HeaderMap, HeaderName, HeaderValue};

use crate::ident::put_hex;

/// `traceparent`
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// `tracestate`
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The flag of a trace that is recorded.
pub const SAMPLED: u8 = 0b01;
/// The flags that version 00 defines; others are dropped, because the proxy writes version 00.
const KNOWN_FLAGS: u8 = 0b11;

/// A trace, and the span in it that a request was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace. Never 0.
    pub trace: u128,
    /// The span. Never 0.
    pub span: u64,
    /// The flags: [`SAMPLED`], and whether the trace's id is random.
    pub flags: u8,
}

impl TraceContext {
    /// The trace of a request, if it states one. Several lines make the field invalid.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(&TRACEPARENT).iter();
        let line = lines.next()?;
        Self::parse(line.as_bytes()).filter(|_| lines.next().is_none())
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let mut parts = text.split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let valid = is_hex(version, 2)
            && version != "ff"
            && is_hex(trace, 32)
            && is_hex(span, 16)
            && is_hex(flags, 2)
            // Later versions may append fields (§3.2.2.1); version 00 may not.
            && (version != "00" || parts.next().is_none());
        if !valid {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok()?;
        let span = u64::from_str_radix(span, 16).ok()?;
        let flags = u8::from_str_radix(flags, 16).ok()? & KNOWN_FLAGS;
        // An id of all zeros is invalid (§3.2.2.3, §3.2.2.4).
        (trace != 0 && span != 0).then_some(Self { trace, span, flags })
    }

    /// Its `traceparent`.
    #[must_use]
    pub fn value(self) -> HeaderValue {
        let mut line = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put_hex(&mut line[3..35], &self.trace.to_be_bytes());
        put_hex(&mut line[36..52], &self.span.to_be_bytes());
        put_hex(&mut line[53..], &[self.flags]);
        HeaderValue::from_bytes(&line).expect("digits and dashes are visible ASCII")
    }
}

/// Sets `traceparent` in a request to the origin (§3.2). A valid incoming trace continues in the new span, with its
/// flags; otherwise a new trace begins, not sampled, and the `tracestate` is removed (§3.3). `trace` and `span` are
/// random.
pub fn set_traceparent(headers: &mut HeaderMap, trace: u128, span: u64) {
    let span = span.max(1);
    let next = match TraceContext::of(headers) {
        Some(incoming) => TraceContext { span, ..incoming },
        None => {
            headers.remove(&TRACESTATE);
            TraceContext { trace: trace.max(1), span, flags: 0 }
        }
    };
    headers.insert(&TRACEPARENT, next.value());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn request(lines: &[(&str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        };
        lines.iter().map(line).collect()
    }

    fn traceparent(incoming: &str, trace: u128, span: u64) -> HeaderValue {
        let mut headers = request(&[("traceparent", incoming)]);
        set_traceparent(&mut headers, trace, span);
        headers.remove(&TRACEPARENT).unwrap()
    }

    #[test]
    fn a_valid_trace_goes_on_in_a_new_span() {
        for (incoming, flags) in [
            (format!("00-{TRACE}-00f067aa0ba902b7-01"), "01"),
            (format!("00-{TRACE}-00f067aa0ba902b7-00"), "00"),
            (format!("00-{TRACE}-00f067aa0ba902b7-ff"), "03"),
            (format!("cc-{TRACE}-00f067aa0ba902b7-01-what-the-future-brings"), "01"),
        ] {
            let found = traceparent(&incoming, 7, 0xabc);
            assert_eq!(found, format!("00-{TRACE}-0000000000000abc-{flags}"), "{incoming}");
        }
    }

    #[test]
    fn anything_else_begins_a_new_trace() {
        let zeros = "0".repeat(32);
        for incoming in [
            String::new(),
            TRACE.to_owned(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-00f067aa0ba902b-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-0g"),
            format!("0-{TRACE}-00f067aa0ba902b7-01"),
        ] {
            let found = traceparent(&incoming, 7, 0);
            assert_eq!(found, format!("00-{:032x}-{:016x}-00", 7, 1), "{incoming}");
        }
    }

    #[test]
    fn the_state_of_a_lost_trace_goes_too() {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for (lines, kept) in [
            (vec![("traceparent", good.as_str()), ("tracestate", "a=1")], true),
            (vec![("traceparent", "garbage"), ("tracestate", "a=1")], false),
            (vec![("traceparent", &good), ("traceparent", &good), ("tracestate", "a=1")], false),
            (vec![("tracestate", "a=1")], false),
        ] {
            let mut headers = request(&lines);
            set_traceparent(&mut headers, 7, 9);
            assert_eq!(headers.contains_key(&TRACESTATE), kept, "{lines:?}");
            assert_eq!(headers.get_all(&TRACEPARENT).iter().count(), 1);
        }
    }

    proptest! {
        #[test]
        fn no_claim_breaks_it(claim in "[ -~]{0,64}") {
            set_traceparent(&mut request(&[("traceparent", &claim)]), 1, 1);
        }

        #[test]
        fn a_written_trace_reads_back(trace in 1_u128.., span in 1_u64.., flags in 0_u8..4) {
            let context = TraceContext { trace, span, flags };
            prop_assert_eq!(TraceContext::parse(context.value().as_bytes()), Some(context));
        }
    }
}
