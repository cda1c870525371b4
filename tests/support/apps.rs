//! Apps as they are deployed: one behind WSGI, and one in PHP behind FPM and nginx. Each answers with the
//! environment that its server made of a request, as JSON.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::free_port;
use super::nginx::Nginx;
use super::program::{Program, write};

const WSGI: &str = r"
import json
import sys
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

make_server('127.0.0.1', int(sys.argv[1]), app, handler_class=Quiet).serve_forever()
";

const PHP: &str = r"<?php
header('Content-Type: application/json');
header('Cache-Control: no-store');
echo json_encode($_SERVER);
";

/// As lax as nginx can be told to be: what it drops by itself would prove nothing of the proxy.
const SITE: &str = r"server {
    listen 80;
    underscores_in_headers on;
    ignore_invalid_headers off;
    location / {
        include /etc/nginx/fastcgi_params;
        fastcgi_param SCRIPT_FILENAME {fpm}/app.php;
        fastcgi_pass unix:{fpm}/fpm.sock;
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

/// A running app; it is ended on Drop.
pub struct App {
    pub address: SocketAddr,
    _programs: (Option<Nginx>, Program),
}

impl App {
    /// One behind WSGI, as Python's own server does it.
    pub fn wsgi() -> Self {
        let folder = TempDir::new().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = Command::new("python3");
        command.args(["-c", WSGI, &address.port().to_string()]);
        Self { address, _programs: (None, Program::start(folder, &mut command, address)) }
    }

    /// One in PHP.
    pub fn php() -> Self {
        let folder = TempDir::new().unwrap();
        write(&folder, "app.php", PHP);
        let config = write(&folder, "fpm.conf", FPM);
        let socket = folder.path().join("fpm.sock");
        let mut command = Command::new(php_fpm());
        // In a container there is no other user, as a rule.
        command.args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"]).arg(config);
        let fpm = Program::start_until(folder, &mut command, "php-fpm listens", || {
            UnixStream::connect(&socket).is_ok()
        });
        let nginx = Nginx::with_site(&SITE.replace("{fpm}", fpm.folder().to_str().unwrap()));
        Self { address: nginx.address, _programs: (Some(nginx), fpm) }
    }
}

/// Debian names it by its version.
fn php_fpm() -> String {
    let folder = fs::read_dir(Path::new("/usr/sbin")).unwrap();
    let names = folder.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("php-fpm")).max().expect("php-fpm is installed")
}
