//! The plan: every setting typed, checked and defaulted. A plan that was read is valid.
//!
//! Each file holds the types and defaults of one subject. Types that other modules act on are in
//! [`anteroom_policy`].

mod acme;
mod admin;
mod cache;
mod learn;
mod limits;
mod listen;
mod login;
mod origin;
mod session;
mod store;
mod traces;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anteroom_http::harden::Hardening;

use anteroom_policy::route::Route;

pub use acme::{AcmeChallenge, AcmeConfig, CertificateNames, NameRefusal, WantedName};
pub use admin::{Admin, AdminSocket, ErrorsConfig, LogConfig, NamedToken};
pub use cache::{Cache, Purge, PurgeAuthorization, ViewsConfig};
pub use learn::LearnConfig;
pub use limits::LimitsConfig;
pub use listen::{Address, ClientCerts, ClientConfig, Listen, TlsConfig, TlsVersion};
pub(super) use listen::{USUAL_MODE, leads_to};
pub use login::{Login, Logout, Verify};
pub use origin::{DatabaseConfig, OriginConfig, OriginTls, OriginUrl, Rows, Servers};
pub use session::{AppPreset, OnExpire, SessionConfig, Visitor, WebhookUrl};
pub(super) use store::DATA;
pub use store::{NextStore, Store, StoreLayout, StoreUrl};
pub use traces::{TracesConfig, TracesEndpoint};

/// The whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// `threads`: the threads that serve clients, each with its own runtime. Default: the number of cores.
    pub threads: usize,
    /// `[[listen]]`: where clients are served. Default: 127.0.0.1:8080.
    pub listen: Vec<Listen>,
    /// `[acme]`
    pub acme: AcmeConfig,
    /// `[client]`
    pub client: ClientConfig,
    /// `[origin]`
    pub origin: OriginConfig,
    /// `[origins.NAME]`: further origins, by name.
    pub origins: Vec<(String, OriginConfig)>,
    /// `[store]`
    pub store: Store,
    /// `[session]`
    pub session: SessionConfig,
    /// `[visitor]`
    pub visitor: Visitor,
    /// `[cache]`
    pub cache: Cache,
    /// `[learn]`
    pub learn: LearnConfig,
    /// `[views]`
    pub views: ViewsConfig,
    /// `[[route]]`, in order: the first match wins.
    pub routes: Vec<Route>,
    /// `[[cookies]]`, in order: the first that names a cookie applies.
    pub cookies: Vec<Hardening>,
    /// `[databases.NAME]`: databases that rows come from, by name.
    pub databases: Vec<(String, DatabaseConfig)>,
    /// `[[rows]]`, in order: the first one has the plain key names in the store.
    pub rows: Vec<Rows>,
    /// `[purge]`
    pub purge: Purge,
    /// `[admin]`
    pub admin: Admin,
    /// `[errors]`
    pub errors: ErrorsConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[traces]`
    pub traces: TracesConfig,
    /// `[limits]`
    pub limits: LimitsConfig,
}

impl Plan {
    /// Whether any route gives tokens to anonymous visitors.
    #[must_use]
    pub fn gives_visitor_tokens(&self) -> bool {
        self.routes.iter().any(|route| route.visitor_token)
    }
}

impl Plan {
    /// Sets the defaults that name the folder of the data.
    pub(super) fn keep_data_in(&mut self, folder: &Path) {
        self.store.url = StoreUrl::Embedded(folder.to_owned());
        self.admin.socket = Some(Admin::socket_in(folder));
        self.acme.folder = AcmeConfig::folder_in(folder);
    }

    /// The plan of a configuration that sets only the origin.
    #[must_use]
    pub fn new(origin: OriginUrl) -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(512),
            listen: vec![Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))],
            acme: AcmeConfig::default(),
            client: ClientConfig::default(),
            origin: OriginConfig::new(origin),
            origins: Vec::new(),
            store: Store::default(),
            session: SessionConfig::default(),
            visitor: Visitor::default(),
            cache: Cache::default(),
            learn: LearnConfig::default(),
            views: ViewsConfig::default(),
            routes: Vec::new(),
            cookies: Vec::new(),
            databases: Vec::new(),
            rows: Vec::new(),
            purge: Purge::default(),
            admin: Admin::default(),
            errors: ErrorsConfig::default(),
            log: LogConfig::default(),
            traces: TracesConfig::default(),
            limits: LimitsConfig::default(),
        }
    }
}
