//! `[session.verify]`: identifies a visitor by asking the app, in a request with the visitor's cookies.
//!
//! `session::VerifyMemory` remembers the answers. Each question runs in its own task. Requests with the same
//! cookies wait for it together, and it continues when the visitor disconnects.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, USER_AGENT};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use anteroom_cache::recoded;
use anteroom_cache::url_patterns::network;
use anteroom_fault::fault;
use anteroom_http::apply_set_cookie::{self, CookieChange};
use anteroom_http::cdn_loop::CDN_LOOP;
use anteroom_http::clock::unix_now;
use anteroom_http::coding::Coding;
use anteroom_http::extract::{Extractor, ResponseMatcher, ResponseParts};
use anteroom_http::field_set::FieldSet;
use anteroom_http::ident::{CookieHash, LogInScope, StoredToken, User, is_attribute};
use anteroom_http::set_cookie;
use anteroom_origin::{ConnectionReuse, OriginBody, Requester, UploadBody, Upstream};
use anteroom_policy::priority::{Priority, RequestClass};
use anteroom_session::{
    Ending, Join, StoredAnswer, VerifyAnswer, VerifyLeader, VerifyReason, VerifyResult,
};
use anteroom_store::{RevocationStore, StoreError};
use anteroom_telemetry::metrics::Count;
use anteroom_telemetry::origin_use::OriginUse;
use tokio::sync::watch;

use super::revoked::SuspectTokens;
use crate::connection::client::Client;
use crate::context::{
    AssumedVisitor, IdentifiedParts, RequestContext, RequestFacts, RequestKind, WorkerContext,
    route_of,
};
use crate::cookie_rules::CookieRules;
use crate::origin_request;
use crate::settings::Verifier;
use crate::visitor::Visitor;
use crate::visitor_token::VisitorTokenState;

/// The kind of page of all questions, see [`Priority::page_kind`].
const QUESTIONS: u64 = 1;
/// The largest body that is read, in bytes before decoding.
const BODY_MAX: usize = 512 << 10;
/// The largest decoded body, in bytes.
const PLAIN_MAX: usize = 2 << 20;
/// A question ends at most this long after its timeout.
const QUESTION_OVER: Duration = Duration::from_secs(5);
/// After this share of an answer's lifetime, the app is asked again in the background.
const RENEWED_AFTER: f64 = 0.8;

/// The fields that are copied from the visitor's request into a question: the cookies, and what apps
/// check a session against. Any other field could change the question or the visitor that the app
/// recognises.
static FORWARDED_FIELDS: [HeaderName; 4] = [COOKIE, USER_AGENT, ACCEPT_LANGUAGE, ACCEPT_ENCODING];

/// Whether the app may be asked, and on behalf of which client.
#[derive(Clone, Copy)]
pub(crate) enum Asking<'a> {
    /// The app may be asked.
    Of(&'a Rc<Client>, &'a RequestFacts),
    /// Only what is known already is used.
    No,
    /// The request states its visitor.
    Assumed(&'a AssumedVisitor),
}

impl Asking<'_> {
    /// Whether a look-up counts as a use of the session.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Self::Of(..))
    }
}

/// The visitor to identify.
#[derive(Clone, Copy)]
pub(crate) struct UnverifiedToken<'a> {
    pub(crate) head: &'a Parts,
    pub(crate) token: &'a StoredToken,
    pub(crate) cookie_hash: CookieHash,
    /// Unix time in seconds.
    pub(crate) now: f64,
}

/// What is known about a visitor.
pub(crate) enum Verdict {
    Known(User),
    Anonymous,
    /// A logged-out visitor with the cookies of a revoked session. They must be withheld from the
    /// app.
    Revoked,
    Unknown,
}

