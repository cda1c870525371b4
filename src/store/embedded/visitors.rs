//! Visitors' tokens as tables, and what each step does to them.
//!
//! Like `sessions`: everything here happens inside one transaction that somebody else begins. Carts stand
//! beside those of sessions, under names that no session has.

use redb::{
    ReadTransaction, ReadableTable as _, ReadableTableMetadata as _, Table, TableDefinition,
    WriteTransaction,
};

use super::EmbeddedStore;
use super::record::{Record, time_bits};
use super::sessions::{self, Bytes, Tables, bytes_of, cart_of, read_cart, views_in};
use crate::ident::{Item, StoredToken, User, VisitorToken};
use crate::store::{
    Begins, CART_MAX, Cart, CartAnswer, CartChange, Merged, StoreError, VISITOR_CART_MAX,
    VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};

/// Token to its [`Record`], which has no user: `viewed:<token>`, and the scores of `visitors:`.
const VISITOR: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("visitor");
/// The bits of the time when it was last seen and the token, oldest first: `visitors:`.
const VISITORS: TableDefinition<'static, (u64, Bytes), ()> = TableDefinition::new("visitors");

/// The tables, open for one transaction.
pub(super) struct VisitorTables<'t> {
    record: Table<'t, Bytes, Bytes>,
    seen: Table<'t, (u64, Bytes), ()>,
}

impl<'t> VisitorTables<'t> {
    pub(super) fn open(txn: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self { record: txn.open_table(VISITOR)?, seen: txn.open_table(VISITORS)? })
    }

    fn has(&self, token: &VisitorToken) -> Result<bool, redb::Error> {
        Ok(self.record.get(bytes_of(token.as_stored()))?.is_some())
    }

    /// Writes that a token's visitor was seen, and what he viewed, with what he had before. It begins here
    /// where it is not known. When it was seen never goes back in time.
    fn renew(
        &mut self,
        token: &VisitorToken,
        seen: f64,
        views: &[(Item, f64)],
        keep: usize,
    ) -> Result<(), redb::Error> {
        let token = bytes_of(token.as_stored());
        let (before, seen, value) = {
            let stored = self.record.get(token)?;
            let known = stored.as_ref().and_then(|stored| Record::read(stored.value()));
            let before = known.as_ref().map(|known| known.seen);
            let mut record = known.unwrap_or_default();
            record.seen = record.seen.max(time_bits(seen));
            record.view(views, keep);
            (before, record.seen, record.write())
        };
        self.record.insert(token, value.as_slice())?;
        if before != Some(seen) {
            if let Some(before) = before {
                self.seen.remove((before, token))?;
            }
            self.seen.insert((seen, token), ())?;
        }
        Ok(())
    }

    /// Removes a token's record, and returns it.
    fn remove(&mut self, token: &VisitorToken) -> Result<Option<Vec<u8>>, redb::Error> {
        let token = bytes_of(token.as_stored());
        let Some(stored) = self.record.remove(token)?.map(|stored| stored.value().to_vec()) else {
            return Ok(None);
        };
        if let Some(known) = Record::head_of(&stored) {
            self.seen.remove((known.seen, token))?;
        }
        Ok(Some(stored))
    }

    /// The token that was not seen for the longest, where it is over the limit.
    fn oldest_over(&self, how: VisitorEviction) -> Result<Option<(u64, Vec<u8>)>, redb::Error> {
        let is_over = self.seen.len()? > how.keep;
        let oldest = self.seen.first()?.map(|(place, _)| {
            let (seen, token) = place.value();
            (seen, token.to_vec())
        });
        Ok(oldest.filter(|(seen, _)| is_over || *seen < time_bits(how.before)))
    }
}

