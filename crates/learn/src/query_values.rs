//! The values in a query as keyed hashes: which part of it changes is told by them, and none is kept.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use ahash::RandomState;

/// What is kept of a query besides names, by keyed hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryValues {
    /// The values of each name, in the order of the names.
    pub(crate) named: Vec<u32>,
    /// What stands without a name, if there is something: a time or an id, mostly.
    pub(crate) unnamed: Option<u32>,
}

impl QueryValues {
    /// Of a query and the names in it. `key`: that of all hashes.
    #[must_use]
    pub fn of(key: &RandomState, query: Option<&str>, names: &[String]) -> Self {
        let parts = || query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let hash = |is_meant: &dyn Fn(&str) -> bool| {
            let mut hasher = key.build_hasher();
            let meant = parts().filter(|part| is_meant(part));
            let count = meant.inspect(|part| part.hash(&mut hasher)).count();
            // The low half of a good hash is as good.
            (count > 0).then(|| hasher.finish() as u32)
        };
        let has_name = |part: &str, name: &str| {
            part.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
        };
        let named = names.iter().map(|name| hash(&|part| has_name(part, name)).unwrap_or(0));
        Self { named: named.collect(), unnamed: hash(&|part| !part.contains('=')) }
    }
}
