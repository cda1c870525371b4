//! An authority for certificates that does what a case says: what a real one does seldom, or not in tests.
//!
//! It speaks as much of RFC 8555 and RFC 9773 as an order takes, believes every signature, and proves no name.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use serde_json::{Value, json};

use super::unix_now;
use super::upstream::{Authority, Upstream, UpstreamRequest};

/// What it does.
#[derive(Clone, Debug)]
pub struct AcmeScript {
    /// How long its certificates are valid, in seconds.
    pub validity: u64,
    /// Whether it suggests that its first certificate is renewed at once; the others much later.
    pub hurries: bool,
    /// Whether it refuses each order that replaces a certificate, as one that was replaced already.
    pub refuses_replacing: bool,
    /// How it refuses each order: a status, the type of the problem, and the seconds to wait.
    pub refusal: Option<(u16, &'static str, u32)>,
}

impl Default for AcmeScript {
    fn default() -> Self {
        Self { validity: 3_600, hurries: false, refuses_replacing: false, refusal: None }
    }
}

/// The running authority; it ends on Drop.
pub struct ScriptedAuthority {
    server: Upstream,
    ca: PathBuf,
    state: Arc<Mutex<AuthorityState>>,
}

struct AuthorityState {
    script: AcmeScript,
    authority: Authority,
    /// The payload of each order that was accepted.
    orders: Vec<Value>,
    /// The chain of each, once it is issued.
    chains: Vec<Option<String>>,
    /// The payload of each order, also of those that were refused.
    asked: Vec<Value>,
    /// The certificates whose window was asked for, in order.
    windows: Vec<String>,
    /// Those of them that are revoked.
    revoked: Vec<String>,
}

type Answer = Response<Full<Bytes>>;

impl ScriptedAuthority {
    /// Starts one; `folder` gets the root that its directory is checked against.
    pub fn start(folder: &Path, script: AcmeScript) -> Self {
        let authority = Authority::new();
        let ca = authority.file(folder);
        let tls = authority.server(&authority.issue("127.0.0.1", false), &[], false);
        let state = Arc::new(Mutex::new(AuthorityState {
            script,
            authority,
            orders: Vec::new(),
            chains: Vec::new(),
            asked: Vec::new(),
            windows: Vec::new(),
            revoked: Vec::new(),
        }));
        let own = Arc::clone(&state);
        let server =
            Upstream::http(Some(tls), false, move |request| own.lock().unwrap().answer(request));
        Self { server, ca, state }
    }

    /// The settings of `[acme]` that lead here.
    pub fn settings(&self) -> String {
        let port = self.server.port();
        format!("acme.directory = \"https://127.0.0.1:{port}/dir\"\nacme.ca = {:?}\n", self.ca)
    }

    /// What it does from now on.
    pub fn change(&self, change: impl FnOnce(&mut AcmeScript)) {
        change(&mut self.state.lock().unwrap().script);
    }

    /// The certificates whose window was asked for, in order, by the names that orders have for what they replace.
    pub fn windows(&self) -> Vec<String> {
        self.state.lock().unwrap().windows.clone()
    }

    /// Revokes the certificates whose window was asked for until now: from now on it is in the past.
    pub fn revoke(&self) {
        let mut state = self.state.lock().unwrap();
        state.revoked = state.windows.clone();
    }

    /// The payload of each order that came.
    pub fn orders(&self) -> Vec<Value> {
        self.state.lock().unwrap().asked.clone()
    }
}

impl AuthorityState {
    fn answer(&mut self, request: &UpstreamRequest) -> Answer {
        let base = format!("https://{}", request.headers["host"].to_str().unwrap());
        let path = request.uri.path();
        let (what, number) = path[1..].split_once('/').unwrap_or_else(|| (&path[1..], ""));
        let place = number.parse().unwrap_or_default();
        let payload = payload_of(&request.body);
        match (what, &request.method) {
            ("dir", &Method::GET) => json_answer(200, &directory(&base)).body(),
            ("window", &Method::GET) => self.window(number),
            ("account", _) => json_answer(201, &json!({ "status": "valid" }))
                .field("location", &format!("{base}/account/1"))
                .body(),
            ("new-order", _) => self.new_order(&base, payload),
            ("order", _) => json_answer(200, &self.order(&base, place)).body(),
            ("authz", _) => json_answer(200, &self.authorization(place)).body(),
            ("finalize", _) => {
                self.issue(place, &payload);
                json_answer(200, &self.order(&base, place)).body()
            }
            ("cert", _) => {
                let chain = self.chains[place].clone().unwrap();
                Draft::new(200, chain)
                    .field("content-type", "application/pem-certificate-chain")
                    .body()
            }
            _ => Draft::new(200, String::new()).body(),
        }
    }

