//! Handles an unsafe request that is never answered, because the origin failed or the client
//! disconnected.

use super::{invalidate, session_cookies, user_purge};
use crate::context::RequestContext;

/// A change that the origin may have made without a response that confirms it, or for a client that has
/// disconnected. When dropped, it marks the request's page as stale, and what its route and `[purge] after`
/// name. It purges no more than that, because the change may not have been made.
pub(crate) struct UnansweredChange<'c> {
    cx: &'c RequestContext<'c>,
    is_over: bool,
}

impl<'c> UnansweredChange<'c> {
    pub(crate) fn of(cx: &'c RequestContext<'c>) -> Self {
        Self { cx, is_over: cx.head.method.is_safe() }
    }

    /// Marks the request as settled: the response's effects are carried out, or the request did not
    /// reach the origin.
    pub(crate) fn mark_settled(mut self) {
        self.is_over = true;
    }
}

impl Drop for UnansweredChange<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.cx.may_have_reached() {
            session_cookies::void_later(self.cx);
            let target = self.cx.head.uri.path_and_query().map_or("/", |target| target.as_str());
            let mut targets = invalidate::targets_of_unanswered(self.cx, target);
            targets.extend(user_purge::purge_targets(self.cx));
            self.cx.worker.pages.purged.purge_later(&targets);
        }
    }
}
