//! What explains that some visitors see another page than the stored one: a value that all of them have, and that none of
//! those has who see the stored one.

use std::collections::BTreeSet;

use crate::causes::{FIELDS, RequestField};

/// The most cookies of a request that are kept.
pub const COOKIES_KEPT: usize = 16;
/// The fewest requests on each side that are evidence.
const REQUESTS_MIN: usize = 2;
/// The most causes that are named.
const NAMED_MAX: usize = 3;

/// What an answer may depend on, by keyed hashes; 0: it did not come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditedRequest {
    /// The values of [`FIELDS`].
    pub fields: [u32; FIELDS.len()],
    /// The cookies by the names under which they are learned, at most [`COOKIES_KEPT`].
    pub cookies: Vec<(String, u32)>,
}

/// Something that explains a difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AuditCause {
    /// A cookie, by its name.
    Cookie(String),
    /// A field, or the address.
    Field(RequestField),
}

impl AuditCause {
    fn value(&self, request: &AuditedRequest) -> u32 {
        match self {
            Self::Cookie(own) => {
                request.cookies.iter().find(|(name, _)| name == own).map_or(0, |(_, value)| *value)
            }
            Self::Field(own) => {
                let place = FIELDS.iter().position(|field| field == own);
                place.map_or(0, |place| request.fields[place])
            }
        }
    }

    /// The name in reports.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Cookie(name) => format!("the cookie {name}"),
            Self::Field(RequestField::Address) => "the address".to_owned(),
            Self::Field(field) => field.as_str().to_owned(),
        }
    }
}

/// What explains that the requests in `differing` got other answers than those in `agreeing`, the coarsest of it; empty:
/// nothing that is known, or there is too little to say.
pub(super) fn causes(differing: &[AuditedRequest], agreeing: &[AuditedRequest]) -> Vec<AuditCause> {
    if differing.len() < REQUESTS_MIN || agreeing.len() < REQUESTS_MIN {
        return Vec::new();
    }
    let all = || differing.iter().chain(agreeing);
    let names: BTreeSet<&String> =
        all().flat_map(|one| one.cookies.iter().map(|(name, _)| name)).collect();
    let cookies = names.into_iter().map(|name| AuditCause::Cookie(name.clone()));
    let mut found: Vec<(usize, AuditCause)> = cookies
        .chain(FIELDS.map(AuditCause::Field))
        .filter_map(|cause| {
            let values = |requests: &[AuditedRequest]| -> BTreeSet<u32> {
                requests.iter().map(|one| cause.value(one)).collect()
            };
            let (differ, agree) = (values(differing), values(agreeing));
            let count = differ.len() + agree.len();
            differ.is_disjoint(&agree).then_some((count, cause))
        })
        .collect();
    found.sort_unstable();
    let coarsest = found.first().map_or(0, |(values, _)| *values);
    // Where each request has a value of its own, any explains all.
    let says_nothing = coarsest >= differing.len() + agreeing.len();
    let found = found.into_iter().filter(|(values, _)| *values == coarsest && !says_nothing);
    found.map(|(_, cause)| cause).take(NAMED_MAX).collect()
}

/// The lines of `proxy.toml` that keep visitors apart who see different things on a path.
pub(super) fn lines(path: &str, causes: &[AuditCause]) -> String {
    let keyed = match causes {
        [AuditCause::Cookie(name)] if !name.contains('*') => format!(
            "# and take {name:?} out of [cache] ignore_cookies, if it is there\nkey_cookies = [{name:?}]"
        ),
        [AuditCause::Field(RequestField::AcceptLanguage)] => {
            "key_headers = [\"accept-language\"]".to_owned()
        }
        _ => "share = \"none\"".to_owned(),
    };
    format!("[[route]]\nmatch.path = {path:?}\n{keyed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(address: u32, language: u32, currency: u32) -> AuditedRequest {
        let mut fields = [7; FIELDS.len()];
        (fields[0], fields[2]) = (address, language);
        AuditedRequest { fields, cookies: vec![("currency".to_owned(), currency)] }
    }

    #[test]
    fn a_cause_has_other_values_where_the_page_differs_and_the_coarsest_counts() {
        let differing = [request(1, 1, 9), request(2, 2, 9)];
        let agreeing = [request(3, 1, 8), request(4, 2, 8), request(5, 2, 8)];
        let found = causes(&differing, &agreeing);
        assert_eq!(found, [AuditCause::Cookie("currency".to_owned())], "and not the address");
        assert!(lines("/price", &found).contains("key_cookies = [\"currency\"]"));
        assert_eq!(causes(&differing[..1], &agreeing), [], "too little");
    }

    #[test]
    fn what_all_have_of_their_own_explains_nothing() {
        let differing = [request(1, 1, 9), request(2, 2, 8)];
        let agreeing = [request(3, 1, 8), request(4, 2, 9)];
        assert_eq!(causes(&differing, &agreeing), []);
        assert!(lines("/a/*", &[]).ends_with("match.path = \"/a/*\"\nshare = \"none\""));
    }
}
