//! A real Varnish.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use tempfile::TempDir;

use super::free_port;
use super::program::{Program, write};

/// A running Varnish; it is ended on Drop.
pub struct Varnish {
    pub address: SocketAddr,
    _program: Program,
}

impl Varnish {
    /// Starts one with this VCL.
    pub fn with_vcl(vcl: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let file = write(&folder, "site.vcl", vcl);
        // Debian has it where only root looks.
        let mut command = Command::new("/usr/sbin/varnishd");
        // Without a jail: the user that it changes to may not read this folder.
        command.args(["-F", "-j", "none", "-s", "malloc,16m", "-T", "none"]);
        command.arg("-a").arg(address.to_string()).arg("-f").arg(file);
        command.arg("-n").arg(folder.path().join("state"));
        Self { address, _program: Program::start(folder, &mut command, address) }
    }
}
