//! Real database servers of the test's own: free loopback port, temporary folder, gone on drop.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::free_port;
use super::tls::CertificateWithKey;
use super::wait_within;

/// How long a server may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where Debian has PostgreSQL's programs.
const POSTGRES: &str = "/usr/lib/postgresql";

/// A PostgreSQL server, in whose log each statement is.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    folder: TempDir,
    child: Child,
}

impl PostgresServer {
    /// Starts a server and runs `seed` in it.
    pub fn start(seed: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if let Some((user, group)) = other_user() {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let mut init = postgres_program("initdb");
        init.args([
            "--no-sync",
            "--auth=trust",
            "--username=shop",
            "--encoding=UTF8",
            "--locale=C",
        ]);
        let init = init.arg("-D").arg(folder.path().join("data")).output().unwrap();
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        let port = free_port();
        let server = Self { port, child: spawn_postgres(&folder, port), folder };
        server.wait();
        server.run(seed);
        server
    }

    fn wait(&self) {
        wait_within(PATIENCE, "PostgreSQL answers", || self.try_run("select 1").is_ok());
    }

    /// What its own client prints: values with a `|` between them, rows on lines of their own.
    pub fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap()
    }

    fn try_run(&self, sql: &str) -> Result<String, String> {
        psql(self.port, sql)
    }

    pub fn url(&self) -> String {
        format!("postgres://shop@127.0.0.1:{}/postgres", self.port)
    }

    /// Lets it speak TLS with this certificate and no longer without; returns its URL for the name in it.
    pub fn speak_tls(&self, name: &str, certificate: &CertificateWithKey) -> String {
        let file = self.folder.path().join("site.pem");
        certificate.write(&file);
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        if let Some((user, group)) = other_user() {
            chown(&file, Some(user), Some(group)).unwrap();
        }
        let rules = self.folder.path().join("data/pg_hba.conf");
        fs::write(rules, "hostssl all all all trust\n").unwrap();
        for setting in ["ssl_cert_file", "ssl_key_file"] {
            self.run(&format!("alter system set {setting} = '{}'", file.display()));
        }
        self.run("alter system set ssl = on");
        self.run("select pg_reload_conf()");
        wait_within(PATIENCE, "TLS is required", || {
            self.try_run("select 1").is_ok_and(|_| self.run("show ssl").trim() == "on")
        });
        format!("postgres://shop@{name}:{}/postgres", self.port)
    }

    /// Kills it with all its processes, as a crash would.
    pub fn kill(&mut self) {
        let mut stop = postgres_program("pg_ctl");
        stop.args(["stop", "-m", "immediate", "-D"]).arg(self.folder.path().join("data"));
        printed(&mut stop).unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.child = spawn_postgres(&self.folder, self.port);
        self.wait();
    }

    /// How many statements with this text it has run.
    pub fn count(&self, text: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.lines().filter(|line| line.contains("execute ") && line.contains(text)).count()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // SIGKILL would leave the other processes and their shared memory.
        let mut stop = postgres_program("pg_ctl");
        stop.args(["stop", "-m", "immediate", "-D"]).arg(self.folder.path().join("data"));
        let _ = stop.output();
        let _ = self.child.wait();
    }
}

fn psql(port: u16, sql: &str) -> Result<String, String> {
    let mut client = Command::new("psql");
    client.args(["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-U", "shop", "-d", "postgres"]);
    client.args(["-v", "ON_ERROR_STOP=1", "-p", &port.to_string(), "-c", sql]);
    printed(client.env("PGTZ", "UTC"))
}

fn spawn_postgres(folder: &TempDir, port: u16) -> Child {
    let log = File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
    let mut server = postgres_program("postgres");
    server.arg("-D").arg(folder.path().join("data")).args(["-p", &port.to_string(), "-k", ""]);
    for setting in ["fsync=off", "log_statement=all", "shared_buffers=16MB", "max_connections=20"] {
        server.args(["-c", setting]);
    }
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// A program of the newest PostgreSQL that is installed. It refuses to run as root.
fn postgres_program(name: &str) -> Command {
    let versions = fs::read_dir(POSTGRES).map(|all| all.flatten().map(|entry| entry.path()));
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.into_iter().flatten().max_by_key(number);
    let program = newest.map_or_else(|| name.into(), |version| version.join("bin").join(name));
    let mut command = Command::new(program);
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group).current_dir("/");
    }
    command
}

