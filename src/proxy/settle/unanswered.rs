//! An unsafe request that is never answered, for the origin failed or the client left.

use super::{invalidate, session_cookies, user_purge};
use crate::proxy::context::RequestContext;

/// A change that the origin was asked for, and may have made: it has not lived to say so, or nobody was
/// left to hear it. Its page is stale then, and so is what its route names. No more than that, for it may
/// not have been a change at all.
pub(in crate::proxy) struct Unanswered<'c> {
    cx: &'c RequestContext<'c>,
    is_over: bool,
}

impl<'c> Unanswered<'c> {
    pub(in crate::proxy) fn of(cx: &'c RequestContext<'c>) -> Self {
        Self { cx, is_over: cx.head.method.is_safe() }
    }

    /// What the answer says of it is carried out, or it has not reached the origin.
    pub(in crate::proxy) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.cx.may_have_reached() {
            session_cookies::void_later(self.cx);
            let target = self.cx.head.uri.path_and_query().map_or("/", |target| target.as_str());
            let mut aims = invalidate::aims_of_unanswered(self.cx, target);
            aims.extend(user_purge::aims(self.cx));
            self.cx.worker.pages.purged.purge_later(&aims);
        }
    }
}
