//! What a thread needs to answer requests, and what is known of the request in work.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use ::http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use ::http::request::Parts;
use ::http::{HeaderMap, Method, Version};

use super::connection::client::Client;
use crate::cache::Pages;
use crate::cache::fill::Filler;
use crate::cache::purge::scope::{Digest, Scope, url_scopes};
use crate::cache::rules::group;
use crate::cache::rules::key::{KeyParts, ShareClass, hash_request};
use crate::http::client_cert::ClientCertificate;
use crate::http::cookie::rebuild;
use crate::http::host::{Host, Scheme};
use crate::http::reference::resolve;
use crate::http::{hop, media, query};
use crate::ident::{Item, PageKey, Row};
use crate::origin::{Upstream, Upstreams, is_connection_scheme};
use crate::policy::route::{self, Route};
use crate::proxy::connection::counter::ConnectionCounter;
use crate::proxy::connection::detached::DetachedTasks;
use crate::proxy::login_rules::{LoginBody, Matching};
use crate::proxy::recompress::Recompressor;
use crate::proxy::settings::{OriginRules, Settings};
use crate::proxy::visitor::Visitor;
use crate::proxy::visitor_token::VisitorTokenState;
use crate::row;
use crate::session::visit::{Ranks, VisitQueue, VisitorVisits};
use crate::session::{Sessions, Verified};
use crate::store::AnyStore;
use crate::telemetry::access_log::Pen;
use crate::telemetry::metrics::Sheet;

/// Stands for the address of all who have none, where views are counted.
pub(in crate::proxy) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The room: all that a thread needs to answer requests.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// Settings, shared by all threads.
    pub settings: Arc<Settings>,
    /// Pages, shared by all threads.
    pub pages: Arc<Pages>,
    /// What makes their other forms, shared by all threads.
    pub recompressor: Arc<Recompressor>,
    /// Sessions, shared by all threads.
    pub sessions: Arc<Sessions>,
    /// What apps said of visitors, shared by all threads.
    pub verified: Arc<Verified>,
    /// Visits to be recorded, shared by all threads.
    pub visits: Arc<VisitQueue>,
    /// The same of those who hold a visitor's token.
    pub visitor_visits: Arc<VisitorVisits>,
    /// Which items are popular, shared by all threads.
    pub ranks: Arc<Ranks>,
    /// Rows, as this thread reads them.
    pub rows: Rc<row::Reader>,
    /// The store, as this thread reaches it.
    pub store: AnyStore,
    /// The origins, as this thread reaches them.
    pub upstreams: Upstreams,
    /// Fetches for the cache.
    pub filler: Rc<Filler>,
    /// This thread's counters.
    pub sheet: Arc<Sheet>,
    /// This thread's part of the access log, if there is one.
    pub pen: Option<Arc<Pen>>,
    /// What waits on this thread to be filled in pages.
    pub waiting_fragments: Rc<WaitingFragments>,
    /// Requests that go on without their clients.
    pub detached: Rc<DetachedTasks>,
    /// The tunnels that are open, shared by all threads.
    pub tunnels: Arc<ConnectionCounter>,
}

/// What is known of a request that may go on.
#[derive(Clone)]
pub(in crate::proxy) struct Admitted {
    /// The Host, rebuilt from the target or the field.
    pub(in crate::proxy) host: Host,
    /// The site: lower-case host, with the port where it is not the scheme's own.
    pub(in crate::proxy) site: String,
    /// The visitor's scheme.
    pub(in crate::proxy) scheme: Scheme,
    /// Whether a trusted proxy sent the request, whose connections carry many visitors.
    pub(in crate::proxy) by_proxy: bool,
    /// The visitor's address, if known.
    pub(in crate::proxy) address: Option<IpAddr>,
    /// The path, percent-decoded, for choosing a route.
    pub(in crate::proxy) path: String,
}

impl Admitted {
    /// The target that a reference means in an answer to a request for `own`, where it is on the same site.
    pub(in crate::proxy) fn same_site(&self, own: &str, location: &str) -> Option<String> {
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

    /// The certificate that the visitor showed. That of a trusted proxy is the proxy's own, and says nothing
    /// of those whose requests it carries.
    pub(in crate::proxy) fn certificate<'c>(
        &self,
        client: &'c Client,
    ) -> Option<&'c ClientCertificate> {
        client.certificate().filter(|_| !self.by_proxy)
    }
}

impl WorkerContext {
    /// The row that an item is on a route.
    pub(in crate::proxy) fn row_named(&self, route: &Route, item: Option<&Item>) -> Option<Row> {
        self.settings.rows.row(route.rows.as_deref()?, item?.as_str())
    }
}

/// Whether a request is served, or only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Mode {
    /// It is served.
    Serve,
    /// It is explained: nothing is counted, asked, remembered or used.
    Peek {
        /// Whether the question names the client's address.
        knows_address: bool,
    },
}

impl Mode {
    /// Whether the client's address is one that lists of addresses can judge.
    pub(in crate::proxy) fn knows_address(self) -> bool {
        matches!(self, Self::Serve | Self::Peek { knows_address: true })
    }

