//! The kinds of databases that rows come from.

/// What `listen` names in an SQLite file, which has no channels: its version.
pub const SQLITE_CHANNEL: &str = "data_version";

/// A kind of database. Each has a feature of the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// A file of SQLite.
    Sqlite,
}

impl DatabaseKind {
    /// The kind that a URL names by its scheme.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::Mysql),
            "sqlite" => Some(Self::Sqlite),
            _ => None,
        }
    }

    /// The feature with which a binary can read it.
    #[must_use]
    pub fn feature(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }

    /// Whether this binary was built with that feature.
    #[must_use]
    pub fn is_built(self) -> bool {
        match self {
            Self::Postgres => cfg!(feature = "postgres"),
            Self::Mysql => cfg!(feature = "mysql"),
            Self::Sqlite => cfg!(feature = "sqlite"),
        }
    }

    /// Where the row id stands in a query.
    #[must_use]
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => "$1",
            Self::Mysql => "?",
        }
    }
}
