//! What the metrics page shows of routes.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

use super::histogram::{BOUNDS, seconds};
use super::{NoLabels, Outcome, RouteTotals, Sample, family};
use crate::reason::Reason;

/// Writes the metrics of routes. Series of a route and a result or reason are there once it has occurred: most
/// never do.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[RouteTotals],
    may_occur: &dyn Fn(Reason) -> bool,
) -> Result<(), std::fmt::Error> {
    let results = Outcome::ALL.into_iter().map(|outcome| {
        let count = routes.iter().map(|route| route.of(outcome).count()).sum();
        (outcome.as_str().to_owned(), count)
    });
    let help = "Requests by how the cache answered them";
    family(encoder, "anteroom_cache_results", help, "result", results)?;
    let reasons = Reason::ALL.into_iter().enumerate().map(|(place, reason)| {
        (reason, routes.iter().map(|route| route.reasons[place]).sum::<u64>())
    });
    let reasons = reasons.filter(|(reason, count)| *count > 0 || may_occur(*reason));
    let reasons = reasons.map(|(reason, count)| (reason.as_str().to_owned(), count));
    let help = "Requests not answered from the cache, by reason";
    family(encoder, "anteroom_cache_reasons", help, "reason", reasons)?;
    route_reasons(encoder, routes)?;
    times(encoder, routes)?;
    origin_times(encoder, routes)?;
    saved(encoder, routes)
}

fn route_reasons(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[RouteTotals],
) -> Result<(), std::fmt::Error> {
    let help = "Requests of a route not answered from the cache, by reason";
    let kind = MetricType::Counter;
    let mut metric = encoder.encode_descriptor("anteroom_route_reasons", help, None, kind)?;
    for route in routes {
        for (reason, value) in route.top_reasons() {
            let labels = [("route", &*route.name), ("reason", reason.as_str())];
            Sample { kind, value }.encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn times(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[RouteTotals],
) -> Result<(), std::fmt::Error> {
    let help = "Time to answer requests, to the end of the body";
    let kind = MetricType::Histogram;
    let mut metric = encoder.encode_descriptor("anteroom_request_seconds", help, None, kind)?;
    for route in routes {
        for outcome in Outcome::ALL {
            let durations = route.of(outcome);
            if durations.count() > 0 {
                let labels = [("route", &*route.name), ("result", outcome.as_str())];
                let (counts, micros) = durations.parts();
                histogram(metric.encode_family(&labels)?, &BOUNDS, counts, micros)?;
            }
        }
    }
    Ok(())
}

fn origin_times(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[RouteTotals],
) -> Result<(), std::fmt::Error> {
    let help = "Time from the head of a request to the head of the origin's response";
    let kind = MetricType::Histogram;
    let name = "anteroom_origin_first_byte_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for route in routes.iter().filter(|route| route.origin.count() > 0) {
        let labels = [("route", &*route.name)];
        let (counts, micros) = route.origin.parts();
        histogram(metric.encode_family(&labels)?, &BOUNDS, counts, micros)?;
    }
    Ok(())
}

fn saved(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[RouteTotals],
) -> Result<(), std::fmt::Error> {
    let help =
        "Time of the origin that the hits saved, by the mean of its recent responses on the route";
    let kind = MetricType::Counter;
    let mut metric = encoder.encode_descriptor("anteroom_saved_seconds", help, None, kind)?;
    for route in routes {
        let labels = [("route", &*route.name)];
        let mut one = metric.encode_family(&labels)?;
        one.encode_counter::<NoLabels, _, u64>(&seconds(route.saved_micros), None)?;
    }
    let bytes = routes.iter().map(|route| (route.name.to_string(), route.saved_bytes));
    let help = "Bytes of bodies that were sent without asking the origin";
    family(encoder, "anteroom_saved_bytes", help, "route", bytes)
}

/// Writes one histogram: counts between bounds, and their sum in microseconds.
pub(super) fn histogram(
    mut metric: MetricEncoder<'_>,
    bounds: &[f64],
    counts: &[u64],
    micros: u64,
) -> Result<(), std::fmt::Error> {
    let bounds = bounds.iter().copied().chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
    let count = counts.iter().sum();
    metric.encode_histogram::<NoLabels>(seconds(micros), count, &buckets, None)
}
