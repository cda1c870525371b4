//! A relay before a server that can lose an answer: the question arrives, and the connection breaks. It
//! can hold up all answers, too, or those of some connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Listens on a loopback port of its own until the process of the test ends.
pub struct Relay {
    address: SocketAddr,
    server: Arc<AtomicU16>,
    doomed: DoomedWord,
    hold: Arc<Hold>,
}

/// Whether answers are held up.
#[derive(Default)]
struct Hold {
    what: Mutex<HeldAnswers>,
    ends: Condvar,
    /// Connections that have asked with the word.
    caught: AtomicUsize,
}

/// Which answers are held up.
#[derive(Default)]
struct HeldAnswers {
    all: bool,
    /// Those of connections that have asked with this word in it.
    word: Option<&'static str>,
}

/// The word that makes a question one whose answer is lost. It is taken by the first that has it.
type DoomedWord = Arc<Mutex<Option<&'static str>>>;

impl Relay {
    /// Relays to a port on this machine.
    pub fn start(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(AtomicU16::new(port));
        let to = Arc::clone(&server);
        let doomed = DoomedWord::default();
        let hold = Arc::<Hold>::default();
        let (word, held) = (Arc::clone(&doomed), Arc::clone(&hold));
        thread::spawn(move || {
            for client in listener.incoming() {
                relay(client.unwrap(), to.load(Ordering::SeqCst), &word, &held);
            }
        });
        Self { address, server, doomed, hold }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// New connections reach another port from now on, as where a name is given to another server.
    pub fn lead_to(&self, port: u16) {
        self.server.store(port, Ordering::SeqCst);
    }

    /// Nothing comes back until [`Self::pass`].
    pub fn hold(&self) {
        self.hold.what.lock().unwrap().all = true;
    }

    /// Nothing comes back on connections that ask with `word` in it from now on, until [`Self::pass`].
    pub fn hold_those_that_ask(&self, word: &'static str) {
        self.hold.what.lock().unwrap().word = Some(word);
    }

    /// How many connections were held up by their word.
    pub fn caught(&self) -> usize {
        self.hold.caught.load(Ordering::SeqCst)
    }

    /// What was held up comes, and all that follows.
    pub fn pass(&self) {
        *self.hold.what.lock().unwrap() = HeldAnswers::default();
        self.hold.ends.notify_all();
    }

    /// The next question that holds `word` gets no answer.
    pub fn lose_answer_to(&self, word: &'static str) {
        *self.doomed.lock().unwrap() = Some(word);
    }
}

fn relay(client: TcpStream, port: u16, doomed: &DoomedWord, hold: &Arc<Hold>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    let (to_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (doomed, hold) = (Arc::clone(doomed), Arc::clone(hold));
    let is_caught = Arc::<AtomicBool>::default();
    let (asking, answering) = (Arc::clone(&hold), Arc::clone(&is_caught));
    thread::spawn(move || ask(client, to_server, &doomed, &asking, &is_caught));
    thread::spawn(move || answer(server, to_client, &hold, &answering));
}

fn ask(
    mut client: TcpStream,
    mut server: TcpStream,
    doomed: &DoomedWord,
    hold: &Hold,
    is_caught: &AtomicBool,
) {
    let mut buffer = [0; 64 << 10];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let is_doomed = doomed.lock().unwrap().take_if(|word| text.contains(*word)).is_some();
        if is_doomed {
            // First, so that no answer can overtake it.
            let _ = client.shutdown(Shutdown::Both);
        }
        let is_held = hold.what.lock().unwrap().word.is_some_and(|word| text.contains(word));
        if is_held && !is_caught.swap(true, Ordering::SeqCst) {
            hold.caught.fetch_add(1, Ordering::SeqCst);
        }
        if server.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
}

/// Reads to the end, even if the client is gone: a server cut off in its answer would be another case.
fn answer(mut server: TcpStream, mut client: TcpStream, hold: &Hold, is_caught: &AtomicBool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let is_held = |held: &mut HeldAnswers| {
            held.all || (held.word.is_some() && is_caught.load(Ordering::SeqCst))
        };
        drop(hold.ends.wait_while(hold.what.lock().unwrap(), is_held).unwrap());
        let _ = client.write_all(&buffer[..length]);
    }
    let _ = client.shutdown(Shutdown::Both);
}
