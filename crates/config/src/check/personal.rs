//! Pages that are shared by segment or kept for one user, and what is filled in pages.

use ::http::Method;
use anteroom_http::path::PathPattern;
use anteroom_http::{host_pattern, path};
use anteroom_policy::route::{Esi, Fill, Route, RowId, Segment, Share};

use super::ConfigCheck;
use super::route::word;
use crate::plan::{ClientCerts, Plan, StoreUrl};
use crate::suggest::nearest;

impl ConfigCheck<'_> {
    /// Sharing by visitor needs a session cookie, and an origin that receives the identity.
    pub(super) fn personal(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        if route.share != Share::Segment {
            let segment = Segment { is_promised: false, ..route.segment.clone() };
            for (key, is_said) in [
                ("segment", segment != Segment::default()),
                ("segment_proof", route.segment.is_promised),
            ] {
                if is_said {
                    self.warning(&at(key), "has no effect without share = \"segment\"");
                }
            }
        }
        let Some(share) = personal(route.share) else { return };
        self.session_for(&at("share"), share, Some(route));
        let is_session = |name: &&String| self.is_session(name);
        if let Some(name) = route.strip_set_cookie.iter().find(is_session) {
            let text = format!(
                "{name} is a session cookie, which share = \"{share}\" always keeps; remove it \
                 from the list"
            );
            self.problem(&at("strip_set_cookie"), text);
        }
        if route.segment.is_promised && route.share == Share::Segment {
            let text = "\"none\": the response to one user is served to the whole segment; only \
                        your word ensures that it contains no personal data";
            self.warning(&at("segment_proof"), text);
        }
    }

    /// Checks fragments. They need shared pages: a page for one user already contains everything.
    pub(super) fn holes_of(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let (holes, has_esi) = (route.fragments.len(), route.esi != Esi::Off);
        if has_esi && route.rows.is_some() {
            self.problem(&at("esi"), "has no effect on a route with rows, which are JSON");
        }
        if holes == 0 {
            return;
        }
        let setting = at("fragments");
        if has_esi {
            self.problem(
                &setting,
                "cannot be combined with esi, by which the app marks its fragments itself; remove \
                 one of them",
            );
        }
        if route.rows.is_some() {
            self.problem(&setting, "have no effect on a route with rows, which are JSON");
        }
        self.row_holes(&setting, route);
        match route.share {
            Share::None => {
                self.problem(&setting, "need shared pages, and share is \"none\"");
            }
            // Rows are no reason to share more: they are the same for everyone.
            Share::Anonymous | Share::User if !route.has_personal_fragments() => {}
            Share::Anonymous => self.warning(
                &setting,
                "share = \"anonymous\": logged-in visitors get no shared page here; if all \
                 personal data is filled in, write share = \"everyone\"",
            ),
            Share::User => {
                self.problem(&setting, "need shared pages, and share is \"user\"");
            }
            Share::Everyone | Share::Segment => {}
        }
        self.personal_holes(at, route);
        let most = self.plan.limits.fragments;
        if holes > most && !self.unread("limits.fragments") {
            let text = format!("found {holes}; expected at most {most} ([limits] fragments)");
            self.problem(&setting, text);
        }
    }

    /// A row needs its source, and an id.
    fn row_holes(&mut self, setting: &str, route: &Route) {
        for fragment in &route.fragments {
            let Fill::Row(fill) = &fragment.fill else { continue };
            if fill.id == RowId::Item && !route.names_item() {
                self.problem(
                    setting,
                    format!("\"{fill}\" needs {{item}} in match.path or match.query, which names the row"),
                );
            }
            let known: Vec<&str> = self.plan.rows.iter().map(|rows| rows.name.as_str()).collect();
            if known.contains(&&*fill.rows) || self.unread_rows() {
                continue;
            }
            let hint = match (nearest(&fill.rows, &known), known.is_empty()) {
                (Some(near), _) => format!("; did you mean {near:?}?"),
                (None, true) => "; write them with name and path, or with a query".to_owned(),
                (None, false) => format!("; there are {}", known.join(", ")),
            };
            let name = &fill.rows;
            self.problem(setting, format!("there is no [[rows]] with the name {name:?}{hint}"));
        }
    }

    /// A fragment that is shared by visitor, by its own `share`, has the same needs as the routes that its
    /// request may take.
    fn personal_holes(&mut self, at: &dyn Fn(&str) -> String, route: &Route) {
        let setting = &at("fragments");
        for fragment in &route.fragments {
            let (Fill::From(from), Some(by)) = (&fragment.fill, fragment.share) else { continue };
            let Some(share) = personal(by) else { continue };
            if by == Share::Segment && route.share != Share::Segment && !self.unread(&at("share")) {
                let text = format!(
                    "share = \"segment\" for {from} uses the segment of this route; write share = \
                     \"segment\" here too, or add a route for {from} with a segment"
                );
                self.problem(setting, text);
                continue;
            }
            let asked = asked_for(self.plan, route, from);
            let apart = asked.iter().find(|asked| !self.knows_sessions(**asked));
            if let Some(asked) = apart.or_else(|| asked.first()) {
                self.session_for(setting, share, *asked);
            }
            let mut lost = asked.iter().flatten().flat_map(|asked| &asked.strip_set_cookie);
            if let Some(name) = lost.find(|name| self.is_session(name)) {
                let text = format!(
                    "a route of {from} removes the session cookie {name}, which share = \
                     \"{share}\" always keeps"
                );
                self.problem(setting, text);
            }
        }
    }

    /// Warns of the first route that is for known visitors, where none is ever known. In Redis the app may maintain
    /// the sessions itself.
    pub(super) fn unknown_visitors(&mut self) {
        let plan = self.plan;
        let session = &plan.session;
        let has_app = session.app.is_some() || session.mint;
        let has_rule = session.verify.path.is_some() || session.login.matching.is_some();
        let is_embedded = matches!(plan.store.url, StoreUrl::Embedded(_));
        let mut listen = plan.listen.iter();
        let has_certificates = listen.any(|one| one.tls.client_certs != ClientCerts::Off);
        if has_app || has_rule || has_certificates || !is_embedded {
            return;
        }
        let needs = |(index, route): (usize, &Route)| {
            let (key, word) = for_known_visitors(route)?;
            Some((format!("route[{index}].{key}"), word))
        };
        let Some((setting, word)) = plan.routes.iter().enumerate().find_map(needs) else { return };
        let text = format!(
            "\"{word}\" is for visitors that are known, and here none ever is: name the app's cookie in [session] \
             cookie, and set [session.verify] or [session.login]; or set [session] app, or mint = true"
        );
        self.warning(&setting, text);
    }

    /// Sharing by visitor needs a session, which the route's origin knows. `None`: the route of requests
    /// that no other matches.
    fn session_for(&mut self, setting: &str, share: &str, route: Option<&Route>) {
        if self.plan.session.cookies.is_empty() {
            self.problem(setting, format!("\"{share}\" needs a [session] cookie"));
        }
        if !self.knows_sessions(route) {
            let text = format!("\"{share}\" needs an origin with sessions = true");
            self.problem(setting, text);
        }
    }
}

