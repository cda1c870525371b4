//! Tickets by random keys that all proxies on a store have alike, one for each period.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::rand;
use rustls::Error;
use rustls::server::ProducesTickets;

use super::TICKET_PERIOD;
use super::seal::{PERIOD, SealedTicket, TicketSource, is_accepted, period_at};

/// The length of a key, in bytes.
pub const TICKET_KEY_LEN: usize = 32;

/// The most keys that are held. Three periods count at a time, and a period has more than one key only where the store
/// has lost one, or was replaced.
const KEYS_MAX: usize = 12;

/// A random key. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey([u8; TICKET_KEY_LEN]);

impl TicketKey {
    /// A new key.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn mint() -> Result<Self, Error> {
        let mut key = [0; TICKET_KEY_LEN];
        rand::fill(&mut key).map_err(|_| Error::FailedToGetRandomBytes)?;
        Ok(Self(key))
    }

    /// The key with these bytes, from a store; `None` if they are no key.
    #[must_use]
    pub fn from_store(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes. Keep them out of logs.
    #[must_use]
    pub fn expose(&self) -> &[u8; TICKET_KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(hidden)")
    }
}

/// A key that a proxy offers to the store for a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketKeyOffer {
    /// The number of the period since 1970.
    pub period: u64,
    /// The key, if the store has none.
    pub key: TicketKey,
    /// How long it is of use from now on.
    pub lifetime: Duration,
}

/// The keys that all threads of a process have, and that it has alike with the other proxies on its store. Until the
/// store has told of one for the present period, tickets are sealed by a key of that period that only this process has.
#[derive(Debug, Default)]
pub struct TicketKeys {
    /// Those of the store, the one that it told of last first. Read for each ticket by all threads, and written about once
    /// a minute, for less than a microsecond.
    stored: RwLock<Vec<StoredKey>>,
    /// Those of this process alone, one for a period, made for the first ticket that needs it. No more than the periods
    /// that are accepted at a time.
    own: RwLock<Vec<OwnKey>>,
}

#[derive(Debug)]
struct StoredKey {
    period: u64,
    key: TicketKey,
    source: TicketSource,
}

#[derive(Debug)]
struct OwnKey {
    period: u64,
    source: TicketSource,
}

impl TicketKeys {
    /// Issues tickets by these keys. `clock` is the Unix time in seconds.
    #[must_use]
    pub fn ticketer(self: &Arc<Self>, clock: fn() -> f64) -> Arc<dyn ProducesTickets> {
        Arc::new(SharedTicketer { keys: Arc::clone(self), clock })
    }

    /// What to offer to the store at `now`, in Unix seconds: for the present period and the last, and in its second half
    /// for the next, so that the period can begin while the store is away. A key that is known is offered again: a store
    /// that has lost it, or another one, gets it.
    ///
    /// # Errors
    /// If a key is needed, and the system has no random numbers.
    pub fn offers(&self, now: f64) -> Result<Vec<TicketKeyOffer>, Error> {
        let (seconds, present) = (now as u64, period_at(now));
        let is_late = seconds % PERIOD >= PERIOD / 2;
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        let offer = |period: u64| -> Result<TicketKeyOffer, Error> {
            let known = stored.iter().find(|one| one.period == period);
            let key = known.map_or_else(TicketKey::mint, |one| Ok(one.key.clone()))?;
            // It opens tickets until the period after its own is over.
            let end = (period + 2).saturating_mul(PERIOD);
            let lifetime = Duration::from_secs(end.saturating_sub(seconds).max(1));
            Ok(TicketKeyOffer { period, key, lifetime })
        };
        (present.saturating_sub(1)..=present + u64::from(is_late)).map(offer).collect()
    }

    /// Takes over the keys of the store, each with its period. The one that was told of last seals; one that it replaces
    /// opens what it has sealed. Keys whose time is over at `now`, in Unix seconds, are forgotten, also those of this process.
    pub fn put(&self, found: impl IntoIterator<Item = (u64, TicketKey)>, now: f64) {
        let mut stored = self.stored.write().unwrap_or_else(PoisonError::into_inner);
        for (period, key) in found {
            let Some(source) = TicketSource::new(&key.0) else { continue };
            stored.retain(|one| one.period != period || one.key != key);
            stored.insert(0, StoredKey { period, key, source });
        }
        stored.retain(|one| is_accepted(one.period, now));
        stored.truncate(KEYS_MAX);
        // While the store has keys, no ticket makes one of this process and forgets the one before.
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        own.retain(|one| is_accepted(one.period, now));
    }

    /// A ticket by this process's key for a period, which is made if there is none. `None` also if the system has no random
    /// numbers.
    fn seal_alone(&self, period: u64, plain: &[u8], now: f64) -> Option<Vec<u8>> {
        if let Some(sealed) = self.with_own(period, |source| source.seal(period, plain)) {
            return Some(sealed);
        }
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made it meanwhile.
        if !own.iter().any(|one| one.period == period) {
            let source = TicketSource::new(&TicketKey::mint().ok()?.0)?;
            own.retain(|one| is_accepted(one.period, now));
            own.push(OwnKey { period, source });
        }
        own.iter().find(|one| one.period == period)?.source.seal(period, plain)
    }

