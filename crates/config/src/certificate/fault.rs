//! Problems of certificate files, as messages.

use std::fmt;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;

/// A problem of a file, or a pattern that matches none.
#[derive(Debug)]
pub struct Fault {
    /// The file, or the pattern.
    pub path: PathBuf,
    /// What is wrong.
    pub wrong: FaultKind,
}

/// What is wrong.
#[derive(Debug)]
pub enum FaultKind {
    /// The text is not a pattern.
    NoPattern,
    /// It matches no file.
    NoFile,
    /// It matches more files than allowed.
    TooMany(usize),
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is not PEM.
    NoPem,
    /// The file contains no certificate.
    NoCertificate,
    /// The file contains a private key, and no certificate.
    KeyAlone,
    /// Its first certificate cannot be read.
    BadCertificate,
    /// There is no key in the file or in these places.
    NoKey(Vec<PathBuf>),
    /// The key is encrypted, or of a kind that is not known.
    BadKey(PathBuf),
    /// The key belongs to another certificate.
    OtherKey(PathBuf),
    /// It is valid later, from this Unix time on.
    NotYetValid(i64),
    /// It was valid until this Unix time.
    Expired(i64),
}

impl FaultKind {
    /// Whether only the validity period is wrong: the certificate can be used.
    #[must_use]
    pub fn is_time(&self) -> bool {
        matches!(self, Self::NotYetValid(_) | Self::Expired(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.wrong {
            FaultKind::NoPattern => write!(f, "{path} is not a valid file pattern"),
            FaultKind::NoFile => write!(f, "{path} matches no certificate file"),
            FaultKind::TooMany(most) => write!(f, "{path} matches more than {most} files"),
            FaultKind::Unreadable(error) => write!(f, "{path} cannot be read: {error}"),
            FaultKind::NoPem => write!(f, "{path} is not PEM"),
            FaultKind::NoCertificate => {
                write!(
                    f,
                    "{path} contains no certificate; expected PEM, the site's own certificate first"
                )
            }
            FaultKind::KeyAlone => {
                write!(f, "{path} contains a private key and no certificate; write it as tls.key")
            }
            FaultKind::BadCertificate => write!(f, "the first certificate in {path} is malformed"),
            FaultKind::NoKey(places) => {
                write!(f, "{path} has no private key: looked in the file")?;
                places.iter().try_for_each(|place| write!(f, ", in {}", place.display()))
            }
            FaultKind::BadKey(key) => write!(
                f,
                "the private key in {} is malformed, encrypted, or of an unknown kind",
                key.display()
            ),
            FaultKind::OtherKey(key) => write!(
                f,
                "the private key in {} does not belong to the first certificate in {path}",
                key.display()
            ),
            FaultKind::NotYetValid(from) => write!(f, "{path} is not valid before {}", day(*from)),
            FaultKind::Expired(until) => write!(f, "{path} expired on {}", day(*until)),
        }
    }
}

impl std::error::Error for Fault {}

fn day(unix: i64) -> String {
    Timestamp::from_second(unix).map_or_else(|_| unix.to_string(), |time| time.to_string())
}
