//! An epoll loop that answers fixed bytes: what a request costs in the kernel, whoever answers it.
//!
//!     floor PORT CLOSING_PORT
//!
//! One thread, edge-triggered: one read and one write a request, and a wait for all that are ready. The
//! target says how long the body is; nothing else of a request is looked at. On the closing port a connection
//! ends with its first answer.

use std::collections::HashMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};

const KEEPING: Token = Token(0);
const CLOSING: Token = Token(1);

struct Connection {
    stream: TcpStream,
    closes: bool,
    /// What the socket did not take yet of an answer.
    rest: &'static [u8],
}

/// What is answered to heads that begin so.
struct Answer {
    begins: &'static [u8],
    bytes: &'static [u8],
    closing: &'static [u8],
}

fn main() -> Result<(), Box<dyn Error>> {
    let answers =
        [answer("GET /hit/256k", 256 << 10), answer("GET /hit/16k", 16 << 10), answer("", 1 << 10)];
    let mut poll = Poll::new()?;
    let listeners = [listen(&poll, KEEPING)?, listen(&poll, CLOSING)?];
    let mut connections = HashMap::new();
    let mut next = 2;
    let mut events = Events::with_capacity(1024);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            let token = event.token();
            if token == KEEPING || token == CLOSING {
                accept(&listeners[token.0], token, poll.registry(), &mut connections, &mut next);
            } else if let Some(connection) = connections.get_mut(&token)
                && (connection.serve(&answers).is_none() || event.is_read_closed())
            {
                connections.remove(&token);
            }
        }
    }
}

fn answer(begins: &'static str, length: usize) -> Answer {
    let whole = |field| -> &'static [u8] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{field}\r\n");
        (head + &"x".repeat(length)).into_bytes().leak()
    };
    Answer { begins: begins.as_bytes(), bytes: whole(""), closing: whole("connection: close\r\n") }
}

fn listen(poll: &Poll, token: Token) -> Result<TcpListener, Box<dyn Error>> {
    let port = std::env::args().nth(token.0 + 1).ok_or("usage: floor PORT CLOSING_PORT")?;
    let mut listener = TcpListener::bind(format!("127.0.0.1:{port}").parse()?)?;
    poll.registry().register(&mut listener, token, Interest::READABLE)?;
    Ok(listener)
}

fn accept(
    listener: &TcpListener,
    from: Token,
    registry: &Registry,
    connections: &mut HashMap<Token, Connection>,
    next: &mut usize,
) {
    while let Ok((mut stream, _)) = listener.accept() {
        let token = Token(*next);
        *next += 1;
        let both = Interest::READABLE | Interest::WRITABLE;
        if stream.set_nodelay(true).is_ok() && registry.register(&mut stream, token, both).is_ok() {
            connections.insert(token, Connection { stream, closes: from == CLOSING, rest: &[] });
        }
    }
}

impl Connection {
    /// Writes what is due; nothing when the connection is over.
    fn serve(&mut self, answers: &[Answer]) -> Option<()> {
        if !self.rest.is_empty() {
            return self.write();
        }
        let mut head = [0; 4096];
        let length = match self.stream.read(&mut head) {
            Ok(0) => return None,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(()),
            Err(_) => return None,
        };
        let answer = answers.iter().find(|answer| head[..length].starts_with(answer.begins))?;
        self.rest = if self.closes { answer.closing } else { answer.bytes };
        self.write()
    }

    fn write(&mut self) -> Option<()> {
        while !self.rest.is_empty() {
            match self.stream.write(self.rest) {
                Ok(written) => self.rest = &self.rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(()),
                Err(_) => return None,
            }
        }
        (!self.closes).then_some(())
    }
}
