//! A fetch whose response has begun, and the page made from it.

use std::borrow::Cow;
use std::sync::Arc;

use ::http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_ORIGIN, AGE, COOKIE, ORIGIN, SET_COOKIE,
};
use ::http::{HeaderMap, HeaderName, Uri};
use anteroom_fault::fault;
use anteroom_http::freshness::initial_age;
use anteroom_http::ident::PageKey;
use anteroom_http::media::{self, MediaKind};
use anteroom_http::tags::{strip_tags, tags};
use anteroom_http::{forwarded, hop, set_cookie};
use anteroom_policy::route::{CompiledRoute, LeakGuard};
use anteroom_telemetry::metrics::AskedAgain;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::lead::{Leader, LeaderAnswer};
use super::order::{FillLoss, SessionOwner};
use crate::entry::Entry;
use crate::flight::FlightReader;
use crate::hit_count::HitCount;
use crate::page_fields::PageFields;
use crate::purge::{PurgeSnapshot, PurgeTable};
use crate::recipe::Recipe;
use crate::rules::key::ShareClass;
use crate::rules::personal_data::PersonalData;
use crate::rules::verdict::{LostCookies, Storing, has_validator};
use crate::segment_proof::strip_exchange;
use crate::url_patterns::UrlPattern;

/// A fetch whose response has begun.
pub(super) struct Fetch {
    pub(super) primary: PageKey,
    pub(super) target: Uri,
    pub(super) route: Arc<CompiledRoute>,
    pub(super) class: ShareClass,
    pub(super) loss: FillLoss,
    /// The user that the request identified to the origin, if any.
    pub(super) person: Option<SessionOwner>,
    pub(super) pattern: Option<UrlPattern>,
    pub(super) network: u32,
    /// The personal data that the page must not contain; empty if the route turns the search off.
    pub(super) personal_data: PersonalData,
    pub(super) withhold: bool,
    /// How the proxy fetches the page again by itself, if it may.
    pub(super) recipe: Option<Arc<Recipe>>,
    /// Whether a page was already held.
    pub(super) replaces: bool,
    /// Unix times, in seconds.
    pub(super) asked_at: f64,
    pub(super) received_at: f64,
    /// The page's snapshot, without tags: it determines which purges apply.
    pub(super) purge_snapshot: PurgeSnapshot,
}

impl Fetch {
    /// Why a response that is not shared is not for the visitor either. A response to the visitor's own session always
    /// is, because it may have changed the session.
    pub(super) fn asks_again<B>(&self, response: &::http::Response<B>) -> Option<AskedAgain> {
        if self.class.is_personal() {
            return None;
        }
        self.loss.asks_again(response.status(), response.headers())
    }

    /// The request that began the flight, which waits for this response.
    pub(super) fn leader<B>(
        &self,
        response: &::http::Response<B>,
        reader: FlightReader,
        sender: oneshot::Sender<LeaderAnswer>,
    ) -> Leader {
        let cookies: Vec<_> = response.headers().get_all(SET_COOKIE).iter().cloned().collect();
        if self.class.is_personal() {
            // The response goes to this visitor unchanged.
            return Leader { reader, sender, cookies, asks_again: None };
        }
        // The page loses its cookies, which take effect where the visitor's own request gets them.
        let of_cookies = (!cookies.is_empty()).then_some(AskedAgain::Cookie);
        let asks_again = self.asks_again(response).or(of_cookies);
        Leader { reader, sender, cookies: Vec::new(), asks_again }
    }

    /// Whether the body is searched for `personal_data` although it is not a page.
    pub(super) fn is_searched(
        &self,
        headers: &HeaderMap,
        lost: LostCookies,
        personal_data: &PersonalData,
    ) -> bool {
        match media::kind(headers) {
            MediaKind::Json | MediaKind::Xml => !personal_data.is_empty(),
            // Scripts that an app makes for a request have no validator.
            MediaKind::JavaScript if !has_validator(headers) => !personal_data.is_empty(),
            MediaKind::Css | MediaKind::JavaScript => lost == LostCookies::All,
            MediaKind::Html
            | MediaKind::Image
            | MediaKind::Font
            | MediaKind::Audio
            | MediaKind::Video
            | MediaKind::Other => false,
        }
    }

