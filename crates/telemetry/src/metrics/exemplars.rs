//! Exemplars: for each bucket of the times of requests, the trace of a recent one in it.
//!
//! `prometheus_client` lets no one else make an exemplar, so that they are added to its text.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::Outcome;
use super::histogram::{BOUNDS, bucket};

/// The histogram that has exemplars.
pub(super) const OF: &str = "anteroom_request_seconds";

/// A request with a trace.
#[derive(Clone, Debug)]
pub(super) struct Exemplar {
    /// The name under which the route is counted.
    pub(super) route: Arc<str>,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    /// When it arrived, in Unix time.
    pub(super) at: f64,
    pub(super) trace: u128,
}

/// The last request with a trace of each result and bucket, on one thread.
#[derive(Debug, Default)]
pub(super) struct Exemplars(HashMap<(Outcome, usize), Exemplar>);

impl Exemplars {
    /// Replaces that of the same result and bucket.
    pub(super) fn note(&mut self, exemplar: Exemplar) {
        self.0.insert((exemplar.outcome, bucket(exemplar.took)), exemplar);
    }
}

/// The exemplars of all threads, the newest of each series, by what stands before the count in its line.
pub(super) fn newest(
    threads: impl Iterator<Item = impl Deref<Target = Exemplars>>,
) -> HashMap<String, Exemplar> {
    let mut newest = HashMap::<String, Exemplar>::new();
    for exemplars in threads {
        for ((_, place), exemplar) in &exemplars.0 {
            let series = series(exemplar, *place);
            if newest.get(&series).is_none_or(|other| other.at < exemplar.at) {
                newest.insert(series, exemplar.clone());
            }
        }
    }
    newest
}

fn series(exemplar: &Exemplar, place: usize) -> String {
    let top = BOUNDS.get(place).map_or_else(|| "+Inf".to_owned(), |top| format!("{top:?}"));
    let route = exemplar.route.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!(
        "{OF}_bucket{{le=\"{top}\",route=\"{route}\",result=\"{}\"}}",
        exemplar.outcome.as_str()
    )
}

/// Adds exemplars to a page of OpenMetrics.
pub(super) fn add(page: String, exemplars: &HashMap<String, Exemplar>) -> String {
    if exemplars.is_empty() {
        return page;
    }
    let mut text = String::with_capacity(page.len() + exemplars.len() * 80);
    for line in page.lines() {
        text.push_str(line);
        let series = line.rsplit_once(' ').filter(|_| line.starts_with(OF));
        if let Some(exemplar) = series.and_then(|(series, _)| exemplars.get(series)) {
            let Exemplar { took, at, trace, .. } = exemplar;
            let seconds = took.as_secs_f64();
            // Writing to a string does not fail.
            let _ = write!(text, " # {{trace_id=\"{trace:032x}\"}} {seconds} {at:.3}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::histogram::BUCKETS;
    use crate::metrics::{AnsweredRequest, Metrics, RequestCounters};

    #[test]
    fn a_bucket_shows_the_newest_trace_in_it() {
        let metrics = Arc::new(Metrics::default());
        let name: Arc<str> = "a \"b\" \\".into();
        for (trace, at) in [(7, 2.0), (8, 1.0)] {
            let thread = metrics.thread_metrics();
            let counters = RequestCounters::new(&thread, [Arc::clone(&name)].iter());
            for took in [1, 30_000] {
                let took = Duration::from_millis(took);
                let outcome = Outcome::Miss;
                let answered = AnsweredRequest {
                    status: 200,
                    outcome,
                    reason: None,
                    at,
                    took,
                    origin: None,
                    sent: 0,
                };
                counters.answered(Some(0), &answered);
                counters.traced(Some(0), outcome, took, at, trace);
            }
        }
        let page = metrics.page().unwrap();
        let lines: Vec<_> = page.lines().filter(|line| line.contains(" # {")).collect();
        let id = format!("{:032x}", 7);
        assert_eq!(lines.len(), 2, "{page}");
        assert!(
            lines[0].ends_with(&format!(" 2 # {{trace_id=\"{id}\"}} 0.001 2.000")),
            "{lines:?}"
        );
        assert!(lines[1].ends_with(&format!(" 4 # {{trace_id=\"{id}\"}} 30 2.000")), "{lines:?}");
        assert!(!metrics.classic_page().unwrap().contains("trace_id"));
    }

    #[test]
    fn there_is_one_of_each_result_and_bucket() {
        let mut exemplars = Exemplars::default();
        for n in 0..100_000_u64 {
            exemplars.note(Exemplar {
                route: format!("/{n}").into(),
                outcome: Outcome::ALL[n as usize % Outcome::ALL.len()],
                took: Duration::from_micros(n * 137),
                at: 0.0,
                trace: 1,
            });
        }
        assert!(exemplars.0.len() <= Outcome::ALL.len() * BUCKETS);
    }
}
