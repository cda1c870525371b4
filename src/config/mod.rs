//! Configuration: what was said in `proxy.toml`, the environment and the command line becomes a
//! [`Plan`], or a list of every [`Problem`] in it.
//!
//! Holding a `Plan` proves that it is whole and free of contradictions. Nothing here prints,
//! exits or opens a socket.
//!
//! The schema names every key once; reading, the suggestion for a mistyped key, and
//! [`print()`] all walk it. Sources are laid over each other before it is walked, so that a
//! problem names the file and line, the variable or the flag that it came from.

mod apps;
mod change;
mod check;
mod credential;
mod form;
mod fragment;
mod node;
mod pem;
mod plan;
mod print;
mod problem;
mod rate;
mod reader;
mod schema;
mod secret;
mod servers;
mod sessions;
mod source;
mod text;
mod tls;
mod unit;

pub use apps::App;
pub use fragment::{Esi, Fill, Fragment};
pub use plan::{
    AccessFormat, Address, Admin, Cache, Client, ClientCerts, Cookies, Endpoint, Http2, LeakGuard,
    Limits, Listen, Log, LogTarget, OnExpire, Origin, OriginTls, OriginUrl, Plan, PurgeToken, Rate,
    Route, Rows, SameSite, SecureCookie, SegmentProof, Session, SetCookie, Share, StatusDetail,
    Store, StoreUrl, Tls, TlsVersion, Trait, Views, Visitor, WebhookUrl,
};
pub use print::print;
pub use problem::{Place, Problem, Warning};
pub use secret::{Secret, SecretSource};
pub use servers::{Balance, Health, Servers};
pub use sessions::{Login, LoginUser, Logout, Matching, Success, Verify};
pub use source::{Overrides, Sources};
pub use unit::duration;

use std::path::PathBuf;

use crate::http::path::PathPattern;
use check::Check;
use reader::{Places, Reader};

impl Plan {
    /// Reads a plan from what was said: the built-in defaults, under the file, under the
    /// environment, under the command line. Reads the files and variables that secrets are in.
    ///
    /// # Errors
    /// All problems at once: the file's by line, then the environment's, then the command
    /// line's. Of a file that is not TOML only that is told.
    pub fn read(sources: &Sources) -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        let (tree, mut problems) = sources.tree()?;
        // Never seen outside: without `[origin] url` there is no plan.
        let mut plan = Self::new(OriginUrl::http("", 80));
        let mut reader = Reader::new(&tree, &sources.env, Places::new(sources.whole()));
        schema::walk(&mut reader, &mut plan);
        let (places, found) = reader.finish();
        problems.extend(found);
        plan.settle(&places);

        let (contradictions, warnings) = Check::new(&plan, &places, &problems).run();
        problems.extend(contradictions);
        if problems.is_empty() {
            return Ok((plan, warnings));
        }
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        Err(problems)
    }

    /// Only where the socket of the data commands is: what else was said may be wrong, and its secrets
    /// may be for others' eyes. `None`: there is no socket.
    ///
    /// # Errors
    /// As [`Self::read`], of `[admin] socket` and `[store] url`.
    pub fn socket(sources: &Sources) -> Result<Option<PathBuf>, Vec<Problem>> {
        // What the environment holds beside settings is not our business here.
        let (tree, _) = sources.tree()?;
        let mut plan = Self::new(OriginUrl::http("", 80));
        let mut reader = Reader::new(&tree, &sources.env, Places::new(sources.whole()));
        schema::walk_socket(&mut reader, &mut plan);
        let (places, mut problems) = reader.finish();
        let needed = ["admin", "admin.socket", "store", "store.url"];
        problems.retain(|problem| needed.contains(&problem.setting.as_str()));
        if !problems.is_empty() {
            return Err(problems);
        }
        plan.settle(&places);
        Ok(plan.admin.socket)
    }

    /// Gives what was not said and hangs on another setting its default.
    fn settle(&mut self, places: &Places) {
        let origins = self.origins.iter_mut().map(|(_, origin)| origin);
        for origin in std::iter::once(&mut self.origin).chain(origins) {
            // Where both were said, the check looks whether they say the same.
            if let (Some(first), true) = (origin.servers.urls.first(), origin.url.host.is_empty()) {
                origin.url = first.clone();
            }
        }
        if !places.said("session.token_storage") {
            self.session.token_storage = self.store.url.usual_token_storage();
        }
        if let StoreUrl::Embedded(folder) = &self.store.url
            && !places.said("admin.socket")
        {
            self.admin.socket = Some(Admin::socket_in(folder));
        }
        for (index, route) in self.routes.iter_mut().enumerate() {
            if !places.said(&format!("route[{index}].trust_public")) {
                route.trust_public = self.cache.trust_public;
            }
            if route.name.is_empty() {
                let first = route.paths.first().map_or("/**", PathPattern::as_str);
                route.name = first.chars().take(text::NAME_MAX).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests;
