//! Identifies the visitor, from the request's cookies and from what the store knows about them.

use std::rc::Rc;
use std::sync::Arc;

use anteroom_fault::fault;

use ::http::HeaderValue;
use ::http::request::Parts;
use anteroom_cache::rules::verdict::Sharing;
use anteroom_http::cookie::cookies;
use anteroom_http::field_set::FieldSet;
use anteroom_http::ident::{CookieHash, Item, StoredToken, Token, User};
use anteroom_http::media::{asks_for_page, asks_for_static};
use anteroom_http::query::session_id_in;
use anteroom_policy::route::{CompiledRoute, Route};
use anteroom_store::StoreError;
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::metrics::Count;
use anteroom_telemetry::reason::Reason;

use super::admit::AdmittedRequest;
use super::limit::{CountedRequest, RateCheck};
use super::revoked::SuspectTokens;
use super::route::RoutedRequest;
use super::verify::{self, Asking, Verdict};
use crate::connection::client::Client;
use crate::context::{
    AssumedVisitor, IdentifiedParts, Mode, RequestContext, RequestFacts, RequestKind,
    RewrittenPath, WorkerContext, route_input, route_of, template_values,
};
use crate::cookie_rules::{CookieClass, CookieRules, TokenFrom};
use crate::error::Error;
use crate::record::RequestRecord;
use crate::visitor::Visitor;
use crate::visitor_token::VisitorTokenState;

/// A request with its visitor, charged to the visitor's session.
pub(crate) struct IdentifiedRequest<'w> {
    request: AdmittedRequest,
    route: &'w Arc<CompiledRoute>,
    item: Option<Item>,
    visitor: Visitor,
}

/// Identifies the visitor of a request, and charges the request to the session.
pub(crate) async fn identify<'w>(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    routed: RoutedRequest<'w>,
    mode: Mode<'_>,
    record: &mut RequestRecord,
) -> Result<IdentifiedRequest<'w>, Error> {
    let RoutedRequest { request, counts_in_all, route, limits, item } = routed;
    let visitor = visitor(worker, client, &request, route, mode).await;
    record.visitor(visitor.class, visitor.user().filter(|_| worker.settings.log_user));
    if mode.counts() {
        let check = RateCheck::of(worker, &request);
        let count_late = |is_late: bool| {
            let mut limits = limits.iter().filter(|_| is_late);
            limits.try_for_each(|limits| check.count(limits))
        };
        count_late(fault!("asked-first"))?;
        if counts_in_all && !fault!("all-last") {
            check.count_visitor(&worker.settings.rates.all, &visitor)?;
        }
        count_late(fault!("address-late"))?;
        limits.iter().try_for_each(|limits| check.count_visitor(limits, &visitor))?;
        count_late(fault!("address-last"))?;
        if fault!("all-last") && counts_in_all {
            check.count_visitor(&worker.settings.rates.all, &visitor)?;
        }
    }
    require_login(worker, &request, route, &visitor)?;
    Ok(IdentifiedRequest { request, route, item, visitor })
}

/// Refuses a visitor without a login where a route requires one. What cannot be found out now is refused, too.
fn require_login(
    worker: &WorkerContext,
    request: &AdmittedRequest,
    route: &Arc<CompiledRoute>,
    visitor: &Visitor,
) -> Result<(), Error> {
    let AdmittedRequest { head, admitted, .. } = request;
    let routes = &worker.settings.routes;
    let asked = route_input(head, admitted);
    let rewritten = RewrittenPath::of(route, head);
    let by_rewrite = || {
        let (asked, path) = rewritten.as_ref()?.input(head, admitted);
        routes.requiring_login(&asked, path)
    };
    let Some(guard) = routes.requiring_login(&asked, head.uri.path()).or_else(by_rewrite) else {
        return Ok(());
    };
    if visitor.class == VisitorClass::Known {
        return Ok(());
    }
    let is_unsure = visitor.unsure || visitor.sharing == Sharing::Unknown(Reason::Unverified);
    let is_page = head.method.is_safe() && asks_for_page(&head.headers);
    let page =
        guard.login_page.as_ref().filter(|_| is_page).and_then(|page| {
            HeaderValue::try_from(page.render(&template_values(head, admitted))).ok()
        });
    Err(Error::LoginRequired { route: Arc::clone(route), is_unsure, page })
}

