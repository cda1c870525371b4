//! Identifies the visitor, from the request's cookies and from what the store knows about them.

use std::rc::Rc;
use std::sync::Arc;

use ::http::request::Parts;

use super::admit::AdmittedRequest;
use super::limit::RateCheck;
use super::revoked::Suspects;
use super::route::RoutedRequest;
use super::verify::{self, Asking, Verdict};
use crate::cache::Look;
use crate::cache::rules::verdict::Who;
use crate::http::cookie::cookies;
use crate::http::query::session_id_in;
use crate::ident::{CookieHash, Item, StoredToken, Token, User};
use crate::policy::route::Route;
use crate::proxy::connection::client::Client;
use crate::proxy::context::{Mode, RequestContext, RequestKind, WorkerContext};
use crate::proxy::cookie_rules::{CookieClass, CookieRules, TokenFrom};
use crate::proxy::error::Error;
use crate::proxy::record::RequestRecord;
use crate::proxy::visitor::Visitor;
use crate::proxy::visitor_token::VisitorTokenState;
use crate::store::StoreError;
use crate::telemetry::access_log::VisitorClass;
use crate::telemetry::metrics::Count;
use crate::telemetry::reason::Reason;

/// A request with its visitor, charged to the visitor's session.
pub(in crate::proxy) struct IdentifiedRequest<'w> {
    request: AdmittedRequest,
    route: &'w Arc<Route>,
    item: Option<Item>,
    visitor: Visitor,
}

/// Identifies the visitor of a request, and charges the request to the session.
pub(in crate::proxy) async fn identify<'w>(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    routed: RoutedRequest<'w>,
    mode: Mode,
    record: &mut RequestRecord,
) -> Result<IdentifiedRequest<'w>, Error> {
    let RoutedRequest { request, counts_in_all, route, limits, item } = routed;
    let visitor = visitor(worker, client, &request, route, mode).await;
    record.visitor(visitor.class, visitor.user().filter(|_| worker.settings.log_user));
    if mode.counts() {
        let check = RateCheck::of(worker, &request);
        if counts_in_all {
            check.count_visitor(&worker.settings.rates.all, &visitor)?;
        }
        limits.iter().try_for_each(|limits| check.count_visitor(limits, &visitor))?;
    }
    Ok(IdentifiedRequest { request, route, item, visitor })
}

/// The visitor of a request on a route. A client that presented a certificate is never anonymous.
pub(in crate::proxy) async fn visitor(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    request: &AdmittedRequest,
    route: &Route,
    mode: Mode,
) -> Visitor {
    let AdmittedRequest { head, admitted, now, .. } = request;
    let asking = match mode {
        Mode::Serve => Asking::Of(client, admitted),
        Mode::Peek { .. } => Asking::No,
    };
    let visitor = recognise(worker, (head, &admitted.site), route, *now, asking).await;
    visitor.over(admitted.certificate(client))
}

impl<'w> IdentifiedRequest<'w> {
    /// The request that was identified.
    pub(in crate::proxy) fn request(&self) -> &AdmittedRequest {
        &self.request
    }

    /// The head, for changes that the route requires before the page is requested.
    pub(in crate::proxy) fn head_mut(&mut self) -> &mut Parts {
        &mut self.request.head
    }

    /// Whether the request has a body.
    pub(in crate::proxy) fn has_body(&self) -> bool {
        self.request.has_body
    }

    /// The route that serves the request.
    pub(in crate::proxy) fn route(&self) -> &'w Arc<Route> {
        self.route
    }

    /// The item that the request names on its route.
    pub(in crate::proxy) fn item(&self) -> Option<&Item> {
        self.item.as_ref()
    }

    /// The context in which the request is answered.
    pub(in crate::proxy) fn context<'a>(
        &'a self,
        worker: &'a Rc<WorkerContext>,
        client: &'a Rc<Client>,
        token: &'a VisitorTokenState,
        kind: RequestKind,
    ) -> RequestContext<'a> {
        let AdmittedRequest { head, admitted, now, .. } = &self.request;
        let parts = (&**head, &**admitted, self.route, &self.visitor);
        RequestContext::new(worker, client, parts, token, (*now, kind))
    }
}

/// The most session cookies of one name that a log-out ends. Each one costs a call to the store.
const RIVALS_MAX: usize = 32;

/// What the cookies alone say.
enum Carried {
    Nothing,
    Token(Token, Option<CookieHash>),
    /// A session cookie whose value is not a token.
    Malformed,
    /// Several session cookies of one name. These of their values are tokens.
    Rivals(Vec<Token>),
}

