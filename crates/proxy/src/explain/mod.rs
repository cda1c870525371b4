//! `anteroom explain`: shows what would be done about a request. It runs the very functions that answer
//! one, without their effects: nothing is sent to the origin, no visit is recorded, and nothing counts
//! as used.
//!
//! What only the moment decides is left out: whether the fetch of a page has too many waiting requests,
//! whether another proxy has the page, whether a page can be recoded, and what the origin would answer.

mod explanation;
mod filled;
pub(crate) mod hints;
mod learn;
mod parts;
mod print;
mod question;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ::http::Method;
use ::http::request::Parts;
use anteroom_cache::entry::{Entry, LifetimeSource};
use anteroom_cache::purge::PurgeStanding;
use anteroom_cache::rules::further_reasons::RefusalReasons;
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::verdict::{FreshnessDirective, fragment_fields, named_by};
use anteroom_cache::{CacheTier, Lookup, TierContent};
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, PageKey};
use anteroom_policy::learn::CacheMode;
use anteroom_policy::route::{Route, Share};
use anteroom_telemetry::reason::Reason;

use self::explanation::{ExplainedLeak, ExplainedOutcome, ExplainedReason, ExplainedUncacheable};
use self::hints::{HintContext, hint, hints, is_in_force, why, why_vary};
use self::question::ImaginedRequest;
use super::deliver::{content_coding, fragments};
use super::plan::{Decision, Facts, PageClass, PageDecision};
use super::source::rows;
use super::stage::decide::{Evaluation, LookupRules, facts, obstacles};
use super::stage::wanted_page::{WantedPage, hit_status, stale_status};
use super::stage::{self, limit};
use crate::context::{AssumedVisitor, Mode, RequestContext, RequestKind, WorkerContext};
use crate::deliver::headers;
use crate::error::Error;
use crate::record::RequestRecord;
use crate::stage::StageResult;
use crate::stage::admit::AdmittedRequest;
use crate::stage::divert::Diversion;
use crate::stage::receive::ReceivedRequest;
use crate::stage::url_pattern::path_digests;
use crate::visitor_token::VisitorTokenState;

pub use explanation::Explanation;
pub use question::{Question, QuestionError};

/// Explains what would be done about a request.
///
/// # Errors When the question is unclear.
pub async fn explain(
    worker: &Rc<WorkerContext>,
    question: &Question,
) -> Result<Explanation, QuestionError> {
    explain_for(worker, question, None).await
}

/// The same for a request whose session token belongs to `visitor`, whatever the store says.
///
/// # Errors
/// When the question is unclear.
pub async fn explain_for(
    worker: &Rc<WorkerContext>,
    question: &Question,
    visitor: Option<&AssumedVisitor>,
) -> Result<Explanation, QuestionError> {
    let ImaginedRequest { head, client, length, has_body, lost_https, site } =
        question.imagine(&worker.settings)?;
    let mut explanation = begin(&head, &site);
    if lost_https {
        explanation.note_lost_https();
    }
    let token = VisitorTokenState::default();
    let mut record = RequestRecord::of_part(&worker.telemetry, &client.state, &head.method);
    let received = ReceivedRequest::of(
        &worker.settings,
        &client,
        Box::new(head),
        length,
        has_body,
        &token,
        unix_now(),
    );
    let mode = Mode::Peek { knows_address: question.from.is_some(), visitor };
    let mut identified = match stage::run(worker, &client, received, mode, &mut record).await {
        Ok(StageResult::Identified(identified)) => identified,
        Ok(StageResult::Diverted(diverted)) => {
            explanation.divert(worker, &diverted);
            return Ok(explanation);
        }
        Err(error) => {
            explanation.refuse(worker, &error);
            return Ok(explanation);
        }
    };
    explanation.look_at_request(worker, identified.request());
    // The explanation shows the request as it is adapted for fragments.
    let route = identified.route();
    let is_filled = fragments::wanted_fragments(route, identified.head_mut(), has_body).is_some();
    let cx = identified.context(worker, &client, &token, RequestKind::Page);
    let item = identified.item();
    if is_filled {
        explanation.notes.extend(filled::notes(&cx, item).await);
    }
    explanation.route = Some(parts::route(&cx, item));
    explanation.visitor = Some(parts::visitor(&cx));
    explanation.cookies = parts::cookies(&cx);
    explanation.look_up_page(&cx, item, has_body).await;
    Ok(explanation)
}

