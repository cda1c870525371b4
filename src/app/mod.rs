//! The composition root: turns a plan into a running proxy, and shuts it down in order.
//!
//! Only this module sees the whole plan and names the concrete store. It opens everything first, so that
//! errors are reported before the first client connects. `live_config` is what a reload swaps,
//! `shared_state` what outlives it; `store`, `admin`, `sessions` and the others each read their part of
//! the plan.

mod access_log;
mod acme;
mod admin;
mod admin_sockets;
mod call_host;
mod certificate_parts;
mod connect_check;
mod demo;
mod drain;
pub mod dry_run;
mod ends;
mod files;
mod fleet;
mod gauges;
mod hand_over;
mod handed;
mod hints;
mod jobs;
mod line;
mod listeners;
mod live_config;
mod memory_parts;
mod migrate_store;
mod origins;
mod outdated;
mod page_memory;
mod parts;
mod possible_reasons;
mod process;
mod program;
mod receiver;
mod reload;
mod row_tasks;
mod rows;
mod rule_test;
mod runtime;
mod service_manager;
mod sessions;
mod shared_state;
mod signals;
mod start_error;
mod store;
mod store_backup;
mod store_passage;
mod successor;
mod successor_process;
mod tls;
mod traces;
mod warm;
mod warm_start;
mod webhook;
mod worker;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteroom_config::LoadedPlan;
use tokio::runtime::LocalRuntime;

use certificate_parts::CertificateParts;
pub use connect_check::{ConnectFinding, ConnectResult, connect_check};
pub use demo::{Demo, DemoError};
use listeners::Listeners;
pub use migrate_store::{MigrationReport, StoreMigrationError, migrate_store};
use process::{OpenParts, Process};
pub use program::Program;
pub use rule_test::{CaseResult, Mismatch, RuleTestError, case_reasons, run_cases};
use signals::Signals;
pub use start_error::StartError;
pub use store::StorePlace;
pub use store_backup::{StoreBackupError, back_up_store, restore_store, verify_store};
pub use warm::{WarmError, WarmFailure, WarmOrder, WarmReport, warm};

/// A proxy with everything open, ready to run.
#[derive(Debug)]
pub struct Application {
    parts: OpenParts,
    log: access_log::RunningAccessLog,
    runtime: LocalRuntime,
}

impl Application {
    /// Opens listeners, log and store.
    ///
    /// # Errors
    /// If one of them cannot be opened; the others are closed again.
    pub fn open(plan: impl Into<LoadedPlan>) -> Result<Self, StartError> {
        Self::open_after(None, plan.into())
    }

    /// Takes the listeners over from the running proxy, which serves until this one does. It is found at the `socket`, or
    /// at that of the plan; where none listens, it is as [`Self::open`].
    ///
    /// # Errors
    /// If that proxy does not agree, or something else cannot be opened. It serves on.
    pub fn take_over(
        plan: impl Into<LoadedPlan>,
        socket: Option<PathBuf>,
    ) -> Result<Self, StartError> {
        let loaded: LoadedPlan = plan.into();
        let socket = socket.or_else(|| loaded.plan.admin.socket.clone());
        let socket = socket.ok_or(StartError::NoSocket)?;
        Self::open_after(Some(&socket), loaded)
    }

