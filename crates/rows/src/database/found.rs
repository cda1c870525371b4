//! What is read of a database, and how that fails.

use std::error::Error;
use std::sync::Arc;

/// The most rows that one query returns. A query with more is refused, and no more is read.
pub(super) const FOUND_MAX: usize = 10_000;
/// The most bytes that one query returns, as JSON.
pub(super) const FOUND_BYTES_MAX: usize = 16 << 20;

/// A row of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundRow {
    /// The text of the id column, if there is one.
    pub(super) id: Option<String>,
    /// The columns as a JSON object.
    pub(super) json: String,
}

/// Why rows could not be read.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// No connection, or one that broke.
    #[error("the database is away: {0}")]
    Away(#[source] Box<dyn Error + Send + Sync>),
    /// No connection is tried yet, after some that failed.
    #[error("the database is away, and is tried again soon")]
    Resting,
    /// The database or this process ended the query.
    #[error("the query took too long")]
    TimedOut,
    /// A value of some row cannot be read.
    #[error("the database cannot read a value: {0}")]
    Value(#[source] Box<dyn Error + Send + Sync>),
    /// The database refused the query.
    #[error("the database refused the query: {0}")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
    /// The query cannot be used for rows.
    #[error("the query cannot be used: {0}")]
    Unfit(String),
    /// Several rows for one id.
    #[error("the query returned {0} rows for one id; write many = true to have them as an array")]
    Several(usize),
    /// More than is read at once.
    #[error("the query returned more than {FOUND_MAX} rows or {FOUND_BYTES_MAX} bytes")]
    TooLarge,
    /// The failure of a query for several rows.
    #[error(transparent)]
    Shared(Arc<Self>),
}

impl QueryError {
    /// Whether the database could not be reached.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Away(_) | Self::Resting => true,
            Self::Shared(why) => why.is_away(),
            _ => false,
        }
    }

    /// Whether the query took too long.
    #[must_use]
    pub fn is_time_out(&self) -> bool {
        match self {
            Self::TimedOut => true,
            Self::Shared(why) => why.is_time_out(),
            _ => false,
        }
    }

    /// Whether one of several rows may be the cause.
    pub(super) fn is_of_some_row(&self) -> bool {
        matches!(self, Self::Value(_) | Self::TooLarge)
    }

    /// Whether the connection answered as it should, and may be used again.
    pub(super) fn leaves_connection(&self) -> bool {
        matches!(self, Self::Value(_) | Self::Refused(_) | Self::Unfit(_) | Self::Several(_))
    }
}

/// Rows as they are read, within the bounds.
#[derive(Debug, Default)]
pub(super) struct FoundRows {
    rows: Vec<FoundRow>,
    bytes: usize,
}

impl FoundRows {
    /// Adds a row, if there is room for it.
    pub(super) fn add(&mut self, row: FoundRow) -> Result<(), QueryError> {
        self.bytes += row.json.len();
        if self.rows.len() >= FOUND_MAX || self.bytes > FOUND_BYTES_MAX {
            return Err(QueryError::TooLarge);
        }
        self.rows.push(row);
        Ok(())
    }

    pub(super) fn done(self) -> Vec<FoundRow> {
        self.rows
    }
}

/// Sorts an error of the driver; `by_code` knows the database's own codes.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(super) fn sorted(
    error: sqlx::Error,
    by_code: impl Fn(&dyn sqlx::error::DatabaseError) -> ErrorClass,
) -> QueryError {
    let Some(answer) = error.as_database_error() else {
        return match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                QueryError::Value(error.into())
            }
            sqlx::Error::Encode(_) => QueryError::Refused(error.into()),
            _ => QueryError::Away(error.into()),
        };
    };
    match by_code(answer) {
        ErrorClass::Away => QueryError::Away(error.into()),
        ErrorClass::TimedOut => QueryError::TimedOut,
        ErrorClass::Value => QueryError::Value(error.into()),
        ErrorClass::Refused => QueryError::Refused(error.into()),
    }
}

/// What a code of a database means.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    Away,
    TimedOut,
    Value,
    Refused,
}
