//! Visitor tokens as tables, and the steps on them.
//!
//! Like `sessions`: everything here runs inside the caller's transaction. Their carts are in the
//! same table as those of sessions, under names that no session has.

use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};
use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _};

use super::EmbeddedStore;
use super::keys::bytes_of;
use super::record::{Record, time_bits};
use super::sessions::{self, cart_of, read_cart, views_in};
use super::tables::Tables;
use super::visitor_tables::{VISITOR, VISITORS};
use crate::{
    CART_MAX, Cart, CartAnswer, CartChange, MergeResult, StoreError, TokenCreation,
    VISITOR_CART_MAX, VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};

impl Tables<'_> {
    fn touch_visitors(&mut self, visits: &[VisitorVisit]) -> Result<Vec<bool>, redb::Error> {
        let mut recorded = Vec::with_capacity(visits.len());
        for VisitorVisit { token, seen, items } in visits {
            let is_there = self.visitors.has(token)?;
            if is_there {
                self.visitors.renew(token, *seen, items, self.viewed_items)?;
            }
            recorded.push(is_there);
        }
        Ok(recorded)
    }

    fn change_visitor_cart(
        &mut self,
        token: &VisitorToken,
        begins: TokenCreation,
        change: &CartChange,
        now: f64,
    ) -> Result<CartAnswer, redb::Error> {
        if begins == TokenCreation::Before && !self.visitors.has(token)? {
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
    ) -> Result<MergeResult, redb::Error> {
        let owner = self.owner(bytes_of(session))?;
        if !owner.is_some_and(|owner| owner.is_same(user)) {
            return Ok(MergeResult::NoSession);
        }
        self.join_visitor(token, session)
    }

    /// Moves all data of a token to an existing session, and removes the token.
    pub(super) fn join_visitor(
        &mut self,
        token: &VisitorToken,
        session: &StoredToken,
    ) -> Result<MergeResult, redb::Error> {
        let Some(stored) = self.visitors.remove(token)? else { return Ok(MergeResult::Nothing) };
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
        Ok(MergeResult::Done)
    }

    /// Merges another cart into a session's cart, as far as there is room: for an item that is in
    /// both, the larger count.
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

    pub(super) fn forget_visitor(&mut self, token: &VisitorToken) -> Result<(), redb::Error> {
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
            // Also if its record has another time, or is missing.
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

/// Passes every key and member, named as in Redis, to `say` by key, token and member.
pub(super) fn dump_keys(
    txn: &ReadTransaction,
    emit: &mut impl FnMut(&str, &[u8], &[u8]),
) -> Result<(), redb::Error> {
    for entry in txn.open_table(VISITORS)?.iter()? {
        emit("visitors:", &[], entry?.0.value().1);
    }
    for entry in txn.open_table(VISITOR)?.iter()? {
        let (token, stored) = entry?;
        for (_, item) in Record::read(stored.value()).unwrap_or_default().items {
            emit("viewed:", token.value(), item);
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
        begins: TokenCreation,
        change: &CartChange,
        now: f64,
    ) -> Result<CartAnswer, StoreError> {
        // A client can invent tokens: for an unknown token nothing is written, and nothing synced.
        if begins == TokenCreation::Before && !self.has_visitor(token)? {
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
    ) -> Result<MergeResult, StoreError> {
        if !self.has_visitor(token)? {
            return Ok(MergeResult::Nothing);
        }
        let (token, session, user) = (token.clone(), session.clone(), user.clone());
        self.write_durably(move |tables| tables.merge_visitor(&token, &session, &user)).await
    }

    async fn forget_visitor(&self, token: &VisitorToken) -> Result<(), StoreError> {
        let token = token.clone();
        self.write_soon(move |tables| tables.forget_visitor(&token)).await
    }

    async fn evict_visitors(&self, how: VisitorEviction) -> Result<VisitorsEvicted, StoreError> {
        // Without tokens over the limit nothing is written.
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
