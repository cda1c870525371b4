//! Which rows a configuration schedules, and what a database may purge.

/// The most rows that are scheduled, of all sources.
pub const SCHEDULED_MAX: u64 = 100_000;

/// The most digits of a number in a range of ids.
const DIGITS_MAX: usize = 12;

/// Ids of rows: one, or all whole numbers from one to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowIds {
    /// An id.
    One(String),
    /// The numbers from the first to the second, both included.
    Range(u64, u64),
}

impl RowIds {
    /// An id, or a range such as `1..1000`. `None`: a range whose end comes before its start.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| {
            let fits = (1..=DIGITS_MAX).contains(&digits.len());
            let is_number = fits && digits.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten()
        };
        let ends =
            text.split_once("..").and_then(|(first, last)| Some((number(first)?, number(last)?)));
        match ends {
            Some((first, last)) => (first <= last).then_some(Self::Range(first, last)),
            None => Some(Self::One(text.to_owned())),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Range(first, last) => last - first + 1,
        }
    }

    /// Each of them.
    pub fn ids(&self) -> impl Iterator<Item = String> {
        let (one, numbers) = match self {
            Self::One(id) => (Some(id.clone()), None),
            Self::Range(first, last) => (None, Some(*first..=*last)),
        };
        one.into_iter().chain(numbers.into_iter().flatten().map(|number| number.to_string()))
    }
}

impl std::fmt::Display for RowIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(id) => f.write_str(id),
            Self::Range(first, last) => write!(f, "{first}..{last}"),
        }
    }
}

/// What is purged when a database says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeKind {
    /// Pages with a tag.
    Tag,
    /// The page at a path.
    Url,
}

impl PurgeKind {
    /// The kind that a text such as `tag:item-7` names, and what stands behind it.
    #[must_use]
    pub fn split(text: &str) -> Option<(Self, &str)> {
        match text.split_once(':')? {
            ("tag", name) => Some((Self::Tag, name)),
            ("url", path) => Some((Self::Url, path)),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Url => "url",
        }
    }
}

/// Tags or paths that a database may purge: `tag:news`, `tag:item-*`, `url:/shop/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPurge {
    /// What is purged.
    pub kind: PurgeKind,
    /// The tag or the path, or how it begins.
    pub name: String,
    /// Whether more may follow.
    pub is_prefix: bool,
}

impl AllowedPurge {
    /// Parses one; `None`: it is neither a tag nor a path, or its `*` is not at the end.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = PurgeKind::split(text)?;
        let (name, is_prefix) = match name.strip_suffix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let fits = match kind {
            PurgeKind::Tag => is_prefix || !name.is_empty(),
            PurgeKind::Url => name.starts_with('/'),
        };
        let printable = name.bytes().all(|b| b.is_ascii_graphic() && b != b'*');
        (fits && printable).then(|| Self { kind, name: name.to_owned(), is_prefix })
    }

    /// Whether it names this.
    #[must_use]
    pub fn names(&self, kind: PurgeKind, name: &str) -> bool {
        self.kind == kind
            && match self.is_prefix {
                true => name.starts_with(&self.name),
                false => name == self.name,
            }
    }
}

impl std::fmt::Display for AllowedPurge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = if self.is_prefix { "*" } else { "" };
        write!(f, "{}:{}{end}", self.kind.word(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_one_or_a_range_of_numbers() {
        let ids = |text| RowIds::parse(text).map(|ids| ids.ids().collect::<Vec<_>>());
        assert_eq!(ids("8..11").unwrap(), ["8", "9", "10", "11"]);
        assert_eq!(ids("7..7").unwrap(), ["7"]);
        for one in ["lamp", "7", "a..b", "1..", "..9", "1...3", "-1..3", "1234567890123..2"] {
            assert_eq!(ids(one).unwrap(), [one]);
        }
        assert_eq!(ids("9..8"), None);
        assert_eq!(RowIds::parse("1..1000").unwrap().count(), 1_000);
        assert_eq!(RowIds::parse("1..1000").unwrap().to_string(), "1..1000");
    }

    #[test]
    fn a_purge_counts_only_where_it_is_named() {
        let allowed = |text: &str| AllowedPurge::parse(text).unwrap();
        for text in ["tag:news", "tag:item-*", "tag:*", "url:/shop/*", "url:/news"] {
            assert_eq!(allowed(text).to_string(), text);
        }
        for bad in ["news", "tag:", "url:shop", "tag:a*b", "url:/a b", "page:/x", ""] {
            assert_eq!(AllowedPurge::parse(bad), None, "{bad}");
        }
        let items = allowed("tag:item-*");
        assert!(items.names(PurgeKind::Tag, "item-7"));
        assert!(!items.names(PurgeKind::Tag, "news") && !items.names(PurgeKind::Url, "item-7"));
        let news = allowed("url:/news");
        assert!(news.names(PurgeKind::Url, "/news") && !news.names(PurgeKind::Url, "/news/1"));
    }
}
