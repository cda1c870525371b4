//! The keys of `[limits]`.

use std::time::Duration;

use super::network::networks;
use super::shared::{DAY, KIB, MIB, RATE, TIB, TIMEOUT, count};
use crate::form::{Either, Size, Span};
use crate::plan::LimitsConfig;
use crate::walk::Walk;

/// A supervisor waits a minute or two for the end.
const DRAIN_DELAY_MAX: Duration = Duration::from_secs(300);

pub(super) fn limits(at: &mut impl Walk, limits: &mut LimitsConfig) {
    // hyper refuses to read heads into less than 8 KiB.
    at.key("request_head", &mut limits.request_head, &Size { min: 8 * KIB, max: MIB });
    at.key("uri", &mut limits.uri, &Size { min: 256, max: MIB });
    at.key("max_body", &mut limits.max_body, &Either("none", Size { min: 0, max: u64::MAX }));
    at.key("head_timeout", &mut limits.head_timeout, &TIMEOUT);
    at.key("idle_timeout", &mut limits.idle_timeout, &TIMEOUT);
    at.key("stall_timeout", &mut limits.stall_timeout, &TIMEOUT);
    at.key("connections", &mut limits.connections, &count(1, 10_000_000));
    at.key("connections_per_address", &mut limits.connections_per_address, &count(1, 10_000_000));
    let at_once = &mut limits.requests_at_once_per_address;
    at.key("requests_at_once_per_address", at_once, &count(1, 10_000_000));
    at.key("requests_per_address", &mut limits.requests_per_address, &Either("none", RATE));
    at.key("requests_per_session", &mut limits.requests_per_session, &Either("none", RATE));
    at.key("requests_exempt", &mut limits.requests_exempt, &networks());
    at.key("requests_counted", &mut limits.requests_counted, &count(1_000, 10_000_000));
    at.key("in_flight", &mut limits.in_flight, &Size { min: MIB, max: TIB });
    at.key("fragments", &mut limits.fragments, &count(1, 1_000));
    at.key("fragment_size", &mut limits.fragment_size, &Size { min: KIB, max: 64 * MIB });
    at.key("fragment_timeout", &mut limits.fragment_timeout, &TIMEOUT);
    at.key("fragment_memory", &mut limits.fragment_memory, &Size { min: MIB, max: TIB });
    at.key("waiters", &mut limits.waiters, &count(0, 10_000_000));
    // The stored index of a page's variants names no more.
    at.key("variants", &mut limits.variants, &count(1, 256));
    at.key("visit_queue", &mut limits.visit_queue, &count(1, 10_000_000));
    at.key("tunnels", &mut limits.tunnels, &count(0, 10_000_000));
    at.key("tunnels_per_address", &mut limits.tunnels_per_address, &count(1, 10_000_000));
    at.key("tunnel_idle", &mut limits.tunnel_idle, &TIMEOUT);
    at.key(
        "drain_delay",
        &mut limits.drain_delay,
        &Span { min: Duration::ZERO, max: DRAIN_DELAY_MAX },
    );
    at.key("drain_timeout", &mut limits.drain_timeout, &Span { min: Duration::ZERO, max: DAY });
}
