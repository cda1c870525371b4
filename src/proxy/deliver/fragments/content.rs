//! The content of a fragment: on its way, or there, and the room that it takes while its page is sent.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::StatusCode;
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::proxy::context::WaitingFragments;
use crate::proxy::error::Error;

/// The content of a hole.
pub(super) struct Content {
    pub(super) bytes: Bytes,
    pub(super) _room: Charge,
}

/// A content on its way. It is called off when this is dropped.
pub(super) struct Coming(pub(super) JoinHandle<Option<Content>>);

impl Coming {
    /// The content; `None`: it failed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Content>> {
        Pin::new(&mut self.0).poll(cx).map(|done| {
            done.unwrap_or_else(|error| {
                tracing::error!(%error, "a hole was not filled");
                None
            })
        })
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a hole is not filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfilled {
    #[error("its source is no page of this site")]
    Elsewhere,
    #[error("there is nobody for whom it could be")]
    Nobody,
    #[error("too many holes in one page, or too deep")]
    TooMany,
    #[error("the store could not say what belongs there")]
    Store,
    #[error(transparent)]
    Refused(#[from] Error),
    #[error("the answer has the status {0}")]
    Status(StatusCode),
    #[error("the answer is of no type that can stand in a page")]
    Type,
    #[error("the answer cannot be read")]
    Unreadable,
    #[error("the answer broke off")]
    BrokenOff,
    #[error("the answer is too large, or there is no room for it")]
    TooLarge,
}

/// Room for a content that waits for its page.
pub(super) struct Charge {
    waiting: Rc<WaitingFragments>,
    pub(super) bytes: usize,
}

impl Charge {
    pub(super) fn new(waiting: &Rc<WaitingFragments>) -> Self {
        Self { waiting: Rc::clone(waiting), bytes: 0 }
    }

    /// Takes room for more; false where there is none.
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

impl Drop for Charge {
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
        let (mut one, mut other) = (Charge::new(&waiting), Charge::new(&waiting));
        assert!(one.grow(6, 10) && other.grow(4, 10) && !other.grow(1, 10));
        drop(one);
        assert!(other.grow(6, 10) && !other.grow(1, 10));
        drop(other);
        assert_eq!(waiting.0.get(), 0);
    }
}