/// The visitor of a request on a route. A client that presented a certificate is never anonymous.
pub(crate) async fn visitor(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    request: &AdmittedRequest,
    route: &Route,
    mode: Mode<'_>,
) -> Visitor {
    let AdmittedRequest { head, admitted, now, .. } = request;
    let asking = match mode {
        Mode::Serve => Asking::Of(client, admitted),
        Mode::Peek { visitor: Some(visitor), .. } => Asking::Assumed(visitor),
        Mode::Peek { visitor: None, .. } => Asking::No,
    };
    let visitor = recognise(worker, head, admitted, route, *now, asking).await;
    visitor.with_certificate(admitted.certificate(client))
}

/// The visitor of a request to an endpoint of the proxy's own. Its cookies mean what they mean on the site's pages at
/// this path; nothing else of their route applies.
pub(crate) async fn of_endpoint(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    request: &CountedRequest,
) -> Visitor {
    let (route, _) = route_of(worker, &request.head, &request.admitted);
    visitor(worker, client, request, route, Mode::Serve).await
}

impl<'w> IdentifiedRequest<'w> {
    /// The request that was identified.
    pub(crate) fn request(&self) -> &AdmittedRequest {
        &self.request
    }

    /// The head, for changes that the route requires before the page is requested.
    pub(crate) fn head_mut(&mut self) -> &mut Parts {
        &mut self.request.head
    }

    /// Whether the request has a body.
    pub(crate) fn has_body(&self) -> bool {
        self.request.has_body
    }

    /// The route that serves the request.
    pub(crate) fn route(&self) -> &'w Arc<CompiledRoute> {
        self.route
    }

    /// The visitor.
    #[cfg(feature = "testbed")]
    pub(crate) fn visitor(&self) -> &Visitor {
        &self.visitor
    }

    /// The item that the request names on its route.
    pub(crate) fn item(&self) -> Option<&Item> {
        self.item.as_ref()
    }

    /// The context in which the request is answered.
    pub(crate) fn context<'a>(
        &'a self,
        worker: &'a Rc<WorkerContext>,
        client: &'a Rc<Client>,
        token: &'a VisitorTokenState,
        kind: RequestKind,
    ) -> RequestContext<'a> {
        let AdmittedRequest { head, admitted, now, .. } = &self.request;
        let (route, visitor) = (self.route, &self.visitor);
        let parts = IdentifiedParts { head, admitted, route, visitor };
        RequestContext::new(worker, client, parts, token, *now, kind)
    }
}

/// The most session cookies of one name that a logout ends. Each one costs a call to the store.
const DUPLICATES_MAX: usize = 32;

/// What the cookies alone say.
#[derive(Default)]
enum CookieToken {
    #[default]
    Nothing,
    Token(Token, Option<CookieHash>),
    /// A session cookie with a value that is not a token.
    Malformed,
    /// Several session cookies of one name. These of their values are tokens.
    Duplicates(Vec<Token>),
}

