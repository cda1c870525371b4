//! Every key name in Redis, once: the chapter's names, after the configured prefix. In the sharded layout a shard's
//! names have its hash tag, so that a Cluster keeps them in one slot: `login:{s17}`, `viewed:{s17}:<token>`.

use anteroom_http::ident::{CookieHash, PageKey, Row, StoredToken, User};

use super::topology::slot::crc16;

/// How many shards the sharded layout has. Their number is part of the layout: it never changes.
pub(super) const SHARDS: usize = 64;

/// The shard of a token, an item, or the hash of a key: the CRC16 of XMODEM, as Redis Cluster has it for slots, modulo
/// their number. In Python: `binascii.crc_hqx(token, 0) % 64`.
#[must_use]
pub fn shard_of(name: &str, shards: usize) -> usize {
    usize::from(crc16(name.as_bytes())) % shards.max(1)
}

/// Builds key names.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
    /// What stands between a name and what follows it: the shard's tag.
    tag: String,
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
    /// HASH: what sessions of other shards get from ended ones of this shard. Empty but for moments.
    pub(super) handovers: String,
    /// STRING with a time to live: the process that cleans.
    pub(super) cleaner: String,
    /// STRING with a time to live: the process that orders certificates.
    pub(super) certifier: String,
    /// STRING with a time to live: the process that delivers.
    pub(super) deliverer: String,
    /// STRING with a time to live: the process that keeps the schedule of rows.
    pub(super) scheduler: String,
    /// STRING with a time to live: when `viewed:` was last rescaled.
    pub(super) rescaled: String,
    /// STRING with a time to live: the pages in use, for the next start.
    pub(super) hot_pages: String,
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
    /// HASH with a time to live: the proxies on the store.
    pub(super) fleet: String,
    /// STRING, with a time to live until the store has been left: the state of a move to another store.
    pub(super) moving: String,
    /// HASH with a time to live: the bypass switches.
    pub(super) bypass: String,
    /// Channel: a purge's number, or the word that a bypass switch has changed.
    pub(super) purge_channel: String,
    /// Channel: tokens that are gone, separated by spaces.
    pub(super) gone_channel: String,
    /// ZSET, row by the seconds between two refreshes.
    pub(super) delay: String,
    /// ZSET, row by the time when it is due.
    pub(super) schedule: String,
    /// ZSET, row by the time of its last good fetch. Not the chapter's.
    pub(super) refreshed: String,
    /// ZSET, row by the time at which it leaves the schedule. Not the chapter's.
    pub(super) unschedule: String,
    /// The prefix of a token's views. On its own this is the name of the popularity set: append
    /// only tokens.
    pub(super) viewed_prefix: String,
    /// The prefix of a token's cart.
    pub(super) cart_prefix: String,
    /// The prefix of the index of a user's sessions: ZSET, token by the time of its login.
    pub(super) tokens_prefix: String,
    /// The prefix of a row's content.
    pub(super) row_prefix: String,
}

impl Keys {
    /// A pattern for the channels of ended sessions, whatever the prefix.
    pub(super) const GONE_CHANNELS: &str = "*gone:";

    /// The chapter's names.
    pub(super) fn new(prefix: &str) -> Self {
        Self::tagged(prefix, "", "")
    }

    /// The names of a shard.
    pub(super) fn of_shard(prefix: &str, shard: usize) -> Self {
        let tag = format!("{{s{shard}}}");
        Self::tagged(prefix, &tag, &format!("{tag}:"))
    }

