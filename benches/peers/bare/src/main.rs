//! A caching reverse proxy with nothing but hyper and a map: the budget that Anteroom is measured against.
//!
//!     bare PORT ORIGIN_PORT
//!
//! One thread. An answer with `Cache-Control` and without `no-store` stays in the map for ever, and every
//! visitor gets it; all others are passed through. Connections to the origin are kept and used again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CACHE_CONTROL, CONNECTION};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Page = Response<Full<Bytes>>;
type Answer = Response<Either<Full<Bytes>, Incoming>>;

struct Proxy {
    origin_port: u16,
    pages: RefCell<HashMap<String, Page>>,
    connections: RefCell<Vec<SendRequest<Incoming>>>,
}

fn main() -> Result<()> {
    let port = number(1)?;
    let proxy = Rc::new(Proxy {
        origin_port: number(2)?,
        pages: RefCell::default(),
        connections: RefCell::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(serve(port, proxy))
}

fn number(position: usize) -> Result<u16> {
    let given = std::env::args().nth(position).ok_or("usage: bare PORT ORIGIN_PORT")?;
    Ok(given.parse()?)
}

async fn serve(port: u16, proxy: Rc<Proxy>) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let proxy = Rc::clone(&proxy);
        spawn_local(async move {
            let service = service_fn(|request| proxy.answer(request));
            let served = Builder::new().serve_connection(TokioIo::new(stream), service).await;
            if let Err(error) = served {
                eprintln!("a client's connection ended: {error}");
            }
        });
    }
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Result<Answer> {
        if request.method() != Method::GET {
            return Ok(self.forward(request).await?.map(Either::Right));
        }
        if let Some(page) = self.pages.borrow().get(target(request.uri())) {
            return Ok(page.clone().map(Either::Left));
        }
        let key = target(request.uri()).to_owned();
        let answer = self.forward(request).await?;
        if !may_be_stored(&answer) {
            return Ok(answer.map(Either::Right));
        }
        let (head, body) = answer.into_parts();
        let page = Response::from_parts(head, Full::new(body.collect().await?.to_bytes()));
        self.pages.borrow_mut().insert(key, page.clone());
        Ok(page.map(Either::Left))
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>> {
        request.headers_mut().remove(CONNECTION);
        let mut connection = match self.kept() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut answer = connection.send_request(request).await?;
        answer.headers_mut().remove(CONNECTION);
        // Not ready before the body has been read.
        self.connections.borrow_mut().push(connection);
        Ok(answer)
    }

    /// A connection that waits for a request.
    fn kept(&self) -> Option<SendRequest<Incoming>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| !connection.is_closed());
        let ready = connections.iter().rposition(SendRequest::is_ready)?;
        Some(connections.swap_remove(ready))
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.origin_port)).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        spawn_local(async move {
            if let Err(error) = connection.await {
                eprintln!("a connection to the origin ended: {error}");
            }
        });
        Ok(sender)
    }
}

fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}

fn may_be_stored(answer: &Response<Incoming>) -> bool {
    let says = answer.headers().get(CACHE_CONTROL).and_then(|value| value.to_str().ok());
    answer.status().is_success() && says.is_some_and(|value| !value.contains("no-store"))
}
