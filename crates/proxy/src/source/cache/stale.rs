//! Stale pages: served while they are revalidated in the background, or while the origin fails (RFC 5861).
//!
//! `plan` decides whether a stale page is the answer, by the lifetimes that `cache::entry` holds.

use std::time::Duration;

use anteroom_cache::flight::{EndGuard, JoinResult};
use anteroom_cache::purge::PurgeStanding;
use anteroom_http::clock::unix_now;
use anteroom_telemetry::metrics::Outcome;
use anteroom_telemetry::reason::Reason;

use super::{begin, raise};
use crate::deliver::client_response::ClientResponse;
use crate::deliver::{content_coding, stored};
use crate::plan::StaleCandidate;
use crate::record::RequestRecord;
use crate::stage::wanted_page::{WantedPage, stale_status};

/// How long a request waits for the origin when a stale page is available.
pub(super) const RESCUE_AFTER: Duration = Duration::from_secs(2);
/// After a failure, the origin is not asked for the same page for this long, in seconds, while a stale
/// page may be served.
pub(super) const FAILING_TTL: u64 = 1;

/// Starts to revalidate a page in the background. A fetch of it that is under way becomes as urgent as this request.
pub(super) fn renew(want: &WantedPage<'_>, candidate: &StaleCandidate) {
    let flight = match want.join(candidate.key) {
        JoinResult::Lead(flight) => flight,
        JoinResult::Wait(reader) => {
            raise(want, &reader);
            return;
        }
        JoinResult::Full => return,
    };
    // The page may have been stored between the lookup and the join.
    match want.in_memory() {
        Some(landed) => EndGuard(flight).0.answer(&landed),
        // The client has its answer; the receiver is not needed.
        None => drop(begin(want, flight, Some(candidate), None)),
    }
}

/// Whether a stale page may still replace the origin's answer. It may have been purged or become too old
/// in the meantime.
pub(super) fn may_serve_on_error(want: &WantedPage<'_>, candidate: &StaleCandidate) -> bool {
    let now = unix_now() as u64;
    match want.cx.worker.pages.standing(&candidate.entry, now) {
        PurgeStanding::Current => true,
        PurgeStanding::Stale => candidate.entry.serves_on_error(now),
        PurgeStanding::Gone => false,
    }
}

/// Answers with a stale page.
pub(super) async fn stale(
    want: &WantedPage<'_>,
    candidate: &StaleCandidate,
    record: &mut RequestRecord,
) -> Result<ClientResponse, Reason> {
    let entry = &candidate.entry;
    let ready = content_coding::ready(want.cx, want.class, entry, true).await?;
    record.outcome(Outcome::HitStale, None);
    Ok(stored::ready(want.cx, ready, &stale_status(want, entry)))
}

/// Whether a stored page must not be served any more.
pub(super) fn is_gone(want: &WantedPage<'_>, candidate: &StaleCandidate) -> bool {
    want.cx.worker.pages.purged.standing(&candidate.entry.purge_snapshot) == PurgeStanding::Gone
}
