//! A visitor's end: requests byte for byte, and answers as they came.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use socket2::{Domain, Socket, Type};

use super::DEADLINE;
use super::wire::{Body, Fields, Framing, Wire};

/// The site that visitors ask for, unless a case says otherwise.
pub const SITE: &str = "shop.test";

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub reason: String,
    pub fields: Fields,
    pub body: Body,
}

impl Answer {
    /// The value of the first line of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body.bytes).into_owned()
    }

    /// What the proxy says of the cache, empty when it says nothing.
    pub fn cache_status(&self) -> &str {
        self.header("cache-status").unwrap_or("")
    }

    /// Whether it came from the cache, by the proxy's word.
    pub fn is_hit(&self) -> bool {
        self.cache_status().split(';').any(|part| part.trim() == "hit")
    }

    /// The value of the cookie that this answer sets, without its attributes.
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.set_cookie(name)?
            .split(';')
            .next()
            .and_then(|pair| pair.split_once('='))
            .map(|(_, value)| value.to_owned())
    }

    /// The whole `Set-Cookie` line for a cookie.
    pub fn set_cookie(&self, name: &str) -> Option<&str> {
        self.fields
            .all("set-cookie")
            .find(|line| line.split_once('=').is_some_and(|(have, _)| have == name))
    }
}

/// An answer whose head is there and whose body is still to come.
#[derive(Debug)]
pub struct AnswerHead {
    answer: Answer,
    framing: Framing,
}

/// A connection that a visitor keeps open.
#[derive(Debug)]
pub struct Client(Wire);

impl Client {
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap()
    }

    /// A connection, if something listens at the address.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Ok(Self(Wire::new(stream)))
    }

    /// A connection of a visitor at this address of the loopback.
    pub fn open_from(visitor: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((visitor, 0)).into()).unwrap();
        socket.connect_timeout(&address.into(), DEADLINE).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.set_write_timeout(Some(DEADLINE)).unwrap();
        Self(Wire::new(socket.into()))
    }

    /// A connection to a Unix socket.
    pub fn unix(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).unwrap())
    }

    /// A connection that is made already.
    pub fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        // What is done with it here is the same for both kinds.
        Self(Wire::over(TcpStream::from(OwnedFd::from(stream))))
    }

    /// Sends exactly these bytes. A proxy that closed meanwhile is no failure here: its answer,
    /// or the lack of one, is what a case looks at.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.socket().write_all(bytes).is_ok()
    }

    /// Ends one side of the connection, or both.
    pub fn shut(&mut self, how: Shutdown) {
        // It may have ended already.
        drop(self.0.socket().shutdown(how));
    }

    /// The answer to a request that was no HEAD.
    pub fn answer(&mut self) -> Answer {
        self.try_answer("GET").expect("an answer within the deadline")
    }

    /// The answer to a request of that method, or `None` when the connection ended instead.
    pub fn try_answer(&mut self, method: &str) -> Option<Answer> {
        let (answer, framing) = self.try_head(method)?;
        Some(Answer { body: self.0.body(framing), ..answer })
    }

    /// The head of the answer to a request that was no HEAD; its body is still to come.
    pub fn head(&mut self) -> AnswerHead {
        let (answer, framing) = self.try_head("GET").expect("a head within the deadline");
        AnswerHead { answer, framing }
    }

    /// The rest of what began.
    pub fn rest(&mut self, begun: AnswerHead) -> Answer {
        Answer { body: self.0.body(begun.framing), ..begun.answer }
    }

    fn try_head(&mut self, method: &str) -> Option<(Answer, Framing)> {
        loop {
            let head = self.0.head().ok()??;
            let mut words = head.first.splitn(3, ' ').skip(1);
            let status: u16 = words.next()?.parse().ok()?;
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let silent = method == "HEAD" || matches!(status, 204 | 304);
            let framing = Framing::of(&head.fields, Framing::UntilClose);
            let framing = if silent { Framing::Nothing } else { framing };
            let reason = words.next().unwrap_or("").to_owned();
            let answer = Answer { status, reason, fields: head.fields, body: Body::default() };
            return Some((answer, framing));
        }
    }

    /// The status of the next head alone, interim ones included.
    pub fn next_status(&mut self) -> Option<u16> {
        self.0.head().ok()??.first.split(' ').nth(1)?.parse().ok()
    }

    /// Reads until `end` has come; what came so far, heads included.
    pub fn until(&mut self, end: &str) -> String {
        let mut came = Vec::new();
        while !came.ends_with(end.as_bytes()) {
            let byte = self.0.byte().unwrap_or_else(|error| {
                panic!("{error} before {end:?}, behind {:?}", String::from_utf8_lossy(&came))
            });
            came.push(byte);
        }
        String::from_utf8_lossy(&came).into_owned()
    }

    /// The client is gone; the proxy has noticed when this returns.
    pub fn leave(mut self) {
        self.0.socket().shutdown(Shutdown::Write).unwrap();
        assert!(self.is_closed(), "the proxy closes its side, too");
    }

    /// Whether the proxy has ended this connection already. To be asked between an answer and the next request.
    pub fn has_ended(&mut self) -> bool {
        let socket = self.0.socket();
        socket.set_nonblocking(true).unwrap();
        let seen = socket.peek(&mut [0]);
        socket.set_nonblocking(false).unwrap();
        match seen {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Whether the proxy ends this connection within the deadline, and does not reset it.
    pub fn is_ended_well(&mut self) -> bool {
        self.0.socket().read_to_end(&mut Vec::new()).is_ok()
    }

    /// Whether the proxy ends this connection within the deadline.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = [0_u8; 4096];
        loop {
            match self.0.socket().read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                }
            }
        }
    }
}

