//! The bypass switches in Redis: the hash `bypass:`, which ends with the last of them.

use super::script::Invocation;
use super::{Pairs, RedisCall, RedisStore, milliseconds, script};
use crate::StoreError;
use crate::bypass::{BypassChange, BypassStore, FIELDS_MAX, StoredBypasses};

impl BypassStore for RedisStore {
    async fn change_bypass(&self, change: &BypassChange) -> Result<StoredBypasses, StoreError> {
        // The empty field stands for the switches of all routes.
        let field = match change.ends_every_route() {
            true => String::new(),
            false => change.scope.field(),
        };
        let mut script = self.script(&script::CHANGE_BYPASS);
        add_bound(&mut script);
        script
            .arg("kind_max", change.most())
            .arg("field", field)
            .arg("lasts_ms", change.lasts.map_or(0, milliseconds));
        script.arg("by", &change.by);
        let (is_done, now, found): (u8, u64, Pairs) =
            self.foreground().acknowledge(&script).await?;
        match is_done {
            0 => Err(StoreError::BypassesFull),
            _ => Ok(StoredBypasses::of(now, &found)),
        }
    }

    async fn bypasses(&self) -> Result<StoredBypasses, StoreError> {
        let mut script = self.script(&script::BYPASSES);
        add_bound(&mut script);
        let (now, found): (u64, Pairs) = self.invoke(RedisCall::Read, &script).await?;
        Ok(StoredBypasses::of(now, &found))
    }
}

/// The first argument of the scripts that read the switches.
pub(super) fn add_bound(script: &mut Invocation) {
    script.arg("bypasses_max", FIELDS_MAX);
}
