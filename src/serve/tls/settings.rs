//! What a listener's TLS is made of.

use std::path::PathBuf;

use crate::certificate::Sources;

/// What a listener's TLS is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where its certificates lie.
    pub sources: Sources,
    /// Whose certificate those are shown who ask for nobody's; `None`: the first.
    pub default: Option<String>,
    /// Whether clients show certificates.
    pub clients: Clients,
    /// Whether versions before 1.3 are refused.
    pub only_1_3: bool,
    /// Whether HTTP/2 is offered, too.
    pub h2: bool,
}

/// Whether clients show certificates, and the file of the authorities that these are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// They are not asked.
    Unasked,
    /// They may.
    Optional(PathBuf),
    /// They must.
    Required(PathBuf),
}

impl Clients {
    pub(super) fn authorities(&self) -> Option<&PathBuf> {
        match self {
            Self::Unasked => None,
            Self::Optional(path) | Self::Required(path) => Some(path),
        }
    }
}
