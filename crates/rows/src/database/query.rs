//! A query for rows, and which of the rows found belongs to which id.

use std::collections::HashMap;

use super::found::{FoundRow, QueryError};

/// The content of a row: JSON; `None` if the database has no such row.
pub type RowContent = Option<String>;

/// A query for rows. It has one parameter: the id, or the ids of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowQuery {
    /// The SQL.
    pub sql: String,
    /// The column that holds the id.
    pub id_column: String,
    /// Whether the rows of one id make an array.
    pub many: bool,
    /// The most ids in one query; `None`: a query has one id.
    pub batch: Option<usize>,
}

impl RowQuery {
    /// The SQL without a semicolon at its end.
    pub(super) fn statement(&self) -> &str {
        self.sql.trim_end_matches(|c: char| c == ';' || c.is_whitespace())
    }

    /// The parameter as a text: the id, or the ids of a batch as a JSON array of texts.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(super) fn bound_text(&self, ids: &[&str]) -> String {
        match self.batch {
            Some(_) => serde_json::Value::from(ids).to_string(),
            None => ids.first().copied().unwrap_or_default().to_owned(),
        }
    }

    /// Checks the names of a result's columns.
    pub(super) fn check_columns(&self, names: &[&str]) -> Result<(), QueryError> {
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                let why = format!("two columns are called {name:?}; name one of them with AS");
                return Err(QueryError::Unfit(why));
            }
        }
        if names.is_empty() {
            return Err(QueryError::Unfit("it returns no columns".to_owned()));
        }
        if self.batch.is_some() && !names.contains(&self.id_column.as_str()) {
            let why = format!(
                "it returns no column {:?}, by which the rows of a batch are told apart; select it, or write id = \"its name\"",
                self.id_column
            );
            return Err(QueryError::Unfit(why));
        }
        Ok(())
    }

    /// Checks the number of parameters.
    pub(super) fn check_parameters(&self, count: usize) -> Result<(), QueryError> {
        if count == 1 {
            return Ok(());
        }
        Err(QueryError::Unfit(format!(
            "it has {count} parameters; expected one, which is the row id"
        )))
    }

    /// The content of each of `ids`, in order. A row belongs to the id that its id column says; a
    /// result without that column belongs to the one id that was asked for.
    pub(super) fn matched(
        &self,
        ids: &[&str],
        found: Vec<FoundRow>,
    ) -> Vec<Result<RowContent, QueryError>> {
        let mut of_ids: HashMap<&str, Vec<String>> =
            ids.iter().map(|id| (*id, Vec::new())).collect();
        let only = if self.batch.is_none() { ids.first().copied() } else { None };
        for FoundRow { id, json } in found {
            let id = id.as_deref().or(only);
            if let Some(rows) = id.and_then(|id| of_ids.get_mut(id)) {
                rows.push(json);
            }
        }
        ids.iter().map(|id| self.content(of_ids.remove(id).unwrap_or_default())).collect()
    }

    fn content(&self, mut rows: Vec<String>) -> Result<RowContent, QueryError> {
        match (rows.len(), self.many) {
            (0, _) => Ok(None),
            (_, true) => Ok(Some(format!("[{}]", rows.join(",")))),
            (1, false) => Ok(rows.pop()),
            (count, false) => Err(QueryError::Several(count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(many: bool, batch: Option<usize>) -> RowQuery {
        let (sql, id_column) = ("select 1 ;\n".to_owned(), "id".to_owned());
        RowQuery { sql, id_column, many, batch }
    }

    fn found(rows: &[(Option<&str>, &str)]) -> Vec<FoundRow> {
        let one = |(id, json): &(Option<&str>, &str)| FoundRow {
            id: id.map(str::to_owned),
            json: (*json).to_owned(),
        };
        rows.iter().map(one).collect()
    }

    fn matched(query: &RowQuery, ids: &[&str], rows: &[(Option<&str>, &str)]) -> Vec<String> {
        let all = query.matched(ids, found(rows)).into_iter();
        all.map(|one| match one {
            Ok(content) => content.unwrap_or_else(|| "none".to_owned()),
            Err(why) => why.to_string(),
        })
        .collect()
    }

    #[test]
    fn rows_of_a_batch_are_matched_by_their_ids() {
        let batch = query(false, Some(10));
        let rows = [(Some("2"), "{2}"), (Some("1"), "{1}"), (Some("9"), "{9}"), (None, "{}")];
        assert_eq!(matched(&batch, &["1", "2", "3"], &rows), ["{1}", "{2}", "none"]);
        let several = matched(&batch, &["1", "2"], &[(Some("1"), "a"), (Some("1"), "b")]);
        assert!(several[0].contains("2 rows for one id"), "{several:?}");
        assert_eq!(several[1], "none");
    }

    #[test]
    fn several_rows_make_an_array_where_that_is_wanted() {
        let many = query(true, Some(10));
        let rows = [(Some("1"), "1"), (Some("1"), "2"), (Some("2"), "3")];
        assert_eq!(matched(&many, &["1", "2", "3"], &rows), ["[1,2]", "[3]", "none"]);
    }

    #[test]
    fn a_row_with_another_id_is_not_the_row_that_was_asked_for() {
        let one = query(false, None);
        assert_eq!(matched(&one, &["7"], &[(None, "{}")]), ["{}"]);
        assert_eq!(matched(&one, &["7abc"], &[(Some("7"), "{}")]), ["none"]);
        assert_eq!(matched(&one, &["7"], &[(Some("7"), "{}")]), ["{}"]);
    }

    #[test]
    fn a_query_that_cannot_be_used_says_why() {
        let why = |result: Result<(), QueryError>| result.unwrap_err().to_string();
        assert!(why(query(false, None).check_columns(&["a", "b", "a"])).contains("\"a\""));
        assert!(why(query(false, None).check_columns(&[])).contains("no columns"));
        assert!(why(query(false, Some(2)).check_columns(&["a"])).contains("no column \"id\""));
        assert!(why(query(false, None).check_parameters(0)).contains("0 parameters"));
        assert!(query(false, None).check_columns(&["a"]).is_ok());
        assert_eq!(query(false, None).statement(), "select 1");
    }
}
