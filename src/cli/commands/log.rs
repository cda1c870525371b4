//! The command that shows requests as they end.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;

use anteroom::admin::{self, LOG, LogLine, LoggedRequest, StreamEnd};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::socket;
use crate::cli::args::LogArgs;
use crate::cli::output::{counted, failed, printable};

/// Prints requests until it has enough of them, a signal comes, or the proxy ends.
pub(crate) fn log(args: LogArgs) -> Result<(), u8> {
    let LogArgs { filter, short, json, count, at } = args;
    let socket = socket(at)?;
    let wanted = filter.map(|filter| utf8_percent_encode(&filter, NON_ALPHANUMERIC).to_string());
    let target = wanted.map_or_else(|| LOG.to_owned(), |filter| format!("{LOG}?where={filter}"));
    let form = match (json, short) {
        (true, _) => Form::Json,
        (false, true) => Form::Short,
        (false, false) => Form::Block,
    };
    let mut printer = Printer { form, left: count.unwrap_or(u64::MAX) };
    let print = |lines: &[u8]| printer.print(lines);
    let read = admin::stream_lines(&socket, Method::GET, &target, Vec::new(), print);
    match read.map_err(failed)? {
        StreamEnd::Reader | StreamEnd::Signal => Ok(()),
        StreamEnd::Proxy => Err(failed("the proxy has ended")),
    }
}

/// How a request is shown.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Short,
    Block,
}

struct Printer {
    form: Form,
    /// How many requests are still wanted.
    left: u64,
}

impl Printer {
    /// Prints lines of the stream. It breaks when there are enough, or nothing reads the output.
    fn print(&mut self, lines: &[u8]) -> ControlFlow<()> {
        let mut text = String::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let Ok(read) = serde_json::from_slice::<LogLine>(line) else { continue };
            match (self.form, &read) {
                (Form::Json, _) => text += &String::from_utf8_lossy(line),
                (_, LogLine::Lost { lost }) => {
                    let requests = counted(*lost as usize, "request");
                    let _infallible = writeln!(text, "… missed: {requests}");
                }
                (Form::Short, LogLine::Request(request)) => text += &(head(request) + "\n"),
                (Form::Block, LogLine::Request(request)) => text += &block(request),
            }
            self.left -= u64::from(matches!(read, LogLine::Request(_)));
            if self.left == 0 {
                break;
            }
        }
        let mut out = std::io::stdout().lock();
        let is_read = out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok();
        if is_read && self.left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// A request on one line.
fn head(request: &LoggedRequest) -> String {
    let LoggedRequest { method, status, result, visitor, ms, bytes, .. } = request;
    let mut line = format!("{} {} {}", clock(&request.time), printable(method), url(request));
    // Writing into a text cannot fail.
    let _infallible = write!(line, "  {status} {result}");
    if let Some(reason) = &request.reason {
        let _infallible = write!(line, " ({reason})");
    }
    if let Some(route) = &request.route {
        let _infallible = write!(line, "  route {}", printable(route));
    }
    let _infallible = write!(line, "  visitor {visitor}  {ms} ms  {bytes} bytes");
    if request.aborted {
        line += "  aborted";
    }
    line
}

/// A request with its steps, and an empty line.
fn block(request: &LoggedRequest) -> String {
    let mut block = head(request) + "\n";
    for step in &request.steps {
        let _infallible = writeln!(block, "{:>12.3} ms  {}", step.ms, printable(&step.step));
    }
    block + "\n"
}

/// Host and path, and the names of the query's parameters.
fn url(request: &LoggedRequest) -> String {
    let host = request.host.as_deref().unwrap_or_default();
    let mut url = printable(host) + &printable(&request.path);
    if !request.parameters.is_empty() {
        url += "?";
        url += &printable(&request.parameters.join("&"));
    }
    url
}

/// The time of day, in UTC to a millisecond, of `2026-11-24T10:36:42.078946Z`.
fn clock(time: &str) -> String {
    let day = time.split_once('T').map_or(time, |(_, day)| day).trim_end_matches('Z');
    let (seconds, fraction) = day.split_once('.').unwrap_or((day, ""));
    format!("{}.{fraction:0<3.3}Z", printable(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"time":"2026-11-24T10:36:42.07Z","client":null,"method":"GET","host":"shop.example",
        "path":"/item\u001b[2J","parameters":["q","page"],"version":"HTTP/1.1","status":200,"bytes":27,
        "result":"bypass","reason":"unknown-cookie","route":"default","visitor":"unknown","ms":5.22,
        "aborted":true,"steps":[{"step":"routed","ms":0.05},{"step":"end","ms":5.22}]}"#;

    fn request() -> LoggedRequest {
        match serde_json::from_str(LINE).unwrap() {
            LogLine::Request(request) => *request,
            LogLine::Lost { .. } => panic!("a request"),
        }
    }

    #[test]
    fn a_request_is_a_line_and_its_steps() {
        let wanted = "10:36:42.070Z GET shop.example/item\\u{1b}[2J?q&page  200 bypass (unknown-cookie)  \
                      route default  visitor unknown  5.22 ms  27 bytes  aborted\n       \
                      0.050 ms  routed\n       5.220 ms  end\n\n";
        assert_eq!(block(&request()), wanted);
    }

    #[test]
    fn it_has_enough_after_as_many_requests_as_were_wanted() {
        let line = LINE.replace('\n', "") + "\n";
        let mut printer = Printer { form: Form::Json, left: 3 };
        let lost = "{\"lost\":7}\n";
        assert!(printer.print(format!("{line}{lost}").as_bytes()).is_continue());
        assert_eq!(printer.left, 2);
        assert!(printer.print(line.repeat(3).as_bytes()).is_break());
        assert_eq!(printer.left, 0);
    }
}
