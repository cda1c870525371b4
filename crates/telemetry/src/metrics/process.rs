//! The metrics of the process itself, under the names that all exporters use: `process_*`.
//!
//! They are read from `/proc/self` at a scrape. What cannot be read is left out.

use std::fs;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::NoLabels;

/// A metric of the process.
struct Figure {
    kind: MetricType,
    value: f64,
}

impl EncodeMetric for Figure {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self.kind {
            MetricType::Gauge => encoder.encode_gauge(&self.value),
            _ => encoder.encode_counter::<NoLabels, _, f64>(&self.value, None),
        }
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

/// Writes the metrics of a process that began at `started_at`.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    started_at: f64,
) -> Result<(), std::fmt::Error> {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(ProcessStat::parse).unwrap_or_default();
    let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
    let start = "When the process began, in seconds since 1970";
    for (name, help, kind, value) in [
        ("process_cpu_seconds", "CPU time of the process, user and system", counter, stat.cpu),
        ("process_resident_memory_bytes", "Memory that is resident", gauge, stat.resident),
        ("process_virtual_memory_bytes", "Address space", gauge, stat.address_space),
        ("process_threads", "Threads of the process", gauge, stat.threads),
        ("process_open_fds", "Open files", gauge, open_files()),
        ("process_max_fds", "The limit of open files", gauge, most_files()),
        ("process_start_time_seconds", start, gauge, Some(started_at)),
    ] {
        if let Some(value) = value {
            let metric = encoder.encode_descriptor(name, help, None, kind)?;
            Figure { kind, value }.encode(metric)?;
        }
    }
    Ok(())
}

/// Memory of the process that is resident, in bytes, if the system tells.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of memory")]
pub fn resident_bytes() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    ProcessStat::parse(&stat)?.resident.map(|bytes| bytes as u64)
}

/// What `/proc/self/stat` says: seconds and bytes.
#[derive(Debug, Default, PartialEq)]
struct ProcessStat {
    cpu: Option<f64>,
    threads: Option<f64>,
    address_space: Option<f64>,
    resident: Option<f64>,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the name in parentheses, which may hold spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Counted as in proc(5), where the field behind the name is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        #[expect(clippy::cast_precision_loss, reason = "a hundred a second, and a few KiB")]
        let (ticks, page) = (clock_ticks_per_second() as f64, page_size() as f64);
        let cpu = field(14).zip(field(15)).map(|(user, system)| (user + system) / ticks);
        let resident = field(24).map(|pages| pages * page);
        Some(Self { cpu, threads: field(20), address_space: field(23), resident })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of files")]
fn open_files() -> Option<f64> {
    let folder = "/proc/self/fd";
    // PERF: since Linux 6.2 the folder's size is their number. To list a hundred thousand takes long.
    let size = fs::metadata(folder).ok()?.len();
    if size > 0 {
        return Some(size as f64);
    }
    // The listing itself takes one.
    let listed = fs::read_dir(folder).ok()?.count();
    Some(listed.saturating_sub(1) as f64)
}

#[expect(clippy::cast_precision_loss, reason = "a number of files")]
fn most_files() -> Option<f64> {
    getrlimit(Resource::Nofile).current.map(|limit| limit as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_is_no_field() {
        let line =
            "7 (a) b (c) S 1 7 7 0 -1 4194560 900 0 3 0 150 50 0 0 20 0 5 0 900 4096000 25 1 2";
        let (ticks, page) = (clock_ticks_per_second() as f64, page_size() as f64);
        let stat = ProcessStat {
            cpu: Some(200.0 / ticks),
            threads: Some(5.0),
            address_space: Some(4_096_000.0),
            resident: Some(25.0 * page),
        };
        assert_eq!(ProcessStat::parse(line), Some(stat));
    }

    #[test]
    fn a_line_that_is_cut_off_gives_what_it_has() {
        for line in ["", "7 (a", "7 (a)", "7 (a) S 1 x"] {
            assert!(ProcessStat::parse(line).unwrap_or_default() == ProcessStat::default());
        }
        let line = "7 (a) S 1 7 7 0 -1 0 0 0 0 0 150 50";
        let stat = ProcessStat::parse(line).unwrap();
        assert!(stat.cpu.is_some() && stat.threads.is_none());
    }

    #[test]
    fn open_files_are_counted() {
        let before = open_files().unwrap();
        let some: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        // Other tests open and close files meanwhile.
        assert!(open_files().unwrap() > before);
        assert!(most_files().unwrap() > some.len() as f64);
    }
}
