//! `anteroom demo`: the demo shop and the proxy in front of it, in one process.
//!
//! The routes and sessions set here are what an operator would write in `proxy.toml`.

mod learn_tour;
mod tour;

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_config::{Listen, OriginUrl, Plan, Secret, StoreUrl};
use anteroom_demo::{DemoShopSettings, Shop, TourStep, serve};
use anteroom_http::ident::Token;
use anteroom_http::path::PathPattern;
use anteroom_http::selector::Selector;
use anteroom_policy::answer::Endpoint;
use anteroom_policy::audit::AuditRate;
use anteroom_policy::learn::CacheMode;
use anteroom_policy::route::{Fill, Fragment, Route, Segment, Share};
use anteroom_store::OpenError;

use self::tour::Tour;
use super::Application;
use super::runtime::runtime;
use super::start_error::StartError;

/// The address without `--listen`. If its port is taken, the next free one is used.
const USUAL_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), USUAL_PORT);
const USUAL_PORT: u16 = 8080;
/// How many ports are tried.
const PORTS: u16 = 100;

/// The most connections of visitors. The default would ask for a larger limit of open files than most
/// shells have.
const CONNECTIONS: usize = 200;

/// The folder in the system's temporary folder. It is always the same, so that visitors are still known
/// after a restart. A second demo at the same time uses the next of these names.
const FOLDERS: [&str; 4] =
    ["anteroom-demo", "anteroom-demo-2", "anteroom-demo-3", "anteroom-demo-4"];

/// The socket of the data commands, in the folder.
const SOCKET: &str = "admin.sock";

/// The shop and the proxy in front of it, ready to run.
#[derive(Debug)]
pub struct Demo {
    app: Application,
    shop: TcpListener,
    place: Place,
    folder: PathBuf,
    tour: Vec<TourStep>,
    dashboard: Dashboard,
}

/// Where the dashboard is, and the token for its login. Each demo has another.
#[derive(Debug)]
struct Dashboard {
    address: Option<SocketAddr>,
    token: Token,
}

/// What the proxy is put in front of, and how.
#[derive(Clone, Copy, Debug)]
struct ShopOrder<'t> {
    /// The port of the shop.
    port: u16,
    /// The token of the dashboard.
    token: &'t Token,
    /// Whether the cache serves.
    mode: CacheMode,
}

/// Where the demo is served, and where it wanted to be.
#[derive(Clone, Copy, Debug)]
struct Place {
    address: SocketAddr,
    /// Whether the usual port is taken.
    is_moved: bool,
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
    /// Another process has the folder.
    #[error(
        "another demo uses the folder {}: stop that demo, or choose another folder with --data",
        .0.display()
    )]
    InUse(PathBuf),
    /// The socket of the data commands.
    #[error(
        "cannot open the socket {} for the commands: choose a shorter folder with --data",
        .0.display()
    )]
    Socket(PathBuf),
    /// The shop's own port.
    #[error("the shop found no free port: {0}")]
    Shop(#[source] io::Error),
    /// The token of the dashboard.
    #[error("the system provides no random bytes: {0}")]
    Token(#[source] getrandom::Error),
}

impl Demo {
    /// Opens the shop on a free port and the proxy on `listen`; without an address, on the usual port or
    /// the next free one. Sessions are stored in `data`, or in a folder in the system's temporary folder.
    /// `learns`: whether everything is forwarded, in learn mode. `program` is how the tour writes the command itself.
    ///
    /// # Errors
    /// If a port or the folder is unavailable.
    pub fn open(
        listen: Option<SocketAddr>,
        data: Option<&Path>,
        learns: bool,
        program: &str,
    ) -> Result<Self, DemoError> {
        let shop = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(DemoError::Shop)?;
        let port = shop.local_addr().map_err(DemoError::Shop)?.port();
        let token = Token::mint().map_err(DemoError::Token)?;
        let mode = if learns { CacheMode::Learn } else { CacheMode::Serve };
        let order = ShopOrder { port, token: &token, mode };
        let (app, folder) = match data {
            Some(data) => in_folder(listen, order, data)?,
            None => in_usual_folder(listen, order)?,
        };
        let address = app.addresses().first().copied().unwrap_or(USUAL_ADDRESS);
        let is_moved = listen.is_none() && address.port() != USUAL_PORT;
        let socket = folder.join(SOCKET);
        if !app.has_socket() {
            return Err(DemoError::Socket(socket));
        }
        let site = format!("http://{address}");
        let tour = Tour { site: &site, program, folder: &folder, socket: &socket };
        let tour = if learns { tour.learn_steps() } else { tour.steps() };
        let dashboard = Dashboard { address: app.admin_address(), token };
        Ok(Self { app, shop, place: Place { address, is_moved }, folder, tour, dashboard })
    }

    /// The address to open, the tour, and the dashboard with its token.
    #[must_use]
    pub fn invitation(&self) -> String {
        let Place { address, is_moved } = self.place;
        let moved = match is_moved {
            true => format!("Port {USUAL_PORT} is taken; this demo uses {}. ", address.port()),
            false => String::new(),
        };
        format!(
            "{moved}Open http://{address}/ in a browser. The shop behind it takes 300 ms to make a page.\n\
             The first page has the tour below. Type its commands into another terminal, in this order.\n\
             \n\
             {tour}\
             http://{address}/example is a small example of a page with a script that asks /_anteroom/.\n\
             {dashboard}\
             Sessions are kept in {folder}. Stop with Ctrl-C.",
            tour = tour::text(&self.tour),
            dashboard = self.dashboard.invitation(),
            folder = self.folder.display(),
        )
    }

    /// Serves until TERM or INT.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn run(self) -> Result<(), StartError> {
        let (listener, tour) = (self.shop, self.tour);
        std::thread::Builder::new()
            .name("shop".to_owned())
            .spawn(move || keep_shop(listener, tour))
            .map_err(|source| StartError::System { what: "a thread", source })?;
        self.app.run(|| {
            let why = "the demo has no configuration file to reload";
            tracing::warn!("{why}");
            Err(vec![why.to_owned()])
        })
    }
}

