//! An origin on real sockets that says what a case tells it to, byte for byte, and remembers
//! every request that it saw.

use std::io::{self, Write};
use std::mem;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::DEADLINE;
use super::wire::{Body, Fields, Framing, Wire};

/// A request as the origin saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which connection it came on.
    pub connection: usize,
    /// The how-many-eth on that connection, from 1.
    pub nth: usize,
    pub method: String,
    pub target: String,
    pub fields: Fields,
    pub body: Body,
}

impl Request {
    /// The value of the first line of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or("")
    }
}

/// A step in sending a response.
#[derive(Clone, Debug)]
enum Step {
    Bytes(Vec<u8>),
    /// The same, also in answer to a HEAD.
    Raw(Vec<u8>),
    /// So many bytes of filling.
    Filling(u64),
    /// Nothing more until the case opens the gate.
    Gate(Arc<Gate>),
    /// Nothing more until the proxy goes away.
    Hang,
    /// The connection ends here.
    Close,
}

/// A response: the head, then steps.
#[derive(Clone, Debug)]
pub struct Reply {
    delay: Duration,
    head: String,
    steps: Vec<Step>,
}

impl Reply {
    /// A response with this status and reason phrase, `"200 OK"`, and no body yet.
    pub fn status(status: &str) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n");
        Self { delay: Duration::ZERO, head, steps: Vec::new() }
    }

    /// A page.
    pub fn html(body: &str) -> Self {
        Self::typed("text/html; charset=utf-8", body)
    }

    /// A page that no cache may keep.
    pub fn unstored(body: &str) -> Self {
        Self::typed("text/plain", body).header("Cache-Control", "no-store")
    }

    /// A 200 of that type.
    pub fn typed(kind: &str, body: &str) -> Self {
        Self::status("200 OK").header("Content-Type", kind).body(body)
    }

    /// Exactly these bytes; then the connection ends.
    pub fn raw(bytes: &[u8]) -> Self {
        let steps = vec![Step::Raw(bytes.to_vec()), Step::Close];
        Self { delay: Duration::ZERO, head: String::new(), steps }
    }

    /// Interim responses, byte for byte; behind the gate a page with these lines.
    pub fn hints(interim: &str, gate: &Arc<Gate>, lines: &str) -> Self {
        let page = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 5\r\n\r\nhello");
        let whole = Self { delay: Duration::ZERO, head: String::new(), steps: Vec::new() };
        whole.bytes(interim).until(gate).bytes(&page)
    }

    /// No answer: the connection ends.
    pub fn nothing() -> Self {
        Self::raw(b"")
    }

    /// No answer, and the connection stays.
    pub fn silence() -> Self {
        Self { delay: Duration::ZERO, head: String::new(), steps: vec![Step::Hang] }
    }

    /// Adds a field, at any time: a body is added behind the head whatever the order.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    /// A body with its `Content-Length`.
    pub fn body(self, body: impl AsRef<[u8]>) -> Self {
        let length = body.as_ref().len().to_string();
        self.header("Content-Length", &length).step(Step::Bytes(body.as_ref().to_vec()))
    }

    /// A body of that many bytes of filling, with its `Content-Length`.
    pub fn filling(self, length: u64) -> Self {
        self.header("Content-Length", &length.to_string()).step(Step::Filling(length))
    }

    /// A chunked body, with trailers. An empty chunk would end it, so there is none.
    pub fn chunks(self, chunks: &[&str], trailers: &[(&str, &str)]) -> Self {
        let mut reply = self.header("Transfer-Encoding", "chunked");
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            reply = reply.bytes(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
        }
        let trailers: String = trailers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        reply.bytes(&format!("0\r\n{trailers}\r\n"))
    }

    /// These bytes behind the head, as they are.
    pub fn bytes(self, bytes: &str) -> Self {
        self.step(Step::Bytes(bytes.as_bytes().to_vec()))
    }

    /// The head and the bytes behind it in one write: a proxy never has the one without the other.
    pub fn in_one_write(mut self) -> Self {
        let mut whole = format!("{}\r\n", mem::take(&mut self.head)).into_bytes();
        for step in self.steps.drain(..) {
            let Step::Bytes(bytes) = step else { panic!("{step:?} is not written with a head") };
            whole.extend(bytes);
        }
        self.step(Step::Raw(whole))
    }

    /// The connection ends here.
    pub fn closing(self) -> Self {
        self.step(Step::Close)
    }

    /// Nothing more until the case opens the gate.
    pub fn until(self, gate: &Arc<Gate>) -> Self {
        self.step(Step::Gate(Arc::clone(gate)))
    }

    /// Nothing more from here on, and the connection stays.
    pub fn hanging(self) -> Self {
        self.step(Step::Hang)
    }

    /// How long the origin thinks before its head.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

struct OriginState {
    handler: Box<Handler>,
    seen: Mutex<Vec<Request>>,
    sockets: Mutex<Vec<TcpStream>>,
    busy: AtomicUsize,
    stopped: AtomicBool,
}

/// The running origin; it ends on Drop.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<OriginState>,
}

