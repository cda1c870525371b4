//! What a thread needs to answer requests, and what is known about the current request.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use anteroom_fault::fault;

use ::http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, Method, Version};
use anteroom_cache::Pages;
use anteroom_cache::class_memory::ClassMemory;
use anteroom_cache::fill::Filler;
use anteroom_cache::key_memo::KeyMemo;
use anteroom_cache::purge::scope::{Scope, ScopeDigest, url_scopes};
use anteroom_cache::rules::group;
use anteroom_cache::rules::key::{KeyParts, ShareClass};
use anteroom_http::client_cert::ClientCertificate;
use anteroom_http::cookie::rebuild;
use anteroom_http::field_set::FieldSet;
use anteroom_http::host::{Host, Scheme};
use anteroom_http::ident::{Item, PageKey, Row, User};
use anteroom_http::reference::resolve;
use anteroom_http::{hop, media, path};
use anteroom_learn::Learning;
use anteroom_learn::audit::Audits;
use anteroom_origin::{Upstream, Upstreams, is_connection_scheme};
use anteroom_policy::login::RequestPattern;
use anteroom_policy::route::{self, CompiledRoute, Route};
use anteroom_session::token_memo::TokenMemo;
use anteroom_session::visit::{PopularityRanks, VisitQueue, VisitorVisits};
use anteroom_session::{Sessions, VerifyMemory};
use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::ThreadMetrics;
use anteroom_telemetry::request_telemetry::RequestTelemetry;

use super::connection::client::Client;
use crate::connection::counter::ConnectionCounter;
use crate::connection::detached::DetachedTasks;
use crate::kept_body::KeptBody;
use crate::recompress::Recompressor;
use crate::settings::{OriginRules, ProxySettings};
use crate::visitor::Visitor;
use crate::visitor_token::VisitorTokenState;

/// The address under which the views of clients without an address are counted.
pub(crate) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Everything that a thread needs to answer requests.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// Settings, shared by all threads.
    pub settings: Arc<ProxySettings>,
    /// Pages, shared by all threads.
    pub pages: Arc<Pages>,
    /// Recodes pages for clients that accept other codings, shared by all threads.
    pub recompressor: Arc<Recompressor>,
    /// What was learned of routes in learn mode, shared by all threads.
    pub learning: Arc<Learning>,
    /// What the audit has found, shared by all threads.
    pub audits: Arc<Audits>,
    /// What tells the classes of requests, shared by all threads.
    pub class_memory: Arc<ClassMemory>,
    /// Sessions, shared by all threads.
    pub sessions: Arc<Sessions>,
    /// The app's remembered answers about visitors, shared by all threads.
    pub verified: Arc<VerifyMemory>,
    /// Visits to record, shared by all threads.
    pub visits: Arc<VisitQueue>,
    /// The same for visitors with a visitor token.
    pub visitor_visits: Arc<VisitorVisits>,
    /// The popularity ranks of items, shared by all threads.
    pub ranks: Arc<PopularityRanks>,
    /// This thread's reader of rows.
    pub rows: Rc<anteroom_rows::RowReader>,
    /// This thread's connection to the store.
    pub store: AnyStore,
    /// This thread's connections to the origins.
    pub upstreams: Upstreams,
    /// Fetches pages for the cache.
    pub filler: Rc<Filler>,
    /// The keys of this thread's recent requests.
    pub key_memo: Rc<KeyMemo>,
    /// The stored form of the tokens that this thread has met.
    pub token_memo: Rc<TokenMemo>,
    /// This thread's counters.
    pub thread_metrics: Arc<ThreadMetrics>,
    /// Where this thread's records of requests go.
    pub telemetry: Rc<RequestTelemetry>,
    /// The fragment contents on this thread that wait for their pages.
    pub waiting_fragments: Rc<WaitingFragments>,
    /// Requests that continue after their clients have disconnected.
    pub detached: Rc<DetachedTasks>,
    /// The open tunnels, shared by all threads.
    pub tunnels: Arc<ConnectionCounter>,
}

