//! The interface for operators. `listener` serves health, metrics, the dashboard and commands, never on the public
//! address; `data_socket` serves the commands of the program itself, with `client` at the other end.
//!
//! `endpoints` is the table of all of them, each with who may use it. `access` has the operators and their tokens,
//! `login` the sessions of the dashboard, `audit` what was done. `handle` authorizes a request and carries it out;
//! `commands` runs the data commands, each of which is in a file of its own. `take_over` lets a successor in,
//! `reload` has the configuration read again.

mod access;
mod audit;
mod audit_subject;
mod backup;
mod bypass;
mod cache_audit;
mod certificates;
mod client;
mod commands;
mod configuration;
mod connection;
mod crowd;
mod crowd_lines;
mod dashboard;
mod data_socket;
mod endpoints;
mod events;
mod explain;
mod fleet;
mod handle;
mod latest_backup;
mod learn;
mod limits;
mod listener;
mod log;
mod login;
mod main_loop;
mod migrate_store;
mod origins;
mod per_minute;
mod purge;
mod reload;
mod reply;
mod rows;
mod same_origin;
mod sessions;
mod status;
mod status_parts;
mod take_over;
mod top;

pub use crate::task::MigrationStatus;
pub use access::{Operator, Operators};
pub use anteroom_acme::{CertificateState, NameStatus};
pub use anteroom_store::bypass::BYPASS_LASTS_MAX;
pub use anteroom_store::fleet::{FleetReport, ListedProxy};
pub use anteroom_telemetry::metrics::Outcome;
pub use anteroom_telemetry::request_filter::RequestFilter;
pub use audit::AuditLog;
pub use bypass::{BYPASS_LASTS, BYPASS_LASTS_MIN, BypassOrder, BypassReport, ListedBypass};
pub use cache_audit::ResumeOrder;
pub use certificates::{CertificatesReport, ListedCertificate, RenewOrder};
pub use client::{ClientError, StreamEnd, begin_take_over, send_command, stream_lines};
pub use commands::Commands;
pub use configuration::{ConfigReport, FoundHints, RefusedReload, ReloadCounts};
pub use crowd::{CrowdEntry, CrowdReport};
pub use data_socket::serve_data;
pub use endpoints::{
    BACKUP, BYPASS, CACHE_AUDIT, CACHE_AUDIT_RESUME, CERTIFICATES, CERTIFICATES_RENEW, CROWD,
    FLEET, LEARN, LEARN_RESTART, LOG, MISSES, MOVE, ORIGINS, RELOAD, STATUS, TOP_COOKIES, UPGRADE,
};
pub use handle::AdminHandle;
pub use latest_backup::{BackupOrder, BackupState, LatestBackup};
pub use listener::{AdminState, serve};
pub use log::{LogLine, LoggedRequest, LoggedStep};
pub use main_loop::{MainLoopEntrances, MainLoopRequests, main_loop_entrances};
pub use migrate_store::MigrationRequest;
pub use origins::{ListedOrigin, ListedServer, OriginsReport};
pub use reload::{ReloadEntrance, ReloadReport, ReloadRequest, ReloadRequests, ReloadResult};
pub use rows::{EVERY_MAX, EVERY_MIN, ListedRow, Listing, RowsRequest};
pub use sessions::{
    ExportedItem, ExportedSession, ExportedView, LISTED_MAX, ListedSession, RemovalCounts,
    SessionExport, SessionFilter, SessionListRequest, SessionsListing,
};
pub use status::{
    ConnectionStatus, ListedMiss, MemoryStatus, MissesListing, OriginStatus, RouteStatus, Status,
    StoreStatus, Times,
};
pub use status_parts::StatusParts;
pub use take_over::{
    TakeOverEntrance, TakeOverRequest, TakeOverRequests, UpgradeLine, UpgradeOrder, UpgradeRequest,
};
pub use top::{TOP_MAX, Top, TopViews};
