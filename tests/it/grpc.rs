//! Calls of gRPC through the proxy, from end to end: tonic on both sides, and bytes for messages.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::{Stream, StreamExt as _, stream};
use http::uri::PathAndQuery;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::StreamingService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::support::origin::Gate;
use crate::support::proxy::{Proxy, Storage};
use crate::support::upstream::Upstream;
use crate::support::wait_until;

/// Messages are bytes as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buf.remaining();
        Ok(Some(buf.copy_to_bytes(length)))
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// What the origin does with a call, by its path.
#[derive(Clone)]
struct Calls {
    path: String,
    /// Opens when a call that hangs is called off; one that waits waits for it.
    gate: Arc<Gate>,
}

/// Opens its gate when the call is over.
struct Over(Arc<Gate>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl StreamingService<Bytes> for Calls {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Messages>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let (path, gate) = (self.path.clone(), Arc::clone(&self.gate));
        Box::pin(async move {
            let mut messages = request.into_inner();
            let answer: Messages = match path.as_str() {
                "/t.T/Echo" => Box::pin(messages),
                "/t.T/Count" => {
                    let mut count = 0;
                    while messages.message().await?.is_some() {
                        count += 1;
                    }
                    Box::pin(stream::iter([Ok(Bytes::from(count.to_string()))]))
                }
                "/t.T/Three" => {
                    let three = ["one", "two", "three"].map(|word| Ok(Bytes::from(word)));
                    Box::pin(stream::iter(three))
                }
                "/t.T/Breaks" => {
                    let end = Err(Status::data_loss("half of it"));
                    Box::pin(stream::iter([Ok(Bytes::from("half")), end]))
                }
                "/t.T/Hangs" => {
                    let _over = Over(gate);
                    std::future::pending().await
                }
                "/t.T/Waits" => {
                    tokio::task::spawn_blocking(move || gate.pass()).await.unwrap();
                    Box::pin(stream::iter([Ok(Bytes::from("at last"))]))
                }
                "/t.T/Silent" => std::future::pending().await,
                _ => return Err(Status::not_found("no such thing: ä")),
            };
            Ok(Response::new(answer))
        })
    }
}

/// An origin that takes calls.
pub(crate) fn origin(gate: &Arc<Gate>) -> Upstream {
    let gate = Arc::clone(gate);
    Upstream::start(None, move |_, socket| {
        let gate = Arc::clone(&gate);
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let path = request.uri().path().to_owned();
            let calls = Calls { path, gate: Arc::clone(&gate) };
            async move {
                let answer = tonic::server::Grpc::new(Plain).streaming(calls, request).await;
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        Box::pin(async move {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(TokioIo::new(socket), service).await);
        })
    })
}

/// A client of the proxy before such an origin, and what `case` does with it.
fn call<F: Future<Output = ()>>(case: impl FnOnce(tonic::client::Grpc<Channel>, Arc<Gate>) -> F) {
    let called_off = Gate::closed();
    let upstream = origin(&called_off);
    let settings = "origin.http2 = \"always\"";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = format!("http://{}", proxy.address());
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        case(client, called_off).await;
    });
}

fn path(name: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(name)
}

async fn all(answer: Response<Streaming<Bytes>>) -> (Vec<Bytes>, Option<Status>) {
    let mut messages = answer.into_inner();
    let mut came = Vec::new();
    loop {
        match messages.next().await {
            Some(Ok(message)) => came.push(message),
            Some(Err(status)) => return (came, Some(status)),
            None => return (came, None),
        }
    }
}

#[test]
fn calls_of_every_kind_pass() {
    call(|mut client, _| async move {
        let word = Bytes::from("hello");
        let answer = client.unary(Request::new(word.clone()), path("/t.T/Echo"), Plain).await;
        assert_eq!(answer.unwrap().into_inner(), word);

        client.ready().await.unwrap();
        let asked = Request::new(word.clone());
        let answer = client.server_streaming(asked, path("/t.T/Three"), Plain).await.unwrap();
        let (came, end) = all(answer).await;
        assert_eq!((came, end.is_none()), (vec!["one".into(), "two".into(), "three".into()], true));

        client.ready().await.unwrap();
        let words = Request::new(stream::iter(vec![word.clone(); 1_000]));
        let answer = client.client_streaming(words, path("/t.T/Count"), Plain).await.unwrap();
        assert_eq!(answer.into_inner(), "1000");
    });
}

