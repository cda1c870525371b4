//! An explanation as data: what is told over the socket, and printed.

use serde::{Deserialize, Serialize};

/// What would be done about a request, and why. It holds no token, no value of a cookie and none of a
/// query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The method.
    pub method: String,
    /// The URL, without session ids and values of its query.
    pub url: String,
    /// What would be done.
    pub outcome: Outcome,
    /// Why not from the cache: the word that `Cache-Status` has as `detail`.
    pub reason: Option<String>,
    /// The same as a sentence.
    pub why: String,
    /// What `Cache-Status` would say, where that is known before the app has answered.
    pub cache_status: Option<String>,
    /// What is worth knowing besides.
    pub notes: Vec<String>,
    /// The route; none where the request does not come that far.
    pub route: Option<Route>,
    /// Who asks.
    pub visitor: Option<Visitor>,
    /// What each cookie is taken for.
    pub cookies: Vec<Cookie>,
    /// The key of the page; none where nothing could be shared.
    pub key: Option<Key>,
    /// What the app would be asked to fill the cache.
    pub fill: Option<Fill>,
    /// What memory holds under the key.
    pub memory: Option<Tier>,
    /// What the store holds.
    pub store: Option<Tier>,
    /// That the page turned out uncacheable lately.
    pub uncacheable: Option<Uncacheable>,
    /// That it held its visitor's own lately.
    #[serde(default)]
    pub leak: Option<Leak>,
    /// The page that is held, as the request would find it.
    pub page: Option<Page>,
    /// What would become of an html page of which the app says nothing, where one is fetched.
    pub silent: Option<Silent>,
    /// What would help.
    pub hints: Vec<Hint>,
}

/// What would be done about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Answered from the cache.
    Hit,
    /// Answered with a stale page.
    Stale,
    /// Fetched for the cache, and answered with that.
    Fetch,
    /// Forwarded as it came.
    Forward,
    /// Answered with a row.
    Row,
    /// Answered by us: an endpoint, or a purge.
    Own,
    /// Refused.
    Refuse,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// With whom its pages are shared: `anonymous`, `everyone` or `none`.
    pub share: String,
    /// The origin that is asked, where there are several.
    pub origin: Option<String>,
    /// The item that the request names.
    pub item: Option<String>,
    /// The settings that it has beside, by their keys.
    pub settings: Vec<String>,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visitor {
    /// `known`, `anonymous` or `unknown`.
    pub class: String,
    /// Why.
    pub why: String,
    /// His name, where `[log] user` allows to tell it.
    pub user: Option<String>,
}

/// A cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// `session`, `harmless`, `keyed` or `unknown`.
    pub class: String,
}

/// A key and the fields that it is made of; of cookies and request fields only the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// `cache:` and the hash, as it stands in the store.
    pub key: String,
    /// With whom the page is shared: `anonymous`, `public` or `everyone`.
    pub class: String,
    /// The visitor's scheme.
    pub scheme: String,
    /// The site.
    pub site: String,
    /// The path, without session ids.
    pub path: String,
    /// The query's parameters, without their values.
    pub query: String,
    /// Parameters that came, and are not part of it (`[cache] ignore_query`).
    pub ignored: Vec<String>,
    /// Cookies that are part of it.
    pub cookies: Vec<String>,
    /// Request fields that are part of it.
    pub fields: Vec<String>,
}

/// A request that fills the cache; of its fields only the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// The target, without session ids and values of its query.
    pub target: String,
    /// What it has of the visitor's.
    pub fields: Vec<String>,
    /// What we add.
    pub own_fields: Vec<String>,
    /// What the visitor's own request has beside, and the app may look at.
    pub lost_fields: Vec<String>,
    /// The cookies among that.
    pub lost_cookies: Vec<String>,
    /// Whether it names our address for the visitor's.
    pub own_address: bool,
    /// Whether it asks if the page that is held is right still.
    pub validates: bool,
    /// Whether the answer is for its visitor even when nobody else may have it; else his request is
    /// forwarded then as it came. With our address for his it is not where it sets a cookie, or
    /// refuses him.
    pub spares: bool,
}

/// What memory or the store holds under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Why it cannot be told.
    pub error: Option<String>,
    /// The page's variants, where it has several.
    pub variants: Option<Variants>,
    /// `fresh`, `stale` or `purged`: the page for this request; none where there is none.
    pub page: Option<String>,
    /// Its seconds of freshness left; negative since when it is stale.
    pub ttl: Option<i64>,
}

/// A page's variants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variants {
    /// The request fields that choose among them.
    pub fields: Vec<String>,
    /// How many there are.
    pub count: usize,
}

/// That a page turned out uncacheable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncacheable {
    /// The word for why.
    pub reason: String,
    /// The same as a sentence.
    pub why: String,
    /// For how many seconds this is remembered still.
    pub seconds: u64,
}

/// That a page was not shared, for it held its visitor's own. The next one may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The word for what was found.
    pub reason: String,
    /// The same as a sentence.
    pub why: String,
    /// How many seconds ago.
    pub seconds: u64,
}

/// A page that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The status.
    pub status: u16,
    /// `Content-Type`.
    pub kind: Option<String>,
    /// `Content-Encoding`, as it is stored.
    pub coding: Option<String>,
    /// The coding into which it is brought for this visitor.
    pub recoded: Option<String>,
    /// The length of its body.
    pub bytes: usize,
    /// `fresh`, `stale` or `purged`.
    pub standing: String,
    /// `no`, `soft` or `hard`: whether a purge has hit it.
    pub purged: String,
    /// Seconds for which it is fresh, from its origination.
    pub lifetime: u64,
    /// What named that.
    pub source: String,
    /// How old it is, in seconds.
    pub age: u64,
    /// Seconds of freshness left; negative since when it is stale.
    pub ttl: i64,
    /// For how many seconds it may be served when it is stale, while it is fetched anew.
    pub stale_while_revalidate: u64,
    /// The same while the app fails.
    pub stale_if_error: u64,
    /// What the app can be asked by whether it is right still.
    pub validators: Vec<String>,
    /// The request fields that it depends on.
    pub vary: Vec<String>,
    /// Whether visitors with a login may be given it, too.
    pub static_proof: bool,
    /// Why this visitor may not be given it; none where he may.
    pub refused: Option<String>,
}

/// What would become of an html page of which the app says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// Seconds for which it would be fresh.
    pub lifetime: u64,
    /// What would name that.
    pub source: String,
    /// Why it would not be kept.
    pub reason: Option<String>,
}

/// What would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// The key of the configuration.
    pub key: String,
    /// What to write, and when it helps.
    pub text: String,
}