/// Identifies a visitor by a remembered answer, or by asking the app.
pub(crate) async fn verify(
    worker: &Rc<WorkerContext>,
    verify: &Arc<Verifier>,
    unverified: UnverifiedToken<'_>,
    asking: Asking<'_>,
) -> Result<Verdict, StoreError> {
    // SECURITY: the response to a logout may go out before the store confirms it, and the store may not answer
    // now.
    if worker.sessions.log_outs_waiting() > 0
        && SuspectTokens::of(worker, &unverified.head.headers).are_being_revoked(worker)
    {
        return Ok(Verdict::Revoked);
    }
    let verdict = find_out(worker, verify, unverified, asking).await?;
    // SECURITY: an unknown visitor's cookies are forwarded, and the app may still accept a revoked token
    // among them. This can happen if the app was not asked, if its answer was unclear, or if another
    // proxy stored an earlier answer first.
    let is_unknown = matches!(verdict, Verdict::Unknown);
    if is_unknown
        && SuspectTokens::of(worker, &unverified.head.headers)
            .are_revoked(worker, unverified.now)
            .await?
    {
        return Ok(Verdict::Revoked);
    }
    Ok(verdict)
}

async fn find_out(
    worker: &Rc<WorkerContext>,
    verify: &Arc<Verifier>,
    unverified: UnverifiedToken<'_>,
    asking: Asking<'_>,
) -> Result<Verdict, StoreError> {
    let remembered =
        worker.verified.recall(&worker.store, &unverified.cookie_hash, unverified.now).await?;
    let is_renewal = remembered.is_some();
    if let Some(StoredAnswer { answer, asked_at: asked }) = remembered {
        let is_old = unverified.now - asked > verify.every.as_secs_f64() * RENEWED_AFTER;
        let is_due =
            is_old && !worker.verified.was_unclear(&unverified.cookie_hash, unverified.now);
        if let Some(verdict) = stands(worker, answer, unverified, asking.counts()).await? {
            if let Asking::Of(client, admitted) = asking {
                worker.verified.count_use(&unverified.cookie_hash);
                if is_due {
                    // The renewal runs in the background.
                    drop(ask(
                        worker,
                        verify,
                        unverified,
                        client,
                        admitted,
                        VerifyReason::Renewal,
                        true,
                    ));
                }
            }
            return Ok(verdict);
        }
    }
    let Asking::Of(client, admitted) = asking else { return Ok(Verdict::Unknown) };
    if worker.verified.was_unclear(&unverified.cookie_hash, unverified.now) {
        return Ok(Verdict::Unknown);
    }
    let asks = VerifyReason::Visitor(admitted.address);
    let asked = ask(worker, verify, unverified, client, admitted, asks, is_renewal);
    let Some(receiver) = asked else {
        return Ok(Verdict::Unknown);
    };
    if !is_renewal && let Some(asked) = worker.verified.count_question() {
        tracing::warn!(
            asked,
            "most visitors whom [session.verify] asked about were seen once: the session cookie seems \
             to change with every answer; if a part of it stays the same, name that part with [session] \
             token_from = \"sha256\" and part"
        );
    }
    Ok(match wait(receiver, verify.timeout).await {
        Some(VerifyAnswer::Known(user)) => Verdict::Known(user),
        Some(VerifyAnswer::Anonymous) => Verdict::Anonymous,
        Some(VerifyAnswer::Revoked) => Verdict::Revoked,
        None => Verdict::Unknown,
    })
}

/// Whether a remembered answer still holds: the proxy may have ended the user's session since.
async fn stands(
    worker: &WorkerContext,
    answer: VerifyAnswer,
    unverified: UnverifiedToken<'_>,
    counts: bool,
) -> Result<Option<Verdict>, StoreError> {
    let user = match answer {
        VerifyAnswer::Anonymous => return Ok(Some(Verdict::Anonymous)),
        VerifyAnswer::Revoked => return Ok(Some(Verdict::Revoked)),
        VerifyAnswer::Known(user) => user,
    };
    let UnverifiedToken { token, now, .. } = unverified;
    let found = match counts {
        true => worker.sessions.check_token(&worker.store, token, now).await?,
        false => worker.sessions.peek_token(&worker.store, token, now).await?,
    };
    // SECURITY: the store holds what was learnt last about a token, possibly at another host or from
    // other cookies.
    Ok(found.filter(|found| found.is_same(&user)).map(|_| Verdict::Known(user)))
}

async fn wait(
    mut receiver: watch::Receiver<Option<VerifyResult>>,
    timeout: Duration,
) -> VerifyResult {
    let answered = receiver.wait_for(Option::is_some);
    let result = tokio::time::timeout(timeout, answered).await.ok()?.ok()?;
    result.as_ref().cloned().flatten()
}

