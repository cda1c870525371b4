//! The text format of Prometheus before OpenMetrics (version 0.0.4), for readers that know no other.

use std::collections::HashSet;
use std::fmt::Write as _;

/// A page of OpenMetrics in that format: a counter has its full name in all lines, and no line marks the end.
pub(super) fn classic(page: &str) -> String {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let counters: HashSet<&str> = types.filter_map(|line| line.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != "# EOF") {
        // Writing to a string does not fail.
        let _ = match about(line) {
            Some((kind, name, rest)) if counters.contains(name) => {
                writeln!(text, "{kind}{name}_total {rest}")
            }
            _ => writeln!(text, "{line}"),
        };
    }
    text
}

/// What a comment says of which metric.
fn about(line: &str) -> Option<(&'static str, &str, &str)> {
    ["# HELP ", "# TYPE "].into_iter().find_map(|kind| {
        let (name, rest) = line.strip_prefix(kind)?.split_once(' ')?;
        Some((kind, name, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_full_names_and_other_lines_stay() {
        let page = "# HELP a_hits Hits\n# TYPE a_hits counter\na_hits_total{of=\"b\"} 1\n\
                    # HELP a_size Size\n# TYPE a_size gauge\na_size 2\n# EOF\n";
        let told = "# HELP a_hits_total Hits\n# TYPE a_hits_total counter\na_hits_total{of=\"b\"} 1\n\
                    # HELP a_size Size\n# TYPE a_size gauge\na_size 2\n";
        assert_eq!(classic(page), told);
    }
}
