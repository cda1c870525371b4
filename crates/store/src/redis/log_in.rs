//! Logins and logouts in Redis, and sessions that end before the cleaner reaches them: by another
//! login, or by an operator. Their carts are handed on in the same step.

use anteroom_http::ident::{Item, StoredToken, TokenStorage, User, VisitorToken};

use super::expiry::refusal_of;
use super::script::Invocation;
use super::{RedisCall, RedisStore, script};
use crate::{
    EndedCarts, ExpiryAction, LogInStore, OUTBOX_MAX, PER_USER_MAX, Rotation, RotationResult,
    StoreError,
};

/// How often a login looks up again which sessions must end, while the same user logs in
/// elsewhere. The last attempt continues in any case.
const LOOKS: usize = 4;

/// A token with its public id.
type TokenWithId = (Vec<u8>, String);

impl LogInStore for RedisStore {
    async fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        self.update(token, user, item, now, true).await
    }

    async fn rotate_token(&self, rotation: &Rotation) -> Result<RotationResult, StoreError> {
        for _ in 1..LOOKS {
            let known = self.may_go(rotation).await?;
            if let Some(rotated) = self.rotate_knowing(rotation, &known, false).await? {
                return Ok(rotated);
            }
        }
        let known = self.may_go(rotation).await?;
        Ok(self.rotate_knowing(rotation, &known, true).await?.unwrap_or_default())
    }

    async fn revoke_token(&self, token: &StoredToken) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut script = self.script(&script::REVOKE);
        script.key("viewed", keys.viewed(token)).key("cart", keys.cart(token));
        script.arg("token", token.as_str());
        self.acknowledge::<()>(&script).await?;
        self.has_ended(token);
        Ok(())
    }

    async fn dismiss_token(
        &self,
        token: &StoredToken,
        expiry_action: &ExpiryAction,
    ) -> Result<EndedCarts, StoreError> {
        let mut script = self.script(&script::DISMISS);
        let storage = self.add_ending(&mut script, Some(expiry_action));
        script.arg("token", token.as_str()).arg("id", id_of(token, storage));
        let (handed_on, dropped, lost, refusal): (usize, usize, usize, Vec<u8>) =
            self.acknowledge(&script).await?;
        self.has_ended(token);
        Ok(EndedCarts { handed_on, dropped, lost, refusal: refusal_of(&refusal) })
    }

    async fn finish_handovers(&self, _now: f64) -> Result<usize, StoreError> {
        Ok(0)
    }
}

impl RedisStore {
    /// The same where the popularity of the item is in another shard.
    pub(crate) async fn update_uncounted(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        self.update(token, user, item, now, false).await
    }

    async fn update(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
        is_counted: bool,
    ) -> Result<(), StoreError> {
        let mut script = self.script(&script::UPDATE);
        script.key("viewed", self.keys().viewed(token));
        script.arg("token", token.as_str()).arg("user", user.as_stored()).arg("now", now);
        script.arg("item", item.map_or("", Item::as_str));
        script.arg("last_dropped", -1 - i64::from(self.limits().viewed_items));
        script.arg("is_counted", u8::from(is_counted));
        self.acknowledge::<()>(&script).await
    }

    /// The sessions that may have to end for this login. Lua has no SHA-256: their ids are passed
    /// in.
    async fn may_go(&self, rotation: &Rotation) -> Result<Vec<TokenWithId>, StoreError> {
        let Some(expiry_action) = rotation.expiry_action.filter(|_| rotation.most > 0) else {
            return Ok(Vec::new());
        };
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keys().tokens(&rotation.user)).arg(0).arg(i64::from(PER_USER_MAX) - 1);
        let oldest: Vec<Vec<u8>> = self.query(RedisCall::Write, &command).await?;
        let named = oldest.into_iter().filter_map(|token| {
            let id = id_of(&StoredToken::from_store(&token)?, expiry_action.storage());
            Some((token, id))
        });
        Ok(named.collect())
    }

    /// The login; `None` if a session would have to end whose id is not `known`, unless the caller
    /// is `sure`.
    async fn rotate_knowing(
        &self,
        rotation: &Rotation,
        known: &[TokenWithId],
        sure: bool,
    ) -> Result<Option<RotationResult>, StoreError> {
        let Rotation { old, new, user, now, most, expiry_action, visitor } = rotation;
        let keys = self.keys();
        let mut script = self.script(&script::ROTATE);
        let storage = self.add_ending(&mut script, expiry_action.as_ref());
        let old = old.as_ref().filter(|old| *old != new);
        script.key("viewed", keys.viewed(new)).key("cart", keys.cart(new));
        // Without an old token these are not touched.
        let named = old.unwrap_or(new);
        script.key("old_viewed", keys.viewed(named)).key("old_cart", keys.cart(named));
        script.arg("token", new.as_str()).arg("id", id_of(new, storage));
        script.arg("user", user.as_stored()).arg("now", *now);
        script.arg("most", (*most).min(PER_USER_MAX)).arg("per_user_max", PER_USER_MAX);
        script.arg("may_lose", u8::from(sure));
        script.arg("old", old.map_or("", StoredToken::as_str));
        script.arg("old_id", old.map(|old| id_of(old, storage)).unwrap_or_default());
        script.arg("visitor", visitor.as_ref().map_or("", VisitorToken::as_str));
        for (token, id) in known {
            script.another(token).another(id);
        }
        type Reply = (Vec<Vec<u8>>, usize, usize, usize, Vec<u8>);
        let reply: Option<Reply> = self.acknowledge(&script).await?;
        if let Some(old) = old.filter(|_| reply.is_some()) {
            self.has_ended(old);
        }
        Ok(reply.map(|(gone, handed_on, dropped, lost, refusal)| RotationResult {
            gone: gone.iter().filter_map(|token| StoredToken::from_store(token)).collect(),
            ended_carts: EndedCarts { handed_on, dropped, lost, refusal: refusal_of(&refusal) },
        }))
    }

    /// Passes a script what it needs to end sessions. Returns how tokens are stored, if their ids
    /// are needed.
    pub(super) fn add_ending(
        &self,
        script: &mut Invocation,
        expiry_action: Option<&ExpiryAction>,
    ) -> Option<TokenStorage> {
        let storage = self.add_fate(script, expiry_action);
        script.arg("outbox_max", OUTBOX_MAX);
        storage
    }
}

/// A session's public id where it is handed on; empty otherwise.
fn id_of(token: &StoredToken, storage: Option<TokenStorage>) -> String {
    storage.map(|storage| token.public_id(storage)).unwrap_or_default()
}
