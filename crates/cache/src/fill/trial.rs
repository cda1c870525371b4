//! What a fetch would make of a response, without keeping it: for learn mode, where the response is a visitor's own.

use std::sync::Arc;

use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use ::http::response::Parts;
use ::http::{HeaderMap, HeaderName, Uri};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use anteroom_policy::route::CompiledRoute;
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;

use super::fetched::Fetch;
use super::filler::Filler;
use super::order::{FillLoss, SessionOwner};
use super::refuse::reason_of;
use super::share::forms_of;
use crate::entry::{Entry, LifetimeSource};
use crate::page_fields::PageFields;
use crate::purge::{PurgeSnapshot, PurgeTable};
use crate::rules::key::{ShareClass, variant_key};
use crate::rules::leak_guard::{self, LeakChecks, read_fields};
use crate::rules::personal_data::PersonalData;
use crate::rules::verdict::{ResponseView, Storing};

/// A fetch as it would be ordered.
#[derive(Debug)]
pub struct TrialOrder {
    /// The key without variants.
    pub primary: PageKey,
    /// The target at the origin.
    pub target: Uri,
    /// The class of visitors with whom the page would be shared.
    pub class: ShareClass,
    /// The route of the request.
    pub route: Arc<CompiledRoute>,
    /// The user that the request identifies to the origin, if any.
    pub person: Option<SessionOwner>,
    /// The visitor's personal data that the page must not contain.
    pub personal_data: PersonalData,
    /// The fields that a fetch would send.
    pub sent: HeaderMap,
    /// Which purges apply to the page.
    pub purge_snapshot: PurgeSnapshot,
    /// The Unix time at which the origin was asked.
    pub asked_at: f64,
}

/// A response whose head lets it be shared.
pub struct TrialPage {
    fetch: Fetch,
    sent: HeaderMap,
    head: Parts,
    storing: Storing,
    decoded_max: usize,
}

impl std::fmt::Debug for TrialPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrialPage").field("status", &self.head.status).finish_non_exhaustive()
    }
}

impl Filler {
    /// Judges the head of a response. `length` is that of its body, if it is known. `unframed`: only the end of the
    /// connection ends the body.
    ///
    /// # Errors
    /// The reason for which it cannot be shared.
    pub fn judge_head(
        &self,
        order: TrialOrder,
        mut head: Parts,
        length: Option<u64>,
        unframed: bool,
    ) -> Result<TrialPage, Reason> {
        order.route.cut_fields(&mut head.headers);
        let TrialOrder { primary, target, class, route, person, personal_data, sent, .. } = order;
        let fetch = Fetch {
            primary,
            target,
            route,
            class,
            loss: FillLoss::default(),
            person: person.filter(|_| class.is_personal()),
            pattern: None,
            network: 0,
            personal_data,
            withhold: false,
            recipe: None,
            replaces: false,
            asked_at: order.asked_at,
            received_at: unix_now(),
            purge_snapshot: order.purge_snapshot,
        };
        let answer = ResponseView {
            status: head.status,
            headers: &head.headers,
            length,
            unframed,
            age: fetch.age(&head.headers),
            now: fetch.received_at as u64,
        };
        let storing = self.may_store(&fetch, &sent, &answer)?;
        if !storing.is_fresh {
            return Err(Reason::Stale);
        }
        Ok(TrialPage { fetch, sent, head, storing, decoded_max: self.decoded_max() })
    }
}

impl TrialPage {
    /// The request fields that would select the page.
    #[must_use]
    pub fn vary(&self) -> &[HeaderName] {
        &self.storing.vary
    }

    /// Whether its freshness lifetime is the origin's own, or that of its route.
    #[must_use]
    pub fn has_lifetime(&self) -> bool {
        !matches!(self.storing.source, LifetimeSource::Default | LifetimeSource::Heuristic)
    }

    /// Whether the leak guard would read the body.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.storing.guarded
    }

    /// Whether the page would be shared only after two users were given the same.
    #[must_use]
    pub fn needs_second_user(&self) -> bool {
        self.fetch.needs_second_user()
    }

    /// Judges the whole body, and returns the page without it, with the key of its variant. A body that the guard
    /// does not read may be empty here.
    ///
    /// # Errors
    /// The reason for which it cannot be shared.
    pub fn judge_body(self, body: &Bytes, purged: &PurgeTable) -> Result<(PageKey, Entry), Reason> {
        let Self { fetch, sent, head, storing, decoded_max } = self;
        let personal_data =
            fetch.personal_data_with(&head.headers, &sent, &storing.vary).into_owned();
        let forms = forms_of(&fetch, storing.lost_cookies);
        let is_guarded = storing.guarded;
        let mut entry = fetch.entry(head, storing, purged);
        if is_guarded {
            let checks =
                LeakChecks { forms, personal_data: &personal_data, max_decoded: decoded_max };
            let body = std::slice::from_ref(body);
            leak_guard::inspect(&read_fields(&entry), body, &checks).map_err(reason_of)?;
        }
        // What a look-up reads of a page.
        let read = [CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED];
        entry.fields = PageFields::of(&entry.fields.some(&read));
        let key = match entry.vary.as_slice() {
            [] => fetch.primary,
            fields => variant_key(&fetch.primary, fields, &sent),
        };
        Ok((key, entry))
    }
}
