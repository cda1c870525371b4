//! The real binary before an origin, with a configuration of the case's own in a temporary folder.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;

use super::client::{Answer, Ask, Client};
use super::origin::{Origin, Reply};
use super::redis::RedisServer;
use super::{DEADLINE, every_key, free_port, holds_within, on_cluster, wait_until};

/// The binary under test: the one that `ANTEROOM_BINARY` names, or the one that was built beside the tests. Stops
/// where that is older than the source, because a test would then judge what no longer is.
pub fn binary() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        if let Ok(path) = std::env::var("ANTEROOM_BINARY") {
            return path;
        }
        let own = std::env::current_exe().unwrap();
        let path = own.ancestors().nth(2).expect("the folder of the profile").join("anteroom");
        if let Some(why) = outdated(&path) {
            panic!("{why}; build it: cargo test --workspace --no-run, or tests/run one FILTER");
        }
        path.into_os_string().into_string().expect("a path in UTF-8")
    });
    &PATH
}

/// Why the binary is not the one of today's source, by the list of files that cargo writes beside it.
fn outdated(path: &Path) -> Option<String> {
    let Ok(built) = path.metadata().and_then(|it| it.modified()) else {
        return Some(format!("{} is not there", path.display()));
    };
    let list = fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let files = list.split_once(": ").map_or("", |(_, files)| files);
    let is_newer =
        |file: &&str| fs::metadata(file).and_then(|it| it.modified()).is_ok_and(|it| it > built);
    let newer = files.split_whitespace().find(is_newer)?;
    Some(format!("{} is older than {newer}", path.display()))
}

/// A command of the binary under test.
pub fn anteroom() -> Command {
    Command::new(binary())
}

/// Where a proxy keeps its state.
pub enum Storage {
    Embedded,
    Redis(RedisServer),
}

impl Storage {
    /// A Redis of the case's own.
    pub fn redis() -> Self {
        Self::Redis(RedisServer::start())
    }

    /// An empty one of the same kind.
    pub fn another(&self) -> Self {
        on_cluster::begin_another();
        match self {
            Self::Embedded => Self::Embedded,
            Self::Redis(_) => Self::redis(),
        }
    }

    /// The embedded store's folder lies beside the configuration, where the process runs.
    fn url(&self) -> String {
        match self {
            Self::Embedded => "embedded:./data".to_owned(),
            Self::Redis(server) => server.url(),
        }
    }
}

/// Makes two tests of each case `fn(&Storage)`: one on the embedded store and one on Redis.
#[macro_export]
macro_rules! on_both_stores {
    ($($case:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $case() { super::$case(&$crate::proxy::Storage::Embedded); })+
        }
        mod redis {
            $(#[test] fn $case() { super::$case(&$crate::proxy::Storage::redis()); })+
        }
    };
}
pub use crate::on_both_stores;

/// The same, a third test of each case with every key on that must change nothing, and a fourth on a Cluster.
#[macro_export]
macro_rules! on_all_stores_and_with_every_key {
    ($($case:ident),+ $(,)?) => {
        $crate::proxy::on_both_stores!($($case),+);
        mod with_every_key {
            $(#[test] fn $case() {
                $crate::every_key::turn_on();
                super::$case(&$crate::proxy::Storage::Embedded);
            })+
        }
        mod cluster {
            $(#[test] fn $case() {
                $crate::on_cluster::turn_on();
                super::$case(&$crate::proxy::Storage::Embedded);
            })+
        }
    };
}
pub use crate::on_all_stores_and_with_every_key;

/// A running proxy; it is killed on Drop.
pub struct Proxy {
    child: Child,
    listen: SocketAddr,
    admin: SocketAddr,
    folder: TempDir,
}

impl Proxy {
    /// Starts one before `origin`. `settings` are lines of TOML: first top-level dotted keys
    /// (`session.mint = true`), then `[[route]]` tables. Where `listen = […]` is among them, `{listen}` in
    /// it is the address of this proxy.
    pub fn start(origin: &Origin, storage: &Storage, settings: &str) -> Self {
        Self::before(origin.address(), storage, settings)
    }

    /// Starts one on the embedded store.
    pub fn embedded(origin: &Origin, settings: &str) -> Self {
        Self::start(origin, &Storage::Embedded, settings)
    }