/// What is known before the stages run.
fn begin(head: &Parts, site: &str) -> Explanation {
    Explanation {
        method: head.method.as_str().to_owned(),
        url: format!("{site}{}", parts::target(&head.uri)),
        outcome: ExplainedOutcome::Forward,
        reason: None,
        why: String::new(),
        cache_status: None,
        notes: Vec::new(),
        route: None,
        visitor: None,
        class: None,
        cookies: Vec::new(),
        key: None,
        fill: None,
        memory: None,
        store: None,
        uncacheable: None,
        leak: None,
        page: None,
        silent: None,
        hints: Vec::new(),
    }
}

/// The share class in which the page of a request that the cache may not serve would be stored for a visitor
/// that may share it. `None`: no visitor may.
fn class_for_others(barred: Reason, route: &Route) -> Option<ShareClass> {
    match route.share {
        _ if barred == Reason::Method => None,
        Share::None | Share::User => None,
        Share::Everyone => Some(ShareClass::Everyone),
        Share::Anonymous | Share::Segment => Some(ShareClass::Anonymous),
    }
}

/// Whether a page is fresh, by time and purges.
fn is_current(want: &WantedPage<'_>, page: &Entry) -> bool {
    want.cx.worker.pages.standing(page, want.now()) == PurgeStanding::Current
}

/// The decision, and the page that is stored.
struct DecisionAndPage {
    outcome: ExplainedOutcome,
    reason: Option<Reason>,
    why: &'static str,
    status: Option<CacheStatus<'static>>,
    page: Option<Arc<Entry>>,
}

impl DecisionAndPage {
    fn forward(reason: Reason) -> Self {
        let status = Some(headers::bypassed(reason));
        let (outcome, reason, why) = (ExplainedOutcome::Forward, Some(reason), why(reason));
        Self { outcome, reason, why, status, page: None }
    }

    /// The same, decided by this page.
    fn about(self, page: &Arc<Entry>) -> Self {
        Self { page: Some(Arc::clone(page)), ..self }
    }

    fn not_stored() -> Self {
        let why = "504: the request has only-if-cached, and no stored page fits";
        let forwarded = Self::forward(Error::NotStored.reason());
        Self { outcome: ExplainedOutcome::Refuse, why, ..forwarded }
    }

    /// A decision for which no page matters.
    fn without_page(decision: &Decision) -> Self {
        match decision {
            Decision::NotStored => Self::not_stored(),
            decision => Self::forward(decision.reason().unwrap_or(Reason::Learn)),
        }
    }
}

/// What is done about a request, and the page that this is decided by.
fn tell(want: &WantedPage<'_>, decision: &Decision) -> DecisionAndPage {
    let Decision::Page(decision) = decision else { return DecisionAndPage::without_page(decision) };
    let unreadable = |entry: &Entry| content_coding::recoding(want.cx, want.class, entry).err();
    match decision {
        PageDecision::Hit(entry, from) => {
            if let Some(reason) = unreadable(entry) {
                return DecisionAndPage::forward(reason).about(entry);
            }
            DecisionAndPage {
                outcome: ExplainedOutcome::Hit,
                reason: None,
                why: match from {
                    CacheTier::Memory => "a fresh page is in memory",
                    CacheTier::Store => "a fresh page is in the store",
                },
                status: Some(hit_status(want, entry, *from)),
                page: Some(Arc::clone(entry)),
            }
        }
        PageDecision::Stale { candidate, renews } => {
            if let Some(reason) = unreadable(&candidate.entry) {
                return DecisionAndPage::forward(reason).about(&candidate.entry);
            }
            DecisionAndPage {
                outcome: ExplainedOutcome::Stale,
                reason: None,
                why: match renews {
                    true => "a stale page is served while a new one is fetched",
                    false => "a stale page is served: the app has just failed to deliver a new one",
                },
                status: Some(stale_status(want, &candidate.entry)),
                page: Some(Arc::clone(&candidate.entry)),
            }
        }
        PageDecision::AsItCame { reason, .. } => DecisionAndPage::forward(*reason),
        PageDecision::Fetch { candidate, .. } => DecisionAndPage {
            outcome: ExplainedOutcome::Fetch,
            reason: None,
            why: match candidate {
                Some(candidate) if is_current(want, &candidate.entry) => {
                    "the stored page is not fresh enough for this request, and is fetched again"
                }
                Some(_) => {
                    "the stored page is stale, and is fetched again, once for all waiting requests"
                }
                None => "the page is not stored; it is fetched, once for all waiting requests",
            },
            status: None,
            page: candidate.as_ref().map(|candidate| Arc::clone(&candidate.entry)),
        },
    }
}

