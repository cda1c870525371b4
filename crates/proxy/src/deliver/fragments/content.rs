//! The content of a fragment, pending or complete, and the memory that it takes while its page is sent.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::StatusCode;
use anteroom_http::row_template::RowTemplateError;
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::context::WaitingFragments;
use crate::error::Error;

/// The content of a fragment.
pub(super) struct FragmentContent {
    pub(super) bytes: Bytes,
    /// Whether it is the same for every visitor.
    pub(super) is_public: bool,
    pub(super) _charge: BufferCharge,
}

/// A pending content. Dropping it cancels the request.
pub(super) struct PendingContent(pub(super) JoinHandle<Option<FragmentContent>>);

impl PendingContent {
    /// Polls the content; `None`: it failed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<FragmentContent>> {
        Pin::new(&mut self.0).poll(cx).map(|done| {
            done.unwrap_or_else(|error| {
                tracing::error!(%error, "the task that fills a fragment failed");
                None
            })
        })
    }
}

impl Drop for PendingContent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a fragment is not filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum FragmentError {
    #[error("its source is not a page of this site")]
    Elsewhere,
    #[error("the visitor has no such data")]
    Nobody,
    #[error("too many fragments in one page, or nested too deep")]
    TooMany,
    #[error("the store could not be read")]
    Store,
    #[error(transparent)]
    Refused(#[from] Error),
    #[error("its content took too long")]
    Late,
    #[error("its row is not there")]
    NoRow,
    #[error(transparent)]
    Row(#[from] RowTemplateError),
    #[error("the response has the status {0}")]
    Status(StatusCode),
    #[error("the response has a type that cannot stand in a page")]
    Type,
    #[error("the response has an unsupported or broken coding or charset")]
    Unreadable,
    #[error("the response broke off")]
    BrokenOff,
    #[error("the response is too large, or the memory for fragments is used up")]
    TooLarge,
}

/// The memory charged for a content that waits for its page.
pub(super) struct BufferCharge {
    waiting: Rc<WaitingFragments>,
    pub(super) bytes: usize,
}

impl BufferCharge {
    pub(super) fn new(waiting: &Rc<WaitingFragments>) -> Self {
        Self { waiting: Rc::clone(waiting), bytes: 0 }
    }

    /// Charges more memory; false if the limit is reached.
    pub(super) fn grow(&mut self, bytes: usize, most: usize) -> bool {
        let all = self.waiting.0.get().saturating_add(bytes);
        if all > most {
            return false;
        }
        self.waiting.0.set(all);
        self.bytes += bytes;
        true
    }
}

impl Drop for BufferCharge {
    fn drop(&mut self) {
        self.waiting.0.update(|all| all.saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_have_a_bound_together() {
        let waiting = Rc::new(WaitingFragments::default());
        let (mut one, mut other) = (BufferCharge::new(&waiting), BufferCharge::new(&waiting));
        assert!(one.grow(6, 10) && other.grow(4, 10) && !other.grow(1, 10));
        drop(one);
        assert!(other.grow(6, 10) && !other.grow(1, 10));
        drop(other);
        assert_eq!(waiting.0.get(), 0);
    }
}
