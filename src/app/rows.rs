//! From a plan's `[[rows]]` to the tasks that refresh them, and to the socket that schedules them.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::origins;
use super::parts::{Shared, cookie_kinds};
use super::turn::Turn;
use super::worker::dry_room;
use crate::admin::{self, Clerk, Post};
use crate::config::Plan;
use crate::origin::Upstreams;
use crate::row::Names;
use crate::serve::socket::Socket;
use crate::store::AnyStore;
use crate::task::{self, CacheRows, OriginRows, RowOrigin, RowPlace, RowSecret};
use crate::telemetry::metrics::Sheet;

/// The names of all rows.
pub(super) fn names(plan: &Plan) -> Names {
    Names::new(plan.rows.iter().map(|rows| rows.name.as_str()))
}

/// Opens the socket of the data commands. Visitors are served all the same without it.
pub(super) fn open_socket(plan: &Plan) -> Option<Socket> {
    let path = plan.admin.socket.as_deref()?;
    match Socket::open_private(path) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "there is no socket for data commands");
            None
        }
    }
}

/// Serves the data commands on this thread's runtime.
pub(super) fn serve_socket(
    socket: Option<Socket>,
    post: &Rc<Post>,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    socket.map(|socket| {
        tokio::task::spawn_local(admin::serve_data(socket, Rc::clone(post), stop.clone()))
    })
}

/// Who carries out the data commands.
pub(super) fn clerk(plan: &Plan, turn: &Turn, shared: &Shared, lane: &AnyStore) -> Rc<Clerk> {
    Rc::new(Clerk {
        store: lane.background(),
        sessions: Arc::clone(&shared.sessions),
        names: names(plan),
        memo: Arc::clone(&shared.rows),
        every: plan.rows.iter().map(|rows| rows.every).collect(),
        purger: Arc::clone(&turn.purger),
        room: dry_room(turn, shared, lane),
        kinds: cookie_kinds(plan),
        metrics: Arc::clone(&shared.metrics),
    })
}

/// Starts the refreshing on this thread's runtime; nothing where there are no `[[rows]]`.
pub(super) fn start(
    plan: &Plan,
    shared: &Shared,
    sheet: &Arc<Sheet>,
    lane: &AnyStore,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    if plan.rows.is_empty() {
        return None;
    }
    let source = source(plan, &shared.origins.load().reach(sheet));
    let rows = CacheRows::new(lane.background(), source, Arc::clone(sheet));
    Some(tokio::task::spawn_local(task::drive(rows, Arc::clone(sheet), stop.clone())))
}

fn source(plan: &Plan, upstreams: &Upstreams) -> OriginRows {
    let places = plan.rows.iter().map(|rows| {
        let (before, behind) = rows.path.split_once("{row}").unwrap_or((&rows.path, ""));
        RowPlace {
            before: before.to_owned(),
            behind: behind.to_owned(),
            scheme: rows.scheme,
            origin: row_origin(plan, upstreams, origins::place(plan, rows.origin.as_deref())),
        }
    });
    OriginRows { names: names(plan), places: places.collect() }
}

fn row_origin(plan: &Plan, upstreams: &Upstreams, place: usize) -> RowOrigin {
    let settings = origins::named(plan).nth(place).map_or(&plan.origin, |(_, origin)| origin);
    let secret = settings.secret.as_ref();
    RowOrigin {
        upstream: Rc::clone(&upstreams[place]),
        host: origins::host(settings, &plan.origin.hosts),
        sessions: settings.sessions,
        secret: secret.map(|secret| RowSecret(secret.expose().as_bytes().to_vec())),
    }
}
