//! A real nginx with a site's own part of the configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use tempfile::TempDir;

use super::free_port;
use super::program::{Program, write};

/// Around what a site writes: as Debian has it, with all files in one folder, which only its owner may read.
const AROUND: &str = r"user root;
daemon off;
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
pub struct Nginx {
    pub address: SocketAddr,
    _program: Program,
}

impl Nginx {
    /// Starts one with this site, whose `listen 80;` is replaced by a free address.
    pub fn with_site(site: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let site = site.replace("listen 80;", &format!("listen {address};"));
        let file = write(&folder, "nginx.conf", &AROUND.replace("{site}", &site));
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).arg("-p").arg(folder.path());
        Self { address, _program: Program::start(folder, &mut command, address) }
    }
}
