//! Lines that say what others in their section say already, as one line. Nothing is lost: a section is written in
//! shorthand only where reading it gives all of its lines back.

use std::sync::LazyLock;

use regex::Regex;

/// Lines that stand together in most sections, in this order; of two that begin alike, the longer sequence first.
const SEQUENCES: [(&str, &[&str]); 3] = [
    (
        "origin: (an unknown visitor's request as usual)",
        &[
            "origin: user-agent: <agent>",
            "origin: x-anteroom-session: none",
            "origin: host: shop.test",
            "origin: (forwarded as usual)",
            "origin: via: <version> anteroom",
            "origin: cdn-loop: anteroom;id=<mark>",
            "origin: traceparent: <trace>",
        ],
    ),
    (
        "origin: (passed on as usual)",
        &[
            "origin: host: shop.test",
            "origin: (forwarded as usual)",
            "origin: via: <version> anteroom",
            "origin: cdn-loop: anteroom;id=<mark>",
            "origin: traceparent: <trace>",
        ],
    ),
    ("log: and counters as over HTTP/1.1", &["log: as over HTTP/1.1", "count: as over HTTP/1.1"]),
];
/// Stands for the counters that follow from the one line of the access log.
const AS_LOGGED: &str = "count: (as logged)";

/// The lines of a section in shorthand.
pub(super) fn short(lines: &[String]) -> Vec<String> {
    let short = with_sequences(&with_counters_left_out(lines));
    if long(&short) == lines { short } else { lines.to_vec() }
}

/// All lines of a section that is in shorthand, or is not.
pub(super) fn long(lines: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match SEQUENCES.iter().find(|(word, _)| word == line) {
            Some((_, sequence)) => all.extend(sequence.iter().map(|&one| one.to_owned())),
            None => all.push(line.clone()),
        }
    }
    let Some(at) = all.iter().position(|line| line == AS_LOGGED) else { return all };
    let mut counters = all.split_off(at);
    counters.remove(0);
    counters.extend(implied(&all).unwrap_or_default());
    counters.sort_unstable();
    [all, counters].concat()
}

fn with_sequences(lines: &[String]) -> Vec<String> {
    let (mut short, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let found = SEQUENCES.iter().find(|(_, sequence)| {
            lines[at..].iter().map(String::as_str).take(sequence.len()).eq(sequence.iter().copied())
        });
        short.push(found.map_or_else(|| lines[at].clone(), |(word, _)| (*word).to_owned()));
        at += found.map_or(1, |(_, sequence)| sequence.len());
    }
    short
}

/// The lines with one line in the place of the counters that are implied, if all of these are there.
fn with_counters_left_out(lines: &[String]) -> Vec<String> {
    let Some(implied) = implied(lines) else { return lines.to_vec() };
    if !implied.iter().all(|counter| lines.contains(counter)) {
        return lines.to_vec();
    }
    let mut short = lines.to_vec();
    short.retain(|line| !implied.contains(line));
    let at = short.iter().position(|line| line.starts_with("count: ")).unwrap_or(short.len());
    short.insert(at, AS_LOGGED.to_owned());
    short
}

/// The counters that follow from a request's line of the access log: its result, its reason, the class of its status
/// and its bytes. `None` unless there is one such line.
fn implied(lines: &[String]) -> Option<Vec<String>> {
    static FIELD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?:^| )(bytes|cache|reason|status)=(\S+)").unwrap());
    let mut logged = lines.iter().filter_map(|line| line.strip_prefix("log: "));
    let (log, None) = (logged.next()?, logged.next()) else { return None };
    let value = |name: &str| {
        let mut fields = FIELD.captures_iter(log);
        fields.find(|found| &found[1] == name).map(|found| found[2].to_owned())
    };
    let (cache, status) = (value("cache")?, value("status")?);
    let mut counters = vec![
        format!("count: anteroom_cache_results_total{{result=\"{cache}\"}} +1"),
        format!("count: anteroom_requests_total{{status=\"{}xx\"}} +1", status.get(..1)?),
    ];
    counters
        .extend(value("reason").map(|reason| {
            format!("count: anteroom_cache_reasons_total{{reason=\"{reason}\"}} +1")
        }));
    let bytes = value("bytes").filter(|bytes| bytes != "0");
    counters.extend(bytes.map(|bytes| format!("count: anteroom_sent_bytes_total +{bytes}")));
    Some(counters)
}

#[test]
fn shorthand_is_read_as_what_it_was() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let whole = lines(
        "origin: GET /a HTTP/1.1\norigin: user-agent: <agent>\norigin: host: shop.test\n\
         origin: (forwarded as usual)\norigin: via: <version> anteroom\norigin: cdn-loop: anteroom;id=<mark>\n\
         origin: traceparent: <trace>\nclient: 200\n\
         log: bytes=6 cache=miss reason=miss route=default status=200\n\
         count: anteroom_cache_reasons_total{reason=\"miss\"} +1\n\
         count: anteroom_cache_results_total{result=\"miss\"} +1\n\
         count: anteroom_pages_stored_total +1\n\
         count: anteroom_requests_total{status=\"2xx\"} +1\n\
         count: anteroom_sent_bytes_total +6",
    );
    let expected = lines(
        "origin: GET /a HTTP/1.1\norigin: user-agent: <agent>\norigin: (passed on as usual)\nclient: 200\n\
         log: bytes=6 cache=miss reason=miss route=default status=200\ncount: (as logged)\n\
         count: anteroom_pages_stored_total +1",
    );
    assert_eq!(short(&whole), expected);
    assert_eq!(long(&expected), whole);
    // A counter that the log does not imply stays, and so do all where one is missing.
    let other = lines("log: bytes=6 cache=hit status=200\ncount: anteroom_sent_bytes_total +7");
    assert_eq!(short(&other), other);
    assert_eq!(long(&other), other);
}
