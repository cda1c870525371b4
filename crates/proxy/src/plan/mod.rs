//! What is done with a request that has been identified.
//!
//! [`plan`] is the one place where this is decided. It is pure: [`Facts`] is what the request and its
//! route say, [`LookupAnswers`] is what look-ups have answered so far, and the [`Step`] is the next look-up or
//! the [`Decision`]. `stage::decide` answers the look-ups. Serving carries a decision out, `explain`
//! prints it, learn mode scores it, and warming uses it.

use std::sync::Arc;

use anteroom_cache::CacheTier;
use anteroom_cache::entry::Entry;
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::verdict::Access;
use anteroom_fault::fault;
use anteroom_http::ident::{Item, PageKey, Row};
use anteroom_rows::KeptRow;
use anteroom_telemetry::reason::Reason;

/// What the request and its route say.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    /// The item that the request names on its route.
    pub(crate) item: Option<&'a Item>,
    /// The row that would answer the request.
    pub(crate) row: Option<Row>,
    /// Whether the request asks for another protocol.
    pub(crate) is_upgrade: bool,
    /// Why the cache is switched off for this request, if an operator or the audit has done so.
    pub(crate) switched_off: Option<Reason>,
    /// Whether the cache serves this request only if its item is among the most viewed ones.
    pub(crate) needs_rank: bool,
    /// How far the rules of the cache let it serve the request.
    pub(crate) access: Access,
    /// Whether the visitor is a known user.
    pub(crate) is_known_user: bool,
    /// Whether a page that is static by proof may answer instead of the page of the segment.
    pub(crate) may_be_static: bool,
    /// Whether the route learns: what is decided is scored, and the request is forwarded. A request for a stored
    /// response only is refused.
    pub(crate) learns: bool,
    /// Whether only a stored response will do (`only-if-cached`, RFC 9111 §5.2.1.7).
    pub(crate) only_if_cached: bool,
    /// Whether the request is a HEAD.
    pub(crate) is_head: bool,
    /// Whether pages that the origin marks `public` are valid for anonymous visitors, too.
    pub(crate) trusts_public: bool,
    /// Whether a page is stored only after it was requested several times.
    pub(crate) counts_uses: bool,
}

/// What look-ups have answered so far. `None`: not looked up.
#[derive(Debug, Default)]
pub(crate) struct LookupAnswers {
    /// The row of the request.
    pub(crate) row: Option<Option<Arc<KeptRow>>>,
    /// Whether the item is among the most viewed ones.
    pub(crate) is_ranked: Option<bool>,
    /// Whether a page that is static by proof is stored for anonymous visitors.
    pub(crate) is_static: Option<bool>,
    /// The fresh page in memory.
    pub(crate) memory: Option<Option<LookupResult>>,
    /// Why no response to a request for the page is cacheable, by the last response.
    pub(crate) marked_for_all: Option<Option<Reason>>,
    /// The page in the store, or a stale page in memory.
    pub(crate) store: Option<LookupResult>,
    /// The page that the origin marked `public`.
    pub(crate) public: Option<LookupResult>,
    /// Why the page was recently found to be uncacheable.
    pub(crate) marked: Option<Option<Reason>>,
    /// Whether the origin has just failed for the stale page.
    pub(crate) is_failing: Option<bool>,
    /// Whether the page has been requested too seldom to be stored.
    pub(crate) is_rare: Option<bool>,
    /// Whether a fetch would lose a field of the request that a personal page may depend on.
    pub(crate) loses_fields: Option<bool>,
    /// Why the request is sent as it came, although its page could be fetched for the cache.
    pub(crate) as_it_came: Option<Option<Reason>>,
}

/// A page that was found, and what the request makes of it. `suits`: whether this visitor may get the page;
/// the error is the reason to forward the request.
#[derive(Clone, Debug)]
pub(crate) enum LookupResult {
    /// A fresh page.
    Fresh { entry: Arc<Entry>, tier: CacheTier, suits: Result<(), Reason> },
    /// A fresh page, but not fresh enough for the directives of the request. `key`: see [`StaleCandidate`].
    TooOld { entry: Arc<Entry>, key: PageKey, suits: bool },
    /// A stale page. `serves_on_error`: see [`StaleCandidate`]; `serves_meanwhile`: it is the answer while
    /// it is revalidated (RFC 5861 §3).
    Stale {
        entry: Arc<Entry>,
        key: PageKey,
        suits: bool,
        serves_on_error: bool,
        serves_meanwhile: bool,
    },
    /// No page. It would be fetched under this key.
    Absent { key: PageKey },
}