    fn new_order(&mut self, base: &str, payload: Value) -> Answer {
        self.asked.push(payload.clone());
        if let Some((status, problem, wait)) = self.script.refusal {
            return refusal(status, problem).field("retry-after", &wait.to_string()).body();
        }
        if self.script.refuses_replacing && payload.get("replaces").is_some() {
            return refusal(409, "alreadyReplaced").body();
        }
        let place = self.orders.len();
        self.orders.push(payload);
        self.chains.push(None);
        json_answer(201, &self.order(base, place))
            .field("location", &format!("{base}/order/{place}"))
            .body()
    }

    /// Its names count as proved.
    fn order(&self, base: &str, place: usize) -> Value {
        let is_issued = self.chains[place].is_some();
        let mut order = json!({
            "status": if is_issued { "valid" } else { "ready" },
            "identifiers": self.orders[place]["identifiers"],
            "authorizations": [format!("{base}/authz/{place}")],
            "finalize": format!("{base}/finalize/{place}"),
        });
        for field in ["replaces", "profile"] {
            if let Some(value) = self.orders[place].get(field) {
                order[field] = value.clone();
            }
        }
        if is_issued {
            order["certificate"] = json!(format!("{base}/cert/{place}"));
        }
        order
    }

    fn authorization(&self, place: usize) -> Value {
        let identifier = &self.orders[place]["identifiers"][0];
        json!({ "identifier": identifier, "status": "valid", "challenges": [] })
    }

    fn issue(&mut self, place: usize, payload: &Value) {
        let request = BASE64_URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap()).unwrap();
        let now = Duration::from_secs(unix_now() as u64);
        let until = now + Duration::from_secs(self.script.validity);
        self.chains[place] = Some(self.authority.sign(&request, now, until));
    }

    /// The window for a certificate.
    fn window(&mut self, certificate: &str) -> Answer {
        if !self.windows.iter().any(|known| known == certificate) {
            self.windows.push(certificate.to_owned());
        }
        let is_first = self.windows.first().is_some_and(|first| first == certificate);
        let is_revoked = self.revoked.iter().any(|revoked| revoked == certificate);
        let year = if is_revoked || self.script.hurries && is_first { 2020 } else { 2999 };
        let window = json!({
            "start": format!("{year}-01-01T00:00:00Z"),
            "end": format!("{year}-01-02T00:00:00Z"),
        });
        json_answer(200, &json!({ "suggestedWindow": window })).field("retry-after", "3600").body()
    }
}

fn directory(base: &str) -> Value {
    json!({
        "newNonce": format!("{base}/nonce"),
        "newAccount": format!("{base}/account"),
        "newOrder": format!("{base}/new-order"),
        "revokeCert": format!("{base}/revoke"),
        "keyChange": format!("{base}/key"),
        "renewalInfo": format!("{base}/window"),
        "meta": { "profiles": { "shortlived": "six days" } },
    })
}

/// What a signed request says.
fn payload_of(body: &[u8]) -> Value {
    let signed: Value = serde_json::from_slice(body).unwrap_or_default();
    let payload = signed["payload"].as_str().unwrap_or_default();
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
    serde_json::from_slice(&payload).unwrap_or_default()
}

fn refusal(status: u16, problem: &str) -> Draft {
    let name = format!("urn:ietf:params:acme:error:{problem}");
    json_answer(status, &json!({ "type": name, "detail": "as the script says", "status": status }))
}

fn json_answer(status: u16, value: &Value) -> Draft {
    Draft::new(status, value.to_string()).field("content-type", "application/json")
}

/// An answer that is not complete yet. Each has a nonce.
struct Draft(http::response::Builder, String);

impl Draft {
    fn new(status: u16, text: String) -> Self {
        let nonce = format!("{:016x}", fastrand::u64(..));
        Self(Response::builder().status(status).header("replay-nonce", nonce), text)
    }

    fn field(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value), self.1)
    }

    fn body(self) -> Answer {
        self.0.body(Full::new(Bytes::from(self.1))).unwrap()
    }
}
