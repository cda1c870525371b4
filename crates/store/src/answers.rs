//! The app's answers about visitors (which user, if any), cached for a while for all processes.
//!
//! To the store an answer is opaque bytes.

use std::future::Future;
use std::time::Duration;

use anteroom_http::ident::CookieHash;
use bytes::Bytes;

use super::StoreError;

/// The longest answer, in bytes.
pub const ANSWER_MAX: usize = 4 << 10;

/// The app's answers, by the cookies they are about.
pub trait AnswerStore {
    /// The stored answer. Within the read budget.
    fn recall(
        &self,
        cookies: &CookieHash,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;

    /// Stores an answer for `ttl`, if the stored value is still `before`, which was recalled before
    /// the app was asked. Returns whether it was stored.
    fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&Bytes>,
        answer: Bytes,
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// Replaces the stored value with `mark`, so that an answer requested earlier is no longer
    /// stored. Each mark is unique.
    fn void(
        &self,
        cookies: &[CookieHash],
        mark: Bytes,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), StoreError>>;
}
