//! An origin that keeps what it is sent byte for byte, and answers with bytes that no server would
//! send.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::DEADLINE;

/// A step in answering.
#[derive(Clone, Debug)]
pub enum Step {
    /// These bytes.
    Send(Vec<u8>),
    /// These bytes again and again, for as long as the peer takes them; a hundred million at most.
    Endless(Vec<u8>),
    /// Nothing more, and the connection stays.
    Hang,
    /// The connection ends.
    Close,
    /// It is reset, once what was sent has been taken.
    Reset,
}

/// A request as it stood on the wire.
#[derive(Clone, Debug, Default)]
pub struct RawRequest {
    pub raw: Vec<u8>,
    /// Whether it came up to its end.
    pub whole: bool,
}

impl RawRequest {
    /// The method, the target and the version.
    pub fn words(&self) -> Vec<String> {
        let line = self.raw.split(|byte| *byte == b'\r').next().unwrap_or_default();
        String::from_utf8_lossy(line).split(' ').map(str::to_owned).collect()
    }

    /// The target, empty where there is none.
    pub fn target(&self) -> String {
        self.words().get(1).cloned().unwrap_or_default()
    }
}

type Script = dyn Fn(&RawRequest) -> Vec<Step> + Send + Sync;

struct TapState {
    script: Box<Script>,
    seen: Mutex<Vec<RawRequest>>,
    sockets: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

/// The running origin; it ends on Drop.
pub struct Tap {
    address: SocketAddr,
    shared: Arc<TapState>,
}

impl Tap {
    /// Starts one that answers each whole request as `script` says.
    pub fn start(script: impl Fn(&RawRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(TapState {
            script: Box::new(script),
            seen: Mutex::default(),
            sockets: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Self { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What came so far.
    pub fn seen(&self) -> Vec<RawRequest> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many requests came so far, whole or not.
    pub fn count(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for socket in self.shared.sockets.lock().unwrap().iter() {
            drop(socket.shutdown(Shutdown::Both));
        }
        // Wakes the thread that waits in accept.
        drop(TcpStream::connect(self.address));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<TapState>) {
    for stream in listener.incoming() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        shared.sockets.lock().unwrap().push(stream.try_clone().unwrap());
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let mut wire = BufReader::new(stream);
            // An error is a proxy that went away, which is what a case looks at.
            let end = converse(&mut wire, &shared);
            if !end.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset) {
                drop(wire.get_ref().shutdown(Shutdown::Both));
            }
        });
    }
}

/// Answers one request after the other until one side closes.
fn converse(wire: &mut BufReader<TcpStream>, shared: &TapState) -> io::Result<()> {
    loop {
        let mut first = Vec::new();
        if wire.read_until(b'\n', &mut first)? == 0 {
            return Ok(());
        }
        let at = {
            let mut seen = shared.seen.lock().unwrap();
            seen.push(RawRequest { raw: first, whole: false });
            seen.len() - 1
        };
        let mut add = |bytes: &[u8]| shared.seen.lock().unwrap()[at].raw.extend_from_slice(bytes);
        read_request(wire, &mut add)?;
        shared.seen.lock().unwrap()[at].whole = true;
        let seen = shared.seen.lock().unwrap()[at].clone();
        let steps = (shared.script)(&seen);
        for (at, step) in steps.iter().enumerate() {
            match (step, steps.get(at + 1)) {
                (Step::Reset, _) => return reset(wire, shared),
                (Step::Send(bytes), Some(Step::Close)) => return send_and_end(wire, bytes),
                _ => {}
            }
            if !take(wire, step)? {
                return Ok(());
            }
        }
    }
}

/// Resets the connection when it is dropped, which it is then everywhere.
fn reset(wire: &BufReader<TcpStream>, shared: &TapState) -> io::Result<()> {
    let peer = wire.get_ref().peer_addr()?;
    let is_other = |socket: &TcpStream| socket.peer_addr().is_ok_and(|other| other != peer);
    shared.sockets.lock().unwrap().retain(is_other);
    SockRef::from(wire.get_ref()).set_linger(Some(Duration::ZERO))?;
    Err(io::ErrorKind::ConnectionReset.into())
}

/// Sends the last bytes and the end of the connection as one: a peer that sees the bytes sees the end, too.
fn send_and_end(wire: &mut BufReader<TcpStream>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = SockRef::from(wire.get_ref()).send_with_flags(bytes, libc::MSG_MORE)?;
        bytes = &bytes[sent..];
    }
    wire.get_ref().shutdown(Shutdown::Both)
}

/// Carries out a step; says whether the connection goes on.
fn take(wire: &mut BufReader<TcpStream>, step: &Step) -> io::Result<bool> {
    match step {
        Step::Send(bytes) => wire.get_mut().write_all(bytes)?,
        Step::Endless(bytes) => {
            for _ in 0..100_000_000 / bytes.len() {
                wire.get_mut().write_all(bytes)?;
            }
        }
        Step::Hang => {
            io::copy(wire, &mut io::sink())?;
            return Ok(false);
        }
        Step::Close | Step::Reset => return Ok(false),
    }
    Ok(true)
}

/// Reads the fields and the body behind a request's first line, and hands them on as they come.
fn read_request(wire: &mut impl BufRead, add: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let line = read_line(wire, add)?;
        let text = String::from_utf8_lossy(&line).to_lowercase();
        match text.trim_end().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().unwrap_or(0),
            Some(("transfer-encoding", _)) => is_chunked = true,
            _ if text.trim_end().is_empty() => break,
            _ => {}
        }
    }
    if !is_chunked {
        return read_bytes(wire, length, add);
    }
    loop {
        let line = read_line(wire, add)?;
        let text = String::from_utf8_lossy(&line).into_owned();
        let size = u64::from_str_radix(text.trim_end(), 16);
        let size = size.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if size == 0 {
            while !read_line(wire, add)?.trim_ascii().is_empty() {}
            return Ok(());
        }
        read_bytes(wire, size + 2, add)?;
    }
}

fn read_line(wire: &mut impl BufRead, add: &mut impl FnMut(&[u8])) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    wire.read_until(b'\n', &mut line)?;
    add(&line);
    if line.ends_with(b"\n") { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn read_bytes(wire: &mut impl Read, length: u64, add: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let mut bytes = Vec::new();
    let read = wire.take(length).read_to_end(&mut bytes)?;
    add(&bytes);
    if read as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// A message as text to compare: lines by their names, for the order of different names means
/// nothing (RFC 9110 §5.3), and all bytes that are not printable escaped. `leave_out` says whose
/// values are random.
pub fn told(raw: &[u8], leave_out: &[&str]) -> String {
    let text = raw.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\"");
    let text = text.replace("\\\\", "\\");
    let (head, body) = text.split_once(r"\r\n\r\n").unwrap_or((&text, "<no end of the head>"));
    let mut lines: Vec<_> = head.split(r"\r\n").collect();
    let first = lines.remove(0);
    lines.retain(|line| !leave_out.contains(&name_of(line)));
    lines.sort_by_key(|line| name_of(line));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let end = if body.is_empty() { "" } else { "\n" };
    format!("{first}\n{lines}{end}{body}")
}

/// The name of a field line.
pub fn name_of(line: &str) -> &str {
    line.split(':').next().unwrap_or(line)
}
