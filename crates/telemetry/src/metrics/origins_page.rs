//! What the metrics page shows of the origins' time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anteroom_policy::priority::RequestClass;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::NoLabels;
use super::histogram::seconds;
use crate::crowd::CLASSES;

/// Writes the seconds of each origin by class, once there are any.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    origins: &BTreeMap<Arc<str>, [u64; CLASSES]>,
) -> Result<(), std::fmt::Error> {
    let help = "Time of an origin's servers until their answers, by the class of the request";
    let kind = MetricType::Counter;
    let mut metric = encoder.encode_descriptor("anteroom_origin_seconds", help, None, kind)?;
    for (origin, micros) in origins {
        for (class, micros) in RequestClass::ALL.into_iter().zip(*micros) {
            let labels = [("origin", &**origin), ("class", class.as_str())];
            let mut one = metric.encode_family(&labels)?;
            one.encode_counter::<NoLabels, _, u64>(&seconds(micros), None)?;
        }
    }
    Ok(())
}
