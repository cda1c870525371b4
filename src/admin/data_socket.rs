//! The socket of the data commands. Whoever the system lets write to it may do everything.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ::http::{Request, StatusCode};
use anteroom_proxy::serve::socket::Socket;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::access::Operator;
use super::endpoints;
use super::handle::AdminHandle;
use super::limits::{ACCEPT_BACK_OFF, CONNECTION_TIME, CONNECTIONS_MAX, HEAD_TIME};
use super::reply::{AdminResponse, refusal};

/// Serves the data commands until `stop`, or until the socket is `left` to a successor.
pub async fn serve_data(
    mut socket: Socket,
    handle: Rc<AdminHandle>,
    left: CancellationToken,
    stop: CancellationToken,
) {
    let listener = socket.listener().and_then(UnixListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "cannot listen on the socket"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = left.cancelled() => return socket.leave_file(),
            () = stop.cancelled() => return,
        };
        let Ok((stream, place)) = accepted else {
            tokio::time::sleep(ACCEPT_BACK_OFF).await;
            continue;
        };
        if !socket.admits(&stream) {
            tracing::warn!("refused a data command of another user");
            continue;
        }
        let handle = Rc::clone(&handle);
        tokio::task::spawn_local(async move {
            let _place = place;
            let streams = Cell::new(false);
            tokio::select! {
                () = converse(stream, handle, &streams) => {}
                () = time_is_up(&streams) => tracing::debug!("a data command timed out"),
            }
        });
    }
}

/// The next connection, once there is a slot for it.
async fn accept(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, place))
}

/// Waits until a connection has had its time. One that streams has no end: its client, or the drain, ends it.
async fn time_is_up(streams: &Cell<bool>) {
    tokio::time::sleep(CONNECTION_TIME).await;
    if streams.get() {
        std::future::pending().await
    }
}

/// Answers commands, and says in `streams` whether the last answer is a stream.
async fn converse(stream: UnixStream, handle: Rc<AdminHandle>, streams: &Cell<bool>) {
    let service = service_fn(move |request| {
        let handle = Rc::clone(&handle);
        async move {
            let response = respond(&handle, request).await;
            streams.set(response.body().size_hint().exact().is_none());
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "the connection of a data command broke");
    }
}

async fn respond(handle: &Rc<AdminHandle>, request: Request<Incoming>) -> AdminResponse {
    let (head, body) = request.into_parts();
    match endpoints::of_socket(&head.method, head.uri.path()) {
        Some(endpoint) => handle.carry_out(&Operator::at_socket(), endpoint, &head, body).await,
        None => refusal(StatusCode::NOT_FOUND, "this proxy does not know this command"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_its_time_unless_it_streams() {
        let has_ended = async |streams: bool| {
            let streams = Cell::new(streams);
            tokio::time::timeout(CONNECTION_TIME * 100, time_is_up(&streams)).await.is_ok()
        };
        assert!(has_ended(false).await);
        assert!(!has_ended(true).await);
    }
}
