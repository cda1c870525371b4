//! `[session]` and `[visitor]`.

use std::path::PathBuf;
use std::time::Duration;

use ::http::HeaderName;
use anteroom_http::extract::Expression;
use anteroom_http::ident::TokenStorage;
use anteroom_http::pattern::Pattern;
use anteroom_policy::answer::Endpoint;
use anteroom_policy::cookie::{SameSite, Secure};

use super::login::{Login, Logout, Verify};
use super::origin::OriginUrl;
use crate::secret::Secret;

/// `[session]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// `app`, `"none"`: a well-known app with default session settings.
    pub app: Option<AppPreset>,
    /// `cookie`, `"login"`: names, or patterns with one `*`, of the cookies that may identify a user. The
    /// token is the value of the first one in the request.
    pub cookies: Vec<Pattern>,
    /// `mint`, false: only the proxy sets this cookie, at `Anteroom-Login` from the origin.
    pub mint: bool,
    /// `per_host`, false: a minted session is valid only at the host of its login.
    pub per_host: bool,
    /// `identity_header`, `X-Anteroom-User`, lower-case here.
    pub identity_header: HeaderName,
    /// `same_site`, `"Lax"`.
    pub same_site: SameSite,
    /// `secure`, `"auto"`.
    pub secure: Secure,
    /// `cookie_lifetime`, `"session"`: how long browsers keep the proxy's cookie; `None`: until they are
    /// closed.
    pub cookie_lifetime: Option<Duration>,
    /// `idle_timeout`, `"off"`: how long a session lasts without requests.
    pub idle_timeout: Option<Duration>,
    /// `absolute_timeout`, `"off"`: how long a session may last.
    pub absolute_timeout: Option<Duration>,
    /// `max_per_user`, 0: the most sessions of a user; 0: no limit.
    pub max_per_user: u32,
    /// `token_storage`, `"plain"` or `"sha256"`; default: sha256 in the embedded store, plain on Redis.
    pub token_storage: TokenStorage,
    /// `max_sessions`, 10,000,000.
    pub max_sessions: u64,
    /// `viewed_items`, 25.
    pub viewed_items: u32,
    /// `clean_batch`, 100.
    pub clean_batch: u32,
    /// `clean_every`, 1 s: the pause of the cleaner while the number of sessions is below the limit.
    pub clean_every: Duration,
    /// `clean_carts`, true: `clean_full_sessions`.
    pub clean_carts: bool,
    /// `on_expire`, `"none"`: where the carts of cleaned sessions go.
    pub on_expire: OnExpire,
    /// `webhook_secret`: the keys of the HMACs over webhook requests, two at most; each signs.
    pub webhook_secret: Vec<Secret>,
    /// `cart_idle`, `"none"`: the time without a visit after which a cart is reported although its session
    /// continues.
    pub cart_idle: Option<Duration>,
    /// `token_from`, `"value"` (false) or `"sha256"`: whether the token is the SHA-256 of the cookie.
    pub token_is_digest: bool,
    /// `part`: the part of the cookie that is used; default: all of it.
    pub part: Option<Expression>,
    /// `[session.verify]`: how the app is asked for the user's name.
    pub verify: Verify,
    /// `[session.login]`: the app's requests that log in.
    pub login: Login,
    /// `[session.logout]`: the app's requests that log out.
    pub logout: Logout,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            app: None,
            cookies: vec![Pattern::Exact("login".to_owned())],
            mint: false,
            per_host: false,
            identity_header: HeaderName::from_static("x-anteroom-user"),
            same_site: SameSite::Lax,
            secure: Secure::Auto,
            cookie_lifetime: None,
            idle_timeout: None,
            absolute_timeout: None,
            max_per_user: 0,
            token_storage: TokenStorage::Sha256,
            max_sessions: 10_000_000,
            viewed_items: 25,
            clean_batch: 100,
            clean_every: Duration::from_secs(1),
            clean_carts: true,
            on_expire: OnExpire::None,
            webhook_secret: Vec::new(),
            cart_idle: None,
            token_is_digest: false,
            part: None,
            verify: Verify::default(),
            login: Login::default(),
            logout: Logout::default(),
        }
    }
}

/// An app with known session settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppPreset {
    /// WordPress
    WordPress,
    /// MediaWiki
    MediaWiki,
    /// Django, with its standard login
    Django,
    /// Tomcat and other servlet containers, with form login
    Tomcat,
    /// PHP's own sessions
    Php,
}

/// Where the carts of cleaned sessions go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnExpire {
    /// Nowhere.
    None,
    /// To the stream `expired:` in Redis.
    Stream,
    /// To this file, one line of JSON each.
    File(PathBuf),
    /// To this URL, one POST each.
    Webhook(WebhookUrl),
}

/// The receiver of the carts of cleaned sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    /// The server.
    pub server: OriginUrl,
    /// Path and query.
    pub target: String,
}

/// `[visitor]`: the endpoints for browsers, and visitor tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// `endpoints`, `["me", "cart", "recent"]`: the endpoints below `/_anteroom/`.
    pub endpoints: Vec<Endpoint>,
    /// `cookie`, `"anteroom_visitor"`: the cookie with the token of an anonymous visitor.
    pub cookie: String,
    /// `token_lifetime`, 30 days: how long browsers keep the token, and the store keeps its data without
    /// visits.
    pub token_lifetime: Duration,
    /// `max_tokens`, 100,000: above this, the tokens unseen for the longest time are removed.
    pub max_tokens: u64,
}

impl Default for Visitor {
    fn default() -> Self {
        Self {
            endpoints: vec![Endpoint::Me, Endpoint::Cart, Endpoint::Recent],
            cookie: "anteroom_visitor".to_owned(),
            token_lifetime: Duration::from_secs(30 * 86_400),
            max_tokens: 100_000,
        }
    }
}