impl Explanation {
    fn note_lost_https(&mut self) {
        let note = "treated as http: no trusted proxy can declare https";
        self.notes.push(note.to_owned());
        let text = "list the TLS proxy in front of Anteroom, which sends X-Forwarded-Proto: https; or give Anteroom a \
                    certificate in [listen.tls] cert";
        self.hints.push(hint("[client] trusted_proxies", text));
    }

    /// Records what the stages after admission say about the request itself.
    fn look_at_request(&mut self, worker: &WorkerContext, request: &AdmittedRequest) {
        let AdmittedRequest { head, admitted, .. } = request;
        self.url = parts::url(admitted.scheme, &admitted.site, &head.uri);
        // A note only: without an address in the question, the explanation is for the addresses that are
        // served.
        if !limit::serves(worker, request) {
            let note = "served only to the addresses in [[route]] allow_from, others get 403; use --from to test an \
                        address";
            self.notes.push(note.to_owned());
        }
    }

    /// Records a request that the proxy answers itself.
    fn divert(&mut self, worker: &WorkerContext, diverted: &Diversion<'_>) {
        match diverted {
            Diversion::Purge(_, request) => {
                self.look_at_request(worker, request);
                let (reason, status) = (Reason::Method, CacheStatus::own(Reason::Method.as_str()));
                self.settle(worker, ExplainedOutcome::Own, Some(reason), Some(&status));
                "a purge, if the peer and the token are allowed to purge".clone_into(&mut self.why);
            }
            Diversion::Redirect(_, request) => {
                self.look_at_request(worker, request);
                self.settle(worker, ExplainedOutcome::Own, None, None);
                "308: this listener redirects http to https".clone_into(&mut self.why);
            }
            Diversion::RouteRedirect(routed) => {
                self.look_at_request(worker, routed.request());
                self.settle(worker, ExplainedOutcome::Own, None, None);
                let route = routed.route();
                self.route = Some(parts::route_alone(worker, route));
                self.why = format!(
                    "{}: the route {:?} redirects its clients",
                    route.redirect_status.code().as_u16(),
                    route.name
                );
            }
            Diversion::Challenge(_, request)
            | Diversion::Endpoint(request)
            | Diversion::No(request) => {
                self.look_at_request(worker, request);
                self.own(worker, Reason::Endpoint, why(Reason::Endpoint));
            }
        }
    }

    fn refuse(&mut self, worker: &WorkerContext, error: &Error) {
        let reason = error.reason();
        self.settle(
            worker,
            ExplainedOutcome::Refuse,
            Some(reason),
            Some(&headers::bypassed(reason)),
        );
        self.why = format!("{}: {}", error.status().as_u16(), error.sentence());
        if matches!(error, Error::Denied) {
            let text = "these keys decide which addresses are served";
            self.hints.push(hint("[client] allow and deny, [[route]] allow_from", text));
        }
        if let Error::DeniedByRoute(route) = error {
            self.route = Some(parts::route_alone(worker, route));
            self.hints
                .push(hint("[[route]] deny", "deny = true refuses all requests of this route"));
        }
        if let Error::LoginRequired { route, .. } = error {
            self.route = Some(parts::route_alone(worker, route));
            self.hints.push(hint(
                "[[route]] require",
                "give --cookie with the session cookie of a visitor",
            ));
        }
        if let Error::Unlisted(host) = error {
            let text = format!("add {:?}, if it is one of your sites", host.name());
            self.hints.push(hint("[origin] hosts", &text));
        }
    }

