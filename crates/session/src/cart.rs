//! Visitors' own carts.

use anteroom_http::ident::Item;
use anteroom_store::{CART_COUNT_MAX, CartAnswer, CartChange, CartOwner, CartStore, StoreError};

use super::Sessions;

impl Sessions {
    /// `add_to_cart` with its guard: sets the counts of these items in a visitor's cart; a count of
    /// 0 or less removes the item. If an item is named twice, the last count wins. In the store
    /// when it returns.
    ///
    /// # Errors
    /// When the store has not confirmed it.
    pub async fn add_to_cart<S: CartStore>(
        &self,
        store: &S,
        owner: &CartOwner,
        counts: Vec<(Item, i64)>,
    ) -> Result<CartAnswer, StoreError> {
        self.change_cart(store, owner, &setting(counts)).await
    }

    /// Removes all items from a visitor's cart. In the store when it returns.
    ///
    /// # Errors
    /// When the store has not confirmed it.
    pub async fn empty_cart<S: CartStore>(
        &self,
        store: &S,
        owner: &CartOwner,
    ) -> Result<CartAnswer, StoreError> {
        self.change_cart(store, owner, &CartChange::Empty).await
    }

    async fn change_cart<S: CartStore>(
        &self,
        store: &S,
        owner: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, StoreError> {
        // The store may not have this logout yet.
        if self.unwritten().contains_key(&owner.token) {
            return Ok(CartAnswer::NotLoggedIn);
        }
        let answer = store.change_cart(owner, change).await?;
        if answer == CartAnswer::NotLoggedIn {
            self.forget(&owner.token);
        }
        Ok(answer)
    }
}

/// The change that sets these counts; if an item is named twice, the last count wins.
#[must_use]
pub fn setting(mut counts: Vec<(Item, i64)>) -> CartChange {
    counts.reverse();
    counts.sort_by(|one, other| one.0.cmp(&other.0));
    counts.dedup_by(|one, other| one.0 == other.0);
    CartChange::Set(counts)
}

/// Whether a cart may hold this many of an item. 0 or less removes it.
#[must_use]
pub fn is_count(count: i64) -> bool {
    count <= CART_COUNT_MAX
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anteroom_http::ident::{TokenStorage, User};
    use anteroom_store::SessionLifetimes;
    use anteroom_store::scratch::with_store;

    use super::*;
    use crate::{PreviousIdentity, Rules};

    #[test]
    fn the_last_count_of_an_item_holds() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256, Rules::default(), Arc::default());
            let user = User::new(b"alice").unwrap();
            let token = sessions
                .log_in(&store, PreviousIdentity::default(), user.clone(), 1_000.0)
                .await
                .unwrap();
            let owner = CartOwner {
                token: sessions.stored(&token),
                user: Some(user),
                now: 1_000.0,
                terms: SessionLifetimes::endless(1_000.0),
            };
            let item = |text| Item::new(text).unwrap();
            let counts = vec![(item("mug"), 1), (item("tea"), 5), (item("mug"), 2)];
            let answer = sessions.add_to_cart(&store, &owner, counts).await.unwrap();
            let cart = vec![(item("mug"), 2), (item("tea"), 5)];
            assert_eq!(answer, CartAnswer::Changed(cart));
        });
    }

    #[test]
    fn a_logged_out_session_changes_no_cart() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256, Rules::default(), Arc::default());
            let user = User::new(b"alice").unwrap();
            let token = sessions
                .log_in(&store, PreviousIdentity::default(), user.clone(), 1_000.0)
                .await
                .unwrap();
            let token = sessions.stored(&token);
            sessions.log_out(&store, &token).await.unwrap();
            let counts = vec![(Item::new("mug").unwrap(), 1)];
            let owner = CartOwner {
                token: token.clone(),
                user: Some(user),
                now: 1_000.0,
                terms: SessionLifetimes::endless(1_000.0),
            };
            let answer = sessions.add_to_cart(&store, &owner, counts).await.unwrap();
            assert_eq!(answer, CartAnswer::NotLoggedIn);
            assert!(store.cart(&token).await.unwrap().is_empty());
        });
    }
}