/// Joins a question that is under way, or starts one. `None`: too many questions are under way.
fn ask(
    worker: &Rc<WorkerContext>,
    verify: &Arc<Verifier>,
    unverified: UnverifiedToken<'_>,
    client: &Rc<Client>,
    admitted: &RequestFacts,
    asks: VerifyReason,
    is_renewal: bool,
) -> Option<watch::Receiver<Option<VerifyResult>>> {
    match worker.verified.join(unverified.cookie_hash) {
        Join::Full => None,
        Join::Wait(receiver) => Some(receiver),
        Join::Lead(lead, receiver) => {
            // Another question may have been answered between the look-up and the join.
            if let VerifyReason::Visitor(_) = asks
                && let Some(answer) =
                    worker.verified.remembered(&unverified.cookie_hash, unverified.now)
                && !is_renewal
            {
                lead.send(Some(answer));
                return Some(receiver);
            }
            let head = question_head(unverified.head, verify);
            let (upstream, request) = question(worker, client, admitted, &head, unverified.now)?;
            let question = PendingQuestion {
                worker: Rc::clone(worker),
                verify: Arc::clone(verify),
                upstream,
                token: unverified.token.clone(),
                bond: LogInScope::of_cookies(&unverified.cookie_hash),
                suspects: SuspectTokens::of(worker, &unverified.head.headers),
                asks,
            };
            tokio::task::spawn_local(async move {
                let result = question.carry_out(&lead, request).await;
                lead.send(result);
            });
            Some(receiver)
        }
    }
}

/// The head of a question, as the visitor would send it.
fn question_head(of: &Parts, verify: &Verifier) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = Method::GET;
    head.version = Version::HTTP_11;
    head.uri = Uri::from(verify.target.clone());
    let is_forwarded = |name: &HeaderName| FORWARDED_FIELDS.contains(name) || *name == CDN_LOOP;
    for (name, value) in of.headers.iter().filter(|(name, _)| is_forwarded(name)) {
        head.headers.append(name, value.clone());
    }
    head.headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    head
}

/// The question as it is sent to the app, and the upstream to send it to. `None`: the target belongs to
/// an app that takes no part in sessions.
fn question(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    admitted: &RequestFacts,
    head: &Parts,
    now: f64,
) -> Option<(Rc<Upstream>, Request<UploadBody>)> {
    let (path, fields) = (head.uri.path().to_owned(), FieldSet::of(&head.headers));
    let admitted = RequestFacts { path, fields, ..admitted.clone() };
    let (route, _) = route_of(worker, head, &admitted);
    let (visitor, visitor_token) = (Visitor::in_question(), VisitorTokenState::default());
    let parts = IdentifiedParts { head, admitted: &admitted, route, visitor: &visitor };
    let kind = RequestKind::Question;
    let cx = RequestContext::new(worker, client, parts, &visitor_token, now, kind);
    // An app that takes no part in sessions is not a source of truth about them.
    if !cx.rules().sessions {
        return None;
    }
    let mut request = origin_request::question(&cx);
    // The answer depends on the cookies alone, whatever certificate the client presents.
    for (name, _) in cx.certificate().iter().flat_map(|shown| shown.fields()) {
        request.headers_mut().remove(name);
    }
    Some((Rc::clone(cx.upstream()), request))
}

/// A question that is under way.
struct PendingQuestion {
    worker: Rc<WorkerContext>,
    verify: Arc<Verifier>,
    upstream: Rc<Upstream>,
    token: StoredToken,
    /// The session cookies in question. What is learnt about the token holds for these cookies.
    bond: LogInScope,
    /// The token in all its forms, and the other tokens of the request.
    suspects: SuspectTokens,
    asks: VerifyReason,
}

