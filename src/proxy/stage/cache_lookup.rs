//! The cache lookup: finds what memory and the store hold for a request, and decides what to do with it.

use std::cell::OnceCell;
use std::sync::Arc;

use anteroom_fault::fault;

use ::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, COOKIE, HOST};
use ::http::{HeaderMap, HeaderName, Method};
use anteroom_cache::entry::{Entry, LifetimeSource};
use anteroom_cache::fill::FillLoss;
use anteroom_cache::memory::MarkTime;
use anteroom_cache::purge::PurgeStanding;
use anteroom_cache::rules::key::{ShareClass, variant_key};
use anteroom_cache::rules::request_directives::RequestDirectives;
use anteroom_cache::rules::verdict::Sharing;
use anteroom_cache::url_patterns::UrlPattern;
use anteroom_cache::{CacheTier, Lookup, LookupMode};
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::field_set::FieldSet;
use anteroom_http::forwarded::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use anteroom_http::ident::PageKey;
use anteroom_http::media::{self, accept_names_pages};
use anteroom_telemetry::metrics::{AskedAgain, Count};
use anteroom_telemetry::reason::Reason;

use crate::proxy::context::RequestContext;
use crate::proxy::cookie_rules::CookieClass;
use crate::proxy::origin_request;

/// A request that the cache may serve.
pub(in crate::proxy) struct WantedPage<'c> {
    pub(in crate::proxy) cx: &'c RequestContext<'c>,
    /// The visitors with whom the page is shared. The class is part of the key and limits what may fill
    /// the page.
    pub(in crate::proxy) class: ShareClass,
    pub(in crate::proxy) key: PageKey,
    /// The freshness that the request's directives ask for.
    pub(in crate::proxy) directives: RequestDirectives,
    /// The fields that a fill would send. PERF: a hit on a page without variants never needs them.
    pub(in crate::proxy) sent: OnceCell<HeaderMap>,
    loss: OnceCell<FillLoss>,
    /// The pattern of the request's URL. PERF: a hit never needs it.
    pub(in crate::proxy) pattern: OnceCell<UrlPattern>,
}

impl<'c> WantedPage<'c> {
    pub(in crate::proxy) fn new(cx: &'c RequestContext<'c>, class: ShareClass) -> Self {
        let target = cx.head.uri.path_and_query().map_or("/", |target| target.as_str());
        let key = cx.page_key(target, cx.route, class);
        let honours = cx.worker.filler.policy.client_directives;
        let directives = match cx.admitted.fields.has(FieldSet::DIRECTIVES) {
            true => RequestDirectives::of(&cx.head.headers, honours),
            false => RequestDirectives::default(),
        };
        Self {
            cx,
            class,
            key,
            directives,
            sent: OnceCell::new(),
            loss: OnceCell::new(),
            pattern: OnceCell::new(),
        }
    }

    pub(in crate::proxy) fn sent(&self) -> &HeaderMap {
        self.sent.get_or_init(|| origin_request::fill_fields(self.cx, self.class))
    }

    /// Whether a fill with this visitor's session would lose a field of the visitor's request. Such a request
    /// is forwarded unchanged. The response to a request with a session is always delivered, because it may
    /// have changed the session.
    pub(in crate::proxy) fn loses_visitor_fields(&self) -> bool {
        let is_personal = self.class.is_personal();
        is_personal && {
            let loss = self.loss();
            loss.field || loss.identity
        }
    }

    /// What a fill lacks of the visitor's own request.
    pub(in crate::proxy) fn loss(&self) -> FillLoss {
        *self.loss.get_or_init(|| origin_request::loss(self.cx, self.class, self.sent()))
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
            && self.directives.is_met_by(entry, self.now())
            && entry.serves_while_revalidating(self.now())
    }

    pub(in crate::proxy) fn now(&self) -> u64 {
        self.cx.now as u64
    }

    /// The time at which marks are looked up.
    pub(in crate::proxy) fn mark_time(&self) -> MarkTime {
        self.cx.worker.filler.mark_time(self.now())
    }

