//! The listening sockets that a process has before it opens any, until its own listeners take them: those of the process
//! it takes over from, or those that the service manager has kept since the last one ended, or has opened itself.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anteroom_config::{Address, Listen};
use anteroom_http::ident::hex;
use anteroom_proxy::serve::Listener;
use anteroom_proxy::serve::listen::InheritedSockets;
use anteroom_proxy::serve::socket::Socket;
use sha2::{Digest as _, Sha256};

use super::service_manager;
use crate::take_over::message::{HandedSocket, Purpose};

/// How the address of a Unix socket begins.
const UNIX: &str = "unix:";
/// What the names begin with under which the service manager keeps sockets.
const KEPT: &str = "anteroom.";
/// The most sockets that another process hands over.
const SOCKETS_MAX: usize = 16_384;
/// How much of a hash is in such a name, in bytes.
const HASH: usize = 8;

/// The sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub(super) struct HandedSockets {
    handed: Vec<(HandedSocket, Listener)>,
    /// Those that the service manager has opened.
    inherited: Option<InheritedSockets>,
}

/// The name under which the service manager keeps a socket. It has the inode of the file of a Unix socket: where another
/// file is, no client comes to the socket.
pub(super) fn kept_name(socket: &HandedSocket) -> String {
    let address = match unix_path(socket) {
        Some(path) => {
            let mut address = OsString::from(UNIX);
            address.push(in_full(path));
            address
        }
        None => OsString::from(&socket.address),
    };
    let hash = hex(&Sha256::digest(address.as_encoded_bytes())[..HASH]);
    match socket.file {
        Some(number) => format!("{KEPT}{hash}.{number}"),
        None => format!("{KEPT}{hash}"),
    }
}

/// A path of a Unix socket, without links in its folders: however it is spelled, that is one.
fn in_full(path: &Path) -> PathBuf {
    let named = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (fs::canonicalize(named.unwrap_or_else(|| Path::new("."))), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        (Err(_), _) | (_, None) => path.to_owned(),
    }
}

/// What the service manager keeps of a listener, if it does not open the socket itself.
fn kept_socket(address: &Address) -> Option<HandedSocket> {
    let file = match address {
        Address::Tcp(_) => None,
        Address::Unix(path) => Some(fs::symlink_metadata(path).ok()?.ino()),
        Address::Systemd(_) => return None,
    };
    Some(HandedSocket { purpose: Purpose::Visitors, address: address.to_string(), file })
}

/// The path of a Unix socket, as the other process spells it.
fn unix_path(socket: &HandedSocket) -> Option<&Path> {
    socket.address.strip_prefix(UNIX).map(Path::new)
}

/// Whether two paths lead to the same file. Folders on the way may be links, and the file itself is none.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path| fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

impl HandedSockets {
    /// Adds what the service manager passes to this start. Sockets that it has kept and that no listener has are closed
    /// here and there: they would be in the way of others, and clients would wait at them.
    pub(super) fn inherit(&mut self, listeners: &[Listen]) {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut inherited = InheritedSockets::new(&names);
        let passed = inherited.take_named(KEPT);
        self.inherited = Some(inherited);
        if !self.handed.is_empty() {
            // The other process has all of them, and keeps them with the service manager.
            return;
        }
        let wanted: Vec<_> = listeners.iter().filter_map(|one| kept_socket(&one.address)).collect();
        let mut unwanted = BTreeSet::new();
        for (name, listener) in passed {
            match wanted.iter().find(|socket| kept_name(socket) == name) {
                Some(socket) => self.handed.push((socket.clone(), listener)),
                None => {
                    unwanted.insert(name);
                }
            }
        }
        service_manager::drop_sockets(unwanted);
    }