impl PendingQuestion {
    /// Asks the app and stores the answer. `None`: the answer is unclear.
    async fn carry_out(&self, lead: &VerifyLeader, request: Request<UploadBody>) -> VerifyResult {
        let (thread_metrics, store) = (&self.worker.thread_metrics, &self.worker.store);
        let before = lead.before(store).await.ok()?;
        let asked = unix_now();
        if !fault!("revoked-late") && self.suspects.are_revoked(&self.worker, asked).await.ok()? {
            let revoked = StoredAnswer { answer: VerifyAnswer::Revoked, asked_at: asked };
            let ttl = self.verify.every;
            let kept = lead.remember(store, before.as_ref(), revoked, ttl).await;
            if store.is_revoked(&self.token, asked).await.ok()? {
                self.end().await?;
            }
            return kept.ok().filter(|kept| *kept).map(|_| VerifyAnswer::Revoked);
        }
        thread_metrics.count(Count::VerifyQuestions);
        let asking = async {
            let permit = lead.permit(self.asks).await;
            let answer = self.ask(request).await;
            drop(permit);
            answer
        };
        let answer = tokio::time::timeout(self.verify.timeout, asking).await.ok().flatten();
        let Some(answer) = answer.filter(|_| !lead.is_void()) else {
            lead.is_unclear(unix_now());
            thread_metrics.count(Count::VerifyUnclear);
            return None;
        };
        let answer = match answer {
            VerifyAnswer::Known(user) => VerifyAnswer::Known(user.bound_to(self.bond)),
            nobody => nobody,
        };
        let remembered = StoredAnswer { answer: answer.clone(), asked_at: asked };
        let ttl = self.verify.every;
        // Stored first, so that an answer that was voided meanwhile cannot restore a session.
        let kept = lead.remember(store, before.as_ref(), remembered, ttl).await;
        match kept {
            Ok(true) => self.heed(&answer, asked).await.map(|()| answer),
            Ok(false) => None,
            Err(error) => {
                tracing::debug!(%error, "the app's answer about a visitor could not be stored");
                None
            }
        }
    }

    /// The app hears of a token that may be made up as of a login.
    fn requester(&self) -> Requester<'_> {
        let (memory, token) = (&self.worker.class_memory, self.token.as_str());
        let VerifyReason::Visitor(address) = self.asks else {
            return Requester { session: Some(token), ..Requester::BACKGROUND };
        };
        let (class, flow) = match memory.was_known(&self.token) {
            true => (RequestClass::Known, memory.flow(token)),
            false => (RequestClass::LogIn, memory.flow(&network(address))),
        };
        let priority = Priority { class, flow, page_kind: QUESTIONS, ..Priority::BACKGROUND };
        Requester { session: Some(token), priority, ..Requester::BACKGROUND }
    }

    async fn ask(&self, request: Request<UploadBody>) -> VerifyResult {
        let carried = request.headers().clone();
        let requester = self.requester();
        let (telemetry, origin) = (&self.worker.telemetry, self.upstream.shared_name());
        // The visitor has not asked for this URL.
        let uri = request.uri().clone();
        let origin_use = OriginUse::new(telemetry, origin, requester.priority.class, &uri, None);
        let requester = Requester { origin_use: Some(&origin_use), ..requester };
        let sent = self.upstream.send(request, ConnectionReuse::Pool(None), requester).await;
        let came = sent.inspect_err(|error| {
            tracing::debug!(%error, "the request of [session.verify] to the app failed");
        });
        let (head, body) = came.ok()?.response.into_parts();
        if head.status.is_server_error() {
            return None;
        }
        let reads = self.verify.reads_body();
        let body = if reads { read(body, &head.headers).await? } else { Vec::new() };
        let answer = self.verify.judge(ResponseParts {
            status: head.status,
            headers: &head.headers,
            body: &body,
        });
        let rules = &self.worker.settings.cookies;
        let path = self.verify.target.path();
        answer.filter(|answer| fits(answer, rules, &carried, &head.headers, path))
    }

    /// Applies the app's answer to the session. `None`: that failed.
    async fn heed(&self, answer: &VerifyAnswer, now: f64) -> Option<()> {
        let Self { worker, token, .. } = self;
        let stored_user = worker.sessions.peek_token(&worker.store, token, now).await.ok()?;
        match answer {
            VerifyAnswer::Known(_) if worker.sessions.is_ended_here(token) => None,
            VerifyAnswer::Known(user) if stored_user.as_ref() == Some(user) => Some(()),
            VerifyAnswer::Known(user) => {
                let adopted = worker.sessions.adopt(&worker.store, token, user, now).await;
                adopted
                    .inspect_err(|error| {
                        tracing::debug!(%error, "storing a session of the app failed");
                    })
                    .ok()
            }
            // To the app, a visitor that lost one of several cookies is another visitor, and at another
            // host the token may have no user. A login that was learnt from other cookies belongs to
            // those.
            VerifyAnswer::Anonymous
                if stored_user.is_some_and(|stored_user| stored_user.is_bound_to(self.bond)) =>
            {
                self.end().await
            }
            VerifyAnswer::Anonymous | VerifyAnswer::Revoked => Some(()),
        }
    }

    /// Ends the session, if there is one.
    async fn end(&self) -> Option<()> {
        let Self { worker, token, .. } = self;
        let visitor_token =
            worker.sessions.peek_token(&worker.store, token, unix_now()).await.ok()?;
        if visitor_token.is_none() {
            return Some(());
        }
        worker.visits.forget(token);
        worker.thread_metrics.count(Count::LogOuts);
        // The app has ended the session. This is not a logout by the visitor.
        worker.sessions.end_as(&worker.store, token, Ending::Ended).await.ok()
    }
}

