//! Certificates are renewed and the configuration is reloaded, time and again, while visitors of every kind
//! are served over TLS: no visitor is disturbed.

use std::future::{Ready, ready};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use futures_util::stream;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};
use tonic::codegen::Service;
use tonic::transport::Endpoint;

use crate::grpc::{self, Plain};
use crate::support::client::{Client, SITE};
use crate::support::http2_client::{Http2Client, ask};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::tls::{Authority, Browser, CertificateWithKey};
use crate::support::{DEADLINE, wait_until};
use crate::websocket::Echo;

/// How often all is renewed.
const ROUNDS: usize = 20;
/// What each visitor is answered between two of them, at least.
const EACH: usize = 5;

/// A site: pages that are kept and pages that are not, a chat, and calls of gRPC.
struct Site {
    _pages: Origin,
    _chat: Echo,
    _calls: crate::support::upstream::Upstream,
    proxy: Proxy,
    authority: Authority,
    files: TempDir,
}

impl Site {
    fn open() -> Self {
        let pages = Origin::start(|request| match request.target.contains("page") {
            true => Reply::html("hello"),
            false => Reply::unstored("hello"),
        });
        let (chat, calls) = (Echo::start(), grpc::origin(&Gate::closed()));
        let (authority, files) = (Authority::new("sites"), TempDir::new().unwrap());
        authority.site(&[SITE]).write(&files.path().join("a.pem"));
        let settings = format!(
            "listen = [{{ address = \"{{listen}}\", tls = {{ cert = \"{}/*.pem\", min_version = \"1.2\" }} }}]\n\
             origins.chat.url = \"http://{}\"\n\
             origins.calls.url = \"http://{}\"\n\
             origins.calls.http2 = \"always\"\n\
             [[route]]\nmatch.path = \"/chat\"\norigin = \"chat\"\n\
             [[route]]\nmatch.path = \"/t.T/**\"\norigin = \"calls\"\n",
            files.path().display(),
            chat.address,
            calls.address(),
        );
        let proxy = Proxy::embedded(&pages, &settings);
        Self { _pages: pages, _chat: chat, _calls: calls, proxy, authority, files }
    }

    /// Another certificate, and another configuration: TLS and routes differ from the last ones.
    fn renew(&self, round: usize) -> CertificateWithKey {
        let issued = self.authority.site(&[SITE]);
        issued.write(&self.files.path().join("a.pem"));
        self.proxy.edit(|text| {
            let [old, new] = if round.is_multiple_of(2) { ["1.2", "1.3"] } else { ["1.3", "1.2"] };
            let version = |version| format!("min_version = \"{version}\"");
            let text = text.replace(&version(old), &version(new));
            format!("{text}\n[[route]]\nmatch.path = \"/nowhere/{round}\"\nttl = \"9s\"\n")
        });
        assert!(self.proxy.reload(), "{}", self.proxy.complaints());
        issued
    }

    /// A connection of HTTP/1.1, or a socket for whatever is said in HTTP/2.
    fn visit(&self, browser: &Browser) -> Client {
        browser.visit(self.proxy.address(), SITE).0
    }

    fn carry(&self, browser: &Browser) -> UnixStream {
        let socket = browser.carry(self.proxy.address(), SITE);
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket
    }
}

fn http1() -> Browser {
    Browser::new().offering(&[b"http/1.1"])
}

fn http2() -> Browser {
    Browser::new().offering(&[b"h2"])
}

/// What a visitor does while the rounds go on: once more for each call.
struct Goes<'a> {
    over: &'a AtomicBool,
    done: &'a AtomicUsize,
}

impl Goes<'_> {
    fn on(&self) -> bool {
        self.done.fetch_add(1, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed)
    }
}

type Visitor = fn(&Site, &Goes<'_>);

const VISITORS: [(&str, Visitor); 8] = [
    ("HTTP/1.1, kept", |site, goes| {
        let mut client = site.visit(&http1());
        while goes.on() {
            get(site, &mut client, goes);
        }
    }),
    ("HTTP/1.1, fresh", |site, goes| {
        while goes.on() {
            get(site, &mut site.visit(&http1()), goes);
        }
    }),
    ("HTTP/1.1, resumed", |site, goes| {
        let browser = http1();
        while goes.on() {
            get(site, &mut site.visit(&browser), goes);
        }
    }),
    ("HTTP/2, kept", |site, goes| {
        let mut client = Http2Client::over(site.carry(&http2()));
        while goes.on() {
            get_many(&mut client);
        }
    }),
    ("HTTP/2, fresh and resumed", |site, goes| {
        let browser = http2();
        while goes.on() {
            get_many(&mut Http2Client::over(site.carry(&browser)));
        }
    }),
    ("WebSocket over HTTP/1.1", |site, goes| {
        let socket = site.carry(&http1());
        chat(client(format!("ws://{SITE}/chat"), socket).expect("a handshake").0, goes);
    }),
    ("WebSocket over HTTP/2", |site, goes| {
        let tube = Http2Client::over(site.carry(&http2())).websocket(&url("/chat"));
        chat(WebSocket::from_raw_socket(tube, Role::Client, None), goes);
    }),
    ("gRPC", |site, goes| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(call(site.carry(&http2()), goes));
    }),
];

