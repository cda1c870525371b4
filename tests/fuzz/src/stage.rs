//! The whole proxy in this process, between clients and an origin that do what the input says.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anteroom::app::Application;
use anteroom_config::{ConfigSources, Plan};
use anteroom_http::ident::{StoredToken, User};
use anteroom_store::traits::*;
use anteroom_store::{Layout, OpenStore, StoreLimits, StoreSettings, Url};

/// How long a connection may take to end, far beyond all deadlines of the proxy here.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of a request that the origin reads.
const REQUEST_MAX: usize = 256 << 10;

/// What the origin does with a request: it gets the bytes, and gives those of the answer.
type Answer = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;

/// The proxy, and how its origin answers.
pub(crate) struct Stage {
    address: SocketAddr,
    answer: Arc<Mutex<Arc<Answer>>>,
}

/// How the proxy answered.
pub(crate) struct Came {
    pub(crate) bytes: Vec<u8>,
    /// Whether the connection ended in good order, and not by a reset.
    pub(crate) in_order: bool,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// Starts it all; it ends with the process. `users` have the sessions of these tokens.
    pub(crate) fn start(settings: &str, users: &'static [(&str, &str)]) -> Self {
        let silent: Arc<Answer> = Arc::new(|_: &[u8]| Vec::new());
        let answer = Arc::new(Mutex::new(silent));
        let origin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let at = origin.local_addr().expect("an address");
        let held = Arc::clone(&answer);
        thread::spawn(move || {
            for stream in origin.incoming().flatten() {
                let held = Arc::clone(&held);
                thread::spawn(move || serve(stream, &held));
            }
        });
        let folder = std::env::temp_dir().join(format!("anteroom-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let text = format!(
            "threads = 1\n\
             listen = [{{ address = \"127.0.0.1:0\" }}]\n\
             origin = {{ url = \"http://{at}\", connect_timeout = \"1s\", first_byte_timeout = \"200ms\", between_bytes_timeout = \"200ms\" }}\n\
             store = {{ url = \"embedded:{data}\", timeout = \"5s\", pages = \"1MiB\" }}\n\
             session = {{ token_storage = \"plain\", cookie = \"login\" }}\n\
             cache = {{ memory = \"1MiB\", max_object = \"8KiB\", compress = [] }}\n\
             admin = {{ address = \"off\", socket = \"off\" }}\n\
             log.access = \"off\"\n\
             limits = {{ head_timeout = \"100ms\", idle_timeout = \"100ms\", stall_timeout = \"100ms\", in_flight = \"1MiB\" }}\n\
             {settings}",
            data = folder.join("data").display(),
        );
        log_in(&folder.join("data"), users);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let file = Some((folder.join("proxy.toml"), text));
            let sources = ConfigSources { file, ..ConfigSources::default() };
            let (plan, _) = Plan::read(&sources).expect("a plan");
            let app = Application::open(plan).expect("it opens");
            tell.send(app.addresses()[0]).expect("the caller waits");
            run(app);
        });
        Self { address: told.recv().expect("the proxy starts"), answer }
    }

    /// From now on the origin answers so.
    pub(crate) fn answer(&self, answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) {
        *lock(&self.answer) = Arc::new(answer);
    }

    /// Sends the bytes on a connection of its own, and waits for its end.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Came {
        let mut stream = TcpStream::connect(self.address).expect("the proxy accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        // Where the proxy has closed already it says so in what follows.
        drop(stream.write_all(bytes));
        let mut came = Came { bytes: Vec::new(), in_order: false };
        let mut part = [0; 4096];
        loop {
            match stream.read(&mut part) {
                Ok(0) => {
                    came.in_order = true;
                    return came;
                }
                Ok(read) => came.bytes.extend_from_slice(&part[..read]),
                Err(error) => {
                    use std::io::ErrorKind::{TimedOut, WouldBlock};
                    let ends = !matches!(error.kind(), TimedOut | WouldBlock);
                    assert!(ends, "the connection does not end");
                    return came;
                }
            }
        }
    }
}

fn run(app: Application) {
    app.run(|| Err(Vec::new())).expect("it runs");
}

/// Answers one request, and ends the connection.
fn serve(mut stream: TcpStream, answer: &Mutex<Arc<Answer>>) {
    if stream.set_read_timeout(Some(Duration::from_millis(300))).is_err() {
        return;
    }
    let Some(request) = read_request(&mut stream) else { return };
    let answer = Arc::clone(&lock(answer));
    drop(stream.write_all(&answer(&request)));
    drop(stream.shutdown(Shutdown::Write));
}

/// A request with its body, as far as that comes.
fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    loop {
        let head = find(&request, b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head
            && is_whole(&request, head)
        {
            return Some(request);
        }
        match stream.read(&mut part) {
            Ok(read) if read > 0 && request.len() < REQUEST_MAX => {
                request.extend_from_slice(&part[..read]);
            }
            _ => return head.map(|_| request),
        }
    }
}

fn is_whole(request: &[u8], head: usize) -> bool {
    let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
    if text.contains("\r\ntransfer-encoding:") {
        return request[head..].ends_with(b"\r\n\r\n") || request[head..].starts_with(b"0\r\n\r\n");
    }
    let length = text.split("\r\n").find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    request.len() - head >= length
}

/// Where `part` begins in `whole`.
pub(crate) fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    whole.windows(part.len()).position(|window| window == part)
}

/// Gives each user a session.
fn log_in(data: &std::path::Path, users: &[(&str, &str)]) {
    let patience = Duration::from_secs(10);
    let limits = StoreLimits {
        read_timeout: patience,
        write_timeout: patience,
        viewed_items: 25,
        pages: 1 << 20,
        max_page: 1 << 20,
    };
    let settings = StoreSettings {
        url: Url::Embedded(data.to_owned()),
        prefix: String::new(),
        layout: Layout::Single,
        limits,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let open = OpenStore::open(&settings).await.expect("a store");
        let store = open.thread_handle();
        store.connected().await;
        for (token, user) in users {
            let token = StoredToken::from_store(token.as_bytes()).expect("a token");
            let user = User::new(user.as_bytes()).expect("a user");
            store.update_token(&token, &user, None, 1.0).await.expect("it is written");
        }
        drop(store);
        open.close().await;
    });
}
