//! What the proxies on one store know of each other: what each says about itself, and how they differ.
//!
//! Each proxy writes an entry every few seconds; the store adds its own time, and forgets a proxy that stopped to
//! write. No request depends on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anteroom_http::clock::{self, system_now};
use anteroom_http::ident::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{FleetRegister, FleetStore, RegisteredProxy};
use crate::{Generation, StoreError, Switch};

/// For how long a proxy that no longer writes is in the register.
const LIVES: Duration = Duration::from_secs(60);

/// What a proxy says about itself. Of another version's entry, unknown fields are passed over, and missing ones are
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyEntry {
    /// The name of its machine.
    pub host: String,
    /// The version that runs.
    pub version: String,
    /// The Unix time of its start.
    pub since: f64,
    /// The Unix time of its machine when it wrote this.
    pub at: f64,
    /// Hashes of the settings that all proxies on a store must have alike.
    pub alike: BTreeMap<String, String>,
    /// Hashes of the tables of its configuration.
    pub tables: BTreeMap<String, String>,
    /// What it says of a move to another store, see [`Switch::answer`].
    pub moving: String,
}

impl ProxyEntry {
    /// One hash of the whole configuration, for people.
    fn config(&self) -> String {
        let tables: Vec<&str> = self.tables.values().map(String::as_str).collect();
        hex(&Sha256::digest(tables.join(" "))[..6])
    }
}

/// The names of settings with another hash. What only one of two versions knows is not compared.
fn differing(own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let differs =
        |(name, hash): &(&String, &String)| other.get(*name).is_some_and(|it| it != *hash);
    own.iter().filter(differs).map(|(name, _)| name.clone()).collect()
}

/// The proxies on the store, as one of them sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetReport {
    /// The proxies, in the order of host and id.
    pub proxies: Vec<ListedProxy>,
    /// Whether the store also has keys of the other layout, which no proxy here reads.
    pub other_layout: bool,
    /// The prefixes of proxies that use the same Redis under another one, if they were looked for.
    #[serde(default)]
    pub other_prefixes: Vec<String>,
    /// The state of a move to another store, as it is written.
    pub moving: Option<String>,
}

/// A proxy on the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedProxy {
    /// Its id, for as long as the process runs.
    pub id: String,
    /// Whether it is the proxy that answers.
    pub own: bool,
    /// The name of its machine.
    pub host: String,
    /// Its version.
    pub version: String,
    /// A hash of its configuration.
    pub config: String,
    /// Settings that differ from those of the proxy that answers, and must not.
    pub must_match: Vec<String>,
    /// Tables of the configuration that differ.
    pub differs: Vec<String>,
    /// The Unix time of its start, by its own clock.
    pub since: f64,
    /// Seconds since it wrote its entry.
    pub age: f64,
    /// How many purges it had not seen yet when it last asked; `null` if unknown.
    pub purges_behind: Option<u64>,
    /// By how many seconds the clock of its machine is ahead of that of the store.
    pub clock: f64,
    /// What it says of a move to another store.
    pub moving: String,
}

impl ListedProxy {
    /// Whether the clock of its machine and that of the store differ by a mistake.
    #[must_use]
    pub fn has_another_time(&self) -> bool {
        self.clock.abs() > clock::FAR
    }
}

impl FleetReport {
    fn of(register: &FleetRegister, process_id: u64, own: &ProxyEntry, other_layout: bool) -> Self {
        let read = |proxy: &RegisteredProxy| {
            let entry: ProxyEntry = serde_json::from_str(&proxy.entry).ok()?;
            Some(ListedProxy {
                id: format!("{:016x}", proxy.process_id),
                own: proxy.process_id == process_id,
                config: entry.config(),
                must_match: differing(&own.alike, &entry.alike),
                differs: differing(&own.tables, &entry.tables),
                since: entry.since,
                age: (register.now - proxy.written).max(0.0),
                purges_behind: behind(register.purges, proxy.seen),
                clock: entry.at - proxy.written,
                host: entry.host,
                version: entry.version,
                moving: entry.moving,
            })
        };
        let mut proxies: Vec<_> = register.proxies.iter().filter_map(read).collect();
        proxies.sort_by(|one, other| (&one.host, &one.id).cmp(&(&other.host, &other.id)));
        let (other_prefixes, moving) = (Vec::new(), register.moving.clone());
        Self { proxies, other_layout, other_prefixes, moving }
    }

