//! The endpoints, each with who may use it. The listener and the socket look requests up here.

use ::http::Method;
use anteroom_policy::admin::AdminRole;

use super::dashboard;

/// The path of the list of proxies.
pub const FLEET: &str = "/fleet";
/// The path of the move of the store.
pub const MOVE: &str = "/store/migrate";
/// The path of the backup: POST begins one, GET tells of the latest.
pub const BACKUP: &str = "/store/backup";
/// The path of the bypass switches.
pub const BYPASS: &str = "/bypass";
/// The path of the figures.
pub const STATUS: &str = "/status";
/// The path of the figures, each second.
pub(super) const EVENTS: &str = "/events";
/// The path of the missed URLs.
pub const MISSES: &str = "/misses";
/// The path of the servers of the app.
pub const ORIGINS: &str = "/origins";
/// The path of the certificates.
pub const CERTIFICATES: &str = "/certificates";
/// The path that orders others.
pub const CERTIFICATES_RENEW: &str = "/certificates/renew";
/// The path of who takes the app's time.
pub const CROWD: &str = "/crowd";
/// The path of what was learned in learn mode.
pub const LEARN: &str = "/learn";
/// The path that forgets it.
pub const LEARN_RESTART: &str = "/learn/restart";
/// The path of what the audit of hits has found. `/audit` has what operators did.
pub const CACHE_AUDIT: &str = "/cache-audit";
/// The path that lets pages be shared again that the audit has stopped.
pub const CACHE_AUDIT_RESUME: &str = "/cache-audit/resume";
/// The path of the stream of requests.
pub const LOG: &str = "/log";
/// The path at which a successor asks to take over.
pub(super) const TAKE_OVER: &str = "/take-over";
/// The path that starts one.
pub const UPGRADE: &str = "/upgrade";
/// The path that reloads the configuration.
pub const RELOAD: &str = "/reload";
/// The path of the cookie counts.
pub const TOP_COOKIES: &str = "/top/cookies";

/// An endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// GET stands for HEAD, too.
    pub(super) method: Method,
    /// The path; with a `*` at its end, everything that begins like this.
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) action: Action,
    /// The keys of its command that the audit log tells.
    pub(super) subject: &'static [&'static str],
}

/// Who may use an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everyone who reaches the listener.
    Open,
    /// The same, if there is any token.
    WithTokens,
    /// An operator whose role includes this one.
    Role(AdminRole),
    /// Whoever may write to the socket.
    Socket,
}

/// What an endpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Health,
    Readiness,
    Metrics,
    Page,
    DashboardFile,
    LogIn,
    LogOut,
    Me,
    Audit,
    Events,
    Log,
    TakeOver,
    Upgrade,
    Reload,
    Data(Command),
}

/// A data command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Purge,
    Explain,
    ListSessions,
    ShowSessions,
    RevokeSessions,
    DeleteUser,
    TopCookies,
    Fleet,
    ListRows,
    ScheduleRows,
    StopRows,
    Top,
    Bypasses,
    ChangeBypass,
    Status,
    Misses,
    Crowd,
    CacheAudit,
    ResumeSharing,
    Learned,
    RestartLearning,
    Origins,
    Certificates,
    RenewCertificates,
    Config,
    BeginMigration,
    MoveState,
    BeginBackup,
    BackupState,
}

impl Command {
    /// Whether it reads or writes the store, and so waits a moment for one that is away.
    pub(super) fn uses_store(self) -> bool {
        !matches!(
            self,
            Self::TopCookies
                | Self::Origins
                | Self::Certificates
                | Self::RenewCertificates
                | Self::Config
                | Self::Bypasses
                | Self::Status
                | Self::Misses
                | Self::Crowd
                | Self::CacheAudit
                | Self::Learned
                | Self::RestartLearning
        )
    }
}

impl Endpoint {
    const fn read(path: &'static str, access: Access, action: Action) -> Self {
        Self { method: Method::GET, path, access, action, subject: &[] }
    }

    const fn change(
        path: &'static str,
        access: Access,
        action: Action,
        subject: &'static [&'static str],
    ) -> Self {
        Self { method: Method::POST, path, access, action, subject }
    }

    /// The path of the dashboard's page, which a link on another page may lead to.
    pub(super) fn is_page(&self) -> bool {
        self.action == Action::Page
    }

    /// Whether it is an action, which is recorded.
    pub(super) fn is_action(&self) -> bool {
        self.method == Method::POST
    }

    /// Its name in the audit log.
    pub(super) fn name(&self) -> &'static str {
        self.path.trim_start_matches('/')
    }

    fn is_at(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(folder) => path.starts_with(folder),
            None => path == self.path,
        }
    }
}

