//! The page that a request wants: its key, what a fetch of it sends, and what the request makes of a page that is
//! found.

use std::cell::OnceCell;
use std::sync::Arc;

use ::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, COOKIE, HOST};
use ::http::{HeaderMap, HeaderName};
use anteroom_cache::entry::{Entry, LifetimeSource};
use anteroom_cache::fill::FillLoss;
use anteroom_cache::memory::MarkTime;
use anteroom_cache::purge::PurgeStanding;
use anteroom_cache::rules::key::{ShareClass, variant_key};
use anteroom_cache::rules::request_directives::RequestDirectives;
use anteroom_cache::rules::verdict::Sharing;
use anteroom_cache::url_patterns::UrlPattern;
use anteroom_cache::{CacheTier, Lookup};
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::field_set::FieldSet;
use anteroom_http::forwarded::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use anteroom_http::ident::PageKey;
use anteroom_http::media::accept_names_pages;
use anteroom_store::StoreError;
use anteroom_telemetry::metrics::{AskedAgain, Count};
use anteroom_telemetry::reason::Reason;

use crate::context::RequestContext;
use crate::cookie_rules::CookieClass;
use crate::origin_request;
use crate::plan::PageClass;

/// A request that the cache may serve.
pub(crate) struct WantedPage<'c> {
    pub(crate) cx: &'c RequestContext<'c>,
    /// The visitors with whom the page is shared. The class is part of the key and limits what may fill
    /// the page.
    pub(crate) class: ShareClass,
    /// Whether the request may fill the page. If not, only a page that is static by proof answers it.
    pub(crate) fills: bool,
    pub(crate) key: PageKey,
    /// The freshness that the request's directives ask for.
    pub(crate) directives: RequestDirectives,
    /// The fields that a fill would send. PERF: a hit on a page without variants never needs them.
    pub(crate) sent: OnceCell<HeaderMap>,
    loss: OnceCell<FillLoss>,
    /// The pattern of the request's URL. PERF: a hit never needs it.
    pub(crate) pattern: OnceCell<UrlPattern>,
}

impl<'c> WantedPage<'c> {
    pub(crate) fn new(cx: &'c RequestContext<'c>, pages: PageClass) -> Self {
        let PageClass { class, only_static } = pages;
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
            fills: only_static.is_none(),
            key,
            directives,
            sent: OnceCell::new(),
            loss: OnceCell::new(),
            pattern: OnceCell::new(),
        }
    }

    pub(crate) fn sent(&self) -> &HeaderMap {
        self.sent.get_or_init(|| origin_request::fill_fields(self.cx, self.class))
    }

    /// The fresh page in memory. PERF: the fields of a fill are built only when they are needed.
    pub(crate) fn in_memory(&self) -> Option<Arc<Entry>> {
        self.cx.worker.pages.in_memory(&self.key, || self.sent(), self.now())
    }

    /// Looks in memory, also for stale pages, and in the store. A store error counts as a miss.
    pub(crate) async fn look_up(&self) -> Lookup {
        let (pages, source) = (&self.cx.worker.pages, self.cx.worker.filler.page_source());
        let found = pages.look_up(source, &self.key, self.sent(), self.now()).await;
        found.unwrap_or_else(|error| self.unreadable(&error))
    }

    /// The same, which does not count as a use of the page.
    pub(crate) async fn peek(&self) -> Lookup {
        let (pages, source) = (&self.cx.worker.pages, self.cx.worker.filler.page_source());
        let found = pages.peek(source, &self.key, self.sent(), self.now()).await;
        found.unwrap_or_else(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &StoreError) -> Lookup {
        tracing::debug!(%error, "looking up a page in the store failed");
        self.cx.worker.thread_metrics.count(Count::StoreReadErrors);
        Lookup::Absent(self.key)
    }

    /// Whether the page has been requested too seldom for its route's `min_uses`.
    pub(crate) fn is_rare(&self) -> bool {
        self.cx.worker.pages.use_counts.is_rare(&self.key, self.cx.route.min_uses)
    }

    /// Whether a fill with this visitor's session would lose a field of the visitor's request. Such a request
    /// is forwarded unchanged. The response to a request with a session is always delivered, because it may
    /// have changed the session.
    pub(crate) fn loses_visitor_fields(&self) -> bool {
        let is_personal = self.class.is_personal();
        is_personal && {
            let loss = self.loss();
            loss.field || loss.identity
        }
    }

    /// What a fill lacks of the visitor's own request.
    pub(crate) fn loss(&self) -> FillLoss {
        *self.loss.get_or_init(|| origin_request::loss(self.cx, self.class, self.sent()))
    }

    /// The key under which a page that was found is fetched again.
    pub(crate) fn key_of(&self, entry: &Entry) -> PageKey {
        match entry.vary.as_slice() {
            [] => self.key,
            fields => variant_key(&self.key, fields, self.sent()),
        }
    }

    /// Whether a stale page is the answer while it is revalidated (RFC 5861 §3). A personal page is
    /// never revalidated in the background, because no client would see the response to that request
    /// with the visitor's session.
    pub(crate) fn is_answered_meanwhile(&self, entry: &Entry) -> bool {
        !self.class.is_personal()
            && self.directives.is_met_by(entry, self.now())
            && entry.serves_while_revalidating(self.now())
    }

    pub(crate) fn now(&self) -> u64 {
        self.cx.now as u64
    }

    /// The time at which marks are looked up.
    pub(crate) fn mark_time(&self) -> MarkTime {
        self.cx.worker.filler.mark_time(self.now())
    }

    /// Whether a cookie is the session cookie of a visitor known to be logged out. Such a visitor gets
    /// the same page with the cookie as without it.
    pub(crate) fn is_logged_out(&self, cookie: &[u8]) -> bool {
        self.cx.visitor.sharing == Sharing::Anonymous
            && self.cx.worker.settings.cookies.is_session(cookie)
    }

    /// Whether the response to this request's own fetch answers it although a field that selected the page may have
    /// been left out; the error is the reason to ask again.
    pub(crate) fn is_answered_by(&self, entry: &Entry) -> Result<(), AskedAgain> {
        match entry.vary.iter().find(|name| self.is_unsent(entry, name)) {
            None => Ok(()),
            Some(&COOKIE) => Err(AskedAgain::Identity),
            Some(_) => Err(AskedAgain::Field),
        }
    }

    /// Whether this visitor may get the page; the error is the reason to forward the request.
    pub(crate) fn suits(&self, entry: &Entry) -> Result<(), Reason> {
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
    pub(crate) fn is_unsent(&self, entry: &Entry, name: &HeaderName) -> bool {
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
    pub(crate) fn is_left_out(&self, name: &HeaderName) -> bool {
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
    pub(crate) fn lost_cookies(&self) -> impl Iterator<Item = &'c [u8]> {
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

/// The `Cache-Status` of a hit.
pub(crate) fn hit_status(
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
pub(crate) fn stale_status(want: &WantedPage<'_>, entry: &Entry) -> CacheStatus<'static> {
    let ttl = entry.ttl(want.now());
    let is_fresh = want.cx.worker.pages.standing(entry, want.now()) == PurgeStanding::Current;
    // A purge makes a page stale before its time.
    CacheStatus::hit(if is_fresh { ttl } else { ttl.min(0) }, "stale")
}
