//! What the cache would do with a request, by the simulated cache.

use ::http::Method;
use anteroom_cache::learn::Predicted;
use anteroom_cache::purge::PurgeStanding;
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::verdict::Access;
use anteroom_cache::{CacheTier, Lookup, LookupMode};
use anteroom_http::ident::PageKey;
use anteroom_policy::route::Share;
use anteroom_telemetry::reason::Reason;

use crate::proxy::context::RequestContext;
use crate::proxy::origin_request;
use crate::proxy::stage::cache_lookup::{PageUse, WantedPage, is_rare, weigh};
use crate::proxy::stage::decide;

/// What was predicted for a request.
pub(super) struct Looked<'c> {
    /// The page, without variants.
    pub(super) key: PageKey,
    pub(super) predicted: Predicted,
    /// The page as the cache would look it up; `None`: it would not, and the answer is only compared.
    pub(super) want: Option<WantedPage<'c>>,
    /// Whether the visitor would get the page that others get.
    pub(super) is_shared: bool,
    /// Whether the visitor's own answer is what a fetch would get.
    pub(super) is_seen: bool,
    /// Whether a stale page would be the answer where the origin fails.
    pub(super) is_rescued: bool,
}

impl Looked<'_> {
    /// The same for a request whose answer is not seen.
    pub(super) fn unseen(mut self) -> Self {
        self.is_seen = false;
        if let Predicted::Fetch { is_seen } | Predicted::StaleHit { is_seen } = &mut self.predicted
        {
            *is_seen = false;
        }
        self
    }
}

/// What the cache would do with a GET. `None`: nothing, and the answer teaches nothing.
pub(super) fn predict<'c>(
    cx: &'c RequestContext<'c>,
    access: &Access,
    look: LookupMode,
) -> Option<Looked<'c>> {
    let (class, forwarded_for) = match access {
        Access::Shared(class) => (*class, None),
        Access::StaticOnly(reason) => (ShareClass::Anonymous, Some(*reason)),
        Access::Bypass(reason) => return only_compared(cx, *reason),
    };
    let want = WantedPage::new(cx, class);
    // A parameter that the configuration ignores does not matter, by its word.
    let loses_fields = origin_request::lost_fields(cx, class, want.sent()).next().is_some();
    let is_seen = forwarded_for.is_none() && !loses_fields && cx.certificate().is_none();
    let (predicted, is_rescued) = look_up(&want, forwarded_for, is_seen, look);
    // What is static by proof, visitors with a login share, too.
    let is_shared = match forwarded_for {
        Some(_) => predicted == Predicted::Hit,
        None => class != ShareClass::User,
    };
    Some(Looked { key: want.key, predicted, want: Some(want), is_shared, is_seen, is_rescued })
}

/// The same for another method, of which only HEAD may be answered from the cache.
pub(super) fn of_head(
    cx: &RequestContext<'_>,
    access: &Access,
    look: LookupMode,
) -> Option<Predicted> {
    let (Access::Shared(class), true) = (access, cx.head.method == Method::HEAD) else {
        return None;
    };
    let want = WantedPage::new(cx, *class);
    match look_up(&want, None, false, look).0 {
        Predicted::Fetch { .. } => Some(Predicted::Forward(Reason::Head)),
        predicted => Some(predicted),
    }
}

/// What the cache would do, and whether it has a stale page for the case that the origin fails.
fn look_up(
    want: &WantedPage<'_>,
    forwarded_for: Option<Reason>,
    is_seen: bool,
    look: LookupMode,
) -> (Predicted, bool) {
    let mut found = find(want);
    if let Lookup::Absent(_) = found
        && want.class == ShareClass::Anonymous
        && want.cx.route.trust_public
        && let fresh @ Lookup::Fresh(..) = find(&WantedPage::new(want.cx, ShareClass::Public))
    {
        found = fresh;
    }
    let predicted = match weigh(want, found, forwarded_for) {
        PageUse::Hit(..) => Predicted::Hit,
        PageUse::Forward(reason) => Predicted::Forward(reason),
        PageUse::Fetch(Some(stale), _) if want.is_answered_meanwhile(&stale.entry) => {
            Predicted::StaleHit { is_seen }
        }
        PageUse::Fetch(None, _) if is_rare(want, look) => Predicted::Forward(Reason::MinUses),
        PageUse::Fetch(..) if want.loses_visitor_fields() => Predicted::Forward(Reason::Miss),
        PageUse::Fetch(stale, _) => {
            let is_rescued = stale.is_some_and(|stale| stale.serves_on_error);
            return (Predicted::Fetch { is_seen }, is_rescued);
        }
    };
    (predicted, false)
}

fn find(want: &WantedPage<'_>) -> Lookup {
    let worker = want.cx.worker;
    let Some((key, entry)) = worker.learning.find(&want.key, || want.sent()) else {
        return Lookup::Absent(want.key);
    };
    match worker.pages.standing(&entry, want.now()) {
        PurgeStanding::Current => Lookup::Fresh(entry, CacheTier::Memory),
        PurgeStanding::Stale => Lookup::Stale(entry, CacheTier::Memory, key),
        PurgeStanding::Gone => Lookup::Absent(key),
    }
}

/// A request that only its cookies keep from the page of strangers: its answer shows what the cookies do.
fn only_compared<'c>(cx: &'c RequestContext<'c>, reason: Reason) -> Option<Looked<'c>> {
    let is_of_cookies = |reason: &Reason| {
        matches!(
            reason,
            Reason::UnknownCookie | Reason::UnknownToken | Reason::Unverified | Reason::Login
        )
    };
    let is_read = is_of_cookies(&reason) && cx.route.share == Share::Anonymous;
    if !is_read || !decide::obstacles(cx, false).iter().all(is_of_cookies) {
        return None;
    }
    let target = cx.head.uri.path_and_query().map_or("/", |target| target.as_str());
    let key = cx.page_key(target, cx.route, ShareClass::Anonymous);
    let predicted = Predicted::Forward(reason);
    let (is_shared, is_seen, is_rescued) = (false, false, false);
    Some(Looked { key, predicted, want: None, is_shared, is_seen, is_rescued })
}