/// What is known about a request that has been admitted.
#[derive(Clone)]
pub(crate) struct RequestFacts {
    /// The host, from the target or the `Host` field.
    pub(crate) host: Host,
    /// The site: the lower-case host, with the port unless it is the scheme's default.
    pub(crate) site: String,
    /// The visitor's scheme.
    pub(crate) scheme: Scheme,
    /// Whether a trusted proxy sent the request. Its connections carry requests of many visitors.
    pub(crate) by_proxy: bool,
    /// The visitor's address, if known.
    pub(crate) address: Option<IpAddr>,
    /// The path, percent-decoded, for choosing a route.
    pub(crate) path: String,
    /// Which fields the head has, or had before some were removed.
    pub(crate) fields: FieldSet,
}

impl RequestFacts {
    /// The target of a reference in a response to a request for `own`, if it is on the same site.
    pub(crate) fn same_site(&self, own: &str, location: &str) -> Option<String> {
        let (place, target) = resolve(own, location);
        let Some(place) = place else { return Some(target) };
        let scheme = self.scheme;
        let authority = match place.split_once("//") {
            Some(("", authority)) => authority,
            Some((named, authority)) => {
                let named = named.strip_suffix(':')?;
                named.eq_ignore_ascii_case(scheme.as_str()).then_some(authority)?
            }
            None => return None,
        };
        let host = Host::parse(authority.as_bytes()).ok()?;
        (host.normalised(scheme) == self.site.as_str()).then_some(target)
    }

    /// The certificate that the visitor presented. A trusted proxy's certificate is its own, and says nothing
    /// about the visitors behind the proxy.
    pub(crate) fn certificate<'c>(&self, client: &'c Client) -> Option<&'c ClientCertificate> {
        client.certificate().filter(|_| !self.by_proxy)
    }
}

impl WorkerContext {
    /// The row that belongs to an item on a route.
    pub(crate) fn row_named(&self, route: &Route, item: Option<&Item>) -> Option<Row> {
        self.settings.rows.row(route.rows.as_deref()?, item?.as_str())
    }

    /// Whether a row is scheduled when it is asked for.
    pub(crate) fn is_on_demand(&self, row: &Row) -> bool {
        let place = self.settings.rows.split(row).0;
        self.settings.rows_on_demand.get(place).copied().unwrap_or_default()
    }
}

/// The owner of the session token of an explained request, instead of what the store and the app say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssumedVisitor {
    /// A user.
    User(User),
    /// A visitor without a login.
    Anonymous,
}

/// Whether a request is served or only explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode<'a> {
    /// The request is served.
    Serve,
    /// The request is explained: the proxy counts, stores and uses up nothing, and sends nothing to the app.
    Peek {
        /// Whether the request to explain states the client's address.
        knows_address: bool,
        /// The owner of the session token; `None`: as the store says.
        visitor: Option<&'a AssumedVisitor>,
    },
}

impl Mode<'_> {
    /// Whether the client's address is known, so that address lists can be applied.
    pub(crate) fn knows_address(self) -> bool {
        matches!(self, Self::Serve | Self::Peek { knows_address: true, .. })
    }

    /// Whether the request is counted.
    pub(crate) fn counts(self) -> bool {
        self == Self::Serve
    }
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// The client's own request.
    Page,
    /// A fragment of a page. Only the body of its response is used.
    Fragment,
    /// A question to the app about who the visitor is.
    Question,
}

/// What the stages find out about a request.
#[derive(Clone, Copy)]
pub(crate) struct IdentifiedParts<'a> {
    pub(crate) head: &'a Parts,
    pub(crate) admitted: &'a RequestFacts,
    pub(crate) route: &'a Arc<CompiledRoute>,
    pub(crate) visitor: &'a Visitor,
}

