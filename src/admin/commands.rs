//! The data commands of the running proxy: JSON in, JSON out.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use anteroom_acme::CertificateBoard;
use anteroom_cache::purger::Purger;
use anteroom_origin::ServerList;
use anteroom_proxy::serve::tls::ClientTls;
use anteroom_proxy::{CookieKinds, WorkerContext, cookie_report};
use anteroom_rows::{RowNames, SharedRows};
use anteroom_session::Sessions;
use anteroom_store::fleet::{Fleet, ProxyEntry};
use anteroom_store::{AnyStore, StoreError};
use anteroom_telemetry::metrics::Metrics;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::configuration::{ConfigAnswer, ConfigReport, FoundHints, ReloadCounts};
use super::endpoints::Command;
use super::latest_backup::LatestBackup;
use super::reply::{AdminResponse, json, refusal};
use super::status_parts::StatusParts;
use crate::task::MigrationProgress;

/// How long a command waits for a store that is away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Runs commands, under the current configuration.
#[derive(Debug)]
pub struct Commands {
    /// The store.
    pub store: AnyStore,
    /// The sessions.
    pub sessions: Arc<Sessions>,
    /// The names of rows.
    pub names: RowNames,
    /// What the threads share of rows.
    pub rows: Arc<SharedRows>,
    /// The refresh interval of each source's rows.
    pub every: Vec<Duration>,
    /// What purges.
    pub purger: Arc<Purger>,
    /// For explaining requests, without answering them.
    pub worker: Rc<WorkerContext>,
    /// The kinds of cookies.
    pub kinds: CookieKinds,
    /// The counters of cookies.
    pub metrics: Arc<Metrics>,
    /// What is read for the figures.
    pub status_parts: StatusParts,
    /// What this process knows of the other proxies on the store.
    pub fleet: Arc<Fleet>,
    /// The latest backup of the store.
    pub backup: Arc<LatestBackup>,
    /// What it says about itself.
    pub entry: ProxyEntry,
    /// Where the store would be moved, in words.
    pub move_target: Option<String>,
    /// What the configuration needs then, as a line of it.
    pub move_advice: Option<String>,
    /// What is known of a move by this process.
    pub moving: Arc<MigrationProgress>,
    /// The servers of each origin.
    pub origins: Vec<Arc<ServerList>>,
    /// The TLS of the listeners that use it, with their addresses.
    pub tls: Vec<(String, Arc<ClientTls>)>,
    /// The certificates that are ordered.
    pub ordered: Arc<CertificateBoard>,
    /// The configuration in force.
    pub config: ConfigReport,
    /// Hints about it.
    pub hints: Arc<FoundHints>,
    /// How reloads went.
    pub reloads: Arc<ReloadCounts>,
}

/// Why a command failed.
pub(super) type CommandRefusal = (StatusCode, String);

impl Commands {
    /// Carries out a command of an operator; `query` is that of its URL.
    pub(super) async fn answer(
        &self,
        command: Command,
        operator: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> AdminResponse {
        if command.uses_store() {
            // For an operator a short wait is better than an error.
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.store.connected());
            if connected.await.is_err() {
                tracing::debug!("a data command found the store away");
            }
        }
        let done = match command {
            Command::ListRows => self.list_rows().await.map(reply),
            Command::ScheduleRows => self.change_rows(body, false).await.map(reply),
            Command::StopRows => self.change_rows(body, true).await.map(reply),
            Command::Purge => self.purge(body).await.map(reply),
            Command::Explain => self.explain(body).await.map(reply),
            Command::ListSessions => self.list_sessions(body).await.map(reply),
            Command::ShowSessions => self.show_sessions(body).await.map(reply),
            Command::RevokeSessions => self.revoke_sessions(body).await.map(reply),
            Command::DeleteUser => self.delete_user(body).await.map(reply),
            Command::TopCookies => Ok(reply(cookie_report(&self.kinds, &self.metrics.cookies()))),
            Command::BeginMigration => self.migrate_store(body).map(reply),
            Command::MoveState => Ok(reply(self.moving.report())),
            Command::Fleet => self.list_fleet().await.map(reply),
            Command::BeginBackup => self.begin_backup(body).map(reply),
            Command::BackupState => Ok(reply(self.backup_state())),
            Command::Top => self.top(query).await.map(reply),
            Command::Bypasses => Ok(reply(self.list_bypasses())),
            Command::ChangeBypass => self.change_bypass(operator, body).await.map(reply),
            Command::Status => Ok(reply(self.status())),
            Command::Misses => Ok(reply(self.misses())),
            Command::Crowd => Ok(reply(self.crowd())),
            Command::Learned => Ok(reply(self.learned().await)),
            Command::CacheAudit => Ok(reply(self.cache_audit())),
            Command::ResumeSharing => self.resume_sharing(operator, body).await.map(reply),
            Command::RestartLearning => Ok(reply(self.restart_learning().await)),
            Command::Origins => Ok(reply(self.list_origins())),
            Command::Certificates => Ok(reply(self.list_certificates())),
            Command::RenewCertificates => self.renew_certificates(body).map(reply),
            Command::Config => {
                Ok(reply(ConfigAnswer::new(&self.config, &self.hints, &self.reloads)))
            }
        };
        done.unwrap_or_else(|(status, error)| refusal(status, error))
    }
}

/// Reads a command.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CommandRefusal> {
    serde_json::from_slice(body).map_err(|error| bad(&error))
}

/// The command is invalid.
pub(super) fn bad(why: &impl ToString) -> CommandRefusal {
    (StatusCode::BAD_REQUEST, why.to_string())
}

/// The store failed.
pub(super) fn store_failed(error: &StoreError) -> CommandRefusal {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn reply(value: impl Serialize) -> AdminResponse {
    json(StatusCode::OK, &value)
}