/// Identifies the visitor of a request.
pub(crate) async fn recognise(
    worker: &Rc<WorkerContext>,
    head: &Parts,
    admitted: &RequestFacts,
    route: &Route,
    now: f64,
    asking: Asking<'_>,
) -> Visitor {
    let rules = &worker.settings.cookies;
    let verify = worker.settings.verify.as_ref();
    let SortedCookies { carried, has_unknown, is_odd } =
        sort(rules, head, admitted, route, verify.is_some());
    let query = head.uri.query().unwrap_or_default();
    let in_url = session_id_in(head.uri.path(), query).then_some(Reason::SessionInUrl);
    let unknown_cookie = (has_unknown && rules.unknown_bypass).then_some(Reason::UnknownCookie);
    let anonymous_visitor = |token| anonymous(token, in_url.or(unknown_cookie));
    let unknown = |reason, token| Visitor::unknown(in_url.unwrap_or(reason), token);
    let is_suspect = is_odd && verify.is_some();
    if is_suspect && !fault!("revoked-late") && brings_revoked(worker, head, now).await {
        return Visitor { is_revoked: true, ..anonymous_visitor(None) };
    }
    match carried {
        CookieToken::Malformed => unknown(Reason::BadSessionCookie, None),
        CookieToken::Duplicates(tokens) => {
            let duplicates = tokens.iter().map(|token| worker.sessions.stored(token)).collect();
            Visitor { duplicates, ..unknown(Reason::BadSessionCookie, None) }
        }
        CookieToken::Nothing => anonymous_visitor(None),
        CookieToken::Token(token, carried) => {
            let token = worker.sessions.stored_by(&worker.token_memo, &token);
            let asked = verify.zip(carried);
            let found = match (asking, asked) {
                (Asking::Assumed(AssumedVisitor::User(user)), _) => Ok(Some(user.clone())),
                (Asking::Assumed(AssumedVisitor::Anonymous), _) => {
                    return Visitor { cookie_hash: carried, ..anonymous_visitor(Some(token)) };
                }
                (_, Some((verify, carried))) => {
                    let unverified =
                        verify::UnverifiedToken { head, token: &token, cookie_hash: carried, now };
                    // PERF: boxed, so that the state of a request without a question stays small.
                    let verdict =
                        Box::pin(verify::verify(worker, verify, unverified, asking)).await;
                    let asked = |visitor| Visitor { cookie_hash: Some(carried), ..visitor };
                    match verdict {
                        Ok(Verdict::Known(user)) => Ok(Some(user)),
                        Ok(Verdict::Anonymous) => return asked(anonymous_visitor(Some(token))),
                        Ok(Verdict::Revoked) => {
                            return asked(Visitor { is_revoked: true, ..anonymous_visitor(None) });
                        }
                        Ok(Verdict::Unknown) => {
                            return asked(unknown(Reason::Unverified, Some(token)));
                        }
                        Err(error) => Err(error),
                    }
                }
                (_, None) => {
                    user_at(worker, head, &admitted.site, &token, now, asking.counts()).await
                }
            };
            if is_suspect && fault!("revoked-late") && brings_revoked(worker, head, now).await {
                return Visitor { is_revoked: true, ..anonymous_visitor(None) };
            }
            match found {
                Ok(Some(user)) => Visitor {
                    class: VisitorClass::Known,
                    sharing: in_url.map_or_else(|| with_whom(&user, has_unknown), Sharing::Unknown),
                    token: Some(token),
                    cookie_hash: carried,
                    user: Some(user),
                    ..Visitor::default()
                },
                Ok(None) if rules.minted || fault!("unknown") => anonymous_visitor(Some(token)),
                Ok(None) => unknown(Reason::UnknownToken, Some(token)),
                Err(error) => unsure(worker, &error, token, carried, in_url),
            }
        }
    }
}

/// The visitor with a token that could not be looked up.
fn unsure(
    worker: &WorkerContext,
    error: &StoreError,
    token: StoredToken,
    cookie_hash: Option<CookieHash>,
    in_url: Option<Reason>,
) -> Visitor {
    tracing::debug!(%error, "looking up a token failed");
    worker.thread_metrics.count(Count::StoreReadErrors);
    let unknown = Visitor::unknown(in_url.unwrap_or(Reason::StoreAway), Some(token));
    Visitor { unsure: true, cookie_hash, ..unknown }
}

/// Whether a request is for a part of a page that was asked for a moment ago.
fn is_part(head: &Parts) -> bool {
    head.method.is_safe() && asks_for_static(&head.headers, head.uri.path())
}

/// Looks up the user of a token at a host.
async fn user_at(
    worker: &WorkerContext,
    head: &Parts,
    host: &str,
    token: &StoredToken,
    now: f64,
    counts: bool,
) -> Result<Option<User>, StoreError> {
    let sessions = &worker.sessions;
    let found = match counts {
        true => sessions.check_token_for(&worker.store, token, now, || is_part(head)).await?,
        false => sessions.peek_token(&worker.store, token, now).await?,
    };
    // SECURITY: an app's users may choose its tokens. What an app says about a token therefore holds at
    // its host only.
    Ok(found.filter(|user| user.is_known_at(host)))
}