/// A request in the making.
#[derive(Clone, Debug)]
pub struct Ask {
    address: SocketAddr,
    method: String,
    target: String,
    host: String,
    lines: String,
    body: Option<Vec<u8>>,
}

impl Ask {
    pub fn new(address: SocketAddr, method: &str, target: &str) -> Self {
        Self {
            address,
            method: method.to_owned(),
            target: target.to_owned(),
            host: SITE.to_owned(),
            lines: String::new(),
            body: None,
        }
    }

    /// Asks for another site than [`SITE`].
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    pub fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.lines += &format!("{name}: {value}\r\n");
        self
    }

    pub fn cookie(self, value: &str) -> Self {
        self.header("Cookie", value)
    }

    /// The same from an address of the user's own, where the proxy trusts the sender.
    pub fn cookie_at_home(self, value: &str) -> Self {
        let mut hash = DefaultHasher::new();
        value.hash(&mut hash);
        let [a, b, c, ..] = hash.finish().to_be_bytes();
        self.cookie(value).header("X-Forwarded-For", &format!("10.{a}.{b}.{c}"))
    }

    pub fn body(mut self, bytes: &[u8]) -> Self {
        self.body = Some(bytes.to_vec());
        self
    }

    /// Sends it on a connection of its own.
    pub fn send(&self) -> Answer {
        self.send_on(&mut Client::open(self.address))
    }

    /// Sends it on a connection that is open already.
    pub fn send_on(&self, client: &mut Client) -> Answer {
        self.try_send_on(client).expect("an answer within the deadline")
    }

    /// The same, `None` where the connection ended without an answer.
    pub fn try_send_on(&self, client: &mut Client) -> Option<Answer> {
        client.send(&self.bytes());
        client.try_answer(&self.method)
    }

    /// Sends it on a connection of its own and waits for nothing.
    pub fn start(&self) -> Client {
        let mut client = Client::open(self.address);
        self.start_on(&mut client);
        client
    }

    /// The same on a connection that is open already.
    pub fn start_on(&self, client: &mut Client) {
        client.send(&self.bytes());
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { method, target, host, lines, body, .. } = self;
        let length =
            body.as_ref().map_or_else(String::new, |b| format!("Content-Length: {}\r\n", b.len()));
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}{length}\r\n");
        [head.as_bytes(), body.as_deref().unwrap_or_default()].concat()
    }
}
