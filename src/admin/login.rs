//! Sessions of the dashboard: in memory only, few, and short.

use std::fmt;
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue};
use anteroom_http::bearer;
use anteroom_http::cookie::cookies;
use anteroom_http::ident::Token;
use anteroom_policy::admin::DASHBOARD_COOKIE;
use sha2::{Digest as _, Sha256};

use super::access::{Operator, Operators};

/// The most sessions. A further one ends the oldest.
const SESSIONS_MAX: usize = 64;
/// How long a session lasts without a request.
const IDLE: Duration = Duration::from_secs(3_600);
/// How long a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);

/// The sessions of the dashboard.
#[derive(Debug, Default)]
pub(super) struct DashboardSessions(Vec<DashboardSession>);

/// A session. Of its token only the SHA-256 is kept.
struct DashboardSession {
    digest: [u8; 32],
    operator: Operator,
    since: Instant,
    seen: Instant,
}

impl fmt::Debug for DashboardSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardSession").field("operator", &self.operator).finish_non_exhaustive()
    }
}

impl DashboardSessions {
    /// Begins a session, and returns its token.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub(super) fn begin(
        &mut self,
        operator: &Operator,
        now: Instant,
    ) -> Result<Token, getrandom::Error> {
        let token = Token::mint()?;
        self.end_over(now);
        if self.0.len() >= SESSIONS_MAX {
            // They are in the order of their beginnings.
            self.0.remove(0);
        }
        let digest = Sha256::digest(token.as_str()).into();
        self.0.push(DashboardSession { digest, operator: operator.clone(), since: now, seen: now });
        Ok(token)
    }

    /// The operator of the session with this token, which has been seen now.
    pub(super) fn operator(&mut self, token: &[u8], now: Instant) -> Option<Operator> {
        self.end_over(now);
        let digest = Sha256::digest(token).into();
        let session = self.0.iter_mut().find(|one| bearer::is_same(&one.digest, &digest))?;
        session.seen = now;
        Some(session.operator.clone())
    }

    /// Ends the session with this token.
    pub(super) fn end(&mut self, token: &[u8]) {
        let digest = Sha256::digest(token).into();
        self.0.retain(|one| !bearer::is_same(&one.digest, &digest));
    }

    /// Ends the sessions of operators that are not among `operators` any more, as they were.
    pub(super) fn keep(&mut self, operators: &Operators) {
        self.0.retain(|one| operators.has(&one.operator));
    }

    fn end_over(&mut self, now: Instant) {
        self.0.retain(|one| {
            now.duration_since(one.seen) < IDLE && now.duration_since(one.since) < LIFETIME
        });
    }
}

/// The tokens in the cookies of a request.
pub(super) fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let own = cookies(headers).filter(|(name, _)| *name == DASHBOARD_COOKIE.as_bytes());
    own.map(|(_, token)| token)
}

/// The cookie of a session. The listener speaks plain http on loopback, so there is no `Secure`, and the name cannot
/// begin with `__Host-`.
pub(super) fn cookie(token: &Token) -> Option<HeaderValue> {
    let seconds = LIFETIME.as_secs();
    let line = format!(
        "{DASHBOARD_COOKIE}={}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}",
        token.as_str()
    );
    sensitive(&line)
}

/// Removes the cookie of a session from the browser.
pub(super) fn no_cookie() -> Option<HeaderValue> {
    sensitive(&format!("{DASHBOARD_COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"))
}

fn sensitive(line: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(line).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use anteroom_policy::admin::AdminRole;

    use super::*;

    fn alice(token: &[u8]) -> Operator {
        Operator::with_token("alice", AdminRole::Read, token)
    }

    #[test]
    fn a_session_ends_when_idle_or_old() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut sessions = DashboardSessions::default();
        let token = sessions.begin(&alice(b"t"), start).unwrap();
        let mut is_known = |minutes| {
            sessions.operator(token.as_str().as_bytes(), start + minutes * minute).is_some()
        };
        assert!(is_known(59) && is_known(118));
        assert!(!is_known(178), "an hour after the last request");

        let token = sessions.begin(&alice(b"t"), start).unwrap();
        let mut is_known = |minutes| {
            sessions.operator(token.as_str().as_bytes(), start + minutes * minute).is_some()
        };
        assert!((0..720).step_by(30).all(&mut is_known));
        assert!(!is_known(720), "twelve hours after the login");
    }

    #[test]
    fn a_further_session_than_the_most_ends_the_oldest() {
        let now = Instant::now();
        let mut sessions = DashboardSessions::default();
        let begin = |_| sessions.begin(&alice(b"t"), now).unwrap();
        let tokens: Vec<Token> = (0..=SESSIONS_MAX).map(begin).collect();
        let mut is_known =
            |at: usize| sessions.operator(tokens[at].as_str().as_bytes(), now).is_some();
        assert!(!is_known(0) && is_known(1) && is_known(SESSIONS_MAX));
        assert_eq!(sessions.0.len(), SESSIONS_MAX);
    }

    #[test]
    fn a_session_ends_with_its_operator_and_at_a_log_out() {
        let now = Instant::now();
        let mut sessions = DashboardSessions::default();
        let [first, second] = [&b"t"[..], b"u"].map(|t| sessions.begin(&alice(t), now).unwrap());
        sessions.keep(&Operators::new(vec![alice(b"u")]));
        assert!(sessions.operator(first.as_str().as_bytes(), now).is_none());
        assert!(sessions.operator(second.as_str().as_bytes(), now).is_some());
        assert!(sessions.operator(b"", now).is_none());
        sessions.end(second.as_str().as_bytes());
        assert!(sessions.operator(second.as_str().as_bytes(), now).is_none());
    }
}
