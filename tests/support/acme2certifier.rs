//! An authority for certificates that suggests when they are renewed, and offers profiles: acme2certifier.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::program::{Program, write};
use super::tls::Authority;
use super::{free_port, python, root};

/// The running authority; it is ended on Drop. It proves no name.
pub struct Acme2Certifier {
    address: SocketAddr,
    program: Program,
}

impl Acme2Certifier {
    /// Starts one whose certificates are valid for so many days, and are to be renewed from half of them on.
    pub fn start(days: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new("acme2certifier");
        let own = authority.site(&["127.0.0.1"]);
        write(&folder, "ca.pem", &authority.cert);
        write(&folder, "ca.key", &authority.key());
        write(&folder, "cert.pem", &own.cert);
        write(&folder, "key.pem", &own.key);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = Command::new(python());
        command.arg(root().join("tests/interop/authority.py")).arg(folder.path());
        command.args([address.port().to_string(), days.to_string()]);
        let program = Program::start(folder, &mut command, address);
        Self { address, program }
    }

    /// The settings of `[acme]` that lead here. It makes no account without a contact.
    pub fn settings(&self) -> String {
        let ca: PathBuf = self.program.folder().join("ca.pem");
        format!(
            "acme.directory = \"https://{}/directory\"\nacme.ca = {ca:?}\n\
             acme.email = \"admin@shop.test\"\n",
            self.address
        )
    }
}
