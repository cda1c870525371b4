//! The names that a certificate is for (RFC 6125, RFC 9525 §6.3). Pure.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// The DNS names of a certificate, lower-case. Addresses are left out: no client asks for one by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names as they are.
    pub exact: Vec<String>,
    /// Of `*.example.com`, `example.com`.
    pub below: Vec<String>,
}

impl Names {
    /// Those that stand in a certificate's `subjectAltName`. Nobody looks at its subject any more.
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
        // A `*` elsewhere means nothing to any browser.
        if !name.is_empty() && !name.contains('*') && !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    }

    /// All of them, as they stand in a certificate.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.exact.iter().cloned().chain(self.below.iter().map(|parent| format!("*.{parent}")))
    }
}

/// A name as it is compared.
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
