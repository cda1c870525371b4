//! A worker: one thread with its own runtime, listeners, origin connections and store lane.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::parts::Shared;
use super::turn::Turn;
use super::{StartError, runtime};
use crate::cache::Pages;
use crate::cache::fill::Filler;
use crate::origin::Upstreams;
use crate::proxy::WorkerContext;
use crate::row::Reader;
use crate::serve::{Door, Entrance, Inside, serve};
use crate::store::{AnyStore, OpenStore};
use crate::telemetry::access_log::Pen;
use crate::telemetry::metrics::Sheet;

/// How often the end of the workers is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// How long visitors wait for the store when the proxy starts.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// What one worker is made of.
struct Kit {
    shared: Arc<Shared>,
    turn: Arc<Turn>,
    store: OpenStore,
    entrances: Vec<Entrance>,
    orders: mpsc::UnboundedReceiver<Order>,
    pen: Option<Arc<Pen>>,
    drain: CancellationToken,
}

/// A worker that runs.
#[derive(Debug)]
pub(super) struct Worker {
    thread: JoinHandle<()>,
    orders: mpsc::UnboundedSender<Order>,
}

/// What a worker is told by a reload.
struct Order {
    turn: Arc<Turn>,
    /// Where it takes connections from now on, too.
    entrances: Vec<Entrance>,
    done: oneshot::Sender<()>,
}

/// Starts a worker at `entrances`.
pub(super) fn start(
    turn: &Arc<Turn>,
    shared: &Arc<Shared>,
    store: &OpenStore,
    entrances: Vec<Entrance>,
    pen: Option<Arc<Pen>>,
    drain: CancellationToken,
) -> Result<Worker, StartError> {
    let refused = |what| move |source| StartError::System { what, source };
    let (shared, turn, store) = (Arc::clone(shared), Arc::clone(turn), store.clone());
    let (tell, orders) = mpsc::unbounded_channel();
    let thread = std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "a worker did not start"),
            };
            runtime.block_on(work(Kit { shared, turn, store, entrances, orders, pen, drain }));
        })
        .map_err(refused("a thread"))?;
    Ok(Worker { thread, orders: tell })
}

/// Tells all workers of the next turn, and returns when requests are answered by it.
pub(super) async fn tell(workers: &[Worker], turn: &Arc<Turn>, entrances: Vec<Vec<Entrance>>) {
    let mut answers = Vec::new();
    for (worker, entrances) in workers.iter().zip(entrances) {
        let (done, answer) = oneshot::channel();
        if worker.orders.send(Order { turn: Arc::clone(turn), entrances, done }).is_ok() {
            answers.push(answer);
        }
    }
    for answer in answers {
        if answer.await.is_err() {
            tracing::error!("a worker did not take the new configuration");
        }
    }
}

async fn work(kit: Kit) {
    let Kit { shared, mut turn, store, entrances, mut orders, pen, drain } = kit;
    let sheet = shared.metrics.sheet();
    let first = room(&shared, &turn, store.lane(), (Arc::clone(&sheet), pen));
    // The first visitors shall be recognised, too; but nobody waits for a store that is away.
    let ready = async {
        first.store.connected().await;
        first.pages.purged.known().await;
    };
    if tokio::time::timeout(CONNECT_PATIENCE, ready).await.is_err() {
        tracing::warn!("the store cannot be reached yet; serving without it");
    }
    let connections = TaskTracker::new();
    let door = Rc::new(Door {
        caps: Arc::clone(&shared.caps),
        sheet,
        drain: drain.clone(),
        connections: connections.clone(),
        inside: Inside::new(Rc::clone(&first), turn.connection),
    });
    let detached = Rc::clone(&first.detached);
    drop(first);
    let mut accepting = JoinSet::new();
    let accept = |entrances: Vec<Entrance>, accepting: &mut JoinSet<()>| {
        for entrance in entrances {
            accepting.spawn_local(serve(entrance, Rc::clone(&door)));
        }
    };
    accept(entrances, &mut accepting);
    loop {
        tokio::select! {
            Some(order) = orders.recv() => {
                let next = next_room(&door.inside.room(), &turn, &order.turn);
                door.inside.change(next, order.turn.connection);
                turn = order.turn;
                accept(order.entrances, &mut accepting);
                if order.done.send(()).is_err() {
                    tracing::debug!("nobody waits any more for a worker's reload");
                }
            }
            Some(ended) = accepting.join_next() => say_failure(&ended),
            () = drain.cancelled() => break,
        }
    }
    while let Some(ended) = accepting.join_next().await {
        say_failure(&ended);
    }
    connections.close();
    let ended = async {
        connections.wait().await;
        detached.ended().await;
    };
    if tokio::time::timeout(turn.drain_timeout, ended).await.is_err() {
        tracing::warn!(open = connections.len(), "connections were cut at the drain timeout");
    }
}

