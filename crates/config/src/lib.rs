//! Configuration: `proxy.toml`, the environment and the command line become a [`Plan`], or a list of every
//! [`Problem`] in them.
//!
//! A `Plan` is complete and free of contradictions. Nothing here prints, exits or opens a socket, or knows what the
//! plan's parts are for. [`certificate`] reads certificates, and chooses among them.
//!
//! The schema lists every key once; the reader, the suggestion for a mistyped key, and [`print()`] all
//! walk it. Sources are merged before the walk, so that a problem names its file and line, variable or
//! flag.

mod apps;
mod cases;
pub mod certificate;
mod change;
mod changed;
mod check;
mod credential;
mod file;
mod fingerprint;
mod form;
mod include;
mod json_schema;
mod key_paths;
mod learned;
mod lines;
mod loaded;
mod meant;
mod memory_limit;
mod node;
mod pem;
mod plan;
mod print;
mod problem;
mod rate;
mod reader;
mod schema;
mod secret;
mod shape;
mod shipped;
mod shorthand;
mod source;
mod suggest;
mod syntax;
mod text;
mod unit;
mod unknown_key;
mod walk;

pub use cases::{Case, CaseRequest, CaseVisitor, CaseWords, read_cases};
pub use changed::changed_keys;
pub use credential::read_store_url;
pub use fingerprint::{Fingerprint, fingerprint, page_rules};
pub use json_schema::json_schema;
pub use learned::{LearnedLines, learned_config};
pub use loaded::LoadedPlan;
pub use memory_limit::{Cgroups, MemoryLimit, MemoryUse, smallest_memory_limit};
pub use plan::{
    AcmeChallenge, AcmeConfig, Address, Admin, AdminSocket, AppPreset, Cache, CertificateNames,
    ClientCerts, ClientConfig, DatabaseConfig, ErrorsConfig, LearnConfig, LimitsConfig, Listen,
    LogConfig, Login, Logout, NameRefusal, NamedToken, NextStore, OnExpire, OriginConfig,
    OriginTls, OriginUrl, Plan, Purge, PurgeAuthorization, Rows, Servers, SessionConfig, Store,
    StoreLayout, StoreUrl, TlsConfig, TlsVersion, TracesConfig, TracesEndpoint, Verify,
    ViewsConfig, Visitor, WantedName, WebhookUrl,
};
pub use print::print;
pub use problem::{Problem, SettingLocation, Warning};
pub use secret::{Secret, SecretSource};
pub use source::{ConfigSources, Overrides};
pub use unit::duration;

use std::sync::Arc;

use anteroom_http::path::PathPattern;
use anteroom_http::request_fields::IdentityHeaders;
use check::ConfigCheck;
use reader::{Reader, SettingLocations};
use source::MergedSources;

impl Plan {
    /// Reads a plan: the built-in defaults, overridden by the file, the environment and the command line,
    /// in this order. Reads the files that the file includes, and the files and variables that contain
    /// secrets.
    ///
    /// # Errors
    /// All problems at once: the files' by line, then the environment's, then the command line's. If a
    /// file is not valid TOML or an included one cannot be read, only that is reported.
    pub fn read(sources: &ConfigSources) -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        let MergedSources { tree, mut problems, mut warnings } = sources.merged()?;
        let mut plan = sources.defaults();
        let mut reader = Reader::new(&tree, &sources.env, SettingLocations::new(sources.whole()));
        schema::walk(&mut reader, &mut plan);
        let (places, found) = reader.finish();
        problems.extend(found);
        plan.settle(&places);

