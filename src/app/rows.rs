//! From a plan's `[[rows]]` to the tasks that refresh them, and to the socket that schedules them.

use std::rc::Rc;
use std::sync::Arc;

use ::http::HeaderValue;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::parts::Shared;
use super::turn::Turn;
use super::worker::{dry_room, origin_settings};
use crate::admin::{self, Clerk, Post};
use crate::config::Plan;
use crate::metrics::Sheet;
use crate::origin::Origin;
use crate::row::Names;
use crate::socket::Socket;
use crate::store::AnyStore;
use crate::task::{self, CacheRows, OriginRows, RowPlace, RowSecret};

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
        store: lane.clone(),
        names: names(plan),
        memo: Arc::clone(&shared.rows),
        every: plan.rows.iter().map(|rows| rows.every).collect(),
        purger: Arc::clone(&turn.purger),
        room: dry_room(turn, shared, lane),
    })
}

/// Starts the refreshing on this thread's runtime; nothing where there are no `[[rows]]`.
pub(super) fn start(
    plan: &Plan,
    sheet: &Arc<Sheet>,
    lane: &AnyStore,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    if plan.rows.is_empty() {
        return None;
    }
    let source = source(plan, Origin::new(origin_settings(&plan.origin), Arc::clone(sheet)));
    let rows = CacheRows::new(lane.clone(), source, Arc::clone(sheet));
    Some(tokio::task::spawn_local(task::drive(rows, Arc::clone(sheet), stop.clone())))
}

fn source(plan: &Plan, origin: Rc<Origin>) -> OriginRows {
    let settings = &plan.origin;
    let authority = format!("{}:{}", settings.url.host, settings.url.port);
    let host = settings.host.as_ref().or_else(|| settings.hosts.first()).unwrap_or(&authority);
    let places = plan.rows.iter().map(|rows| {
        let (before, behind) = rows.path.split_once("{row}").unwrap_or((&rows.path, ""));
        RowPlace { before: before.to_owned(), behind: behind.to_owned(), scheme: rows.scheme }
    });
    let secret = settings.secret.as_ref();
    OriginRows {
        origin,
        names: names(plan),
        places: places.collect(),
        // A host of the plan is a field value.
        host: HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("localhost")),
        sessions: settings.sessions,
        secret: secret.map(|secret| RowSecret(secret.expose().as_bytes().to_vec())),
    }
}