    /// `tag` ends a name that is a whole key, and `before` stands before what makes a name a key.
    fn tagged(prefix: &str, tag: &str, before: &str) -> Self {
        let whole = |name: &str| format!("{prefix}{name}:{tag}");
        let begun = |name: &str| format!("{prefix}{name}:{before}");
        Self {
            prefix: prefix.to_owned(),
            tag: before.to_owned(),
            login: whole("login"),
            recent: whole("recent"),
            since: whole("since"),
            visitors: whole("visitors"),
            popularity: whole("viewed"),
            expired: whole("expired"),
            expiring: whole("expiring"),
            events: whole("cartevents"),
            idle_reported: whole("cartidle"),
            handovers: whole("handover"),
            cleaner: whole("cleaner"),
            certifier: whole("certifier"),
            deliverer: whole("deliverer"),
            scheduler: whole("scheduler"),
            rescaled: whole("rescaled"),
            hot_pages: whole("hotpages"),
            page_bytes: whole("pagebytes"),
            purges: whole("purges"),
            purging: whole("purging"),
            purged: whole("purged"),
            seen: whole("seen"),
            fleet: whole("fleet"),
            moving: whole("moving"),
            bypass: whole("bypass"),
            delay: whole("delay"),
            schedule: whole("schedule"),
            refreshed: whole("refreshed"),
            unschedule: whole("unschedule"),
            purge_channel: format!("{prefix}purge:"),
            gone_channel: format!("{prefix}gone:"),
            viewed_prefix: begun("viewed"),
            cart_prefix: begun("cart"),
            tokens_prefix: begun("tokens"),
            row_prefix: begun("inv"),
        }
    }

    /// Keys that are there if a proxy, or an app, uses the other layout under this prefix.
    pub(super) fn of_other_layout(&self) -> Vec<String> {
        let others: Vec<Self> = if self.tag.is_empty() {
            (0..SHARDS).map(|shard| Self::of_shard(&self.prefix, shard)).collect()
        } else {
            vec![Self::new(&self.prefix)]
        };
        others.into_iter().flat_map(|keys| [keys.login, keys.fleet]).collect()
    }

    /// The prefixes before channels of ended sessions, but for this one.
    pub(super) fn prefixes_beside(&self, channels: &[Vec<u8>]) -> Vec<String> {
        let prefixes = channels.iter().filter_map(|channel| {
            Some(String::from_utf8_lossy(channel).strip_suffix("gone:")?.to_owned())
        });
        let mut others: Vec<_> = prefixes.filter(|prefix| *prefix != self.prefix).collect();
        others.sort_unstable();
        others
    }

    /// The names of all keys but those of pages. `*` stands for what follows a name.
    pub(super) fn names(&self) -> Vec<String> {
        let whole = [
            &self.login,
            &self.recent,
            &self.since,
            &self.visitors,
            &self.popularity,
            &self.expired,
            &self.expiring,
            &self.events,
            &self.idle_reported,
            &self.cleaner,
            &self.certifier,
            &self.deliverer,
            &self.scheduler,
            &self.rescaled,
            &self.purges,
            &self.purging,
            &self.purged,
            &self.seen,
            &self.fleet,
            &self.moving,
            &self.bypass,
            &self.delay,
            &self.schedule,
            &self.refreshed,
            &self.unschedule,
        ];
        let begun = [&self.viewed_prefix, &self.cart_prefix, &self.tokens_prefix, &self.row_prefix];
        let others =
            ["acme", "answer", "barred", "overload", "tickets"].map(|name| self.begun(name));
        // One shard hands nothing over.
        let handovers = Some(&self.handovers).filter(|_| !self.tag.is_empty());
        let all = whole.into_iter().chain(handovers).cloned();
        all.chain(begun.into_iter().chain(&others).map(|name| format!("{name}*"))).collect()
    }

    /// The names of the keys that are where the pages are.
    pub(super) fn names_of_pages(&self) -> Vec<String> {
        let begun = ["cache", "lease"].map(|name| self.begun(name) + "*");
        [self.hot_pages.clone(), self.page_bytes.clone()].into_iter().chain(begun).collect()
    }

    /// The beginning of keys with this name.
    fn begun(&self, name: &str) -> String {
        format!("{}{name}:{}", self.prefix, self.tag)
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
        format!("{}{}", self.begun("lease"), key.hex())
    }

    /// STRING with a time to live, under the SHA-256 of a token: it was logged out of an app that
    /// keeps its own sessions.
    pub(super) fn revoked(&self, token: &StoredToken) -> String {
        self.revoked_digest(&token.digest())
    }

