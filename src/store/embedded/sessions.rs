//! Sessions, views and carts as tables, and what each step does to them.
//!
//! Everything here happens inside one transaction that somebody else begins and commits.

use std::path::Path;

use redb::{
    Durability, ReadTransaction, ReadableTable, ReadableTableMetadata as _, Table, TableDefinition,
    WriteTransaction,
};

use super::barred::BarTables;
use super::disk::Disk;
use super::events::{EVENTS, IDLE_TOLD};
use super::expiring::EXPIRING;
use super::record::{Record, time_bits, time_of};
use super::rows::{self, RowTables};
use super::visitors::{self, VisitorTables};
use super::writer::Ledger;
use crate::ident::{Item, StoredToken, User, is_token};
use crate::store::OpenError;
use crate::store::{
    CART_MAX, Cart, CartAnswer, CartChange, CartOwner, Eviction, POPULARITY_MAX, Parted, Rescaling,
    Rotated, Rotation, Visit,
};

/// The format of the whole file. Another one is refused, not guessed at.
const FORMAT: u64 = 2;
/// An earlier one that is read, and becomes this: records without their log-in, and no index of users.
const UNDATED_FORMAT: u64 = 1;

// Keys are bytes, not text: a damaged file must not be able to hand us invalid UTF-8 as `str`.
pub(super) type Bytes = &'static [u8];
/// What the file says of itself.
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Token to its [`Record`]: `login:`, the scores of `recent:`, and `viewed:<token>`.
pub(super) const SESSION: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("session");
/// The bits of the time when it was last seen and the token, oldest first: `recent:`.
pub(super) const RECENT: TableDefinition<'static, (u64, Bytes), ()> =
    TableDefinition::new("recent");
/// A user's name and the tokens of his sessions: `tokens:<user>`. When they logged in is in the records.
pub(super) const TOKENS: TableDefinition<'static, (Bytes, Bytes), ()> =
    TableDefinition::new("tokens");
/// Token and item to count: `cart:<token>`.
const CART: TableDefinition<'static, (Bytes, Bytes), i64> = TableDefinition::new("cart");
/// Item to score, minus one a view: `viewed:`.
pub(super) const POPULARITY: TableDefinition<'static, Bytes, f64> =
    TableDefinition::new("popularity");

/// Sorts behind every item: no UTF-8 text begins with this byte.
const AFTER_ITEMS: &[u8] = &[0xff];

/// The tables of sessions.
#[derive(Debug)]
pub(super) struct SessionLedger {
    viewed_items: usize,
}

impl SessionLedger {
    pub(super) fn new(viewed_items: u32) -> Self {
        Self { viewed_items: usize::try_from(viewed_items).unwrap_or(usize::MAX) }
    }
}

impl Ledger for SessionLedger {
    type Tables<'t> = Tables<'t>;

    fn open<'t>(&self, txn: &'t WriteTransaction) -> Result<Tables<'t>, redb::Error> {
        Tables::open(txn, self.viewed_items)
    }

    fn keep_house(&mut self, _txn: &WriteTransaction) -> Result<bool, redb::Error> {
        Ok(false)
    }

    fn recover(&mut self, disk: &Disk) -> Result<(), redb::Error> {
        disk.reopen()
    }
}

/// All tables, open for one transaction.
pub(super) struct Tables<'t> {
    meta: Table<'t, &'static str, u64>,
    pub(super) session: Table<'t, Bytes, Bytes>,
    pub(super) recent: Table<'t, (u64, Bytes), ()>,
    pub(super) tokens: Table<'t, (Bytes, Bytes), ()>,
    pub(super) cart: Table<'t, (Bytes, Bytes), i64>,
    pub(super) expiring: Table<'t, u64, Bytes>,
    pub(super) events: Table<'t, u64, Bytes>,
    pub(super) idle_told: Table<'t, &'static str, (u64, Bytes)>,
    popularity: Table<'t, Bytes, f64>,
    pub(super) barred: BarTables<'t>,
    pub(super) rows: RowTables<'t>,
    pub(super) visitors: VisitorTables<'t>,
    pub(super) viewed_items: usize,
}

