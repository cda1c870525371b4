//! Sessions: cookies, lifetimes and abandoned carts.

use std::time::Duration;

use anteroom_http::host::Scheme;
use anteroom_http::ident::TokenStorage;
use anteroom_http::pattern::Pattern;
use anteroom_http::set_cookie;
use anteroom_policy::admin::DASHBOARD_COOKIE;
use anteroom_policy::cookie::{SameSite, Secure};

use super::ConfigCheck;
use crate::plan::{OnExpire, StoreUrl};
use crate::schema::shared::DAY;
use crate::text::is_near;

impl ConfigCheck<'_> {
    pub(super) fn session(&mut self) {
        let session = &self.plan.session;
        if session.mint && !matches!(session.cookies.as_slice(), [Pattern::Exact(_)]) {
            self.problem("session.mint", "needs [session] cookie to be one name without *");
        }
        if session.same_site == SameSite::None && session.secure == Secure::Never {
            self.problem(
                "session.same_site",
                "\"None\" needs secure = \"always\" or \"auto\": browsers reject such a cookie \
                 without Secure",
            );
        }
        self.dashboard_cookie();
        self.minted_cookie();
        let session = &self.plan.session;
        let embedded = matches!(self.plan.store.url, StoreUrl::Embedded(_));
        if session.on_expire != OnExpire::None && !session.clean_carts {
            self.problem(
                "session.on_expire",
                "needs clean_carts = true: otherwise carts are never cleaned",
            );
        }
        if session.on_expire == OnExpire::Stream && embedded {
            let text =
                "\"stream\" needs Redis; with the embedded store, write \"file:\" and a path";
            self.problem("session.on_expire", text);
        }
        self.abandoned_carts();
        let session = &self.plan.session;
        if embedded && session.token_storage == TokenStorage::Plain {
            self.warning(
                "session.token_storage",
                "\"plain\" on the embedded store: read access to its files is enough to act as any \
                 visitor",
            );
        }
    }

    /// The cookie of the dashboard never reaches the proxy's own reading of cookies.
    fn dashboard_cookie(&mut self) {
        let text = format!(
            "{DASHBOARD_COOKIE} is the cookie of the dashboard, which is cut off from visitors' requests; expected \
             another name"
        );
        let is_named =
            |cookie: &Pattern| matches!(cookie, Pattern::Exact(name) if name == DASHBOARD_COOKIE);
        if self.plan.session.cookies.iter().any(is_named) {
            self.problem("session.cookie", text.clone());
        }
        if self.plan.visitor.cookie == DASHBOARD_COOKIE {
            self.problem("visitor.cookie", text);
        }
    }

    /// Settings that apply only to sessions that the proxy creates.
    fn minted_cookie(&mut self) {
        let session = &self.plan.session;
        let told = [
            ("session.cookie_lifetime", session.cookie_lifetime.is_some()),
            ("session.max_per_user", session.max_per_user > 0),
            ("session.per_host", session.per_host),
        ];
        for (key, _) in told.iter().filter(|(_, is_minted)| *is_minted && !session.mint) {
            self.problem(
                key,
                "needs [session] mint = true: otherwise the app creates the sessions",
            );
        }
        let is_prefixed = |cookie: &Pattern| match cookie {
            Pattern::Exact(name) => set_cookie::needs_secure(name),
            Pattern::Affix { .. } => false,
        };
        let is_never = session.mint && session.secure == Secure::Never;
        if is_never && session.cookies.iter().any(is_prefixed) {
            self.problem(
                "session.secure",
                "is \"never\", but browsers accept a cookie of this name only with Secure; remove \
                 this line",
            );
        }
        if session.idle_timeout.zip(session.absolute_timeout).is_some_and(|(idle, all)| idle > all)
        {
            self.problem(
                "session.idle_timeout",
                "is longer than absolute_timeout, so it never ends a session",
            );
        }
        self.remembered();
    }

    /// Warns of a cookie that outlives its session. A shorter `idle_timeout` is accepted if it is a day or
    /// more: visitors that stay away longer may be meant to log in again.
    fn remembered(&mut self) {
        let session = &self.plan.session;
        let Some(lifetime) = session.cookie_lifetime else { return };
        let outlives = |timeout: Option<Duration>| timeout.filter(|timeout| lifetime > *timeout);
        let ended_by = match (outlives(session.absolute_timeout), outlives(session.idle_timeout)) {
            (Some(_), _) => "absolute_timeout",
            (None, Some(idle)) if idle < DAY && lifetime >= DAY => "idle_timeout",
            (None, _) => return,
        };
        let text =
            format!("exceeds {ended_by}: browsers keep the cookie after its session has ended");
        self.warning("session.cookie_lifetime", text);
    }

    /// Checks the receiver of abandoned carts, and when they are reported.
    fn abandoned_carts(&mut self) {
        self.webhook_keys();
        let session = &self.plan.session;
        match (&session.on_expire, session.webhook_secret.as_slice()) {
            (OnExpire::Webhook(_), []) => self.problem(
                "session.webhook_secret",
                "is required by on_expire = \"webhook:…\": the receiver verifies requests with it",
            ),
            (OnExpire::Webhook(url), _) => {
                if url.server.scheme == Scheme::Http && !is_near(&url.server.host) {
                    let text =
                        "uses http: names and carts can be read and changed on the way; use https";
                    self.warning("session.on_expire", text);
                }
            }
            (OnExpire::None | OnExpire::Stream | OnExpire::File(_), _) => {}
        }
        let Some(idle) = session.cart_idle else { return };
        if session.on_expire == OnExpire::None {
            self.problem("session.cart_idle", "needs on_expire, which names the receiver");
        }
        if session.idle_timeout.is_some_and(|timeout| timeout <= idle) {
            let text = "must be shorter than idle_timeout: otherwise the session ends first";
            self.problem("session.cart_idle", text);
        }
    }

    /// Checks the keys that sign webhook requests.
    fn webhook_keys(&mut self) {
        let text = match self.plan.session.webhook_secret.as_slice() {
            [new, old] if new.expose() == old.expose() => {
                "lists one key twice: the second is for the key that the first replaces"
            }
            [] | [_] | [_, _] => return,
            _ => "lists more than two keys: expected the new one and the previous one",
        };
        self.problem("session.webhook_secret", text);
    }

    pub(super) fn is_session(&self, name: &str) -> bool {
        self.plan.session.cookies.iter().any(|cookie| cookie.matches(name.as_bytes()))
    }
}
