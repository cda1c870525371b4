//! Forms of PEM files: looked into when the plan is read, so that a start, or a reload, does not fail for
//! a file that is not there.

use std::io;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::form::{Faults, Form, string};
use super::node::Node;

/// The path of a PEM file that holds what is wanted of it.
#[derive(Debug)]
pub(super) enum PemFile {
    /// One certificate or more.
    Certificates,
    /// A private key.
    Key,
}

impl Form<PathBuf> for PemFile {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<PathBuf> {
        let Some(text) = node.as_text().filter(|text| !text.is_empty()) else {
            return faults.expected(node, "the path of a PEM file");
        };
        let path = Path::new(text);
        match self.look(path) {
            Ok(()) => Some(path.to_owned()),
            Err(why) => faults.add(node, format!("the file {}: {why}", path.display())),
        }
    }

    fn write(&self, path: &PathBuf) -> Option<String> {
        Some(string(&path.to_string_lossy()))
    }
}

impl PemFile {
    fn look(&self, path: &Path) -> Result<(), String> {
        match self {
            Self::Certificates => {
                let read = CertificateDer::pem_file_iter(path).map_err(|why| told(&why))?;
                let found = read.collect::<Result<Vec<_>, _>>().map_err(|why| told(&why))?;
                let some = (!found.is_empty()).then_some(());
                some.ok_or_else(|| "no certificate is in it".to_owned())
            }
            Self::Key => PrivateKeyDer::from_pem_file(path).map(drop).map_err(|why| match why {
                pem::Error::NoItemsFound => "no private key is in it".to_owned(),
                why => told(&why),
            }),
        }
    }
}

fn told(why: &pem::Error) -> String {
    match why {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            "there is none".to_owned()
        }
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        why => format!("is no PEM: {why}"),
    }
}
