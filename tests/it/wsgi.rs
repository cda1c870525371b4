//! A real WSGI server as the origin: it folds `-` and `_` in field names, so a field that only
//! looks different from ours would arrive as ours.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::support::proxy::{Proxy, Storage};
use crate::support::redis::RedisServer;

const TOKEN: &str = "0123456789abcdef";

/// Serves one page: the environment that WSGI made of the request's fields.
const APP: &str = r"
import json
from wsgiref.simple_server import make_server, WSGIRequestHandler

class Quiet(WSGIRequestHandler):
    def log_message(self, *words):
        pass

def app(environ, start_response):
    body = json.dumps({k: v for k, v in environ.items() if k.startswith('HTTP_')}).encode()
    start_response('200 OK', [('Content-Type', 'application/json'),
                              ('Cache-Control', 'no-store'),
                              ('Content-Length', str(len(body)))])
    return [body]

server = make_server('127.0.0.1', 0, app, handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
";

struct Wsgi {
    child: Child,
    address: SocketAddr,
}

impl Wsgi {
    fn start() -> Self {
        let mut child = Command::new("python3")
            .args(["-c", APP])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
        Self { child, address }
    }
}

impl Drop for Wsgi {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_forged_identity_does_not_reach_a_wsgi_app_under_any_spelling() {
    let wsgi = Wsgi::start();
    let server = RedisServer::start();
    server.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
    let storage = Storage::Redis(server);
    let proxy = Proxy::before(wsgi.address, &storage, "");
    let forged = [
        "X-Anteroom-User",
        "X_Anteroom_User",
        "X-Anteroom_User",
        "x_anteroom-user",
        "X-Anteroom-Session",
        "X_Anteroom_Session",
        "X_Forwarded_For",
        "X_Forwarded-Host",
        "Proxy",
        "Anteroom_Login",
        "X_Other",
    ];
    let ask = forged.iter().fold(proxy.post("/"), |ask, name| ask.header(name, "forged"));

    let stranger = ask.send();
    let alice = ask.cookie(&format!("login={TOKEN}")).send();

    for answer in [&stranger, &alice] {
        assert_eq!(answer.status, 200);
        assert!(!answer.text().contains("forged"), "{}", answer.text());
    }
    let environ: serde_json::Value = serde_json::from_str(&alice.text()).unwrap();
    assert_eq!(environ["HTTP_X_ANTEROOM_USER"], "alice");
    assert_eq!(environ["HTTP_X_ANTEROOM_SESSION"], "known");
}
