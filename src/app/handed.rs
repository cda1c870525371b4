//! The listening sockets that a process got from the one it takes over from, until its own listeners take them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anteroom_config::Address;
use anteroom_proxy::serve::Listener;
use anteroom_proxy::serve::socket::Socket;

use crate::take_over::message::{HandedSocket, Purpose};

/// How the address of a Unix socket begins.
const UNIX: &str = "unix:";

/// The sockets that no listener has taken yet. A usual start has none.
#[derive(Debug, Default)]
pub(super) struct HandedSockets(Vec<(HandedSocket, Listener)>);

impl HandedSockets {
    /// Adds sockets, with their files in the same order. What only another version knows is dropped.
    ///
    /// # Errors
    /// If a file is missing, or is no listening socket.
    pub(super) fn add(
        &mut self,
        sockets: Vec<HandedSocket>,
        files: Vec<OwnedFd>,
    ) -> io::Result<()> {
        if sockets.len() != files.len() {
            let text = format!("{} sockets came with {} files", sockets.len(), files.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        for (socket, file) in sockets.into_iter().zip(files) {
            if socket.purpose != Purpose::Unknown {
                self.0.push((socket, Listener::try_from(file)?));
            }
        }
        Ok(())
    }

    /// The sockets of the first listener with this address. Listeners on port 0 have one address in the configuration,
    /// and each a port of its own.
    pub(super) fn take(&mut self, purpose: Purpose, address: &Address) -> Vec<Listener> {
        let taken = self.take_described(purpose, address).into_iter();
        taken.map(|(_, listener)| listener).collect()
    }

    /// The Unix socket at `path`, if clients still find it there.
    pub(super) fn take_unix(&mut self, purpose: Purpose, path: &Path) -> Option<Socket> {
        let address = Address::Unix(path.to_owned());
        let taken = self.take_described(purpose, &address).into_iter().next()?;
        let (HandedSocket { file: Some(number), .. }, Listener::Unix(listener)) = taken else {
            return None;
        };
        match Socket::adopt(listener, path, number) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, %address, "a socket has lost its file, and is opened anew");
                None
            }
        }
    }

    fn take_described(
        &mut self,
        purpose: Purpose,
        address: &Address,
    ) -> Vec<(HandedSocket, Listener)> {
        let word = address.to_string();
        let is_meant = |(socket, listener): &(HandedSocket, Listener)| {
            let is_tcp = matches!(listener, Listener::Tcp(_));
            let has_kind = match address {
                Address::Tcp(_) => is_tcp,
                Address::Unix(_) => !is_tcp,
                Address::Systemd(_) => true,
            };
            has_kind && socket.purpose == purpose && socket.address == word
        };
        let first = self.0.iter().find(|one| is_meant(one));
        let port = first.filter(|_| address.tcp().is_some()).and_then(|(_, one)| one.address());
        let is_its = |one: &(HandedSocket, Listener)| {
            is_meant(one) && (port.is_none() || one.1.address() == port)
        };
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(is_its);
        self.0 = left;
        taken
    }

    /// Closes what no listener has taken: the configuration of this process does not have it. Files of Unix sockets are
    /// removed.
    pub(super) fn close_rest(self) {
        for (socket, listener) in self.0 {
            tracing::info!(address = %socket.address, "a listener of the old process was closed");
            let path = socket.address.strip_prefix(UNIX).map(Path::new);
            let (Listener::Unix(listener), Some(path), Some(number)) =
                (listener, path, socket.file)
            else {
                continue;
            };
            match Socket::adopt(listener, path, number) {
                // The file goes when it is dropped.
                Ok(mut socket) => socket.own_file(),
                Err(error) => tracing::debug!(%error, "the file of a closed socket was gone"),
            }
        }
    }
}