impl Verifier {
    /// How long the mark of a voided answer is kept: longer than any question about it takes.
    pub(crate) fn mark_time(&self) -> Duration {
        self.every.max(self.timeout + QUESTION_OVER)
    }

    fn reads_body(&self) -> bool {
        let finders = self.attributes.iter().map(|(_, finder)| finder).chain([&self.user]);
        !matches!(self.anonymous, ResponseMatcher::Status(_))
            || finders.into_iter().any(Extractor::reads_body)
    }

    /// The visitor that a response describes. The sign for a logged-out visitor outweighs a name,
    /// because some apps name a logged-out visitor by the IP address.
    fn judge(&self, seen: ResponseParts<'_>) -> VerifyResult {
        if self.anonymous.is_borne(seen) {
            return Some(VerifyAnswer::Anonymous);
        }
        if !seen.status.is_success() || seen.status == StatusCode::PARTIAL_CONTENT {
            return None;
        }
        let user = User::new(&self.user.find(seen)?)?;
        let said = self.attributes.iter().filter_map(|(name, finder)| {
            Some((name.clone(), String::from_utf8(finder.find(seen)?).ok()?))
        });
        let said: Vec<_> = said.collect();
        Some(VerifyAnswer::Known(user.with_attributes(&said).unwrap_or_else(|| {
            self.dropped_attributes_logged.call_once(|| log_dropped_attributes(&said));
            user
        })))
    }
}

/// Logs that a user's attributes were dropped. The user gets the segment pages of a user without
/// attributes.
fn log_dropped_attributes(said: &[(String, String)]) {
    let lost = said.iter().find(|(name, value)| !is_attribute(name, value));
    let attribute = lost.map_or("", |(name, _)| name);
    tracing::warn!(
        attribute,
        "an attribute that [session.verify] finds is over 128 bytes or holds control characters: all \
         attributes of its user are dropped; logged once"
    );
}

/// Whether an answer may describe the session that was asked about. An answer that sets a new session
/// cookie may describe another one. An answer that clears the cookie fits only a logged-out visitor.
fn fits(
    answer: &VerifyAnswer,
    rules: &CookieRules,
    carried: &HeaderMap,
    headers: &HeaderMap,
    path: &str,
) -> bool {
    let now = unix_now() as u64;
    let is_anonymous = *answer == VerifyAnswer::Anonymous;
    let may_be = |name: &[u8]| rules.may_be_session(name);
    let changes = apply_set_cookie::changes(carried, headers, path, may_be, now);
    let is_cleared = set_cookie::clears_logins(headers);
    changes.iter().all(|change| matches!(change, CookieChange::Gone(_)) && is_anonymous)
        && (is_anonymous || !is_cleared)
}

/// Reads the body and decodes it. `None`: the body is too large or broken, or its coding is not
/// supported.
async fn read(mut body: OriginBody, headers: &HeaderMap) -> Option<Vec<u8>> {
    let coding = Coding::of(headers)?;
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.ok()?.into_data() else { continue };
        if whole.len() + part.len() > BODY_MAX {
            return None;
        }
        whole.extend_from_slice(&part);
    }
    recoded::decode(&whole.into(), coding, PLAIN_MAX).map(Vec::from)
}
