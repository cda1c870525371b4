//! Visitors by https: handshakes, certificates, and what the app is told of both.

mod certificates;
mod clients;
mod plain;
mod tickets;

use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::tls::{Authority, Browser};

/// A folder of certificates, with their authority.
struct Files {
    folder: TempDir,
    authority: Authority,
}

impl Files {
    /// With one for the site that cases ask for.
    fn new() -> Self {
        let files = Self { folder: TempDir::new().unwrap(), authority: Authority::new("sites") };
        files.add("a.pem", &["shop.test"]);
        files
    }

    fn add(&self, file: &str, names: &[&str]) -> crate::support::tls::CertificateWithKey {
        let issued = self.authority.site(names);
        issued.write(&self.folder.path().join(file));
        issued
    }

    fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    /// A listener with all certificates, and further keys of `tls`.
    fn listen(&self, keys: &str) -> String {
        let cert = self.path("*.pem");
        format!("listen = [{{ address = \"{{listen}}\", tls = {{ cert = {cert:?}{keys} }} }}]")
    }
}

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

/// A visitor by https to the site that cases ask for.
fn enter(proxy: &Proxy) -> Client {
    Browser::new().visit(proxy.address(), "shop.test").0
}