    /// Whether a cookie is the session cookie of a visitor known to be logged out. Such a visitor gets
    /// the same page with the cookie as without it.
    pub(in crate::proxy) fn is_logged_out(&self, cookie: &[u8]) -> bool {
        self.cx.visitor.sharing == Sharing::Anonymous
            && self.cx.worker.settings.cookies.is_session(cookie)
    }

    /// Whether the response to this request's own fetch answers it although a field that selected the page may have
    /// been left out; the error is the reason to ask again.
    pub(in crate::proxy) fn is_answered_by(&self, entry: &Entry) -> Result<(), AskedAgain> {
        match entry.vary.iter().find(|name| self.is_unsent(entry, name)) {
            None => Ok(()),
            Some(&COOKIE) => Err(AskedAgain::Identity),
            Some(_) => Err(AskedAgain::Field),
        }
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
            // Checked when the page is prepared for the client.
            ACCEPT_ENCODING if self.cx.worker.recompressor.is_on() => false,
            // A client that accepts none of the codings that a fill asks for can still get an unencoded
            // page.
            ACCEPT_ENCODING => {
                headers.contains_key(name)
                    && !self.sent().contains_key(name)
                    && entry.fields.has(&CONTENT_ENCODING)
            }
            _ => self.is_left_out(name),
        }
    }

    /// The same for a field whose value does not depend on the page's coding.
    pub(in crate::proxy) fn is_left_out(&self, name: &HeaderName) -> bool {
        let headers = &self.cx.head.headers;
        match *name {
            ACCEPT_ENCODING => false,
            COOKIE => self.lost_cookies().any(|cookie| !self.is_logged_out(cookie)),
            // Part of the key, as are the two fields that state the scheme and host of the client's
            // side.
            HOST => false,
            _ if *name == X_FORWARDED_PROTO || *name == X_FORWARDED_HOST => false,
            // The proxy itself sets this field, and sets it to another value for this visitor.
            _ if origin_request::describes_visitor(self.cx, self.class, name) => true,
            _ => headers.contains_key(name) && !self.sent().contains_key(name),
        }
    }
}

impl<'c> WantedPage<'c> {
    /// The cookies that a fill leaves out and that may change the visitor's page. On an `everyone` route
    /// with personal fragments, the operator states that they hold all personal content. The session cookies
    /// are then not counted here.
    pub(in crate::proxy) fn lost_cookies(&self) -> impl Iterator<Item = &'c [u8]> {
        let cx = self.cx;
        let rules = &cx.worker.settings.cookies;
        let is_of_fragments = move |name: &&[u8]| {
            self.class == ShareClass::Everyone
                && cx.route.has_personal_fragments()
                && matches!(rules.class(name, cx.route), CookieClass::Session(_))
        };
        origin_request::lost_cookies(cx, self.class).filter(move |name| !is_of_fragments(name))
    }
}

/// A page that suits the visitor but is stale, or not fresh enough for the request's directives.
pub(in crate::proxy) struct StaleCandidate {
    pub(in crate::proxy) entry: Arc<Entry>,
    /// The key under which the page is fetched again.
    pub(in crate::proxy) key: PageKey,
    /// Whether the page may be served when the origin fails.
    pub(in crate::proxy) serves_on_error: bool,
}

/// What the proxy does with a request that the cache may serve.
pub(in crate::proxy) enum CacheStep {
    /// Serve this page.
    Hit(Arc<Entry>, CacheTier),
    /// Forward the request for this visitor alone.
    Forward(Reason),
    /// Forward a HEAD request. A stale page may be at hand.
    Head(Option<StaleCandidate>),
    /// Refuse: the request accepts only a stored response, and there is none (RFC 9111 §5.2.1.7).
    NotStored,
    /// Serve a stale page. With `renews`, the page is revalidated in the background (RFC 5861 §3);
    /// without it, the origin failed for this page a moment ago (§4).
    Stale { candidate: StaleCandidate, renews: bool },
    /// Fetch the page, or wait for a fetch that is under way.
    Fetch { candidate: Option<StaleCandidate>, key: PageKey },
}

