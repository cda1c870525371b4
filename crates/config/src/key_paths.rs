//! The paths of all keys, for the suggestion where a key belongs.

use super::form::Form;
use super::plan::{OriginUrl, Plan};
use super::schema;
use super::suggest::without_numbers;
use super::walk::Walk;

/// Every path of the schema: `cache.default_ttl`, `route[].match.path`, `origins.NAME.url`.
#[derive(Debug)]
pub(super) struct KeyPaths {
    /// The path of the current table, with its dot.
    within: String,
    paths: Vec<String>,
}

impl KeyPaths {
    pub(super) fn of_schema() -> Self {
        let mut paths = Self { within: String::new(), paths: Vec::new() };
        schema::walk(&mut paths, &mut Plan::new(OriginUrl::http("", 80)));
        paths
    }

    /// The key of this name in a table within `table`, which is a path such as `route[2]`: `match.path`.
    pub(super) fn within(&self, table: &str, name: &str) -> Option<&str> {
        let start = format!("{}.", without_numbers(table));
        self.of_name(name).find_map(|path| path.strip_prefix(&start))
    }

    /// The one place in the schema where a key of this name belongs; of several none is likelier than another.
    pub(super) fn elsewhere(&self, name: &str) -> Option<String> {
        let mut places = self.of_name(name);
        let (Some(path), None) = (places.next(), places.next()) else { return None };
        path.contains('.').then(|| self.place("", path))
    }

    /// A path as it is written in the table `table`.
    pub(super) fn place(&self, table: &str, path: &str) -> String {
        let start = format!("{}.", without_numbers(table));
        if let Some(key) = path.strip_prefix(&start) {
            return key.to_owned();
        }
        match path.split_once('.') {
            None => path.to_owned(),
            Some((head, key)) => match head.strip_suffix("[]") {
                Some(list) => format!("{key} in a [[{list}]]"),
                None => format!("{key} in [{head}]"),
            },
        }
    }

    /// Whether this is a key or a table at the top of the file.
    pub(super) fn is_at_top(&self, name: &str) -> bool {
        let first = |path: &str| path.split(['.', '[']).next() == Some(name);
        self.paths.iter().any(|path| first(path))
    }

    /// Whether this is the path of a key, and not of a table: `cache.memory`, `origins.blog.url`.
    pub(super) fn is_key(&self, path: &str) -> bool {
        let named = ["origins", "databases"].iter().find_map(|table| {
            let (_, key) = path.strip_prefix(table)?.strip_prefix('.')?.split_once('.')?;
            Some(format!("{table}.NAME.{key}"))
        });
        let path = named.as_deref().unwrap_or(path);
        self.paths.iter().any(|known| known == path)
    }

    fn of_name(&self, name: &str) -> impl Iterator<Item = &str> {
        let has_name =
            move |path: &&str| path.rsplit_once('.').is_some_and(|(_, last)| last == name);
        self.paths.iter().map(String::as_str).filter(has_name)
    }

    /// The path with this name in the environment, when single underscores stand for the dots: `ORIGIN_URL`.
    pub(super) fn by_variable(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let found =
            self.paths.iter().find(|path| path.contains('.') && path.replace('.', "_") == name);
        found.map(String::as_str)
    }

    /// A key of this table, as an example.
    pub(super) fn example(&self, table: &str) -> Option<&str> {
        let start = format!("{}.", without_numbers(table));
        self.paths.iter().find_map(|path| path.strip_prefix(&start))
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn all(&self) -> &[String] {
        &self.paths
    }

    fn visit(&mut self, name: &str) {
        self.paths.push(format!("{}{name}", self.within));
    }

    fn inside(&mut self, name: &str, keys: impl FnOnce(&mut Self)) {
        let outer = self.within.clone();
        self.within.push_str(name);
        self.within.push('.');
        keys(self);
        self.within = outer;
    }
}

impl Walk for KeyPaths {
    fn key<T>(&mut self, name: &'static str, _: &mut T, _: &impl Form<T>) {
        self.visit(name);
    }

    fn required<T>(&mut self, name: &'static str, _: &mut T, _: &impl Form<T>, _: &str) {
        self.visit(name);
    }

    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        self.inside(name, keys);
    }

    fn tables<T>(
        &mut self,
        name: &'static str,
        _: usize,
        _: &mut Vec<T>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        self.inside(&format!("{name}[]"), |at| keys(at, &mut fresh()));
    }

    fn named<T>(
        &mut self,
        name: &'static str,
        _: usize,
        _: &mut Vec<(String, T)>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        self.inside(&format!("{name}.NAME"), |at| keys(at, &mut fresh()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_where_it_belongs() {
        let paths = KeyPaths::of_schema();
        for (name, expected) in [
            ("default_ttl", Some("default_ttl in [cache]")),
            ("override_ttl", Some("override_ttl in a [[route]]")),
            ("trusted_proxies", Some("trusted_proxies in [client]")),
            ("url", None),
            ("match", None),
            ("nonsense", None),
        ] {
            assert_eq!(paths.elsewhere(name).as_deref(), expected, "{name}");
        }
        assert_eq!(paths.within("route[2]", "path"), Some("match.path"));
        assert_eq!((paths.within("cache", "path"), paths.within("", "path")), (None, None));
        assert_eq!(paths.by_variable("ORIGIN_URL"), Some("origin.url"));
        assert_eq!(paths.by_variable("CACHE_DEFAULT_TTL"), Some("cache.default_ttl"));
        assert_eq!(paths.by_variable("LOG"), None);
        assert_eq!(paths.example("route[3]"), Some("name"));
    }
}