/// A look-up whose answer the decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// [`LookupAnswers::row`].
    Row,
    /// [`LookupAnswers::is_ranked`].
    Rank,
    /// [`LookupAnswers::is_static`].
    Static,
    /// [`LookupAnswers::memory`], for pages of this class.
    Memory(PageClass),
    /// [`LookupAnswers::marked_for_all`].
    MarkForAll,
    /// [`LookupAnswers::store`].
    Store,
    /// [`LookupAnswers::public`].
    Public,
    /// [`LookupAnswers::marked`].
    Mark,
    /// [`LookupAnswers::is_failing`], of the stale page that would be fetched under this key.
    Failing(PageKey),
    /// [`LookupAnswers::is_rare`].
    Rare,
    /// [`LookupAnswers::loses_fields`].
    LostFields,
    /// [`LookupAnswers::as_it_came`].
    AsItCame,
}

/// The pages that may answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageClass {
    /// The visitors with whom the page is shared.
    pub(crate) class: ShareClass,
    /// If this visitor gets only pages that are static by proof, and fills none: why any other request is
    /// forwarded.
    pub(crate) only_static: Option<Reason>,
}

impl PageClass {
    /// The pages of a class, which the request may fill.
    pub(crate) fn of(class: ShareClass) -> Self {
        Self { class, only_static: None }
    }
}

/// The next look-up, or what is done.
#[derive(Debug)]
pub(crate) enum Step {
    /// The decision needs the answer of this look-up.
    Need(Lookup),
    /// This is done.
    Done(Decision),
}

/// A page that suits the visitor but is stale, or not fresh enough for the request's directives.
#[derive(Clone, Debug)]
pub(crate) struct StaleCandidate {
    pub(crate) entry: Arc<Entry>,
    /// The key under which the page is fetched again.
    pub(crate) key: PageKey,
    /// Whether the page may be served when the origin fails.
    pub(crate) serves_on_error: bool,
}

/// What is done with a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Answer with this row.
    Row(Arc<KeptRow>),
    /// Forward a request for another protocol.
    Upgrade,
    /// Answer with a page, or fetch one.
    Page(PageDecision),
    /// Forward the request for this visitor alone.
    Forward(Reason),
    /// Refuse: the request accepts only a stored response, and there is none (RFC 9111 §5.2.1.7).
    NotStored,
}

impl Decision {
    /// Why no stored page or row answers, and none is fetched; `None`: one does, or is.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Forward(reason) | Self::Page(PageDecision::AsItCame { reason, .. }) => {
                Some(*reason)
            }
            Self::Upgrade => Some(Reason::Upgrade),
            // RFC 9111 §5.2.1.7: the request's own directive.
            Self::NotStored => Some(Reason::RequestDirective),
            Self::Row(_) | Self::Page(_) => None,
        }
    }
}

/// What is done with a request for a page that was looked up.
#[derive(Debug)]
pub(crate) enum PageDecision {
    /// Answer with this page.
    Hit(Arc<Entry>, CacheTier),
    /// Answer with a stale page. With `renews`, the page is revalidated in the background (RFC 5861 §3);
    /// without it, the origin failed for this page a moment ago (§4).
    Stale { candidate: StaleCandidate, renews: bool },
    /// Fetch the page, or wait for a fetch that is under way.
    Fetch { candidate: Option<StaleCandidate>, key: PageKey },
    /// Forward the request as it came, for this reason, and learn from the response what those to similar
    /// URLs are like. A fetch of the page would use this key.
    AsItCame { reason: Reason, key: PageKey },
}

/// Decides what is done with a request, or which look-up is needed next.
pub(crate) fn plan(facts: &Facts<'_>, known: &LookupAnswers) -> Step {
    match decide(facts, known) {
        Ok(decision) => Step::Done(decision),
        Err(lookup) => Step::Need(lookup),
    }
}

