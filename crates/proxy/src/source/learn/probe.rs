//! Asks the origin as a visitor without cookies, for a page that no such visitor has asked for: only with
//! `[learn] probe`, at most at its rate, and with the very request that a fetch of the cache would send.

use std::rc::Rc;
use std::time::Instant;

use ::http::Request;
use anteroom_http::cookie::{cookies, is_harmless};
use anteroom_http::ident::PageKey;
use anteroom_learn::PredictedOutcome;
use anteroom_origin::{ConnectionReuse, Requester, UploadBody};
use governor::DefaultDirectRateLimiter;

use super::RequestUse;
use super::lesson::Lesson;
use super::predict::Prediction;
use crate::context::RequestContext;
use crate::origin_request;

/// A request to the origin as a visitor without cookies.
pub(super) struct Probe {
    key: PageKey,
    request: Request<UploadBody>,
    lesson: Lesson,
}

/// The probe that a request gives rise to, if one is allowed.
pub(super) fn of(
    cx: &RequestContext<'_>,
    looked: &Prediction<'_>,
    using: RequestUse,
) -> Option<Probe> {
    cx.worker.settings.learn.probes.as_ref()?;
    let want = looked.want.filter(|want| want.class.has_recipes())?;
    let is_unseen = looked.predicted == PredictedOutcome::Fetch { is_seen: false };
    // What a mirror sends is not what this proxy would have to answer: requests with a login are none of its concern.
    let is_strangers = using == RequestUse::Forwarded || !has_own_cookies(cx);
    let may = is_unseen && is_strangers && cx.certificate().is_none() && !cx.route.maintenance;
    let probe = || {
        let request = origin_request::fill(cx, want.class, want.sent());
        Probe { key: looked.key, request, lesson: Lesson::of_stranger(cx, want) }
    };
    (may && cx.worker.learning.wants_probe(&looked.key)).then(probe)
}

/// Whether the request carries a cookie that may mean a visitor.
fn has_own_cookies(cx: &RequestContext<'_>) -> bool {
    cookies(&cx.head.headers).any(|(name, _)| !is_harmless(name) && !cx.route.keys_cookie(name))
}

impl Probe {
    /// Sends it, once for a page, if the rate allows it and the origin has a place for what no visitor waits for.
    pub(super) fn begin(self, cx: &RequestContext<'_>) {
        let upstream = Rc::clone(cx.upstream());
        let filler = Rc::clone(&cx.worker.filler);
        let is_at_rate = |limiter: &DefaultDirectRateLimiter| limiter.check().is_ok();
        let may = || cx.worker.settings.learn.probes.as_ref().is_some_and(is_at_rate);
        let Some(mut slot) = upstream.background_slot().filter(|_| may()) else { return };
        if !cx.worker.learning.begin_probe(&self.key, cx.now as u64) {
            return;
        }
        tokio::task::spawn_local(async move {
            let begun = Instant::now();
            let sent = upstream
                .send(self.request, ConnectionReuse::Pool(None), Requester::BACKGROUND)
                .await;
            let mut came = match sent {
                Ok(came) => came,
                Err(error) => {
                    tracing::debug!(%error, "the origin did not answer a probe");
                    slot.fail();
                    return self.lesson.failed();
                }
            };
            self.lesson.came(&filler, &mut came, begun.elapsed());
            // What reads along sees the body as it passes.
            while let Some(Ok(_)) = came.response.body_mut().frame().await {}
        });
    }
}