fn say_failure(ended: &Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a listener failed");
    }
}

/// All that a thread needs to answer requests.
fn room(
    shared: &Shared,
    turn: &Turn,
    lane: AnyStore,
    (sheet, pen): (Arc<Sheet>, Option<Arc<Pen>>),
) -> Rc<WorkerContext> {
    let upstreams = turn.origins.reach(&sheet);
    Rc::new(WorkerContext {
        filler: filler(turn, &shared.pages, &upstreams, (lane.clone(), &sheet)),
        settings: Arc::clone(&turn.settings),
        pages: Arc::clone(&shared.pages),
        recompressor: Arc::clone(&turn.coder),
        sessions: Arc::clone(&shared.sessions),
        verified: Arc::clone(&shared.verified),
        visits: Arc::clone(&shared.visits),
        visitor_visits: Arc::clone(&shared.visitor_visits),
        ranks: Arc::clone(&shared.ranks),
        rows: Rc::new(Reader::new(Arc::clone(&shared.rows))),
        store: lane,
        upstreams,
        sheet,
        pen,
        waiting_fragments: Rc::default(),
        detached: Rc::default(),
        tunnels: Arc::clone(&shared.tunnels),
    })
}

fn filler(
    turn: &Turn,
    pages: &Arc<Pages>,
    upstreams: &Upstreams,
    (store, sheet): (AnyStore, &Arc<Sheet>),
) -> Rc<Filler> {
    Rc::new(Filler {
        pages: Arc::clone(pages),
        upstreams: Rc::clone(upstreams),
        store,
        policy: turn.policy,
        sheet: Arc::clone(sheet),
        coming_late: Cell::default(),
        leak_said_at: Cell::default(),
    })
}

/// The room of the next turn. What a thread has beyond its turn stays: its counters, its way to the
/// store, what goes on without clients, and its connections to origins that are still the same.
fn next_room(room: &WorkerContext, old: &Turn, new: &Turn) -> Rc<WorkerContext> {
    let upstreams = new.origins.reach_on(&old.origins, &room.upstreams, &room.sheet);
    Rc::new(WorkerContext {
        settings: Arc::clone(&new.settings),
        recompressor: Arc::clone(&new.coder),
        filler: filler(new, &room.pages, &upstreams, (room.store.clone(), &room.sheet)),
        upstreams,
        ..room.clone()
    })
}

/// A room in which no request is answered, but told of. What is counted there nobody reads.
pub(super) fn dry_room(turn: &Turn, shared: &Shared, lane: &AnyStore) -> Rc<WorkerContext> {
    let sheet = Arc::<Sheet>::default();
    room(shared, turn, lane.clone(), (sheet, None))
}

/// Waits for the workers to end.
pub(super) async fn join(workers: Vec<Worker>) {
    while !workers.iter().all(|worker| worker.thread.is_finished()) {
        tokio::time::sleep(LOOK).await;
    }
    for worker in workers {
        if worker.thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}
