//! The names of rows from several sources in one store.

use std::sync::Arc;

use anteroom_http::ident::Row;

/// The names of all sources, in order. Rows of the first are stored under their own ids, as other
/// apps with this layout expect; those of a further source under its name, a colon and the id.
#[derive(Clone, Debug, Default)]
pub struct RowNames(Vec<Arc<str>>);

impl RowNames {
    /// The names, which contain no colon.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// The name of the row `id` of the source `name`; `None` if there is no such source, or if the
    /// source cannot have a row of that name: as a path segment `.` and `..` would name another
    /// resource.
    #[must_use]
    pub fn row(&self, name: &str, id: &str) -> Option<Row> {
        if matches!(id, "" | "." | "..") {
            return None;
        }
        match self.source_index(name)? {
            // A row of the first source that looks like a further one's would be taken for that.
            0 => Row::new(id).filter(|row| self.split(row).0 == 0),
            _ => Row::new(&format!("{name}:{id}")),
        }
    }

    /// Which source a row belongs to, and its id there.
    #[must_use]
    pub fn split<'r>(&self, row: &'r Row) -> (usize, &'r str) {
        let text = row.as_str();
        let further = text.split_once(':').and_then(|(name, id)| {
            let place = self.0.iter().skip(1).position(|known| **known == *name)?;
            Some((place + 1, id))
        });
        further.unwrap_or((0, text))
    }

    /// The name of a source by its index.
    #[must_use]
    pub fn name(&self, place: usize) -> &str {
        self.0.get(place).map_or("", |name| name)
    }

    /// The index of a source by its name.
    #[must_use]
    pub fn source_index(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| **known == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_source_has_plain_names_and_a_further_one_its_own() {
        let names = RowNames::new(["inventory", "prices"]);
        let row = |name, id| names.row(name, id).map(|row| row.as_str().to_owned());
        assert_eq!(row("inventory", "7").as_deref(), Some("7"));
        assert_eq!(row("inventory", "a:b").as_deref(), Some("a:b"));
        assert_eq!(row("prices", "7").as_deref(), Some("prices:7"));
        assert_eq!(row("inventory", "prices:7"), None);
        for id in ["", ".", ".."] {
            assert_eq!([row("inventory", id), row("prices", id)], [None, None], "{id}");
        }
        assert_eq!(row("x", "7"), None);
    }

    #[test]
    fn a_row_is_split_as_it_was_named() {
        let names = RowNames::new(["inventory", "prices"]);
        let split = |text| names.split(&Row::new(text).unwrap()).0;
        assert_eq!(["7", "a:b", "inventory:7", "prices:7"].map(split), [0, 0, 0, 1]);
        assert_eq!(names.split(&Row::new("prices:a:b").unwrap()), (1, "a:b"));
    }
}
