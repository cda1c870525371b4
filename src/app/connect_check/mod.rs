//! `anteroom check --connect`: tries what a valid configuration names, before a start does.
//!
//! Nothing is left behind: files and folders that are missing are not made, and the store is not opened.

mod authority;
mod certificate;
mod database;
mod file;
mod origin;
mod store;

use std::time::Duration;

use anteroom_config::Plan;
use serde::Serialize;

use super::runtime::runtime;
use super::start_error::StartError;

/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What one attempt found. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectFinding {
    /// The kind of the target: `origin`, `store`, `rows`, `authority`, `certificate`, `log`, `socket`.
    pub what: &'static str,
    /// The server, the file or the folder.
    pub target: String,
    /// How it went.
    pub result: ConnectResult,
    /// The particulars, as a sentence.
    pub detail: String,
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectResult {
    /// As it should be.
    Fine,
    /// The proxy would start, but something needs attention.
    Warning,
    /// The proxy would not start, or would not work.
    Failed,
}

impl std::fmt::Display for ConnectFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let result = match self.result {
            ConnectResult::Fine => "fine",
            ConnectResult::Warning => "warning",
            ConnectResult::Failed => "failed",
        };
        write!(f, "{result:<8} {:<12} {}: {}", self.what, self.target, self.detail)
    }
}

/// Tries everything that `plan` names.
///
/// # Errors
/// If the system refuses a runtime.
pub fn connect_check(plan: &Plan) -> Result<Vec<ConnectFinding>, StartError> {
    let mut findings = runtime()?.block_on(async {
        let (mut origins, stores, rows, authorities) = tokio::join!(
            origin::findings(plan),
            store::findings(plan),
            database::findings(plan),
            authority::findings(plan)
        );
        origins.extend(stores);
        origins.extend(rows);
        origins.extend(authorities);
        origins
    });
    findings.extend(certificate::findings(plan));
    findings.extend(file::findings(plan));
    Ok(findings)
}

/// The result for a target, with its detail.
type Judgement = (ConnectResult, String);

/// The findings about one kind of target.
struct Findings {
    what: &'static str,
    found: Vec<ConnectFinding>,
}

impl Findings {
    fn about(what: &'static str) -> Self {
        Self { what, found: Vec::new() }
    }

    fn add(&mut self, target: impl Into<String>, judgement: Judgement) {
        let (what, target) = (self.what, target.into());
        let (result, detail) = judgement;
        self.found.push(ConnectFinding { what, target, result, detail });
    }
}

fn fine(detail: impl Into<String>) -> Judgement {
    (ConnectResult::Fine, detail.into())
}

fn warning(detail: impl Into<String>) -> Judgement {
    (ConnectResult::Warning, detail.into())
}

fn failed(detail: impl Into<String>) -> Judgement {
    (ConnectResult::Failed, detail.into())
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
