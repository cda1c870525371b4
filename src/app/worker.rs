//! A worker: one thread with its own runtime, listeners, origin connections and store lane.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::origin::origin_settings;
use super::parts::Shared;
use super::{StartError, runtime};
use crate::config::{Cache, Plan};
use crate::fill::Filler;
use crate::log::Pen;
use crate::metrics::Sheet;
use crate::origin::{self, Origin};
use crate::page::verdict::Policy;
use crate::request::Room;
use crate::row::Reader;
use crate::serve::io::Deadlines;
use crate::serve::{Door, Entrance, Settings, serve};
use crate::store::{AnyStore, OpenStore};

/// How often the end of the workers is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// How long visitors wait for the store when the proxy starts.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// What one worker is made of.
struct Kit {
    shared: Arc<Shared>,
    store: OpenStore,
    entrances: Vec<Entrance>,
    pen: Option<Arc<Pen>>,
    origin: origin::Settings,
    policy: Policy,
    connection: Settings,
    drain: CancellationToken,
    drain_timeout: Duration,
}

/// Starts a worker at `entrances`.
pub(super) fn start(
    plan: &Plan,
    shared: &Arc<Shared>,
    store: &OpenStore,
    entrances: Vec<Entrance>,
    pen: Option<Arc<Pen>>,
    drain: CancellationToken,
) -> Result<JoinHandle<()>, StartError> {
    let refused = |what| move |source| StartError::System { what, source };
    let origin = origin_settings(&plan.origin)?;
    let policy = policy(&plan.cache);
    let limits = &plan.limits;
    let connection = Settings {
        deadlines: Deadlines {
            head: limits.head_timeout,
            idle: limits.idle_timeout,
            stall: limits.stall_timeout,
        },
        request_head: limits.request_head,
    };
    let (shared, store, drain_timeout) = (Arc::clone(shared), store.clone(), limits.drain_timeout);
    std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "a worker did not start"),
            };
            runtime.block_on(async {
                let kit = Kit {
                    shared,
                    store,
                    entrances,
                    pen,
                    origin,
                    policy,
                    connection,
                    drain,
                    drain_timeout,
                };
                work(kit).await;
            });
        })
        .map_err(refused("a thread"))
}

async fn work(kit: Kit) {
    let Kit { shared, store, entrances, pen, .. } = kit;
    let sheet = shared.metrics.sheet();
    let origin = Origin::new(kit.origin, Arc::clone(&sheet));
    let room = room(&shared, store.lane(), origin, kit.policy, (Arc::clone(&sheet), pen));
    // The first visitors shall be recognised, too; but nobody waits for a store that is away.
    let ready = async {
        room.store.connected().await;
        room.pages.purged.known().await;
    };
    if tokio::time::timeout(CONNECT_PATIENCE, ready).await.is_err() {
        tracing::warn!("the store cannot be reached yet; serving without it");
    }
    let connections = TaskTracker::new();
    let door = Rc::new(Door {
        caps: Arc::clone(&shared.caps),
        settings: kit.connection,
        sheet,
        drain: kit.drain,
        connections: connections.clone(),
    });
    let accepting: Vec<_> = entrances
        .into_iter()
        .map(|entrance| {
            tokio::task::spawn_local(serve(entrance, Rc::clone(&door), Rc::clone(&room)))
        })
        .collect();
    for listener in accepting {
        if let Err(error) = listener.await {
            tracing::error!(%error, "a listener failed");
        }
    }
    connections.close();
    let ended = async {
        connections.wait().await;
        room.left.ended().await;
    };
    if tokio::time::timeout(kit.drain_timeout, ended).await.is_err() {
        tracing::warn!(open = connections.len(), "connections were cut at the drain timeout");
    }
}

/// All that a thread needs to answer requests.
fn room(
    shared: &Shared,
    lane: AnyStore,
    origin: Rc<Origin>,
    policy: Policy,
    (sheet, pen): (Arc<Sheet>, Option<Arc<Pen>>),
) -> Rc<Room> {
    let filler = Rc::new(Filler {
        pages: Arc::clone(&shared.pages),
        origin: Rc::clone(&origin),
        store: lane.clone(),
        policy,
        sheet: Arc::clone(&sheet),
        coming_late: Cell::default(),
    });
    Rc::new(Room {
        settings: Arc::clone(&shared.settings),
        pages: Arc::clone(&shared.pages),
        coder: Arc::clone(&shared.coder),
        sessions: Arc::clone(&shared.sessions),
        visits: Arc::clone(&shared.visits),
        ranks: Arc::clone(&shared.ranks),
        rows: Reader::new(Arc::clone(&shared.rows)),
        store: lane,
        origin,
        filler,
        sheet,
        pen,
        left: Rc::default(),
    })
}

/// A room in which no request is answered, but told of. What is counted there nobody reads.
pub(super) fn dry_room(
    plan: &Plan,
    shared: &Shared,
    lane: &AnyStore,
) -> Result<Rc<Room>, StartError> {
    let sheet = Arc::<Sheet>::default();
    let origin = Origin::new(origin_settings(&plan.origin)?, Arc::clone(&sheet));
    Ok(room(shared, lane.clone(), origin, policy(&plan.cache), (sheet, None)))
}

fn policy(cache: &Cache) -> Policy {
    Policy {
        default_ttl: cache.default_ttl,
        stale_while_revalidate: cache.stale_while_revalidate,
        stale_if_error: cache.stale_if_error,
        static_for_all: cache.static_for_all,
        max_object: cache.max_object,
        client_directives: cache.client_directives,
    }
}

/// Waits for the workers to end.
pub(super) async fn join(workers: Vec<JoinHandle<()>>) {
    while !workers.iter().all(JoinHandle::is_finished) {
        tokio::time::sleep(LOOK).await;
    }
    for worker in workers {
        if worker.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}
