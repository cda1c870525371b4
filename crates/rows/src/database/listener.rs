//! Changes that a database announces.

use std::fmt;

use futures_util::future::LocalBoxFuture;

use super::found::QueryError;

/// What a database announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The channel.
    pub channel: String,
    /// What was said there; empty: anything may have changed.
    pub payload: String,
}

/// A connection of one kind of database that announces changes.
pub(super) trait NoticeSource {
    /// The next change; an error when the connection is broken.
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Notice, QueryError>>;
}

/// A connection over which a database announces changes. Changes before it was opened, and those
/// while it was broken, are not announced.
pub struct Listener(Box<dyn NoticeSource>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener(…)")
    }
}

impl Listener {
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn new(connection: impl NoticeSource + 'static) -> Self {
        Self(Box::new(connection))
    }

    /// The next change.
    ///
    /// # Errors
    /// When the connection is broken. It is not opened again.
    pub async fn next(&mut self) -> Result<Notice, QueryError> {
        self.0.next().await
    }
}