    /// The proxies that differ in what must be alike.
    pub fn mismatched(&self) -> impl Iterator<Item = &ListedProxy> {
        self.proxies.iter().filter(|proxy| !proxy.must_match.is_empty())
    }

    /// The proxies on machines whose clock is wrong, or the store's is.
    pub fn with_another_time(&self) -> impl Iterator<Item = &ListedProxy> {
        self.proxies.iter().filter(|proxy| proxy.has_another_time())
    }
}

/// How many purges a proxy has not seen.
fn behind(purges: Generation, seen: Option<Generation>) -> Option<u64> {
    let seen = seen.filter(|seen| seen.era == purges.era)?;
    Some(purges.number.saturating_sub(seen.number))
}

/// What this process knows of its fleet.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Its part in a move to another store.
    pub switch: Arc<Switch>,
    /// What this process has said of a move. One look at a time, so that what is heard of a move is heard in order.
    said: tokio::sync::Mutex<String>,
    proxies: AtomicU64,
    mismatched: AtomicU64,
    logged: Mutex<LoggedDifferences>,
}

/// What the log has said, so that it says it once.
#[derive(Debug, Default)]
struct LoggedDifferences {
    /// The settings in which each proxy differs, by its id.
    mismatches: BTreeMap<String, Vec<String>>,
    other_layout: bool,
}

impl Fleet {
    /// Of a process with this part in a move.
    #[must_use]
    pub fn new(switch: Arc<Switch>) -> Self {
        Self { switch, ..Self::default() }
    }

    /// How many proxies there were at the last look.
    pub fn proxies(&self) -> u64 {
        self.proxies.load(Ordering::Relaxed)
    }

    /// How many of them differ in what must be alike.
    pub fn mismatched(&self) -> u64 {
        self.mismatched.load(Ordering::Relaxed)
    }

