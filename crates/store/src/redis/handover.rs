//! What a login takes from one shard to another: a record in the shard that gives, `handover:`, until the shard that
//! gets has it.

use anteroom_http::ident::{StoredToken, User, VisitorToken};
use redis::pipe;

use super::script::Invocation;
use super::{RedisCall, RedisStore, script};
use crate::redis::expiry::refusal_of;
use crate::{CART_MAX, EndedCarts, Rotation, StoreError};

/// What the end of a session or of a visitor's token leaves.
#[derive(Debug)]
pub struct Handover {
    /// What the new session gets, if there is anything.
    pub(crate) taken: Option<TakenOver>,
    /// The cart that was handed on or lost instead.
    pub(crate) ended_carts: EndedCarts,
}

/// A record of what a session gets.
#[derive(Debug)]
pub struct TakenOver {
    /// The shard that has the record.
    pub(crate) shard: usize,
    /// The session.
    pub(crate) token: StoredToken,
    /// The field of the record.
    field: Vec<u8>,
    record: Vec<u8>,
}

/// The field of a record: of a session's or a visitor's data, and the session that gets it.
fn field_of(kind: char, token: &StoredToken) -> Vec<u8> {
    format!("{kind},{}", token.as_str()).into_bytes()
}

/// The session in the field of a record.
fn token_in(field: &[u8]) -> Option<StoredToken> {
    StoredToken::from_store(field.get(2..)?)
}

impl RedisStore {
    /// Whether a session has a cart, and views.
    pub(crate) async fn has_data(&self, token: &StoredToken) -> Result<(bool, bool), StoreError> {
        let mut look = pipe();
        look.cmd("EXISTS").arg(self.keys().cart(token));
        look.cmd("EXISTS").arg(self.keys().viewed(token));
        self.query_all(RedisCall::Write, &look).await
    }

    /// Ends the old session of a login elsewhere, and notes what the new one gets: of what the old one has, if it is
    /// the same user's, what the new one does not have. Another cart is handed on.
    pub(crate) async fn end_for(
        &self,
        old: &StoredToken,
        rotation: &Rotation,
        has_cart: bool,
        has_views: bool,
    ) -> Result<Handover, StoreError> {
        let keys = self.keys();
        let mut script = self.script(&script::END_FOR);
        script.key("old_viewed", keys.viewed(old)).key("old_cart", keys.cart(old));
        let storage = self.add_ending(&mut script, rotation.expiry_action.as_ref());
        script.arg("old", old.as_str());
        script.arg("old_id", storage.map(|storage| old.public_id(storage)).unwrap_or_default());
        script.arg("user", rotation.user.as_stored()).arg("now", rotation.now);
        let field = field_of('s', &rotation.new);
        script.arg("field", &field);
        script.arg("has_cart", u8::from(has_cart)).arg("has_views", u8::from(has_views));
        let (record, handed_on, dropped, lost, refusal): (Vec<u8>, usize, usize, usize, Vec<u8>) =
            self.acknowledge(&script).await?;
        self.has_ended(old);
        let ended_carts = EndedCarts { handed_on, dropped, lost, refusal: refusal_of(&refusal) };
        Ok(Handover { taken: self.taken(&rotation.new, field, record), ended_carts })
    }

    /// Ends a visitor's token, and notes what the session gets.
    pub(crate) async fn end_visitor_for(
        &self,
        visitor: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> Result<Handover, StoreError> {
        let (keys, stored) = (self.keys(), visitor.as_stored());
        let mut script = self.script(&script::END_VISITOR_FOR);
        script.key("old_viewed", keys.viewed(stored)).key("old_cart", keys.cart(stored));
        script.arg("visitor", visitor.as_str()).arg("user", user.as_stored());
        script.arg("now", anteroom_http::clock::unix_now());
        let field = field_of('v', session);
        script.arg("field", &field);
        let record: Vec<u8> = self.acknowledge(&script).await?;
        let taken = self.taken(session, field, record);
        Ok(Handover { taken, ended_carts: EndedCarts::default() })
    }

    fn taken(&self, token: &StoredToken, field: Vec<u8>, record: Vec<u8>) -> Option<TakenOver> {
        let token = token.clone();
        (!record.is_empty()).then_some(TakenOver { shard: self.shard, token, field, record })
    }

    /// Gives a session of this shard what another one holds for it. Returns whether the session is there.
    pub(crate) async fn take_over(&self, taken: &TakenOver) -> Result<bool, StoreError> {
        let keys = self.keys();
        let mut script = self.script(&script::TAKE_OVER);
        script.key("viewed", keys.viewed(&taken.token)).key("cart", keys.cart(&taken.token));
        script.arg("token", taken.token.as_str()).arg("field", &taken.field);
        script.arg("record", &taken.record);
        script.arg("views_max", self.limits().viewed_items).arg("cart_max", CART_MAX);
        Ok(self.acknowledge::<u8>(&script).await? > 0)
    }

    /// Removes a record, unless another one has taken its place.
    pub(crate) async fn forget_handover(&self, taken: &TakenOver) -> Result<(), StoreError> {
        let mut script = self.script(&script::FORGET_HANDOVER);
        script.arg("field", &taken.field).arg("record", &taken.record);
        self.run(&script).await.map(drop)
    }

    /// The records of this shard from before this time. A record that names no session is removed.
    pub(crate) async fn handovers(&self, before: f64) -> Result<Vec<TakenOver>, StoreError> {
        // Every proxy looks, and there is seldom any.
        let mut look = redis::cmd("EXISTS");
        look.arg(&self.keys().handovers);
        if self.query::<u64>(RedisCall::Write, &look).await? == 0 {
            return Ok(Vec::new());
        }
        let mut script: Invocation = self.script(&script::HANDOVERS);
        script.arg("before", before);
        let found: Vec<Vec<u8>> = self.invoke(RedisCall::Write, &script).await?;
        let found = found.as_chunks::<2>().0.iter().filter_map(|[field, record]| {
            self.taken(&token_in(field)?, field.clone(), record.clone())
        });
        Ok(found.collect())
    }
}