/// The pages that may answer the request if no look-up decides otherwise; `None`: a look-up comes first. With
/// these, memory can be asked before the first call of [`plan`].
pub(crate) fn first_class(facts: &Facts<'_>) -> Option<PageClass> {
    if facts.row.is_some() || facts.learns {
        return None;
    }
    page_class(facts, &LookupAnswers::default()).ok()?.ok()
}

/// Why the cache may not serve the request at all, as far as look-ups have answered.
pub(crate) fn barred(facts: &Facts<'_>, known: &LookupAnswers) -> Option<Reason> {
    page_class(facts, known).ok()?.err()
}

fn decide(facts: &Facts<'_>, known: &LookupAnswers) -> Result<Decision, Lookup> {
    if facts.row.is_some()
        && let Some(row) = known.row.as_ref().ok_or(Lookup::Row)?
    {
        return Ok(Decision::Row(Arc::clone(row)));
    }
    let pages = match page_class(facts, known)? {
        Ok(pages) => pages,
        Err(Reason::Upgrade) if !facts.only_if_cached || fault!("stored") => {
            return Ok(Decision::Upgrade);
        }
        Err(reason) => return Ok(forward(facts, reason)),
    };
    if facts.learns && facts.only_if_cached && !fault!("learned") {
        return Ok(Decision::NotStored);
    }
    let found = match known.memory.as_ref().ok_or(Lookup::Memory(pages))? {
        Some(found) => found,
        None => {
            if let Some(reason) = marked_for_all(facts, known)? {
                return Ok(forward(facts, pages.only_static.unwrap_or(reason)));
            }
            known.store.as_ref().ok_or(Lookup::Store)?
        }
    };
    let found = match found {
        // A response to a logged-in visitor that the origin marks `public` is valid for anonymous
        // visitors, too.
        LookupResult::Absent { .. }
            if facts.trusts_public && pages.class == ShareClass::Anonymous =>
        {
            match known.public.as_ref().ok_or(Lookup::Public)? {
                public @ (LookupResult::Fresh { .. } | LookupResult::TooOld { .. }) => public,
                public @ LookupResult::Stale { .. } if fault!("public") => public,
                LookupResult::Stale { .. } | LookupResult::Absent { .. } => found,
            }
        }
        found => found,
    };
    weigh(facts, known, pages, found)
}

/// Decides about a page that was looked up.
fn weigh(
    facts: &Facts<'_>,
    known: &LookupAnswers,
    pages: PageClass,
    found: &LookupResult,
) -> Result<Decision, Lookup> {
    let (candidate, serves_meanwhile, key) = match found {
        LookupResult::Fresh { entry, tier, suits } => {
            let is_refused = !entry.static_proof && !fault!("known");
            let refused = pages.only_static.filter(|_| is_refused);
            return Ok(match suits.err().or(refused) {
                None => Decision::Page(PageDecision::Hit(Arc::clone(entry), *tier)),
                Some(reason) => forward(facts, reason),
            });
        }
        LookupResult::TooOld { entry, key, suits } => {
            let candidate =
                StaleCandidate { entry: Arc::clone(entry), key: *key, serves_on_error: true };
            (Some(candidate).filter(|_| *suits), false, *key)
        }
        LookupResult::Stale { entry, key, suits, serves_on_error, serves_meanwhile } => {
            let (entry, serves_on_error) = (Arc::clone(entry), *serves_on_error);
            let candidate = StaleCandidate { entry, key: *key, serves_on_error };
            (Some(candidate).filter(|_| *suits || fault!("unsuited")), *serves_meanwhile, *key)
        }
        LookupResult::Absent { key } => (None, false, *key),
    };
    if let Some(reason) = pages.only_static {
        return Ok(forward(
            facts,
            match found {
                LookupResult::TooOld { .. } => Reason::RequestDirective,
                _ => reason,
            },
        ));
    }
    if facts.only_if_cached {
        return Ok(Decision::NotStored);
    }
    if facts.is_head && !fault!("head") {
        // The response to a HEAD is for this client alone and leaves stored pages unchanged. It cannot
        // make a page fresh, and a page that it contradicts is stale already (RFC 9111 §4.3.5).
        return Ok(Decision::Forward(Reason::Head));
    }
    if let Some(reason) = known.marked.ok_or(Lookup::Mark)? {
        return Ok(Decision::Forward(reason));
    }
    match candidate {
        Some(candidate)
            if (candidate.serves_on_error || fault!("failing"))
                && known.is_failing.ok_or(Lookup::Failing(candidate.key))? =>
        {
            Ok(Decision::Page(PageDecision::Stale { candidate, renews: false }))
        }
        // No client would see the response to a background request with the visitor's session.
        Some(candidate) if serves_meanwhile && !pages.class.is_personal() => {
            Ok(Decision::Page(PageDecision::Stale { candidate, renews: true }))
        }
        Some(candidate) => fetch(known, pages.class, Some(candidate), key),
        None if facts.counts_uses && !fault!("rare") && known.is_rare.ok_or(Lookup::Rare)? => {
            Ok(Decision::Forward(Reason::MinUses))
        }
        None => fetch(known, pages.class, None, key),
    }
}

