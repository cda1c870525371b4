//! Apps as they are deployed: one behind WSGI, and one in PHP behind FPM and nginx. Each answers with the
//! environment that its server made of a request, as JSON.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::client::{Ask, Client};
use super::{free_port, wait_until};

const WSGI: &str = r"
import json
from wsgiref.simple_server import make_server, WSGIRequestHandler

class Quiet(WSGIRequestHandler):
    def log_message(self, *words):
        pass

def app(environ, start_response):
    body = json.dumps({k: str(v) for k, v in environ.items() if '.' not in k}).encode()
    start_response('200 OK', [('Content-Type', 'application/json'),
                              ('Cache-Control', 'no-store'),
                              ('Content-Length', str(len(body)))])
    return [body]

server = make_server('127.0.0.1', 0, app, handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
";

const PHP: &str = r"<?php
header('Content-Type: application/json');
header('Cache-Control: no-store');
echo json_encode($_SERVER);
";

/// As lax as nginx can be told to be: what it drops by itself would prove nothing of the proxy.
const NGINX: &str = r"user root;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    underscores_in_headers on;
    ignore_invalid_headers off;
    server {
        listen {address};
        location / {
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME {folder}/app.php;
            fastcgi_pass unix:{folder}/fpm.sock;
        }
    }
}
";

const FPM: &str = r"[global]
daemonize = no
error_log = {folder}/fpm.log
[app]
user = root
group = root
listen = {folder}/fpm.sock
pm = static
pm.max_children = 2
";

/// A running app; it is killed on Drop.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    children: Vec<Child>,
    _folder: TempDir,
}

impl App {
    /// One behind WSGI, as Python's own server does it.
    pub(crate) fn wsgi() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", WSGI]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is installed");
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let address = at(port.trim().parse().unwrap());
        Self { address, children: vec![child], _folder: TempDir::new().unwrap() }
    }

    /// One in PHP.
    pub(crate) fn php() -> Self {
        let folder = TempDir::new().unwrap();
        let address = at(free_port());
        let write = |name: &str, text: &str| {
            let text = text.replace("{folder}", folder.path().to_str().unwrap());
            let text = text.replace("{address}", &address.to_string());
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        write("app.php", PHP);
        let [fpm, nginx] = [write("fpm.conf", FPM), write("nginx.conf", NGINX)];
        let mut run = Command::new(php_fpm());
        let fpm = run.args(["--fpm-config", fpm.to_str().unwrap(), "--nodaemonize"]);
        // In a container there is no other user, as a rule.
        let fpm = fpm.arg("--allow-to-run-as-root");
        let mut run = Command::new("nginx");
        let nginx =
            run.args(["-c", nginx.to_str().unwrap(), "-p", folder.path().to_str().unwrap()]);
        let quietly = |command: &mut Command| {
            let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().expect("php-fpm and nginx are installed")
        };
        let children = vec![quietly(fpm), quietly(nginx)];
        wait_until("the app answers", || {
            let is_open = std::net::TcpStream::connect(address).is_ok();
            let answer = is_open
                .then(|| Ask::new(address, "GET", "/").try_send_on(&mut Client::open(address)));
            answer.flatten().is_some_and(|answer| answer.status == 200)
        });
        Self { address, children, _folder: folder }
    }
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Debian names it by its version.
fn php_fpm() -> String {
    let folder = fs::read_dir(Path::new("/usr/sbin")).unwrap();
    let names = folder.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("php-fpm")).max().expect("php-fpm is installed")
}

impl Drop for App {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Told to end, each ends the processes that it has begun.
            let told = Command::new("kill").arg(child.id().to_string()).status();
            drop((told, child.wait()));
        }
    }
}
