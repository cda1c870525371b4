//! An explanation as data, as it is sent over the admin socket and printed.

use serde::{Deserialize, Serialize};

use anteroom_telemetry::reason::Reason;

/// What would be done about a request, and why. It contains no token, no cookie value and no query
/// value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The request's method.
    pub method: String,
    /// The URL, without session ids and query values.
    pub url: String,
    /// What would be done.
    pub outcome: ExplainedOutcome,
    /// Why the cache does not answer: the word that `Cache-Status` has as `detail`.
    pub reason: Option<String>,
    /// The reason as a sentence.
    pub why: String,
    /// The `Cache-Status` of the response, if it is known before the app has answered.
    pub cache_status: Option<String>,
    /// Additional remarks.
    pub notes: Vec<String>,
    /// The route; `None`: the request does not get that far.
    pub route: Option<ExplainedRoute>,
    /// The visitor of the request.
    pub visitor: Option<ExplainedVisitor>,
    /// The class of a request that is sent to the app.
    pub class: Option<ExplainedClass>,
    /// The class of each cookie.
    pub cookies: Vec<ExplainedCookie>,
    /// The key of the page; `None`: the page could not be shared.
    pub key: Option<ExplainedKey>,
    /// The request that would be sent to the app to fill the cache.
    pub fill: Option<ExplainedFill>,
    /// What memory holds under the key.
    pub memory: Option<ExplainedTier>,
    /// What the store holds under the key.
    pub store: Option<ExplainedTier>,
    /// Set if a recent response was uncacheable.
    pub uncacheable: Option<ExplainedUncacheable>,
    /// Set if a recent response was refused for a reason that says nothing of the next.
    #[serde(default)]
    pub leak: Option<ExplainedLeak>,
    /// The stored page, as the request would find it.
    pub page: Option<ExplainedPage>,
    /// What would become of an HTML page without caching fields from the app, if one is fetched.
    pub silent: Option<SilentPage>,
    /// Configuration that would help.
    pub hints: Vec<ConfigHint>,
}

/// What would be done about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExplainedOutcome {
    /// Answered from the cache.
    Hit,
    /// Answered with a stale page.
    Stale,
    /// Fetched for the cache, and answered with the result.
    Fetch,
    /// Forwarded as it came.
    Forward,
    /// Answered with a row.
    Row,
    /// Answered by the proxy itself: an endpoint, a redirect or a purge.
    Own,
    /// Refused.
    Refuse,
}

impl Explanation {
    /// The outcome whatever is stored and was answered before, for `anteroom test`: `cacheable`, `forwarded`, `own` or
    /// `refused`.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        use ExplainedOutcome::{Fetch, Forward, Hit, Own, Refuse, Row, Stale};
        match self.outcome {
            Hit | Stale | Fetch => "cacheable",
            Forward if self.reason.as_deref() == Some(Reason::Unproven.as_str()) => "cacheable",
            Forward => "forwarded",
            Row | Own => "own",
            Refuse => "refused",
        }
    }
}

/// The route of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRoute {
    /// The route's name.
    pub name: String,
    /// The visitors with whom its pages are shared: `anonymous`, `everyone`, `segment`, `user` or
    /// `none`.
    pub share: String,
    /// The name of the origin, if there are several.
    pub origin: Option<String>,
    /// The item that the request names.
    pub item: Option<String>,
    /// The keys of its other settings.
    pub settings: Vec<String>,
}

/// The visitor of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedVisitor {
    /// `known`, `anonymous` or `unknown`.
    pub class: String,
    /// Why the visitor has this class.
    pub why: String,
    /// The user's name, if `[log] user` allows it to be shown.
    pub user: Option<String>,
}

/// When a request is served where others wait for the app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedClass {
    /// `known`, `login`, `seen` or `new`.
    pub class: String,
    /// Why the request has this class.
    pub why: String,
}

/// A cookie of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedCookie {
    /// The cookie's name.
    pub name: String,
    /// `session`, `harmless`, `keyed` or `unknown`.
    pub class: String,
}

/// A key and the parts that it is made of. Cookies and request fields are listed by name only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedKey {
    /// `cache:` and the hash, as in the store.
    pub key: String,
    /// The visitors with whom the page is shared: `anonymous`, `public`, `everyone`, `segment` or
    /// `user`.
    pub class: String,
    /// The scheme of the request.
    pub scheme: String,
    /// The site of the request.
    pub site: String,
    /// The path, without session ids.
    pub path: String,
    /// The query's parameters, without their values.
    pub query: String,
    /// Parameters of the request that are not part of the key (`[cache] ignore_query`).
    pub ignored: Vec<String>,
    /// Cookies that are part of the key.
    pub cookies: Vec<String>,
    /// Request fields that are part of the key.
    pub fields: Vec<String>,
}

