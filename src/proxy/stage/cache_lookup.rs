//! The cache lookup: finds what memory and the store hold for a request, and decides what to do with it.

use std::cell::OnceCell;
use std::sync::Arc;

use ::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, COOKIE, HOST};
use ::http::{HeaderMap, HeaderName, Method};

use crate::cache::entry::{Entry, LifetimeSource};
use crate::cache::fill::Loss;
use crate::cache::rules::key::{ShareClass, variant_key};
use crate::cache::rules::request_directives::Wish;
use crate::cache::rules::verdict::Who;
use crate::cache::{From, Look, Lookup};
use crate::http::cache_status::CacheStatus;
use crate::http::forwarded::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::http::media::{self, accept_names_pages};
use crate::ident::PageKey;
use crate::proxy::context::RequestContext;
use crate::proxy::cookie_rules::CookieClass;
use crate::proxy::origin_request;
use crate::telemetry::metrics::Count;
use crate::telemetry::reason::Reason;

/// A request that the cache may serve.
pub(in crate::proxy) struct Want<'c> {
    pub(in crate::proxy) cx: &'c RequestContext<'c>,
    /// The visitors with whom the page is shared. The class is part of the key and limits what may fill
    /// the page.
    pub(in crate::proxy) class: ShareClass,
    pub(in crate::proxy) key: PageKey,
    /// The freshness that the request's directives ask for.
    pub(in crate::proxy) wish: Wish,
    /// The fields that a fill would send. PERF: a hit on a page without variants never needs them.
    pub(in crate::proxy) sent: OnceCell<HeaderMap>,
}

impl<'c> Want<'c> {
    pub(in crate::proxy) fn new(cx: &'c RequestContext<'c>, class: ShareClass) -> Self {
        let target = cx.head.uri.path_and_query().map_or("/", |target| target.as_str());
        let key = cx.page_key(target, cx.route, class);
        let honours = cx.worker.filler.policy.client_directives;
        let wish = Wish::of(&cx.head.headers, honours);
        Self { cx, class, key, wish, sent: OnceCell::new() }
    }

    pub(in crate::proxy) fn sent(&self) -> &HeaderMap {
        self.sent.get_or_init(|| origin_request::fill_fields(self.cx, self.class))
    }

    /// Whether a fill with this visitor's session would lose a field of the visitor's request. Such a
    /// request is forwarded as it came. The response to a request with a session is always delivered,
    /// because it may have changed the session.
    pub(in crate::proxy) fn loses_own(&self) -> bool {
        let is_personal = self.class.is_personal();
        is_personal && origin_request::fill(self.cx, self.class, self.sent()).1 == Loss::Visitor
    }

    /// The key under which a page that was found is fetched again.
    pub(in crate::proxy) fn key_of(&self, entry: &Entry) -> PageKey {
        match entry.vary.as_slice() {
            [] => self.key,
            fields => variant_key(&self.key, fields, self.sent()),
        }
    }

    /// Whether a stale page is the answer while it is revalidated (RFC 5861 §3). A personal page is
    /// never revalidated in the background, because no client would see the response to that request
    /// with the visitor's session.
    pub(in crate::proxy) fn is_answered_meanwhile(&self, entry: &Entry) -> bool {
        !self.class.is_personal()
            && self.wish.is_met_by(entry, self.now())
            && entry.serves_while_revalidating(self.now())
    }

    pub(in crate::proxy) fn now(&self) -> u64 {
        self.cx.now as u64
    }

    /// Whether a cookie is the session cookie of a visitor known to be logged out. Such a visitor gets
    /// the same page with the cookie as without it.
    pub(in crate::proxy) fn is_nobodys(&self, cookie: &[u8]) -> bool {
        self.cx.visitor.sharing == Who::Anonymous
            && self.cx.worker.settings.cookies.is_session(cookie)
    }

    /// Whether this visitor may get the page; the error is the reason to forward the request.
    pub(in crate::proxy) fn suits(&self, entry: &Entry) -> Result<(), Reason> {
        let headers = &self.cx.head.headers;
        if entry.source == LifetimeSource::Default && !accept_names_pages(headers) {
            return Err(Reason::Accept);
        }
        if entry.vary.iter().any(|name| self.is_unsent(entry, name)) {
            return Err(Reason::Vary);
        }
        Ok(())
    }

