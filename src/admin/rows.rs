//! Commands about rows: schedule, list, stop.

use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::Row;
use anteroom_rows::{schedule_row_cache, together};
use anteroom_store::{RowStore, ScheduledRow};
use serde::{Deserialize, Serialize};

use super::commands::{self, CommandRefusal, Commands, bad, store_failed};

/// The most rows in one command, and in one listing.
const ROWS_MAX: usize = 10_000;
/// The shortest time between two refreshes.
pub const EVERY_MIN: Duration = Duration::from_millis(100);
/// The longest time between two refreshes.
pub const EVERY_MAX: Duration = Duration::from_secs(365 * 86_400);
/// Rows scheduled concurrently.
const SIDE_BY_SIDE: usize = 64;

/// Rows to schedule or to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowsRequest {
    /// The source.
    pub name: String,
    /// Their ids.
    pub rows: Vec<String>,
    /// Seconds between two refreshes; `None`: as configured.
    pub every: Option<f64>,
}

/// The rows that are scheduled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// The earliest due first.
    pub rows: Vec<ListedRow>,
    /// Whether there are more than are listed.
    pub more: bool,
}

/// A row that is scheduled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedRow {
    /// Its source.
    pub name: String,
    /// Its id.
    pub row: String,
    /// Seconds between two refreshes; 0 or less: about to be removed.
    pub every: f64,
    /// The Unix time at which it is due.
    pub due: f64,
    /// The Unix time of its last good fetch.
    pub refreshed: Option<f64>,
    /// By how many seconds its content is older than its interval, or a first fetch is overdue.
    #[serde(default)]
    pub late: f64,
    /// How often it failed in the answering process since it was last fetched there.
    #[serde(default)]
    pub failures: u32,
    /// Why it failed at last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The refresh interval in a command.
fn every_of(seconds: f64) -> Result<Duration, CommandRefusal> {
    let given = Duration::try_from_secs_f64(seconds).ok();
    given
        .filter(|every| (EVERY_MIN..=EVERY_MAX).contains(every))
        .ok_or_else(|| bad(&"the time between two refreshes must be from 100 ms to 365 days"))
}

/// By how many seconds a row's content is older than its interval, or its first fetch is overdue.
fn late(scheduled: &ScheduledRow, now: f64) -> f64 {
    let expected =
        scheduled.refreshed.map_or(scheduled.due, |refreshed| refreshed + scheduled.delay);
    (now - expected).max(0.0)
}

impl Commands {
    pub(super) async fn change_rows(&self, body: &[u8], stops: bool) -> Result<(), CommandRefusal> {
        let command: RowsRequest = commands::read(body)?;
        if command.rows.len() > ROWS_MAX {
            return Err(bad(&format!("at most {ROWS_MAX} rows at once")));
        }
        let Some(place) = self.names.source_index(&command.name) else {
            return Err(bad(&format!("there is no [[rows]] with the name {:?}", command.name)));
        };
        let rows = command.rows.iter().map(|id| {
            let row = self.names.row(&command.name, id);
            row.ok_or_else(|| bad(&format!("{id:?} cannot be a row of {:?}", command.name)))
        });
        let rows = rows.collect::<Result<Vec<Row>, _>>()?;
        let given = command.every.map(every_of).transpose()?;
        let every = given.or_else(|| self.every.get(place).copied()).filter(|_| !stops);
        let schedule = async |row: &Row| {
            let mut done = schedule_row_cache(&self.store, row, every, unix_now()).await;
            if done.is_ok() && stops {
                // The next claim removes it; requests no longer get it from now on.
                done = self.store.outdate_row(row, unix_now()).await;
            }
            self.rows.forget(row);
            done
        };
        for some in rows.chunks(SIDE_BY_SIDE) {
            let done = together(some.iter().map(schedule).collect()).await;
            done.into_iter().collect::<Result<(), _>>().map_err(|error| store_failed(&error))?;
        }
        Ok(())
    }

    pub(super) async fn list_rows(&self) -> Result<Listing, CommandRefusal> {
        let mut rows = self.store.rows(ROWS_MAX + 1).await.map_err(|error| store_failed(&error))?;
        let more = rows.len() > ROWS_MAX;
        rows.truncate(ROWS_MAX);
        let now = unix_now();
        let listed = rows.into_iter().map(|scheduled| {
            let (place, id) = self.names.split(&scheduled.row);
            let (failures, failure) = self.rows.failures.of(&scheduled.row).unzip();
            ListedRow {
                name: self.names.name(place).to_owned(),
                row: id.to_owned(),
                every: scheduled.delay,
                due: scheduled.due,
                refreshed: scheduled.refreshed,
                late: late(&scheduled, now),
                failures: failures.unwrap_or_default(),
                failure,
            }
        });
        Ok(Listing { rows: listed.collect(), more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_time_within_the_bounds_is_taken() {
        for seconds in [0.1, 2.5, 365.0 * 86_400.0] {
            assert_eq!(every_of(seconds).unwrap().as_secs_f64(), seconds);
        }
        let year = 366.0 * 86_400.0;
        for seconds in [0.0, -1.0, 0.099, year, 1e300, f64::NAN, f64::INFINITY] {
            let (_, why) = every_of(seconds).unwrap_err();
            assert!(why.contains("100 ms to 365 days"), "{seconds}");
        }
    }
}
