//! What `anteroom top` shows, as lines of text.

use std::borrow::Cow;
use std::cmp::Ordering;

use anteroom::admin::{ListedBypass, ListedMiss};

use super::rates::{Rates, RouteRates, Speed};
use crate::cli::output::{counted, printable};

/// The narrowest screen that has room for all columns.
const WIDTH_MIN: usize = 60;
/// Above the URLs.
const URL_HEAD: &str = "URL (since the start)";
/// What a column shows that has no figure.
const NONE: &str = "-";

/// What routes are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortKey {
    #[default]
    Requests,
    Hits,
    Origin,
    LastHit,
    Name,
}

impl SortKey {
    /// The key after this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Requests => Self::Hits,
            Self::Hits => Self::Origin,
            Self::Origin => Self::LastHit,
            Self::LastHit => Self::Name,
            Self::Name => Self::Requests,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Hits => "hits",
            Self::Origin => "origin",
            Self::LastHit => "last hit",
            Self::Name => "name",
        }
    }
}

/// The figures, and how they are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// The figures of the latest second; `None` before the second reading.
    pub(super) rates: Option<Rates>,
    /// The most missed URLs, if they are shown instead of routes.
    pub(super) misses: Option<Vec<ListedMiss>>,
    pub(super) sort: SortKey,
    pub(super) is_reversed: bool,
    pub(super) is_paused: bool,
    /// Whether the keys are explained.
    pub(super) has_help: bool,
    /// Why there are no newer figures.
    pub(super) trouble: Option<String>,
}

impl View {
    /// The lines of a screen, each at most `width` long.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let mut lines = match &self.rates {
            _ if width < WIDTH_MIN => vec![format!("{WIDTH_MIN} columns are needed")],
            None => vec!["anteroom: the first second".to_owned()],
            Some(rates) => self.all(rates, width),
        };
        if self.has_help {
            lines.splice(1.min(lines.len())..1.min(lines.len()), help());
        }
        lines.truncate(height);
        lines.iter_mut().for_each(|line| cut(line, width));
        lines
    }

    fn all(&self, rates: &Rates, width: usize) -> Vec<String> {
        let mut lines = vec![self.title(rates)];
        lines.extend(mode(&rates.mode).map(str::to_owned));
        lines.extend(rates.bypasses.iter().map(|bypass| bypassed(bypass, rates.at)));
        lines.extend(figures(rates));
        lines.push(String::new());
        lines.push(row("result", ["requests/s", "p50", "p99"]));
        let speeds = rates.results.iter();
        lines.extend(speeds.map(|(name, speed)| times(name, speed, rates.longest_ms)));
        lines.push(String::new());
        match &self.misses {
            Some(misses) => lines.extend(missed(misses, rates.at, width)),
            None => lines.extend(self.routes(rates, width)),
        }
        lines
    }

    fn title(&self, rates: &Rates) -> String {
        let mut title =
            format!("anteroom {}  up {}", printable(&rates.version), age(rates.up_seconds));
        if self.is_paused {
            title += "  paused";
        }
        if let Some(trouble) = &self.trouble {
            title += &format!("  {}", printable(trouble));
        }
        title
    }

    fn routes(&self, rates: &Rates, width: usize) -> Vec<String> {
        let mut routes: Vec<&RouteRates> = rates.routes.iter().collect();
        routes.sort_by(|one, other| self.order(one, other));
        if self.is_reversed {
            routes.reverse();
        }
        let name_width = width.saturating_sub(47).clamp(12, 40);
        let line = |name: &str, [requests, hits, origin, last]: [&str; 4], reason: &str| {
            let mut name = name.to_owned();
            cut(&mut name, name_width);
            format!("{name:<name_width$} {requests:>10} {hits:>6} {origin:>8} {last:>8}  {reason}")
        };
        let order = if self.is_reversed { ", the other way round" } else { "" };
        let title = format!("routes by {}{order}", self.sort.as_str());
        let head = line("route", ["requests/s", "hits", "origin", "last hit"], "reason");
        let shown = routes.into_iter().map(|route| {
            let last = route.last_hit.map_or_else(|| NONE.to_owned(), |at| age(rates.at - at));
            let figures = [
                &*format!("{:.1}", route.requests_per_second),
                &*percent(route.hit_share),
                &*millis(route.origin_ms, f64::MAX),
                &*last,
            ];
            line(&printable(&route.name), figures, route.reason.as_deref().unwrap_or(NONE))
        });
        [title, head].into_iter().chain(shown).collect()
    }

    /// The greatest first, and names in order. What has no figure comes last.
    fn order(&self, one: &RouteRates, other: &RouteRates) -> Ordering {
        let greater = |figure: fn(&RouteRates) -> Option<f64>| {
            let [one, other] = [one, other].map(|route| figure(route).unwrap_or(f64::MIN));
            other.total_cmp(&one)
        };
        let by_key = match self.sort {
            SortKey::Requests => greater(|route| Some(route.requests_per_second)),
            SortKey::Hits => greater(|route| route.hit_share),
            SortKey::Origin => greater(|route| route.origin_ms),
            SortKey::LastHit => greater(|route| route.last_hit),
            SortKey::Name => Ordering::Equal,
        };
        by_key.then_with(|| one.name.cmp(&other.name))
    }
}

