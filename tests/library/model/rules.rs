//! The reference: what the standard and the configuration allow, as plainly as it can be said.
//!
//! Slow and short on purpose. It knows nothing of how the proxy decides.

use crate::cast::{Ask, Share};
use crate::world::{Event, Purge, Scope, Url};

/// Whole seconds are compared in the proxy, so that a page may live a moment longer than here.
const ROUNDING: f64 = 1.5;
/// `default_ttl` in the configuration.
const DEFAULT_TTL: f64 = 300.0;
/// `stale_if_error` in the configuration.
const STALE_IF_ERROR: u64 = 600;

/// `max_object` in the configuration: larger pages are not kept.
pub(crate) const MAX_OBJECT: usize = 8 << 10;

/// Directives of `Cache-Control`.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent directives of one field")]
pub(crate) struct Control {
    pub(crate) max_age: Option<u64>,
    pub(crate) s_maxage: Option<u64>,
    pub(crate) while_revalidate: Option<u64>,
    pub(crate) if_error: Option<u64>,
    pub(crate) private: bool,
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
}

impl Control {
    /// The field's value.
    pub(crate) fn text(&self) -> String {
        let seconds = [
            ("max-age", self.max_age),
            ("s-maxage", self.s_maxage),
            ("stale-while-revalidate", self.while_revalidate),
            ("stale-if-error", self.if_error),
        ];
        let switches = [
            ("private", self.private),
            ("no-store", self.no_store),
            ("no-cache", self.no_cache),
            ("public", self.public),
            ("must-revalidate", self.must_revalidate),
        ];
        let seconds = seconds.iter().filter_map(|(name, n)| n.map(|n| format!("{name}={n}")));
        let switches = switches.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned());
        switches.chain(seconds).collect::<Vec<_>>().join(", ")
    }
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Html,
    Css,
    Image,
    Json,
}

/// How a body's end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunks,
    /// By the end of the connection.
    Close,
}

/// What the origin says.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent parts of a response")]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) kind: Kind,
    pub(crate) framing: Framing,
    /// How often its number stands in the body.
    pub(crate) copies: usize,
    pub(crate) control: Option<Control>,
    /// `CDN-Cache-Control`.
    pub(crate) targeted: Option<Control>,
    /// `Expires`, in seconds from the time at which it is sent.
    pub(crate) expires: Option<u64>,
    /// `Date`, that many seconds ago.
    pub(crate) dated: Option<u64>,
    pub(crate) age: Option<u64>,
    pub(crate) vary: Vec<&'static str>,
    /// The name of the cookie that it sets.
    pub(crate) sets_cookie: Option<&'static str>,
    pub(crate) has_tag: bool,
    pub(crate) has_date_of_change: bool,
    pub(crate) purge_tags: Vec<&'static str>,
    /// Whether it has a form with a token in it.
    pub(crate) has_token: bool,
    /// Whether it speaks of its visitor in a field for the proxy.
    pub(crate) speaks_of_visitor: bool,
}

impl Page {
    /// RFC 9213: what is said to caches like the proxy outweighs what is said to all.
    fn control(&self) -> Control {
        self.targeted.clone().or_else(|| self.control.clone()).unwrap_or_default()
    }

    fn has_validator(&self) -> bool {
        self.has_tag || self.has_date_of_change
    }

    /// How old it says it is when it comes.
    fn age_when_sent(&self) -> u64 {
        self.age.unwrap_or(0).max(self.dated.unwrap_or(0))
    }

    /// RFC 9111 §4.2.1 for a shared cache, in seconds from when it is sent; `None`: nothing is said.
    fn said_to_be_fresh_for(&self) -> Option<f64> {
        let control = self.control();
        let named = control.s_maxage.or(control.max_age).map(|seconds| seconds as f64);
        // `Expires` counts from `Date`, so that the age comes off as it does from all.
        let expires = || self.expires.map(|seconds| (seconds + self.dated.unwrap_or(0)) as f64);
        let named = named.or_else(|| if self.targeted.is_none() { expires() } else { None });
        named.map(|seconds| seconds - self.age_when_sent() as f64)
    }

    /// The lifetime that the configuration grants, from when it arrives and less what it says of its age;
    /// `None`: never fresh.
    fn granted(&self, url: &Url) -> Option<f64> {
        let has_default = match self.kind {
            _ if url.rule().has_ttl => true,
            Kind::Html | Kind::Css => true,
            Kind::Image => self.has_validator(),
            Kind::Json => false,
        };
        match self.status {
            200 if has_default => Some(DEFAULT_TTL - self.age.unwrap_or(0) as f64),
            404 if url.rule().has_ttl => Some(10.0 - self.age.unwrap_or(0) as f64),
            _ => None,
        }
    }

    /// Whether another visitor than that of the request may be given it.
    fn is_shareable(&self, url: &Url) -> bool {
        let control = self.control();
        let cookie_is_cut = |name| url.rule().strips == Some(name);
        !(control.private
            || control.no_store
            || self.speaks_of_visitor
            || self.framing == Framing::Close
            || self.sets_cookie.is_some_and(|name| !cookie_is_cut(name))
            || self.vary.contains(&"*")
            || (self.kind == Kind::Html && self.has_token))
    }

