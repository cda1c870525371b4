//! Frames on the socket between the process that serves and its successor: a head, a body, and open files.
//!
//! ```text
//! 0  "AT"       2 bytes
//! 2  layout     1 byte: LAYOUT
//! 3  files      1 byte: how many come with this frame, at most FILES_MAX
//! 4  length     4 bytes, big-endian: of the body, at most BODY_MAX
//! 8  body
//! ```
//!
//! Files are sent with the first byte of the head (`SCM_RIGHTS`). The kernel never joins bytes behind it with bytes
//! before it, so that a file cannot come to another frame. The layout does not change between versions of the program:
//! what changes is in the body.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The layout of a frame.
const LAYOUT: u8 = 1;
/// What each frame begins with.
const MAGIC: [u8; 3] = [b'A', b'T', LAYOUT];
/// The length of a head, in bytes.
const HEAD: usize = 8;
/// The most files of a frame. The kernel allows 253.
pub const FILES_MAX: usize = 64;
/// The largest body, in bytes. What is longer goes in several frames.
pub const BODY_MAX: usize = 1 << 20;

/// A frame that has come.
#[derive(Debug)]
pub struct Frame {
    /// The body.
    pub body: Vec<u8>,
    /// The files. They are closed at an `exec`.
    pub files: Vec<OwnedFd>,
}

/// Why a frame was not sent or received. The socket is of no use afterwards.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The socket.
    #[error("the socket of the take-over broke: {0}")]
    Io(#[from] io::Error),
    /// The peer ended within a frame.
    #[error("the other process ended within a message")]
    Torn,
    /// It sends something else.
    #[error("the other process does not send messages of a take-over")]
    Foreign,
    /// A frame is over the bounds, here or there.
    #[error("a message of the take-over is too large: {body} bytes, {files} files")]
    TooLarge {
        /// The length of its body.
        body: usize,
        /// How many files it has.
        files: usize,
    },
    /// Files did not come: this process has reached its limit of open files.
    #[error("{came} of {sent} files came: raise LimitNOFILE")]
    FilesLost {
        /// How many were sent.
        sent: usize,
        /// How many came.
        came: usize,
    },
}

/// The process at the other end, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub user: u32,
    /// Its process id, as it was when it connected; `None` if it is in another namespace.
    pub process_id: Option<i32>,
}

/// A Unix socket that carries frames. A call that is dropped half-way leaves it without use.
#[derive(Debug)]
pub struct FrameSocket(UnixStream);

impl FrameSocket {
    /// Frames on `stream`, of which everything before has been read.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// The process at the other end (`SO_PEERCRED`).
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn peer(&self) -> io::Result<Peer> {
        let told = self.0.peer_cred()?;
        let process_id = told.pid().filter(|id| *id > 0);
        Ok(Peer { user: told.uid(), process_id })
    }

    /// Sends a frame. `files` stay open here, too.
    ///
    /// # Errors
    /// If it is too large, or the peer is gone.
    pub async fn send(&mut self, body: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), FrameError> {
        let too_large = || FrameError::TooLarge { body: body.len(), files: files.len() };
        if body.len() > BODY_MAX {
            return Err(too_large());
        }
        let count = u8::try_from(files.len()).map_err(|_| too_large())?;
        if files.len() > FILES_MAX {
            return Err(too_large());
        }
        let head = head(count, body.len() as u32);
        let stream = &self.0;
        let sent = stream
            .async_io(Interest::WRITABLE, || Ok(send_with_files(stream.as_fd(), &head, files)?))
            .await?;
        // The files have gone with the first byte.
        self.0.write_all(&head[sent..]).await?;
        self.0.write_all(body).await?;
        Ok(())
    }

    /// The next frame; `None` when the peer has closed its end between two frames.
    ///
    /// # Errors
    /// If it is not whole, not ours, or too large.
    pub async fn receive(&mut self) -> Result<Option<Frame>, FrameError> {
        let (mut head, mut filled, mut files) = ([0; HEAD], 0, Vec::new());
        while filled < HEAD {
            let stream = &self.0;
            let received = stream
                .async_io(Interest::READABLE, || {
                    receive_with_files(stream.as_fd(), &mut head[filled..], &mut files)
                })
                .await?;
            match (received.bytes, filled) {
                (0, 0) => return Ok(None),
                (0, _) => return Err(FrameError::Torn),
                (bytes, _) => filled += bytes,
            }
            if received.is_cut {
                let sent = usize::from(head[3]);
                return Err(FrameError::FilesLost { sent, came: files.len() });
            }
        }
        let body = read_body(&mut self.0, &head, files.len()).await?;
        Ok(Some(Frame { body, files }))
    }

    /// Both directions, each for itself, for frames without files.
    #[must_use]
    pub fn into_halves(self) -> (FrameReader, FrameWriter) {
        let (read, write) = self.0.into_split();
        (FrameReader(read), FrameWriter(write))
    }
}

