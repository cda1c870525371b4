//! Which stored pages do not fit the routes of the next configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use anteroom_http::field_condition::FieldCondition;
use anteroom_http::path::{PathPattern, decoded};

use super::{Fill, Fragment, Route, Ttl};

/// The pages that a change of the routes outdates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutdatedPages {
    /// The paths of which all pages, and all below them, are outdated. The empty path has all pages.
    pub paths: BTreeSet<String>,
    /// Whether the pages must not be served again; otherwise they are stale, because only their lifetimes have
    /// become shorter.
    pub is_hard: bool,
}

/// The pages that do not fit the routes `next`, if they were stored under `old`. The last route of each list is
/// that of all other requests.
///
/// The first match decides. So a request that matches none of the routes between the first and the last
/// difference of both lists has the same route in both.
#[must_use]
pub fn outdated_pages(old: &[Route], next: &[Route]) -> OutdatedPages {
    // A route that denies its requests stores no pages, and the pages of the other routes stay what they are.
    let [old, mut next] = [old, next].map(|routes| {
        let stores = routes.iter().filter(|route| !route.deny);
        stores.map(for_pages).collect::<Vec<_>>()
    });
    // A new route whose pages have keys of their own: no page is stored under them.
    next.retain(|route| {
        !has_own_keys(route) || old.iter().any(|old| chosen_by(old) == chosen_by(route))
    });
    let is_same = |(old, next): &(&Route, &Route)| old == next;
    let first = old.iter().zip(&next).take_while(is_same).count();
    let (old, next) = (&old[first..], &next[first..]);
    let last = old.iter().rev().zip(next.iter().rev()).take_while(is_same).count();
    let (old, next) = (&old[..old.len() - last], &next[..next.len() - last]);
    let is_hard = !are_equal_but_for_lifetimes(old, next);
    if !is_hard && !old.iter().zip(next).any(|(old, next)| are_shorter(next, old)) {
        return OutdatedPages::default();
    }
    OutdatedPages { paths: old.iter().chain(next).flat_map(branches).collect(), is_hard }
}

/// Whether pages of other routes for the same URLs have other keys.
fn has_own_keys(route: &Route) -> bool {
    !route.headers.is_empty() || route.query.presence().is_some()
}

/// The conditions that are part of the page key.
fn chosen_by(route: &Route) -> (&[FieldCondition], Option<bool>) {
    (&route.headers, route.query.presence())
}

/// The route without the keys that concern neither which pages are stored, nor their visitors, nor what the
/// stored pages hold.
#[must_use]
pub fn for_pages(route: &Route) -> Route {
    let usual = Route::default();
    Route {
        name: usual.name,
        mode: usual.mode,
        // Part of the page key.
        query_rule: usual.query_rule,
        stale_while_revalidate: usual.stale_while_revalidate,
        stale_if_error: usual.stale_if_error,
        audit: usual.audit,
        refresh_ahead: usual.refresh_ahead,
        only_top: usual.only_top,
        min_uses: usual.min_uses,
        purges: usual.purges,
        visitor_token: usual.visitor_token,
        deny: usual.deny,
        allow_from: usual.allow_from,
        requests_per_address: usual.requests_per_address,
        requests_per_session: usual.requests_per_session,
        set_headers: usual.set_headers,
        redirect: usual.redirect,
        redirect_status: usual.redirect_status,
        requires_login: usual.requires_login,
        login_page: usual.login_page,
        class: usual.class,
        max_strangers: usual.max_strangers,
        maintenance: usual.maintenance,
        access_log: usual.access_log,
        ..route.clone()
    }
}

fn are_equal_but_for_lifetimes(old: &[Route], next: &[Route]) -> bool {
    let without =
        |route: &Route| Route { ttl: Ttl::default(), override_ttl: None, ..route.clone() };
    old.iter().map(without).eq(next.iter().map(without))
}

/// Whether a lifetime may be shorter than it was.
fn are_shorter(next: &Route, old: &Route) -> bool {
    let is_shorter = |next: Option<Duration>, old: Option<Duration>| match (next, old) {
        (Some(next), Some(old)) => next < old,
        (next, old) => next != old,
    };
    let by_status = |ttl: &Ttl, status: u16| {
        let found = ttl.by_status.iter().find(|(named, _)| *named == status);
        found.map(|(_, ttl)| *ttl)
    };
    let mut statuses =
        old.ttl.by_status.iter().chain(&next.ttl.by_status).map(|(status, _)| *status);
    is_shorter(next.override_ttl, old.override_ttl)
        || is_shorter(next.ttl.usual, old.ttl.usual)
        || statuses
            .any(|status| is_shorter(by_status(&next.ttl, status), by_status(&old.ttl, status)))
}

/// The branches on which all paths of a route lie, and the paths of what its fragments are filled with: a fragment
/// may say with which visitors its content is shared.
fn branches(route: &Route) -> Vec<String> {
    let paths = match route.paths.as_slice() {
        [] => vec![String::new()],
        paths => paths.iter().map(PathPattern::branch).collect(),
    };
    paths.into_iter().chain(route.fragments.iter().filter_map(content_path)).collect()
}