fn help() -> Vec<String> {
    [
        "  q  ends                      p  pauses, and goes on",
        "  s  sorts by the next column  r  turns the order round",
        "  m  missed URLs, or routes    ?  this help",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Why fewer requests hit than could, where that is by the configuration.
fn mode(mode: &str) -> Option<&'static str> {
    match mode {
        "learn" => {
            Some("mode         learn: each request is forwarded; see `anteroom learn report`")
        }
        "mixed" => Some(
            "mode         some routes learn: their requests are forwarded; see `anteroom learn report`",
        ),
        "mirror" => Some(
            "mode         mirror: requests are counted, not forwarded; see `anteroom learn report`",
        ),
        _ => None,
    }
}

/// The same, where it is by order of an operator.
fn bypassed(bypass: &ListedBypass, now: f64) -> String {
    let routes = bypass
        .route
        .as_deref()
        .map_or_else(|| "all routes".to_owned(), |name| format!("route {}", printable(name)));
    let (left, by) = (age(bypass.until - now), printable(&bypass.by));
    format!("bypass       {routes} for another {left}, by {by}")
}

/// The figures of the whole proxy.
fn figures(rates: &Rates) -> Vec<String> {
    let Rates { origin, store, connections, memory, longest_ms, .. } = rates;
    let statuses = rates.statuses.iter();
    let statuses = statuses.map(|(class, rate)| format!("{} {rate:.1}/s", printable(class)));
    let threads = connections.per_thread.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let breaker = if store.breaker_opened { "opened just now" } else { "opened" };
    vec![
        format!(
            "requests     {:.1}/s  hits {}  origin time saved {:.2} s/s  revalidated {}",
            rates.requests_per_second,
            percent(rates.hit_share),
            rates.origin_seconds_saved_per_second,
            percent(rates.revalidated_share),
        ),
        format!("statuses     {}", statuses.collect::<Vec<_>>().join("  ")),
        format!(
            "origin       {}  errors {:.1}/s",
            speed(&origin.responses, *longest_ms),
            origin.errors_per_second
        ),
        format!(
            "store        {}  calls {}",
            if store.connected { "connected" } else { "AWAY" },
            speed(&store.calls, *longest_ms)
        ),
        format!(
            "             timeouts {}  failures {}  breaker {breaker} {}",
            store.timeouts,
            store.failures,
            counted(store.breaker_openings as usize, "time")
        ),
        format!(
            "connections  {} open  {} tunnels  sent {}/s  by thread {threads}",
            connections.open,
            connections.tunnels,
            size(rates.sent_bytes_per_second)
        ),
        format!(
            "memory       {}  pages {} in {}  in flight {}",
            memory.resident.map_or_else(|| NONE.to_owned(), whole_size),
            memory.page_count,
            whole_size(memory.pages),
            whole_size(memory.in_flight)
        ),
    ]
}

fn speed(speed: &Speed, longest_ms: f64) -> String {
    let [p50, p99] = [speed.p50_ms, speed.p99_ms].map(|found| millis(found, longest_ms));
    format!("{:.1}/s  p50 {p50}  p99 {p99}", speed.per_second)
}

fn row(name: &str, [requests, p50, p99]: [&str; 3]) -> String {
    format!("{name:<12} {requests:>10} {p50:>10} {p99:>10}")
}

fn times(name: &str, speed: &Speed, longest_ms: f64) -> String {
    let [p50, p99] = [speed.p50_ms, speed.p99_ms].map(|found| millis(found, longest_ms));
    row(&printable(name), [&format!("{:.1}", speed.per_second), &p50, &p99])
}

/// The most missed URLs, since the start.
fn missed(misses: &[ListedMiss], now: f64, width: usize) -> Vec<String> {
    let line = |[count, mean, last]: [&str; 3], reason: &str, url: &str| {
        format!("{count:>8} {mean:>8} {last:>7}  {reason:<15.15} {url}")
    };
    let head = line(["missed", "mean", "last"], "reason", URL_HEAD);
    let shown = misses.iter().map(|missed| {
        #[expect(clippy::cast_precision_loss, reason = "a mean, shown with one digit")]
        let mean = missed.seconds * 1e3 / missed.count.max(1) as f64;
        let mut url = printable(&missed.host) + &printable(&missed.path);
        if !missed.parameters.is_empty() {
            url += &format!("?{}", printable(&missed.parameters.join("&")));
        }
        let figures =
            [&*missed.count.to_string(), &*millis(Some(mean), f64::MAX), &*age(now - missed.last)];
        let room = width.saturating_sub(head.len() - URL_HEAD.len());
        line(figures, &printable(&missed.reason), &end_of(&url, room))
    });
    let shown: Vec<String> = shown.collect();
    std::iter::once(head).chain(shown).collect()
}

/// The end of a text of ASCII, with a mark if it has lost its beginning: a path tells more than a host.
fn end_of(text: &str, width: usize) -> Cow<'_, str> {
    let over = text.len().saturating_sub(width);
    if over == 0 {
        return text.into();
    }
    format!("~{}", &text[text.ceil_char_boundary(over + 1)..]).into()
}

