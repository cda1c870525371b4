//! Carts in Redis: `cart:<token>`.

use anteroom_http::ident::{Item, StoredToken, User};

use super::script::Invocation;
use super::tokens::add_terms;
use super::{Carriage, Pairs, RedisCall, RedisStore, pipe, script};
use crate::{CART_MAX, Cart, CartAnswer, CartChange, CartOwner, CartStore, StoreError};

/// The cart in a HASH. Fields that are not items, or not counts, are skipped.
fn cart_of(pairs: Pairs) -> Cart {
    let entry = |(item, count): (Vec<u8>, Vec<u8>)| {
        let count = std::str::from_utf8(&count).ok()?.parse().ok()?;
        Some((Item::new(std::str::from_utf8(&item).ok()?)?, count))
    };
    let mut cart: Cart = pairs.into_iter().filter_map(entry).collect();
    cart.sort_unstable();
    cart.truncate(CART_MAX);
    cart
}

/// A script's answer to a change of a cart; `None`: it is changed, and is to be read in parts.
fn changed_cart(reply: redis::Value) -> Result<Option<CartAnswer>, StoreError> {
    Ok(match reply {
        redis::Value::Int(0) => Some(CartAnswer::NotLoggedIn),
        redis::Value::Int(1) => Some(CartAnswer::Full),
        redis::Value::Int(_) => None,
        pairs => {
            let pairs =
                redis::from_redis_value(pairs).map_err(|error| StoreError::Failed(error.into()))?;
            Some(CartAnswer::Changed(cart_of(pairs)))
        }
    })
}

impl RedisStore {
    /// Changes a cart: the `script` takes the items with their counts after its named arguments.
    /// `None`: it is changed, and is to be read in parts.
    pub(super) async fn run_change(
        &self,
        mut script: Invocation,
        change: &CartChange,
    ) -> Result<Option<CartAnswer>, StoreError> {
        if let CartChange::Set(items) = change {
            for (item, count) in items {
                script.another(item.as_str()).another(*count);
            }
        }
        changed_cart(self.acknowledge(&script).await?)
    }
}

impl CartStore for RedisStore {
    async fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> Result<(), StoreError> {
        let cart = self.keys().cart(token);
        let mut step = pipe();
        if count > 0 {
            step.cmd("HSET").arg(cart).arg(item.as_str()).arg(count);
        } else {
            step.cmd("HDEL").arg(cart).arg(item.as_str());
        }
        self.write_over(Carriage::Confirmed, &step).await
    }

    async fn change_cart(
        &self,
        owner: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, StoreError> {
        let CartOwner { token, user, now, terms } = owner;
        let mut script = self.script(&script::CHANGE_CART);
        script.key("cart", self.keys().cart(token));
        script.arg("token", token.as_str());
        script.arg("user", user.as_ref().map_or(&[][..], User::as_stored)).arg("seen", *now);
        script.arg("is_emptied", u8::from(*change == CartChange::Empty)).arg("cart_max", CART_MAX);
        add_terms(&mut script, terms);
        match self.run_change(script, change).await? {
            Some(answer) => Ok(answer),
            None => Ok(CartAnswer::Changed(self.cart(token).await?)),
        }
    }

    async fn cart(&self, token: &StoredToken) -> Result<Cart, StoreError> {
        // HSCAN, not HGETALL: another program's cart of any size must not fill our memory.
        let mut command = redis::cmd("HSCAN");
        command.arg(self.keys().cart(token)).arg(0).arg("COUNT").arg(2 * CART_MAX);
        let (_, pairs): (u64, Pairs) = self.query(RedisCall::Read, &command).await?;
        Ok(cart_of(pairs))
    }
}