    /// What is done with this process's key for a period; `None` also if it has none.
    fn with_own<T>(&self, period: u64, done: impl FnOnce(&TicketSource) -> Option<T>) -> Option<T> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        done(&own.iter().find(|one| one.period == period)?.source)
    }

    fn seal(&self, plain: &[u8], now: f64) -> Option<Vec<u8>> {
        let present = period_at(now);
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        match stored.iter().find(|one| one.period == present) {
            Some(shared) => shared.source.seal(present, plain),
            None => self.seal_alone(present, plain, now),
        }
    }

    fn open(&self, ticket: &[u8], now: f64) -> Option<Vec<u8>> {
        let ticket = SealedTicket::parse(ticket, now)?;
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        let mut shared = stored.iter().filter(|one| one.period == ticket.period);
        let opened = shared.find_map(|one| one.source.open(&ticket));
        opened.or_else(|| self.with_own(ticket.period, |source| source.open(&ticket)))
    }
}

#[derive(Debug)]
struct SharedTicketer {
    keys: Arc<TicketKeys>,
    clock: fn() -> f64,
}

impl ProducesTickets for SharedTicketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_PERIOD.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.seal(plain, (self.clock)())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.keys.open(ticket, (self.clock)())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The begin of a period.
    const BEGIN: f64 = (41_435 * PERIOD) as f64;
    const P: f64 = PERIOD as f64;

    /// A store that never forgets.
    #[derive(Default)]
    struct Store(HashMap<u64, TicketKey>);

    impl Store {
        /// What a proxy does with it about once a minute.
        fn exchange(&mut self, keys: &TicketKeys, now: f64) {
            let found = keys.offers(now).unwrap().into_iter().map(|offer| {
                let key = self.0.entry(offer.period).or_insert(offer.key).clone();
                (offer.period, key)
            });
            keys.put(found, now);
        }
    }

    fn opens(keys: &TicketKeys, ticket: &[u8], now: f64) -> bool {
        keys.open(ticket, now).is_some_and(|plain| plain == b"session")
    }

    #[test]
    fn proxies_on_a_store_open_each_others_tickets() {
        let (mut store, [one, other, stranger]) = (Store::default(), <[TicketKeys; 3]>::default());
        for keys in [&one, &other] {
            store.exchange(keys, BEGIN);
        }
        Store::default().exchange(&stranger, BEGIN);
        let ticket = one.seal(b"session", BEGIN).unwrap();
        assert!(opens(&one, &ticket, BEGIN) && opens(&other, &ticket, BEGIN));
        assert!(!opens(&stranger, &ticket, BEGIN));
        // One that starts in the next period, after a restart of all.
        let late = TicketKeys::default();
        store.exchange(&late, BEGIN + 1.5 * P);
        assert!(opens(&late, &ticket, BEGIN + 1.5 * P));
        store.exchange(&late, BEGIN + 2.0 * P);
        assert!(!opens(&late, &ticket, BEGIN + 2.0 * P));
    }

    #[test]
    fn before_the_store_answers_a_process_opens_its_own_tickets_and_later_too() {
        let keys = TicketKeys::default();
        let ticket = keys.seal(b"session", BEGIN).unwrap();
        assert!(opens(&keys, &ticket, BEGIN));
        assert!(!opens(&TicketKeys::default(), &ticket, BEGIN));
        Store::default().exchange(&keys, BEGIN);
        assert!(opens(&keys, &ticket, BEGIN + P));
        assert!(!opens(&keys, &ticket, BEGIN + 2.0 * P));
    }

    #[test]
    fn without_a_store_each_period_has_another_key_and_an_old_one_opens_for_its_time() {
        let keys = TicketKeys::default();
        let own_periods =
            || keys.own.read().unwrap().iter().map(|one| one.period).collect::<Vec<_>>();
        let first = keys.seal(b"session", BEGIN).unwrap();
        keys.seal(b"session", BEGIN + P - 1.0).unwrap();
        assert_eq!(own_periods(), [41_435]);
        let second = keys.seal(b"session", BEGIN + P).unwrap();
        assert_eq!(own_periods(), [41_435, 41_436]);
        assert!(opens(&keys, &first, BEGIN + P) && opens(&keys, &second, BEGIN + P));
        // What opens the one does not open the other: whatever gets hold of a key has the tickets of its period alone.
        let moved = [&41_436_u64.to_be_bytes()[..], &first[8..]].concat();
        assert!(!opens(&keys, &moved, BEGIN + P));
        let secret_of = |at: usize| keys.own.read().unwrap()[at].source.clone();
        let [old, new] = [0, 1].map(secret_of);
        let parsed = SealedTicket::parse(&first, BEGIN + P).unwrap();
        assert!(old.open(&parsed).is_some() && new.open(&parsed).is_none());

        assert!(!opens(&keys, &first, BEGIN + 2.0 * P) && opens(&keys, &second, BEGIN + 2.0 * P));
        keys.seal(b"session", BEGIN + 2.0 * P).unwrap();
        assert_eq!(own_periods(), [41_436, 41_437]);
    }

    #[test]
    fn few_keys_of_the_process_are_held_whatever_the_clock_says() {
        let keys = TicketKeys::default();
        let held = || keys.own.read().unwrap().len();
        for number in 0..50_u32 {
            // Forth, and back now and then.
            let now = BEGIN + P * f64::from(number % 7) + f64::from(number);
            let ticket = keys.seal(b"session", now).unwrap();
            assert!(opens(&keys, &ticket, now));
            assert!(held() <= 3, "{}", held());
        }
        for now in [0.0, -1.0, f64::NAN, f64::MAX] {
            let ticket = keys.seal(b"session", now).unwrap();
            assert!(opens(&keys, &ticket, now), "{now}");
        }
        // The store is there from now on.
        keys.put([(41_435, TicketKey::mint().unwrap())], BEGIN);
        assert_eq!(held(), 0);
    }

    #[test]
    fn each_period_has_a_key_of_its_own_which_is_there_before_it_begins() {
        let (mut store, [one, other]) = (Store::default(), <[TicketKeys; 2]>::default());
        store.exchange(&one, BEGIN + 0.4 * P);
        assert_eq!(store.0.len(), 2);
        for keys in [&one, &other] {
            store.exchange(keys, BEGIN + 0.5 * P);
        }
        assert_eq!(store.0.len(), 3);
        let keys: Vec<_> = store.0.values().collect();
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        // The store is away when the next one begins.
        let ticket = one.seal(b"session", BEGIN + P).unwrap();
        assert!(opens(&other, &ticket, BEGIN + P));
        // A clock that is not there yet.
        assert!(opens(&other, &ticket, BEGIN + P - 60.0));
    }

    #[test]
    fn a_key_that_the_store_has_lost_gets_back_to_it() {
        let (mut store, [one, other]) = (Store::default(), <[TicketKeys; 2]>::default());
        store.exchange(&one, BEGIN);
        let ticket = one.seal(b"session", BEGIN).unwrap();
        store.0.clear();
        store.exchange(&one, BEGIN + 60.0);
        store.exchange(&other, BEGIN + 120.0);
        assert!(opens(&other, &ticket, BEGIN + 120.0));
    }

    #[test]
    fn the_key_of_the_store_seals_and_the_one_that_it_replaces_opens() {
        let (mut store, mut next) = (Store::default(), Store::default());
        let [one, other] = <[TicketKeys; 2]>::default();
        store.exchange(&one, BEGIN);
        next.exchange(&other, BEGIN);
        let before = one.seal(b"session", BEGIN).unwrap();
        // It is moved to the other store.
        next.exchange(&one, BEGIN);
        assert!(opens(&one, &before, BEGIN));
        let after = one.seal(b"session", BEGIN).unwrap();
        assert!(opens(&other, &after, BEGIN));
    }

    #[test]
    fn keys_are_forgotten_after_their_time_and_beyond_the_bound() {
        let keys = TicketKeys::default();
        let held = || keys.stored.read().unwrap().len();
        for _ in 0..2 * KEYS_MAX {
            keys.put([(41_435, TicketKey::mint().unwrap())], BEGIN);
        }
        assert_eq!(held(), KEYS_MAX);
        keys.put([], BEGIN + P);
        assert_eq!(held(), KEYS_MAX);
        keys.put([], BEGIN + 2.0 * P);
        assert_eq!(held(), 0);
    }

    #[test]
    fn an_offer_lasts_until_tickets_of_the_next_period_end() {
        let keys = TicketKeys::default();
        let offered: Vec<_> = keys
            .offers(BEGIN + 1.0)
            .unwrap()
            .into_iter()
            .map(|offer| (offer.period, offer.lifetime.as_secs()))
            .collect();
        assert_eq!(offered, [(41_434, PERIOD - 1), (41_435, 2 * PERIOD - 1)]);
        for now in [0.0, -1.0, f64::NAN] {
            assert_eq!(keys.offers(now).unwrap().len(), 1, "{now}");
        }
    }

    #[test]
    fn what_a_store_holds_is_a_key_or_is_not() {
        let key = TicketKey::mint().unwrap();
        assert_eq!(TicketKey::from_store(key.expose()), Some(key));
        assert_eq!(TicketKey::from_store(&[0; TICKET_KEY_LEN - 1]), None);
        assert_eq!(TicketKey::from_store(&[0; TICKET_KEY_LEN + 1]), None);
    }

    #[test]
    fn debug_shows_no_key() {
        let keys = TicketKeys::default();
        keys.put([(41_435, TicketKey([7; TICKET_KEY_LEN]))], BEGIN);
        let shown = format!("{keys:?} {:?}", keys.offers(BEGIN).unwrap());
        assert!(!shown.contains("7, 7"), "{shown}");
    }
}
