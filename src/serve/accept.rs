//! Accepting: who is let in, and patience when the system runs out of files.

use std::rc::Rc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::task::coop::unconstrained;

use super::connection::{self, Arrival};
use super::door::Door;
use super::listen::{BACKLOG, Entrance, Terms};
use super::stream::{Listener, Stream};
use crate::http::peer::Peer;
use crate::telemetry::metrics::Count;

/// How long to wait when accepting fails (out of file descriptors, mostly).
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);

/// Accepts at `entrance` until told to drain; each connection is served in a task of its own.
pub async fn serve(entrance: Entrance, door: Rc<Door>) {
    let Entrance { listener, terms, closed } = entrance;
    let listener = match Listener::new(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a worker cannot listen"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.drain.cancelled() => return,
            () = closed.cancelled() => return let_in_the_rest(&listener, &terms, &door),
        };
        match accepted {
            Ok((socket, peer)) => admit(Arrival::new(socket, peer, &terms), &door),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_BACK_OFF).await;
            }
        }
    }
}

/// Who stands in the queue of a listener that closes would be turned away by a reset.
fn let_in_the_rest(listener: &Listener, terms: &ArcSwap<Terms>, door: &Rc<Door>) {
    // No more than were in it: whoever goes on connecting would keep us here.
    for (socket, peer) in waiting(listener).take(usize::from(BACKLOG) + 1) {
        admit(Arrival::new(socket, peer, terms), door);
    }
}

/// Those who stand in the queue.
fn waiting(listener: &Listener) -> impl Iterator<Item = (Stream, Peer)> {
    // A task's budget would end before a long queue does.
    let next = || unconstrained(listener.accept()).now_or_never()?.ok();
    std::iter::from_fn(next)
}

/// Over a cap the connection is closed at once: an answer would cost what the cap protects.
fn admit(arrival: Arrival, door: &Rc<Door>) {
    door.sheet.count(Count::Accepted);
    // Who comes through a load balancer is looked at when that has told who it is.
    if !arrival.is_from_balancer() && !door.inside.room().settings.may_connect(arrival.peer) {
        return door.sheet.count(Count::ConnectionsDenied);
    }
    let place = door.caps.enter().and_then(|mut place| {
        // Who comes through a load balancer is counted when that has told who it is.
        (arrival.is_from_balancer() || place.count_for(arrival.peer)).then_some(place)
    });
    let Some(place) = place else {
        door.sheet.count(Count::ConnectionsRefused);
        return;
    };
    let door = Rc::clone(door);
    door.connections.clone().spawn_local(async move {
        connection::run(arrival, place, &door).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_who_wait_so_many_are_let_in_as_there_are_places() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            socket.set_nonblocking(true).unwrap();
            let listener = Listener::new(crate::serve::Listener::Tcp(socket)).unwrap();
            let come = || std::net::TcpStream::connect(address).unwrap();
            let _clients: Vec<_> = (0..6).map(|_| come()).collect();
            let _first = listener.accept().await.unwrap();
            assert_eq!(waiting(&listener).take(3).count(), 3);
            assert_eq!(waiting(&listener).count(), 2);
        });
    }
}
