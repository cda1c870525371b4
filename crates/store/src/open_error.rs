//! Why a store cannot be opened.

use std::path::{Path, PathBuf};

/// Why a store cannot be opened: for the operator, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address of the Redis server cannot be used.
    #[error(
        "the store's address is not valid; use redis://host:port, rediss://host:port or redis+unix:/path"
    )]
    BadUrl(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another process has the folder.
    #[error("the store's folder {} is in use by another process: stop that process, or set another folder in [store] url", .0.display())]
    InUse(PathBuf),
    /// The folder cannot be created or written.
    #[error("the store's folder {} cannot be written: create it for this user, or set another in [store] url", .folder.display())]
    NotWritable {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file of sessions is missing or empty, although there was one.
    #[error("sessions.redb in {} is missing or empty, although it was created there: restore a backup, or delete sessions.created, too, to start without sessions", .0.display())]
    Emptied(PathBuf),
    /// The folder contains something else, or a damaged store.
    #[error("the store in {} cannot be read: move the folder away, or set another in [store] url", .folder.display())]
    Unreadable {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It can be taken over only after a change that a start makes, or with what the other process does not tell.
    #[error("the store in {} cannot be taken over by this version while it is in use: restart the proxy", .0.display())]
    NeedsRestart(PathBuf),
    /// Its data was written by another version of this program.
    #[error("the store in {} has format {found}, this version reads format {known}: use the version that wrote it, or another folder", .folder.display())]
    Format {
        /// The folder.
        folder: PathBuf,
        /// The format found there.
        found: u64,
        /// The format that this version reads and writes.
        known: u64,
    },
}

impl OpenError {
    pub(super) fn io(folder: &Path, source: std::io::Error) -> Self {
        Self::NotWritable { folder: folder.to_owned(), source }
    }
}
