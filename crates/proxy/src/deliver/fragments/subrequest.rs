//! Requests for the contents of fragments, and the interface by which they re-enter the request path.

use std::rc::Rc;
use std::sync::Arc;

use ::http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use ::http::uri::PathAndQuery;
use ::http::{HeaderName, Response};
use anteroom_policy::route::{CompiledRoute, Share};
use futures_util::future::LocalBoxFuture;

use crate::connection::client::Client;
use crate::context::{RequestContext, WorkerContext};
use crate::deliver::body::Body;
use crate::error::Error;
use crate::stage::admit::AdmittedRequest;
use crate::visitor::Visitor;

/// A request on behalf of the visitor for the content of a fragment.
pub(crate) struct Subrequest {
    pub(crate) worker: Rc<WorkerContext>,
    pub(crate) client: Rc<Client>,
    pub(crate) request: AdmittedRequest,
    /// The visitors with whom the content is shared, if the fragment states that.
    pub(crate) share: Option<Share>,
    /// The page's route.
    pub(crate) page: Arc<CompiledRoute>,
}

/// The response to a [`Subrequest`].
pub(crate) struct Subresponse {
    pub(crate) response: Response<Body>,
    pub(crate) route: Arc<CompiledRoute>,
    /// The target that was requested. Sources in the response are resolved against it.
    pub(crate) target: String,
}

/// How fragments re-enter the request path: after admission, and without any effect on session or cart.
pub(crate) trait Subrequests {
    /// Answers a request for a fragment.
    fn answer(&self, request: Subrequest) -> LocalBoxFuture<'static, Result<Subresponse, Error>>;

    /// Identifies the visitor of a request on a route.
    fn visitor(
        &self,
        worker: Rc<WorkerContext>,
        client: Rc<Client>,
        request: AdmittedRequest,
        route: Arc<CompiledRoute>,
    ) -> LocalBoxFuture<'static, Visitor>;
}

/// The target of a request. Sources in its response are resolved against it (RFC 3986 §5.1.3).
pub(crate) fn target(cx: &RequestContext<'_>) -> String {
    cx.head.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()
}

/// The fields by which a client states which part of a page it has or wants.
pub(super) static OF_A_PART: [HeaderName; 4] = [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE, RANGE];
