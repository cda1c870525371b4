//! The names of cookies, counted: on how many requests each came, on how many pages it was set, how many
//! requests it kept from the cache.
//!
//! A client may make up any number of names. So 64 have a place of their own, and a new one takes that of
//! the name with the least weight, which goes to the others; it inherits the weight, so that a flood of
//! new names pushes out each other and not what really is in use (the space-saving algorithm).

use std::collections::HashMap;

/// Names that are counted apart, at most.
pub const NAMES_MAX: usize = 64;
/// Names of one message that are looked at, at most.
const EACH_MAX: usize = 32;
/// The longest name that is told whole, in bytes.
const NAME_BYTES_MAX: usize = 48;
/// As many hexadecimal digits at a name's end are an id, and no part of the name.
const ID_MIN: usize = 8;

/// What is counted of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Crumb {
    /// It came with a request.
    Came,
    /// A page of the app's set it.
    Set,
    /// It kept a request from the cache.
    Blocked,
}

/// How often each happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests with which it came.
    pub came: u64,
    /// Pages that set it.
    pub set: u64,
    /// Requests that it kept from the cache.
    pub blocked: u64,
}

impl Tally {
    fn of(&mut self, what: Crumb) -> &mut u64 {
        match what {
            Crumb::Came => &mut self.came,
            Crumb::Set => &mut self.set,
            Crumb::Blocked => &mut self.blocked,
        }
    }

    fn add(&mut self, other: Self) {
        self.came += other.came;
        self.set += other.set;
        self.blocked += other.blocked;
    }
}

/// A name with its place.
#[derive(Debug)]
struct Counted {
    tally: Tally,
    weight: u64,
    /// The message by which it was counted last: one that has it twice counts once.
    by: u64,
}

/// The names of one thread.
#[derive(Debug, Default)]
pub(super) struct Jar {
    names: HashMap<Box<str>, Counted, ahash::RandomState>,
    others: Tally,
    messages: u64,
}

impl Jar {
    /// Counts the names of one message.
    pub(super) fn count<'n>(&mut self, what: Crumb, names: impl Iterator<Item = &'n [u8]>) {
        self.messages += 1;
        let by = self.messages;
        let mut buffer = [0; NAME_BYTES_MAX];
        for name in names.take(EACH_MAX) {
            let name = cleaned(name, &mut buffer);
            if let Some(counted) = self.names.get_mut(name) {
                if counted.by != by {
                    counted.by = by;
                    counted.weight += 1;
                    *counted.tally.of(what) += 1;
                }
                continue;
            }
            let weight = if self.names.len() < NAMES_MAX { 0 } else { self.push_out() };
            let mut tally = Tally::default();
            *tally.of(what) += 1;
            self.names.insert(name.into(), Counted { tally, weight: weight + 1, by });
        }
    }

    /// Gives the place of the name with the least weight away, and tells that.
    fn push_out(&mut self) -> u64 {
        let least = self.names.iter().min_by_key(|(_, counted)| counted.weight);
        let Some(name) = least.map(|(name, _)| name.clone()) else { return 0 };
        let Some(gone) = self.names.remove(&name) else { return 0 };
        self.others.add(gone.tally);
        gone.weight
    }
}

/// All that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    /// Requests.
    pub requests: u64,
    /// Those that were answered from the cache.
    pub hits: u64,
    /// Pages that the app answered with.
    pub pages: u64,
    /// The names, those that came most often in front.
    pub names: Vec<(String, Tally)>,
    /// All others.
    pub others: Tally,
}

/// Adds up the names of all threads.
pub(super) fn sum<'j>(jars: impl Iterator<Item = &'j Jar>) -> (Vec<(String, Tally)>, Tally) {
    let (mut all, mut others) = (HashMap::<&str, Tally>::new(), Tally::default());
    for jar in jars {
        others.add(jar.others);
        for (name, counted) in &jar.names {
            all.entry(name).or_default().add(counted.tally);
        }
    }
    let mut names: Vec<_> = all.into_iter().map(|(name, tally)| (name.to_owned(), tally)).collect();
    names.sort_unstable_by(|(one, a), (other, b)| {
        let by_count = (b.came, b.set, b.blocked).cmp(&(a.came, a.set, a.blocked));
        by_count.then_with(|| one.cmp(other))
    });
    names.drain(NAMES_MAX.min(names.len())..).for_each(|(_, tally)| others.add(tally));
    (names, others)
}

