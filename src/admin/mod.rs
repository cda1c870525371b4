//! What operators use. `listener` tells health and metrics, never on the public address. The socket of the
//! data commands has `client` at one end, and at the other `commands`, which carries out what `rows`,
//! `top`, `purge`, `explain` and `sessions` ask for. A request with the token may ask for the last three at
//! the listener, too, and for what was counted of cookies.

mod client;
mod commands;
mod explain;
mod limits;
mod listener;
mod purge;
mod rows;
mod sessions;
mod top;

pub use client::{CallError, call};
pub use commands::{Clerk, Post, TOP_COOKIES, Token, serve_data};
pub use listener::{Desk, serve};
pub use rows::{EVERY_MAX, EVERY_MIN, ListedRow, Listing, Order};
pub use sessions::{
    HeldItem, HeldSession, HeldView, LISTED_MAX, ListedSession, Removed, SessionsHeld,
    SessionsListing, SessionsMeant, SessionsWanted,
};
pub use top::{TOP_MAX, Top, Views};
