//! `anteroom test`: takes the requests of a table through the stages of the proxy, without a store, an
//! origin or a listener, and compares what they come to with what the table says.

use std::rc::Rc;

use anteroom_config::{Case, CaseVisitor, Plan};
use anteroom_http::ident::User;
use anteroom_policy::learn::CacheMode;
use anteroom_proxy::{AssumedVisitor, Explanation, Question, WorkerContext, explain_for};
use anteroom_telemetry::reason::Reason;
use serde::Serialize;

use super::dry_run;
use super::start_error::StartError;

/// What a case came to.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// The name of the case.
    pub name: String,
    /// `cases.toml:12`
    pub location: String,
    /// The expectations that do not hold; empty: the case has passed.
    pub mismatches: Vec<Mismatch>,
}

/// An expectation that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The key in `expect`.
    pub key: &'static str,
    /// What the table says.
    pub expected: String,
    /// What the request came to, with its reason.
    pub found: String,
}

impl std::fmt::Display for CaseResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?} failed", self.location, self.name)?;
        for Mismatch { key, expected, found } in &self.mismatches {
            write!(f, "; {key}: expected {expected}, found {found}")?;
        }
        Ok(())
    }
}

/// Why the cases were not run.
#[derive(Debug, thiserror::Error)]
pub enum RuleTestError {
    /// The configuration cannot be used here.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A case is wrong.
    #[error("{location}: {text}")]
    Case {
        /// Where it was written.
        location: String,
        /// What is wrong.
        text: String,
    },
}

/// Every reason that a case may expect.
#[must_use]
pub fn case_reasons() -> Vec<&'static str> {
    Reason::ALL.iter().map(|reason| reason.as_str()).collect()
}

/// Runs the cases under `plan`. Its store is replaced by an empty one.
///
/// # Errors
/// If a case is wrong, or the plan names a file that cannot be read.
pub fn run_cases(mut plan: Plan, cases: &[Case]) -> Result<Vec<CaseResult>, RuleTestError> {
    // Cases tell what the rules say; in learn mode each request is forwarded.
    plan.cache.mode = CacheMode::Serve;
    plan.routes.iter_mut().for_each(|route| route.mode = CacheMode::Serve);
    plan.learn.mirror = false;
    dry_run::with_worker(plan, async |worker| {
        let mut results = Vec::with_capacity(cases.len());
        for case in cases {
            results.push(run(worker, case).await?);
        }
        Ok(results)
    })?
}

async fn run(worker: &Rc<WorkerContext>, case: &Case) -> Result<CaseResult, RuleTestError> {
    let wrong = |text: String| RuleTestError::Case { location: case.location.to_string(), text };
    let request = &case.request;
    let question = Question {
        url: request.url.clone(),
        method: request.method.clone(),
        cookies: request.cookies.clone(),
        headers: request.headers.clone(),
        from: request.from,
    };
    let visitor = match &request.visitor {
        Some(visitor) => Some(assumed(visitor).ok_or_else(|| {
            wrong("[[case]] user: the name or an attribute is not valid".to_owned())
        })?),
        None => None,
    };
    let explanation = explain_for(worker, &question, visitor.as_ref())
        .await
        .map_err(|error| wrong(format!("[[case]] {error}")))?;
    let has_session = explanation.cookies.iter().any(|cookie| cookie.class == "session");
    if visitor.is_some() && explanation.visitor.is_some() && !has_session {
        let text = "[[case]] user: the request has no session cookie; add one of [session] cookie";
        return Err(wrong(text.to_owned()));
    }
    let mismatches = case.expect.iter().filter_map(|(key, expected)| {
        let found = found(&explanation, key);
        (found != *expected).then(|| Mismatch {
            key,
            expected: expected.clone(),
            found: with_reason(key, found, &explanation),
        })
    });
    Ok(CaseResult {
        name: case.name.clone(),
        location: case.location.to_string(),
        mismatches: mismatches.collect(),
    })
}

fn assumed(visitor: &CaseVisitor) -> Option<AssumedVisitor> {
    match visitor {
        CaseVisitor::Anonymous => Some(AssumedVisitor::Anonymous),
        CaseVisitor::User(name, attributes) => {
            let user = User::new(name.as_bytes())?.with_attributes(attributes)?;
            Some(AssumedVisitor::User(user))
        }
    }
}

/// What the request came to, in the words of the table.
fn found(explanation: &Explanation, key: &str) -> String {
    let none = || "none".to_owned();
    let route = explanation.route.as_ref();
    match key {
        "route" => route.map_or_else(none, |route| route.name.clone()),
        "share" => route.map_or_else(none, |route| route.share.clone()),
        "visitor" => explanation.visitor.as_ref().map_or_else(none, |it| it.class.clone()),
        "verdict" => explanation.verdict().to_owned(),
        _ => explanation.reason.clone().unwrap_or_else(none),
    }
}

/// A verdict alone does not say what to change.
fn with_reason(key: &str, found: String, explanation: &Explanation) -> String {
    match &explanation.reason {
        Some(reason) if key == "verdict" => format!("{found} ({reason})"),
        _ => found,
    }
}
