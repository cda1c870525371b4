//! Selects a certificate: by the requested name, by time, and by what the client supports. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use super::load::Certificate;
use super::names::normalised;

/// Certificates by name. Among those for one name, the one that became valid last comes first.
#[derive(Debug)]
pub struct CertificateTable {
    all: Vec<Arc<Certificate>>,
    exact: HashMap<String, Vec<Arc<Certificate>>>,
    /// By the name after `*.`.
    below: HashMap<String, Vec<Arc<Certificate>>>,
    default: Vec<Arc<Certificate>>,
}

impl CertificateTable {
    /// The table of `certificates`. A client that requests an unknown name, or none, gets the certificate
    /// for the name `default`; if that is not set, or not covered, the first.
    #[must_use]
    pub fn new(certificates: &[Arc<Certificate>], default: Option<&str>) -> Self {
        let mut table = Self {
            all: certificates.to_vec(),
            exact: HashMap::new(),
            below: HashMap::new(),
            default: certificates.first().cloned().into_iter().collect(),
        };
        for certificate in certificates {
            for name in &certificate.names.exact {
                table.exact.entry(name.clone()).or_default().push(Arc::clone(certificate));
            }
            for parent in &certificate.names.below {
                table.below.entry(parent.clone()).or_default().push(Arc::clone(certificate));
            }
        }
        for list in table.exact.values_mut().chain(table.below.values_mut()) {
            list.sort_by_key(|certificate| std::cmp::Reverse(certificate.not_before));
        }
        if let Some(name) = default {
            let named: Vec<_> = table.named(&normalised(name)).cloned().collect();
            if !named.is_empty() {
                table.default = named;
            }
        }
        table
    }

    /// All certificates.
    #[must_use]
    pub fn all(&self) -> &[Arc<Certificate>] {
        &self.all
    }

    /// Whether a certificate covers `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.named(&normalised(name)).next().is_some()
    }

    /// The certificate for a client that requests `name`, at `now`: among those that match, one that is
    /// valid and `readable` is preferred. An exact name is preferred over a wildcard.
    #[must_use]
    pub fn choose(
        &self,
        name: Option<&str>,
        now: i64,
        readable: impl Fn(&Certificate) -> bool,
    ) -> Option<&Arc<Certificate>> {
        let name = name.map(normalised);
        let named = || name.iter().flat_map(|name| self.named(name));
        let best = |fits: &dyn Fn(&Certificate) -> bool| named().find(|found| fits(found));
        best(&|found| found.is_valid(now) && readable(found))
            .or_else(|| best(&|found| readable(found)))
            .or_else(|| best(&|_| true))
            .or_else(|| self.default.iter().find(|found| found.is_valid(now) && readable(found)))
            .or_else(|| self.default.first())
    }

    fn named<'t>(&'t self, name: &str) -> impl Iterator<Item = &'t Arc<Certificate>> {
        let exact = self.exact.get(name);
        let below = name.split_once('.').and_then(|(_, parent)| self.below.get(parent));
        exact.into_iter().chain(below).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::load::tests::made;

    /// Names, from when, until when.
    fn table(all: &[(&[&str], i64, i64)], default: Option<&str>) -> CertificateTable {
        let certificates: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(index, (names, from, until))| {
                let mut one = made(names);
                one.path = index.to_string().into();
                (one.not_before, one.not_after) = (*from, *until);
                Arc::new(one)
            })
            .collect();
        CertificateTable::new(&certificates, default)
    }

    fn chosen(table: &CertificateTable, name: Option<&str>, now: i64) -> String {
        table.choose(name, now, |_| true).unwrap().path.display().to_string()
    }

    #[test]
    fn the_name_that_is_asked_for_decides() {
        let all: &[(&[&str], i64, i64)] = &[
            (&["first.test"], 0, 100),
            (&["*.shop.test"], 0, 100),
            (&["www.shop.test", "shop.test"], 0, 100),
        ];
        let plain = table(all, None);
        for (name, expected) in [
            (Some("www.shop.test"), "2"),
            (Some("WWW.Shop.test."), "2"),
            (Some("shop.test"), "2"),
            (Some("img.shop.test"), "1"),
            (Some("a.img.shop.test"), "0"),
            (Some("other.test"), "0"),
            (Some("test"), "0"),
            (None, "0"),
        ] {
            assert_eq!(chosen(&plain, name, 50), expected, "{name:?}");
        }
        let named = table(all, Some("img.shop.test"));
        assert_eq!(chosen(&named, None, 50), "1");
        assert_eq!(chosen(&named, Some("other.test"), 50), "1");
        assert!(named.has("img.shop.test") && !named.has("other.test"));
    }

    #[test]
    fn of_two_that_fit_the_newest_valid_one_is_shown() {
        let two = table(&[(&["a.test"], 10, 100), (&["a.test"], 20, 80)], None);
        assert_eq!(chosen(&two, Some("a.test"), 15), "0", "the newer is not valid yet");
        assert_eq!(chosen(&two, Some("a.test"), 50), "1");
        assert_eq!(chosen(&two, Some("a.test"), 90), "0", "the newer has expired");
        assert_eq!(chosen(&two, Some("a.test"), 900), "1", "all have expired: no other is better");
        let wild = table(&[(&["a.shop.test"], 0, 10), (&["*.shop.test"], 0, 100)], None);
        assert_eq!(chosen(&wild, Some("a.shop.test"), 5), "0");
        assert_eq!(chosen(&wild, Some("a.shop.test"), 50), "1");
    }

    #[test]
    fn an_unreadable_certificate_is_chosen_only_without_an_alternative() {
        let two = table(&[(&["a.test"], 0, 100), (&["a.test"], 10, 100)], None);
        let readable = |found: &Certificate| found.path.ends_with("0");
        assert!(two.choose(Some("a.test"), 50, readable).unwrap().path.ends_with("0"));
        assert!(two.choose(Some("a.test"), 50, |_| false).unwrap().path.ends_with("1"));
    }
}
