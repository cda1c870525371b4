//! `[session.verify]`: identifies a visitor by asking the app, in a request with the visitor's cookies.
//!
//! `session::Verified` remembers the answers. Each question runs in its own task. Requests with the same
//! cookies wait for it together, and it continues when the visitor disconnects.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, USER_AGENT};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use tokio::sync::watch;

use super::revoked::Suspects;
use crate::cache::{Look, recoded};
use crate::clock::unix_now;
use crate::http::apply_set_cookie::{self, Changed};
use crate::http::coding::Coding;
use crate::http::extract::{Finder, Seen, Sign};
use crate::http::set_cookie;
use crate::ident::{Bond, CookieHash, StoredToken, User, is_attribute};
use crate::origin::{Keep, OriginBody, Outgoing, Upstream};
use crate::proxy::connection::client::Client;
use crate::proxy::context::{Admitted, RequestContext, RequestKind, WorkerContext, route_of};
use crate::proxy::cookie_rules::CookieRules;
use crate::proxy::origin_request;
use crate::proxy::settings::Verify;
use crate::proxy::visitor::Visitor;
use crate::proxy::visitor_token::VisitorTokenState;
use crate::session::{Answer, Asks, Ending, Join, Lead, Remembered, Told};
use crate::store::{BarStore, StoreError};
use crate::telemetry::metrics::Count;

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
static ASKED: [HeaderName; 4] = [COOKIE, USER_AGENT, ACCEPT_LANGUAGE, ACCEPT_ENCODING];

/// Whether the app may be asked, and on behalf of which client.
#[derive(Clone, Copy)]
pub(in crate::proxy) enum Asking<'a> {
    /// The app may be asked.
    Of(&'a Rc<Client>, &'a Admitted),
    /// Only what is known already is used.
    No,
}

impl Asking<'_> {
    /// How the store is read.
    pub(in crate::proxy) fn look(self) -> Look {
        match self {
            Self::Of(..) => Look::Use,
            Self::No => Look::Peek,
        }
    }
}

/// The visitor to identify.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct Whose<'a> {
    pub(in crate::proxy) head: &'a Parts,
    pub(in crate::proxy) token: &'a StoredToken,
    pub(in crate::proxy) carried: CookieHash,
    /// Unix time in seconds.
    pub(in crate::proxy) now: f64,
}

/// What is known about a visitor.
pub(in crate::proxy) enum Verdict {
    Known(User),
    Nobody,
    /// A logged-out visitor whose cookies belong to a revoked session. They must be withheld from the
    /// app.
    Barred,
    Unknown,
}

/// Identifies a visitor by a remembered answer, or by asking the app.
pub(in crate::proxy) async fn verify(
    worker: &Rc<WorkerContext>,
    verify: &Arc<Verify>,
    whose: Whose<'_>,
    asking: Asking<'_>,
) -> Result<Verdict, StoreError> {
    let verdict = find_out(worker, verify, whose, asking).await?;
    // SECURITY: an unknown visitor's cookies are forwarded, and the app may still accept a revoked token
    // among them. This can happen if the app was not asked, if its answer was unclear, or if another
    // proxy stored an earlier answer first.
    let is_unknown = matches!(verdict, Verdict::Unknown);
    if is_unknown && Suspects::of(worker, &whose.head.headers).are_barred(worker, whose.now).await?
    {
        return Ok(Verdict::Barred);
    }
    Ok(verdict)
}