    /// Writes this process's entry, and reads those of the others.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn look<S: FleetStore>(
        &self,
        store: &S,
        process_id: u64,
        own: &ProxyEntry,
    ) -> Result<FleetReport, StoreError> {
        let mut said = self.said.lock().await;
        let moving = self.switch.answer().text();
        let entry = ProxyEntry { at: system_now(), moving: moving.clone(), ..own.clone() };
        let text =
            serde_json::to_string(&entry).map_err(|error| StoreError::Failed(error.into()))?;
        let (asked, question) = (Instant::now(), clock::ask());
        let register = store.register_proxy(process_id, &text, LIVES).await;
        match &register {
            Ok(register) => clock::hear(question, register.clock),
            // A store without room: its sessions must go all the same.
            Err(error) if error.is_refusal() => clock::hear(question, None),
            Err(_) => {}
        }
        let register = register?;
        *said = moving;
        self.switch.hear(register.moving.as_deref(), asked).await;
        let report = FleetReport::of(&register, process_id, own, store.has_other_layout().await?);
        self.proxies.store(report.proxies.len() as u64, Ordering::Relaxed);
        self.mismatched.store(report.mismatched().count() as u64, Ordering::Relaxed);
        Ok(report)
    }

    /// Reads the state of a move, which costs less than a look. Returns whether the register has what this process says
    /// of it.
    ///
    /// # Errors
    /// If the store has no answer.
    pub async fn follow<S: FleetStore>(&self, store: &S) -> Result<bool, StoreError> {
        let said = self.said.lock().await;
        let asked = Instant::now();
        let state = store.move_state().await?;
        self.switch.hear(state.as_deref(), asked).await;
        Ok(*said == self.switch.answer().text())
    }

    /// Logs what is new in a report.
    pub fn log_changes(&self, report: &FleetReport) {
        let (changed, is_new_layout) = self.changes(report);
        for proxy in changed {
            tracing::warn!(
                proxy = %proxy.id,
                host = ?proxy.host,
                settings = %proxy.must_match.join(", "),
                "another proxy on the same store differs in settings that all must have alike"
            );
        }
        if is_new_layout {
            tracing::warn!(
                "the store also has keys of the other layout: what is under them is not seen here. Give all proxies \
                 the same [store] layout"
            );
        }
    }

    /// The proxies whose differences are new, and whether another layout is.
    fn changes<'a>(&self, report: &'a FleetReport) -> (Vec<&'a ListedProxy>, bool) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = report.mismatched().filter(|proxy| {
            logged.mismatches.get(&proxy.id).is_none_or(|before| *before != proxy.must_match)
        });
        let changed = changed.collect();
        let mismatches = report.mismatched();
        logged.mismatches =
            mismatches.map(|proxy| (proxy.id.clone(), proxy.must_match.clone())).collect();
        let is_new_layout = report.other_layout && !logged.other_layout;
        logged.other_layout = report.other_layout;
        (changed, is_new_layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect()
    }

    fn own() -> ProxyEntry {
        ProxyEntry {
            alike: hashes(&[("rows", "1"), ("session.cookie", "2")]),
            tables: hashes(&[("cache", "3")]),
            ..ProxyEntry::default()
        }
    }

    fn register(entries: &[&str]) -> FleetRegister {
        let proxy = |(process_id, entry): (u64, &&str)| RegisteredProxy {
            process_id,
            written: 1_000.0,
            seen: Some(Generation { era: 7, number: 2 }),
            entry: (*entry).to_owned(),
        };
        FleetRegister {
            now: 1_004.0,
            clock: Some(1_004.0),
            purges: Generation { era: 7, number: 5 },
            moving: None,
            proxies: (1..).zip(entries).map(proxy).collect(),
        }
    }

    fn report(entries: &[&str]) -> FleetReport {
        FleetReport::of(&register(entries), 1, &own(), false)
    }

    #[test]
    fn a_clock_is_compared_with_that_of_the_store() {
        let report = report(&[r#"{"at": 1002.5}"#, r#"{"at": 400}"#]);
        let seen: Vec<_> = report.proxies.iter().map(|it| (it.own, it.clock, it.age)).collect();
        assert_eq!(seen, [(true, 2.5, 4.0), (false, -600.0, 4.0)]);
    }

    #[test]
    fn purges_that_a_proxy_has_not_seen_are_counted() {
        let purges = Generation { era: 7, number: 5 };
        let at = |era, number| behind(purges, Some(Generation { era, number }));
        assert_eq!([at(7, 2), at(7, 5), at(6, 5)], [Some(3), Some(0), None]);
        assert_eq!(behind(purges, None), None);
    }

    #[test]
    fn an_entry_of_another_version_is_read_and_what_only_one_knows_is_not_compared() {
        let report = report(&[
            r#"{"host": "a", "alike": {"rows": "1", "new": "9"}, "added": [1, {"x": null}]}"#,
            r#"{"host": "b", "alike": {"rows": "8"}, "tables": {"cache": "9"}}"#,
            "no JSON",
        ]);
        let found = report.proxies.iter().map(|it| (it.host.as_str(), it.must_match.concat()));
        assert_eq!(found.collect::<Vec<_>>(), [("a", String::new()), ("b", "rows".to_owned())]);
        assert_eq!(report.proxies[1].differs, ["cache"]);
    }

    #[test]
    fn a_difference_is_told_once_and_again_when_it_changes() {
        let fleet = Fleet::default();
        let told = |entries: &[&str]| fleet.changes(&report(entries)).0.len();
        let (rows, cookie) =
            (r#"{"alike": {"rows": "8"}}"#, r#"{"alike": {"session.cookie": "8"}}"#);
        assert_eq!([told(&["{}", rows]), told(&["{}", rows])], [1, 0]);
        assert_eq!([told(&["{}", cookie]), told(&["{}", "{}"]), told(&["{}", cookie])], [1, 0, 1]);
    }
}
