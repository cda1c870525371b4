//! Carts. The steps on the tables are in `sessions` and `visitors`.

use anteroom_http::ident::{Item, StoredToken};

use super::{EmbeddedStore, sessions};
use crate::{Cart, CartAnswer, CartChange, CartOwner, CartStore, StoreError};

impl CartStore for EmbeddedStore {
    async fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> Result<(), StoreError> {
        let (token, item) = (token.clone(), item.clone());
        self.write_durably(move |tables| tables.put_in_cart(&token, &item, count)).await
    }

    async fn change_cart(
        &self,
        owner: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, StoreError> {
        let (owner, change) = (owner.clone(), change.clone());
        self.write_durably(move |tables| tables.change_cart(&owner, &change)).await
    }

    async fn cart(&self, token: &StoredToken) -> Result<Cart, StoreError> {
        self.read(|txn| sessions::cart(txn, token))
    }
}
