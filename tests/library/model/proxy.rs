//! The proxy, in this process.

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anteroom::app::Application;
use anteroom_config::{ConfigSources, Overrides, Plan};
use anteroom_http::ident::{StoredToken, User};
use anteroom_store::traits::*;
use anteroom_store::{Layout, OpenStore, StoreLimits, StoreSettings, Url};
use tempfile::TempDir;

use crate::cast::{ROUTES, USERS};

/// The token that may purge.
pub(crate) const TOKEN: &str = "the-token-of-the-operator";

/// Where it is.
pub(crate) struct Proxy {
    pub(crate) visitors: SocketAddr,
    pub(crate) admin: SocketAddr,
    _folder: TempDir,
}

/// Starts it before `origin`; it ends with the process.
pub(crate) fn start(origin: SocketAddr) -> Proxy {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    log_in(&data);
    fs::write(folder.path().join("token"), TOKEN).unwrap();
    let config = format!(
        "threads = 2\n\
         listen = [{{ address = \"127.0.0.1:0\" }}]\n\
         client.trusted_proxies = [\"127.0.0.1\"]\n\
         origin.url = \"http://{origin}\"\n\
         store = {{ url = \"embedded:{data}\", timeout = \"5s\" }}\n\
         session.token_storage = \"plain\"\n\
         cache = {{ stale_if_error = \"600s\", memory = \"1MiB\", max_object = \"8KiB\", audit = \"off\" }}\n\
         admin = {{ address = \"127.0.0.1:0\", token = {{ file = \"{token}\" }} }}\n\
         log.access = \"off\"\n\
         {ROUTES}",
        data = data.display(),
        token = folder.path().join("token").display(),
    );
    let file = folder.path().join("proxy.toml");
    fs::write(&file, config).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let sources = ConfigSources::gather(Some(&file), Overrides::default()).unwrap();
        let (plan, _) = Plan::read(&sources).unwrap();
        let app = Application::open(plan).unwrap();
        tell.send((app.addresses()[0], app.admin_address().unwrap())).unwrap();
        app.run(|| Err(Vec::new())).unwrap();
    });
    let (visitors, admin) = told.recv().expect("the proxy starts");
    Proxy { visitors, admin, _folder: folder }
}

/// Gives each user a session.
fn log_in(data: &std::path::Path) {
    let patience = Duration::from_secs(10);
    let limits = StoreLimits {
        read_timeout: patience,
        write_timeout: patience,
        viewed_items: 25,
        pages: 1 << 30,
        max_page: 1 << 20,
    };
    let settings = StoreSettings {
        url: Url::Embedded(data.to_owned()),
        prefix: String::new(),
        layout: Layout::Single,
        limits,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let open = OpenStore::open(&settings).await.unwrap();
        let store = open.thread_handle();
        store.connected().await;
        for user in USERS {
            let token = StoredToken::from_store(format!("token-of-{user}").as_bytes()).unwrap();
            let user = User::new(user.as_bytes()).unwrap();
            store.update_token(&token, &user, None, 1.0).await.unwrap();
        }
        drop(store);
        open.close().await;
    });
}