    fn open_after(socket: Option<&Path>, loaded: LoadedPlan) -> Result<Self, StartError> {
        let plan = &loaded.plan;
        files::allow(plan.limits.connections);
        let runtime = runtime::runtime()?;
        // From here on, a signal ends the process cleanly, also while it starts.
        let signals = runtime.block_on(async { Signals::new() })?;
        let greeted = match socket {
            Some(socket) => runtime.block_on(successor::greet(socket, plan))?,
            None => None,
        };
        let (mut predecessor, handed) = greeted.unzip();
        let mut handed = handed.unwrap_or_default();
        handed.inherit(&plan.listen);
        let certificates = CertificateParts::default();
        certificates.board.expect(acme::prepare(plan, false)?);
        let mut listeners =
            Listeners::open(&plan.listen, plan.threads, &certificates, &mut handed)?;
        if predecessor.is_some() {
            listeners.reserve()?;
        }
        let admin = admin::open_listener(plan.admin.address, &mut handed)?;
        let mut open_rest = || {
            let log = access_log::start(&plan.log)?;
            Ok::<_, StartError>((log, admin::open_socket(plan, &mut handed)))
        };
        let giver = predecessor.as_mut().filter(|predecessor| predecessor.hands_over_store());
        let (store, (log, socket)) = match giver {
            None => (runtime.block_on(store::open(plan))?, open_rest()?),
            Some(giver) => {
                // The store comes last: requests wait for it meanwhile.
                let rest = open_rest()?;
                (runtime.block_on(giver.take_store(plan))?, rest)
            }
        };
        let (metrics, places) = (Arc::default(), Vec::new());
        let parts = OpenParts {
            loaded,
            listeners,
            admin,
            socket,
            signals,
            store,
            metrics,
            predecessor,
            handed,
            places,
            certificates,
            program: None,
        };
        Ok(Self { parts, log, runtime })
    }

    /// The same, with the program that it starts as its successor when an operator wants an upgrade.
    #[must_use]
    pub fn with_program(mut self, program: Program) -> Self {
        self.parts.program = Some(program);
        self
    }

    /// The TCP addresses of the listeners; a port 0 in the plan has become a real one.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.parts.listeners.addresses()
    }

    /// Whether the listener at one of [`Self::addresses`] serves https.
    fn is_secured(&self, address: SocketAddr) -> bool {
        self.parts.listeners.is_secured(address)
    }

    /// The Unix sockets opened for visitors.
    fn sockets(&self) -> Vec<PathBuf> {
        self.parts.listeners.sockets()
    }

    /// Where everything is, a line each.
    fn addresses_in_words(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for address in self.addresses() {
            let scheme = if self.is_secured(address) { "https" } else { "http" };
            lines.push(format!("visitors are served at {scheme}://{address}"));
        }
        lines.extend(
            self.sockets()
                .iter()
                .map(|path| format!("visitors are served at unix:{}", path.display())),
        );
        let urls: Vec<_> =
            self.parts.loaded.plan.origin.urls().iter().map(ToString::to_string).collect();
        lines.push(format!("the app is at {}", urls.join(", ")));
        lines.extend(
            self.admin_address()
                .map(|address| format!("health and metrics are at http://{address}")),
        );
        lines
    }

    /// The address for operators.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.parts.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Whether the socket of the data commands is open.
    fn has_socket(&self) -> bool {
        self.parts.socket.is_some()
    }

    /// Serves until TERM or INT, then drains: after TERM, connections are accepted for `drain_delay` while `/readyz`
    /// says 503; then listeners close, open requests finish within `drain_timeout`, visits are written, and the store
    /// is closed. It drains also when another process has taken over.
    ///
    /// HUP and the command to reload apply the plan that `again` reads, all of it or nothing, and reopen the access log.
    /// If `again` fails, it logs the problems itself.
    ///
    /// # Errors
    /// If the system refuses a thread or a signal handler, or the process that this one takes over from serves on.
    pub fn run(
        mut self,
        again: impl Fn() -> Result<LoadedPlan, Vec<String>>,
    ) -> Result<(), StartError> {
        self.parts.places = self.addresses_in_words();
        let Self { parts, log, runtime } = self;
        let store = parts.store.clone();
        let writer = log.as_ref().map(|(log, _)| Arc::clone(log));
        let process = runtime.block_on(async { Process::begin(parts, writer) })?;
        let served = runtime.block_on(process.run(again));
        runtime.block_on(store.close());
        runtime.block_on(access_log::end(log));
        tracing::info!("ended");
        served
    }
}