/// A name as it may be told: cut, without what speaks to terminals, and with `*` for an id at its end
/// (`wordpress_logged_in_5d41402a…`).
fn cleaned<'b>(name: &[u8], buffer: &'b mut [u8; NAME_BYTES_MAX]) -> &'b str {
    let id = name.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let stem = &name[..name.len() - id];
    let has_id = id >= ID_MIN && matches!(stem.last(), Some(b'_' | b'-' | b'.'));
    let shown = if has_id { stem } else { name };
    let room = NAME_BYTES_MAX - 1;
    let length = shown.len().min(room);
    for (to, byte) in buffer.iter_mut().zip(&shown[..length]) {
        // What may stand in a token (RFC 9110 §5.6.2).
        let is_plain = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        *to = if is_plain { *byte } else { b'?' };
    }
    let end = if has_id || shown.len() > room { length + 1 } else { length };
    buffer[length..end].fill(b'*');
    std::str::from_utf8(&buffer[..end]).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(jar: &Jar) -> Vec<(String, Tally)> {
        sum(std::iter::once(jar)).0
    }

    fn count(jar: &mut Jar, what: Crumb, names: &[&str]) {
        jar.count(what, names.iter().map(|name| name.as_bytes()));
    }

    #[test]
    fn a_message_counts_a_name_once() {
        let mut jar = Jar::default();
        count(&mut jar, Crumb::Came, &["a", "b", "a"]);
        count(&mut jar, Crumb::Came, &["a"]);
        count(&mut jar, Crumb::Set, &["b"]);
        count(&mut jar, Crumb::Blocked, &["a"]);
        let a = Tally { came: 2, set: 0, blocked: 1 };
        let b = Tally { came: 1, set: 1, blocked: 0 };
        assert_eq!(names(&jar), [("a".to_owned(), a), ("b".to_owned(), b)]);
    }

    #[test]
    fn a_flood_of_names_pushes_out_no_name_in_use() {
        let mut jar = Jar::default();
        for n in 0..20_000 {
            let made_up = format!("x{n:x}y");
            count(&mut jar, Crumb::Came, &["PHPSESSID", &made_up]);
        }
        let (all, others) = sum(std::iter::once(&jar));
        assert_eq!(all[0], ("PHPSESSID".to_owned(), Tally { came: 20_000, ..Tally::default() }));
        assert_eq!(all.len(), NAMES_MAX);
        assert_eq!(others.came, 20_000 - (NAMES_MAX as u64 - 1));
        assert_eq!(sum([&jar, &jar].into_iter()).0[0].1.came, 40_000, "threads are added up");
    }

    #[test]
    fn names_are_told_without_ids_and_control_characters() {
        for (name, told) in [
            (&b"PHPSESSID"[..], "PHPSESSID"),
            (b"wordpress_logged_in_5d41402abc4b2a76b9719d911017c592", "wordpress_logged_in_*"),
            (b"_hjSession_1234567", "_hjSession_1234567"),
            (b"_hjSession_12345678", "_hjSession_*"),
            (b"5d41402abc4b2a76", "5d41402abc4b2a76"),
            (b"a\x1b[2J\"\xff", "a??2J??"),
            (b"(other)", "?other?"),
            (b"", ""),
        ] {
            assert_eq!(cleaned(name, &mut [0; NAME_BYTES_MAX]), told);
        }
        let long = "n".repeat(500);
        let told = format!("{}*", "n".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(cleaned(long.as_bytes(), &mut [0; NAME_BYTES_MAX]), told);
    }
}
