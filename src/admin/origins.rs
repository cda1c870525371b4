//! The origins with their servers, as the proxy sees them.

use anteroom_origin::ServerStanding;
use serde::Serialize;

use super::commands::Commands;

/// Every origin.
#[derive(Debug, Serialize)]
pub(super) struct OriginsReport {
    origins: Vec<ListedOrigin>,
}

/// An origin.
#[derive(Debug, Serialize)]
struct ListedOrigin {
    /// `origin`, or the name of `[origins.NAME]`.
    name: String,
    /// Requests that wait for a server.
    waiting: usize,
    servers: Vec<ListedServer>,
}

/// A server of an origin.
#[derive(Debug, Serialize)]
struct ListedServer {
    address: String,
    /// Whether it is asked.
    up: bool,
    /// Its share of the requests, beside the weights of the others.
    weight: u32,
    /// Requests that it works on. 0 for an only server without `max_connections`, whose requests are not counted.
    busy: u32,
}

impl Commands {
    pub(super) fn list_origins(&self) -> OriginsReport {
        let server = |ServerStanding { name, is_up, weight, busy }: ServerStanding<'_>| {
            ListedServer { address: name.to_owned(), up: is_up, weight, busy }
        };
        let origins = self.origins.iter().map(|list| ListedOrigin {
            name: list.name().to_owned(),
            waiting: list.waiting(),
            servers: list.standings().into_iter().map(server).collect(),
        });
        OriginsReport { origins: origins.collect() }
    }
}
