//! Answers about visitors in Redis: `answer:<hash>`, each with a time to live.

use std::time::Duration;

use anteroom_http::ident::CookieHash;
use bytes::Bytes;

use super::{RedisCall, RedisStore, milliseconds, pipe, script};
use crate::{ANSWER_MAX, AnswerStore, StoreError};

impl AnswerStore for RedisStore {
    async fn recall(&self, cookies: &CookieHash) -> Result<Option<Bytes>, StoreError> {
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        let mut command = redis::cmd("GETRANGE");
        command.arg(self.keys().answer(cookies)).arg(0).arg(ANSWER_MAX);
        let answer: Vec<u8> = self.query(RedisCall::Read, &command).await?;
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
        let mut script = self.script(&script::REMEMBER);
        script.key("answer", self.keys().answer(cookies));
        script.arg("before", before).arg("value", answer.as_ref()).arg("ms", milliseconds(ttl));
        Ok(self.run(&script).await? == 1)
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