/// Shortens a text of ASCII, and marks it.
pub(super) fn cut(text: &mut String, width: usize) {
    if text.len() > width {
        text.truncate(text.floor_char_boundary(width.saturating_sub(1)));
        text.push('~');
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| NONE.to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// Milliseconds; `longest` is the bound above which there is no measure.
fn millis(ms: Option<f64>, longest: f64) -> String {
    match ms {
        None => NONE.to_owned(),
        Some(ms) if ms >= longest => format!(">{:.0}s", longest / 1e3),
        Some(ms) if ms >= 9_999.5 => format!("{:.1}s", ms / 1e3),
        Some(ms) if ms >= 9.995 => format!("{ms:.0}ms"),
        Some(ms) => format!("{ms:.2}ms"),
    }
}

/// How long something lasts, or is ago.
fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.0}s"),
        _ if seconds < 7_200.0 => format!("{:.0}min", (seconds / 60.0).floor()),
        _ if seconds < 172_800.0 => format!("{:.0}h", (seconds / 3_600.0).floor()),
        _ => format!("{:.0}d", (seconds / 86_400.0).floor()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes, shown as mebibytes")]
fn whole_size(bytes: u64) -> String {
    size(bytes as f64)
}

fn size(bytes: f64) -> String {
    match bytes {
        _ if bytes < 1024.0 => format!("{bytes:.0} B"),
        _ if bytes < 1024.0 * 1024.0 => format!("{:.1} KiB", bytes / 1024.0),
        _ => format!("{:.1} MiB", bytes / (1024.0 * 1024.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::tests::reading;
    use super::*;

    fn view() -> View {
        let rates = Rates::between(&reading(2000.0, 100, 4), &reading(2002.0, 118, 6));
        View { rates, ..View::default() }
    }

    #[test]
    fn a_screen_has_the_figures() {
        let text = view().lines(100, usize::MAX).join("\n");
        let wanted = "\
anteroom 0.1.0  up 16min
requests     10.0/s  hits 90.0%  origin time saved 0.90 s/s  revalidated 0.0%
statuses     2xx 9.0/s  5xx 1.0/s
origin       1.0/s  p50 5.50ms  p99 9.91ms  errors 1.0/s
store        connected  calls 0.0/s  p50 -  p99 -
             timeouts 0  failures 0  breaker opened just now 6 times
connections  3 open  0 tunnels  sent 900 B/s  by thread 1 2
memory       128.0 MiB  pages 7 in 1.0 MiB  in flight 0 B

result       requests/s        p50        p99
hit_memory          9.0     0.50ms     0.99ms
miss                1.0     5.50ms     9.91ms

routes by requests
route                                    requests/s   hits   origin last hit  reason
shop                                           10.0  90.0%     10ms       2s  miss";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_screen_says_why_few_requests_hit() {
        let second = |view: &View| view.lines(100, usize::MAX)[1..3].join("\n");
        let mut view = view();
        let rates = view.rates.as_mut().unwrap();
        rates.mode = "learn".to_owned();
        assert!(second(&view).starts_with("mode         learn: each request is forwarded"));
        let rates = view.rates.as_mut().unwrap();
        let until = rates.at + 300.0;
        rates.bypasses = [None, Some("shop\n".to_owned())]
            .map(|route| ListedBypass { route, until, by: "alice".to_owned(), only_here: false })
            .to_vec();
        rates.mode = "serve".to_owned();
        let wanted = "\
bypass       all routes for another 5min, by alice
bypass       route shop\\n for another 5min, by alice";
        assert_eq!(second(&view), wanted);
    }

    #[test]
    fn no_line_is_wider_and_no_screen_higher_than_the_terminal() {
        let mut view = view();
        let url = "/\u{1b}[2J".repeat(50);
        let missed = serde_json::json!({
            "host": "shop.test", "path": url, "parameters": ["q"], "route": null, "reason": "miss",
            "count": 3, "seconds": 0.3, "last": 2001.0,
        });
        view.misses = Some(vec![serde_json::from_value(missed).unwrap()]);
        view.has_help = true;
        view.trouble = Some("long ".repeat(100));
        for width in [1, 20, 59, 60, 61, 80, 200] {
            for height in [1, 5, 24, 100] {
                let lines = view.lines(width, height);
                assert!(lines.len() <= height);
                for line in lines {
                    assert!(line.len() <= width, "{width}: {line}");
                    assert!(line.chars().all(|c| (' '..='~').contains(&c)), "{line:?}");
                }
            }
        }
        let text = view.lines(100, 100).join("\n");
        assert!(text.contains("       3    100ms      1s  miss            ~"), "{text}");
        assert!(text.contains("/\\u{1b}[2J?q"), "{text}");
    }

    #[test]
    fn routes_are_sorted_by_each_key_and_turned_round() {
        let mut view = view();
        let rates = view.rates.as_mut().unwrap();
        let slow = RouteRates {
            name: "admin".to_owned(),
            requests_per_second: 1.0,
            hit_share: None,
            revalidated_share: None,
            reason: None,
            last_hit: None,
            origin_ms: Some(900.0),
        };
        rates.routes.push(slow);
        let first = |view: &View| {
            let lines = view.lines(100, usize::MAX);
            let at = lines.iter().position(|line| line.starts_with("routes by")).unwrap();
            lines[at + 2].split_whitespace().next().unwrap().to_owned()
        };
        let mut found = Vec::new();
        for _ in 0..5 {
            found.push((view.sort.as_str(), first(&view)));
            view.sort = view.sort.next();
        }
        let wanted = [
            ("requests", "shop"),
            ("hits", "shop"),
            ("origin", "admin"),
            ("last hit", "shop"),
            ("name", "admin"),
        ];
        assert_eq!(found, wanted.map(|(key, name)| (key, name.to_owned())));
        assert_eq!(view.sort, SortKey::Requests);
        view.is_reversed = true;
        assert_eq!(first(&view), "admin");
    }

    #[test]
    fn a_percentile_over_all_bounds_is_no_measure() {
        assert_eq!(millis(Some(10_000.0), 10_000.0), ">10s");
        assert_eq!(millis(Some(12_345.0), f64::MAX), "12.3s");
        assert_eq!(millis(None, 10_000.0), "-");
    }
}
