//! What the listener and the socket share: the operators, their sessions, and the current commands.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::time::Instant;

use ::http::request::Parts;
use ::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::Serialize;

use super::access::{Operator, Operators};
use super::audit::{AuditEntry, AuditLog};
use super::audit_subject::AuditSubject;
use super::commands::{CommandRefusal, Commands, bad};
use super::endpoints::{Access, Action, Endpoint};
use super::events::EventStreams;
use super::log;
use super::login::{self, DashboardSessions};
use super::main_loop::MainLoopEntrances;
use super::per_minute::PerMinute;
use super::reply::{AdminResponse, json, refusal};

/// The largest command, in bytes.
const COMMAND_MAX: usize = 4 << 20;
/// Wrong tokens at the login to the dashboard in a minute. Further logins wait, right ones, too; requests with a
/// bearer token never do.
const WRONG_TOKENS_PER_MINUTE: usize = 10;

/// The current commands and operators, which a reload replaces, and what outlives it: sessions and the audit log.
#[derive(Debug)]
pub struct AdminHandle {
    commands: RefCell<Rc<Commands>>,
    operators: RefCell<Operators>,
    pub(super) sessions: RefCell<DashboardSessions>,
    pub(super) wrong_tokens: RefCell<PerMinute>,
    pub(super) audit: AuditLog,
    streams: Rc<EventStreams>,
    main_loop: MainLoopEntrances,
}

impl AdminHandle {
    /// The handle of these commands. What they cannot carry out comes to `main_loop`.
    #[must_use]
    pub fn new(
        commands: Rc<Commands>,
        operators: Operators,
        audit: AuditLog,
        main_loop: MainLoopEntrances,
    ) -> Rc<Self> {
        Rc::new(Self {
            commands: RefCell::new(commands),
            operators: RefCell::new(operators),
            sessions: RefCell::default(),
            wrong_tokens: RefCell::new(PerMinute::new(WRONG_TOKENS_PER_MINUTE)),
            audit,
            streams: Rc::default(),
            main_loop,
        })
    }

    /// Further commands run on `commands`, for these operators. Sessions of all others end.
    pub fn replace(&self, commands: Rc<Commands>, operators: Operators) {
        self.sessions.borrow_mut().keep(&operators);
        self.operators.replace(operators);
        self.commands.replace(commands);
    }

    /// The current commands.
    pub(super) fn commands(&self) -> Rc<Commands> {
        Rc::clone(&self.commands.borrow())
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// Those with a token.
    pub(super) fn operators(&self) -> Ref<'_, Operators> {
        self.operators.borrow()
    }

    /// Carries out a request of an operator, if the operator's role allows it, and records it if it is an action.
    pub(super) async fn carry_out(
        self: &Rc<Self>,
        operator: &Operator,
        endpoint: &'static Endpoint,
        head: &Parts,
        body: Incoming,
    ) -> AdminResponse {
        if let Access::Role(needed) = endpoint.access
            && !operator.role.includes(needed)
        {
            let (own, needed) = (operator.role.word(), needed.word());
            let why = format!("this token has the role {own}; {needed} or all is needed");
            return self.refuse(operator, endpoint, (StatusCode::FORBIDDEN, why));
        }
        if !endpoint.is_action() {
            return self.run(operator, endpoint, head, &Bytes::new()).await;
        }
        let body = match Limited::new(body, COMMAND_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return self.refuse(operator, endpoint, bad(&error)),
        };
        let subject = AuditSubject::of_command(endpoint.subject, &body);
        let entry = self.audit.begin(&operator.name, endpoint.name(), subject);
        let response = self.run(operator, endpoint, head, &body).await;
        entry.end(response.status().as_u16());
        response
    }

    /// Refuses a request of a known operator.
    pub(super) fn refuse(
        &self,
        operator: &Operator,
        endpoint: &'static Endpoint,
        (status, why): CommandRefusal,
    ) -> AdminResponse {
        if endpoint.is_action() {
            let subject = AuditSubject::default();
            self.audit.begin(&operator.name, endpoint.name(), subject).end(status.as_u16());
        }
        refusal(status, why)
    }

    /// Refuses a request of whoever shows no known token.
    pub(super) fn refuse_stranger(
        &self,
        endpoint: &'static Endpoint,
        (status, why): CommandRefusal,
    ) -> AdminResponse {
        if endpoint.is_action() {
            self.audit.refused(endpoint.name(), status.as_u16(), Instant::now());
        }
        let mut response = refusal(status, why);
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(::http::header::WWW_AUTHENTICATE, scheme);
        }
        response
    }

    async fn run(
        self: &Rc<Self>,
        operator: &Operator,
        endpoint: &Endpoint,
        head: &Parts,
        body: &Bytes,
    ) -> AdminResponse {
        match endpoint.action {
            Action::Me => {
                json(StatusCode::OK, &Me { name: &operator.name, role: operator.role.word() })
            }
            Action::Audit => json(StatusCode::OK, &AuditEntries { entries: self.audit.last() }),
            Action::LogOut => self.log_out(head),
            Action::Events => {
                let handle = Rc::clone(self);
                let figures =
                    move || serde_json::to_string(&handle.commands().status()).unwrap_or_default();
                self.streams.stream(figures)
            }
            Action::TakeOver => self.main_loop.successors.answer(head),
            Action::Upgrade => self.main_loop.successors.upgrade(body),
            Action::Reload => self.main_loop.reloads.answer().await,
            Action::Log => log::stream(&self.commands().status_parts.feed, head.uri.query()),
            Action::Data(command) => {
                let commands = self.commands();
                commands.answer(command, &operator.name, head.uri.query(), body).await
            }
            // The listener answers these, without an operator.
            Action::Health
            | Action::Readiness
            | Action::Metrics
            | Action::Page
            | Action::DashboardFile
            | Action::LogIn => refusal(StatusCode::NOT_FOUND, "there is no such command"),
        }
    }

    fn log_out(&self, head: &Parts) -> AdminResponse {
        for token in login::tokens(&head.headers) {
            self.sessions.borrow_mut().end(token);
        }
        let mut response = json(StatusCode::OK, &serde_json::json!({}));
        if let Some(line) = login::no_cookie() {
            response.headers_mut().insert(::http::header::SET_COOKIE, line);
        }
        response
    }
}

/// Who asks.
#[derive(Serialize)]
struct Me<'o> {
    name: &'o str,
    role: &'static str,
}

/// The last entries of the audit log.
#[derive(Serialize)]
struct AuditEntries {
    entries: Vec<AuditEntry>,
}
