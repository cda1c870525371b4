//! A visitor whose browser speaks HTTP/2: another library's client on one connection.

use std::net::SocketAddr;

use ::http::{HeaderMap, Method, Request, Uri};
use bytes::Bytes;
use h2::client::SendRequest;
use tokio::runtime::Runtime;

use super::DEADLINE;
use super::client::SITE;

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether it came from the cache, by the proxy's word.
    pub(crate) fn is_hit(&self) -> bool {
        let status = self.header("cache-status").unwrap_or_default();
        status.split(';').any(|part| part.trim() == "hit")
    }
}

/// A request: a target on [`SITE`] and more fields.
pub(crate) fn ask(method: &str, target: &str, fields: &[(&str, &str)]) -> Request<()> {
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
pub(crate) struct Multiplexed {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
}

impl Multiplexed {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opening = async {
            let socket = tokio::net::TcpStream::connect(address).await.unwrap();
            h2::client::handshake(socket).await.unwrap()
        };
        let (sender, connection) = runtime.block_on(opening);
        runtime.spawn(async move { drop(connection.await) });
        Self { runtime, sender }
    }

    /// Sends a request without a body, and waits for its answer.
    pub(crate) fn get(&mut self, request: Request<()>) -> Result<Reply, h2::Error> {
        self.send(request, None, None)
    }

    /// Sends a request with a body, and trailers if there are any.
    pub(crate) fn send(
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
    pub(crate) fn all(&mut self, requests: Vec<Request<()>>) -> Vec<Result<Reply, h2::Error>> {
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