/// A PgBouncer in transaction mode: two connections, which transactions get in turn.
#[derive(Debug)]
pub struct Pgbouncer {
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl Pgbouncer {
    pub fn start(server: &PostgresServer) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = folder.path().join("pgbouncer.ini");
        let config = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=shop\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\nmin_pool_size = 2\ndefault_pool_size = 2\n\
             server_round_robin = 1\n",
            server.port
        );
        fs::write(&file, config).unwrap();
        let mut bouncer = Command::new("pgbouncer");
        if let Some((user, group)) = other_user() {
            chown(folder.path(), Some(user), Some(group)).unwrap();
            chown(&file, Some(user), Some(group)).unwrap();
            bouncer.uid(user).gid(group).current_dir("/");
        }
        bouncer.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let bouncer = Self { port, child: bouncer.spawn().unwrap(), _folder: folder };
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_within(PATIENCE, "PgBouncer answers", answers);
        bouncer
    }

    pub fn url(&self) -> String {
        format!("postgres://shop@127.0.0.1:{}/postgres", self.port)
    }

    /// What the client prints that asks through it.
    pub fn run(&self, sql: &str) -> String {
        psql(self.port, sql).unwrap()
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The user and the group that stand in for root, if this is root: PostgreSQL's, or nobody's.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
        Some((ids.next()?, ids.next()?))
    };
    of("postgres").or_else(|| of("nobody"))
}

/// A MariaDB server.
#[derive(Debug)]
pub struct MariadbServer {
    port: u16,
    folder: TempDir,
    child: Child,
}

impl MariadbServer {
    /// Starts a server and runs `seed` in the database `shop`.
    pub fn start(seed: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut init = Command::new("mariadb-install-db");
        init.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
        init.arg(format!("--datadir={}", folder.path().join("data").display())).args(as_root());
        printed(&mut init).unwrap();
        let port = free_port();
        let child = spawn_mariadb(folder.path(), port);
        let server = Self { port, folder, child };
        wait_within(PATIENCE, "MariaDB answers", || server.client("", "select 1").is_ok());
        server
            .client("", "create database shop; create user shop@localhost; grant all on shop.* to shop@localhost")
            .unwrap();
        server.run(seed);
        server
    }

    /// What its own client prints, with tabs between values.
    pub fn run(&self, sql: &str) -> String {
        self.client("shop", sql).unwrap()
    }

    fn client(&self, database: &str, sql: &str) -> Result<String, String> {
        let socket = self.folder.path().join("db.sock");
        let mut client = Command::new("mariadb");
        client.args([
            "--no-defaults",
            "-uroot",
            "-N",
            "-B",
            "--default-character-set=utf8mb4",
            "-S",
        ]);
        let client = client.arg(socket).args(["-e", sql]).arg(database);
        printed(client)
    }

    pub fn url(&self) -> String {
        format!("mysql://shop@127.0.0.1:{}/shop", self.port)
    }
}

impl Drop for MariadbServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn_mariadb(folder: &Path, port: u16) -> Child {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut server = Command::new(mariadbd());
    server.args(["--no-defaults", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M"]);
    server.args(["--innodb-flush-log-at-trx-commit=0", "--max-connections=20"]);
    server.args([format!("--port={port}"), format!("--datadir={}", at("data"))]);
    server.args([format!("--socket={}", at("db.sock")), format!("--pid-file={}", at("db.pid"))]);
    let log = File::create(folder.join("log")).unwrap();
    server.args(as_root()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// It is in a folder that is in the PATH of root only.
fn mariadbd() -> &'static str {
    let usual = "/usr/sbin/mariadbd";
    if Path::new(usual).exists() { usual } else { "mariadbd" }
}

fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

fn printed(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [out, err] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() { Ok(out.trim_end().to_owned()) } else { Err(err) }
}