    /// RFC 9111 §3.5: what may be kept of an answer to a request with a login.
    fn is_public(&self) -> bool {
        let control = self.control();
        control.public || control.s_maxage.is_some() || control.must_revalidate
    }

    /// What strangers were given, visitors with a login may be given, too.
    fn is_static(&self) -> bool {
        self.status == 200
            && matches!(self.kind, Kind::Css | Kind::Image)
            && self.has_validator()
            && !self.vary.contains(&"Cookie")
    }
}

impl Event {
    /// Until when it is fresh; `None`: never.
    pub(crate) fn fresh_until(&self) -> Option<f64> {
        if self.page.control().no_cache {
            return None;
        }
        let said = self.page.said_to_be_fresh_for().map(|seconds| self.came + seconds);
        let granted = || Some(self.arrived + self.page.granted(&self.seen.url)?);
        said.or_else(granted)
    }

    /// Whether more than one visitor may be given it when it comes.
    pub(crate) fn is_for_all(&self) -> bool {
        self.is_shareable() && self.fresh_until().is_some_and(|until| until > self.came)
    }

    pub(crate) fn is_shareable(&self) -> bool {
        self.page.is_shareable(&self.seen.url)
            && (self.seen.authorization.is_none() || self.page.is_public())
    }

    /// Whether it is fresh at `now`, with nothing to spare but the rounding.
    pub(crate) fn is_fresh(&self, now: f64) -> bool {
        self.fresh_until().is_some_and(|until| now <= until + ROUNDING)
    }

    /// Whether it may be served stale at `now` (RFC 5861); `fails`: the origin does.
    pub(crate) fn serves_stale(&self, now: f64, fails: bool) -> bool {
        let (control, Some(until)) = (self.page.control(), self.fresh_until()) else {
            return false;
        };
        if control.no_cache || control.must_revalidate || !self.is_shareable() {
            return false;
        }
        // §5.2.2.10: `s-maxage` forbids it where the same field does not say more.
        let ours = if control.s_maxage.is_some() { 0 } else { STALE_IF_ERROR };
        let meanwhile = control.while_revalidate.unwrap_or(0);
        let on_error = control.if_error.unwrap_or(ours).max(meanwhile);
        let window = if fails { on_error } else { meanwhile };
        window > 0 && now < until + window as f64 + ROUNDING
    }

    /// The `Age` that a hit at `now` has at least.
    pub(crate) fn age(&self, now: f64) -> f64 {
        self.page.age_when_sent() as f64 + now - self.came
    }

    /// Whether a fetch that carried nothing of a visitor's was just what this one asked for. What it may lack is the
    /// field that no list names, if the app has done something else than to answer with a page, or has set a cookie: it
    /// is asked once.
    pub(crate) fn is_as_asked(&self, ask: &Ask) -> bool {
        let (seen, same) = (&self.seen, |a: Option<&str>, b: &Option<String>| a == b.as_deref());
        same(ask.language, &seen.language)
            && same(ask.agent, &seen.agent)
            && (same(ask.custom, &seen.custom)
                || self.page.status != 200
                || self.page.sets_cookie.is_some())
            && ask.telling_cookies() == seen.cookie
            && ask.authorization() == seen.authorization
            && ask.url.rule().share != Share::None
    }

    /// Whether a fetch that carried nothing of a visitor's may answer this one, or why not.
    pub(crate) fn suits(&self, ask: &Ask) -> Result<(), String> {
        let rule = ask.url.rule();
        match rule.share {
            Share::None => return Err("the route shares nothing".to_owned()),
            Share::Public if !ask.is_anonymous() && !self.page.is_public() => {
                if !self.page.is_static() {
                    return Err("a visitor with a login, and it is not public".to_owned());
                }
            }
            Share::Anonymous if !ask.is_anonymous() && !self.page.is_static() => {
                return Err("a visitor with a login, and it is not static".to_owned());
            }
            Share::Anonymous | Share::Everyone | Share::Public => {}
        }
        if rule.is_keyed
            && (ask.keyed_cookie() != self.seen.cookie || ask.variant != self.seen.variant)
        {
            return Err("it was fetched with other keyed fields".to_owned());
        }
        for name in &self.page.vary {
            let (his, its) = match *name {
                "Accept-Language" => (ask.language.map(str::to_owned), self.seen.language.clone()),
                "User-Agent" => (ask.agent.map(str::to_owned), self.seen.agent.clone()),
                "X-Custom" => (ask.custom.map(str::to_owned), self.seen.custom.clone()),
                "Cookie" => (ask.telling_cookies(), self.seen.cookie.clone()),
                _ => continue,
            };
            if his != its {
                return Err(format!("Vary: {name}: he has {his:?}, it was fetched with {its:?}"));
            }
        }
        Ok(())
    }
}

impl Purge {
    /// Whether it is for that page.
    pub(crate) fn hits(&self, event: &Event) -> bool {
        let url = &event.seen.url;
        match &self.scope {
            Scope::Everything => true,
            Scope::Tag(tag) => event.page.purge_tags.contains(tag),
            Scope::Url { host, path, query } => {
                (*host, *path, *query) == (url.host, url.path, url.kept_query)
            }
            Scope::Prefix { host, path } => {
                *host == url.host
                    && (url.path == *path
                        || url.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
            }
        }
    }
}
