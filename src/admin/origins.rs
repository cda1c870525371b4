//! The origins with their servers, as the proxy sees them.

use std::collections::BTreeMap;

use anteroom_origin::ServerStanding;
use anteroom_policy::priority::RequestClass;
use serde::{Deserialize, Serialize};

use super::commands::Commands;

/// Every origin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OriginsReport {
    /// `[origin]`, and then the others.
    pub origins: Vec<ListedOrigin>,
}

/// An origin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedOrigin {
    /// `origin`, or the name of `[origins.NAME]`.
    pub name: String,
    /// Requests that wait for a server.
    pub waiting: usize,
    /// The same by class.
    pub waiting_by_class: BTreeMap<String, usize>,
    /// Its servers.
    pub servers: Vec<ListedServer>,
}

/// A server of an origin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedServer {
    /// Its name.
    pub address: String,
    /// Whether it is asked.
    pub up: bool,
    /// Its share of the requests, beside the weights of the others.
    pub weight: u32,
    /// Requests that it works on. 0 for an only server without `max_connections` and limits of strangers, and with
    /// `overload = "off"`, whose requests are not counted.
    pub busy: u32,
    /// The same by class.
    pub busy_by_class: BTreeMap<String, u32>,
    /// How many requests it may work on before strangers wait, if that is limited.
    pub limit: Option<u32>,
    /// Whether it is found to have a queue because of what it is asked.
    pub has_queue: bool,
    /// Whether strangers wait because of that.
    pub holds_back: bool,
}

fn by_class<T: Copy>(counts: [T; RequestClass::ALL.len()]) -> BTreeMap<String, T> {
    RequestClass::ALL.iter().map(|class| class.as_str().to_owned()).zip(counts).collect()
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
