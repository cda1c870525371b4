//! The user of a token, in Redis: `login:`, and where sessions have time limits `recent:` and the
//! login.

use anteroom_http::ident::{StoredToken, User};

use super::script::Invocation;
use super::{RedisCall, RedisStore, script};
use crate::{LogIn, SessionLifetimes, StoreError, TokenStore};

/// Passes a script the terms of sessions.
pub(super) fn add_terms(script: &mut Invocation, terms: &SessionLifetimes) {
    let seconds = |most: Option<f64>| most.map(|most| most.to_string()).unwrap_or_default();
    script.arg("now", terms.now);
    script.arg("idle", seconds(terms.idle)).arg("absolute", seconds(terms.absolute));
}

impl TokenStore for RedisStore {
    async fn check_token(&self, token: &StoredToken) -> Result<Option<User>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.keys().login).arg(token.as_str());
        let user: Option<Vec<u8>> = self.query(RedisCall::Read, &command).await?;
        Ok(user.and_then(|user| User::from_store(&user)))
    }

    async fn live_token(
        &self,
        token: &StoredToken,
        terms: &SessionLifetimes,
    ) -> Result<Option<LogIn>, StoreError> {
        if terms.are_endless() {
            let user = self.check_token(token).await?;
            return Ok(user.map(|user| LogIn { user, ends: f64::INFINITY }));
        }
        let mut script = self.script(&script::LIVE);
        script.arg("token", token.as_str());
        add_terms(&mut script, terms);
        script.arg("may_note", u8::from(terms.notes));
        let found: Vec<Vec<u8>> = self.invoke(RedisCall::Read, &script).await?;
        let [user, since] = found.as_slice() else { return Ok(None) };
        let since = std::str::from_utf8(since).ok().and_then(|since| since.parse().ok());
        let ends = since.map_or(f64::INFINITY, |since| terms.ends(since));
        Ok(User::from_store(user).map(|user| LogIn { user, ends }))
    }
}