    /// Starts one whose `settings` say where the store is: `store.url = …` must be among them.
    pub fn with_settings(origin: &Origin, settings: &str) -> Self {
        Self::launch(origin.address(), "", settings)
    }

    /// Starts one before whatever is, or is not, at `origin`. A look-up waits for the store for as long as it takes on
    /// a busy machine, unless `settings` say how long: what is answered without it is another answer.
    pub fn before(origin: SocketAddr, storage: &Storage, settings: &str) -> Self {
        Self::launch(origin, &on(storage, settings), settings)
    }

    /// The same, with time for the store to write what other proxies have a quarter of a second for.
    pub fn patient(origin: SocketAddr, storage: &Storage, settings: &str) -> Self {
        let spawn = |folder: &Path| run(folder).env("ANTEROOM_PATIENCE", "20").spawn().unwrap();
        Self::launch_by(spawn, origin, &on(storage, settings), settings)
    }

    /// Starts one that inherits the listening socket `web`, as from systemd.
    pub fn inheriting(origin: &Origin, socket: OwnedFd, settings: &str) -> Self {
        let store = "store.url = \"embedded:./data\"";
        let passed = "exec 3<&0 0</dev/null; export LISTEN_PID=$$; \
                      exec \"$0\" run --config proxy.toml";
        let mut proxy = Self::try_launch(origin.address(), store, settings, |folder| {
            Command::new("sh")
                .args(["-c", passed, binary()])
                .env("LISTEN_FDS", "1")
                .env("ANTEROOM__CACHE__AUDIT", "off")
                .env("LISTEN_FDNAMES", "web")
                .current_dir(folder)
                .stdin(socket)
                .stdout(Stdio::null())
                .stderr(complaints_file(folder))
                .spawn()
                .unwrap()
        });
        assert!(proxy.wait_ready(), "{}", proxy.complaints());
        proxy
    }

    /// Starts one from a shell that has carried out `line`.
    pub fn behind(line: &str, origin: &Origin) -> Self {
        Self::behind_with(line, origin, "")
    }

    /// The same, with these settings.
    pub fn behind_with(line: &str, origin: &Origin, settings: &str) -> Self {
        Self::behind_on(line, origin, &Storage::Embedded, settings)
    }

    /// The same, on this store.
    pub fn behind_on(line: &str, origin: &Origin, storage: &Storage, settings: &str) -> Self {
        let store = &on(storage, settings);
        let line = format!("{line}; exec \"$0\" run --config proxy.toml");
        loop {
            let mut proxy = Self::try_launch(origin.address(), store, settings, |folder| {
                Command::new("sh")
                    .args(["-c", &line, binary()])
                    .current_dir(folder)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(complaints_file(folder))
                    .spawn()
                    .unwrap()
            });
            if proxy.wait_ready() {
                return proxy;
            }
        }
    }

    /// What the system allows it, as it tells.
    pub fn limits(&self) -> String {
        fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap()
    }

    fn launch(origin: SocketAddr, store: &str, settings: &str) -> Self {
        Self::launch_by(spawn, origin, store, settings)
    }

    fn launch_by(
        spawn: impl Fn(&Path) -> Child,
        origin: SocketAddr,
        store: &str,
        settings: &str,
    ) -> Self {
        loop {
            let mut proxy = Self::try_launch(origin, store, settings, &spawn);
            if proxy.wait_ready() {
                return proxy;
            }
        }
    }

    fn try_launch(
        origin: SocketAddr,
        store: &str,
        settings: &str,
        spawn: impl FnOnce(&Path) -> Child,
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let [listen, admin] =
            [free_port(), free_port()].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let threads = if settings.contains("threads =") { "" } else { "threads = 2" };
        let usual = "listen = [{ address = \"{listen}\" }]";
        let listeners = if settings.contains("listen = [") { "" } else { usual };
        let settings = format!("{listeners}\n{settings}").replace("{listen}", &listen.to_string());
        let delay =
            if settings.contains("drain_delay") { "" } else { "limits.drain_delay = \"0s\"\n" };
        let settings = format!("{delay}{settings}");
        let settings = every_key::added(settings, folder.path());
        let url = format!("origin.url = \"http://{origin}\"");
        let url = if settings.contains("origin.url =") { "" } else { &url };
        let config = format!(
            "{threads}\n{url}\n\
             admin.address = \"{admin}\"\nlog.to = \"{log}\"\n{store}\n{settings}\n",
            log = folder.path().join("access.log").display(),
        );
        fs::write(folder.path().join("proxy.toml"), config).unwrap();
        let child = spawn(folder.path());
        Self { child, listen, admin, folder }
    }

    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// A visitor's connection.
    pub fn connect(&self) -> Client {
        Client::open(self.listen)
    }