    /// Whether the request is counted.
    pub(in crate::proxy) fn counts(self) -> bool {
        self == Self::Serve
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum RequestKind {
    /// For what its client asked for.
    Page,
    /// For a fragment of a page: of its answer the body counts, and nothing else.
    Fragment,
    /// To ask the app who the visitor is.
    Question,
}

/// A request with all that was found out about it.
pub(in crate::proxy) struct RequestContext<'a> {
    pub(in crate::proxy) worker: &'a Rc<WorkerContext>,
    pub(in crate::proxy) client: &'a Rc<Client>,
    pub(in crate::proxy) head: &'a Parts,
    pub(in crate::proxy) admitted: &'a Admitted,
    pub(in crate::proxy) route: &'a Arc<Route>,
    pub(in crate::proxy) visitor: &'a Visitor,
    /// The token that a visitor without a login may have.
    pub(in crate::proxy) visitor_token: &'a VisitorTokenState,
    /// Unix time in seconds.
    pub(in crate::proxy) now: f64,
    pub(in crate::proxy) kind: RequestKind,
    /// What was heard of its body, where it may be a log-in.
    pub(in crate::proxy) heard: LoginBody,
    /// Whether the origin may have the request by now.
    may_have_reached: Cell<bool>,
}

impl<'a> RequestContext<'a> {
    /// The context of a request that has passed the stages.
    pub(in crate::proxy) fn new(
        worker: &'a Rc<WorkerContext>,
        client: &'a Rc<Client>,
        (head, admitted, route, visitor): (&'a Parts, &'a Admitted, &'a Arc<Route>, &'a Visitor),
        visitor_token: &'a VisitorTokenState,
        (now, kind): (f64, RequestKind),
    ) -> Self {
        let (heard, may_have_reached) = (LoginBody::default(), Cell::new(false));
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
            heard,
            may_have_reached,
        }
    }

    /// The request is about to be sent to the origin (`true`), or is known not to have reached it.
    pub(in crate::proxy) fn set_reached(&self, may_have: bool) {
        self.may_have_reached.set(may_have);
    }

    /// Whether the origin may have the request.
    pub(in crate::proxy) fn may_have_reached(&self) -> bool {
        self.may_have_reached.get()
    }
}

impl RequestContext<'_> {
    /// The origin that is asked.
    pub(in crate::proxy) fn upstream(&self) -> &Rc<Upstream> {
        &self.worker.upstreams[self.route.origin]
    }

    /// What it is told, and believed.
    pub(in crate::proxy) fn rules(&self) -> &OriginRules {
        &self.worker.settings.origins[self.route.origin]
    }

    /// Whether it is a call of gRPC from end to end. More than its type is asked for, which any client may
    /// say of anything: a call ends with its client, and may be silent for long.
    pub(in crate::proxy) fn is_call(&self) -> bool {
        let head = self.head;
        head.version == Version::HTTP_2
            && head.method == Method::POST
            && hop::te_trailers(&head.headers)
            && media::is_grpc(&head.headers)
            && self.upstream().may_speak_http2()
    }

    /// The certificate that the visitor showed.
    pub(in crate::proxy) fn certificate(&self) -> Option<&ClientCertificate> {
        self.admitted.certificate(self.client)
    }

    /// Whether the request is one of those that a log-in or log-out rule names.
    pub(in crate::proxy) fn matches(&self, rule: &Matching) -> bool {
        rule.fits(&self.head.method, &self.head.uri, &self.admitted.path)
    }

    /// What the page at this request's URL is purged by.
    pub(in crate::proxy) fn purge_scopes(&self) -> Vec<Digest> {
        let query = self.head.uri.query().unwrap_or_default();
        let query = query::without(query, &self.worker.settings.ignore_query);
        url_scopes(&self.admitted.site, &self.admitted.path, &query)
    }

    /// What the visitor's own pages are purged by, beside their URLs.
    pub(in crate::proxy) fn own_scopes(&self) -> Vec<Digest> {
        let Some((token, user)) = self.visitor.known() else { return Vec::new() };
        [Scope::User(user.as_bytes()), Scope::Session(token.as_str())]
            .map(|scope| scope.digest())
            .into()
    }

    /// The group that shares a page of a class on a route, where that is not the whole class.
    pub(in crate::proxy) fn group(&self, route: &Route, class: ShareClass) -> Vec<u8> {
        let headers = &self.head.headers;
        match (class, self.visitor.user()) {
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

    /// `hash_request` for a target on this request's site that falls under `route`.
    pub(in crate::proxy) fn page_key(
        &self,
        target: &str,
        route: &Route,
        class: ShareClass,
    ) -> PageKey {
        // An empty query goes to the origin with its `?`, and so is another page than none.
        let parts = target.split_once('?').filter(|(_, query)| !query.is_empty());
        let (path, query) = parts.unwrap_or((target, ""));
        hash_request(&KeyParts {
            site: &route.site,
            scheme: self.admitted.scheme.as_str(),
            host: &self.admitted.site,
            path,
            query: &query::without(query, &self.worker.settings.ignore_query),
            class,
            group: &self.group(route, class),
            headers: &self.head.headers,
            key_cookies: &route.key_cookies,
            key_headers: &route.key_headers,
        })
    }
}

/// The route of a request, and the item that it names there.
pub(in crate::proxy) fn route_of<'r>(
    worker: &'r WorkerContext,
    head: &Parts,
    admitted: &Admitted,
) -> (&'r Arc<Route>, Option<Item>) {
    worker.settings.routes.find(&asked(head, admitted))
}

/// A request as routes look at it.
pub(in crate::proxy) fn asked<'h>(head: &'h Parts, admitted: &'h Admitted) -> route::Asked<'h> {
    route::Asked {
        method: &head.method,
        host: &admitted.site,
        path: &admitted.path,
        query: head.uri.query().unwrap_or_default(),
    }
}

/// Contents that wait for their pages on this thread, in bytes.
#[derive(Debug, Default)]
pub struct WaitingFragments(pub(in crate::proxy) Cell<usize>);

/// Whether a request carries credentials that log its connection in.
pub(in crate::proxy) fn logs_connection_in(headers: &HeaderMap) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION].iter().any(|name| {
        headers.get_all(name).iter().any(|value| is_connection_scheme(value.as_bytes()))
    })
}