    /// The same for the hex SHA-256 of a token.
    pub(super) fn revoked_digest(&self, digest: &str) -> String {
        self.begun("barred") + digest
    }

    /// A pattern of SCAN that matches the keys of revoked tokens, in all shards.
    pub(super) fn revoked_pattern(&self) -> String {
        // Pattern characters are escaped: a prefix is a prefix.
        let prefix: String = self.prefix.chars().flat_map(|c| ['\\', c]).collect();
        format!("{prefix}barred:*")
    }

    /// The hash in the key of a revoked token in this layout, of any shard.
    pub(super) fn digest_in(&self, key: &[u8]) -> Option<String> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let rest = rest.strip_prefix("barred:")?;
        let digest = match self.tag.is_empty() {
            true => rest,
            false => rest.strip_prefix("{s")?.split_once("}:")?.1,
        };
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digest.len() == 64 && digest.bytes().all(is_digit)).then(|| digest.to_owned())
    }

    /// STRING with a time to live: what is known of an origin's servers, in this version.
    pub(super) fn known_servers(&self, version: u32, origin: &str) -> String {
        format!("{}{version}:{origin}", self.begun("overload"))
    }

    /// STRING with a time to live: the key by which TLS tickets of this period are sealed. The number behind the name is
    /// the version of the value.
    pub(super) fn ticket_key(&self, period: u64) -> String {
        format!("{}1:{period}", self.begun("tickets"))
    }

    /// STRING with a time to live: a sealed value that proxies share of certificates.
    pub(super) fn sealed(&self, name: &str) -> String {
        self.begun("acme") + name
    }

    /// STRING with a time to live: an app's answer about a visitor.
    pub(super) fn answer(&self, cookies: &CookieHash) -> String {
        format!("{}{}", self.begun("answer"), cookies.hex())
    }

    /// STRING with a time to live: a page.
    pub(super) fn page(&self, key: &PageKey) -> String {
        format!("{}{}", self.begun("cache"), key.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shards_names_have_its_tag_and_the_chapters_have_none() {
        let token = StoredToken::from_store(b"12345678").unwrap();
        let names = |keys: &Keys| {
            let Keys { login, popularity, gone_channel, .. } = keys;
            [login.clone(), popularity.clone(), gone_channel.clone(), keys.viewed(&token)]
        };
        assert_eq!(
            names(&Keys::new("a:")),
            ["a:login:", "a:viewed:", "a:gone:", "a:viewed:12345678"]
        );
        assert_eq!(
            names(&Keys::of_shard("a:", 17)),
            ["a:login:{s17}", "a:viewed:{s17}", "a:gone:", "a:viewed:{s17}:12345678"]
        );
        assert_eq!(Keys::new("a:").known_servers(1, "blog"), "a:overload:1:blog");
        assert_eq!(Keys::of_shard("a:", 0).known_servers(1, "blog"), "a:overload:{s0}:1:blog");
        let named = Keys::of_shard("a:", 17);
        for name in ["a:login:{s17}", "a:handover:{s17}", "a:viewed:{s17}:*", "a:acme:{s17}:*"] {
            assert!(named.names().iter().any(|one| one == name), "{name} in {:?}", named.names());
        }
        assert!(named.names_of_pages().contains(&"a:cache:{s17}:*".to_owned()));
        assert!(!Keys::new("").names().contains(&"handover:".to_owned()));
        let channels = ["b:gone:", "gone:", "a:gone:"].map(|name| name.as_bytes().to_vec());
        assert_eq!(Keys::new("a:").prefixes_beside(&channels), ["", "b:"]);
        assert_eq!(Keys::new("a:").ticket_key(7), "a:tickets:1:7");
        assert_eq!(Keys::of_shard("a:", 0).ticket_key(7), "a:tickets:{s0}:1:7");
        assert_eq!(Keys::new("a:").sealed("account"), "a:acme:account");
        assert_eq!(Keys::of_shard("a:", 0).sealed("account"), "a:acme:{s0}:account");
    }
}