/// The path of a fragment's content, without a slash at the end.
fn content_path(fragment: &Fragment) -> Option<String> {
    let Fill::From(target) = &fragment.fill else { return None };
    let path = target.split('?').next().unwrap_or_default();
    let path = decoded(path).unwrap_or_default();
    Some(path.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use ::http::header::USER_AGENT;
    use anteroom_http::selector::Selector;

    use super::*;
    use crate::route::{QueryCondition, Share};

    fn route(path: &str, share: Share) -> Route {
        let paths = vec![PathPattern::parse(path).unwrap()];
        Route { paths, share, ..Route::default() }
    }

    #[track_caller]
    fn assert_outdated(old: &[Route], next: &[Route], paths: &[&str], is_hard: bool) {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(outdated_pages(old, next), OutdatedPages { paths, is_hard });
        if is_hard {
            assert_eq!(outdated_pages(next, old), outdated_pages(old, next), "both ways");
        }
    }

    #[test]
    fn what_lies_between_the_differences_is_outdated() {
        let [a, b, c] = ["/a", "/b/**", "/c/*"].map(|path| route(path, Share::Everyone));
        let (user, rest) = (route("/b/**", Share::User), Route::default());
        let list = |routes: &[&Route]| -> Vec<Route> {
            routes.iter().chain(&[&rest]).map(|route| (*route).clone()).collect()
        };
        let old = list(&[&a, &b, &c]);
        assert_outdated(&old, &old, &[], false);
        assert_outdated(&old, &list(&[&a, &user, &c]), &["/b"], true);
        assert_outdated(&old, &list(&[&a, &c]), &["/b"], true);
        assert_outdated(&old, &list(&[&b, &a, &c]), &["/a", "/b"], true);
        assert_outdated(&old, &list(&[&a, &b]), &["/c"], true);
        assert_outdated(&old, &list(&[]), &["/a", "/b", "/c"], true);
        let trusting = Route { trust_public: true, ..Route::default() };
        assert_outdated(std::slice::from_ref(&rest), &[trusting], &[""], true);
    }

    #[test]
    fn what_fills_a_fragment_is_outdated_with_the_page() {
        let of = |share| Fragment {
            selector: Selector::parse("#cart").unwrap(),
            fill: Fill::From("/parts/caf%C3%A9?small=1".into()),
            share: Some(share),
            fallback: None,
            only_sessions: false,
        };
        let with = |share| Route { fragments: vec![of(share)], ..route("/a", Share::Everyone) };
        let [old, next] = [Share::Everyone, Share::User].map(with);
        assert_outdated(&[old], &[next], &["/a", "/parts/caf\u{e9}"], true);
    }

    #[test]
    fn keys_that_do_not_concern_stored_pages_outdate_none() {
        let old = route("/a", Share::Everyone);
        let next = Route {
            name: "other".into(),
            access_log: false,
            maintenance: true,
            max_strangers: Some(2),
            min_uses: 3,
            requires_login: Some(true),
            ..old.clone()
        };
        assert_outdated(&[old], &[next], &[], false);
    }

    #[test]
    fn a_route_that_denies_outdates_no_page_and_conditions_do() {
        let [a, b] = ["/a", "/b"].map(|path| route(path, Share::Everyone));
        let rest = Route::default();
        let denies = Route { deny: true, ..Route::default() };
        let old = [a.clone(), b.clone(), rest.clone()];
        assert_outdated(&old, &[denies, a.clone(), b.clone(), rest.clone()], &[], false);
        assert_outdated(&old, &[a.clone(), Route { deny: true, ..b }, rest], &["/b"], true);
        let headers = vec![FieldCondition::parse(USER_AGENT, "~ bot").unwrap()];
        let of_bots = Route { headers, ..a.clone() };
        assert_outdated(&[a], &[of_bots], &["/a"], true);
    }

    #[test]
    fn a_new_route_with_keys_of_its_own_outdates_no_page_and_its_removal_does() {
        let [a, rest] = [route("/a", Share::Everyone), Route::default()];
        let headers = vec![FieldCondition::parse(USER_AGENT, "~ bot").unwrap()];
        let of_bots = Route { headers, ..route("/a", Share::User) };
        let by_query = Route { query: QueryCondition::Any, ..route("/a", Share::User) };
        let old = [a.clone(), rest.clone()];
        for added in [of_bots, by_query] {
            let next = [added.clone(), a.clone(), rest.clone()];
            assert_outdated(&old, &next, &[], false);
            let paths = ["/a".to_owned()].into();
            assert_eq!(outdated_pages(&next, &old), OutdatedPages { paths, is_hard: true });
            let changed = Route { share: Share::Everyone, ..added };
            assert_outdated(&next, &[changed, a.clone(), rest.clone()], &["/a"], true);
        }
    }

    #[test]
    fn only_shorter_lifetimes_outdate_and_softly() {
        let seconds = Duration::from_secs;
        let of = |ttl: Ttl, override_ttl: Option<u64>| Route {
            ttl,
            override_ttl: override_ttl.map(seconds),
            ..route("/a", Share::Everyone)
        };
        let all = |ttl| Ttl::all(seconds(ttl));
        let error = |ttl| Ttl { usual: None, by_status: vec![(404, seconds(ttl))] };
        for (long, short) in [
            (of(all(9), None), of(all(8), None)),
            (of(all(9), Some(9)), of(all(9), Some(8))),
            (of(error(9), None), of(error(8), None)),
            (of(error(9), None), of(Ttl::default(), None)),
        ] {
            assert_outdated(
                std::slice::from_ref(&long),
                std::slice::from_ref(&short),
                &["/a"],
                false,
            );
            if short.ttl != Ttl::default() {
                assert_outdated(&[short], &[long], &[], false);
            }
        }
    }
}