        let (contradictions, further) = ConfigCheck::new(&plan, &places, &problems).run();
        warnings.extend(further);
        warnings.extend(sources.ignored_variables(&tree));
        problems.extend(contradictions);
        if problems.is_empty() {
            return Ok((plan, warnings));
        }
        // A setting in a variable of another name may be what is missing.
        let ignored = sources.ignored_variables(&tree).into_iter().map(|warning| warning.problem);
        problems.extend(ignored);
        problems.sort_by(|a, b| a.location.cmp(&b.location));
        Err(problems)
    }

    /// Reads only the location of the socket for the data commands. Other settings may be wrong, and their
    /// secrets unreadable for this user.
    ///
    /// # Errors
    /// As [`Self::read`], for `[admin] socket` and `[store] url`.
    pub fn socket(sources: &ConfigSources) -> Result<AdminSocket, Vec<Problem>> {
        // Unknown variables in the environment are ignored here.
        let MergedSources { tree, .. } = sources.merged()?;
        let mut plan = sources.defaults();
        let mut reader = Reader::new(&tree, &sources.env, SettingLocations::new(sources.whole()));
        schema::walk_socket(&mut reader, &mut plan);
        let (places, mut problems) = reader.finish();
        let needed = ["admin", "admin.socket", "store", "store.url"];
        problems.retain(|problem| needed.contains(&problem.setting.as_str()));
        if !problems.is_empty() {
            return Err(problems);
        }
        plan.settle(&places);
        let is_beside_data =
            matches!(plan.store.url, StoreUrl::Embedded(_)) && places.said("store.url");
        let is_said = is_beside_data || places.said("admin.socket");
        Ok(match plan.admin.socket {
            None => AdminSocket::Off,
            Some(path) if is_said => AdminSocket::At(path),
            Some(path) => AdminSocket::Default(path),
        })
    }

    /// Names the files of the certificates that are ordered, at the listeners that show them.
    fn settle_ordered_files(&mut self) {
        if !self.orders_certificates() {
            return;
        }
        let file = |wanted: &WantedName| {
            let path = certificate::ordered_file(&self.acme.folder, &wanted.name);
            // The folder may have the signs of a pattern in its name.
            glob::Pattern::escape(&path.to_string_lossy())
        };
        let files: Vec<String> = self.certificate_names().wanted.iter().map(file).collect();
        for listen in self.listen.iter_mut().filter(|listen| listen.tls.is_auto()) {
            listen.tls.auto_files.clone_from(&files);
        }
    }

    /// Sets the defaults that depend on other settings.
    fn settle(&mut self, places: &SettingLocations) {
        let origins = self.origins.iter_mut().map(|(_, origin)| origin);
        for origin in std::iter::once(&mut self.origin).chain(origins) {
            // If both are set, the check compares them.
            if let (Some(first), true) = (origin.servers.urls.first(), origin.url.host.is_empty()) {
                origin.url = first.clone();
            }
        }
        if !places.said("session.token_storage") {
            self.session.token_storage = self.store.url.usual_token_storage();
        }
        if !places.said("store.layout") {
            self.store.layout = self.store.url.usual_layout();
        }
        if let StoreUrl::Embedded(folder) = &self.store.url
            && !places.said("admin.socket")
        {
            self.admin.socket = Some(Admin::socket_in(folder));
        }
        if let StoreUrl::Embedded(folder) = &self.store.url
            && !places.said("acme.folder")
        {
            self.acme.folder = AcmeConfig::folder_in(folder);
        }
        self.settle_ordered_files();
        let identity_headers = Arc::new(IdentityHeaders::new(self.cache.identity_headers.clone()));
        for (index, route) in self.routes.iter_mut().enumerate() {
            if !places.said(&format!("route[{index}].mode")) {
                route.mode = self.cache.mode;
            }
            if !places.said(&format!("route[{index}].trust_public")) {
                route.trust_public = self.cache.trust_public;
            }
            if !places.said(&format!("route[{index}].audit")) {
                route.audit = self.cache.audit;
            }
            if !places.said(&format!("route[{index}].refresh_ahead")) {
                route.refresh_ahead = self.cache.refresh_ahead;
            }
            if !places.said(&format!("route[{index}].ignore_query")) {
                route.query_rule.ignore.clone_from(&self.cache.ignore_query);
            }
            route.identity_headers = Arc::clone(&identity_headers);
            if route.name.is_empty() {
                let first = route.paths.first().map_or("/**", PathPattern::as_str);
                route.name = first.chars().take(text::NAME_MAX).collect::<String>().into();
            }
        }
    }
}

#[cfg(test)]
mod tests;