    /// What the page with these fields must not contain: the visitor's personal data, the values of the cookies that
    /// it has lost, and those of the fields that the fetch has `sent` and that are not part of its key.
    pub(super) fn personal_data_with(
        &self,
        headers: &HeaderMap,
        sent: &HeaderMap,
        vary: &[HeaderName],
    ) -> Cow<'_, PersonalData> {
        let mut personal_data = Cow::Borrowed(&self.personal_data);
        set_cookie::pairs(headers).for_each(|(_, value)| personal_data.to_mut().set_cookie(value));
        if self.route.leak_guard == LeakGuard::Full
            && !self.class.is_personal()
            && !fault!("reflected")
        {
            let is_for_any_origin =
                headers.get(ACCESS_CONTROL_ALLOW_ORIGIN).is_some_and(|origin| origin == "*");
            let is_keyed = |name: &HeaderName| {
                vary.contains(name)
                    || self.route.key_headers.contains(name)
                    || *name == COOKIE
                    // The proxy's own value.
                    || *name == ACCEPT_ENCODING
                    // The response says itself that it is the same for pages of all sites.
                    || *name == ORIGIN && is_for_any_origin
            };
            for (_, value) in sent.iter().filter(|(name, _)| !is_keyed(name)) {
                personal_data.to_mut().request_field(value.as_bytes());
            }
        }
        personal_data
    }

    /// The age on arrival. The duration of the fetch is rounded down as a whole: if both times were rounded
    /// first, a fetch of a few milliseconds could add a second to the age.
    pub(super) fn age(&self, headers: &HeaderMap) -> u64 {
        let (came, took) = (self.received_at as u64, (self.received_at - self.asked_at) as u64);
        initial_age(headers, came.saturating_sub(took), came)
    }

    /// Whether the page may be shared only after two users were given the same.
    pub(super) fn needs_second_user(&self) -> bool {
        self.class == ShareClass::Segment && !self.route.segment.is_promised
    }

    /// The response's fields as every visitor gets them.
    pub(super) fn shown(&self, mut headers: HeaderMap) -> HeaderMap {
        strip_tags(&mut headers);
        let mut headers = shown(headers);
        if self.class == ShareClass::Segment {
            strip_exchange(&mut headers);
        }
        headers
    }

    /// The head of the page, as it is kept and as every visitor gets it.
    pub(super) fn entry(
        &self,
        mut head: ::http::response::Parts,
        storing: Storing,
        purged: &PurgeTable,
    ) -> Entry {
        let initial_age = self.age(&head.headers);
        let snapshot =
            purged.tagged(&self.purge_snapshot, &tags(&head.headers).unwrap_or_default());
        let headers = self.shown(std::mem::take(&mut head.headers));
        let reason = head.extensions.get::<hyper::ext::ReasonPhrase>();
        Entry {
            status: head.status.as_u16(),
            reason: reason.map(|phrase| Bytes::copy_from_slice(phrase.as_bytes())),
            fields: PageFields::of(&headers),
            body: Bytes::new(),
            stored_at: self.received_at as u64,
            initial_age,
            lifetime: storing.lifetime,
            source: storing.source,
            stale: storing.stale,
            static_proof: storing.static_proof,
            has_own_etag: false,
            vary: storing.vary,
            purge_snapshot: Arc::new(snapshot),
            recipe: self.recipe.clone(),
            hits: HitCount::default(),
        }
    }
}

/// The fields of a response as every visitor gets them; also for the fields that a 304 adds to a page.
pub(super) fn shown(mut headers: HeaderMap) -> HeaderMap {
    hop::strip_for_storing(&mut headers);
    // These are the cookies that the route lets a fill lose; any other Set-Cookie made the response
    // unshareable.
    headers.remove(SET_COOKIE);
    headers.remove(AGE);
    let own: Vec<_> = headers
        .keys()
        .filter(|name| forwarded::is_set_by_the_proxy(name.as_str()))
        .cloned()
        .collect();
    for name in own {
        headers.remove(name);
    }
    headers
}