impl Tables<'_> {
    fn touch_visitors(&mut self, visits: &[VisitorVisit]) -> Result<Vec<bool>, redb::Error> {
        let mut held = Vec::with_capacity(visits.len());
        for VisitorVisit { token, seen, items } in visits {
            let is_there = self.visitors.has(token)?;
            if is_there {
                self.visitors.renew(token, *seen, items, self.viewed_items)?;
            }
            held.push(is_there);
        }
        Ok(held)
    }

    fn change_visitor_cart(
        &mut self,
        token: &VisitorToken,
        begins: Begins,
        change: &CartChange,
        now: f64,
    ) -> Result<CartAnswer, redb::Error> {
        if begins == Begins::Before && !self.visitors.has(token)? {
            return Ok(CartAnswer::NotLoggedIn);
        }
        let stored = token.as_stored();
        if !self.set_cart(stored, change, VISITOR_CART_MAX)? {
            return Ok(CartAnswer::Full);
        }
        self.visitors.renew(token, now, &[], self.viewed_items)?;
        read_cart(&self.cart, stored).map(CartAnswer::Changed)
    }

    fn merge_visitor(
        &mut self,
        token: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> Result<Merged, redb::Error> {
        let owner = self.owner(bytes_of(session))?;
        if !owner.is_some_and(|owner| owner.is_same(user)) {
            return Ok(Merged::NoSession);
        }
        self.join_visitor(token, session)
    }

    /// Gives all that a token has to a session that is there, and removes the token.
    pub(super) fn join_visitor(
        &mut self,
        token: &VisitorToken,
        session: &StoredToken,
    ) -> Result<Merged, redb::Error> {
        let Some(stored) = self.visitors.remove(token)? else { return Ok(Merged::Nothing) };
        let cart = read_cart(&self.cart, token.as_stored())?;
        self.join_cart(session, cart)?;
        self.cart.retain_in(cart_of(bytes_of(token.as_stored())), |_, _| false)?;
        let views = views_in(&stored);
        if !views.is_empty() {
            let joined = {
                let known = self.session.get(bytes_of(session))?;
                known.as_ref().and_then(|known| Record::read(known.value())).map(|mut record| {
                    record.view(&views, self.viewed_items);
                    record.write()
                })
            };
            if let Some(joined) = joined {
                self.session.insert(bytes_of(session), joined.as_slice())?;
            }
        }
        Ok(Merged::Done)
    }

    /// Puts into a session's cart what another cart holds, as far as there is room: of an item that is in both
    /// the larger count.
    fn join_cart(&mut self, session: &StoredToken, cart: Cart) -> Result<(), redb::Error> {
        let mut size = self.cart.range(cart_of(bytes_of(session)))?.count();
        for (item, count) in cart {
            let place = (bytes_of(session), item.as_str().as_bytes());
            let own = self.cart.get(place)?.map(|own| own.value());
            match own {
                None if size >= CART_MAX => {}
                None => {
                    self.cart.insert(place, count)?;
                    size += 1;
                }
                Some(own) => {
                    self.cart.insert(place, own.max(count))?;
                }
            }
        }
        Ok(())
    }

    fn forget_visitor(&mut self, token: &VisitorToken) -> Result<(), redb::Error> {
        self.visitors.remove(token)?;
        self.cart.retain_in(cart_of(bytes_of(token.as_stored())), |_, _| false)?;
        Ok(())
    }

    fn evict_visitors(&mut self, how: VisitorEviction) -> Result<VisitorsEvicted, redb::Error> {
        let mut evicted = VisitorsEvicted::default();
        while evicted.removed < how.batch as usize {
            let Some((seen, member)) = self.visitors.oldest_over(how)? else { break };
            if let Some(token) = VisitorToken::from_store(&member) {
                self.forget_visitor(&token)?;
            }
            // Also where its record says another time, or there is none.
            self.visitors.seen.remove((seen, member.as_slice()))?;
            evicted.removed += 1;
        }
        evicted.kept = self.visitors.seen.len()?;
        Ok(evicted)
    }
}

