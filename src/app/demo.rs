//! `anteroom demo`: the demo shop and the proxy in front of it, in one process.
//!
//! The routes and sessions set here are what an operator would write in `proxy.toml`.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::Application;
use super::runtime::runtime;
use super::start_error::StartError;
use crate::app::demo_shop::{DemoShopSettings, Shop, serve};
use crate::config::{Listen, OriginUrl, Plan, StoreUrl};
use crate::http::path::PathPattern;
use crate::policy::answer::Endpoint;
use crate::policy::route::{Route, Share};

/// The folder in the system's temporary folder. It is always the same, so that visitors are still known
/// after a restart.
const FOLDER: &str = "anteroom-demo";

/// The shop and the proxy in front of it, ready to run.
#[derive(Debug)]
pub struct Demo {
    app: Application,
    shop: TcpListener,
    folder: PathBuf,
}

/// Why the demo did not start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The proxy.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The folder for the sessions.
    #[error("cannot use the folder {folder:?}: {source}; choose another with --data")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The shop's own port.
    #[error("the shop found no free port: {0}")]
    Shop(#[source] io::Error),
}

impl Demo {
    /// Opens the shop on a free port and the proxy on `listen`. Sessions are stored in `data`, or in a
    /// folder in the system's temporary folder.
    ///
    /// # Errors
    /// If a port or the folder is unavailable.
    pub fn open(listen: SocketAddr, data: Option<&Path>) -> Result<Self, DemoError> {
        let folder = data.map_or_else(|| std::env::temp_dir().join(FOLDER), Path::to_owned);
        private_folder(&folder)
            .map_err(|source| DemoError::Folder { folder: folder.clone(), source })?;
        let shop = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(DemoError::Shop)?;
        let port = shop.local_addr().map_err(DemoError::Shop)?.port();
        let app = Application::open(plan(listen, port, &folder))?;
        Ok(Self { app, shop, folder })
    }

    /// The address to open, and three commands that show what the proxy does.
    #[must_use]
    pub fn invitation(&self) -> String {
        let address = self.app.addresses().first().copied();
        let site = address.map(|address| format!("http://{address}")).unwrap_or_default();
        format!(
            "Open {site}/ in a browser. The shop behind it takes 300 ms to make a page.\n\
             \n\
             A miss takes 0.3 s:\n  \
             curl -so /dev/null -D - -w '%{{time_total}} s\\n' {site}/item/umbrella\n\
             A hit: the same page, now from memory, with its age:\n  \
             curl -so /dev/null -D - -w '%{{time_total}} s\\n' {site}/item/umbrella\n\
             A visitor logs in and gets a personal page, which stays out of the cache for others:\n  \
             curl -sL -b '' -d user=ada {site}/login | grep -E 'Hello|Made by'\n\
             In the browser, the name and the cart from /_anteroom/ are filled into pages that everyone shares;\n\
             {site}/example is a small example.\n\
             \n\
             Sessions are kept in {folder}. Stop with Ctrl-C.",
            folder = self.folder.display(),
        )
    }

    /// Serves until TERM or INT.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn run(self) -> Result<(), StartError> {
        let shop = self.shop;
        std::thread::Builder::new()
            .name("shop".to_owned())
            .spawn(move || keep_shop(shop))
            .map_err(|source| StartError::System { what: "a thread", source })?;
        self.app.run(|| {
            tracing::warn!("the demo has no configuration file to reload");
            None
        })
    }
}

/// Serves the shop for the lifetime of the process.
fn keep_shop(listener: TcpListener) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "cannot open the shop"),
    };
    runtime.block_on(async {
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener));
        match listener {
            Ok(listener) => {
                match serve(listener, Rc::new(Shop::new(DemoShopSettings::default()))).await {}
            }
            Err(error) => tracing::error!(%error, "cannot open the shop"),
        }
    });
}

fn plan(listen: SocketAddr, shop: u16, folder: &Path) -> Plan {
    let mut plan = Plan::new(OriginUrl::http(Ipv4Addr::LOCALHOST.to_string(), shop));
    plan.listen = vec![Listen::at(listen)];
    plan.store.url = StoreUrl::Embedded(folder.to_owned());
    plan.session.token_storage = plan.store.url.usual_token_storage();
    plan.session.mint = true;
    plan.admin.address = None;
    plan.admin.socket = None;
    plan.log.access = None;
    plan.visitor.endpoints.push(Endpoint::Top);
    // The goods are the same for everyone. `/account` keeps the default, which protects it.
    plan.routes = ["/", "/cart", "/item/{item}", "/example"]
        .iter()
        .filter_map(|path| PathPattern::parse(path).ok())
        .map(|path| Route {
            name: path.as_str().into(),
            paths: vec![path],
            share: Share::Everyone,
            ..Route::default()
        })
        .collect();
    plan
}

/// Makes a private folder, or takes an existing one that belongs to this user: in a shared temporary
/// folder, another user may have made it first.
fn private_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(folder)?;
            let ours = found.is_dir() && found.uid() == fs::metadata("/proc/self")?.uid();
            ours.then_some(()).ok_or_else(|| io::Error::other("it belongs to another user"))
        }
        result => result,
    }
}