    /// Whether a field that selected the page differs between this request and a fill. This is so if the
    /// request carries a field that a fill leaves out or changes, or if the proxy would add the field
    /// with this visitor's data.
    pub(in crate::proxy) fn is_unsent(&self, entry: &Entry, name: &HeaderName) -> bool {
        let headers = &self.cx.head.headers;
        match *name {
            COOKIE => self.lost_cookies().any(|cookie| !self.is_nobodys(cookie)),
            // Part of the key, as are the two fields that state the scheme and host of the client's
            // side.
            HOST => false,
            _ if *name == X_FORWARDED_PROTO || *name == X_FORWARDED_HOST => false,
            // Checked when the page is prepared for the client.
            ACCEPT_ENCODING if self.cx.worker.recompressor.is_on() => false,
            // A client that accepts none of the codings that a fill asks for can still get an unencoded
            // page.
            ACCEPT_ENCODING => {
                headers.contains_key(name)
                    && !self.sent().contains_key(name)
                    && entry.headers.contains_key(CONTENT_ENCODING)
            }
            // The proxy itself sets this field, and sets it to another value for this visitor.
            _ if origin_request::is_told(self.cx, self.class, name) => true,
            _ => headers.contains_key(name) && !self.sent().contains_key(name),
        }
    }
}

impl<'c> Want<'c> {
    /// The cookies that a fill leaves out and that may change the visitor's page. On an `everyone` route
    /// with fragments, the operator states that fragments hold all personal content. The session cookies
    /// are then not counted here.
    pub(in crate::proxy) fn lost_cookies(&self) -> impl Iterator<Item = &'c [u8]> {
        let cx = self.cx;
        let rules = &cx.worker.settings.cookies;
        let is_of_holes = move |name: &&[u8]| {
            self.class == ShareClass::Everyone
                && cx.route.has_holes()
                && matches!(rules.class(name, cx.route), CookieClass::Session(_))
        };
        origin_request::lost_cookies(cx, self.class).filter(move |name| !is_of_holes(name))
    }
}

/// A page that suits the visitor but is stale, or not fresh enough for the request's directives.
pub(in crate::proxy) struct StaleCandidate {
    pub(in crate::proxy) entry: Arc<Entry>,
    /// The key under which the page is fetched again.
    pub(in crate::proxy) key: PageKey,
    /// Whether the page may be served when the origin fails.
    pub(in crate::proxy) rescues: bool,
}

/// What the proxy does with a request that the cache may serve.
pub(in crate::proxy) enum Step {
    /// Serve this page.
    Hit(Arc<Entry>, From),
    /// Forward the request for this visitor alone.
    Forward(Reason),
    /// Forward a HEAD request. A stale page may be at hand.
    Head(Option<StaleCandidate>),
    /// Refuse: the request accepts only a stored response, and there is none (RFC 9111 §5.2.1.7).
    NotStored,
    /// Serve a stale page. With `renews`, the page is revalidated in the background (RFC 5861 §3);
    /// without it, the origin failed for this page a moment ago (§4).
    Stale { held: StaleCandidate, renews: bool },
    /// Fetch the page, or wait for a fetch that is under way.
    Fetch { held: Option<StaleCandidate>, key: PageKey },
}

/// Looks the page up and decides what to do. `forwarded_for` is the reason to forward the request unless
/// the page is static by proof.
pub(in crate::proxy) async fn decide(
    want: &Want<'_>,
    forwarded_for: Option<Reason>,
    look: Look,
) -> Step {
    let cx = want.cx;
    let found = match find(want, look).await {
        // A response to a logged-in visitor that the origin marks `public` is valid for anonymous
        // visitors, too.
        absent @ Lookup::Absent(_)
            if want.class == ShareClass::Anonymous && cx.route.trust_public =>
        {
            match find(&Want::new(cx, ShareClass::Public), look).await {
                fresh @ Lookup::Fresh(..) => fresh,
                Lookup::Stale(..) | Lookup::Absent(_) => absent,
            }
        }
        found => found,
    };
    let (held, key) = match weigh(want, found, forwarded_for) {
        Weighed::Hit(entry, from) => return Step::Hit(entry, from),
        Weighed::Forward(_) | Weighed::Fetch(..) if want.wish.only_if_cached => {
            return Step::NotStored;
        }
        Weighed::Forward(reason) => return Step::Forward(reason),
        Weighed::Fetch(held, key) => (held, key),
    };
    if cx.head.method == Method::HEAD {
        // The response to a HEAD is for this client alone and leaves stored pages unchanged. It cannot
        // make a page fresh, and a page that it contradicts is stale already (RFC 9111 §4.3.5).
        return Step::Head(held);
    }
    let memory = cx.worker.pages.memory();
    let uncacheable = match look {
        Look::Use => memory.uncacheable(&want.key, want.now()),
        Look::Peek => memory.peek_uncacheable(&want.key, want.now()).map(|(reason, _)| reason),
    };
    if let Some(reason) = uncacheable {
        return Step::Forward(reason);
    }
    match held {
        Some(held) if held.rescues && memory.is_failing(&held.key, want.now(), look) => {
            Step::Stale { held, renews: false }
        }
        Some(held) if want.is_answered_meanwhile(&held.entry) => Step::Stale { held, renews: true },
        held => Step::Fetch { held, key },
    }
}