    fn own(&mut self, worker: &WorkerContext, reason: Reason, why: &str) {
        self.settle(worker, ExplainedOutcome::Own, Some(reason), Some(&headers::bypassed(reason)));
        why.clone_into(&mut self.why);
    }

    fn settle(
        &mut self,
        worker: &WorkerContext,
        outcome: ExplainedOutcome,
        reason: Option<Reason>,
        status: Option<&CacheStatus<'_>>,
    ) {
        self.outcome = outcome;
        self.reason = reason.map(|reason| reason.as_str().to_owned());
        let value = status.and_then(|status| headers::status_value(worker, status));
        self.cache_status = value.map(|value| parts::text(value.as_bytes()));
    }

    /// Finds out whether the cache may serve the request, and what it holds.
    async fn look_up_page(&mut self, cx: &RequestContext<'_>, item: Option<&Item>, has_body: bool) {
        let worker = cx.worker;
        let all = facts(cx, item, has_body);
        // What would be done with `mode = "serve"`; learn mode is applied to that at the end.
        let serving = Facts { learns: false, ..all.clone() };
        let mut evaluation = Evaluation::new(cx, serving, LookupRules::PEEK);
        let decision = evaluation.decide().await;
        if let Decision::Row(_) = decision {
            self.settle(worker, ExplainedOutcome::Row, None, Some(&rows::status()));
            "the row is stored, and everyone gets it".clone_into(&mut self.why);
            return;
        }
        if !cx.head.method.is_safe() {
            let note = "if the app answers 2xx or 3xx, the pages at this URL are removed, and the pages that the \
                        route's purges and [purge] after name become stale";
            self.notes.push(note.to_owned());
        }
        let barred = evaluation.barred();
        let class = barred.and_then(|reason| class_for_others(reason, cx.route));
        let others = class.map(|class| PageClass { class, only_static: barred });
        let others = others.map(|pages| WantedPage::new(cx, pages));
        let Some(want) = evaluation.want().or(others.as_ref()) else {
            self.conclude(cx, None, &DecisionAndPage::without_page(&decision));
            let mut reasons = Vec::from_iter(barred);
            reasons.extend(
                barred.into_iter().flat_map(|reason| self.further_reasons(cx, has_body, reason)),
            );
            self.tell_class(cx, None);
            return self.help(cx, &reasons, &[]);
        };
        self.key = Some(parts::key(want));
        let memory = worker.pages.held_in_memory(&want.key, want.sent());
        let source = worker.filler.page_source();
        let store = worker.pages.held_in_store(source, &want.key, want.sent(), want.now()).await;
        let mut decided = tell(want, &decision);
        if decided.page.is_none() {
            let stored = store.as_ref().ok().and_then(|tier| tier.page.clone());
            decided.page = found(want).await.or_else(|| memory.page.clone()).or(stored);
        }
        self.memory = Some(parts::tier(want, &memory));
        self.store = Some(match &store {
            Ok(tier) => parts::tier(want, tier),
            Err(error) => parts::unreadable(error),
        });
        self.look_at(want, &decided, &memory);
        self.note_bypass(cx);
        let mut reasons = reasons(want, &decided);
        if let Some(first) = barred {
            reasons.extend(self.further_reasons(cx, has_body, first));
        }
        let unsent = decided.page.as_ref().map_or_else(Vec::new, |page| unsent(want, page));
        let has_login = cx.visitor.user().is_some();
        // The page of visitors without a login varies by cookies that a login adds to.
        if unsent.iter().any(|name| name == "cookie") && has_login {
            reasons.push(Reason::Login);
        }
        let learned = match all.learns && barred.is_none() {
            true => Some(Evaluation::new(cx, all, LookupRules::PEEK_LEARN).decide().await),
            false => None,
        };
        self.conclude(cx, learned.as_ref(), &decided);
        if self.reason.as_deref() == Some(Reason::Vary.as_str()) && !unsent.is_empty() {
            self.why = why_vary(&unsent, has_login);
        }
        self.note_audit(cx);
        self.tell_class(cx, Some(&want.key));
        self.help(cx, &reasons, &unsent);
    }

