//! A connection of an operator, and how long it may last.

use std::convert::Infallible;
use std::pin::pin;

use ::http::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioTimer;

use super::limits::{CONNECTION_TIME, HEAD_TIME, LAST_RESPONSE_TIME};
use super::reply::AdminResponse;

/// Serves a connection for its time. What is under way then still ends as it should: a stream of figures may have
/// begun on a connection that was kept alive for long, and a browser takes one that is cut for an error.
pub(super) async fn serve<I, S>(io: I, service: S)
where
    I: Read + Write + Unpin,
    S: Service<Request<Incoming>, Response = AdminResponse, Error = Infallible>,
{
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .serve_connection(io, service)
    );
    let served = tokio::select! {
        served = connection.as_mut() => Ok(served),
        () = tokio::time::sleep(CONNECTION_TIME) => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(LAST_RESPONSE_TIME, connection).await
        }
    };
    match served {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an administration connection broke"),
        Err(_) => tracing::debug!("an administration connection timed out"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::http::StatusCode;
    use bytes::Bytes;
    use futures_util::stream;
    use http_body_util::{BodyExt as _, StreamBody};
    use hyper::body::Frame;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::time::sleep;

    use super::*;
    use crate::admin::reply::content;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// A body that takes so many seconds.
    fn slow(seconds: u64) -> AdminResponse {
        let parts = stream::unfold(0, move |part| async move {
            sleep(Duration::from_secs(1)).await;
            let frame = Ok::<_, Infallible>(Frame::data(Bytes::from_static(b".")));
            (part < seconds).then_some((frame, part + 1))
        });
        let mut response = content(StatusCode::OK, "text/plain", "");
        *response.body_mut() = StreamBody::new(parts).boxed_unsync();
        response
    }

    fn connected(seconds: u64) -> (DuplexStream, impl Future<Output = ()>) {
        let (client, server) = tokio::io::duplex(1 << 16);
        let service = service_fn(move |_| async move { Ok::<_, Infallible>(slow(seconds)) });
        (client, serve(TokioIo::new(server), service))
    }

    /// What comes on a connection that is used at its start and then again, until its end.
    async fn second_answer(after: u64, seconds: u64) -> Vec<u8> {
        let (mut client, served) = connected(seconds);
        let asks = async move {
            client.write_all(GET).await.unwrap();
            sleep(Duration::from_secs(after)).await;
            let mut first = [0; 1 << 12];
            let _ = client.read(&mut first).await.unwrap();
            client.write_all(GET).await.unwrap();
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.unwrap();
            all
        };
        tokio::join!(served, asks).1
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_begins_late_ends_as_it_should() {
        let answer = second_answer(9, 50).await;
        let end = b"0\r\n\r\n";
        assert!(answer.ends_with(end), "{}", String::from_utf8_lossy(&answer));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_an_end_has_its_time() {
        let (mut client, served) = connected(u64::MAX);
        let begun = tokio::time::Instant::now();
        client.write_all(GET).await.unwrap();
        served.await;
        assert_eq!(begun.elapsed(), CONNECTION_TIME + LAST_RESPONSE_TIME);
    }
}
