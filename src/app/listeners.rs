//! From a plan's `[[listen]]` to the sockets of each thread.

use std::path::PathBuf;
use std::sync::Arc;

use super::StartError;
use crate::config::{Address, Listen};
use crate::http::peer::Peers;
use crate::serve::listen::{self, Inherited};
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
}

impl Listeners {
    /// Opens them all, for so many threads.
    pub(super) fn open(all: &[Listen], threads: usize) -> Result<Self, StartError> {
        let by_thread = (0..threads).map(|_| Vec::new()).collect();
        let mut listeners = Self { by_thread, ..Self::default() };
        for one in all {
            listeners.add(one).map_err(|source| StartError::Listen {
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

    fn add(&mut self, one: &Listen) -> std::io::Result<()> {
        let balancers: Arc<[Peers]> = one.balancers.as_slice().into();
        match &one.address {
            Address::Tcp(address) => {
                let sockets = listen::open(*address, self.by_thread.len())?;
                for (thread, socket) in self.by_thread.iter_mut().zip(sockets) {
                    let (listener, balancers) = (Listener::Tcp(socket), Arc::clone(&balancers));
                    thread.push(Entrance { listener, balancers, h2: one.h2 });
                }
            }
            Address::Unix(path) => {
                let socket = Socket::open(path, one.mode)?;
                self.share(&Listener::Unix(socket.listener()?), &balancers, one.h2)?;
                self.files.push(socket);
            }
            Address::Systemd(name) => {
                let inherited = self.inherited.get_or_insert_with(|| {
                    Inherited::new(&std::env::var("LISTEN_FDNAMES").unwrap_or_default())
                });
                for listener in inherited.take(name.as_deref())? {
                    self.share(&listener, &balancers, one.h2)?;
                }
            }
        }
        Ok(())
    }

    /// Lets all threads take from one queue.
    fn share(
        &mut self,
        listener: &Listener,
        balancers: &Arc<[Peers]>,
        h2: bool,
    ) -> std::io::Result<()> {
        for thread in &mut self.by_thread {
            let (listener, balancers) = (listener.another()?, Arc::clone(balancers));
            thread.push(Entrance { listener, balancers, h2 });
        }
        Ok(())
    }
}