fn url(path: &str) -> String {
    format!("https://{SITE}{path}")
}

fn get(site: &Site, client: &mut Client, goes: &Goes<'_>) {
    let target = ["/page", "/other"][goes.done.load(Ordering::Relaxed) % 2];
    let answer = site.proxy.get(target).send_on(client);
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
}

fn get_many(client: &mut Http2Client) {
    let targets = ["/page", "/other", "/page", "/other"];
    let asks = targets.iter().map(|path| ask("GET", &url(path), &[])).collect();
    for answer in client.all(asks) {
        let answer = answer.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    }
}

/// One WebSocket all along.
fn chat<S: Read + Write>(mut socket: WebSocket<S>, goes: &Goes<'_>) {
    let mut number = 0;
    while goes.on() {
        let word = Message::text(format!("word {number}"));
        socket.send(word.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), word);
        number += 1;
    }
}

/// One call all along.
async fn call(socket: UnixStream, goes: &Goes<'_>) {
    socket.set_nonblocking(true).unwrap();
    let channel = Endpoint::from_static("http://shop.test")
        .origin(Uri::from_static("https://shop.test"))
        .connect_with_connector(There(Some(socket)))
        .await
        .unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let (say, said) = mpsc::channel::<Bytes>(1);
    let words = stream::unfold(said, |mut said| async { Some((said.recv().await?, said)) });
    let path = PathAndQuery::from_static("/t.T/Echo");
    let answer = client.streaming(tonic::Request::new(words), path, Plain).await;
    let mut heard = answer.unwrap().into_inner();
    let mut number = 0;
    while goes.on() {
        let word = Bytes::from(format!("word {number}"));
        say.send(word.clone()).await.unwrap();
        let answer = tokio::time::timeout(DEADLINE, heard.message()).await;
        assert_eq!(answer.expect("in time").unwrap(), Some(word));
        number += 1;
    }
    drop(say);
    assert_eq!(heard.message().await.unwrap(), None);
}

/// Connects by a socket that is there already.
struct There(Option<UnixStream>);

impl Service<Uri> for There {
    type Response = TokioIo<tokio::net::UnixStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        // A second time would mean that the first connection was lost.
        let socket = self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into());
        ready(socket.and_then(tokio::net::UnixStream::from_std).map(TokioIo::new))
    }
}

/// Lets the visitors end, also where a round fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn renewing_certificates_and_configuration_disturbs_no_visitor() {
    let site = Site::open();
    let (over, counts) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; VISITORS.len()]);
    thread::scope(|scope| {
        let visits = VISITORS.iter().zip(&counts).map(|((name, visitor), done)| {
            let goes = Goes { over: &over, done };
            let site = &site;
            scope.spawn(move || visitor(site, &goes));
            (*name, done)
        });
        let visits: Vec<_> = visits.collect();
        let end = End(&over);
        for round in 0..ROUNDS {
            let count = |(_, done): &(_, &AtomicUsize)| done.load(Ordering::Relaxed);
            let before: Vec<usize> = visits.iter().map(count).collect();
            for (visit, before) in visits.iter().zip(before) {
                let what = format!("{} goes on in round {round}", visit.0);
                wait_until(&what, || count(visit) >= before + EACH);
            }
            let issued = site.renew(round);
            let shown = Browser::new().visit(site.proxy.address(), SITE).1.shown;
            assert_eq!(shown, Some(issued.der()), "round {round}");
        }
        drop(end);
    });
    assert_eq!(site.proxy.metric("anteroom_reloads_refused_total"), 0.0);
    assert_eq!(site.proxy.metric("anteroom_tunnels_opened_total"), 2.0);
    assert_eq!(site.proxy.metric("anteroom_tls_handshakes_failed_total"), 0.0);
}
