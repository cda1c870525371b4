//! Users: the name, and the attributes that the app has given.

use std::fmt;
use std::iter::once;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::cookie_hash::CookieHash;
use super::hex::hex;

/// The longest user name, in bytes.
pub const USER_MAX: usize = 256;
/// The most attributes of a user.
pub const ATTRIBUTES_MAX: usize = 16;
/// The longest name of an attribute, in bytes.
const NAME_MAX: usize = 32;
/// The longest value of an attribute, in bytes.
const VALUE_MAX: usize = 128;
/// Terminates the name, and separates attributes. Names and values cannot contain it.
const END: u8 = 0;
/// Replaces an attribute's name to mark a user as unconfirmed.
const UNCONFIRMED: &[u8] = b"?";
/// Precedes a [`LogInScope`] in the same place.
const BOND: u8 = b'@';
/// The length of a bond, in bytes; it is a prefix of a hash.
const BOND_BYTES: usize = 8;

/// The longest written form of a bond, in bytes, with the terminator before it.
const BOND_MAX: usize = 2 + 2 * BOND_BYTES;

/// The scope of a login: the host on which it was seen, a domain to which the app assigns its cookie, or the
/// session cookies for which the app was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogInScope([u8; BOND_BYTES]);

impl LogInScope {
    /// A bond to a host, as `host` or `host:port`.
    #[must_use]
    pub fn of_host(host: &str) -> Self {
        Self::of(&Sha256::digest(host))
    }

    /// A bond to a domain and all hosts in it, as `shop.test`.
    #[must_use]
    pub fn of_domain(domain: &str) -> Self {
        // Hosts never begin with a dot, so a host and a domain never have the same bond.
        Self::of(&Sha256::digest(format!(".{domain}")))
    }

    /// A bond to session cookies.
    #[must_use]
    pub fn of_cookies(cookies: &CookieHash) -> Self {
        Self::of(&cookies.0)
    }

    fn of(hash: &[u8]) -> Self {
        let mut bond = [0; BOND_BYTES];
        bond.iter_mut().zip(hash).for_each(|(to, from)| *to = *from);
        Self(bond)
    }

    fn written(self) -> Vec<u8> {
        let mut written = vec![BOND];
        written.extend_from_slice(hex(&self.0).as_bytes());
        written
    }
}

/// A user as the app named it: a name of 1 to 256 bytes, usually UTF-8 and never interpreted, with attributes
/// such as a group. The stored form is the name, then for each attribute a zero byte and `name=value`, sorted
/// by name. The bond of the login comes last, if there is one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct User {
    stored: Arc<[u8]>,
    /// The length of the name, in bytes.
    name: usize,
}