/// Identifies the visitor of a request. `host` is `Admitted::site`.
pub(in crate::proxy) async fn recognise(
    worker: &Rc<WorkerContext>,
    (head, host): (&Parts, &str),
    route: &Route,
    now: f64,
    asking: Asking<'_>,
) -> Visitor {
    let rules = &worker.settings.cookies;
    let verify = worker.settings.verify.as_ref();
    let Sorted { carried, has_unknown, is_odd } =
        sort(rules, (head, host), route, verify.is_some());
    let query = head.uri.query().unwrap_or_default();
    let in_url = session_id_in(head.uri.path(), query).then_some(Reason::SessionInUrl);
    let unknown_cookie = (has_unknown && rules.unknown_bypass).then_some(Reason::UnknownCookie);
    if is_odd && verify.is_some() && brings_barred(worker, head, now).await {
        let nobody = nobody(None, in_url.or(unknown_cookie));
        return Visitor { is_barred: true, ..nobody };
    }
    match carried {
        Carried::Malformed => Visitor::unknown(in_url.unwrap_or(Reason::BadSessionCookie), None),
        Carried::Rivals(tokens) => {
            let rivals = tokens.iter().map(|token| worker.sessions.stored(token)).collect();
            let reason = in_url.unwrap_or(Reason::BadSessionCookie);
            Visitor { rivals, ..Visitor::unknown(reason, None) }
        }
        Carried::Nothing => nobody(None, in_url.or(unknown_cookie)),
        Carried::Token(token, carried) => {
            let token = worker.sessions.stored(&token);
            let asked = verify.zip(carried);
            let found = match (asked, asking.look()) {
                (Some((verify, carried)), _) => {
                    let whose = verify::Whose { head, token: &token, carried, now };
                    match verify::verify(worker, verify, whose, asking).await {
                        Ok(Verdict::Known(user)) => Ok(Some(user)),
                        Ok(Verdict::Nobody) => {
                            let nobody = nobody(Some(token), in_url.or(unknown_cookie));
                            return Visitor { carried: Some(carried), ..nobody };
                        }
                        Ok(Verdict::Barred) => {
                            let nobody = nobody(None, in_url.or(unknown_cookie));
                            return Visitor { carried: Some(carried), is_barred: true, ..nobody };
                        }
                        Ok(Verdict::Unknown) => {
                            let reason = in_url.unwrap_or(Reason::Unverified);
                            let unknown = Visitor::unknown(reason, Some(token));
                            return Visitor { carried: Some(carried), ..unknown };
                        }
                        Err(error) => Err(error),
                    }
                }
                (None, look) => user_at(worker, (&token, host), now, look).await,
            };
            match found {
                Ok(Some(user)) => Visitor {
                    class: VisitorClass::Known,
                    sharing: in_url.map_or_else(|| with_whom(&user, has_unknown), Who::Unknown),
                    token: Some(token),
                    carried,
                    user: Some(user),
                    ..Visitor::default()
                },
                Ok(None) if rules.minted => nobody(Some(token), in_url.or(unknown_cookie)),
                Ok(None) => Visitor::unknown(in_url.unwrap_or(Reason::UnknownToken), Some(token)),
                Err(error) => {
                    tracing::debug!(%error, "looking up a token failed");
                    worker.sheet.count(Count::StoreReadErrors);
                    let reason = in_url.unwrap_or(Reason::StoreAway);
                    let unknown = Visitor::unknown(reason, Some(token));
                    Visitor { unsure: true, carried, ..unknown }
                }
            }
        }
    }
}

/// Looks up the user of a token at a host.
async fn user_at(
    worker: &WorkerContext,
    (token, host): (&StoredToken, &str),
    now: f64,
    look: Look,
) -> Result<Option<User>, StoreError> {
    let found = match look {
        Look::Use => worker.sessions.check_token(&worker.store, token, now).await?,
        Look::Peek => worker.sessions.peek_token(&worker.store, token, now).await?,
    };
    // SECURITY: an app's users may choose its tokens. What an app says about a token therefore holds at
    // its host only.
    Ok(found.filter(|user| user.is_known_at(host)))
}

/// Whether a known visitor shares pages with others. An unconfirmed user may be the same as another
/// user, and the app may recognise a visitor by a cookie that is missing from the configuration.
fn with_whom(user: &User, has_unknown: bool) -> Who {
    if !user.is_confirmed() {
        Who::Apart(Reason::Unconfirmed)
    } else if has_unknown {
        Who::Apart(Reason::UnknownCookie)
    } else {
        Who::Known
    }
}

/// A visitor without a login, or an unknown visitor if there is a reason for that.
fn nobody(token: Option<StoredToken>, unknown: Option<Reason>) -> Visitor {
    match unknown {
        Some(reason) => Visitor::unknown(reason, token),
        None => Visitor { token, ..Visitor::default() },
    }
}

/// Whether the request carries a revoked token that an app could find where the proxy does not look. The
/// result is `false` while the store is away.
async fn brings_barred(worker: &WorkerContext, head: &Parts, now: f64) -> bool {
    let barred = Suspects::of(worker, &head.headers).are_barred(worker, now).await;
    barred.unwrap_or_else(|error| {
        tracing::debug!(%error, "looking up whether a token is revoked failed");
        false
    })
}

/// The result of sorting the cookies.
struct Sorted {
    /// What the session cookies say.
    carried: Carried,
    /// Whether a cookie is missing from the configuration.
    has_unknown: bool,
    /// Whether an app may find its session in another cookie than the proxy does.
    is_odd: bool,
}

/// Sorts the cookies. With `verifies`, the app is asked about its session cookies, by the hash of all of
/// them.
fn sort(
    rules: &CookieRules,
    (head, host): (&Parts, &str),
    route: &Route,
    verifies: bool,
) -> Sorted {
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
        None => Carried::Nothing,
        Some(_) if twice => {
            Carried::Rivals(tokens(&rules.token, came.iter().map(|(_, value)| *value)))
        }
        Some((_, value)) => match rules.token.token(value) {
            Some(token) => Carried::Token(
                token,
                verifies.then(|| rules.token.hash((&route.site, host), &came)),
            ),
            None => Carried::Malformed,
        },
    };
    let is_odd = may_be_session || matches!(carried, Carried::Malformed | Carried::Rivals(_));
    Sorted { carried, has_unknown, is_odd }
}

/// The values that are tokens, `RIVALS_MAX` at most.
fn tokens<'h>(from: &TokenFrom, values: impl Iterator<Item = &'h [u8]>) -> Vec<Token> {
    values.filter_map(|value| from.token(value)).take(RIVALS_MAX).collect()
}
