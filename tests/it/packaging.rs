//! What the packages hold beside the binary, against the binary.

use std::path::Path;
use std::process::Command;

use anteroom::admin::Outcome;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{ANTEROOM, Proxy};

const RULES: &str = include_str!("../../packaging/prometheus/anteroom.rules.yml");
const GUIDE: &str = include_str!("../../docs/guides/monitoring.md");
const GRAFANA: &str = include_str!("../../packaging/grafana/anteroom.json");

fn packaged(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(file)
}

#[test]
fn the_configuration_of_the_service_is_valid() {
    let file = packaged("proxy.toml");
    let output = Command::new(ANTEROOM).args(["check", "--config"]).arg(file).output().unwrap();
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

/// The results that an expression of Prometheus matches.
fn matched(expression: &str) -> Vec<Outcome> {
    let is_matched = |outcome: &Outcome| {
        expression.split('|').any(|one| match one.strip_suffix(".*") {
            Some(start) => outcome.as_str().starts_with(start),
            None => outcome.as_str() == one,
        })
    };
    Outcome::ALL.into_iter().filter(is_matched).collect()
}

#[test]
fn alerts_and_panels_count_as_a_hit_what_the_proxy_counts() {
    let of = |is: fn(Outcome) -> bool| Outcome::ALL.into_iter().filter(|it| is(*it)).collect();
    let hits: Vec<_> = of(Outcome::is_hit);
    let pages: Vec<_> = of(Outcome::is_of_page);
    for (name, text) in [("rules", RULES), ("dashboard", GRAFANA), ("guide", GUIDE)] {
        let text = text.replace('\\', "");
        let counted: Vec<_> = text
            .split("result=~\"")
            .skip(1)
            .map(|rest| matched(rest.split('"').next().unwrap()))
            .collect();
        assert!(!counted.is_empty(), "{name}");
        for share in counted.chunks(2) {
            assert!([&hits, &vec![Outcome::Revalidated]].contains(&&share[0]), "{name}: {share:?}");
            assert_eq!(share.get(1), Some(&pages), "{name}");
        }
    }
}
