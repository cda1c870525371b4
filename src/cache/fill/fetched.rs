//! A fetch whose response has begun, and the page made from it.

use std::borrow::Cow;
use std::sync::Arc;

use ::http::header::{AGE, SET_COOKIE};
use ::http::{HeaderMap, Uri};
use bytes::Bytes;

use super::order::{FillDifference, SessionOwner};
use crate::cache::entry::Entry;
use crate::cache::hit_count::HitCount;
use crate::cache::page_fields::PageFields;
use crate::cache::purge::{PurgeSnapshot, PurgeTable};
use crate::cache::recipe::Recipe;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::personal_data::PersonalData;
use crate::cache::rules::verdict::{LostCookies, Storing};
use crate::cache::segment_proof::strip_exchange;
use crate::http::freshness::initial_age;
use crate::http::media::{self, MediaKind};
use crate::http::tags::{strip_tags, tags};
use crate::http::{forwarded, hop, set_cookie};
use crate::ident::PageKey;
use crate::policy::route::CompiledRoute;

/// A fetch whose response has begun.
pub(super) struct Fetch {
    pub(super) primary: PageKey,
    pub(super) target: Uri,
    pub(super) route: Arc<CompiledRoute>,
    pub(super) class: ShareClass,
    pub(super) difference: FillDifference,
    /// The user that the request identified to the origin, if any.
    pub(super) person: Option<SessionOwner>,
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
    /// Whether the body is searched for personal data although it is not a page.
    pub(super) fn is_searched(&self, headers: &HeaderMap, lost: LostCookies) -> bool {
        match media::kind(headers) {
            MediaKind::Json | MediaKind::Xml => !self.personal_data.is_empty(),
            MediaKind::Css | MediaKind::JavaScript => lost == LostCookies::All,
            MediaKind::Html
            | MediaKind::Image
            | MediaKind::Font
            | MediaKind::Audio
            | MediaKind::Video
            | MediaKind::Other => false,
        }
    }

    /// The personal data that the page must not contain, including the values of the cookies that it has
    /// lost.
    pub(super) fn personal_data_with(&self, lost: &HeaderMap) -> Cow<'_, PersonalData> {
        let mut personal_data = Cow::Borrowed(&self.personal_data);
        set_cookie::pairs(lost).for_each(|(_, value)| personal_data.to_mut().set_cookie(value));
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