impl<'t> Tables<'t> {
    fn open(txn: &'t WriteTransaction, viewed_items: usize) -> Result<Self, redb::Error> {
        Ok(Self {
            meta: txn.open_table(META)?,
            session: txn.open_table(SESSION)?,
            recent: txn.open_table(RECENT)?,
            tokens: txn.open_table(TOKENS)?,
            cart: txn.open_table(CART)?,
            expiring: txn.open_table(EXPIRING)?,
            events: txn.open_table(EVENTS)?,
            idle_told: txn.open_table(IDLE_TOLD)?,
            popularity: txn.open_table(POPULARITY)?,
            barred: BarTables::open(txn)?,
            rows: RowTables::open(txn)?,
            visitors: VisitorTables::open(txn)?,
            viewed_items,
        })
    }

    /// A log-in, or a visit as the book has it.
    pub(super) fn update(
        &mut self,
        token: &StoredToken,
        user: &User,
        item: Option<Item>,
        now: f64,
    ) -> Result<(), redb::Error> {
        let views: Vec<_> = item.into_iter().map(|item| (item, now)).collect();
        self.renew(bytes_of(token), user, now, &views)?;
        views.iter().try_for_each(|(item, _)| self.count(item, 1))
    }

    /// Renews a session, unless it is gone or somebody else's by now: a queued visit must not
    /// bring back what a log-out or the cleaner removed.
    pub(super) fn touch_all(&mut self, visits: &[Visit]) -> Result<Vec<bool>, redb::Error> {
        let mut held = vec![false; visits.len()];
        let mut answers: Vec<_> = visits.iter().zip(&mut held).collect();
        // PERF: neighbours share blocks of the tables.
        answers.sort_unstable_by(|(a, _), (b, _)| a.token.cmp(&b.token));
        for (visit, held) in answers {
            *held = self.touch(visit)?;
        }
        Ok(held)
    }

    fn touch(&mut self, visit: &Visit) -> Result<bool, redb::Error> {
        let Visit { token, user, seen, items } = visit;
        let Some(owner) = self.owner(bytes_of(token))?.filter(|owner| owner.is_same(user)) else {
            return Ok(false);
        };
        // Of him as he is now, whatever was said of him when the visit was seen.
        self.renew(bytes_of(token), &owner, *seen, items)?;
        Ok(true)
    }

    /// What a token viewed, the newest first.
    pub(super) fn views(&self, token: &StoredToken) -> Result<Vec<(Item, f64)>, redb::Error> {
        let stored = self.session.get(bytes_of(token))?;
        Ok(stored.map(|stored| views_in(stored.value())).unwrap_or_default())
    }

    pub(super) fn owner(&self, token: &[u8]) -> Result<Option<User>, redb::Error> {
        let stored = self.session.get(token)?;
        Ok(stored.and_then(|stored| Record::user_of(stored.value()).and_then(User::from_store)))
    }

    /// Writes a session: whose it is, that it was seen, what it viewed, with what it had before.
    /// `recent:` never goes back in time. One that is new, another's by now, or whose log-in is not
    /// known, begins here.
    fn renew(
        &mut self,
        token: &[u8],
        user: &User,
        seen: f64,
        views: &[(Item, f64)],
    ) -> Result<(), redb::Error> {
        self.write(token, (user, None), seen, (views, &[]))
    }

    /// The same, for a log-in at `since`, if it is one; and, if it had viewed nothing, with the views of
    /// the record that it takes over.
    fn write(
        &mut self,
        token: &[u8],
        (user, since): (&User, Option<f64>),
        seen: f64,
        (views, taken_over): (&[(Item, f64)], &[u8]),
    ) -> Result<(), redb::Error> {
        let (before, seen, value, was) = {
            let stored = self.session.get(token)?;
            let known = stored.as_ref().and_then(|stored| Record::read(stored.value()));
            let before = known.as_ref().map(|known| known.seen);
            let mut record = known.unwrap_or_default();
            if record.items.is_empty() {
                record.items = Record::read(taken_over).unwrap_or_default().items;
            }
            let is_same = record.since > 0 && name_of(record.user) == user.as_bytes();
            let was = (!is_same).then(|| name_of(record.user).to_vec());
            record.since = match since {
                Some(since) => time_bits(since),
                None if is_same => record.since,
                None => time_bits(seen),
            };
            record.user = user.as_stored();
            record.seen = record.seen.max(time_bits(seen));
            record.view(views, self.viewed_items);
            (before, record.seen, record.write(), was)
        };
        if let Some(was) = was {
            self.tokens.remove((was.as_slice(), token))?;
            self.tokens.insert((user.as_bytes(), token), ())?;
        }
        self.session.insert(token, value.as_slice())?;
        if before != Some(seen) {
            if let Some(before) = before {
                self.recent.remove((before, token))?;
            }
            self.recent.insert((seen, token), ())?;
        }
        Ok(())
    }

