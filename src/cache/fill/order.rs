//! The order for a fetch: what to request, and how to keep the result.

use std::sync::Arc;

use anteroom_fault::fault;

use ::http::header::SET_COOKIE;
use ::http::{HeaderName, Request};

use crate::cache::entry::Entry;
use crate::cache::recipe::Recipe;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::personal_data::PersonalData;
use crate::cache::segment_proof::Witness;
use crate::ident::{PageKey, StoredToken};
use crate::origin::{BackgroundSlot, UploadBody};
use crate::policy::route::CompiledRoute;

/// How the fetch differs from the visitor's own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillDifference {
    /// In nothing that a response can depend on.
    None,
    /// It names another client address.
    Address,
    /// It omits personal data of the visitor.
    Visitor,
}

impl FillDifference {
    /// Whether an unshareable response is still the right one for the visitor's own request.
    pub(super) fn keeps_own_response_valid(self, head: &::http::response::Parts) -> bool {
        match self {
            Self::None => true,
            // A session or a refusal may depend on the address.
            Self::Address => {
                (fault!("handed") || !head.headers.contains_key(SET_COOKIE))
                    && !matches!(head.status.as_u16(), 401 | 403 | 407 | 429 | 451)
            }
            Self::Visitor => false,
        }
    }
}

/// The user whose session a fetch carries.
#[derive(Clone, Debug)]
pub struct SessionOwner {
    /// The user and address, to tell whether a second, independent user is given the same page.
    pub witness: Witness,
    /// The field in which the origin gets the user's name. A response that varies by it is for this user
    /// alone.
    pub identity: HeaderName,
    /// The session that is sent, which may be bound to one of the origin's servers.
    pub session: StoredToken,
}

/// What to fetch, and how to keep it.
#[derive(Debug)]
pub struct FillOrder {
    /// The key without variants.
    pub primary: PageKey,
    /// The class of visitors with whom the page is shared.
    pub class: ShareClass,
    /// The request to the origin, without anything that is not in the key.
    pub request: Request<UploadBody>,
    /// The route of the request.
    pub route: Arc<CompiledRoute>,
    /// How the fetch differs from the visitor's own request.
    pub difference: FillDifference,
    /// The user that the request identifies to the origin, if any.
    pub person: Option<SessionOwner>,
    /// The visitor's personal data that the page must not contain.
    pub personal_data: PersonalData,
    /// The stale page that is fetched again; the origin may validate it with a 304.
    pub stored: Option<Arc<Entry>>,
    /// Whether that page may be served if the origin fails. The new response is then held back until it is
    /// whole, as long as the first request is willing to wait.
    pub withhold: bool,
    /// How the proxy fetches the page again by itself, if it may.
    pub recipe: Option<Arc<Recipe>>,
    /// The place at the origin of a fetch that no request waits for, and that must not take the origin's
    /// capacity from visitors.
    pub background: Option<BackgroundSlot>,
}