/// Decides whether a page is fetched for the cache, or the request is sent as it came.
fn fetch(
    known: &LookupAnswers,
    class: ShareClass,
    candidate: Option<StaleCandidate>,
    key: PageKey,
) -> Result<Decision, Lookup> {
    // The response to a request with a session is always delivered, because it may have changed the
    // session.
    if class.is_personal()
        && !fault!("lost-fields")
        && known.loses_fields.ok_or(Lookup::LostFields)?
    {
        return Ok(Decision::Forward(Reason::Miss));
    }
    // A page that was stored once is fetched again for the cache; so are pages of one visitor or segment,
    // whose fetch carries the visitor's session.
    if candidate.is_none()
        && (!class.is_personal() || fault!("personal"))
        && !fault!("unproven")
        && let Some(reason) = known.as_it_came.ok_or(Lookup::AsItCame)?
    {
        return Ok(Decision::Page(PageDecision::AsItCame { reason, key }));
    }
    Ok(Decision::Page(PageDecision::Fetch { candidate, key }))
}

/// The pages that may answer the request; the inner error is the reason why none may.
fn page_class(
    facts: &Facts<'_>,
    known: &LookupAnswers,
) -> Result<Result<PageClass, Reason>, Lookup> {
    if facts.is_upgrade && !fault!("upgrade") {
        return Ok(Err(Reason::Upgrade));
    }
    if let Some(reason) = facts.switched_off
        && !fault!("switch")
    {
        return Ok(Err(reason));
    }
    if facts.needs_rank && !fault!("rank") && !known.is_ranked.ok_or(Lookup::Rank)? {
        return Ok(Err(Reason::Rank));
    }
    Ok(match facts.access {
        // SECURITY: a personal page needs a known user as its owner.
        Access::Shared(class)
            if class.is_personal() && !facts.is_known_user && !fault!("owner") =>
        {
            Err(Reason::UnknownToken)
        }
        // A resource already proven static needs no segment proof.
        Access::Shared(ShareClass::Segment)
            if facts.may_be_static && known.is_static.ok_or(Lookup::Static)? =>
        {
            Ok(PageClass { class: ShareClass::Anonymous, only_static: Some(Reason::Login) })
        }
        Access::Shared(class) => Ok(PageClass::of(class)),
        Access::StaticOnly(reason) => {
            Ok(PageClass { class: ShareClass::Anonymous, only_static: Some(reason) })
        }
        Access::Bypass(_) if fault!("upgrade") && facts.is_upgrade => Err(Reason::Upgrade),
        Access::Bypass(reason) => Err(reason),
    })
}

/// Why a page that memory does not have is not looked up in the store. Another proxy may have stored the page
/// since; it is found again when the mark ends, within two minutes.
fn marked_for_all(facts: &Facts<'_>, known: &LookupAnswers) -> Result<Option<Reason>, Lookup> {
    if facts.is_head || facts.only_if_cached || facts.trusts_public {
        return Ok(None);
    }
    known.marked_for_all.ok_or(Lookup::MarkForAll)
}

/// Forwards a request, unless it accepts only a stored response.
fn forward(facts: &Facts<'_>, reason: Reason) -> Decision {
    if facts.only_if_cached && !fault!("refused") {
        Decision::NotStored
    } else {
        Decision::Forward(reason)
    }
}

#[cfg(any(test, feature = "testbed"))]
pub(crate) mod words;

#[cfg(test)]
mod tests;
