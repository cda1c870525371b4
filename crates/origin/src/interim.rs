//! Interim responses (RFC 9110 §15.2) on their way to the code that sent the request.

use std::sync::Arc;

use ::http::{HeaderMap, Request, StatusCode};

use super::UploadBody;

/// Is called with each interim response to a request. An extension of the request.
#[derive(Clone)]
pub struct InterimListener(Arc<Listener>);

type Listener = dyn Fn(StatusCode, &HeaderMap) + Send + Sync;

impl std::fmt::Debug for InterimListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InterimListener").finish_non_exhaustive()
    }
}

impl InterimListener {
    /// Calls `listener` with the status and the fields of each interim response.
    #[must_use]
    pub fn new(listener: impl Fn(StatusCode, &HeaderMap) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    pub(super) fn hear(&self, status: StatusCode, headers: &HeaderMap) {
        (self.0)(status, headers);
    }
}

/// Has hyper's client call the listener of `request`.
pub(super) fn pass_to_hyper(request: &mut Request<UploadBody>) {
    let Some(listener) = request.extensions().get::<InterimListener>().cloned() else { return };
    hyper::ext::on_informational(request, move |response| {
        listener.hear(response.status(), response.headers());
    });
}