/// Whether the request is for a static resource that is stored for anonymous visitors and is static by
/// proof.
pub(in crate::proxy) async fn is_kept_for_strangers(cx: &RequestContext<'_>, look: Look) -> bool {
    let may_be = cx.worker.filler.policy.static_for_all
        && media::asks_for_static(&cx.head.headers, cx.head.uri.path());
    if !may_be {
        return false;
    }
    let want = Want::new(cx, ShareClass::Anonymous);
    let Lookup::Fresh(entry, _) = find(&want, look).await else { return false };
    entry.static_proof && want.wish.is_met_by(&entry, want.now()) && want.suits(&entry).is_ok()
}

/// What follows from the page that was found.
enum Weighed {
    Hit(Arc<Entry>, From),
    Forward(Reason),
    Fetch(Option<StaleCandidate>, PageKey),
}

/// Decides whether the page that was found is the answer. `forwarded_for` is the reason why this visitor
/// gets only pages that are static by proof, and fills none.
fn weigh(want: &Want<'_>, found: Lookup, forwarded_for: Option<Reason>) -> Weighed {
    let suits = |entry: &Entry| want.suits(entry).is_ok();
    let (held, key, reason) = match found {
        Lookup::Fresh(entry, _) if !want.wish.is_met_by(&entry, want.now()) => {
            let key = want.key_of(&entry);
            let held = suits(&entry).then_some(StaleCandidate { entry, key, rescues: true });
            (held, key, Some(Reason::RequestDirective))
        }
        Lookup::Fresh(entry, from) => {
            let refused = forwarded_for.filter(|_| !entry.static_proof);
            return match want.suits(&entry).err().or(refused) {
                None => Weighed::Hit(entry, from),
                Some(reason) => Weighed::Forward(reason),
            };
        }
        Lookup::Stale(entry, _, key) => {
            let rescues = entry.serves_on_error(want.now());
            (suits(&entry).then_some(StaleCandidate { entry, key, rescues }), key, None)
        }
        Lookup::Absent(key) => (None, key, None),
    };
    match forwarded_for {
        Some(forwarded_for) => Weighed::Forward(reason.unwrap_or(forwarded_for)),
        None => Weighed::Fetch(held, key),
    }
}

/// Looks in memory and in the store. A store error counts as a miss.
async fn find(want: &Want<'_>, look: Look) -> Lookup {
    let worker = want.cx.worker;
    let pages = &worker.pages;
    // PERF: the fields of a fill are built only when they are needed. A peek is not on the hot path.
    if look == Look::Use
        && let Some(entry) = pages.in_memory(&want.key, || want.sent(), want.now())
    {
        return Lookup::Fresh(entry, From::Memory);
    }
    let looked_up = pages.look(&worker.store, &want.key, want.sent(), want.now(), look).await;
    looked_up.unwrap_or_else(|error| {
        tracing::debug!(%error, "looking up a page in the store failed");
        worker.sheet.count(Count::StoreReadErrors);
        Lookup::Absent(want.key)
    })
}

/// The `Cache-Status` of a hit.
pub(in crate::proxy) fn hit_status(
    want: &Want<'_>,
    entry: &Entry,
    from: From,
) -> CacheStatus<'static> {
    let detail = match from {
        From::Memory => "memory",
        From::Store => "store",
    };
    CacheStatus::hit(entry.ttl(want.now()), detail)
}

/// The `Cache-Status` of a hit on a stale page.
pub(in crate::proxy) fn stale_status(want: &Want<'_>, entry: &Entry) -> CacheStatus<'static> {
    CacheStatus::hit(entry.ttl(want.now()), "stale")
}