#[test]
fn both_sides_speak_in_turn() {
    call(|mut client, _| async move {
        let (say, said) = mpsc::channel::<Bytes>(1);
        let words = stream::unfold(said, |mut said| async { Some((said.recv().await?, said)) });
        let answer = client.streaming(Request::new(words), path("/t.T/Echo"), Plain).await;
        let mut heard = answer.unwrap().into_inner();
        for nth in 0..100 {
            let word = Bytes::from(format!("word {nth}"));
            say.send(word.clone()).await.unwrap();
            assert_eq!(heard.message().await.unwrap(), Some(word));
        }
        drop(say);
        assert_eq!(heard.message().await.unwrap(), None);
    });
}

#[test]
fn the_status_of_a_call_is_in_its_trailers() {
    call(|mut client, _| async move {
        let asked = Request::new(Bytes::new());
        let status = client.unary(asked, path("/t.T/None"), Plain).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no such thing: ä"));

        client.ready().await.unwrap();
        let asked = Request::new(Bytes::new());
        let answer = client.server_streaming(asked, path("/t.T/Breaks"), Plain).await.unwrap();
        let (came, end) = all(answer).await;
        let end = end.expect("a status");
        assert_eq!((end.code(), end.message()), (Code::DataLoss, "half of it"));
        assert_eq!(came, ["half"]);
    });
}

#[test]
fn a_call_that_takes_too_long_is_called_off() {
    call(|mut client, called_off| async move {
        let mut asked = Request::new(Bytes::new());
        asked.set_timeout(Duration::from_millis(300));
        // The deadline is the client's own; the origin learns of it at once.
        let call = client.unary::<_, Bytes, _>(asked, path("/t.T/Hangs"), Plain);
        let given_up = tokio::time::timeout(Duration::from_millis(300), call).await;
        assert!(given_up.is_err() || given_up.is_ok_and(|answer| answer.is_err()));
        let is_off = move || called_off.is_open();
        tokio::task::spawn_blocking(move || wait_until("it is called off", is_off)).await.unwrap();
    });
}

#[test]
fn a_call_may_wait_for_its_first_message() {
    let gate = Gate::closed();
    let upstream = origin(&gate);
    let settings = "origin.http2 = \"always\"\norigin.first_byte_timeout = \"200ms\"\nthreads = 1";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    let address = format!("http://{}", proxy.address());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let asked = Request::new(Bytes::new());
        let call = client.server_streaming(asked, path("/t.T/Waits"), Plain);
        // Others that came later are given up before.
        let others = tokio::task::spawn_blocking(move || {
            let statuses = [0; 2].map(|_| proxy.get("/t.T/Silent").send().status);
            gate.open();
            (statuses, proxy)
        });
        let (answer, others) = tokio::join!(call, others);
        assert_eq!(others.unwrap().0, [504; 2]);
        let (came, end) = all(answer.unwrap()).await;
        assert_eq!((came, end.is_none()), (vec![Bytes::from("at last")], true));
    });
}

#[test]
fn a_call_that_is_silent_says_nothing_of_its_server() {
    let gate = Gate::closed();
    let (one, other) = (origin(&gate), origin(&gate));
    let settings = format!(
        "origin.http2 = \"always\"\norigin.stream_timeout = \"200ms\"\norigin.fails = 1\n\
         origin.urls = [\"http://{}\", \"http://{}\"]",
        one.address(),
        other.address(),
    );
    let proxy = Proxy::before(one.address(), &Storage::Embedded, &settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = format!("http://{}", proxy.address());
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        for _ in 0..2 {
            client.ready().await.unwrap();
            let asked = Request::new(Bytes::new());
            let call = client.unary::<_, Bytes, _>(asked, path("/t.T/Silent"), Plain);
            assert!(call.await.is_err());
        }
    });
    assert_eq!((one.connections(), other.connections()), (1, 1));
    let page = proxy.admin("/metrics").send().text();
    let standings = page.lines().filter(|line| line.starts_with("anteroom_origin_server_up{"));
    assert!(standings.clone().all(|line| line.ends_with(" 1")), "{page}");
    assert_eq!(standings.count(), 2);
}