/// Receives frames without files. A call that is dropped half-way leaves it without use.
#[derive(Debug)]
pub struct FrameReader(OwnedReadHalf);

impl FrameReader {
    /// The body of the next frame; `None` when the peer has closed its end between two frames.
    ///
    /// # Errors
    /// If the frame is not whole, not ours, too large, or has files.
    pub async fn receive(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let (mut head, mut filled) = ([0; HEAD], 0);
        while filled < HEAD {
            match (self.0.read(&mut head[filled..]).await?, filled) {
                (0, 0) => return Ok(None),
                (0, _) => return Err(FrameError::Torn),
                (bytes, _) => filled += bytes,
            }
        }
        read_body(&mut self.0, &head, 0).await.map(Some)
    }
}

/// Sends frames without files. A call that is dropped half-way leaves it without use.
#[derive(Debug)]
pub struct FrameWriter(OwnedWriteHalf);

impl FrameWriter {
    /// Sends a frame.
    ///
    /// # Errors
    /// If it is too large, or the peer is gone.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), FrameError> {
        if body.len() > BODY_MAX {
            return Err(FrameError::TooLarge { body: body.len(), files: 0 });
        }
        // In one piece: the peer wakes once.
        let frame = [&head(0, body.len() as u32)[..], body].concat();
        Ok(self.0.write_all(&frame).await?)
    }
}

/// Reads the body behind a head with which so many files came.
async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    head: &[u8; HEAD],
    came: usize,
) -> Result<Vec<u8>, FrameError> {
    let (sent, length) = read_head(head).ok_or(FrameError::Foreign)?;
    if sent > FILES_MAX || length > BODY_MAX {
        return Err(FrameError::TooLarge { body: length, files: sent });
    }
    if came != sent {
        return Err(FrameError::FilesLost { sent, came });
    }
    let mut body = vec![0; length];
    // A plain read: the kernel closes files that come with a body.
    match stream.read_exact(&mut body).await {
        Ok(_) => Ok(body),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(FrameError::Torn),
        Err(error) => Err(error.into()),
    }
}

fn head(files: u8, length: u32) -> [u8; HEAD] {
    let [a, b, c, d] = length.to_be_bytes();
    let [m, n, layout] = MAGIC;
    [m, n, layout, files, a, b, c, d]
}

/// How many files, and how many bytes of a body, follow.
fn read_head(head: &[u8; HEAD]) -> Option<(usize, usize)> {
    let [m, n, layout, files, a, b, c, d] = *head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    ([m, n, layout] == MAGIC).then_some((usize::from(files), length))
}

/// Sends `bytes`, or a part of them, with all `files`, which stay open here. Returns how many bytes.
///
/// # Errors
/// If there are more than [`FILES_MAX`] files, or the socket refuses.
pub fn send_with_files(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(rustix::io::Errno::INVAL);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)
}

/// What one call has received.
struct ReceivedBytes {
    /// How many bytes; 0: the other end is closed.
    bytes: usize,
    /// Whether files did not come: there was no room for them in this process.
    is_cut: bool,
}

