//! The cache lookup: what memory and the store have for a request, and what is done about it.

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
    /// With whom the page would be shared: part of the key, and of what may fill it.
    pub(in crate::proxy) class: ShareClass,
    pub(in crate::proxy) key: PageKey,
    /// What the visitor asks of its freshness.
    pub(in crate::proxy) wish: Wish,
    /// What a fill would send. PERF: a hit on a page without variants never needs it.
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

    /// Whether a fetch that carries this visitor's session would lack something of his request. It is his own
    /// request then, as it came: no answer to his session is thrown away, for it may have changed that.
    pub(in crate::proxy) fn loses_own(&self) -> bool {
        let is_personal = self.class.is_personal();
        is_personal && origin_request::fill(self.cx, self.class, self.sent()).1 == Loss::Visitor
    }

    /// The key under which a page that was found is fetched anew.
    pub(in crate::proxy) fn key_of(&self, entry: &Entry) -> PageKey {
        match entry.vary.as_slice() {
            [] => self.key,
            fields => variant_key(&self.key, fields, self.sent()),
        }
    }

    /// Whether a page that is fresh no more is the answer while it is fetched anew (RFC 5861 §3). Nothing is
    /// asked for with a visitor's session behind his back: its answer would be seen by nobody.
    pub(in crate::proxy) fn is_answered_meanwhile(&self, entry: &Entry) -> bool {
        !self.class.is_personal()
            && self.wish.is_met_by(entry, self.now())
            && entry.serves_while_revalidating(self.now())
    }

    pub(in crate::proxy) fn now(&self) -> u64 {
        self.cx.now as u64
    }

    /// Whether a cookie is the session's of a visitor who is known to be nobody: with it he is given what is
    /// given without.
    pub(in crate::proxy) fn is_nobodys(&self, cookie: &[u8]) -> bool {
        self.cx.visitor.sharing == Who::Anonymous
            && self.cx.worker.settings.cookies.is_session(cookie)
    }

    /// Whether this visitor may be given that page, or why he is forwarded.
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

    /// Whether he came with a field, by which a page was chosen, that a fill does not send as he does; or
    /// would be told of in one, in which a fill tells of nobody.
    pub(in crate::proxy) fn is_unsent(&self, entry: &Entry, name: &HeaderName) -> bool {
        let headers = &self.cx.head.headers;
        match *name {
            COOKIE => self.lost_cookies().any(|cookie| !self.is_nobodys(cookie)),
            // In the key, as are the two that say the same of the visitor's side.
            HOST => false,
            _ if *name == X_FORWARDED_PROTO || *name == X_FORWARDED_HOST => false,
            // Looked at when the page is made ready for him.
            ACCEPT_ENCODING if self.cx.worker.recompressor.is_on() => false,
            // Who takes no coding that a fill asks for may have what is in none.
            ACCEPT_ENCODING => {
                headers.contains_key(name)
                    && !self.sent().contains_key(name)
                    && entry.headers.contains_key(CONTENT_ENCODING)
            }
            // We are who says that, and of him something else.
            _ if origin_request::is_told(self.cx, self.class, name) => true,
            _ => headers.contains_key(name) && !self.sent().contains_key(name),
        }
    }
}

impl<'c> Want<'c> {
    /// The cookies that no fill sends, and by which his page may be another. Where all that is personal is
    /// filled in, by the operator's word, the session's are none of these.
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

/// A page that is fresh no more, or not fresh enough for him, and suits the visitor.
pub(in crate::proxy) struct StaleCandidate {
    pub(in crate::proxy) entry: Arc<Entry>,
    /// The key under which it is fetched anew.
    pub(in crate::proxy) key: PageKey,
    /// Whether it may be served where the origin fails.
    pub(in crate::proxy) rescues: bool,
}

/// What is done about a request that the cache may serve.
pub(in crate::proxy) enum Step {
    /// The page is the answer.
    Hit(Arc<Entry>, From),
    /// He asks for himself.
    Forward(Reason),
    /// The same for a HEAD, whatever stale page is held.
    Head(Option<StaleCandidate>),
    /// He takes nothing but what is stored, and there is nothing for him (RFC 9111 §5.2.1.7).
    NotStored,
    /// A page that is fresh no more is the answer; `renews`: while it is fetched anew (RFC 5861 §3), and
    /// else because the origin failed at it a moment ago (§4).
    Stale { held: StaleCandidate, renews: bool },
    /// The page is fetched, or a fetch under way is waited for.
    Fetch { held: Option<StaleCandidate>, key: PageKey },
}

/// Looks for the page, and decides what is done. `forwarded_for`: why he is forwarded unless the page is
/// static by proof.
pub(in crate::proxy) async fn decide(
    want: &Want<'_>,
    forwarded_for: Option<Reason>,
    look: Look,
) -> Step {
    let cx = want.cx;
    let found = match find(want, look).await {
        // What the origin calls public when it answers a login is for strangers, too.
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
        // Its answer is the visitor's own, and changes nothing that others get: it cannot make a page
        // fresh, and one that it contradicts is stale as it is (RFC 9111 §4.3.5).
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

/// Whether something static is asked for, and is kept for strangers as something that is so by proof.
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

/// What is done about what was found.
enum Weighed {
    Hit(Arc<Entry>, From),
    Forward(Reason),
    Fetch(Option<StaleCandidate>, PageKey),
}

/// Whether what was found is the answer. `forwarded_for`: why this visitor may be given only what is
/// static by proof, and fills nothing.
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

/// Looks in memory and in the store; a store that fails has nothing.
async fn find(want: &Want<'_>, look: Look) -> Lookup {
    let worker = want.cx.worker;
    let pages = &worker.pages;
    // PERF: what a fill would send is made only where it is needed. A peek has time.
    if look == Look::Use
        && let Some(entry) = pages.in_memory(&want.key, || want.sent(), want.now())
    {
        return Lookup::Fresh(entry, From::Memory);
    }
    let looked_up = pages.look(&worker.store, &want.key, want.sent(), want.now(), look).await;
    looked_up.unwrap_or_else(|error| {
        tracing::debug!(%error, "a page could not be looked up");
        worker.sheet.count(Count::StoreReadErrors);
        Lookup::Absent(want.key)
    })
}

/// What `Cache-Status` says of a hit.
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

/// The same of a page that is stale.
pub(in crate::proxy) fn stale_status(want: &Want<'_>, entry: &Entry) -> CacheStatus<'static> {
    CacheStatus::hit(entry.ttl(want.now()), "stale")
}