impl User {
    /// The user with this name and no attributes; `None` if the name is empty, longer than [`USER_MAX`], or
    /// contains a zero byte.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        let is_name = (1..=USER_MAX).contains(&name.len()) && !name.contains(&END);
        is_name.then(|| Self { stored: name.into(), name: name.len() })
    }

    /// Parses the stored form of a user. Invalid attributes are dropped.
    #[must_use]
    pub fn from_store(stored: &[u8]) -> Option<Self> {
        let name = stored.iter().position(|&byte| byte == END).unwrap_or(stored.len());
        let most = USER_MAX + ATTRIBUTES_MAX * (NAME_MAX + VALUE_MAX + 2) + 2 + BOND_MAX;
        let is_one = (1..=USER_MAX).contains(&name) && stored.len() <= most;
        is_one.then(|| Self { stored: stored.into(), name })
    }

    /// The same user with these attributes in place of the current ones. `None` if there are more than
    /// [`ATTRIBUTES_MAX`], if a name is repeated or invalid (valid are 1 to 32 lower-case letters, digits,
    /// `-` and `_`), or if a value is over 128 bytes or has control characters.
    #[must_use]
    pub fn with_attributes(&self, attributes: &[(String, String)]) -> Option<Self> {
        let mut sorted: Vec<&(String, String)> = attributes.iter().collect();
        sorted.sort_unstable();
        let twice = sorted.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let are_fine = sorted.iter().all(|(name, value)| is_attribute(name, value));
        if twice || !are_fine || sorted.len() > ATTRIBUTES_MAX {
            return None;
        }
        let mut stored = self.as_bytes().to_vec();
        for (name, value) in sorted {
            stored.push(END);
            stored.extend_from_slice(name.as_bytes());
            stored.push(b'=');
            stored.extend_from_slice(value.as_bytes());
        }
        Some(Self { stored: stored.into(), name: self.name })
    }

    /// The same user, marked as unconfirmed: the name comes from the visitor, and the app has not confirmed
    /// it.
    #[must_use]
    pub fn unconfirmed(&self) -> Self {
        let mut stored = self.as_bytes().to_vec();
        stored.push(END);
        stored.extend_from_slice(UNCONFIRMED);
        Self { stored: stored.into(), name: self.name }
    }

    /// Whether the app itself has named the user. Otherwise the name is only a label, and is not proof of
    /// identity.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        !self.parts().any(|part| part == UNCONFIRMED)
    }

    /// The same user, with a login that is valid only for this bond.
    #[must_use]
    pub fn bound_to(&self, bond: LogInScope) -> Self {
        let mut stored = self.as_said().to_vec();
        stored.push(END);
        stored.extend_from_slice(&bond.written());
        Self { stored: stored.into(), name: self.name }
    }

    /// Whether the login is valid for this bond: it has this bond, or none.
    #[must_use]
    pub fn is_bound_to(&self, bond: LogInScope) -> bool {
        self.log_in_scope().is_none_or(|written| *written == bond.written())
    }

    /// Whether the login has a bond.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.log_in_scope().is_some()
    }

    /// Whether the login is valid on a host, given as `host` or `host:port`: its bond is this host, or a
    /// domain that contains the host (whatever the port: RFC 6265 §8.5), or it has no bond.
    #[must_use]
    pub fn is_known_at(&self, host: &str) -> bool {
        // PERF: most logins have no bond, and need no digest of the host.
        if !self.is_bound() {
            return true;
        }
        let name = host.split_once(':').map_or(host, |(name, _)| name);
        let below = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        self.is_bound_to(LogInScope::of_host(host))
            || once(name).chain(below).any(|domain| self.is_bound_to(LogInScope::of_domain(domain)))
    }

    fn log_in_scope(&self) -> Option<&[u8]> {
        self.parts().last().filter(|part| part.first() == Some(&BOND))
    }

    /// The name and attributes, without the bond.
    #[must_use]
    pub fn as_said(&self) -> &[u8] {
        let bond = self.log_in_scope().map_or(0, |bond| bond.len() + 1);
        &self.stored[..self.stored.len() - bond]
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.stored[..self.name]
    }

    /// The name, attributes and bond, in the stored form.
    #[must_use]
    pub fn as_stored(&self) -> &[u8] {
        &self.stored
    }

    /// Whether both users have the same name; attributes and bonds are ignored.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }

    /// The attributes, sorted by name.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts().filter_map(|part| {
            let (name, value) = std::str::from_utf8(part).ok()?.split_once('=')?;
            is_attribute(name, value).then_some((name, value))
        })
    }

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.stored[self.name..].split(|&byte| byte == END).skip(1)
    }
}

/// Whether `name` and `value` are valid for an attribute.
#[must_use]
pub fn is_attribute(name: &str, value: &str) -> bool {
    is_attribute_name(name) && value.len() <= VALUE_MAX && !value.chars().any(char::is_control)
}