    pub fn ask(&self, method: &str, target: &str) -> Ask {
        Ask::new(self.listen, method, target)
    }

    pub fn get(&self, target: &str) -> Ask {
        self.ask("GET", target)
    }

    pub fn post(&self, target: &str) -> Ask {
        self.ask("POST", target).body(b"")
    }

    /// Where the admin listener is.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Asks the admin listener, as a local operator does.
    pub fn admin(&self, target: &str) -> Ask {
        Ask::new(self.admin, "GET", target).host(&self.admin.to_string())
    }

    /// The process ends at once, as on `kill -9`.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends the process a signal.
    pub fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// Changes its `proxy.toml`; it is not told.
    pub fn edit(&self, change: impl FnOnce(&str) -> String) {
        let file = self.folder.path().join("proxy.toml");
        fs::write(&file, change(&fs::read_to_string(&file).unwrap())).unwrap();
    }

    /// Tells it to reload (SIGHUP), and waits until it has; whether it has put the file into force.
    pub fn reload(&self) -> bool {
        let count = |name: &str| self.metric(name);
        let (done, refused) =
            (count("anteroom_reloads_total"), count("anteroom_reloads_refused_total"));
        self.signal("HUP");
        let mut is_done = false;
        wait_until("the reload is over", || {
            is_done = count("anteroom_reloads_total") > done;
            is_done || count("anteroom_reloads_refused_total") > refused
        });
        is_done
    }

    /// Waits for the process to end by itself; its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        wait_until("the process ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }

    /// Starts the killed process again, with the same files and ports.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same, with more arguments.
    pub fn restart_with(&mut self, more: &[&str]) {
        self.kill9();
        self.child = run(self.folder.path()).args(more).spawn().unwrap();
        assert!(self.wait_ready(), "{}", self.complaints());
    }

    /// Waits for the end of a process that was told to end, or killed. Another with the same files and ports follows: the
    /// one that `start` makes of the command.
    pub fn start_again(&mut self, start: impl FnOnce(&mut Command) -> Child) {
        assert!(matches!(self.exit_code(), Some(0) | None), "{}", self.said());
        self.child = start(&mut run(self.folder.path()));
        assert!(self.wait_ready(), "{}", self.said());
    }

    /// The command of a process with the same files that takes over from this one.
    pub fn successor(&self) -> Command {
        let mut command = run(self.folder.path());
        command.arg("--take-over");
        command
    }

    /// Starts one, and returns the old process once it has taken over.
    pub fn take_over(&mut self) -> OldProcess {
        self.take_over_by(|proxy| proxy.successor().spawn().unwrap())
    }

    /// The same by the process that `start` returns.
    pub fn take_over_by(&mut self, start: impl FnOnce(&Self) -> Child) -> OldProcess {
        let count = |said: String| said.matches("this process has taken over").count();
        let before = count(self.said());
        let new = start(self);
        let old = OldProcess(std::mem::replace(&mut self.child, new));
        wait_until("the new process has taken over", || {
            assert!(self.child.try_wait().unwrap().is_none(), "{}", self.said());
            count(self.said()) > before
        });
        old
    }

