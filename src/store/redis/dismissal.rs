//! Sessions that end before the cleaner comes to them: by another log-in, or by an operator. Their carts are
//! handed on in the same step.

use redis::ScriptInvocation;

use super::{Call, RedisStore, refusal_of, script};
use crate::ident::{StoredToken, TokenStorage, VisitorToken};
use crate::store::{Farewell, OUTBOX_MAX, PER_USER_MAX, Parted, Rotated, Rotation, StoreError};

/// How often a log-in looks anew who would have to go, while the same user logs in elsewhere. The last time it
/// goes on whoever that is.
const LOOKS: usize = 4;

/// A token with its public id.
type Named = (Vec<u8>, String);

impl RedisStore {
    pub(super) async fn rotate(&self, rotation: &Rotation) -> Result<Rotated, StoreError> {
        for _ in 1..LOOKS {
            let known = self.may_go(rotation).await?;
            if let Some(rotated) = self.rotate_knowing(rotation, &known, false).await? {
                return Ok(rotated);
            }
        }
        let known = self.may_go(rotation).await?;
        Ok(self.rotate_knowing(rotation, &known, true).await?.unwrap_or_default())
    }

    pub(super) async fn dismiss(
        &self,
        token: &StoredToken,
        farewell: &Farewell,
    ) -> Result<Parted, StoreError> {
        let mut script = script::DISMISS.prepare_invoke();
        let storage = self.add_ending(&mut script, Some(farewell));
        script.arg(token.as_str()).arg(id_of(token, storage)).arg(&self.keys().gone_channel);
        let script = &script;
        type Reply = (usize, usize, usize, Vec<u8>);
        let step = |mut on| async move { script.invoke_async::<Reply>(&mut on).await };
        let (handed_on, dropped, lost, refusal) = self.0.link.call(Call::Write, step).await?;
        Ok(Parted { handed_on, dropped, lost, refusal: refusal_of(&refusal) })
    }

    /// Those who may have to go for this log-in. Lua knows no SHA-256: their ids go with the question.
    async fn may_go(&self, rotation: &Rotation) -> Result<Vec<Named>, StoreError> {
        let Some(farewell) = rotation.farewell.filter(|_| rotation.most > 0) else {
            return Ok(Vec::new());
        };
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keys().tokens(&rotation.user)).arg(0).arg(i64::from(PER_USER_MAX) - 1);
        let step = |mut on| async move { command.query_async::<Vec<Vec<u8>>>(&mut on).await };
        let oldest = self.0.link.call(Call::Write, step).await?;
        let named = oldest.into_iter().filter_map(|token| {
            let id = id_of(&StoredToken::from_store(&token)?, farewell.storage());
            Some((token, id))
        });
        Ok(named.collect())
    }

    /// The log-in; `None` where somebody would have to go whose id is not `known`, and that is not `sure` to
    /// be so.
    async fn rotate_knowing(
        &self,
        rotation: &Rotation,
        known: &[Named],
        sure: bool,
    ) -> Result<Option<Rotated>, StoreError> {
        let Rotation { old, new, user, now, most, farewell, visitor } = rotation;
        let keys = self.keys();
        let mut script = script::ROTATE.prepare_invoke();
        let storage = self.add_ending(&mut script, farewell.as_ref());
        script.key(keys.viewed(new)).key(keys.cart(new));
        script.arg(new.as_str()).arg(id_of(new, storage)).arg(user.as_stored()).arg(*now);
        script.arg((*most).min(PER_USER_MAX)).arg(&keys.gone_channel).arg(u8::from(sure));
        match old.as_ref().filter(|old| *old != new) {
            Some(old) => {
                script.key(keys.viewed(old)).key(keys.cart(old));
                script.arg(old.as_str()).arg(id_of(old, storage));
            }
            None => {
                script.arg("").arg("");
            }
        }
        let visitor = visitor.as_ref().map_or("", VisitorToken::as_str);
        script.arg(&keys.visitors).arg(visitor);
        for (token, id) in known {
            script.arg(token).arg(id);
        }
        let script = &script;
        type Reply = (Vec<Vec<u8>>, usize, usize, usize, Vec<u8>);
        let step = |mut on| async move { script.invoke_async::<Option<Reply>>(&mut on).await };
        let reply = self.0.link.call(Call::Write, step).await?;
        Ok(reply.map(|(gone, handed_on, dropped, lost, refusal)| Rotated {
            gone: gone.iter().filter_map(|token| StoredToken::from_store(token)).collect(),
            parted: Parted { handed_on, dropped, lost, refusal: refusal_of(&refusal) },
        }))
    }

    /// Says to a script what it needs to end sessions. Returns how tokens are stored, where their ids are
    /// needed.
    fn add_ending(
        &self,
        script: &mut ScriptInvocation<'_>,
        farewell: Option<&Farewell>,
    ) -> Option<TokenStorage> {
        let keys = self.keys();
        script.key(&keys.login).key(&keys.recent).key(&keys.expired).key(&keys.expiring);
        script.key(&keys.since).key(&keys.events);
        let storage = self.add_fate(script, farewell);
        script.arg(keys.tokens_prefix()).arg(self.limits().viewed_items).arg(OUTBOX_MAX);
        storage
    }
}

/// What a session is called where it is handed on; nothing where it is not.
fn id_of(token: &StoredToken, storage: Option<TokenStorage>) -> String {
    storage.map(|storage| token.public_id(storage)).unwrap_or_default()
}
