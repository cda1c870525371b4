//! The names that a certificate covers (RFC 6125, RFC 9525 §6.3). Pure.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// The DNS names of a certificate, lower-case. Addresses are left out, because clients do not request them
/// by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Exact names.
    pub exact: Vec<String>,
    /// The parents of wildcard names: `example.com` for `*.example.com`.
    pub below: Vec<String>,
}

impl Names {
    /// The names in a certificate's `subjectAltName`. The subject itself is obsolete for this.
    #[must_use]
    pub fn of(certificate: &X509Certificate<'_>) -> Self {
        let mut names = Self::default();
        let Ok(Some(extension)) = certificate.subject_alternative_name() else { return names };
        for name in &extension.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.add(name);
            }
        }
        names
    }

    fn add(&mut self, name: &str) {
        let name = normalised(name);
        let (list, name) = match name.strip_prefix("*.") {
            Some(parent) => (&mut self.below, parent),
            None => (&mut self.exact, name.as_str()),
        };
        // Browsers ignore a `*` elsewhere.
        if !name.is_empty() && !name.contains('*') && !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    }

    /// All of them, as the certificate has them.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.exact.iter().cloned().chain(self.below.iter().map(|parent| format!("*.{parent}")))
    }
}

/// A name in the form used for comparison.
#[must_use]
pub(super) fn normalised(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_the_first_label_and_nothing_else() {
        let mut names = Names::default();
        for name in ["A.test", "*.b.test", "a.test.", "c.*.test", "d*.test", "*.", "*"] {
            names.add(name);
        }
        assert_eq!(names.exact, ["a.test"]);
        assert_eq!(names.below, ["b.test"]);
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a.test", "*.b.test"]);
    }
}