/// Looks the page up and decides what to do. `forwarded_for` is the reason to forward the request unless
/// the page is static by proof.
pub(in crate::proxy) async fn decide(
    want: &WantedPage<'_>,
    forwarded_for: Option<Reason>,
    look: LookupMode,
) -> CacheStep {
    let cx = want.cx;
    let found = match in_memory(want, look) {
        Some(found) => found,
        None => {
            let marked = known_uncacheable(want, look);
            let marked = marked.map(|reason| forwarded_for.unwrap_or(reason));
            if let (Some(reason), LookupMode::Use) = (marked, look) {
                return CacheStep::Forward(reason);
            }
            let found = in_store(want, look).await;
            // A peek looks at memory only now.
            if let (Some(reason), Lookup::Fresh(_, CacheTier::Store)) = (marked, &found) {
                return CacheStep::Forward(reason);
            }
            found
        }
    };
    let found = match found {
        // A response to a logged-in visitor that the origin marks `public` is valid for anonymous
        // visitors, too.
        absent @ Lookup::Absent(_)
            if want.class == ShareClass::Anonymous && cx.route.trust_public =>
        {
            match find(&WantedPage::new(cx, ShareClass::Public), look).await {
                fresh @ Lookup::Fresh(..) => fresh,
                Lookup::Stale(..) | Lookup::Absent(_) => absent,
            }
        }
        found => found,
    };
    let (candidate, key) = match weigh(want, found, forwarded_for) {
        PageUse::Hit(entry, from) => return CacheStep::Hit(entry, from),
        PageUse::Forward(_) | PageUse::Fetch(..) if want.directives.only_if_cached => {
            return CacheStep::NotStored;
        }
        PageUse::Forward(reason) => return CacheStep::Forward(reason),
        PageUse::Fetch(candidate, key) => (candidate, key),
    };
    if cx.head.method == Method::HEAD {
        // The response to a HEAD is for this client alone and leaves stored pages unchanged. It cannot
        // make a page fresh, and a page that it contradicts is stale already (RFC 9111 §4.3.5).
        return CacheStep::Head(candidate);
    }
    let pages = &cx.worker.pages;
    let memory = pages.memory();
    if let Some(reason) = memory.uncacheable(&want.key, want.mark_time(), &pages.purged, look) {
        return CacheStep::Forward(reason);
    }
    match candidate {
        Some(candidate)
            if candidate.serves_on_error && memory.is_failing(&candidate.key, want.now(), look) =>
        {
            CacheStep::Stale { candidate, renews: false }
        }
        Some(candidate) if want.is_answered_meanwhile(&candidate.entry) => {
            CacheStep::Stale { candidate, renews: true }
        }
        None if is_rare(want, look) => CacheStep::Forward(Reason::MinUses),
        candidate => CacheStep::Fetch { candidate, key },
    }
}

/// Whether a page that is not stored has been requested too seldom for its route's `min_uses`. Counts the request.
pub(in crate::proxy) fn is_rare(want: &WantedPage<'_>, look: LookupMode) -> bool {
    let least = want.cx.route.min_uses;
    if least <= 1 {
        return false;
    }
    let counts = &want.cx.worker.pages.use_counts;
    let is_rare = counts.is_rare(&want.key, least);
    if look == LookupMode::Use {
        counts.count(&want.key);
    }
    is_rare
}

/// Why a page that memory does not have is not looked up in the store: the last response to a request for it
/// was uncacheable for all. Another proxy may have stored the page since; it is found again when the mark ends,
/// within two minutes.
fn known_uncacheable(want: &WantedPage<'_>, look: LookupMode) -> Option<Reason> {
    let is_forwarded_alike = want.cx.head.method == Method::GET
        && !want.directives.only_if_cached
        && !want.cx.route.trust_public;
    let pages = &want.cx.worker.pages;
    let find =
        || pages.memory().uncacheable_in_all(&want.key, want.mark_time(), &pages.purged, look);
    is_forwarded_alike.then(find).flatten()
}

/// Whether the request is for a static resource that is stored for anonymous visitors and is static by
/// proof.
pub(in crate::proxy) async fn is_kept_for_anonymous(
    cx: &RequestContext<'_>,
    look: LookupMode,
) -> bool {
    let may_be = cx.worker.filler.policy.static_for_all
        && media::asks_for_static(&cx.head.headers, cx.head.uri.path());
    if !may_be {
        return false;
    }
    let want = WantedPage::new(cx, ShareClass::Anonymous);
    let Lookup::Fresh(entry, _) = find(&want, look).await else { return false };
    entry.static_proof
        && want.directives.is_met_by(&entry, want.now())
        && want.suits(&entry).is_ok()
}

