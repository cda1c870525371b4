//! How to reach a database.

use std::time::Duration;

/// How to reach a database.
#[derive(Clone)]
pub struct DatabaseSettings {
    /// Its URL, with the password.
    pub url: String,
    /// The most connections.
    pub connections: usize,
    /// How long a connection may take to open, and a query to run.
    pub timeout: Duration,
}

impl std::fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseSettings").finish_non_exhaustive()
    }
}
