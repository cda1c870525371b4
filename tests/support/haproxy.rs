//! A real HAProxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use tempfile::TempDir;

use super::free_port;
use super::program::{Program, write};

/// A running HAProxy; it is ended on Drop.
pub struct Haproxy {
    pub address: SocketAddr,
    _program: Program,
}

impl Haproxy {
    /// Starts one with this configuration, whose `bind :80` is replaced by a free address.
    pub fn with_config(config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let config = config.replace("bind :80", &format!("bind {address}"));
        let file = write(&folder, "haproxy.cfg", &config);
        // Debian has it where only root looks.
        let mut command = Command::new("/usr/sbin/haproxy");
        command.arg("-db").arg("-f").arg(file);
        Self { address, _program: Program::start(folder, &mut command, address) }
    }
}
