//! What apps have answered to the question who a visitor is, remembered for a while for all processes.
//!
//! What an answer means is not known here: it is bytes.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::StoreError;
use crate::ident::CookieHash;

/// The longest answer, in bytes.
pub const ANSWER_MAX: usize = 4 << 10;

/// Answers about visitors, by the cookies that they were given for.
pub trait AnswerStore {
    /// What is remembered. Within the read budget.
    fn recall(
        &self,
        cookies: &CookieHash,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;

    /// Remembers an answer for `ttl`, unless something else is remembered than `before`, which was
    /// recalled before the app was asked. Returns whether it does.
    fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&Bytes>,
        answer: Bytes,
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// Remembers `mark` instead of whatever is remembered: an answer that was asked for before is not
    /// remembered any more. No two marks are the same.
    fn void(
        &self,
        cookies: &[CookieHash],
        mark: Bytes,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), StoreError>>;
}