fn viewed(txn: &ReadTransaction, token: &VisitorToken) -> Result<Vec<(Item, f64)>, redb::Error> {
    let stored = txn.open_table(VISITOR)?.get(bytes_of(token.as_stored()))?;
    Ok(stored.map(|stored| views_in(stored.value())).unwrap_or_default())
}

/// Every key and member, as they would stand in Redis, told to `say` by key, token and member.
pub(super) fn dump_keys(
    txn: &ReadTransaction,
    say: &mut impl FnMut(&str, &[u8], &[u8]),
) -> Result<(), redb::Error> {
    for entry in txn.open_table(VISITORS)?.iter()? {
        say("visitors:", &[], entry?.0.value().1);
    }
    for entry in txn.open_table(VISITOR)?.iter()? {
        let (token, stored) = entry?;
        for (_, item) in Record::read(stored.value()).unwrap_or_default().items {
            say("viewed:", token.value(), item);
        }
    }
    Ok(())
}

impl EmbeddedStore {
    fn has_visitor(&self, token: &VisitorToken) -> Result<bool, StoreError> {
        self.read(|txn| Ok(txn.open_table(VISITOR)?.get(bytes_of(token.as_stored()))?.is_some()))
    }
}

impl VisitorStore for EmbeddedStore {
    async fn begin_visitor(
        &self,
        token: &VisitorToken,
        item: &Item,
        now: f64,
    ) -> Result<(), StoreError> {
        let (token, item) = (token.clone(), item.clone());
        self.write_in_passing(move |tables| {
            tables.visitors.renew(&token, now, &[(item, now)], tables.viewed_items)
        })
        .await
    }

    async fn touch_visitors(&self, visits: &[VisitorVisit]) -> Result<Vec<bool>, StoreError> {
        let visits = visits.to_vec();
        self.write_soon(move |tables| tables.touch_visitors(&visits)).await
    }

    async fn change_visitor_cart(
        &self,
        token: &VisitorToken,
        begins: Begins,
        change: &CartChange,
        now: f64,
    ) -> Result<CartAnswer, StoreError> {
        // Anybody can make up a token: for one that is not there nothing is written, and nothing synced.
        if begins == Begins::Before && !self.has_visitor(token)? {
            return Ok(CartAnswer::NotLoggedIn);
        }
        let (token, change) = (token.clone(), change.clone());
        self.write_durably(move |tables| tables.change_visitor_cart(&token, begins, &change, now))
            .await
    }

    async fn visitor_cart(&self, token: &VisitorToken) -> Result<Cart, StoreError> {
        self.read(|txn| sessions::cart(txn, token.as_stored()))
    }

    async fn visitor_viewed(&self, token: &VisitorToken) -> Result<Vec<(Item, f64)>, StoreError> {
        self.read(|txn| viewed(txn, token))
    }

    async fn merge_visitor(
        &self,
        token: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> Result<Merged, StoreError> {
        if !self.has_visitor(token)? {
            return Ok(Merged::Nothing);
        }
        let (token, session, user) = (token.clone(), session.clone(), user.clone());
        self.write_durably(move |tables| tables.merge_visitor(&token, &session, &user)).await
    }

    async fn forget_visitor(&self, token: &VisitorToken) -> Result<(), StoreError> {
        let token = token.clone();
        self.write_soon(move |tables| tables.forget_visitor(&token)).await
    }

    async fn evict_visitors(&self, how: VisitorEviction) -> Result<VisitorsEvicted, StoreError> {
        // Where nothing is over the limit, nothing is written.
        let kept = self.read(|txn| {
            let seen = txn.open_table(VISITORS)?;
            let oldest = seen.first()?.map(|(place, _)| place.value().0);
            let is_due = oldest.is_some_and(|oldest| oldest < time_bits(how.before));
            let kept = seen.len()?;
            Ok((kept, is_due || kept > how.keep))
        })?;
        if let (kept, false) = kept {
            return Ok(VisitorsEvicted { removed: 0, kept });
        }
        self.write_soon(move |tables| tables.evict_visitors(how)).await
    }
}
