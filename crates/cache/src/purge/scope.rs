//! The scope of a purge, and the slots in the table of purges that stand for it.

use sha2::{Digest as _, Sha256};

use anteroom_store::{LATER_MARKS, MARKS, MarkKey};

/// The number of slots for URLs. Changes by visitors purge these slots and no others.
const URL_SLOTS: u32 = 65_536;
/// The number of slots for prefixes and tags.
const GROUP_SLOTS: u32 = 65_536;
/// The slot for everything, under every key.
pub(super) const EVERYTHING: u32 = URL_SLOTS + GROUP_SLOTS;
/// The first slot for users and sessions. These have their own range, because a user purges such pages by
/// ordinary actions: in the range of URLs each purge would hit other visitors' pages as well.
const OWN_FIRST: u32 = LATER_MARKS.start / 2;
/// The number of slots for users and sessions.
const OWN_SLOTS: u32 = 65_536;
/// The most path levels by which a page is purged; deeper ones count as the last of them.
pub(super) const LEVELS_MAX: usize = 16;

// Each slot has one mark for soft purges and one for hard ones.
const _: () = assert!(MARKS == 2 * (EVERYTHING + 1));
const _: () = assert!(LATER_MARKS.start == 2 * OWN_FIRST);
const _: () = assert!(LATER_MARKS.end == 2 * (OWN_FIRST + OWN_SLOTS));

/// Whether a number is a valid slot.
pub(super) fn is_slot(slot: u32) -> bool {
    slot <= EVERYTHING || (OWN_FIRST..OWN_FIRST + OWN_SLOTS).contains(&slot)
}

/// The scope of a purge. Paths are percent-decoded, so that all spellings of a path are hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// One URL with all its forms: share classes, keyed values, variants.
    Url {
        /// Lower-case `host` or `host:port`, or [`EVERY_SITE`].
        site: &'a str,
        /// The path.
        path: &'a str,
        /// The query after removal of the ignored parameters.
        query: &'a str,
    },
    /// A path and all paths below it, with all their queries.
    Prefix {
        /// Lower-case `host` or `host:port`, or [`EVERY_SITE`].
        site: &'a str,
        /// The path, with or without a trailing slash.
        path: &'a str,
    },
    /// The pages to which the origin gave this tag.
    Tag(&'a [u8]),
    /// All pages of one user, on every site: an action on one site may change another.
    User(&'a [u8]),
    /// All pages of one session, by its token: after a logout, its holder is no longer the user.
    Session(&'a str),
    /// All pages.
    Everything,
}

impl Scope<'_> {
    /// The digest of the scope.
    #[must_use]
    pub fn digest(&self) -> ScopeDigest {
        match *self {
            Self::Url { site, path, query } => ScopeDigest::Url(hashed(
                b'u',
                &[site.as_bytes(), path.as_bytes(), query.as_bytes()],
            )),
            Self::Prefix { site, path } => prefix(site, levels(path).last().unwrap_or_default()),
            Self::Tag(tag) => ScopeDigest::Group(hashed(b't', &[tag])),
            Self::User(name) => ScopeDigest::Own(hashed(b'o', &[name])),
            Self::Session(token) => ScopeDigest::Own(hashed(b's', &[token.as_bytes()])),
            Self::Everything => ScopeDigest::Everything,
        }
    }

    /// The scope as the target of a purge. If `is_hard`, its pages must not be shown again; otherwise they
    /// become stale.
    #[must_use]
    pub fn purge_target(&self, is_hard: bool) -> PurgeTarget {
        PurgeTarget { scope: self.digest(), is_hard }
    }
}

/// The digest of a scope, the same in every process and under every key. Different scopes have different
/// digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeDigest {
    /// A URL.
    Url(u128),
    /// A prefix or a tag.
    Group(u128),
    /// A user or a session, with its own pages.
    Own(u128),
    /// All pages.
    Everything,
}

impl ScopeDigest {
    /// The slot in the table under a key. Some scopes share a slot; without the key, it is unpredictable
    /// which.
    #[must_use]
    pub fn slot(self, key: &MarkKey) -> u32 {
        match self {
            Self::Url(hash) => keyed(key, hash) % URL_SLOTS,
            Self::Group(hash) => URL_SLOTS + keyed(key, hash) % GROUP_SLOTS,
            Self::Own(hash) => OWN_FIRST + keyed(key, hash) % OWN_SLOTS,
            Self::Everything => EVERYTHING,
        }
    }
}

