//! Answers about visitors in Redis: `answer:<hash>`, each with a time to live.

use std::time::Duration;

use bytes::Bytes;

use super::{Call, RedisStore, TTL_MAX, pipe, script};
use crate::ident::CookieHash;
use crate::store::{ANSWER_MAX, AnswerStore, StoreError};

fn milliseconds(ttl: Duration) -> u64 {
    // Redis refuses a time to live of nothing.
    u64::try_from(ttl.min(TTL_MAX).as_millis().max(1)).expect("TTL_MAX is within range")
}

impl AnswerStore for RedisStore {
    async fn recall(&self, cookies: &CookieHash) -> Result<Option<Bytes>, StoreError> {
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        let mut command = redis::cmd("GETRANGE");
        command.arg(self.keys().answer(cookies)).arg(0).arg(ANSWER_MAX);
        let step = |mut on| async move { command.query_async::<Vec<u8>>(&mut on).await };
        let answer = self.0.link.call(Call::Read, step).await?;
        Ok((!answer.is_empty() && answer.len() <= ANSWER_MAX).then(|| answer.into()))
    }

    async fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&Bytes>,
        answer: Bytes,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let before = before.map_or(&[][..], |before| before.as_ref());
        let mut script = script::REMEMBER.prepare_invoke();
        script.key(self.keys().answer(cookies));
        script.arg(before).arg(answer.as_ref()).arg(milliseconds(ttl));
        let script = &script;
        let step = |mut on| async move { script.invoke_async::<u8>(&mut on).await };
        Ok(self.0.link.call(Call::Write, step).await? == 1)
    }

    async fn void(
        &self,
        cookies: &[CookieHash],
        mark: Bytes,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        let mut step = pipe();
        for cookies in cookies {
            let set = step.cmd("SET").arg(self.keys().answer(cookies)).arg(mark.as_ref());
            set.arg("PX").arg(milliseconds(ttl));
        }
        self.write(&step).await
    }
}
