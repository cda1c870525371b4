//! The order for a fetch: what to request, and how to keep the result.

use std::sync::Arc;

use anteroom_fault::fault;

use ::http::header::{ACCEPT_RANGES, SET_COOKIE};
use ::http::{HeaderMap, HeaderName, Request, StatusCode};
use anteroom_http::forwarded::ANTEROOM_LOGIN;
use anteroom_http::ident::{PageKey, StoredToken};
use anteroom_origin::{BackgroundSlot, UploadBody};
use anteroom_policy::priority::Priority;
use anteroom_policy::route::CompiledRoute;
use anteroom_telemetry::metrics::AskedAgain;
use anteroom_telemetry::origin_use::KeptOriginUse;

use crate::entry::Entry;
use crate::recipe::Recipe;
use crate::rules::key::ShareClass;
use crate::rules::personal_data::PersonalData;
use crate::segment_proof::Witness;
use crate::url_patterns::UrlPattern;

/// What the fetch lacks of the visitor's own request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillLoss {
    /// The client's address: the fetch names the proxy's.
    pub address: bool,
    /// A field that the origin may evaluate.
    pub field: bool,
    /// What a redirect may lead back to or carry on: `Referer`, and query parameters on which no page depends.
    pub detour: bool,
    /// `Range`: the fetch is for the whole page.
    pub range: bool,
    /// A cookie, credentials or a certificate, by which the origin may know the visitor.
    pub identity: bool,
}

impl FillLoss {
    /// Why a response that is not shared is not for the visitor either, so that the origin must be asked again.
    ///
    /// A link may work once, so that nothing but these reasons counts: what was refused was not done; a link with
    /// a secret is forwarded as it came, until responses to such links can be shared.
    pub(super) fn asks_again(self, status: StatusCode, headers: &HeaderMap) -> Option<AskedAgain> {
        if self.identity && !fault!("stranger") {
            return Some(AskedAgain::Identity);
        }
        if (self.address || self.field || self.detour) && is_refusal(status) {
            return Some(AskedAgain::Refusal);
        }
        if changes_session(headers) {
            // A session may be bound to the address.
            return (self.address && !fault!("handed")).then_some(AskedAgain::Cookie);
        }
        if status != StatusCode::OK {
            return None;
        }
        if self.field {
            return Some(AskedAgain::Field);
        }
        // A client that wants a part may not take the whole.
        let has_parts = || headers.get(ACCEPT_RANGES).is_some_and(|units| units == "bytes");
        (self.range && has_parts()).then_some(AskedAgain::Range)
    }
}

/// Whether a response sets cookies or logs in.
#[must_use]
pub fn changes_session(headers: &HeaderMap) -> bool {
    headers.contains_key(SET_COOKIE) || headers.contains_key(&ANTEROOM_LOGIN)
}

/// Whether the origin has refused to serve the client, and so has done nothing.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407 | 429 | 451)
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
    /// What the fetch lacks of the visitor's own request.
    pub loss: FillLoss,
    /// The user that the request identifies to the origin, if any.
    pub person: Option<SessionOwner>,
    /// The pattern of the URL, unless the page is one visitor's or segment's.
    pub pattern: Option<UrlPattern>,
    /// The network of the client, as a number.
    pub network: u32,
    /// When the origin gets the request where others wait.
    pub priority: Priority,
    /// What measures what the fetch takes of the origin's time.
    pub origin_use: KeptOriginUse,
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
