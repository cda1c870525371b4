//! Forms of PEM files. They are read with the plan, so that a missing file is found before a start or a
//! reload.

use std::io;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value as Json;

use super::form::{Faults, Form, string};
use super::node::Node;
use super::{file, shape};

/// The path of a PEM file with the expected content.
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
            return faults.expected(node, &format!("the path of {}", self.named()));
        };
        let path = file::path_at(&node.location, text);
        match self.look(&path) {
            Ok(()) => Some(path),
            Err(why) => {
                let expected = self.named();
                faults.add(node, format!("the file {}: {why}; expected {expected}", path.display()))
            }
        }
    }

    fn write(&self, path: &PathBuf) -> Option<String> {
        Some(string(&path.to_string_lossy()))
    }

    fn shape(&self) -> Json {
        shape::text("the path of a PEM file")
    }
}

impl PemFile {
    fn named(&self) -> &'static str {
        match self {
            Self::Certificates => "a PEM file of certificates",
            Self::Key => "a PEM file of a private key",
        }
    }

    fn look(&self, path: &Path) -> Result<(), String> {
        match self {
            Self::Certificates => {
                let read = CertificateDer::pem_file_iter(path).map_err(|why| sentence(&why))?;
                let found = read.collect::<Result<Vec<_>, _>>().map_err(|why| sentence(&why))?;
                let some = (!found.is_empty()).then_some(());
                some.ok_or_else(|| "contains no certificate".to_owned())
            }
            Self::Key => PrivateKeyDer::from_pem_file(path).map(drop).map_err(|why| match why {
                pem::Error::NoItemsFound => "contains no private key".to_owned(),
                why => sentence(&why),
            }),
        }
    }
}

fn sentence(why: &pem::Error) -> String {
    match why {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => "not found".to_owned(),
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        why => format!("not PEM: {why}"),
    }
}
