//! A visitor whose browser speaks HTTP/2: another library's client on one connection.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use ::http::{HeaderMap, Method, Request, Uri};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;

use super::client::SITE;
use super::{DEADLINE, wait_until};

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether it came from the cache, by the proxy's word.
    pub fn is_hit(&self) -> bool {
        let status = self.header("cache-status").unwrap_or_default();
        status.split(';').any(|part| part.trim() == "hit")
    }
}

/// A request: a target on [`SITE`] and more fields.
pub fn ask(method: &str, target: &str, fields: &[(&str, &str)]) -> Request<()> {
    let uri: Uri = match target.contains("://") {
        true => target.parse().unwrap(),
        false => format!("http://{SITE}{target}").parse().unwrap(),
    };
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// A connection.
pub struct Http2Client {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
}

impl Http2Client {
    pub fn open(address: SocketAddr) -> Self {
        Self::on(async move { tokio::net::TcpStream::connect(address).await.unwrap() })
    }

    /// One on a socket that is there already.
    pub fn over(socket: UnixStream) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self::on(async move { tokio::net::UnixStream::from_std(socket).unwrap() })
    }

    fn on<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        socket: impl Future<Output = S>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opening = async { h2::client::handshake(socket.await).await.unwrap() };
        let (sender, connection) = runtime.block_on(opening);
        runtime.spawn(async move { drop(connection.await) });
        Self { runtime, sender }
    }

    /// Makes it the connection of one WebSocket at a path of the site (RFC 8441).
    pub fn websocket(self, url: &str) -> Tube {
        let Self { runtime, mut sender } = self;
        wait_until("extended CONNECT is offered", || {
            runtime.block_on(tokio::task::yield_now());
            sender.is_extended_connect_protocol_enabled()
        });
        let mut request = ask("CONNECT", url, &[("sec-websocket-version", "13")]);
        request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        let opening = async {
            let (answer, up) = sender.send_request(request, false).unwrap();
            let answer = tokio::time::timeout(DEADLINE, answer).await.expect("an answer").unwrap();
            assert_eq!(answer.status(), 200);
            (up, answer.into_body())
        };
        let (up, down) = runtime.block_on(opening);
        Tube { up, down, ahead: Bytes::new(), runtime, _sender: sender }
    }

    /// Sends a request without a body, and waits for its answer.
    pub fn get(&mut self, request: Request<()>) -> Result<Reply, h2::Error> {
        self.send(request, None, None)
    }

    /// Sends a request with a body, and trailers if there are any.
    pub fn send(
        &mut self,
        request: Request<()>,
        body: Option<&[u8]>,
        trailers: Option<HeaderMap>,
    ) -> Result<Reply, h2::Error> {
        let sender = self.sender.clone();
        let answering = answer(sender, request, body.map(Bytes::copy_from_slice), trailers);
        let waiting = async { tokio::time::timeout(DEADLINE, answering).await };
        self.runtime.block_on(waiting).expect("an answer within the deadline")
    }

    /// Sends them side by side.
    pub fn all(&mut self, requests: Vec<Request<()>>) -> Vec<Result<Reply, h2::Error>> {
        let running: Vec<_> = requests
            .into_iter()
            .map(|request| self.runtime.spawn(answer(self.sender.clone(), request, None, None)))
            .collect();
        let waiting = async {
            let mut replies = Vec::new();
            for one in running {
                replies.push(one.await.unwrap());
            }
            replies
        };
        let bounded = async { tokio::time::timeout(DEADLINE, waiting).await };
        self.runtime.block_on(bounded).expect("answers within the deadline")
    }
}

/// A stream as a socket. Its connection goes on while it is read.
pub struct Tube {
    up: SendStream<Bytes>,
    down: RecvStream,
    ahead: Bytes,
    runtime: Runtime,
    /// Without it the connection would end.
    _sender: SendRequest<Bytes>,
}

impl Read for Tube {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.ahead.is_empty() {
            let part = async { tokio::time::timeout(DEADLINE, self.down.data()).await };
            let Some(part) = self.runtime.block_on(part)? else { return Ok(0) };
            self.ahead = part.map_err(io::Error::other)?;
            let length = self.ahead.len();
            self.down.flow_control().release_capacity(length).map_err(io::Error::other)?;
        }
        let part = self.ahead.split_to(buf.len().min(self.ahead.len()));
        buf[..part.len()].copy_from_slice(&part);
        Ok(part.len())
    }
}

impl Write for Tube {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let part = Bytes::copy_from_slice(buf);
        self.up.send_data(part, false).map_err(io::Error::other)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn answer(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    body: Option<Bytes>,
    trailers: Option<HeaderMap>,
) -> Result<Reply, h2::Error> {
    let mut sender = sender.ready().await?;
    let (response, mut stream) = sender.send_request(request, body.is_none())?;
    if let Some(body) = body {
        stream.send_data(body, trailers.is_none())?;
        if let Some(trailers) = trailers {
            stream.send_trailers(trailers)?;
        }
    }
    let (head, mut incoming) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(part) = incoming.data().await {
        let part = part?;
        incoming.flow_control().release_capacity(part.len())?;
        body.extend_from_slice(&part);
    }
    let trailers = incoming.trailers().await?;
    Ok(Reply { status: head.status.as_u16(), headers: head.headers, body, trailers })
}
