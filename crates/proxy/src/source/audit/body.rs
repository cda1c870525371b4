//! Reads the app's answer to the visitor along.

use std::time::{Duration, Instant};

use ::http::{HeaderMap, StatusCode};
use anteroom_origin::BodyReader;
use bytes::{Bytes, BytesMut};

use super::Audit;
use super::differences::AppAnswer;

/// The largest body that is compared, in bytes, as it comes.
pub(super) const BODY_MAX: usize = 1 << 20;

/// How long a visitor may take to read it: until then it has one of a few places.
const READ_FOR: Duration = Duration::from_secs(30);

/// Reads the visitor's answer along.
pub(super) struct AuditBody {
    /// `None`: the body is too large.
    audit: Option<Box<Audit>>,
    status: StatusCode,
    headers: HeaderMap,
    body: Option<BytesMut>,
    begun: Instant,
}

impl AuditBody {
    pub(super) fn new(audit: Box<Audit>, status: StatusCode, headers: HeaderMap) -> Self {
        Self {
            audit: Some(audit),
            status,
            headers,
            body: Some(BytesMut::new()),
            begun: Instant::now(),
        }
    }
}

impl BodyReader for AuditBody {
    fn part(&mut self, part: &Bytes) {
        add(&mut self.body, part);
        if (self.body.is_none() || self.begun.elapsed() > READ_FOR)
            && let Some(audit) = self.audit.take()
        {
            audit.note_unknown();
        }
    }

    fn whole(self: Box<Self>) {
        let Self { audit, status, headers, body, .. } = *self;
        if let (Some(audit), Some(body)) = (audit, body) {
            let answer = AppAnswer { status, headers, body: body.freeze() };
            tokio::task::spawn_local(audit.compare(answer));
        }
    }
}

/// Adds a part to a body, unless it becomes too large.
pub(super) fn add(body: &mut Option<BytesMut>, part: &Bytes) {
    if body.as_ref().is_some_and(|body| body.len() + part.len() > BODY_MAX) {
        *body = None;
    }
    if let Some(body) = body {
        body.extend_from_slice(part);
    }
}