/// A request with everything that is known about it.
pub(crate) struct RequestContext<'a> {
    pub(crate) worker: &'a Rc<WorkerContext>,
    pub(crate) client: &'a Rc<Client>,
    pub(crate) head: &'a Parts,
    pub(crate) admitted: &'a RequestFacts,
    pub(crate) route: &'a Arc<CompiledRoute>,
    pub(crate) visitor: &'a Visitor,
    /// The visitor token of a visitor without a login, if there is one.
    pub(crate) visitor_token: &'a VisitorTokenState,
    /// Unix time in seconds.
    pub(crate) now: f64,
    pub(crate) kind: RequestKind,
    /// The captured part of the request's body, if the request may be a login or change pages by a form.
    pub(crate) kept_body: KeptBody,
    /// Whether the origin may have received the request.
    may_have_reached: Cell<bool>,
}

impl<'a> RequestContext<'a> {
    /// The context of a request that has passed the stages.
    pub(crate) fn new(
        worker: &'a Rc<WorkerContext>,
        client: &'a Rc<Client>,
        parts: IdentifiedParts<'a>,
        visitor_token: &'a VisitorTokenState,
        now: f64,
        kind: RequestKind,
    ) -> Self {
        let IdentifiedParts { head, admitted, route, visitor } = parts;
        let (kept_body, may_have_reached) = (KeptBody::default(), Cell::new(false));
        Self {
            worker,
            client,
            head,
            admitted,
            route,
            visitor,
            visitor_token,
            now,
            kind,
            kept_body,
            may_have_reached,
        }
    }

    /// Records whether the origin may have received the request: `true` just before it is sent, `false` once
    /// it is known not to have arrived.
    pub(crate) fn set_reached(&self, may_have: bool) {
        self.may_have_reached.set(may_have);
    }

    /// Whether the origin may have received the request.
    pub(crate) fn may_have_reached(&self) -> bool {
        self.may_have_reached.get()
    }
}

impl RequestContext<'_> {
    /// The origin of the request's route.
    pub(crate) fn upstream(&self) -> &Rc<Upstream> {
        &self.worker.upstreams[self.route.origin_place]
    }

    /// The rules on what this origin is sent, and whether its fields are trusted.
    pub(crate) fn rules(&self) -> &OriginRules {
        &self.worker.settings.origins[self.route.origin_place]
    }

    /// Whether the request is a gRPC call from end to end. The content type alone is not enough, since any
    /// client can send it, and calls are cancelled with their client and get longer timeouts.
    pub(crate) fn is_call(&self) -> bool {
        let head = self.head;
        head.version == Version::HTTP_2
            && head.method == Method::POST
            && hop::te_trailers(&head.headers)
            && media::is_grpc(&head.headers)
            && self.upstream().may_speak_http2()
    }

    /// The certificate that the visitor presented.
    pub(crate) fn certificate(&self) -> Option<&ClientCertificate> {
        self.admitted.certificate(self.client)
    }

    /// Whether a login or logout rule matches the request.
    pub(crate) fn matches(&self, rule: &RequestPattern) -> bool {
        rule.fits(&self.head.method, &self.head.uri, &self.admitted.path)
    }

    /// The scopes by which the page at this request's URL is purged.
    pub(crate) fn purge_scopes(&self) -> Vec<ScopeDigest> {
        let query = self.head.uri.query().unwrap_or_default();
        let query = self.route.query_rule.kept(query);
        url_scopes(&self.admitted.site, &self.admitted.path, &query)
    }

    /// The scopes by which the visitor's own pages are purged, in addition to those of their URLs.
    pub(crate) fn own_scopes(&self) -> Vec<ScopeDigest> {
        let Some((token, user)) = self.visitor.known() else { return Vec::new() };
        [Scope::User(user.as_bytes()), Scope::Session(token.as_str())]
            .map(|scope| scope.digest())
            .into()
    }

    /// The group within the class that shares a page on a route.
    pub(crate) fn group(&self, route: &Route, class: ShareClass) -> Vec<u8> {
        let headers = &self.head.headers;
        match (class, self.visitor.user()) {
            (ShareClass::User, Some(_)) if fault!("hole") && self.kind == RequestKind::Fragment => {
                Vec::new()
            }
            (ShareClass::User, Some(user)) => {
                let cookies = &self.worker.settings.cookies;
                let shown = rebuild(headers, |name| !cookies.is_harmless(name));
                group::session(user, shown.as_ref().map_or(b"", |line| line.as_bytes()))
            }
            (ShareClass::Segment, user) => group::segment(&route.segment, user, headers),
            // A page without a user may still differ by language.
            _ => group::segment(&route.segment, None, headers),
        }
    }

    /// `hash_request` for a target on this request's site, under `route`.
    pub(crate) fn page_key(&self, target: &str, route: &Route, class: ShareClass) -> PageKey {
        // The origin gets the `?` of an empty query, so that page differs from the page without a query.
        let parts = target.split_once('?').filter(|(_, query)| !query.is_empty());
        let (path, query) = parts.unwrap_or((target, ""));
        self.worker.key_memo.hash_request(&KeyParts {
            site: route.site(),
            scheme: self.admitted.scheme.as_str(),
            host: &self.admitted.site,
            path,
            query: &route.query_rule.kept(query),
            class,
            group: &self.group(route, class),
            headers: &self.head.headers,
            key_cookies: &route.key_cookies,
            key_headers: &route.key_headers,
            conditions: &route.headers,
            by_query: route.query.presence(),
        })
    }
}

