//! Carts: what a visitor wants in his.

use super::Sessions;
use crate::ident::Item;
use crate::store::{CART_COUNT_MAX, CartAnswer, CartChange, CartOwner, CartStore, StoreError};

impl Sessions {
    /// `add_to_cart` with its guard: sets the counts of these items in a visitor's cart; a count of
    /// 0 or less takes the item out. Of an item that is named twice the last count holds. In the
    /// store when it returns.
    ///
    /// # Errors
    /// When the store did not say that it is done.
    pub async fn add_to_cart<S: CartStore>(
        &self,
        store: &S,
        whose: &CartOwner,
        counts: Vec<(Item, i64)>,
    ) -> Result<CartAnswer, StoreError> {
        self.change_cart(store, whose, &setting(counts)).await
    }

    /// Takes everything out of a visitor's cart. In the store when it returns.
    ///
    /// # Errors
    /// When the store did not say that it is done.
    pub async fn empty_cart<S: CartStore>(
        &self,
        store: &S,
        whose: &CartOwner,
    ) -> Result<CartAnswer, StoreError> {
        self.change_cart(store, whose, &CartChange::Empty).await
    }

    async fn change_cart<S: CartStore>(
        &self,
        store: &S,
        whose: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, StoreError> {
        // The store may not know yet that he has logged out here.
        if self.denied().contains_key(&whose.token) {
            return Ok(CartAnswer::NotLoggedIn);
        }
        let answer = store.change_cart(whose, change).await?;
        if answer == CartAnswer::NotLoggedIn {
            self.forget(&whose.token);
        }
        Ok(answer)
    }
}

/// The change that sets these counts; of an item that is named twice the last holds.
#[must_use]
pub fn setting(mut counts: Vec<(Item, i64)>) -> CartChange {
    counts.reverse();
    counts.sort_by(|one, other| one.0.cmp(&other.0));
    counts.dedup_by(|one, other| one.0 == other.0);
    CartChange::Set(counts)
}

/// Whether a visitor may have so many of an item in his cart. None or less takes it out.
#[must_use]
pub fn is_count(count: i64) -> bool {
    count <= CART_COUNT_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{TokenStorage, User};
    use crate::session::Before;
    use crate::store::Terms;
    use crate::store::scratch::with_store;

    #[test]
    fn the_last_count_of_an_item_holds() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256);
            let user = User::new(b"alice").unwrap();
            let token =
                sessions.log_in(&store, Before::default(), user.clone(), 1_000.0).await.unwrap();
            let whose = CartOwner {
                token: sessions.stored(&token),
                user: Some(user),
                now: 1_000.0,
                terms: Terms::endless(1_000.0),
            };
            let item = |text| Item::new(text).unwrap();
            let counts = vec![(item("mug"), 1), (item("tea"), 5), (item("mug"), 2)];
            let answer = sessions.add_to_cart(&store, &whose, counts).await.unwrap();
            let cart = vec![(item("mug"), 2), (item("tea"), 5)];
            assert_eq!(answer, CartAnswer::Changed(cart));
        });
    }

    #[test]
    fn who_has_logged_out_changes_no_cart() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256);
            let user = User::new(b"alice").unwrap();
            let token =
                sessions.log_in(&store, Before::default(), user.clone(), 1_000.0).await.unwrap();
            let token = sessions.stored(&token);
            sessions.log_out(&store, &token).await.unwrap();
            let counts = vec![(Item::new("mug").unwrap(), 1)];
            let whose = CartOwner {
                token: token.clone(),
                user: Some(user),
                now: 1_000.0,
                terms: Terms::endless(1_000.0),
            };
            let answer = sessions.add_to_cart(&store, &whose, counts).await.unwrap();
            assert_eq!(answer, CartAnswer::NotLoggedIn);
            assert!(store.cart(&token).await.unwrap().is_empty());
        });
    }
}
