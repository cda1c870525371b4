//! Accepting connections, with a pause when the system runs out of files.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_http::peer::Peer;
use anteroom_telemetry::metrics::Count;
use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::task::coop::unconstrained;
use tokio_util::sync::CancellationToken;

use super::connection::{self, Arrival};
use super::context::ConnectionContext;
use super::listen::{BACKLOG, ConnectionRules, ThreadListener};
use super::stream::{ClientStream, StreamListener};

/// How long to wait when accepting fails (out of file descriptors, mostly).
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);

/// Where a thread accepts connections, on its runtime.
#[derive(Debug)]
pub struct Entrance {
    listener: StreamListener,
    terms: Arc<ArcSwap<ConnectionRules>>,
    closed: CancellationToken,
}

impl Entrance {
    /// Puts a listener onto this thread's runtime. Nothing is accepted before [`serve`], which cannot fail.
    ///
    /// # Errors
    /// If the system does not tell the runtime of connections there.
    pub fn new(listener: ThreadListener) -> io::Result<Self> {
        let ThreadListener { listener, terms, closed } = listener;
        Ok(Self { listener: StreamListener::new(listener)?, terms, closed })
    }
}

/// Accepts at `entrance` until the drain; each connection is served in its own task.
pub async fn serve(entrance: Entrance, context: Rc<ConnectionContext>) {
    let Entrance { listener, terms, closed } = entrance;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = context.drain.cancelled() => return accept_backlog(&listener, &terms, &context),
            () = closed.cancelled() => return accept_backlog(&listener, &terms, &context),
        };
        match accepted {
            Ok((socket, peer)) => admit(Arrival::new(socket, peer, &terms), &context),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_BACK_OFF).await;
            }
        }
    }
}

/// Closing a listener would reset the connections in its queue, so they are accepted first.
fn accept_backlog(
    listener: &StreamListener,
    terms: &ArcSwap<ConnectionRules>,
    context: &Rc<ConnectionContext>,
) {
    // The count is bounded, because clients may keep connecting.
    for (socket, peer) in waiting(listener).take(usize::from(BACKLOG) + 1) {
        admit(Arrival::new(socket, peer, terms), context);
    }
}

/// The connections in the queue.
fn waiting(listener: &StreamListener) -> impl Iterator<Item = (ClientStream, Peer)> {
    // A task's budget would end before a long queue does.
    let next = || unconstrained(listener.accept()).now_or_never()?.ok();
    std::iter::from_fn(next)
}

/// Above a cap the connection is closed at once: a response would cost what the cap protects.
fn admit(arrival: Arrival, context: &Rc<ConnectionContext>) {
    context.thread_metrics.count(Count::Accepted);
    // A client behind a load balancer is checked when the load balancer has announced its address.
    if !arrival.is_from_balancer() && !context.inside.worker().settings.may_connect(arrival.peer) {
        return context.thread_metrics.count(Count::ConnectionsDenied);
    }
    let place = context.inside.enter().and_then(|mut place| {
        // A client behind a load balancer is counted after the PROXY header.
        (arrival.is_from_balancer() || place.count_for(arrival.peer)).then_some(place)
    });
    let Some(place) = place else {
        context.thread_metrics.count(Count::ConnectionsRefused);
        return;
    };
    let context = Rc::clone(context);
    let open = context.thread_metrics.connected();
    context.connections.clone().spawn_local(async move {
        let _open = open;
        connection::run(arrival, place, &context).await;
    });
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::serve::Listener;

    #[test]
    fn a_listener_that_the_runtime_cannot_watch_is_no_entrance() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _entered = runtime.enter();
        let entrance = |listener: TcpListener| {
            listener.set_nonblocking(true).unwrap();
            let terms = Arc::new(ArcSwap::from_pointee(ConnectionRules::default()));
            let (listener, closed) = (Listener::Tcp(listener), CancellationToken::new());
            Entrance::new(ThreadListener { listener, terms, closed })
        };
        assert!(entrance(TcpListener::bind("127.0.0.1:0").unwrap()).is_ok());
        // The system tells of no events at a file on a disk.
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(entrance(TcpListener::from(file)).is_err());
    }

    #[test]
    fn waiting_connections_are_accepted_up_to_the_free_places() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            socket.set_nonblocking(true).unwrap();
            let listener = StreamListener::new(Listener::Tcp(socket)).unwrap();
            let come = || std::net::TcpStream::connect(address).unwrap();
            let _clients: Vec<_> = (0..6).map(|_| come()).collect();
            let _first = listener.accept().await.unwrap();
            assert_eq!(waiting(&listener).take(3).count(), 3);
            assert_eq!(waiting(&listener).count(), 2);
        });
    }
}