const READ: Access = Access::Role(AdminRole::Read);
const PURGE: Access = Access::Role(AdminRole::Purge);
const SESSIONS: Access = Access::Role(AdminRole::Sessions);

/// Every endpoint. The table in `docs/reference/admin-api.md` has the same.
static ENDPOINTS: &[Endpoint] = &[
    Endpoint::read("/healthz", Access::Open, Action::Health),
    Endpoint::read("/readyz", Access::Open, Action::Readiness),
    Endpoint::read("/metrics", Access::Open, Action::Metrics),
    Endpoint::read("/", Access::Open, Action::Page),
    Endpoint::read("/dashboard/*", Access::WithTokens, Action::DashboardFile),
    Endpoint::change("/login", Access::WithTokens, Action::LogIn, &[]),
    Endpoint::change("/logout", READ, Action::LogOut, &[]),
    Endpoint::read("/me", READ, Action::Me),
    Endpoint::read("/audit", READ, Action::Audit),
    Endpoint::read(STATUS, READ, Action::Data(Command::Status)),
    Endpoint::read(EVENTS, READ, Action::Events),
    Endpoint::read(MISSES, READ, Action::Data(Command::Misses)),
    Endpoint::read(BYPASS, READ, Action::Data(Command::Bypasses)),
    Endpoint::read(ORIGINS, READ, Action::Data(Command::Origins)),
    Endpoint::read(CROWD, READ, Action::Data(Command::Crowd)),
    Endpoint::read(CERTIFICATES, READ, Action::Data(Command::Certificates)),
    Endpoint::change(
        CERTIFICATES_RENEW,
        Access::Role(AdminRole::All),
        Action::Data(Command::RenewCertificates),
        &["names", "all"],
    ),
    Endpoint::read("/config", READ, Action::Data(Command::Config)),
    Endpoint::read(TOP_COOKIES, READ, Action::Data(Command::TopCookies)),
    Endpoint::read(LEARN, READ, Action::Data(Command::Learned)),
    Endpoint::change(
        LEARN_RESTART,
        Access::Role(AdminRole::All),
        Action::Data(Command::RestartLearning),
        &[],
    ),
    Endpoint::read(CACHE_AUDIT, READ, Action::Data(Command::CacheAudit)),
    Endpoint::change(
        CACHE_AUDIT_RESUME,
        Access::Role(AdminRole::All),
        Action::Data(Command::ResumeSharing),
        &["host", "pattern", "route"],
    ),
    Endpoint::read(FLEET, READ, Action::Data(Command::Fleet)),
    Endpoint::read("/rows", READ, Action::Data(Command::ListRows)),
    Endpoint::read("/top", READ, Action::Data(Command::Top)),
    Endpoint::change("/explain", READ, Action::Data(Command::Explain), &["url"]),
    Endpoint::change(
        "/purge",
        PURGE,
        Action::Data(Command::Purge),
        &["dry_run", "urls", "prefixes", "globs", "tags", "all", "hard"],
    ),
    Endpoint::change("/sessions/list", SESSIONS, Action::Data(Command::ListSessions), &["user"]),
    Endpoint::change(
        "/sessions/show",
        SESSIONS,
        Action::Data(Command::ShowSessions),
        &["id", "user", "all"],
    ),
    Endpoint::change(
        "/sessions/revoke",
        SESSIONS,
        Action::Data(Command::RevokeSessions),
        &["id", "user", "all"],
    ),
    Endpoint::change(
        BYPASS,
        Access::Role(AdminRole::All),
        Action::Data(Command::ChangeBypass),
        &["on", "for", "route"],
    ),
    Endpoint::change("/user/delete", SESSIONS, Action::Data(Command::DeleteUser), &["user"]),
    Endpoint::change(
        "/rows/schedule",
        Access::Socket,
        Action::Data(Command::ScheduleRows),
        &["name", "rows", "every"],
    ),
    Endpoint::change(
        "/rows/stop",
        Access::Socket,
        Action::Data(Command::StopRows),
        &["name", "rows"],
    ),
    Endpoint::change(MOVE, Access::Socket, Action::Data(Command::BeginMigration), &["replace"]),
    Endpoint::read(LOG, Access::Socket, Action::Log),
    Endpoint::read(MOVE, Access::Socket, Action::Data(Command::MoveState)),
    Endpoint::change(BACKUP, Access::Socket, Action::Data(Command::BeginBackup), &["file"]),
    Endpoint::read(BACKUP, Access::Socket, Action::Data(Command::BackupState)),
    Endpoint::change(TAKE_OVER, Access::Socket, Action::TakeOver, &[]),
    Endpoint::change(UPGRADE, Access::Socket, Action::Upgrade, &["binary"]),
    Endpoint::change(RELOAD, Access::Socket, Action::Reload, &[]),
];