/// Whether `name` is valid for an attribute.
#[must_use]
pub fn is_attribute_name(name: &str) -> bool {
    let is_letter =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_letter)
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_name_has_its_bounds() {
        assert!(User::new(b"").is_none());
        assert!(User::new(b"a\0group=admin").is_none(), "no name brings attributes");
        assert!(User::new(&[b'x'; USER_MAX]).is_some());
        assert!(User::new(&[b'x'; USER_MAX + 1]).is_none());
        assert!(User::from_store(b"\0group=admin").is_none());
    }

    #[test]
    fn a_stored_user_reads_back() {
        let alice = User::new(b"alice").unwrap();
        assert_eq!(alice.as_stored(), b"alice");
        let pairs = attributes(&[("name", "Alice B=ob"), ("group", "trade")]);
        let with = alice.with_attributes(&pairs).unwrap();
        assert_eq!(with.as_stored(), b"alice\0group=trade\0name=Alice B=ob");
        let read = User::from_store(with.as_stored()).unwrap();
        assert_eq!(read, with);
        assert_eq!(read.as_bytes(), b"alice");
        let expected = [("group", "trade"), ("name", "Alice B=ob")];
        assert_eq!(read.attributes().collect::<Vec<_>>(), expected);
        assert_eq!((read.attribute("group"), read.attribute("nam")), (Some("trade"), None));
        assert!(read.is_same(&alice) && read != alice && read.is_confirmed());
    }

    #[test]
    fn attributes_have_their_bounds() {
        let alice = User::new(b"alice").unwrap();
        let with = |pairs: &[(&str, &str)]| alice.with_attributes(&attributes(pairs));
        for (name, value) in [
            ("", "x"),
            ("Group", "x"),
            ("?", "x"),
            ("a=b", "x"),
            ("group", "a\0admin=1"),
            ("group", "a\nb"),
            ("group", &"x".repeat(129)),
        ] {
            assert!(with(&[(name, value)]).is_none(), "{name}={value}");
        }
        assert!(with(&[("group", "a"), ("group", "b")]).is_none());
        let many: Vec<_> = (0..17).map(|n| (format!("a{n}"), "x".repeat(128))).collect();
        assert!(alice.with_attributes(&many).is_none());
        let most = User::new(&[b'x'; USER_MAX]).unwrap().with_attributes(&many[..16]).unwrap();
        assert_eq!(User::from_store(most.as_stored()).unwrap().attributes().count(), 16);
    }

    #[test]
    fn an_unconfirmed_user_stays_unconfirmed_in_the_store() {
        let label = User::new(b"alice").unwrap().unconfirmed();
        let read = User::from_store(label.as_stored()).unwrap();
        assert!(!read.is_confirmed());
        assert_eq!((read.as_bytes(), read.attributes().count()), (&b"alice"[..], 0));
    }

    #[test]
    fn the_scope_of_a_log_in_is_kept_with_the_attributes() {
        let (shop, blog) = (LogInScope::of_host("shop.test"), LogInScope::of_host("blog.test"));
        let alice = User::new(b"alice").unwrap();
        let trade = alice.with_attributes(&attributes(&[("group", "trade")])).unwrap();
        for user in [alice.clone(), trade, alice.unconfirmed()] {
            assert!(user.is_bound_to(shop) && user.is_known_at("any.test"));
            let bound = User::from_store(user.bound_to(shop).as_stored()).unwrap();
            assert!(bound.is_bound_to(shop) && !bound.is_bound_to(blog));
            assert!(bound.is_known_at("shop.test") && !bound.is_known_at("www.shop.test"));
            assert_eq!(bound.as_said(), user.as_stored());
            assert_eq!(bound.is_confirmed(), user.is_confirmed());
            assert!(bound.attributes().eq(user.attributes()) && bound.is_same(&user));
            let other = bound.bound_to(blog);
            assert!(other.is_bound_to(blog) && !other.is_bound_to(shop));
            assert_eq!(other.as_said(), user.as_stored());
        }
        let many: Vec<_> = (0..16).map(|n| (format!("{n:032}"), "x".repeat(128))).collect();
        let most = User::new(&[b'x'; USER_MAX]).unwrap().with_attributes(&many).unwrap();
        assert!(User::from_store(most.bound_to(shop).as_stored()).is_some());
    }

    #[test]
    fn a_log_in_to_a_domain_holds_at_the_hosts_in_it() {
        let alice = User::new(b"alice").unwrap().bound_to(LogInScope::of_domain("shop.test"));
        for host in ["shop.test", "shop.test:8080", "www.shop.test", "a.b.shop.test:1"] {
            assert!(alice.is_known_at(host), "{host}");
        }
        for host in ["test", "myshop.test", "shop.test.example", ".shop.testx", "[::1]:80", ""] {
            assert!(!alice.is_known_at(host), "{host}");
        }
        assert!(!alice.is_bound_to(LogInScope::of_host("shop.test")));
    }

    #[test]
    fn junk_behind_a_name_is_no_attribute() {
        let user = User::from_store(b"alice\0\0=x\0G=1\0group\0a=1\0\xff=2").unwrap();
        assert_eq!(user.attributes().collect::<Vec<_>>(), [("a", "1")]);
        assert!(user.is_confirmed());
    }
}
