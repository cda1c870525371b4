//! The demo shop: the origin behind `anteroom demo`, and a real origin for tests.
//!
//! It imitates a legacy web shop: every page takes a while to make, public pages have no caching fields, and
//! the shop keeps no sessions. This file is the server; the responses are in `shop`, the pages in `pages` and
//! `templates/`, the goods in `catalogue`. The shop does not depend on the proxy: the two communicate only
//! over HTTP.

mod catalogue;
mod form;
mod html;
mod pages;
mod shop;

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use pages::{TourCommand, TourStep};
pub use shop::Shop;

/// How the shop behaves.
#[derive(Clone, Debug)]
pub struct DemoShopSettings {
    /// The time that a page takes to make. Static files, form posts and `/origin-stats` are answered at once.
    /// Default: 300 ms.
    pub delay: Duration,
}

impl Default for DemoShopSettings {
    fn default() -> Self {
        Self { delay: Duration::from_millis(300) }
    }
}

/// Serves `shop` on `listener` over HTTP/1.1 until the returned future is dropped, which also ends
/// the open connections.
///
/// Connections are tasks of the current thread, so this must run on a `LocalRuntime` or in a
/// `LocalSet`. A failed `accept` is logged and tried again.
///
/// ```
/// use std::{rc::Rc, time::Duration};
/// use anteroom_demo::{DemoShopSettings, Shop};
/// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
/// use tokio::net::{TcpListener, TcpStream};
///
/// let runtime =
///     tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
/// runtime.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let shop = Rc::new(Shop::new(DemoShopSettings { delay: Duration::ZERO }));
///     tokio::task::spawn_local(anteroom_demo::serve(listener, shop));
///
///     let mut visitor = TcpStream::connect(address).await?;
///     visitor.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n").await?;
///     let mut page = String::new();
///     visitor.read_to_string(&mut page).await?;
///     assert!(page.starts_with("HTTP/1.1 200 OK"));
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub async fn serve(listener: TcpListener, shop: Rc<Shop>) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn_local(serve_connection(stream, Rc::clone(&shop)));
                }
                Err(error) => {
                    tracing::warn!(%error, "the demo shop could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            // Finished tasks are removed as they end, so the set holds open connections only.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(stream: TcpStream, shop: Rc<Shop>) {
    // A page is one small write; waiting for the acknowledgement of the previous one would add to the delay
    // that the page reports. A socket that refuses the option still works.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the demo shop could not set TCP_NODELAY");
    }
    let answer = service_fn(move |request| {
        let shop = Rc::clone(&shop);
        async move { Ok::<_, Infallible>(shop.respond(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the demo shop ended early");
    }
}

/// The most open connections; further ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 1_024;
/// How long an idle connection stays open. This is far longer than a proxy's pool keeps a connection, so a
/// form post never meets a connection that the shop is closing.
const IDLE: Duration = Duration::from_secs(300);
/// The pause after a failed `accept`, which usually means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most fields in a request head: the hundred that a client may send, plus those that proxies add.
const MAX_HEADERS: usize = 160;
/// The read buffer of a connection, in bytes, which also limits a request head.
const MAX_BUFFER: usize = 64 * 1024;

#[cfg(test)]
mod tests;