    /// One number from `/metrics`, by its name with its labels; zero when it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.admin("/metrics").send().text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// What it has learned, as `anteroom learn report` tells it.
    pub fn learned(&self) -> Value {
        let mut command = anteroom();
        command.args(["learn", "report", "--json", "--config", "proxy.toml"]);
        let output = command.current_dir(self.folder()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The access log, once it has `lines` lines: it is written behind the responses.
    pub fn access_log(&self, lines: usize) -> Vec<Value> {
        let read = || fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        wait_until("the access log has its lines", || read().lines().count() >= lines);
        read().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Where it runs, with its `proxy.toml`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The access log as it stands in the file.
    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    /// The largest amount of memory that the process held so far, in KiB.
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Waits until it serves; false where another process took one of its ports meanwhile.
    fn wait_ready(&mut self) -> bool {
        let mut port_is_taken = false;
        wait_until("the proxy is ready", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                port_is_taken = self.complaints().contains("Address already in use");
                if port_is_taken {
                    return true;
                }
                panic!("the proxy ended with {status}: {}", self.said());
            }
            let Ok(mut client) = Client::try_open(self.admin) else { return false };
            let ready = self.admin("/readyz").try_send_on(&mut client);
            ready.is_some_and(|answer| answer.status == 200)
        });
        !port_is_taken
    }

    /// Waits until it has said this to its operator: messages are written by a thread of their own.
    pub fn wait_for_complaint(&self, text: &str) {
        wait_until(&format!("it says: {text}"), || self.said().contains(text));
    }

    /// What it has said to its operator, with all that it has logged by now.
    pub fn complaints(&self) -> String {
        holds_within(DEADLINE, || !self.has_messages_waiting());
        self.said()
    }

    /// Whether it tells of messages that are logged and not written.
    fn has_messages_waiting(&self) -> bool {
        let answer = Client::try_open(self.admin)
            .ok()
            .and_then(|mut client| self.admin("/metrics").try_send_on(&mut client));
        let page = answer.map(|answer| answer.text()).unwrap_or_default();
        let waiting = page.lines().find_map(|line| line.strip_prefix("anteroom_messages_waiting "));
        waiting.is_some_and(|count| count != "0")
    }

    /// What is written by now.
    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the proxy said:\n{}", self.said());
        }
    }
}

/// A process from which another one has taken over; it is killed on Drop.
pub struct OldProcess(Child);

impl OldProcess {
    /// Waits for the process to end by itself; its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        wait_until("the old process ends", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for OldProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the process complains of, one run behind the other.
fn complaints_file(folder: &Path) -> fs::File {
    fs::File::options().create(true).append(true).open(folder.join("stderr")).unwrap()
}

fn spawn(folder: &Path) -> Child {
    run(folder).spawn().unwrap()
}

/// The command of a proxy in its folder.
fn run(folder: &Path) -> Command {
    let mut command = anteroom();
    // By chance a hit would go to the app; a test that wants it says so.
    let config = fs::read_to_string(folder.join("proxy.toml")).unwrap_or_default();
    match config.contains("cache.audit") || config.contains("\naudit = ") {
        true => command.env_remove("ANTEROOM__CACHE__AUDIT"),
        false => command.env("ANTEROOM__CACHE__AUDIT", "off"),
    };
    command
        .arg("run")
        .arg("--config")
        .arg(folder.join("proxy.toml"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(complaints_file(folder));
    command
}

/// The settings of a store. A look-up waits for it, unless `settings` say how long.
fn on(storage: &Storage, settings: &str) -> String {
    let store = on_cluster::store();
    let mut store = store.unwrap_or_else(|| format!("store.url = \"{}\"", storage.url()));
    if !settings.contains("store.timeout") {
        store += "\nstore.timeout = \"5s\"";
    }
    store
}

/// The part of an origin that logs people in and out: `/login?alice`, `/logout`, and for all else
/// what `pages` says.
pub fn shop(pages: impl Fn(&super::origin::Request) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::start(move |request| {
        let (name, value) = match request.target.split_once('?') {
            Some(("/login", user)) => ("Anteroom-Login", user),
            None if request.target == "/logout" => ("Anteroom-Logout", "1"),
            _ => return pages(request),
        };
        Reply::status("303 See Other").header("Location", "/").header(name, value).body("")
    })
}

/// Logs `user` in at a [`shop`] behind a proxy with `session.mint = true`, and returns what the
/// browser sends from then on: `login=<token>`.
pub fn log_in(proxy: &Proxy, user: &str) -> String {
    let answer: Answer = proxy.post(&format!("/login?{user}")).send();
    let token = answer.cookie("login").expect("a login sets the session cookie");
    format!("login={token}")
}
