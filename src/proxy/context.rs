//! What a thread needs to answer requests, and what is known of the request in work.

use crate::proxy::login_rules::Matching;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use ::http::{Method, Version};

use super::connection::client::Client;
use crate::cache::Pages;
use crate::cache::fill::Filler;
use crate::cache::purge::scope::{Digest, url_scopes};
use crate::cache::rules::group;
use crate::cache::rules::key::{KeyParts, ShareClass, hash_request};
use crate::http::client_cert::ClientCertificate;
use crate::http::cookie::rebuild;
use crate::http::host::{Host, Scheme};
use crate::http::{hop, media, query};
use crate::ident::{Item, PageKey};
use crate::origin::{Upstream, Upstreams};
use crate::policy::route::{self};
use crate::proxy::connection::counter::ConnectionCounter;
use crate::proxy::connection::detached::DetachedTasks;
use crate::proxy::login_rules::LoginBody;
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
    pub coder: Arc<Recompressor>,
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
    pub holes: Rc<WaitingFragments>,
    /// Requests that go on without their clients.
    pub left: Rc<DetachedTasks>,
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
    /// The visitor's address, where he has one.
    pub(in crate::proxy) address: Option<IpAddr>,
    /// The path, percent-decoded, for choosing a route.
    pub(in crate::proxy) path: String,
}

impl Admitted {
    /// The certificate that the visitor showed. That of a trusted proxy is the proxy's own, and says nothing
    /// of those whose requests it carries.
    pub(in crate::proxy) fn certificate<'c>(
        &self,
        client: &'c Client,
    ) -> Option<&'c ClientCertificate> {
        client.certificate().filter(|_| !self.by_proxy)
    }
}

/// A request with all that was found out about it.
pub(in crate::proxy) struct RequestContext<'a> {
    pub(in crate::proxy) room: &'a Rc<WorkerContext>,
    pub(in crate::proxy) client: &'a Rc<Client>,
    pub(in crate::proxy) head: &'a ::http::request::Parts,
    pub(in crate::proxy) admitted: Admitted,
    pub(in crate::proxy) route: &'a Arc<route::Route>,
    pub(in crate::proxy) visitor: Visitor,
    /// What he has without a login.
    pub(in crate::proxy) held: &'a VisitorTokenState,
    /// Unix time in seconds.
    pub(in crate::proxy) now: f64,
    /// Whether it is for a hole in a page: of its answer the body counts, and nothing else.
    pub(in crate::proxy) is_hole: bool,
    /// What was heard of its body, where it may be a log-in.
    pub(in crate::proxy) heard: LoginBody,
}

impl RequestContext<'_> {
    /// The origin that is asked.
    pub(in crate::proxy) fn upstream(&self) -> &Rc<Upstream> {
        &self.room.upstreams[self.route.origin]
    }

    /// What it is told, and believed.
    pub(in crate::proxy) fn rules(&self) -> &OriginRules {
        &self.room.settings.origins[self.route.origin]
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
        let query = query::without(query, &self.room.settings.ignore_query);
        url_scopes(&self.admitted.site, &self.admitted.path, &query)
    }

    /// Among whom a page of a class is shared on a route, where it is not the whole class.
    pub(in crate::proxy) fn group(&self, route: &route::Route, class: ShareClass) -> Vec<u8> {
        let headers = &self.head.headers;
        match (class, self.visitor.user()) {
            (ShareClass::User, Some(user)) => {
                let cookies = &self.room.settings.cookies;
                let shown = rebuild(headers, |name| !cookies.is_harmless(name));
                group::session(user, shown.as_ref().map_or(b"", |line| line.as_bytes()))
            }
            (ShareClass::Segment, user) => group::segment(&route.segment, user, headers),
            // Nobody's, which may differ by language still.
            _ => group::segment(&route.segment, None, headers),
        }
    }

    /// `hash_request` for a target on this request's site that falls under `route`.
    pub(in crate::proxy) fn page_key(
        &self,
        target: &str,
        route: &route::Route,
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
            query: &query::without(query, &self.room.settings.ignore_query),
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
    room: &'r WorkerContext,
    head: &::http::request::Parts,
    admitted: &Admitted,
) -> (&'r Arc<route::Route>, Option<Item>) {
    room.settings.routes.find(&asked(head, admitted))
}

/// A request as routes look at it.
pub(in crate::proxy) fn asked<'h>(
    head: &'h ::http::request::Parts,
    admitted: &'h Admitted,
) -> route::Asked<'h> {
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
