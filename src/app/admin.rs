//! Converts a plan's `[admin]` into the listener for operators, the socket of the data commands, and their
//! implementation.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;

use anteroom_config::{Address, Admin, Plan, Secret, changed_keys, print};
use anteroom_proxy::serve::Listener;
use anteroom_proxy::serve::listen;
use anteroom_proxy::serve::socket::Socket;
use anteroom_proxy::serve::tls::ClientTls;
use anteroom_store::AnyStore;
use tokio::task::JoinHandle;

use super::ends::Ends;
use super::fleet;
use super::handed::HandedSockets;
use super::listeners::Listeners;
use super::live_config::LiveConfig;
use super::parts::cookie_kinds;
use super::rows;
use super::shared_state::SharedState;
use super::start_error::StartError;
use super::store;
use super::worker::dry_worker;
use crate::admin::{
    self, AdminHandle, AdminState, AuditLog, Commands, ConfigReport, MainLoopEntrances, Operator,
    Operators, StatusParts,
};
use crate::take_over::message::Purpose;

/// Opens the listener for operators, or takes the one that was handed over. The default address is a convenience: if it
/// is in use, the proxy serves visitors without it.
pub(super) fn open_listener(
    address: Option<SocketAddr>,
    handed: &mut HandedSockets,
) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let mut taken = handed.take(Purpose::Operators, &Address::Tcp(address));
    if let Some(Listener::Tcp(listener)) = taken.pop() {
        return Ok(Some(listener));
    }
    match listen_at(address) {
        Ok(mut listeners) => Ok(listeners.pop()),
        Err(error) if Admin::default().address == Some(address) => {
            tracing::warn!(%error, "cannot open the listener for health and metrics");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn listen_at(address: SocketAddr) -> Result<Vec<TcpListener>, StartError> {
    listen::open(address, 1).map_err(|source| StartError::Listen {
        address: address.to_string(),
        what: "administration",
        flag: "--admin",
        source,
    })
}

/// Opens the socket of the data commands, or takes the one that was handed over. The proxy also serves visitors without
/// it.
pub(super) fn open_socket(plan: &Plan, handed: &mut HandedSockets) -> Option<Socket> {
    let path = plan.admin.socket.as_deref()?;
    let taken = handed.take_unix(Purpose::Commands, path);
    if taken.is_some() {
        return taken;
    }
    match Socket::open_private(path) {
        Ok(socket) => Some(socket),
        Err(error) => {
            let remedy = socket_remedy(&error);
            tracing::warn!(path = %path.display(), %error, "cannot open the socket for data commands: {remedy}");
            None
        }
    }
}

/// What to do about a socket that cannot be opened.
fn socket_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "commands for this proxy are answered by the process that has it; set [admin] socket to another path"
        }
        _ => "set [admin] socket to a path that this user can write",
    }
}

/// Serves health, metrics and commands on this thread's runtime, if there is a listener for them.
pub(super) fn serve_operators(
    listener: Option<TcpListener>,
    state: AdminState,
    ends: &Ends,
) -> Result<(), StartError> {
    let Some(listener) = listener else { return Ok(()) };
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|source| StartError::System { what: "a listener", source })?;
    let (left, stop) = (ends.left.clone(), ends.stop.clone());
    tokio::task::spawn_local(admin::serve(listener, Rc::new(state), left, stop));
    Ok(())
}

/// Serves the data commands on this thread's runtime.
pub(super) fn serve_socket(
    socket: Option<Socket>,
    admin_handle: &Rc<AdminHandle>,
    ends: &Ends,
) -> Option<JoinHandle<()>> {
    socket.map(|mut socket| {
        socket.own_file();
        let handle = Rc::clone(admin_handle);
        let (left, stop) = (ends.left.clone(), ends.stop.clone());
        tokio::task::spawn_local(admin::serve_data(socket, handle, left, stop))
    })
}

/// What the listener and the socket share.
pub(super) fn handle(
    live: &LiveConfig,
    shared: &SharedState,
    store: &AnyStore,
    listeners: &Listeners,
    audit: AuditLog,
    main_loop: MainLoopEntrances,
) -> Rc<AdminHandle> {
    let commands = commands(live, shared, store, listeners.secured());
    AdminHandle::new(commands, operators(&live.plan), audit, main_loop)
}

/// The implementation of the data commands.
pub(super) fn commands(
    live: &LiveConfig,
    shared: &SharedState,
    store: &AnyStore,
    tls: Vec<(String, Arc<ClientTls>)>,
) -> Rc<Commands> {
    let plan = &live.plan;
    Rc::new(Commands {
        store: store.background(),
        sessions: Arc::clone(&live.sessions),
        names: rows::names(plan),
        rows: Arc::clone(&shared.rows),
        every: plan.rows.iter().map(|rows| rows.every).collect(),
        purger: Arc::clone(&live.purger),
        worker: dry_worker(live, shared, store),
        kinds: cookie_kinds(plan),
        metrics: Arc::clone(&shared.metrics),
        status_parts: StatusParts {
            metrics: Arc::clone(&shared.metrics),
            pages: Arc::clone(&shared.pages),
            connections: Arc::clone(&shared.connections),
            tunnels: Arc::clone(&shared.tunnels),
            store: shared.store.clone(),
            since: shared.since,
            feed: Arc::clone(&shared.feed),
        },
        fleet: Arc::clone(&shared.fleet),
        backup: Arc::clone(&shared.backup),
        entry: fleet::entry(live, shared),
        move_target: store::next(plan).map(|next| next.label()),
        move_advice: store::advice(plan),
        moving: Arc::clone(&shared.moving),
        origins: live.origins.server_lists().cloned().collect(),
        tls,
        ordered: Arc::clone(&shared.certificates.board),
        config: ConfigReport {
            text: print(plan),
            changed: changed_keys(plan),
            warnings: live.warnings.clone(),
        },
        hints: Arc::clone(&shared.hints),
        reloads: Arc::clone(&shared.reloads),
    })
}

/// Those who may send commands over the listener.
pub(super) fn operators(plan: &Plan) -> Operators {
    let all = plan.admin.all_tokens();
    let operator = |(name, role, token): (&str, _, &Secret)| {
        Operator::with_token(name, role, token.expose().as_bytes())
    };
    Operators::new(all.map(operator).collect())
}

/// Starts the log of what operators do.
pub(super) fn start_audit_log(plan: &Plan) -> Result<AuditLog, StartError> {
    AuditLog::start(plan.admin.audit_log.as_deref())
        .map_err(|source| StartError::System { what: "a thread", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_another_process_has_is_not_taken_for_a_wrong_folder() {
        let used = socket_remedy(&io::ErrorKind::AddrInUse.into());
        assert!(used.starts_with("commands for this proxy are answered by"), "{used}");
        let denied = socket_remedy(&io::ErrorKind::PermissionDenied.into());
        assert!(denied.ends_with("a path that this user can write"), "{denied}");
    }
}
