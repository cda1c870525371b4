//! Requests of processes that want to take over, and of operators for a process that does. The main loop of the process
//! that serves carries them out.

use std::convert::Infallible;
use std::path::PathBuf;

use ::http::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use ::http::request::Parts;
use ::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{OwnedPermit, Receiver, Sender, channel};

use super::commands::{CommandRefusal, read};
use super::reply::{AdminResponse, content, refusal};

/// What the connection is used for afterwards.
pub(super) const PROTOCOL: &str = "anteroom-take-over";
/// The requests that wait until the main loop has time for them. It refuses all but one.
const WAITING_MAX: usize = 4;
/// The lines that wait for the reader of an answer. There are fewer.
const LINES_MAX: usize = 8;

/// What the main loop is asked for.
#[derive(Debug)]
pub enum TakeOverRequest {
    /// A process wants to take over, over this connection.
    Process(UnixStream),
    /// A process shall be started that does.
    Upgrade(UpgradeRequest),
}

/// What the main loop is asked for, in its order.
pub type TakeOverRequests = Receiver<TakeOverRequest>;

/// Where the requests come in.
#[derive(Clone, Debug)]
pub struct TakeOverEntrance(Sender<TakeOverRequest>);

/// The command to start a process that takes over.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeOrder {
    /// The absolute path of its program; `None`: that of the running process, as it is on the disk now.
    #[serde(default)]
    pub binary: Option<PathBuf>,
}

/// Such a command, and where its progress is told.
#[derive(Debug)]
pub struct UpgradeRequest {
    /// The command.
    pub order: UpgradeOrder,
    lines: Sender<UpgradeLine>,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeLine {
    /// The process has been started.
    Started {
        /// Its id.
        process: u32,
    },
    /// It serves.
    Done {
        /// Its id.
        process: u32,
        /// Its version.
        version: String,
    },
    /// It does not, and the old process serves on.
    Failed {
        /// Why.
        why: String,
    },
}

impl UpgradeRequest {
    /// Tells the operator. One that has left does not hinder.
    pub fn tell(&self, line: UpgradeLine) {
        if let Err(error) = self.lines.try_send(line) {
            tracing::debug!(%error, "the progress of an upgrade is not read");
        }
    }
}

/// An entrance for processes that want to take over, and what comes in.
pub(super) fn take_over_entrance() -> (TakeOverEntrance, TakeOverRequests) {
    let (sender, requests) = channel(WAITING_MAX);
    (TakeOverEntrance(sender), requests)
}

impl TakeOverEntrance {
    /// Answers a request, and hands the connection on as soon as the answer is sent.
    pub(super) fn answer(&self, head: &Parts) -> AdminResponse {
        let is_meant = head
            .headers
            .get(UPGRADE)
            .is_some_and(|protocol| protocol.as_bytes() == PROTOCOL.as_bytes());
        let upgrade = head.extensions.get::<OnUpgrade>().filter(|_| is_meant);
        let Some(upgrade) = upgrade else {
            let why = format!("a connection is needed that becomes one of {PROTOCOL}");
            return refusal(StatusCode::UPGRADE_REQUIRED, why);
        };
        match self.reserve() {
            Ok(place) => {
                tokio::task::spawn_local(hand_on(upgrade.clone(), place));
                switching()
            }
            Err((status, why)) => refusal(status, why),
        }
    }

    /// Answers the command to start a process that takes over, with a line for each step.
    pub(super) fn upgrade(&self, body: &[u8]) -> AdminResponse {
        let begun = read(body).and_then(|order| {
            let (lines, receiver) = channel(LINES_MAX);
            let request = UpgradeRequest { order, lines };
            self.reserve()?.send(TakeOverRequest::Upgrade(request));
            Ok(receiver)
        });
        match begun {
            Ok(lines) => stream(lines),
            Err((status, why)) => refusal(status, why),
        }
    }

    fn reserve(&self) -> Result<OwnedPermit<TakeOverRequest>, CommandRefusal> {
        self.0.clone().try_reserve_owned().map_err(|error| {
            let why = match error {
                TrySendError::Full(_) => "another take-over is under way",
                TrySendError::Closed(_) => "this process is about to end",
            };
            (StatusCode::CONFLICT, why.to_owned())
        })
    }
}

fn stream(lines: Receiver<UpgradeLine>) -> AdminResponse {
    let lines = unfold(lines, |mut lines| async move {
        let line = lines.recv().await?;
        let text = serde_json::to_string(&line).unwrap_or_default() + "\n";
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), lines))
    });
    let mut response = content(StatusCode::OK, "", "");
    *response.body_mut() = StreamBody::new(lines).boxed_unsync();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn switching() -> AdminResponse {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    response
}

async fn hand_on(upgrade: OnUpgrade, place: OwnedPermit<TakeOverRequest>) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "a take-over did not begin"),
    };
    match upgraded.downcast::<TokioIo<UnixStream>>() {
        // Files come with the bytes of their message, and would be lost with bytes that were read here.
        Ok(parts) if parts.read_buf.is_empty() => {
            place.send(TakeOverRequest::Process(parts.io.into_inner()));
        }
        Ok(_) | Err(_) => {
            tracing::warn!("a process that wants to take over did not wait for the answer")
        }
    }
}
