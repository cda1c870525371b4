//! Certificate files: finding and reading them.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;

use super::fault::{Fault, FaultKind};
use super::names::Names;

/// The most certificates.
const FILES_MAX: usize = 4_096;
/// The largest file, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// The most certificates in one file: a chain, or the authorities of clients.
const CHAIN_MAX: usize = 1_024;

/// The locations of certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSources {
    /// Files, or patterns of them with `*` and `?`: each holds a certificate with its chain.
    pub certificates: Vec<String>,
    /// The key of all; otherwise each has its own, in the same file or beside it.
    pub key: Option<PathBuf>,
}

/// A certificate with its chain and its key.
#[derive(Debug)]
pub struct Certificate {
    /// The file that it was read from.
    pub path: PathBuf,
    /// The names that it covers.
    pub names: Names,
    /// Unix time from which on it is valid.
    pub not_before: i64,
    /// Unix time until which it is valid.
    pub not_after: i64,
    /// The form for handshakes.
    pub keyed: Arc<CertifiedKey>,
}

impl Certificate {
    /// Whether it is valid at `now`, in Unix time.
    #[must_use]
    pub fn is_valid(&self, now: i64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// The problem with its validity period, if any.
    #[must_use]
    pub fn out_of_time(&self, now: i64) -> Option<Fault> {
        let wrong = if now < self.not_before {
            FaultKind::NotYetValid(self.not_before)
        } else if now > self.not_after {
            FaultKind::Expired(self.not_after)
        } else {
            return None;
        };
        Some(Fault { path: self.path.clone(), wrong })
    }
}

/// The matching files, each once: in the order of the patterns, and by name within a pattern. Files that a
/// pattern matches and that contain only a key are left out.
#[must_use]
pub fn find(sources: &CertificateSources) -> (Vec<PathBuf>, Vec<Fault>) {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    let mut known = HashSet::new();
    for pattern in &sources.certificates {
        let found = match found(pattern) {
            Ok(found) => found,
            Err(wrong) => {
                faults.push(Fault { path: pattern.into(), wrong });
                continue;
            }
        };
        let is_named = !pattern.contains(['*', '?', '[']);
        let mut any = false;
        for path in found {
            if is_named || !is_key_only(&path) {
                any = true;
                if known.insert(path.clone()) {
                    files.push(path);
                }
            }
        }
        if !any {
            faults.push(Fault { path: pattern.into(), wrong: FaultKind::NoFile });
        }
        if files.len() > FILES_MAX {
            files.truncate(FILES_MAX);
            faults.push(Fault { path: pattern.into(), wrong: FaultKind::TooMany(FILES_MAX) });
        }
    }
    (files, faults)
}

fn found(pattern: &str) -> Result<Vec<PathBuf>, FaultKind> {
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let paths = glob::glob(pattern).map_err(|_| FaultKind::NoPattern)?;
    // As in a shell, an unreadable path does not match.
    Ok(paths.filter_map(Result::ok).filter(|path| path.is_file()).take(FILES_MAX + 1).collect())
}

/// Whether `pattern` matches `path`.
#[must_use]
pub fn means(pattern: &str, path: &Path) -> bool {
    glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches_path(path))
}

fn is_key_only(path: &Path) -> bool {
    let Ok(pem) = contents(path) else { return false };
    CertificateDer::pem_slice_iter(&pem).next().is_none()
        && PrivateKeyDer::pem_slice_iter(&pem).next().is_some_and(|key| key.is_ok())
}

/// Where the key of a certificate may be outside its file: `NAME.key`, or at certbot's place.
pub(super) fn keys_beside(path: &Path) -> Vec<PathBuf> {
    let mut keys = vec![path.with_extension("key")];
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    for own in ["fullchain", "cert"] {
        // They are numbered in certbot's archive.
        if let Some(number) = stem.strip_prefix(own)
            && number.bytes().all(|b| b.is_ascii_digit())
        {
            keys.push(path.with_file_name(format!("privkey{number}.pem")));
        }
    }
    keys.retain(|key| key != path);
    keys
}

