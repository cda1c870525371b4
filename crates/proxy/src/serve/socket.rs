//! Unix sockets of listeners, with their files.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{self as net, Domain, SockAddr, SockRef, Type};

/// Connections that the kernel holds for us before we accept them.
const BACKLOG: i32 = 1024;

/// A listening socket. Its file is removed with it, unless it is another process's.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// The inode of the file. A file that has replaced it is left alone.
    number: u64,
    /// Whether this process removes the file.
    owns_file: bool,
    /// The user that owns the file, which is the user of this process.
    user: u32,
}

impl Socket {
    /// Listens at `path` for this user alone; a missing folder is created.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_private(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Self::open(path, 0o600)
    }

    /// Listens at `path`, with the permissions in `mode`. A file left by a dead process is replaced.
    ///
    /// # Errors
    /// If another process listens there, another file is there, or the system refuses.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        make_way(path)?;
        // The socket has a temporary name until it has its mode, so that other users can never open it.
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        let draft = PathBuf::from(draft);
        // A process with this id is dead, and its file would be in the way.
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&draft)?;
        let ready = listener
            .set_nonblocking(true)
            .and_then(|()| SockRef::from(&listener).listen(BACKLOG))
            .and_then(|()| fs::set_permissions(&draft, Permissions::from_mode(mode)))
            .and_then(|()| fs::rename(&draft, path))
            .and_then(|()| fs::symlink_metadata(path));
        match ready {
            Ok(file) => {
                let (path, number, user) = (path.to_owned(), file.ino(), file.uid());
                Ok(Self { listener, path, number, owns_file: true, user })
            }
            Err(error) => {
                // It may already be gone.
                let _ = fs::remove_file(&draft);
                Err(error)
            }
        }
    }

    /// A socket that another process of this user has opened, with the inode of its file at `path`. The file stays that
    /// process's until [`Self::own_file`].
    ///
    /// # Errors
    /// If that file is gone, so that no client could connect.
    pub fn adopt(listener: UnixListener, path: &Path, number: u64) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        if file.ino() != number {
            return Err(replaced());
        }
        Ok(Self { listener, path: path.to_owned(), number, owns_file: false, user: file.uid() })
    }

    /// This process removes the file from now on.
    pub fn own_file(&mut self) {
        self.owns_file = true;
    }

    /// Another process removes the file from now on.
    pub fn leave_file(&mut self) {
        self.owns_file = false;
    }

    /// The inode of its file.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Changes the permissions.
    ///
    /// # Errors
    /// If the system refuses, or the file was replaced.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        if !self.is_ours()? {
            return Err(replaced());
        }
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
    }

    fn is_ours(&self) -> io::Result<bool> {
        fs::symlink_metadata(&self.path).map(|file| file.ino() == self.number)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the peer runs as this user or root, whatever the file's mode is now.
    #[must_use]
    pub fn admits(&self, peer: &tokio::net::UnixStream) -> bool {
        peer.peer_cred().is_ok_and(|peer| peer.uid() == self.user || peer.uid() == 0)
    }

    /// A listener on the socket. All listeners share one queue of connections.
    ///
    /// # Errors
    /// If the system has no room for another one.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.owns_file
            && self.is_ours().unwrap_or_default()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "the socket's file stays behind");
        }
    }
}

fn replaced() -> io::Error {
    io::Error::new(ErrorKind::NotFound, "another file is in its place")
}

/// Fails unless `path` is free, or has a socket without a listener.
fn make_way(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "there is another file"));
        }
        Ok(_) => {}
    }
    // Non-blocking, because connecting to a listener with a full queue would wait.
    let probe = net::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_user_is_not_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let mut socket = Socket::open_private(&folder.path().join("admin.sock")).unwrap();
        let peer = tokio::net::UnixStream::connect(socket.path()).await.unwrap();
        assert!(socket.admits(&peer));
        let ours = peer.peer_cred().unwrap().uid();
        socket.user = ours + 1;
        assert_eq!(socket.admits(&peer), ours == 0);
    }

    #[test]
    fn the_file_goes_with_the_process_that_owns_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.sock");
        let mut first = Socket::open(&path, 0o660).unwrap();
        let adopt = |number| Socket::adopt(first.listener().unwrap(), &path, number);
        assert_eq!(adopt(first.number() + 1).unwrap_err().kind(), ErrorKind::NotFound);
        drop(adopt(first.number()).unwrap());
        assert!(path.exists(), "that process did not take over");

        let mut second = adopt(first.number()).unwrap();
        second.own_file();
        first.leave_file();
        drop(first);
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn only_what_a_dead_process_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("admin.sock");
        let first = Socket::open_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Socket::open_private(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists());

        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a dead process leaves its file");
        drop(Socket::open_private(&path).unwrap());

        let draft = format!("{}.{}", path.display(), std::process::id());
        drop(UnixListener::bind(draft).unwrap());
        drop(Socket::open_private(&path).unwrap());

        fs::write(&path, "mine").unwrap();
        assert_eq!(Socket::open_private(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