/// A request that fills the cache. Fields are listed by name only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedFill {
    /// The target, without session ids and query values.
    pub target: String,
    /// The fields that are taken from the visitor's request.
    pub fields: Vec<String>,
    /// The fields that the proxy adds.
    pub own_fields: Vec<String>,
    /// The fields of the visitor's request that are left out although the app may evaluate them.
    pub lost_fields: Vec<String>,
    /// The cookies that are left out although the app may evaluate them.
    pub lost_cookies: Vec<String>,
    /// Whether the fill names the proxy's address instead of the client's.
    pub own_address: bool,
    /// Whether the fill validates the stored page.
    pub validates: bool,
    /// Whether the response is delivered to the visitor even if it may not be shared. Otherwise something is left out
    /// by which the app may answer differently, and the visitor's own request may then be sent, too. If the fill names
    /// the proxy's address, a response that sets a cookie or refuses the visitor is not delivered.
    pub spares: bool,
}

/// What memory or the store holds under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedTier {
    /// Why the contents are unknown, if they are.
    pub error: Option<String>,
    /// The page's variants, if there are several.
    pub variants: Option<ExplainedVariants>,
    /// `fresh`, `stale` or `purged`: the page for this request; `None`: there is no page.
    pub page: Option<String>,
    /// The remaining seconds of freshness; negative: the seconds since the page became stale.
    pub ttl: Option<i64>,
}

/// A page's variants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedVariants {
    /// The request fields that select a variant.
    pub fields: Vec<String>,
    /// The number of variants.
    pub count: usize,
}

/// A recent response that was uncacheable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedUncacheable {
    /// The reason as a word.
    pub reason: String,
    /// The reason as a sentence.
    pub why: String,
    /// For what the response would be uncacheable without that.
    #[serde(default)]
    pub further: Vec<ExplainedReason>,
    /// How long this is still remembered, in seconds.
    pub seconds: u64,
}

/// A reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedReason {
    /// As a word.
    pub reason: String,
    /// As a sentence.
    pub why: String,
}

/// A recent response that was not shared because it contained personal data of its visitor, or was old when it came.
/// The next one may be shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedLeak {
    /// The finding as a word.
    pub reason: String,
    /// The finding as a sentence.
    pub why: String,
    /// How long ago it was, in seconds.
    pub seconds: u64,
}

/// A stored page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedPage {
    /// The page's status.
    pub status: u16,
    /// `Content-Type`.
    pub kind: Option<String>,
    /// `Content-Encoding`, as it is stored.
    pub coding: Option<String>,
    /// The coding to which it is recoded for this client.
    pub recoded: Option<String>,
    /// The length of the body, in bytes.
    pub bytes: usize,
    /// `fresh`, `stale` or `purged`.
    pub standing: String,
    /// `no`, `soft` or `hard`: the purge that the page has been subject to.
    pub purged: String,
    /// The freshness lifetime in seconds, from the page's origination.
    pub lifetime: u64,
    /// The field or setting that named the lifetime.
    pub source: String,
    /// The page's age, in seconds.
    pub age: u64,
    /// The remaining seconds of freshness; negative: the seconds since the page became stale.
    pub ttl: i64,
    /// How long the page may be served stale while it is revalidated, in seconds.
    pub stale_while_revalidate: u64,
    /// How long the page may be served stale while the app fails, in seconds.
    pub stale_if_error: u64,
    /// The fields by which the app can validate the page.
    pub validators: Vec<String>,
    /// The request fields that the page depends on.
    pub vary: Vec<String>,
    /// Whether logged-in visitors may get the page, too.
    pub static_proof: bool,
    /// Why this visitor may not get the page; `None`: the visitor may.
    pub refused: Option<String>,
}

/// What would become of an HTML page without caching fields from the app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentPage {
    /// The freshness lifetime in seconds.
    pub lifetime: u64,
    /// The setting that would name the lifetime.
    pub source: String,
    /// Why the page would not be stored.
    pub reason: Option<String>,
}

/// Configuration that would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigHint {
    /// The key of the configuration.
    pub key: String,
    /// What to write, and when it helps.
    pub text: String,
}