/// Fills a part of `bytes`, and adds the files that come with it to `files`.
fn receive_with_files(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<ReceivedBytes> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            files.extend(came);
        }
    }
    Ok(ReceivedBytes { bytes: got.bytes, is_cut: got.flags.contains(ReturnFlags::CTRUNC) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (FrameSocket, FrameSocket) {
        let (one, other) = UnixStream::pair().unwrap();
        (FrameSocket::new(one), FrameSocket::new(other))
    }

    /// An end that sends what it likes.
    fn stranger() -> (UnixStream, FrameSocket) {
        let (one, other) = UnixStream::pair().unwrap();
        (one, FrameSocket::new(other))
    }

    async fn receive(socket: &mut FrameSocket) -> Frame {
        socket.receive().await.unwrap().expect("a frame")
    }

    #[tokio::test]
    async fn frames_come_one_by_one_as_they_were_sent() {
        let (mut one, mut other) = pair();
        for body in [&b"first"[..], b"", b"third"] {
            one.send(body, &[]).await.unwrap();
        }
        drop(one);
        for body in [&b"first"[..], b"", b"third"] {
            let frame = receive(&mut other).await;
            assert_eq!((frame.body.as_slice(), frame.files.len()), (body, 0));
        }
        assert!(other.receive().await.unwrap().is_none(), "the other end is closed");
    }

    #[tokio::test]
    async fn each_direction_goes_on_by_itself() {
        let (one, mut other) = pair();
        let (mut reader, mut writer) = one.into_halves();
        writer.send(b"there").await.unwrap();
        assert_eq!(receive(&mut other).await.body, b"there");
        other.send(b"back", &[]).await.unwrap();
        assert_eq!(reader.receive().await.unwrap().unwrap(), b"back");
        let too_large = writer.send(&vec![0; BODY_MAX + 1]).await;
        assert!(matches!(too_large, Err(FrameError::TooLarge { .. })));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        other.send(b"", &[listener.as_fd()]).await.unwrap();
        let with_file = reader.receive().await;
        assert!(matches!(with_file, Err(FrameError::FilesLost { sent: 1, came: 0 })));
        drop(other);
        assert!(reader.receive().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_listening_socket_that_came_accepts_clients_that_waited() {
        let (mut one, mut other) = pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        one.send(b"sockets", &[listener.as_fd()]).await.unwrap();
        drop(listener);
        let mut frame = receive(&mut other).await;
        let listener = TcpListener::from(frame.files.pop().unwrap());
        let (mut accepted, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        accepted.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[tokio::test]
    async fn files_come_with_the_frame_that_they_were_sent_with() {
        let (mut one, mut other) = pair();
        let mut files: Vec<File> = (0..FILES_MAX).map(|_| tempfile::tempfile().unwrap()).collect();
        for (number, file) in files.iter_mut().enumerate() {
            write!(file, "{number}").unwrap();
            file.rewind().unwrap();
        }
        let all: Vec<_> = files.iter().map(std::os::fd::AsFd::as_fd).collect();
        one.send(b"none", &[]).await.unwrap();
        one.send(b"all", &all).await.unwrap();
        one.send(b"last", &all[..1]).await.unwrap();
        assert!(receive(&mut other).await.files.is_empty());
        let frame = receive(&mut other).await;
        assert_eq!(frame.files.len(), FILES_MAX);
        for (number, file) in frame.files.into_iter().enumerate() {
            let mut text = String::new();
            File::from(file).read_to_string(&mut text).unwrap();
            assert_eq!(text, number.to_string());
        }
        let last = receive(&mut other).await;
        assert_eq!((last.body.as_slice(), last.files.len()), (&b"last"[..], 1));
    }

    #[tokio::test]
    async fn what_does_not_fit_is_refused_where_it_is_sent() {
        let (mut one, _other) = pair();
        let large = one.send(&vec![0; BODY_MAX + 1], &[]).await;
        assert!(matches!(large, Err(FrameError::TooLarge { .. })));
        let file = tempfile::tempfile().unwrap();
        for count in [FILES_MAX + 1, 300] {
            let many = one.send(b"", &vec![file.as_fd(); count]).await;
            assert!(matches!(many, Err(FrameError::TooLarge { files, .. }) if files == count));
        }
    }

    #[tokio::test]
    async fn the_largest_body_comes_whole() {
        let (mut one, mut other) = pair();
        let body: Vec<u8> = (0..BODY_MAX).map(|at| (at % 251) as u8).collect();
        let (sent, frame) = tokio::join!(one.send(&body, &[]), receive(&mut other));
        sent.unwrap();
        assert!(frame.body == body);
    }

    #[tokio::test]
    async fn what_is_no_frame_is_refused() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"AT\x02\0\0\0\0\0"] {
            let (mut sender, mut socket) = stranger();
            sender.write_all(bytes).await.unwrap();
            assert!(matches!(socket.receive().await, Err(FrameError::Foreign)));
        }
        let (mut sender, mut socket) = stranger();
        sender.write_all(b"AT\x01\0\xff\xff\xff\xff").await.unwrap();
        assert!(matches!(socket.receive().await, Err(FrameError::TooLarge { .. })));
        let (mut sender, mut socket) = stranger();
        sender.write_all(b"AT\x01\x02\0\0\0\0").await.unwrap();
        let lost = socket.receive().await;
        assert!(matches!(lost, Err(FrameError::FilesLost { sent: 2, came: 0 })));
    }

    #[tokio::test]
    async fn a_peer_that_ends_within_a_frame_is_told_from_one_that_is_done() {
        for part in [&b"AT\x01"[..], b"AT\x01\0\0\0\0\x05abc"] {
            let (mut sender, mut socket) = stranger();
            sender.write_all(part).await.unwrap();
            drop(sender);
            assert!(matches!(socket.receive().await, Err(FrameError::Torn)));
        }
    }

    #[tokio::test]
    async fn a_head_that_comes_in_pieces_is_put_together() {
        let (mut sender, mut socket) = stranger();
        let sends = async {
            for byte in *b"AT\x01\0\0\0\0\x02ok" {
                sender.write_all(&[byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let (frame, ()) = tokio::join!(receive(&mut socket), sends);
        assert_eq!(frame.body, b"ok");
    }

    #[tokio::test]
    async fn the_peer_is_known_by_the_kernel() {
        let (one, _other) = pair();
        let peer = one.peer().unwrap();
        assert_eq!(peer.process_id, i32::try_from(std::process::id()).ok());
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
    }
}