/// The key by which a route needs visitors that are known, and its value. A segment by cookie or language alone
/// divides visitors without a login, too.
fn for_known_visitors(route: &Route) -> Option<(&'static str, &'static str)> {
    let Segment { attributes, language, cookies, .. } = &route.segment;
    let divides_all = attributes.is_empty() && (language.is_some() || !cookies.is_empty());
    match route.share {
        _ if route.deny => None,
        Share::User => Some(("share", word(Share::User))),
        Share::Segment if !divides_all => Some(("share", word(Share::Segment))),
        _ if route.requires_login == Some(true) => Some(("require", "login")),
        Share::None | Share::Anonymous | Share::Everyone | Share::Segment => None,
    }
}

/// The word for `share` by visitor.
fn personal(share: Share) -> Option<&'static str> {
    matches!(share, Share::Segment | Share::User).then(|| word(share))
}

/// The routes that a request for `from` may take, to fill a fragment in a page of `page`; `None` is the
/// route of requests that no other matches.
fn asked_for<'p>(plan: &'p Plan, page: &Route, from: &str) -> Vec<Option<&'p Route>> {
    let (path, query) = from.split_once('?').unwrap_or((from, ""));
    let path = path::decoded(path).unwrap_or_else(|| path.to_owned());
    let mut found = Vec::new();
    for route in &plan.routes {
        let of_path = |patterns: &[PathPattern]| {
            patterns.is_empty() || patterns.iter().any(|one| one.matches(&path).is_some())
        };
        let fits = (route.methods.is_empty() || route.methods.contains(&Method::GET))
            && (route.hosts.is_empty()
                || page.hosts.is_empty()
                || route
                    .hosts
                    .iter()
                    .any(|host| page.hosts.iter().any(|of_page| host.meets(of_page))))
            && of_path(&route.paths)
            && route.query.is_met(query);
        if !fits {
            continue;
        }
        found.push(Some(route));
        // Requests to another host do not reach this route, nor do those of visitors who send other fields.
        if host_pattern::cover(&route.hosts, &page.hosts) && route.headers.is_empty() {
            return found;
        }
    }
    found.push(None);
    found
}