/// A scope that is purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PurgeTarget {
    /// The scope.
    pub scope: ScopeDigest,
    /// Whether its pages must not be shown again.
    pub is_hard: bool,
}

impl PurgeTarget {
    /// The mark in the table of purges under a key.
    #[must_use]
    pub fn mark(self, key: &MarkKey) -> u32 {
        2 * self.scope.slot(key) + u32::from(self.is_hard)
    }
}

fn prefix(site: &str, path: &str) -> ScopeDigest {
    ScopeDigest::Group(hashed(b'p', &[site.as_bytes(), path.as_bytes()]))
}

/// The levels of a path: `/a/b/c` has `/`, `/a/`, `/a/b/` and `/a/b/c/`, written without the last slash.
fn levels(path: &str) -> impl Iterator<Item = &str> {
    let whole = path.strip_suffix('/').unwrap_or(path);
    let ends = whole.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
    ends.chain([whole.len()]).map(|end| &whole[..end]).take(LEVELS_MAX)
}

fn hashed(kind: u8, parts: &[&[u8]]) -> u128 {
    let mut hash = Sha256::new();
    hash.update([kind]);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let (bits, _) = first(hash);
    bits
}

fn keyed(key: &MarkKey, hash: u128) -> u32 {
    let of = Sha256::new().chain_update(key.bytes()).chain_update(hash.to_be_bytes());
    let (_, bits) = first(of);
    bits
}

/// The first 128 bits of a hash, and the next 32.
fn first(hash: Sha256) -> (u128, u32) {
    let bytes = <[u8; 32]>::from(hash.finalize());
    let bits = bytes.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
    (bits, (bits >> 96) as u32)
}

/// The name that stands for all sites in a scope. No host has it.
pub const EVERY_SITE: &str = "*";

/// The scopes of the page at a URL, as far as they are known before the origin has answered: those of its site, and
/// those of a purge that names no site.
#[must_use]
pub fn url_scopes(site: &str, path: &str, query: &str) -> Vec<ScopeDigest> {
    let of_site = |site| {
        let prefixes = levels(path).map(move |level| prefix(site, level));
        std::iter::once(Scope::Url { site, path, query }.digest()).chain(prefixes)
    };
    of_site(site).chain(of_site(EVERY_SITE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_paths_count_to_a_level_of_which_all_below_are_hit() {
        let deep = "/x".repeat(40);
        assert_eq!(url_scopes("s", &deep, "").len(), 2 * (1 + LEVELS_MAX));
        let prefix = Scope::Prefix { site: "s", path: &"/x".repeat(30) };
        assert!(url_scopes("s", &deep, "").contains(&prefix.digest()));
        assert_eq!(levels("/").collect::<Vec<_>>(), [""]);
        assert_eq!(levels("/a/").collect::<Vec<_>>(), ["", "/a"]);
    }

    #[test]
    fn slots_of_users_and_urls_do_not_overlap() {
        let key = MarkKey::random();
        let is_own = |slot: u32| slot > EVERYTHING && is_slot(slot);
        for number in 0..2_000 {
            let name = number.to_string();
            let url = Scope::Url { site: "s", path: "/", query: &name }.digest().slot(&key);
            assert!(!is_own(url) && is_slot(url));
            for own in [Scope::User(name.as_bytes()), Scope::Session(&name)] {
                assert!(is_own(own.digest().slot(&key)));
                assert!(LATER_MARKS.contains(&own.purge_target(true).mark(&key)));
            }
        }
        assert!(!is_slot(EVERYTHING + 1) && !is_slot(OWN_FIRST - 1));
        assert!(!is_slot(OWN_FIRST + OWN_SLOTS));
    }

    #[test]
    fn which_scopes_share_a_slot_depends_on_the_key() {
        let url =
            |number: u32| Scope::Url { site: "s", path: "/", query: &number.to_string() }.digest();
        let [one, other] = [MarkKey::random(), MarkKey::random()];
        let twin = (1..).find(|number| url(*number).slot(&one) == url(0).slot(&one)).unwrap();
        assert_ne!(url(twin).slot(&other), url(0).slot(&other));
        assert_eq!(url(twin).slot(&MarkKey::from_bytes(one.bytes())), url(0).slot(&one));
        assert_eq!(ScopeDigest::Everything.slot(&one), ScopeDigest::Everything.slot(&other));
    }
}