/// Whether a known visitor shares pages with others. An unconfirmed user may be the same as another
/// user, and the app may recognise a visitor by a cookie that is missing from the configuration.
fn with_whom(user: &User, has_unknown: bool) -> Sharing {
    if !user.is_confirmed() {
        Sharing::Apart(Reason::Unconfirmed)
    } else if has_unknown {
        Sharing::Apart(Reason::UnknownCookie)
    } else {
        Sharing::Known
    }
}

/// A visitor without a login, or an unknown visitor if there is a reason for that.
fn anonymous(token: Option<StoredToken>, unknown: Option<Reason>) -> Visitor {
    match unknown {
        Some(reason) => Visitor::unknown(reason, token),
        None => Visitor { token, ..Visitor::default() },
    }
}

/// Whether the request carries a revoked token that an app could find where the proxy does not look. The
/// result is `false` while the store is away.
async fn brings_revoked(worker: &WorkerContext, head: &Parts, now: f64) -> bool {
    let revoked = SuspectTokens::of(worker, &head.headers).are_revoked(worker, now).await;
    revoked.unwrap_or_else(|error| {
        tracing::debug!(%error, "looking up whether a token is revoked failed");
        false
    })
}

/// The result of sorting the cookies.
#[derive(Default)]
struct SortedCookies {
    /// What the session cookies say.
    carried: CookieToken,
    /// Whether a cookie is missing from the configuration.
    has_unknown: bool,
    /// Whether an app may find its session in another cookie than the proxy does.
    is_odd: bool,
}

/// Sorts the cookies. With `verifies`, the app is asked about its session cookies, by the hash of all of
/// them.
fn sort(
    rules: &CookieRules,
    head: &Parts,
    admitted: &RequestFacts,
    route: &Route,
    verifies: bool,
) -> SortedCookies {
    // PERF: no look at the fields of a request without cookies.
    if !admitted.fields.has(FieldSet::COOKIE) {
        return SortedCookies::default();
    }
    let mut best: Option<(usize, &[u8])> = None;
    let mut came: Vec<(&[u8], &[u8])> = Vec::new();
    let (mut has_unknown, mut may_be_session) = (false, false);
    for (name, value) in cookies(&head.headers) {
        match rules.class(name, route) {
            CookieClass::Session(rank) => {
                came.push((name, value));
                if best.is_none_or(|(first, _)| rank < first) {
                    best = Some((rank, value));
                }
            }
            CookieClass::Unknown => {
                has_unknown = true;
                may_be_session |= verifies && rules.may_be_session(name);
            }
            CookieClass::Harmless | CookieClass::Keyed => {}
        }
    }
    // A head has room for thousands of cookies. Sorting finds duplicates cheaply.
    came.sort_unstable();
    let twice = came.windows(2).any(|pair| pair[0].0 == pair[1].0);
    let carried = match best {
        None => CookieToken::Nothing,
        Some(_) if twice => {
            CookieToken::Duplicates(tokens(&rules.token, came.iter().map(|(_, value)| *value)))
        }
        Some((_, value)) => match rules.token.token(value) {
            Some(token) => CookieToken::Token(
                token,
                verifies.then(|| rules.token.hash(route.site(), &admitted.site, &came)),
            ),
            None => CookieToken::Malformed,
        },
    };
    let is_odd =
        may_be_session || matches!(carried, CookieToken::Malformed | CookieToken::Duplicates(_));
    SortedCookies { carried, has_unknown, is_odd }
}

/// The values that are tokens, `DUPLICATES_MAX` at most.
fn tokens<'h>(from: &TokenFrom, values: impl Iterator<Item = &'h [u8]>) -> Vec<Token> {
    values.filter_map(|value| from.token(value)).take(DUPLICATES_MAX).collect()
}
