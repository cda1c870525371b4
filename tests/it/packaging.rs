//! What the packages hold beside the binary, against the binary.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::root;

const RULES: &str = include_str!("../../packaging/prometheus/anteroom.rules.yml");
const GRAFANA: &str = include_str!("../../packaging/grafana/anteroom.json");

fn packaged(file: &str) -> std::path::PathBuf {
    root().join("packaging").join(file)
}

#[test]
fn the_configuration_of_the_service_is_valid() {
    let file = packaged("proxy.toml");
    let output = anteroom().args(["check", "--config"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn alerts_and_panels_name_metrics_that_there_are() {
    let origin = Origin::always(Reply::unstored("hello"));
    let page = Proxy::embedded(&origin, "").admin("/metrics").send().text();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exposed: Vec<String> = types
        .flat_map(|line| match line.split_once(' ').expect("a name and its type") {
            (name, "counter") => vec![format!("{name}_total")],
            (name, "histogram") => vec![format!("{name}_bucket"), format!("{name}_count")],
            (name, _) => vec![name.to_owned()],
        })
        .collect();
    let texts = [RULES, GRAFANA].into_iter();
    let words = texts.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let used: Vec<&str> = words
        .filter(|word| ["anteroom_", "process_"].iter().any(|it| word.starts_with(it)))
        .collect();
    assert!(used.len() > 20, "{used:?}");
    for name in used {
        assert!(exposed.iter().any(|one| one == name), "{name} is not in /metrics");
    }
}