/// The route of a request, and the item that the request names on it.
pub(crate) fn route_of<'r>(
    worker: &'r WorkerContext,
    head: &Parts,
    admitted: &RequestFacts,
) -> (&'r Arc<CompiledRoute>, Option<Item>) {
    worker.settings.routes.find(&route_input(head, admitted))
}

/// A request as routes see it.
pub(crate) fn route_input<'h>(
    head: &'h Parts,
    admitted: &'h RequestFacts,
) -> route::RouteInput<'h> {
    route::RouteInput {
        method: &head.method,
        host: &admitted.site,
        path: &admitted.path,
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
    }
}

/// The path that the origin gets instead of the client's on a route with a rewrite: as it is sent, and
/// percent-decoded.
pub(crate) struct RewrittenPath {
    sent: String,
    decoded: String,
}

impl RewrittenPath {
    /// The path for the origin, if the route changes it.
    pub(crate) fn of(route: &Route, head: &Parts) -> Option<Self> {
        if route.rewrite.is_none() {
            return None;
        }
        let sent = route.rewrite.path(head.uri.path()).into_owned();
        let decoded = path::decoded(&sent).unwrap_or_else(|| sent.clone());
        Some(Self { sent, decoded })
    }

    /// The request as routes see it with this path, and the path as it is sent.
    pub(crate) fn input<'h>(
        &'h self,
        head: &'h Parts,
        admitted: &'h RequestFacts,
    ) -> (route::RouteInput<'h>, &'h str) {
        (route::RouteInput { path: &self.decoded, ..route_input(head, admitted) }, &self.sent)
    }
}

/// A request as the operator's texts see it.
pub(crate) fn template_values<'h>(
    head: &'h Parts,
    admitted: &'h RequestFacts,
) -> route::TemplateValues<'h> {
    route::TemplateValues {
        scheme: admitted.scheme.as_str(),
        host: &admitted.site,
        path: head.uri.path(),
        query: head.uri.query(),
        client_address: admitted.address,
    }
}

/// The size of the fragment contents on this thread that wait for their pages, in bytes.
#[derive(Debug, Default)]
pub struct WaitingFragments(pub(crate) Cell<usize>);

/// The fields that carry credentials.
const CREDENTIALS: [HeaderName; 2] = [AUTHORIZATION, PROXY_AUTHORIZATION];

/// Whether a request carries credentials that authenticate its whole connection.
pub(crate) fn logs_connection_in(fields: FieldSet, headers: &HeaderMap) -> bool {
    let names = if fields.has(FieldSet::CREDENTIALS) { &CREDENTIALS[..] } else { &[] };
    names.iter().any(|name| {
        headers.get_all(name).iter().any(|value| is_connection_scheme(value.as_bytes()))
    })
}
