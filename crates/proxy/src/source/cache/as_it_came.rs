//! What the responses to requests teach that were sent to the origin as they came.

use std::sync::Arc;

use ::http::Response;
use anteroom_cache::fill::{TrialOrder, changes_session};
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_cache::url_patterns::OwnResponse;
use anteroom_origin::OriginResponse;

use crate::answer::Answer;
use crate::stage::url_pattern::pattern;
use crate::stage::wanted_page::WantedPage;

/// Notes whether the response to a request that was sent as it came could have been shared.
pub(super) fn learn(want: &WantedPage<'_>, answer: &Answer) {
    let Answer::Uncached(received, _) = answer else { return };
    let response = match would_be_shared(want, received) {
        Some(has_lifetime) => OwnResponse::Shareable { has_lifetime },
        None => OwnResponse::Unshareable {
            persists: changes_session(received.response.headers())
                || received.response.status().is_redirection(),
        },
    };
    want.cx.worker.pages.url_patterns.saw_own(pattern(want), response, want.now());
}

/// Whether a response has a freshness lifetime of the origin's or the route's, if its head lets it be shared, also with
/// visitors without the fields that a fetch leaves out; `None`: it could not be shared.
fn would_be_shared(want: &WantedPage<'_>, received: &OriginResponse) -> Option<bool> {
    let cx = want.cx;
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = received.response.status();
    head.headers = received.response.headers().clone();
    let order = TrialOrder {
        primary: want.key,
        target: cx.head.uri.clone(),
        class: want.class,
        route: Arc::clone(cx.route),
        person: None,
        personal_data: PersonalData::default(),
        sent: want.sent().clone(),
        purge_snapshot: cx.worker.pages.purged.now(&cx.purge_scopes()),
        asked_at: cx.now,
    };
    let (length, unframed) = (received.length, received.unframed);
    let page = cx.worker.filler.judge_head(order, head, length, unframed).ok()?;
    let is_for_others = !page.vary().iter().any(|name| want.is_left_out(name));
    is_for_others.then(|| page.has_lifetime())
}