async fn find_out(
    worker: &Rc<WorkerContext>,
    verify: &Arc<Verify>,
    whose: Whose<'_>,
    asking: Asking<'_>,
) -> Result<Verdict, StoreError> {
    let remembered = worker.verified.recall(&worker.store, &whose.carried, whose.now).await?;
    let is_renewal = remembered.is_some();
    if let Some(Remembered { answer, asked }) = remembered {
        let is_old = whose.now - asked > verify.every.as_secs_f64() * RENEWED_AFTER;
        let is_due = is_old && !worker.verified.was_unclear(&whose.carried, whose.now);
        if let Some(verdict) = stands(worker, answer, whose, asking.look()).await? {
            if let Asking::Of(client, admitted) = asking {
                worker.verified.count_use(&whose.carried);
                if is_due {
                    // The renewal runs in the background.
                    drop(ask(worker, verify, whose, (client, admitted), Asks::Renewal));
                }
            }
            return Ok(verdict);
        }
    }
    let Asking::Of(client, admitted) = asking else { return Ok(Verdict::Unknown) };
    if worker.verified.was_unclear(&whose.carried, whose.now) {
        return Ok(Verdict::Unknown);
    }
    let asks = Asks::Visitor(admitted.address);
    let Some(told) = ask(worker, verify, whose, (client, admitted), asks) else {
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
    Ok(match wait(told, verify.timeout).await {
        Some(Answer::Known(user)) => Verdict::Known(user),
        Some(Answer::Nobody) => Verdict::Nobody,
        Some(Answer::Barred) => Verdict::Barred,
        None => Verdict::Unknown,
    })
}

/// Whether a remembered answer still holds: the proxy may have ended the user's session since.
async fn stands(
    worker: &WorkerContext,
    answer: Answer,
    whose: Whose<'_>,
    look: Look,
) -> Result<Option<Verdict>, StoreError> {
    let user = match answer {
        Answer::Nobody => return Ok(Some(Verdict::Nobody)),
        Answer::Barred => return Ok(Some(Verdict::Barred)),
        Answer::Known(user) => user,
    };
    let Whose { token, now, .. } = whose;
    let found = match look {
        Look::Use => worker.sessions.check_token(&worker.store, token, now).await?,
        Look::Peek => worker.sessions.peek_token(&worker.store, token, now).await?,
    };
    // SECURITY: the store holds what was learnt last about a token, possibly at another host or from
    // other cookies.
    Ok(found.filter(|found| found.is_same(&user)).map(|_| Verdict::Known(user)))
}

async fn wait(mut told: watch::Receiver<Option<Told>>, patience: Duration) -> Told {
    let telling = told.wait_for(Option::is_some);
    let told = tokio::time::timeout(patience, telling).await.ok()?.ok()?;
    told.as_ref().cloned().flatten()
}

/// Joins a question that is under way, or starts one. `None`: too many questions are under way.
fn ask(
    worker: &Rc<WorkerContext>,
    verify: &Arc<Verify>,
    whose: Whose<'_>,
    (client, admitted): (&Rc<Client>, &Admitted),
    asks: Asks,
) -> Option<watch::Receiver<Option<Told>>> {
    match worker.verified.join(whose.carried) {
        Join::Full => None,
        Join::Wait(told) => Some(told),
        Join::Lead(lead, told) => {
            let head = question_head(whose.head, verify);
            let (upstream, request) = question(worker, client, admitted, &head, whose.now)?;
            let question = Question {
                worker: Rc::clone(worker),
                verify: Arc::clone(verify),
                upstream,
                token: whose.token.clone(),
                bond: Bond::of_cookies(&whose.carried),
                suspects: Suspects::of(worker, &whose.head.headers),
                asks,
            };
            tokio::task::spawn_local(async move {
                let told = question.carry_out(&lead, request).await;
                lead.tell(told);
            });
            Some(told)
        }
    }
}

/// The head of a question, as the visitor would send it.
fn question_head(of: &Parts, verify: &Verify) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = Method::GET;
    head.version = Version::HTTP_11;
    head.uri = Uri::from(verify.target.clone());
    for (name, value) in of.headers.iter().filter(|(name, _)| ASKED.contains(name)) {
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
    admitted: &Admitted,
    head: &Parts,
    now: f64,
) -> Option<(Rc<Upstream>, Request<Outgoing>)> {
    let admitted = Admitted { path: head.uri.path().to_owned(), ..admitted.clone() };
    let (route, _) = route_of(worker, head, &admitted);
    let (visitor, visitor_token) = (Visitor::in_question(), VisitorTokenState::default());
    let parts = (head, &admitted, route, &visitor);
    let cx =
        RequestContext::new(worker, client, parts, &visitor_token, (now, RequestKind::Question));
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
struct Question {
    worker: Rc<WorkerContext>,
    verify: Arc<Verify>,
    upstream: Rc<Upstream>,
    token: StoredToken,
    /// The session cookies in question. What is learnt about the token holds for these cookies.
    bond: Bond,
    /// The token in all its forms, and the other tokens of the request.
    suspects: Suspects,
    asks: Asks,
}

impl Question {
    /// Asks the app and stores the answer. `None`: the answer is unclear.
    async fn carry_out(&self, lead: &Lead, request: Request<Outgoing>) -> Told {
        let (sheet, store) = (&self.worker.sheet, &self.worker.store);
        let before = lead.before(store).await.ok()?;
        let asked = unix_now();
        if self.suspects.are_barred(&self.worker, asked).await.ok()? {
            let barred = Remembered { answer: Answer::Barred, asked };
            let ttl = self.verify.every;
            let kept = lead.remember(store, before.as_ref(), barred, ttl).await;
            if store.is_barred(&self.token, asked).await.ok()? {
                self.end().await?;
            }
            return kept.ok().filter(|kept| *kept).map(|_| Answer::Barred);
        }
        sheet.count(Count::VerifyQuestions);
        let asking = async {
            let turn = lead.turn(self.asks).await;
            let answer = self.ask(request).await;
            drop(turn);
            answer
        };
        let answer = tokio::time::timeout(self.verify.timeout, asking).await.ok().flatten();
        let Some(answer) = answer.filter(|_| !lead.is_void()) else {
            lead.is_unclear(unix_now());
            sheet.count(Count::VerifyUnclear);
            return None;
        };
        let answer = match answer {
            Answer::Known(user) => Answer::Known(user.bound_to(self.bond)),
            nobody => nobody,
        };
        let remembered = Remembered { answer: answer.clone(), asked };
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

    async fn ask(&self, request: Request<Outgoing>) -> Told {
        let carried = request.headers().clone();
        let sent = self.upstream.send(request, Keep::Pool(None), Some(self.token.as_str())).await;
        let came = sent.inspect_err(|error| {
            tracing::debug!(%error, "the request of [session.verify] to the app failed");
        });
        let (head, body) = came.ok()?.response.into_parts();
        if head.status.is_server_error() {
            return None;
        }
        let reads = self.verify.reads_body();
        let body = if reads { read(body, &head.headers).await? } else { Vec::new() };
        let told =
            self.verify.judge(Seen { status: head.status, headers: &head.headers, body: &body });
        let rules = &self.worker.settings.cookies;
        let path = self.verify.target.path();
        told.filter(|told| fits(told, rules, (&carried, &head.headers), path))
    }

    /// Applies the app's answer to the session. `None`: that failed.
    async fn heed(&self, answer: &Answer, now: f64) -> Option<()> {
        let Self { worker, token, .. } = self;
        let visitor_token = worker.sessions.peek_token(&worker.store, token, now).await.ok()?;
        match answer {
            Answer::Known(_) if worker.sessions.is_denied(token) => None,
            Answer::Known(user) if visitor_token.as_ref() == Some(user) => Some(()),
            Answer::Known(user) => {
                let adopted = worker.sessions.adopt(&worker.store, token, user, now).await;
                adopted
                    .inspect_err(|error| {
                        tracing::debug!(%error, "storing a session of the app failed");
                    })
                    .ok()
            }
            // To the app, a visitor that lost one of several cookies is another visitor, and at another
            // host the token may have no user. A log-in that was learnt from other cookies belongs to
            // those.
            Answer::Nobody
                if visitor_token
                    .is_some_and(|visitor_token| visitor_token.is_bound_to(self.bond)) =>
            {
                self.end().await
            }
            Answer::Nobody | Answer::Barred => Some(()),
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
        worker.sheet.count(Count::LogOuts);
        // The app has ended the session. This is not a log-out by the visitor.
        worker.sessions.put_out(&worker.store, token, Ending::Dismissed).await.ok()
    }
}

impl Verify {
    /// How long the mark of a voided answer is kept: longer than any question about it takes.
    pub(in crate::proxy) fn mark_time(&self) -> Duration {
        self.every.max(self.timeout + QUESTION_OVER)
    }

    fn reads_body(&self) -> bool {
        let finders = self.attributes.iter().map(|(_, finder)| finder).chain([&self.user]);
        !matches!(self.nobody, Sign::Status(_)) || finders.into_iter().any(Finder::reads_body)
    }

    /// The visitor that a response describes. The sign for a logged-out visitor outweighs a name,
    /// because some apps name a logged-out visitor by the IP address.
    fn judge(&self, seen: Seen<'_>) -> Told {
        if self.nobody.is_borne(seen) {
            return Some(Answer::Nobody);
        }
        if !seen.status.is_success() || seen.status == StatusCode::PARTIAL_CONTENT {
            return None;
        }
        let user = User::new(&self.user.find(seen)?)?;
        let said = self.attributes.iter().filter_map(|(name, finder)| {
            Some((name.clone(), String::from_utf8(finder.find(seen)?).ok()?))
        });
        let said: Vec<_> = said.collect();
        Some(Answer::Known(user.with_attributes(&said).unwrap_or_else(|| {
            self.loss.call_once(|| tell_of_loss(&said));
            user
        })))
    }
}

/// Logs that a user's attributes were dropped. The user gets the segment pages of a user without
/// attributes.
fn tell_of_loss(said: &[(String, String)]) {
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
    told: &Answer,
    rules: &CookieRules,
    (carried, headers): (&HeaderMap, &HeaderMap),
    path: &str,
) -> bool {
    let now = unix_now() as u64;
    let is_nobody = *told == Answer::Nobody;
    let may_be = |name: &[u8]| rules.may_be_session(name);
    let changes = apply_set_cookie::changes((carried, headers), path, may_be, now);
    let is_cleared = set_cookie::clears_logins(headers);
    changes.iter().all(|change| matches!(change, Changed::Gone(_)) && is_nobody)
        && (is_nobody || !is_cleared)
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