    /// Tells when a request that is sent to the app is served where others wait.
    fn tell_class(&mut self, cx: &RequestContext<'_>, page: Option<&PageKey>) {
        let asks = matches!(self.outcome, ExplainedOutcome::Fetch | ExplainedOutcome::Forward);
        if asks && cx.upstream().keeps_order() {
            self.class = Some(parts::class(cx, page));
        }
    }

    /// Tells that some of such hits are held against the app.
    fn note_audit(&mut self, cx: &RequestContext<'_>) {
        if self.outcome == ExplainedOutcome::Hit
            && let Some(hits) = cx.route.audit.hits()
        {
            self.notes.push(format!(
                "of {hits} such requests, one goes to the app instead (detail=audited), and its answer is compared with the page"
            ));
        }
    }

    /// Tells until when, and by whom, the route is switched to bypass.
    fn note_bypass(&mut self, cx: &RequestContext<'_>) {
        let switch = &cx.worker.pages.purged.bypass;
        let stop = switch.stop_of(&cx.route.rules, &cx.admitted.site, || path_digests(cx));
        if let Some(stop) = stop.filter(|_| cx.route.mode == CacheMode::Serve) {
            self.notes.push(format!(
                "{}: {} is not shared any more; anteroom audit says where it differs, and anteroom audit resume shares it again",
                stop.by, stop.scope
            ));
        }
        let Some(bypass) = switch.of(&cx.route.name) else { return };
        let seconds = bypass.ends.saturating_duration_since(Instant::now()).as_secs();
        let (of, by) = (&bypass.scope, &bypass.by);
        self.notes.push(format!(
            "the bypass switch is on for {seconds} s more (route {of}, by {by}): anteroom bypass off ends it"
        ));
    }

    /// What keeps the request from the cache besides the first reason, on which a request acts.
    fn further_reasons(
        &mut self,
        cx: &RequestContext<'_>,
        has_body: bool,
        first: Reason,
    ) -> Vec<Reason> {
        let mut further = obstacles(cx, has_body);
        further.retain(|reason| *reason != first);
        let notes =
            further.iter().map(|reason| format!("also {}: {}", reason.as_str(), why(*reason)));
        self.notes.extend(notes);
        further
    }

    fn conclude(
        &mut self,
        cx: &RequestContext<'_>,
        learned: Option<&Decision>,
        decided: &DecisionAndPage,
    ) {
        self.apply(cx, decided);
        self.apply_learn_mode(cx, learned);
        let asks = matches!(self.outcome, ExplainedOutcome::Fetch | ExplainedOutcome::Forward);
        if !cx.route.maintenance || !asks {
            return;
        }
        if decided.page.is_some() {
            let note = "the route is under maintenance, and the app is not asked: the stale page is served if \
                        stale_if_error allows it, otherwise 503";
            return self.notes.push(note.to_owned());
        }
        let status = headers::bypassed(Reason::Maintenance);
        self.settle(cx.worker, ExplainedOutcome::Refuse, Some(Reason::Maintenance), Some(&status));
        "503: the route is under maintenance, and no page is stored".clone_into(&mut self.why);
    }

    /// Records what is stored, what is remembered, and the request that would fill the cache.
    fn look_at(&mut self, want: &WantedPage<'_>, decided: &DecisionAndPage, memory: &TierContent) {
        let (pages, now) = (&want.cx.worker.pages, want.now());
        let remembered = pages.memory().uncacheable_for(&want.key, want.mark_time(), &pages.purged);
        let further = |reason: Reason| ExplainedReason {
            reason: reason.as_str().to_owned(),
            why: why(reason).to_owned(),
        };
        self.uncacheable = remembered.map(|(reasons, seconds)| ExplainedUncacheable {
            reason: reasons.first.as_str().to_owned(),
            why: why(reasons.first).to_owned(),
            further: reasons.further().map(further).collect(),
            seconds,
        });
        let noted = pages.memory().noted_refusal(&want.key, now);
        self.leak = noted.map(|(reason, seconds)| ExplainedLeak {
            reason: reason.as_str().to_owned(),
            why: why(reason).to_owned(),
            seconds,
        });
        self.page = decided.page.as_ref().map(|page| parts::page(want, page));
        self.notes.extend(decided.page.as_ref().and_then(|page| parts::old_date(page)));
        if want.fills && want.cx.head.method == Method::GET {
            self.fill = Some(parts::fill(want, decided.page.as_deref()));
        }
        if decided.outcome == ExplainedOutcome::Fetch {
            self.silent = Some(parts::silent(want));
        }
        if pages.is_changed(&want.key, now) {
            let note = "the page was changed a moment ago: the store's copy is not trusted yet";
            self.notes.push(note.to_owned());
        }
        if pages.purged.is_cut_off() {
            let note =
                "purges by other proxies may be missing: pages stay fresh for only one second";
            self.notes.push(note.to_owned());
        }
        let is_elsewhere = decided.outcome == ExplainedOutcome::Hit
            && want.cx.route.trust_public
            && want.class == ShareClass::Anonymous
            && memory.page.is_none();
        if is_elsewhere && self.store.as_ref().is_some_and(|store| store.page.is_none()) {
            self.notes.push("the page is one that the app declared public".to_owned());
        }
    }