impl Origin {
    /// Starts one that answers each request as `handler` says; the handler may block.
    pub fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), handler)
    }

    /// Starts one at this address.
    pub fn at(
        address: SocketAddr,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(OriginState {
            handler: Box::new(handler),
            seen: Mutex::default(),
            sockets: Mutex::default(),
            busy: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Self { address, shared }
    }

    /// Starts one that gives this answer to everything.
    pub fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone())
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request seen so far, in the order of arrival.
    pub fn seen(&self) -> Vec<Request> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many requests it saw.
    pub fn count(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }

    /// The newest request.
    pub fn last(&self) -> Request {
        self.seen().pop().expect("the origin saw a request")
    }

    /// How many responses it is busy with.
    pub fn busy(&self) -> usize {
        self.shared.busy.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for socket in self.shared.sockets.lock().unwrap().iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        // Wakes the thread that waits in accept.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<OriginState>) {
    for (connection, stream) in listener.incoming().enumerate() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let stream = stream.unwrap();
        shared.sockets.lock().unwrap().push(stream.try_clone().unwrap());
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let mut wire = Wire::new(stream);
            // An error is a proxy that went away, which cases do on purpose.
            let _ = converse(connection, &mut wire, &shared);
            let _ = wire.socket().shutdown(Shutdown::Both);
        });
    }
}

/// Answers one request after the other until one side closes.
fn converse(connection: usize, wire: &mut Wire, shared: &OriginState) -> io::Result<()> {
    for nth in 1.. {
        let Some(head) = wire.head()? else { return Ok(()) };
        let mut words = head.first.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let body = wire.body(Framing::of(&head.fields, Framing::Nothing));
        let request = Request { connection, nth, method, target, fields: head.fields, body };
        shared.seen.lock().unwrap().push(request.clone());
        shared.busy.fetch_add(1, Ordering::SeqCst);
        let sent = send(wire.socket(), &(shared.handler)(&request), request.method == "HEAD");
        shared.busy.fetch_sub(1, Ordering::SeqCst);
        if !sent? {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends a reply; says whether the connection may go on.
#[expect(clippy::disallowed_methods, reason = "a slow origin is slow: this thread is its own")]
fn send(socket: &mut TcpStream, reply: &Reply, without_body: bool) -> io::Result<bool> {
    thread::sleep(reply.delay);
    if let [Step::Close] = reply.steps[..] {
        // The end travels with the head: what the proxy sees must not depend on the time between the two.
        socket2::SockRef::from(&*socket).set_tcp_cork(true)?;
    }
    if !reply.head.is_empty() {
        socket.write_all(format!("{}\r\n", reply.head).as_bytes())?;
    }
    for step in &reply.steps {
        match step {
            Step::Bytes(_) | Step::Filling(_) if without_body => {}
            Step::Bytes(bytes) | Step::Raw(bytes) => socket.write_all(bytes)?,
            Step::Filling(length) => fill(socket, *length)?,
            Step::Gate(gate) => gate.pass(),
            Step::Hang => return hang(socket),
            Step::Close => return Ok(false),
        }
    }
    Ok(true)
}

fn fill(socket: &mut TcpStream, length: u64) -> io::Result<()> {
    let filling = io::Read::take(io::repeat(b'x'), length);
    io::copy(&mut io::BufReader::with_capacity(64 << 10, filling), socket).map(|_| ())
}

/// Waits for the other side to go away.
fn hang(socket: &mut TcpStream) -> io::Result<bool> {
    socket.set_read_timeout(Some(6 * DEADLINE))?;
    let mut ignored = [0_u8; 1024];
    while io::Read::read(socket, &mut ignored)? > 0 {}
    Ok(false)
}

/// A place where requests wait for each other inside the origin: the proof that they ran side by
/// side, without looking at a clock.
#[derive(Debug)]
pub struct Rendezvous {
    expected: usize,
    arrived: Mutex<usize>,
    all_here: Condvar,
}

impl Rendezvous {
    pub fn of(expected: usize) -> Arc<Self> {
        Arc::new(Self { expected, arrived: Mutex::new(0), all_here: Condvar::new() })
    }

    /// Waits until as many as expected are here; gives up after the deadline.
    pub fn arrive(&self) {
        let mut arrived = self.arrived.lock().unwrap();
        *arrived += 1;
        self.all_here.notify_all();
        drop(
            self.all_here
                .wait_timeout_while(arrived, DEADLINE / 2, |arrived| *arrived < self.expected)
                .unwrap(),
        );
    }

    /// Whether as many as expected came while none had to give up waiting.
    pub fn is_complete(&self) -> bool {
        *self.arrived.lock().unwrap() >= self.expected
    }
}

/// A gate inside the origin: what stands behind it waits until the case opens it.
#[derive(Debug, Default)]
pub struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn closed() -> Arc<Self> {
        Arc::default()
    }

    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub fn is_open(&self) -> bool {
        *self.is_open.lock().unwrap()
    }

    /// Waits until it is open; gives up after the deadline, so that no thread is left behind.
    pub fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_timeout_while(is_open, DEADLINE, |is_open| !*is_open).unwrap());
    }
}
