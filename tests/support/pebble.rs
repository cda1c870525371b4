//! A real authority for certificates: pebble, Let's Encrypt's own for tests, with a name server of its own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::free_port;
use super::program::{Program, write};
use super::tls::Authority;

/// How an authority behaves.
pub struct PebbleSettings {
    /// How long its certificates are valid, in seconds.
    pub validity: u32,
    /// How many of a hundred good nonces it refuses.
    pub refused_nonces: u32,
}

impl Default for PebbleSettings {
    fn default() -> Self {
        Self { validity: 3_600, refused_nonces: 0 }
    }
}

/// A running authority; it is ended on Drop. Every name leads to 127.0.0.1.
pub struct Pebble {
    /// Where it looks for answers of http-01.
    pub http: SocketAddr,
    /// Where it looks for answers of tls-alpn-01.
    pub https: SocketAddr,
    directory: String,
    records: SocketAddr,
    authority: Program,
    _names: Program,
}

fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

impl Pebble {
    pub fn start() -> Self {
        Self::with(&PebbleSettings::default())
    }

    pub fn with(settings: &PebbleSettings) -> Self {
        let [names_at, records] = [free_address(), free_address()];
        let mut command = Command::new("pebble-challtestsrv");
        command.args(["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", ""]);
        command.arg("-dns01").arg(names_at.to_string());
        command.arg("-management").arg(records.to_string());
        let names = Program::start(TempDir::new().unwrap(), &mut command, records);

        let [listen, http, https] = [free_address(), free_address(), free_address()];
        let folder = TempDir::new().unwrap();
        let root = Authority::new("pebble");
        let own = root.site(&["127.0.0.1"]);
        write(&folder, "ca.pem", &root.cert);
        write(&folder, "cert.pem", &own.cert);
        write(&folder, "key.pem", &own.key);
        write(&folder, "secret", "0123456789abcdef0123456789abcdef");
        let config = serde_json::json!({ "pebble": {
            "listenAddress": listen.to_string(),
            "managementListenAddress": "",
            "certificate": folder.path().join("cert.pem"),
            "privateKey": folder.path().join("key.pem"),
            "httpPort": http.port(),
            "tlsPort": https.port(),
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "certificateValidityPeriod": settings.validity,
        } });
        let file = write(&folder, "pebble.json", &config.to_string());
        let mut command = Command::new("pebble");
        command.arg("-config").arg(file).arg("-dnsserver").arg(names_at.to_string());
        command.env("PEBBLE_VA_NOSLEEP", "1");
        command.env("PEBBLE_WFE_NONCEREJECT", settings.refused_nonces.to_string());
        let authority = Program::start(folder, &mut command, listen);
        let directory = format!("https://{listen}/dir");
        Self { http, https, directory, records, authority, _names: names }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.authority.folder().join(name)
    }

    /// The settings of a proxy at the addresses where it looks, for these names.
    pub fn settings(&self, names: &[&str], more: &str) -> String {
        self.settings_at(self.http, self.https, names, more)
    }

    /// The same at other addresses, where it does not look.
    pub fn settings_at(
        &self,
        http: SocketAddr,
        https: SocketAddr,
        names: &[&str],
        more: &str,
    ) -> String {
        let port = https.port();
        format!(
            "listen = [{{ address = \"{http}\", redirect = \"https:{port}\" }}, \
             {{ address = \"{https}\", tls = {{ cert = \"auto\", hsts = \"1d\" }} }}]\n\
             origin.hosts = {names:?}\nacme.directory = \"{}\"\nacme.ca = {:?}\n{more}\n",
            self.directory,
            self.file("ca.pem"),
        )
    }

    /// The key of `[acme]` by which proxies share what they order.
    pub fn shared_secret(&self) -> String {
        format!("acme.secret = {{ file = {:?} }}", self.file("secret"))
    }

    /// The key of `[acme]` for a program that sets records at its name server.
    pub fn hook(&self) -> String {
        let path = self.file("hook");
        let script = format!(
            "#!/bin/sh\n\
             case $1 in\n\
             set) exec curl -sf -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" http://{0}/set-txt ;;\n\
             unset) exec curl -sf -d \"{{\\\"host\\\":\\\"$2.\\\"}}\" http://{0}/clear-txt ;;\n\
             esac\n",
            self.records
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        format!("acme.dns_hook = {path:?}")
    }
}
