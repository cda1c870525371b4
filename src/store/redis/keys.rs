//! Every key name in Redis, once: the chapter's names, after the configured prefix.

use crate::ident::{CookieHash, PageKey, Row, StoredToken, User};

/// Builds key names.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
    /// HASH, token to user.
    pub(super) login: String,
    /// ZSET, token by the time it was last seen.
    pub(super) recent: String,
    /// ZSET, token by the time when it was first seen, for sessions that the app wrote; those of
    /// Anteroom are in `tokens:`.
    pub(super) since: String,
    /// ZSET, visitor token by the time it was last seen. Not the chapter's.
    pub(super) visitors: String,
    /// ZSET, item by minus its views.
    pub(super) popularity: String,
    /// STREAM with a bound: carts of cleaned sessions.
    pub(super) expired: String,
    /// LIST of one batch at most: carts of cleaned sessions, until the file has them.
    pub(super) expiring: String,
    /// LIST with a bound: carts that wait for their receiver.
    pub(super) events: String,
    /// STRING: up to which time idle sessions have been reported.
    pub(super) idle_reported: String,
    /// STRING with a time to live: the process that cleans.
    pub(super) cleaner: String,
    /// STRING with a time to live: the process that delivers.
    pub(super) deliverer: String,
    /// STRING with a time to live: when `viewed:` was last rescaled.
    pub(super) rescaled: String,
    /// HASH of a few hundred fields at most: bytes of pages, by their time of expiry.
    pub(super) page_bytes: String,
    /// HASH: the number of purges, their era, and the key of its marks.
    pub(super) purges: String,
    /// LIST with a bound: the marks of the latest purges.
    pub(super) purging: String,
    /// STRING of at most 3.5 MiB: the first part of the table of purges, the latest nonces, and the
    /// second part.
    pub(super) purged: String,
    /// HASH with a time to live: how many purges each process has seen, and since when the list is
    /// complete.
    pub(super) seen: String,
    /// Channel: a purge's number.
    pub(super) purge_channel: String,
    /// Channel: tokens that are gone, separated by spaces.
    pub(super) gone_channel: String,
    /// ZSET, row by the seconds between two refreshes.
    pub(super) delay: String,
    /// ZSET, row by the time when it is due.
    pub(super) schedule: String,
    /// ZSET, row by the time of its last good fetch. Not the chapter's.
    pub(super) refreshed: String,
    /// The prefix of a token's views. On its own this is the name of the popularity set: append
    /// only tokens.
    pub(super) viewed_prefix: String,
    /// The prefix of a token's cart.
    pub(super) cart_prefix: String,
    /// The prefix of the index of a user's sessions: ZSET, token by the time of its log-in.
    pub(super) tokens_prefix: String,
    /// The prefix of a row's content.
    pub(super) row_prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            login: format!("{prefix}login:"),
            recent: format!("{prefix}recent:"),
            since: format!("{prefix}since:"),
            visitors: format!("{prefix}visitors:"),
            popularity: format!("{prefix}viewed:"),
            expired: format!("{prefix}expired:"),
            expiring: format!("{prefix}expiring:"),
            events: format!("{prefix}cartevents:"),
            idle_reported: format!("{prefix}cartidle:"),
            cleaner: format!("{prefix}cleaner:"),
            deliverer: format!("{prefix}deliverer:"),
            rescaled: format!("{prefix}rescaled:"),
            page_bytes: format!("{prefix}pagebytes:"),
            purges: format!("{prefix}purges:"),
            purging: format!("{prefix}purging:"),
            purged: format!("{prefix}purged:"),
            seen: format!("{prefix}seen:"),
            purge_channel: format!("{prefix}purge:"),
            gone_channel: format!("{prefix}gone:"),
            delay: format!("{prefix}delay:"),
            schedule: format!("{prefix}schedule:"),
            refreshed: format!("{prefix}refreshed:"),
            viewed_prefix: format!("{prefix}viewed:"),
            cart_prefix: format!("{prefix}cart:"),
            tokens_prefix: format!("{prefix}tokens:"),
            row_prefix: format!("{prefix}inv:"),
        }
    }

    /// The index of this user's sessions.
    pub(super) fn tokens(&self, user: &User) -> Vec<u8> {
        [self.tokens_prefix.as_bytes(), user.as_bytes()].concat()
    }

    /// ZSET, item by the time of its last view.
    pub(super) fn viewed(&self, token: &StoredToken) -> String {
        format!("{}{}", self.viewed_prefix, token.as_str())
    }

    /// HASH, item to count.
    pub(super) fn cart(&self, token: &StoredToken) -> String {
        format!("{}{}", self.cart_prefix, token.as_str())
    }

    /// STRING: a row, as JSON.
    pub(super) fn row(&self, row: &Row) -> String {
        format!("{}{}", self.row_prefix, row.as_str())
    }

    /// STRING with a time to live: the process that fetches a page.
    pub(super) fn lease(&self, key: &PageKey) -> String {
        format!("{}lease:{}", self.prefix, key.hex())
    }

    /// STRING with a time to live, under the SHA-256 of a token: it was logged out of an app that
    /// keeps its own sessions.
    pub(super) fn revoked(&self, token: &StoredToken) -> String {
        format!("{}barred:{}", self.prefix, token.digest())
    }

    /// STRING with a time to live: an app's answer about a visitor.
    pub(super) fn answer(&self, cookies: &CookieHash) -> String {
        format!("{}answer:{}", self.prefix, cookies.hex())
    }

    /// STRING with a time to live: a page.
    pub(super) fn page(&self, key: &PageKey) -> String {
        format!("{}cache:{}", self.prefix, key.hex())
    }
}
