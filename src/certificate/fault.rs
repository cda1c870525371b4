//! What is wrong with a file of certificates, for a person.

use std::fmt;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;

/// Something wrong with a file, or with a pattern that finds none.
#[derive(Debug)]
pub struct Fault {
    /// The file, or the pattern.
    pub path: PathBuf,
    /// What is wrong.
    pub wrong: Wrong,
}

/// What is wrong.
#[derive(Debug)]
pub enum Wrong {
    /// The text is no pattern.
    NoPattern,
    /// No file is found by it.
    NoFile,
    /// More files than may be.
    TooMany(usize),
    /// The file cannot be read.
    Unreadable(io::Error),
    /// It is no PEM.
    NoPem,
    /// It holds no certificate.
    NoCertificate,
    /// Its first certificate cannot be read.
    BadCertificate,
    /// There is no key, here or in these places.
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

impl Wrong {
    /// Whether it is only a matter of time: the certificate can be used.
    #[must_use]
    pub fn is_time(&self) -> bool {
        matches!(self, Self::NotYetValid(_) | Self::Expired(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.wrong {
            Wrong::NoPattern => write!(f, "{path} is no pattern of files"),
            Wrong::NoFile => write!(f, "{path} finds no file with a certificate"),
            Wrong::TooMany(most) => write!(f, "{path} finds more than {most} files"),
            Wrong::Unreadable(error) => write!(f, "{path} cannot be read: {error}"),
            Wrong::NoPem => write!(f, "{path} is not PEM"),
            Wrong::NoCertificate => {
                write!(f, "{path} holds no certificate; expected PEM, the site's own first")
            }
            Wrong::BadCertificate => write!(f, "the first certificate in {path} is malformed"),
            Wrong::NoKey(places) => {
                write!(f, "{path} has no private key: looked for one in the file")?;
                places.iter().try_for_each(|place| write!(f, ", in {}", place.display()))
            }
            Wrong::BadKey(key) => write!(
                f,
                "the private key in {} is malformed, encrypted, or of an unknown kind",
                key.display()
            ),
            Wrong::OtherKey(key) => write!(
                f,
                "the private key in {} does not belong to the first certificate in {path}",
                key.display()
            ),
            Wrong::NotYetValid(from) => write!(f, "{path} is valid only from {} on", day(*from)),
            Wrong::Expired(until) => write!(f, "{path} has expired: {}", day(*until)),
        }
    }
}

impl std::error::Error for Fault {}

fn day(unix: i64) -> String {
    Timestamp::from_second(unix).map_or_else(|_| unix.to_string(), |time| time.to_string())
}
