//! The interface for operators. `listener` serves health and metrics, never on the public address.
//! The socket of the data commands has `client` at one end, and `commands` at the other, which runs
//! `rows`, `top`, `purge`, `explain` and `sessions`. With the token the listener runs the last
//! three, too, and shows the cookie counts.

mod client;
mod commands;
mod explain;
mod limits;
mod listener;
mod purge;
mod rows;
mod sessions;
mod top;

pub use client::{ClientError, send_command};
pub use commands::{AdminHandle, AdminToken, Commands, TOP_COOKIES, serve_data};
pub use listener::{AdminState, serve};
pub use rows::{EVERY_MAX, EVERY_MIN, ListedRow, Listing, RowsRequest};
pub use sessions::{
    ExportedItem, ExportedSession, ExportedView, LISTED_MAX, ListedSession, Removed, SessionExport,
    SessionFilter, SessionListRequest, SessionsListing,
};
pub use top::{TOP_MAX, Top, TopViews};
