//! The origins with their servers, as the proxy sees them.

use std::collections::BTreeMap;

use anteroom_origin::ServerStanding;
use anteroom_policy::priority::RequestClass;
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
    /// The same by class.
    waiting_by_class: BTreeMap<&'static str, usize>,
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
    /// Requests that it works on. 0 for an only server without `max_connections` and with `overload = "off"`, whose requests
    /// are not counted.
    busy: u32,
    /// The same by class.
    busy_by_class: BTreeMap<&'static str, u32>,
    /// How many requests it may work on before strangers wait, if that is limited.
    limit: Option<u32>,
    /// Whether it is found to have a queue because of what it is asked.
    has_queue: bool,
    /// Whether strangers wait because of that.
    holds_back: bool,
}

fn by_class<T: Copy>(counts: [T; RequestClass::ALL.len()]) -> BTreeMap<&'static str, T> {
    RequestClass::ALL.iter().map(|class| class.as_str()).zip(counts).collect()
}

impl Commands {
    pub(super) fn list_origins(&self) -> OriginsReport {
        let server = |server: ServerStanding<'_>| ListedServer {
            address: server.name.to_owned(),
            up: server.is_up,
            weight: server.weight,
            busy: server.busy,
            busy_by_class: by_class(server.by_class),
            limit: server.limit,
            has_queue: server.has_queue,
            holds_back: server.holds_back,
        };
        let origins = self.origins.iter().map(|list| ListedOrigin {
            name: list.name().to_owned(),
            waiting: list.waiting(),
            waiting_by_class: by_class(list.waiting_by_class()),
            servers: list.standings().into_iter().map(server).collect(),
        });
        OriginsReport { origins: origins.collect() }
    }
}