impl Dashboard {
    /// Where it is, and how to log in.
    fn invitation(&self) -> String {
        self.address.map_or_else(String::new, |address| {
            format!("dashboard: http://{address}/\ntoken:     {}\n\n", self.token.as_str())
        })
    }
}

/// Serves the shop for the lifetime of the process.
fn keep_shop(listener: TcpListener, tour: Vec<TourStep>) {
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
                let shop = Shop::new(DemoShopSettings::default()).with_tour(tour);
                match serve(listener, Rc::new(shop)).await {}
            }
            Err(error) => tracing::error!(%error, "cannot open the shop"),
        }
    });
}

/// Opens the proxy in the first of the usual folders that no other demo uses.
fn in_usual_folder(
    listen: Option<SocketAddr>,
    shop: ShopOrder<'_>,
) -> Result<(Application, PathBuf), DemoError> {
    let mut opened = Err(DemoError::InUse(std::env::temp_dir().join(FOLDERS[0])));
    for name in FOLDERS {
        opened = in_folder(listen, shop, &std::env::temp_dir().join(name));
        if !matches!(opened, Err(DemoError::InUse(_))) {
            break;
        }
    }
    opened
}

/// Opens the proxy with its data in `folder`, before the shop at a port and with a token for its dashboard, and returns
/// the folder as an absolute path: the commands may be typed in another folder.
fn in_folder(
    listen: Option<SocketAddr>,
    shop: ShopOrder<'_>,
    folder: &Path,
) -> Result<(Application, PathBuf), DemoError> {
    let refused = |source| DemoError::Folder { folder: folder.to_owned(), source };
    private_folder(folder).map_err(refused)?;
    let folder = std::path::absolute(folder).map_err(refused)?;
    let ports = if listen.is_some() { 1 } else { PORTS };
    let first = listen.unwrap_or(USUAL_ADDRESS);
    let mut address = first;
    loop {
        match Application::open(plan(address, shop, &folder)) {
            Ok(app) => return Ok((app, folder)),
            Err(StartError::Listen { ref source, .. })
                if source.kind() == io::ErrorKind::AddrInUse
                    && address.port() - first.port() + 1 < ports =>
            {
                address.set_port(address.port() + 1);
            }
            Err(StartError::Store(OpenError::InUse(folder))) => {
                return Err(DemoError::InUse(folder));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The budget of one read of the demo's store.
const DEMO_STORE_TIMEOUT: Duration = Duration::from_secs(1);

fn plan(listen: SocketAddr, shop: ShopOrder<'_>, folder: &Path) -> Plan {
    let mut plan = Plan::new(OriginUrl::http(Ipv4Addr::LOCALHOST.to_string(), shop.port));
    plan.listen = vec![Listen::at(listen)];
    plan.store.url = StoreUrl::Embedded(folder.to_owned());
    // On a desktop that compiles meanwhile, a read may take longer than a server's, and a visitor that has just logged
    // in would be unknown.
    plan.store.timeout = DEMO_STORE_TIMEOUT;
    plan.session.token_storage = plan.store.url.usual_token_storage();
    plan.session.mint = true;
    // On any free port: the usual one may be that of a proxy that runs already.
    plan.admin.address = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    plan.admin.token = Some(Secret::new(shop.token.as_str()));
    plan.admin.socket = Some(folder.join(SOCKET));
    plan.log.access = None;
    plan.limits.connections = CONNECTIONS;
    // Its visitor is at the same machine.
    plan.limits.drain_delay = Duration::ZERO;
    plan.visitor.endpoints.push(Endpoint::Top);
    // The goods are the same for everyone. `/account` keeps the default, which protects it.
    plan.routes = ["/", "/cart", "/item/{item}", "/example"]
        .iter()
        .filter_map(|path| route(path, Share::Everyone))
        .collect();
    plan.routes.extend(
        route("/greeting", Share::Everyone).map(|route| Route { fragments: holes(), ..route }),
    );
    plan.routes.extend(route("/partials/**", Share::None));
    plan.routes.extend(route("/offers", Share::Segment).map(|route| Route {
        segment: Segment { attributes: vec!["group".to_owned()], ..Segment::default() },
        ..route
    }));
    plan.cache.mode = shop.mode;
    // The tour says which requests hit.
    plan.cache.audit = AuditRate::OFF;
    plan.routes.iter_mut().for_each(|route| route.mode = shop.mode);
    plan
}

fn route(path: &str, share: Share) -> Option<Route> {
    let path = PathPattern::parse(path).ok()?;
    Some(Route { name: path.as_str().into(), paths: vec![path], share, ..Route::default() })
}

/// The holes of `/greeting`.
fn holes() -> Vec<Fragment> {
    [("#name", Fill::User(None)), ("#partial", Fill::From(Arc::from("/partials/greeting")))]
        .into_iter()
        .filter_map(|(selector, fill)| {
            let selector = Selector::parse(selector).ok()?;
            Some(Fragment { selector, fill, share: None, fallback: None, only_sessions: false })
        })
        .collect()
}

/// Makes a private folder, or takes an existing one that belongs to this user: in a shared temporary
/// folder, another user may have made it first.
fn private_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(folder)?;
            let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
            ours.then_some(()).ok_or_else(|| io::Error::other("it belongs to another user"))
        }
        result => result,
    }
}