/// Reads a certificate with its chain and its key: the key in its own file, in `key`, or beside it.
///
/// # Errors
/// If one of them is missing or malformed, or they do not match. The validity period is not checked.
pub fn read(path: &Path, key: Option<&Path>) -> Result<Certificate, Fault> {
    read_inner(path, key).map_err(|wrong| Fault { path: path.to_owned(), wrong })
}

fn read_inner(path: &Path, key: Option<&Path>) -> Result<Certificate, FaultKind> {
    let pem = contents(path).map_err(FaultKind::Unreadable)?;
    let chain = chain(&pem)?;
    let (names, not_before, not_after) = {
        let (_, own) = parse_x509_certificate(&chain[0]).map_err(|_| FaultKind::BadCertificate)?;
        let validity = own.validity();
        (Names::of(&own), validity.not_before.timestamp(), validity.not_after.timestamp())
    };
    let (key, key_path) = match first_key(&pem, path)? {
        Some(found) => (found, path.to_owned()),
        None => other_key(path, key)?,
    };
    let keyed =
        CertifiedKey::from_der(chain, key, &anteroom_tls::provider()).map_err(
            |error| match error {
                rustls::Error::InconsistentKeys(_) => FaultKind::OtherKey(key_path),
                rustls::Error::InvalidCertificate(_) => FaultKind::BadCertificate,
                _ => FaultKind::BadKey(key_path),
            },
        )?;
    Ok(Certificate { path: path.to_owned(), names, not_before, not_after, keyed: Arc::new(keyed) })
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, FaultKind> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).take(CHAIN_MAX).collect();
    let chain = chain.map_err(|_| FaultKind::NoPem)?;
    if !chain.is_empty() {
        return Ok(chain);
    }
    let has_key = PrivateKeyDer::pem_slice_iter(pem).next().is_some();
    Err(if has_key { FaultKind::KeyAlone } else { FaultKind::NoCertificate })
}

fn first_key(pem: &[u8], path: &Path) -> Result<Option<PrivateKeyDer<'static>>, FaultKind> {
    if let Some(found) = PrivateKeyDer::pem_slice_iter(pem).next() {
        return found.map(Some).map_err(|_| FaultKind::BadKey(path.to_owned()));
    }
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY";
    if pem.windows(encrypted.len()).any(|part| part == encrypted) {
        return Err(FaultKind::BadKey(path.to_owned()));
    }
    Ok(None)
}

fn other_key(
    path: &Path,
    named: Option<&Path>,
) -> Result<(PrivateKeyDer<'static>, PathBuf), FaultKind> {
    if let Some(named) = named {
        let pem = contents(named).map_err(|error| {
            let text = format!("its key {}: {error}", named.display());
            FaultKind::Unreadable(std::io::Error::new(error.kind(), text))
        })?;
        let key = first_key(&pem, named)?;
        return key
            .map(|key| (key, named.to_owned()))
            .ok_or_else(|| FaultKind::NoKey(vec![named.to_owned()]));
    }
    let places = keys_beside(path);
    for place in &places {
        let pem = match contents(place) {
            Ok(pem) => pem,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                let text = format!("its key {}: {error}", place.display());
                return Err(FaultKind::Unreadable(std::io::Error::new(error.kind(), text)));
            }
        };
        if let Some(key) = first_key(&pem, place)? {
            return Ok((key, place.clone()));
        }
    }
    Err(FaultKind::NoKey(places))
}

/// The authorities in a file, which issue client certificates.
///
/// # Errors
/// When there is none, or one is malformed.
pub fn authorities(path: &Path) -> Result<Arc<RootCertStore>, Fault> {
    let fault = |wrong| Fault { path: path.to_owned(), wrong };
    let pem = contents(path).map_err(|error| fault(FaultKind::Unreadable(error)))?;
    let mut roots = RootCertStore::empty();
    for authority in chain(&pem).map_err(fault)? {
        roots.add(authority).map_err(|_| fault(FaultKind::BadCertificate))?;
    }
    Ok(Arc::new(roots))
}