    pub(super) fn count(&mut self, item: &Item, views: u64) -> Result<(), redb::Error> {
        let item = item.as_str().as_bytes();
        let known = self.popularity.get(item)?.map(|score| score.value());
        if known.is_none() && self.popularity.len()? >= POPULARITY_MAX {
            return Ok(());
        }
        let score = known.unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "scores are floats, as in Redis")]
        self.popularity.insert(item, score - views as f64)?;
        Ok(())
    }

    pub(super) fn put_in_cart(
        &mut self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> Result<(), redb::Error> {
        let place = (bytes_of(token), item.as_str().as_bytes());
        if count > 0 {
            self.cart.insert(place, count)?;
        } else {
            self.cart.remove(place)?;
        }
        Ok(())
    }

    pub(super) fn change_cart(
        &mut self,
        whose: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, redb::Error> {
        let token = &whose.token;
        let holds = self.live(bytes_of(token), &whose.terms)?;
        let Some(user) =
            holds.filter(|user| whose.user.as_ref().is_none_or(|told| told.is_same(user)))
        else {
            return Ok(CartAnswer::NotLoggedIn);
        };
        self.renew(bytes_of(token), &user, whose.now, &[])?;
        if !self.set_cart(token, change, CART_MAX)? {
            return Ok(CartAnswer::Full);
        }
        read_cart(&self.cart, token).map(CartAnswer::Changed)
    }

    /// Changes the cart under a token; false where it would hold too many, and nothing is changed.
    pub(super) fn set_cart(
        &mut self,
        token: &StoredToken,
        change: &CartChange,
        most: usize,
    ) -> Result<bool, redb::Error> {
        match change {
            CartChange::Empty => self.cart.retain_in(cart_of(bytes_of(token)), |_, _| false)?,
            CartChange::Set(items) => {
                if self.would_overflow(token, items, most)? {
                    return Ok(false);
                }
                for (item, count) in items {
                    self.put_in_cart(token, item, *count)?;
                }
            }
        }
        Ok(true)
    }

    /// Whether a cart would grow, and hold more items than it may.
    fn would_overflow(
        &self,
        token: &StoredToken,
        items: &[(Item, i64)],
        most: usize,
    ) -> Result<bool, redb::Error> {
        let (mut size, mut grows) = (self.cart.range(cart_of(bytes_of(token)))?.count(), false);
        for (item, count) in items {
            let is_there = self.cart.get((bytes_of(token), item.as_str().as_bytes()))?.is_some();
            match (*count > 0, is_there) {
                (true, false) => (size, grows) = (size + 1, true),
                (false, true) => size = size.saturating_sub(1),
                (true, true) | (false, false) => {}
            }
        }
        Ok(grows && size > most)
    }

    pub(super) fn rescale(&mut self, how: Rescaling) -> Result<bool, redb::Error> {
        let last = self.meta.get("rescaled")?.map(|at| time_of(at.value()));
        let (since, every) = (last.map(|last| how.now - last), how.every.as_secs_f64());
        // A clock that was set back by a whole period begins anew.
        if since.is_some_and(|since| since < every && since > -every) {
            return Ok(false);
        }
        self.meta.insert("rescaled", time_bits(how.now))?;
        if since.is_none_or(|since| since < 0.0) {
            return Ok(false);
        }
        let mut scores = Vec::new();
        for entry in self.popularity.iter()? {
            let (item, score) = entry?;
            scores.push((score.value(), item.value().to_vec()));
        }
        scores.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        for (rank, (score, item)) in scores.iter().enumerate() {
            if (rank as u64) < how.keep_top {
                self.popularity.insert(item.as_slice(), score * how.factor)?;
            } else {
                self.popularity.remove(item.as_slice())?;
            }
        }
        Ok(true)
    }

    pub(super) fn rotate(&mut self, rotation: &Rotation) -> Result<Rotated, redb::Error> {
        let Rotation { old, new: session, user, now, most, farewell, visitor } = rotation;
        let new = bytes_of(session);
        let (farewell, mut parted) = (farewell.as_ref(), Parted::default());
        if self.owner(new)?.is_some_and(|other| !other.is_same(user)) {
            // Another user's session under the new token: nothing of it may pass to this one.
            self.dismiss(new, farewell, &mut parted)?;
        }
        let mut taken_over = Vec::new();
        if let Some(old) = old.as_ref().map(bytes_of).filter(|old| *old != new) {
            if self.owner(old)?.is_some_and(|before| before.is_same(user)) {
                taken_over = self.session.get(old)?.map_or(taken_over, |old| old.value().to_vec());
                self.hand_cart_over(old, new)?;
            }
            self.dismiss(old, farewell, &mut parted)?;
        }
        self.write(new, (user, Some(*now)), *now, (&[], &taken_over))?;
        if let Some(visitor) = visitor {
            self.join_visitor(visitor, session)?;
        }
        let too_many = self.too_many(user, new, *most)?;
        for token in &too_many {
            self.dismiss(token, farewell, &mut parted)?;
            self.tokens.remove((user.as_bytes(), token.as_slice()))?;
        }
        let gone = too_many.iter().filter_map(|token| StoredToken::from_store(token)).collect();
        Ok(Rotated { gone, parted })
    }

    /// Gives one token's cart to another, unless that has one.
    fn hand_cart_over(&mut self, old: &[u8], new: &[u8]) -> Result<(), redb::Error> {
        if self.cart.range(cart_of(new))?.next().is_some() {
            return Ok(());
        }
        let mut cart = Vec::new();
        for entry in self.cart.range(cart_of(old))? {
            let (place, count) = entry?;
            cart.push((place.value().1.to_vec(), count.value()));
        }
        for (item, count) in cart {
            self.cart.insert((new, item.as_slice()), count)?;
        }
        self.cart.retain_in(cart_of(old), |_, _| false)?;
        Ok(())
    }

    pub(super) fn revoke(&mut self, token: &[u8]) -> Result<(), redb::Error> {
        if let Some(seen) = self.remove(token)? {
            self.recent.remove((seen, token))?;
        }
        self.cart.retain_in(cart_of(token), |_, _| false)?;
        Ok(())
    }

    /// Removes a session's record, and what says whose it was; returns the bits of the time when it was
    /// seen.
    pub(super) fn remove(&mut self, token: &[u8]) -> Result<Option<u64>, redb::Error> {
        let stored = self.session.remove(token)?;
        let Some(known) = stored.as_ref().and_then(|stored| Record::head_of(stored.value())) else {
            return Ok(None);
        };
        self.tokens.remove((name_of(known.user), token))?;
        Ok(Some(known.seen))
    }

    pub(super) fn evict(&mut self, how: Eviction) -> Result<usize, redb::Error> {
        let over = self.recent.len()?.saturating_sub(how.keep);
        let mut evicted = 0;
        while evicted < how.batch as usize {
            let oldest = self.recent.first()?.map(|(oldest, _)| oldest.value().0);
            if !oldest.is_some_and(|seen| (evicted as u64) < over || seen < time_bits(how.before)) {
                break;
            }
            let oldest = self.recent.pop_first()?.map(|(oldest, _)| oldest.value().1.to_vec());
            let Some(token) = oldest else { break };
            evicted += 1;
            self.remove(&token)?;
            if how.carts && is_token(&token) {
                self.cart.retain_in(cart_of(&token), |_, _| false)?;
            }
        }
        Ok(evicted)
    }
}

pub(super) fn bytes_of(token: &StoredToken) -> &[u8] {
    token.as_str().as_bytes()
}

/// The name of the user that a record holds.
pub(super) fn name_of(user: &[u8]) -> &[u8] {
    user.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Everything in a token's cart.
pub(super) fn cart_of(token: &[u8]) -> std::ops::Range<(&[u8], &[u8])> {
    (token, &[])..(token, AFTER_ITEMS)
}

/// Makes the tables, and checks that the file has our format.
pub(super) fn prepare(disk: &Disk, folder: &Path) -> Result<(), OpenError> {
    let found = found_format(disk).map_err(|error| OpenError::Unreadable {
        folder: folder.to_owned(),
        source: Box::new(error),
    })?;
    if !matches!(found, FORMAT | UNDATED_FORMAT) {
        return Err(OpenError::Format { folder: folder.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

fn found_format(disk: &Disk) -> Result<u64, redb::Error> {
    let txn = disk.begin(Durability::Immediate)?;
    let mut meta = txn.open_table(META)?;
    let found = meta.get("format")?.map(|format| format.value());
    if matches!(found, None | Some(UNDATED_FORMAT)) {
        meta.insert("format", FORMAT)?;
    }
    drop(meta);
    drop(Tables::open(&txn, 0)?);
    txn.commit()?;
    Ok(found.unwrap_or(FORMAT))
}

/// The user of a token.
pub(super) fn user_of(
    txn: &ReadTransaction,
    token: &StoredToken,
) -> Result<Option<User>, redb::Error> {
    let stored = txn.open_table(SESSION)?.get(bytes_of(token))?;
    Ok(stored.and_then(|stored| Record::user_of(stored.value()).and_then(User::from_store)))
}

/// What a token's cart holds.
pub(super) fn cart(txn: &ReadTransaction, token: &StoredToken) -> Result<Cart, redb::Error> {
    read_cart(&txn.open_table(CART)?, token)
}

pub(super) fn read_cart(
    carts: &impl ReadableTable<(Bytes, Bytes), i64>,
    token: &StoredToken,
) -> Result<Cart, redb::Error> {
    let mut cart = Vec::new();
    for entry in carts.range(cart_of(bytes_of(token)))?.take(CART_MAX) {
        let (place, count) = entry?;
        cart.extend(item_of(place.value().1).map(|item| (item, count.value())));
    }
    Ok(cart)
}

/// What a token viewed, the newest first.
pub(super) fn viewed(
    txn: &ReadTransaction,
    token: &StoredToken,
) -> Result<Vec<(Item, f64)>, redb::Error> {
    let stored = txn.open_table(SESSION)?.get(bytes_of(token))?;
    Ok(stored.map(|stored| views_in(stored.value())).unwrap_or_default())
}

/// The views of a stored record, the newest first.
pub(super) fn views_in(stored: &[u8]) -> Vec<(Item, f64)> {
    let items = Record::read(stored).unwrap_or_default().items;
    let item = |(seen, item): &(u64, &[u8])| Some((item_of(item)?, time_of(*seen)));
    items.iter().rev().filter_map(item).collect()
}

fn item_of(bytes: &[u8]) -> Option<Item> {
    std::str::from_utf8(bytes).ok().and_then(Item::new)
}

/// Every key and member, one a line, as they would stand in Redis.
pub(super) fn dump_keys(txn: &ReadTransaction) -> Result<Vec<String>, redb::Error> {
    let mut lines = Vec::new();
    let mut say = |key: &str, token: &[u8], member: &[u8]| {
        let (token, member) = (String::from_utf8_lossy(token), String::from_utf8_lossy(member));
        lines.push(format!("{key}{token} {member}"));
    };
    for entry in txn.open_table(RECENT)?.iter()? {
        say("recent:", &[], entry?.0.value().1);
    }
    for entry in txn.open_table(SESSION)?.iter()? {
        let (token, stored) = entry?;
        say("login:", &[], token.value());
        for (_, item) in Record::read(stored.value()).unwrap_or_default().items {
            say("viewed:", token.value(), item);
        }
    }
    for entry in txn.open_table(TOKENS)?.iter()? {
        let (place, _) = entry?;
        let (user, token) = place.value();
        say("tokens:", user, token);
    }
    for entry in txn.open_table(CART)?.iter()? {
        let (place, _) = entry?;
        let (token, item) = place.value();
        say("cart:", token, item);
    }
    for entry in txn.open_table(EXPIRING)?.iter()? {
        say("expiring:", &[], entry?.1.value());
    }
    for entry in txn.open_table(EVENTS)?.iter()? {
        say("cartevents:", &[], entry?.1.value());
    }
    for entry in txn.open_table(IDLE_TOLD)?.iter()? {
        say("cartidle:", &[], entry?.1.value().1);
    }
    for entry in txn.open_table(POPULARITY)?.iter()? {
        say("viewed:", &[], entry?.0.value());
    }
    rows::dump_keys(txn, &mut say)?;
    visitors::dump_keys(txn, &mut say)?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_junk_member_of_recent_is_removed_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path().join("s.redb"), 1 << 20).unwrap();
        prepare(&disk, folder.path()).unwrap();
        let txn = disk.begin(Durability::None).unwrap();
        let mut tables = Tables::open(&txn, 25).unwrap();
        tables.session.insert(b"".as_slice(), b"".as_slice()).unwrap();
        tables.recent.insert((0, b"".as_slice()), ()).unwrap();
        tables.popularity.insert(b"item".as_slice(), -1.0).unwrap();
        tables.cart.insert((b"".as_slice(), b"item".as_slice()), 1).unwrap();

        let how = Eviction { keep: 0, batch: 100, carts: true, before: 0.0 };
        assert_eq!(tables.evict(how).unwrap(), 1);

        assert!(tables.recent.is_empty().unwrap() && tables.session.is_empty().unwrap());
        assert_eq!(tables.popularity.len().unwrap(), 1);
        assert_eq!(tables.cart.len().unwrap(), 1);
    }
}
