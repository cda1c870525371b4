//! The interface for operators. `listener` serves health and metrics, never on the public address.
//! The socket of the data commands has `client` at one end, and `commands` at the other, which runs
//! `rows`, `top`, `log`, `backup`, `purge`, `explain`, `sessions` and `fleet`. With the token the listener runs
//! the last four, too, and shows the cookie counts.

mod backup;
mod client;
mod commands;
mod explain;
mod fleet;
mod latest_backup;
mod limits;
mod listener;
mod log;
mod move_store;
mod purge;
mod rows;
mod sessions;
mod status;
mod top;

pub use crate::store::fleet::{FleetReport, ListedProxy};
pub use crate::task::MoveStatus;
pub use crate::telemetry::request_filter::RequestFilter;
pub use client::{ClientError, StreamEnd, send_command, stream_lines};
pub use commands::{AdminHandle, AdminToken, Commands, FLEET, MOVE, TOP_COOKIES, serve_data};
pub use latest_backup::{BACKUP, BackupOrder, BackupState, LatestBackup};
pub use listener::{AdminState, serve};
pub use log::{LOG, LogLine, LoggedRequest, LoggedStep};
pub use move_store::MoveRequest;
pub use rows::{EVERY_MAX, EVERY_MIN, ListedRow, Listing, RowsRequest};
pub use sessions::{
    ExportedItem, ExportedSession, ExportedView, LISTED_MAX, ListedSession, Removed, SessionExport,
    SessionFilter, SessionListRequest, SessionsListing,
};
pub use status::{
    ConnectionStatus, MISSES, MemoryStatus, Missed, MissesListing, OriginStatus, RouteStatus,
    STATUS, Status, StatusParts, StoreStatus, Times,
};
pub use top::{TOP_MAX, Top, TopViews};