fn contents(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use rcgen::{CertifiedKey as Generated, generate_simple_self_signed};

    use super::*;

    fn generated(names: &[&str]) -> Generated<rcgen::KeyPair> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        generate_simple_self_signed(names).unwrap()
    }

    /// A certificate for these names, made here.
    pub(in crate::certificate) fn made(names: &[&str]) -> Certificate {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pem");
        let made = generated(names);
        fs::write(&path, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        read(&path, None).unwrap()
    }

    fn told(path: &Path, key: Option<&Path>) -> String {
        read(path, key).map_or_else(|fault| fault.to_string(), |_| "fine".to_owned())
    }

    #[test]
    fn a_key_lies_in_the_file_beside_it_or_where_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let made = generated(&["a.test", "*.b.test"]);
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        fs::write(at("both.pem"), format!("{key}{cert}")).unwrap();
        fs::write(at("a.crt"), &cert).unwrap();
        fs::write(at("a.key"), &key).unwrap();
        fs::write(at("fullchain2.pem"), &cert).unwrap();
        fs::write(at("privkey2.pem"), &key).unwrap();
        fs::write(at("alone.pem"), &cert).unwrap();
        for name in ["both.pem", "a.crt", "fullchain2.pem"] {
            assert_eq!(told(&at(name), None), "fine", "{name}");
        }
        assert_eq!(told(&at("alone.pem"), Some(&at("a.key"))), "fine");
        let missing = told(&at("alone.pem"), None);
        assert!(missing.contains("alone.pem has no private key"), "{missing}");
        assert!(missing.ends_with("alone.key"), "{missing}");
        let read = read(&at("both.pem"), None).unwrap();
        assert_eq!(read.names.iter().collect::<Vec<_>>(), ["a.test", "*.b.test"]);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (one, other) = (generated(&["a.test"]), generated(&["a.test"]));
        fs::write(at("other.pem"), one.cert.pem() + &other.signing_key.serialize_pem()).unwrap();
        fs::write(at("empty.pem"), "").unwrap();
        fs::write(at("key.pem"), other.signing_key.serialize_pem()).unwrap();
        fs::write(at("cut.pem"), &one.cert.pem()[..100]).unwrap();
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(at("junk.pem"), junk).unwrap();
        let locked =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        fs::write(at("locked.pem"), one.cert.pem() + locked).unwrap();
        fs::write(at("large.pem"), vec![b'\n'; (FILE_MAX + 1) as usize]).unwrap();
        for (name, expected) in [
            ("other.pem", "does not belong to the first certificate"),
            ("empty.pem", "contains no certificate"),
            ("key.pem", "write it as tls.key"),
            ("cut.pem", "is not PEM"),
            ("junk.pem", "is malformed"),
            ("locked.pem", "encrypted"),
            ("large.pem", "larger than"),
            ("missing.pem", "cannot be read"),
        ] {
            let told = told(&at(name), None);
            assert!(told.contains(expected) && told.contains(name), "{name}: {told}");
        }
    }

    #[test]
    fn a_pattern_finds_certificates_by_name_and_leaves_keys_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let made = generated(&["a.test"]);
        for name in ["b.pem", "a.pem"] {
            fs::write(at(name), made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        }
        fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let pattern = |name: &str| at(name).display().to_string();
        let sources = |patterns: &[&str]| CertificateSources {
            certificates: patterns.iter().map(|name| pattern(name)).collect(),
            key: None,
        };
        let (files, faults) = find(&sources(&["*.pem", "a.pem", "b.pem"]));
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(files, [at("a.pem"), at("b.pem")]);
        let (files, faults) = find(&sources(&["*.crt", "key.*"]));
        assert!(files.is_empty());
        assert_eq!(faults.len(), 2);
        assert!(
            faults[0].to_string().contains("*.crt matches no certificate file"),
            "{}",
            faults[0]
        );
    }

    #[test]
    fn a_change_of_a_file_or_of_its_key_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.pem"), "one").unwrap();
        let sources =
            CertificateSources { certificates: vec![at("*.pem").display().to_string()], key: None };
        let first = crate::certificate::stamps(&sources);
        assert_eq!(first, crate::certificate::stamps(&sources));
        fs::write(at("a.key"), "key").unwrap();
        let second = crate::certificate::stamps(&sources);
        assert_ne!(first, second);
        fs::write(at("b.pem"), "two").unwrap();
        let third = crate::certificate::stamps(&sources);
        assert_ne!(second, third);
        // The permissions are part of it.
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(at("b.pem"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_ne!(third, crate::certificate::stamps(&sources));
    }
}