    /// The sockets with this name that the service manager has opened, or all.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn take_inherited(&mut self, name: Option<&str>) -> io::Result<Vec<Listener>> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "systemd passed no socket");
        self.inherited.as_mut().ok_or_else(none)?.take(name)
    }

    /// Adds sockets, with their files in the same order. What only another version knows is dropped.
    ///
    /// # Errors
    /// If a file is missing, or is no listening socket, or there are too many.
    pub(super) fn add(
        &mut self,
        sockets: Vec<HandedSocket>,
        files: Vec<OwnedFd>,
    ) -> io::Result<()> {
        if sockets.len() != files.len() {
            let text = format!("{} sockets came with {} files", sockets.len(), files.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if self.handed.len() + sockets.len() > SOCKETS_MAX {
            let text = format!("there are more than {SOCKETS_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        for (socket, file) in sockets.into_iter().zip(files) {
            if socket.purpose != Purpose::Unknown {
                self.handed.push((socket, Listener::try_from(file)?));
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

    /// The Unix socket at `path`, if clients still find it there. Where the other process spells that path in another
    /// way, the socket keeps its spelling.
    pub(super) fn take_unix(&mut self, purpose: Purpose, path: &Path) -> Option<Socket> {
        let path_of_its = |(socket, _): &(HandedSocket, Listener)| {
            let its = unix_path(socket).filter(|_| socket.purpose == purpose)?;
            is_same_file(its, path).then(|| its.to_owned())
        };
        let path = self.handed.iter().find_map(path_of_its).unwrap_or_else(|| path.to_owned());
        let address = Address::Unix(path.clone());
        let taken = self.take_described(purpose, &address).into_iter().next()?;
        let (HandedSocket { file: Some(number), .. }, Listener::Unix(listener)) = taken else {
            return None;
        };
        match Socket::adopt(listener, &path, number) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, %address, "a socket has lost its file, and is opened again");
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
        let first = self.handed.iter().find(|one| is_meant(one));
        let port = first.filter(|_| address.tcp().is_some()).and_then(|(_, one)| one.address());
        let is_its = |one: &(HandedSocket, Listener)| {
            is_meant(one) && (port.is_none() || one.1.address() == port)
        };
        let (taken, left) = std::mem::take(&mut self.handed).into_iter().partition(is_its);
        self.handed = left;
        taken
    }

    /// Closes what no listener has taken, here and at the service manager: the configuration of this process does not have
    /// it. Files of Unix sockets are removed.
    pub(super) fn close_rest(self) {
        let visitors = self.handed.iter().filter(|(socket, _)| socket.purpose == Purpose::Visitors);
        service_manager::drop_sockets(visitors.map(|(socket, _)| kept_name(socket)).collect());
        for (socket, listener) in self.handed {
            tracing::info!(address = %socket.address, "a listener of the old process was closed");
            let (Listener::Unix(listener), Some(path), Some(number)) =
                (listener, unix_path(&socket), socket.file)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_has_one_name_however_its_path_is_spelled() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
        let name = |path: &str| {
            let address = format!("{UNIX}{}/{path}", folder.path().display());
            kept_name(&HandedSocket { purpose: Purpose::Visitors, address, file: Some(1) })
        };
        for path in ["link/web.sock", ".//web.sock"] {
            assert_eq!(name(path), name("web.sock"), "{path}");
        }
        assert_ne!(name("link/other.sock"), name("web.sock"));
    }

    #[test]
    fn a_name_tells_addresses_and_files_apart_and_is_one_for_systemd() {
        let socket = |address: &str, file| HandedSocket {
            purpose: Purpose::Visitors,
            address: address.to_owned(),
            file,
        };
        let long = format!("unix:/{}", "long/".repeat(100));
        let names = [
            socket("[::]:443", None),
            socket("127.0.0.1:443", None),
            socket(&long, Some(u64::MAX)),
            socket(&long, Some(1)),
        ]
        .map(|socket| kept_name(&socket));
        // At most 255 letters of ASCII, and no colon, which is between names.
        assert!(names.iter().all(|name| name.len() < 64 && name.is_ascii() && !name.contains(':')));
        assert!(names.iter().all(|name| name.starts_with(KEPT)));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
