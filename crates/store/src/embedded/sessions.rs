//! The steps on the tables of sessions, views and carts.
//!
//! Everything here runs inside the caller's transaction.

use anteroom_http::clock::FAR;
use anteroom_http::ident::{Item, StoredToken, User, is_token};
use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata as _};

use super::keys::{Bytes, bytes_of};
use super::record::{Record, time_bits, time_of};
use super::tables::{CART, RECENT, SESSION, Tables};
use crate::{
    CART_MAX, Cart, CartAnswer, CartChange, CartOwner, EndedCarts, Eviction, POPULARITY_MAX,
    Rescaling, Rotation, RotationResult, Visit,
};

/// Sorts behind every item: no UTF-8 text begins with this byte.
const AFTER_ITEMS: &[u8] = &[0xff];

impl Tables<'_> {
    /// A login, or a visit as in the chapter's layout (Redis in Action, chapter 2).
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

    /// Renews a session, unless it is gone or another user's: a queued visit must not restore what
    /// a logout or the cleaner removed.
    pub(super) fn touch_all(&mut self, visits: &[Visit]) -> Result<Vec<bool>, redb::Error> {
        let mut recorded = vec![false; visits.len()];
        let mut answers: Vec<_> = visits.iter().zip(&mut recorded).collect();
        // PERF: neighbours share blocks of the tables.
        answers.sort_unstable_by(|(a, _), (b, _)| a.token.cmp(&b.token));
        for (visit, recorded) in answers {
            *recorded = self.touch(visit)?;
        }
        Ok(recorded)
    }

    fn touch(&mut self, visit: &Visit) -> Result<bool, redb::Error> {
        let Visit { token, user, seen, items } = visit;
        let Some(owner) = self.owner(bytes_of(token))?.filter(|owner| owner.is_same(user)) else {
            return Ok(false);
        };
        // The stored user, as it is now, is written back, and not the user of the queued visit.
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

    /// Writes a session: its user, the time, and its views, added to what it had before. A time in
    /// `recent:` never goes back. A session that is new, another user's, or without a known login
    /// begins here.
    fn renew(
        &mut self,
        token: &[u8],
        user: &User,
        seen: f64,
        views: &[(Item, f64)],
    ) -> Result<(), redb::Error> {
        self.write(token, user, None, seen, views, &[])
    }

    /// The same, for a login at `since`, if it is one; and, if it has no views, with the views of
    /// the record that it takes over.
    fn write(
        &mut self,
        token: &[u8],
        user: &User,
        since: Option<f64>,
        seen: f64,
        views: &[(Item, f64)],
        taken_over: &[u8],
    ) -> Result<(), redb::Error> {
        let (before, seen, value, is_same, was) = {
            let stored = self.session.get(token)?;
            let known = stored.as_ref().and_then(|stored| Record::read(stored.value()));
            let before = known.as_ref().map(|known| known.seen);
            let mut record = known.unwrap_or_default();
            if record.items.is_empty() {
                record.items = Record::read(taken_over).unwrap_or_default().items;
            }
            let is_same = record.since > 0 && name_of(record.user) == user.as_bytes();
            let was = (before.is_some() && !is_same).then(|| name_of(record.user).to_vec());
            record.since = match since {
                Some(since) => time_bits(since),
                None if is_same => record.since,
                None => time_bits(seen),
            };
            record.user = user.as_stored();
            record.seen = record.seen.max(time_bits(seen));
            record.view(views, self.viewed_items);
            (before, record.seen, record.write(), is_same, was)
        };
        if let Some(was) = was {
            self.tokens.remove((was.as_slice(), token))?;
        }
        if !is_same {
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
        owner: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, redb::Error> {
        let token = &owner.token;
        let holds = self.live(bytes_of(token), &owner.terms)?;
        let Some(user) =
            holds.filter(|user| owner.user.as_ref().is_none_or(|wanted| wanted.is_same(user)))
        else {
            return Ok(CartAnswer::NotLoggedIn);
        };
        self.renew(bytes_of(token), &user, owner.now, &[])?;
        if !self.set_cart(token, change, CART_MAX)? {
            return Ok(CartAnswer::Full);
        }
        read_cart(&self.cart, token).map(CartAnswer::Changed)
    }

    /// Changes the cart under a token; false if it would hold too many items: then nothing is
    /// changed.
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

    /// Whether a cart would grow beyond its limit.
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
        // After a clock was set back by a whole period, a new period begins.
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

    pub(super) fn rotate(&mut self, rotation: &Rotation) -> Result<RotationResult, redb::Error> {
        let Rotation { old, new: session, user, now, most, expiry_action, visitor } = rotation;
        let new = bytes_of(session);
        let (expiry_action, mut ended_carts) = (expiry_action.as_ref(), EndedCarts::default());
        if self.owner(new)?.is_some_and(|other| !other.is_same(user)) {
            // Another user's session under the new token: none of its data may pass to this one.
            self.dismiss(new, expiry_action, &mut ended_carts)?;
        }
        let mut taken_over = Vec::new();
        if let Some(old) = old.as_ref().map(bytes_of).filter(|old| *old != new) {
            if self.owner(old)?.is_some_and(|before| before.is_same(user)) {
                taken_over = self.session.get(old)?.map_or(taken_over, |old| old.value().to_vec());
                self.hand_cart_over(old, new)?;
            }
            self.dismiss(old, expiry_action, &mut ended_carts)?;
        }
        self.write(new, user, Some(*now), *now, &[], &taken_over)?;
        if let Some(visitor) = visitor {
            self.join_visitor(visitor, session)?;
        }
        let too_many = self.too_many(user, new, *most)?;
        for token in &too_many {
            self.dismiss(token, expiry_action, &mut ended_carts)?;
            self.tokens.remove((user.as_bytes(), token.as_slice()))?;
        }
        let gone = too_many.iter().filter_map(|token| StoredToken::from_store(token)).collect();
        Ok(RotationResult { gone, ended_carts })
    }

    /// Moves one token's cart to another, unless that has one.
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

    /// Removes a session's record and its index entry; returns the bits of the time when it was
    /// last seen.
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

    /// As [`crate::ExpiryStore::correct_times`].
    pub(super) fn correct_times(&mut self, now: f64, batch: u32) -> Result<usize, redb::Error> {
        let (now, last) = (time_bits(now), time_bits(now + FAR));
        let late = self.recent.range((last + 1, &[][..])..)?.take(batch as usize);
        let late: Vec<_> = late
            .map(|entry| entry.map(|(key, _)| (key.value().0, key.value().1.to_vec())))
            .collect::<Result<_, _>>()?;
        for (seen, token) in &late {
            self.recent.remove((*seen, token.as_slice()))?;
            let stored = self.session.get(token.as_slice())?;
            let record = stored.as_ref().and_then(|stored| Record::read(stored.value()));
            let corrected = record.map(|record| Record { seen: now, ..record }.write());
            drop(stored);
            if let Some(corrected) = corrected {
                self.session.insert(token.as_slice(), corrected.as_slice())?;
                self.recent.insert((now, token.as_slice()), ())?;
            }
        }
        Ok(late.len())
    }
}

/// Whether the time of a session must be corrected.
pub(super) fn has_wrong_times(txn: &ReadTransaction, now: f64) -> Result<bool, redb::Error> {
    let newest = txn.open_table(RECENT)?.last()?.map(|(newest, _)| newest.value().0);
    Ok(newest.is_some_and(|seen| seen > time_bits(now + FAR)))
}

/// The user's name in a record.
pub(super) fn name_of(user: &[u8]) -> &[u8] {
    user.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The key range of a token's cart.
pub(super) fn cart_of(token: &[u8]) -> std::ops::Range<(&[u8], &[u8])> {
    (token, &[])..(token, AFTER_ITEMS)
}

/// The user of a token.
pub(super) fn user_of(
    txn: &ReadTransaction,
    token: &StoredToken,
) -> Result<Option<User>, redb::Error> {
    let stored = txn.open_table(SESSION)?.get(bytes_of(token))?;
    Ok(stored.and_then(|stored| Record::user_of(stored.value()).and_then(User::from_store)))
}

/// The contents of a token's cart.
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