/// The endpoint of the listener for a request.
pub(super) fn of_listener(method: &Method, path: &str) -> Option<&'static Endpoint> {
    find(method, path).filter(|endpoint| endpoint.access != Access::Socket)
}

/// The endpoint of the socket for a request: a data command, the log, a take-over, a reload, or a question about the
/// interface itself.
pub(super) fn of_socket(method: &Method, path: &str) -> Option<&'static Endpoint> {
    let is_served = |endpoint: &&Endpoint| {
        matches!(
            endpoint.action,
            Action::Data(_)
                | Action::Log
                | Action::TakeOver
                | Action::Upgrade
                | Action::Reload
                | Action::Me
                | Action::Audit
        )
    };
    find(method, path).filter(is_served)
}

fn find(method: &Method, path: &str) -> Option<&'static Endpoint> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    ENDPOINTS.iter().find(|endpoint| endpoint.method == *method && endpoint.is_at(path))
}

const _: () = assert!(matches!(dashboard::FOLDER.as_bytes(), b"/dashboard/"));

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_reference_has_every_endpoint_with_its_role() {
        let page = include_str!("../../docs/reference/admin-api.md");
        let told: BTreeSet<(String, String)> = page
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split(" | ");
                let request = cells.next()?.trim_end_matches('`');
                let request = request.split(['?', '`']).next()?;
                let role = cells.next()?.trim_matches('`');
                let is_request = request.starts_with("GET /") || request.starts_with("POST /");
                is_request.then(|| (request.to_owned(), role.to_owned()))
            })
            .collect();
        let role = |access| match access {
            Access::Open | Access::WithTokens => "open",
            Access::Role(role) => role.word(),
            Access::Socket => "socket",
        };
        let row =
            |one: &Endpoint| (format!("{} {}", one.method, one.path), role(one.access).into());
        let ours: BTreeSet<(String, String)> = ENDPOINTS.iter().map(row).collect();
        assert_eq!(told, ours);
    }

    #[test]
    fn an_endpoint_is_found_by_method_and_path() {
        let at = |method: &Method, path: &str| of_listener(method, path).map(|one| one.path);
        assert_eq!(at(&Method::GET, "/"), Some("/"));
        assert_eq!(at(&Method::HEAD, "/metrics"), Some("/metrics"));
        assert_eq!(at(&Method::GET, "/dashboard/app.js"), Some("/dashboard/*"));
        assert_eq!(at(&Method::POST, "/purge"), Some("/purge"));
        for (method, path) in [
            (Method::GET, "/purge"),
            (Method::PUT, "/purge"),
            (Method::POST, "/rows/stop"),
            (Method::GET, BACKUP),
            (Method::POST, TAKE_OVER),
            (Method::GET, "/other"),
        ] {
            assert_eq!(at(&method, path), None, "{method} {path}");
        }
        let over_socket = |method: &Method, path: &str| of_socket(method, path).is_some();
        assert!(over_socket(&Method::GET, BACKUP) && over_socket(&Method::GET, "/me"));
        assert!(over_socket(&Method::POST, TAKE_OVER));
        assert!(!over_socket(&Method::GET, "/") && !over_socket(&Method::POST, "/login"));
    }

    #[test]
    fn every_action_tells_its_subject() {
        for endpoint in ENDPOINTS.iter().filter(|one| one.is_action()) {
            // Their only subject is the operator, or everything.
            let has_none = matches!(
                endpoint.action,
                Action::LogIn
                    | Action::LogOut
                    | Action::TakeOver
                    | Action::Reload
                    | Action::Data(Command::RestartLearning)
            );
            assert_eq!(endpoint.subject.is_empty(), has_none, "{}", endpoint.path);
        }
    }
}