/// What follows from the page that was found.
pub(in crate::proxy) enum PageUse {
    Hit(Arc<Entry>, CacheTier),
    Forward(Reason),
    Fetch(Option<StaleCandidate>, PageKey),
}

/// Decides whether the page that was found is the answer. `forwarded_for` is the reason why this visitor
/// gets only pages that are static by proof, and fills none.
pub(in crate::proxy) fn weigh(
    want: &WantedPage<'_>,
    found: Lookup,
    forwarded_for: Option<Reason>,
) -> PageUse {
    let suits = |entry: &Entry| want.suits(entry).is_ok();
    let (candidate, key, reason) = match found {
        Lookup::Fresh(entry, _) if !want.directives.is_met_by(&entry, want.now()) => {
            let key = want.key_of(&entry);
            let candidate =
                suits(&entry).then_some(StaleCandidate { entry, key, serves_on_error: true });
            (candidate, key, Some(Reason::RequestDirective))
        }
        Lookup::Fresh(entry, from) => {
            let refused = forwarded_for.filter(|_| !entry.static_proof && !fault!("known"));
            return match want.suits(&entry).err().or(refused) {
                None => PageUse::Hit(entry, from),
                Some(reason) => PageUse::Forward(reason),
            };
        }
        Lookup::Stale(entry, _, key) => {
            let rescues = entry.serves_on_error(want.now());
            (
                suits(&entry).then_some(StaleCandidate { entry, key, serves_on_error: rescues }),
                key,
                None,
            )
        }
        Lookup::Absent(key) => (None, key, None),
    };
    match forwarded_for {
        Some(forwarded_for) => PageUse::Forward(reason.unwrap_or(forwarded_for)),
        None => PageUse::Fetch(candidate, key),
    }
}

/// Looks in memory and in the store.
async fn find(want: &WantedPage<'_>, look: LookupMode) -> Lookup {
    match in_memory(want, look) {
        Some(found) => found,
        None => in_store(want, look).await,
    }
}

/// Looks for a fresh page in memory. PERF: the fields of a fill are built only when they are needed. A peek is
/// not on the hot path.
fn in_memory(want: &WantedPage<'_>, look: LookupMode) -> Option<Lookup> {
    let pages = &want.cx.worker.pages;
    let find = || pages.in_memory(&want.key, || want.sent(), want.now());
    let entry = (look == LookupMode::Use).then(find).flatten()?;
    Some(Lookup::Fresh(entry, CacheTier::Memory))
}

/// Looks in the store, and in memory for stale pages. A store error counts as a miss.
async fn in_store(want: &WantedPage<'_>, look: LookupMode) -> Lookup {
    let worker = want.cx.worker;
    let pages = &worker.pages;
    let source = worker.filler.page_source();
    // PERF: boxed, so that the state of a hit in memory stays small.
    let look_up = pages.look(source, &want.key, want.sent(), want.now(), look);
    Box::pin(look_up).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "looking up a page in the store failed");
        worker.thread_metrics.count(Count::StoreReadErrors);
        Lookup::Absent(want.key)
    })
}

/// The `Cache-Status` of a hit.
pub(in crate::proxy) fn hit_status(
    want: &WantedPage<'_>,
    entry: &Entry,
    from: CacheTier,
) -> CacheStatus<'static> {
    let detail = match from {
        CacheTier::Memory => "memory",
        CacheTier::Store => "store",
    };
    CacheStatus::hit(entry.ttl(want.now()), detail)
}

/// The `Cache-Status` of a hit on a stale page.
pub(in crate::proxy) fn stale_status(want: &WantedPage<'_>, entry: &Entry) -> CacheStatus<'static> {
    let ttl = entry.ttl(want.now());
    let is_fresh = want.cx.worker.pages.standing(entry, want.now()) == PurgeStanding::Current;
    // A purge makes a page stale before its time.
    CacheStatus::hit(if is_fresh { ttl } else { ttl.min(0) }, "stale")
}