    /// Adds hints that would help against the reasons.
    fn help(&mut self, cx: &RequestContext<'_>, reasons: &[Reason], unsent: &[String]) {
        let cookies = self.cookies.iter().filter(|cookie| cookie.class == parts::UNKNOWN);
        let mut unknown_cookies: Vec<String> = cookies.map(|cookie| cookie.name.clone()).collect();
        unknown_cookies.sort_unstable();
        unknown_cookies.dedup();
        let fragments: Vec<String> =
            fragment_fields(&cx.head.headers, cx.route).map(ToString::to_string).collect();
        let about =
            HintContext { unknown_cookies: &unknown_cookies, fragments: &fragments, unsent };
        // Nothing is wrong while the app has not been asked.
        let is_unasked =
            |reason: &&Reason| **reason == Reason::Unverified && !parts::was_unclear(cx);
        let reasons = reasons.iter().filter(|reason| !is_unasked(reason));
        for hint in reasons.flat_map(|reason| hints(*reason, &about)) {
            if !self.hints.contains(&hint) && !is_in_force(&hint.key, cx) {
                self.hints.push(hint);
            }
        }
    }
}

/// All reasons that prevent a hit: now, recently, and in the stored page.
fn reasons(want: &WantedPage<'_>, decided: &DecisionAndPage) -> Vec<Reason> {
    // A refusal follows from the request's own directive, so there is no hint against it.
    let reason = decided.reason.filter(|_| decided.outcome != ExplainedOutcome::Refuse);
    let mut reasons: Vec<Reason> = reason.into_iter().collect();
    let pages = &want.cx.worker.pages;
    let memory = pages.memory();
    let (key, now) = (&want.key, want.now());
    let learnt = memory.uncacheable_for(key, want.mark_time(), &pages.purged);
    let learnt = learnt.map(|(reasons, _)| reasons);
    reasons.extend(learnt.map(|learnt| learnt.first));
    reasons.extend(memory.noted_refusal(key, now).map(|(reason, _)| reason));
    reasons.extend(learnt.into_iter().flat_map(RefusalReasons::further));
    if let Some(page) = &decided.page {
        reasons.extend(want.suits(page).err());
        if decided.outcome == ExplainedOutcome::Fetch && is_current(want, page) {
            reasons.push(Reason::RequestDirective);
        }
        let is_explicit = page.source == LifetimeSource::Explicit;
        if is_explicit
            && named_by(&page.fields.map(), page.stored_at).what
                == Some(FreshnessDirective::NoCache)
        {
            reasons.push(Reason::NoCache);
        }
    }
    reasons
}

/// The fields that selected a page and prevent this visitor from getting it.
fn unsent(want: &WantedPage<'_>, page: &Entry) -> Vec<String> {
    let fields = page.vary.iter().filter(|name| want.is_unsent(page, name));
    fields.map(ToString::to_string).collect()
}

/// The page that a request would find, for any visitor.
async fn found(want: &WantedPage<'_>) -> Option<Arc<Entry>> {
    match want.peek().await {
        Lookup::Fresh(page, _) | Lookup::Stale(page, _, _) => Some(page),
        Lookup::Absent(_) => None,
    }
}
