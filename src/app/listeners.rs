//! From a plan's `[[listen]]` to the sockets of each thread.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::{StartError, tls};
use crate::config::{Address, Listen};
use crate::http::peer::Peers;
use crate::request::client::Entry;
use crate::serve::listen::{self, Inherited};
use crate::serve::tls::Tls;
use crate::serve::{Entrance, Listener};
use crate::socket::Socket;

/// Where visitors are served.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// The entrances of each thread.
    by_thread: Vec<Vec<Entrance>>,
    /// The Unix sockets, whose files go when no more visitors are let in.
    files: Vec<Socket>,
    inherited: Option<Inherited>,
    /// Their TLS, where they have any.
    tls: Vec<Arc<Tls>>,
    /// The addresses at which visitors come by https.
    secured: Vec<SocketAddr>,
}

/// What the entrances of a listener have in common.
struct Common {
    balancers: Arc<[Peers]>,
    tls: Option<Arc<Tls>>,
    entry: Arc<Entry>,
}

impl Common {
    fn entrance(&self, listener: Listener) -> Entrance {
        Entrance {
            listener,
            balancers: Arc::clone(&self.balancers),
            tls: self.tls.clone(),
            entry: Arc::clone(&self.entry),
        }
    }
}

impl Listeners {
    /// Opens them all, for so many threads.
    pub(super) fn open(all: &[Listen], threads: usize) -> Result<Self, StartError> {
        let by_thread = (0..threads).map(|_| Vec::new()).collect();
        let mut listeners = Self { by_thread, ..Self::default() };
        for one in all {
            let common = Common {
                balancers: one.balancers.as_slice().into(),
                tls: tls::open(one)?,
                entry: tls::entry(one),
            };
            listeners.tls.extend(common.tls.clone());
            listeners.add(one, &common).map_err(|source| StartError::Listen {
                address: one.address.to_string(),
                what: "visitors",
                flag: "--listen",
                source,
            })?;
        }
        Ok(listeners)
    }

    /// The entrances that the threads have in common, each once.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.by_thread.first().into_iter().flatten().map(|entrance| &entrance.listener)
    }

    /// The paths of the Unix sockets that we opened.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        self.files.iter().map(|socket| socket.path().to_owned()).collect()
    }

    /// The entrances of each thread, and what must be kept while they are open.
    pub(super) fn into_parts(self) -> (Vec<Vec<Entrance>>, Vec<Socket>) {
        (self.by_thread, self.files)
    }

    /// The TLS of those that have any.
    pub(super) fn tls(&self) -> &[Arc<Tls>] {
        &self.tls
    }

    /// Whether visitors at an address come by https.
    pub(super) fn is_secured(&self, address: SocketAddr) -> bool {
        self.secured.contains(&address)
    }

    fn add(&mut self, one: &Listen, common: &Common) -> std::io::Result<()> {
        match &one.address {
            Address::Tcp(address) => {
                let sockets = listen::open(*address, self.by_thread.len())?;
                if let (true, Some(socket)) = (common.tls.is_some(), sockets.first()) {
                    self.secured.push(socket.local_addr()?);
                }
                for (thread, socket) in self.by_thread.iter_mut().zip(sockets) {
                    thread.push(common.entrance(Listener::Tcp(socket)));
                }
            }
            Address::Unix(path) => {
                let socket = Socket::open(path, one.mode)?;
                self.share(&Listener::Unix(socket.listener()?), common)?;
                self.files.push(socket);
            }
            Address::Systemd(name) => {
                let inherited = self.inherited.get_or_insert_with(|| {
                    Inherited::new(&std::env::var("LISTEN_FDNAMES").unwrap_or_default())
                });
                for listener in inherited.take(name.as_deref())? {
                    self.share(&listener, common)?;
                }
            }
        }
        Ok(())
    }

    /// Lets all threads take from one queue.
    fn share(&mut self, listener: &Listener, common: &Common) -> std::io::Result<()> {
        for thread in &mut self.by_thread {
            thread.push(common.entrance(listener.another()?));
        }
        Ok(())
    }
}
