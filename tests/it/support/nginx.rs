//! A real nginx with a site's own part of the configuration.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{free_port, wait_until};

/// Around what a site writes: as Debian has it, with all files in one folder.
const AROUND: &str = r"daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}
";

/// A running nginx; it is ended on Drop.
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Nginx {
    /// Starts one with this site, whose `listen 80;` is replaced by a free address.
    pub(crate) fn with_site(site: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let site = site.replace("listen 80;", &format!("listen {address};"));
        let text = AROUND.replace("{site}", &site);
        let text = text.replace("{folder}", folder.path().to_str().unwrap());
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).arg("-p").arg(folder.path());
        let said = fs::File::create(folder.path().join("said")).unwrap();
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut child = command.spawn().expect("nginx is installed");
        wait_until("nginx listens", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", fs::read_to_string(folder.path().join("said")).unwrap());
            TcpStream::connect(address).is_ok()
        });
        Self { address, child, _folder: folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Told to end, it ends its workers.
        let told = Command::new("kill").arg(self.child.id().to_string()).status();
        drop((told, self.child.wait()));
    }
}
