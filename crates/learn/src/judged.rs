//! The pages that would be stored, compared: by the configuration in force, and by the one that is proposed.

use crate::causes::{Cause, CookieSet};
use crate::cookies::FEW_VALUES;
use crate::judgement::Difference;
use crate::report::LearnedCookieReport;
use crate::routes::DEFAULT_ROUTE;
use crate::sample::{FieldNames, Observation};
use crate::state::{LearnedPage, LearnedState};

/// A page that would be stored, compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedPage<'l> {
    pub(crate) page: &'l LearnedPage,
    /// How it differs, by the configuration in force and with the cookies ignored that are learned to be harmless.
    pub(crate) difference: Option<Difference>,
    /// How it will differ once all is as it is proposed.
    pub(crate) then: Option<Difference>,
    /// The same, but for the one cause that explains it, if one does.
    pub(crate) beside: Option<Difference>,
    /// The visitors who will share it, of the variant that most share.
    pub(crate) visitors: usize,
}

/// The most pages that one becomes by cookies in its key.
const KEYS_MAX: usize = 64;

/// The cookies of few values that pages depend on, by their places: with these in the key of each page, visitors who have
/// them share pages, too. Empty if a page would become too many.
pub(crate) fn keyed_everywhere(
    learned: &LearnedState,
    cookies: &[(u8, LearnedCookieReport)],
) -> Vec<u8> {
    let is_keyed = |cookie: &LearnedCookieReport| {
        cookie.verdict == "keyed" && cookie.class == "unknown" && !cookie.name.contains('*')
    };
    let keyed = cookies.iter().filter(|(_, cookie)| is_keyed(cookie));
    let keyed: Vec<u8> = keyed.map(|(place, _)| *place).collect();
    let values = |place: &u8| learned.cookies.all()[usize::from(*place)].values.len();
    let has_few = keyed.iter().all(|place| values(place) <= FEW_VALUES);
    // Without the cookie there is a page, too.
    let pages: usize =
        keyed.iter().map(|place| values(place).min(FEW_VALUES) + 1).fold(1, usize::saturating_mul);
    if has_few && pages <= KEYS_MAX { keyed } else { Vec::new() }
}

/// The cookies that decide which answers are compared.
struct CookieSets {
    /// Those that are ignored, by the configuration or by what was learned.
    harmless: CookieSet,
    /// Those that are ignored, and will not be any more.
    dropped: CookieSet,
    /// Those that will be part of the key where no route of the operator decides.
    keyed: CookieSet,
}

impl CookieSets {
    fn of(cookies: &[(u8, LearnedCookieReport)], keyed: &[u8]) -> Self {
        let set = |is_one: &dyn Fn(&LearnedCookieReport) -> bool| {
            let places =
                cookies.iter().filter(|(_, cookie)| is_one(cookie)).map(|(place, _)| place);
            places.fold(0, |set, place| set | 1 << place)
        };
        Self {
            harmless: set(&|cookie| cookie.class == "harmless" || cookie.verdict == "harmless"),
            dropped: set(&|cookie| cookie.class == "harmless" && cookie.shows_pages_depend()),
            keyed: keyed.iter().fold(0, |set, place| set | 1 << place),
        }
    }

    /// Whether the visitor would get the page that others get, once the cookies that are harmless are ignored, and those of
    /// few values have pages of their own.
    fn shares(&self, one: &Observation) -> bool {
        let came = one.seen.causes.cookie_set();
        one.seen.is_shared || came != 0 && came & !(self.harmless | self.keyed) == 0
    }

    /// The same, once all is as it is proposed.
    fn will_share(&self, page: &LearnedPage, one: &Observation) -> bool {
        let came = one.seen.causes.cookie_set();
        if came & self.dropped != 0 && !page.is_for_all {
            return false;
        }
        let keyed = if is_of_operator(page) { 0 } else { self.keyed };
        one.seen.is_shared || came != 0 && came & !(self.harmless | keyed) == 0
    }
}

/// Whether a route of the operator matches the page.
fn is_of_operator(page: &LearnedPage) -> bool {
    &*page.route != DEFAULT_ROUTE
}

/// The pages that would be stored, compared, the worst first. `keyed`: cookies that will be part of their key.
pub(crate) fn judged<'l>(
    learned: &'l LearnedState,
    cookies: &[(u8, LearnedCookieReport)],
    keyed: &[u8],
    noisy: &FieldNames,
) -> Vec<JudgedPage<'l>> {
    let sets = CookieSets::of(cookies, keyed);
    let pages = learned.pages.values().filter(|page| page.simulated.may_be_stored());
    let mut judged: Vec<JudgedPage<'l>> =
        pages.map(|page| judge(page, &sets, keyed, noisy)).collect();
    judged.sort_by(|a, b| {
        let rank = |one: &JudgedPage<'_>| (one.difference, one.page.requests);
        rank(b).cmp(&rank(a)).then_with(|| a.page.name.path.cmp(&b.page.name.path))
    });
    judged
}

fn judge<'l>(
    page: &'l LearnedPage,
    sets: &CookieSets,
    keyed: &[u8],
    noisy: &FieldNames,
) -> JudgedPage<'l> {
    let shared = |one: &Observation| sets.will_share(page, one);
    let mut keys: Vec<Cause> = match is_of_operator(page) {
        true => Vec::new(),
        false => keyed.iter().map(|place| Cause::Cookie(*place)).collect(),
    };
    // Where few share the page, what all answers show of a field is evidence, too.
    let by_field = page.compared.field(noisy).map(Difference::ByField);
    let then = page.compared.difference(shared, &keys, noisy).max(by_field);
    let by = match then {
        Some(Difference::ByCookie(place)) => Some(Cause::Cookie(place)),
        Some(Difference::ByField(field)) => Some(Cause::Field(field)),
        _ => None,
    };
    let beside = by.and_then(|cause| {
        keys.push(cause);
        page.compared.difference(shared, &keys, noisy)
    });
    JudgedPage {
        page,
        difference: page.compared.difference(|one| sets.shares(one), &[], noisy).max(by_field),
        then,
        beside,
        visitors: page.compared.visitors(shared),
    }
}
