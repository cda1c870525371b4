//! What to fetch, and as what to keep it.

use std::sync::Arc;

use ::http::header::SET_COOKIE;
use ::http::{HeaderName, Request};

use crate::cache::entry::Entry;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::personal_data::Traces;
use crate::cache::segment_proof::Witness;
use crate::ident::{PageKey, StoredToken};
use crate::origin::Outgoing;
use crate::policy::route::Route;

/// How the fetch differs from the visitor's own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Not at all, as far as a response can depend on it.
    None,
    /// It names another client address.
    Address,
    /// Something of the visitor's was left out.
    Visitor,
}

impl Loss {
    /// Whether an unshareable response is still the right one for the visitor whose request it was.
    pub(super) fn spares(self, head: &::http::response::Parts) -> bool {
        match self {
            Self::None => true,
            // A session or a refusal may hang on the address.
            Self::Address => {
                !head.headers.contains_key(SET_COOKIE)
                    && !matches!(head.status.as_u16(), 401 | 403 | 407 | 429 | 451)
            }
            Self::Visitor => false,
        }
    }
}

/// A user whose session a fetch carries.
#[derive(Clone, Debug)]
pub struct Person {
    /// Who he is, as far as it matters whether another one is given the same.
    pub witness: Witness,
    /// The field that tells the origin his name: what is chosen by that is his alone.
    pub identity: HeaderName,
    /// The session that is carried, which may be at one of the origin's servers.
    pub session: StoredToken,
}

/// What to fetch, and as what to keep it.
#[derive(Debug)]
pub struct Order {
    /// The key without variants.
    pub primary: PageKey,
    /// With whom the page is shared.
    pub class: ShareClass,
    /// The request to the origin, without what is not in the key.
    pub request: Request<Outgoing>,
    /// The route.
    pub route: Arc<Route>,
    /// How the fetch differs from the visitor's own request.
    pub loss: Loss,
    /// Whom the request tells the origin of, where it tells of somebody.
    pub person: Option<Person>,
    /// What of his own must not stand in the page.
    pub traces: Traces,
    /// The stale page that is fetched anew: the origin may say that it is right still.
    pub held: Option<Arc<Entry>>,
    /// Whether that page may be served should the origin fail: what comes is held back until it is
    /// whole then, as long as the first to ask cares to wait.
    pub withhold: bool,
}
