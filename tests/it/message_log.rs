//! Standard error and standard output that cannot be written, or that are not read: what is lost is lines.

use std::time::{Duration, Instant};

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::{at_once, free_port, wait_until};

/// A pipe that is full and has no reader, on the given descriptor.
fn unread(descriptor: u8) -> String {
    format!(
        "mkfifo full; exec {descriptor}<>full; timeout 1 head -c 2M /dev/zero >&{descriptor}; \
         export ANTEROOM__LOG__TO=stdout"
    )
}

/// One whose app is away, so that each request is a message.
fn without_app(line: &str) -> Proxy {
    let away = format!("origin.url = \"http://127.0.0.1:{}\"", free_port());
    Proxy::behind_with(line, &Origin::always(Reply::html("unused")), &away)
}

fn is_answered(proxy: &Proxy) {
    let statuses = at_once(4, |_| [(); 10].map(|()| proxy.get("/").send().status));
    assert_eq!(statuses.concat(), [502; 40]);
}

#[test]
fn standard_error_on_a_full_disk_costs_messages_alone() {
    let mut proxy = without_app("exec 2>/dev/full");
    is_answered(&proxy);
    wait_until("the loss is counted", || proxy.metric("anteroom_messages_lost_total") > 0.0);
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn standard_error_whose_reader_has_gone_costs_messages_alone() {
    let mut proxy = without_app("mkfifo gone; head -c 1 gone & exec 2>gone; echo >&2; wait $!");
    is_answered(&proxy);
    wait_until("the loss is counted", || proxy.metric("anteroom_messages_lost_total") > 0.0);
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn standard_error_that_is_not_read_holds_up_no_request_and_no_end() {
    let mut proxy = without_app(&unread(2));
    is_answered(&proxy);
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn an_access_log_that_is_not_read_holds_up_no_request_and_no_end() {
    let mut proxy = without_app(&unread(1));
    is_answered(&proxy);
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    proxy.wait_for_complaint("the last lines of the access log are lost");
}

/// Lets the proxy come to its next attempts at what it does some times a second.
fn let_it_try_again() {
    let begun = Instant::now();
    wait_until("it has tried again", || begun.elapsed() > Duration::from_millis(200));
}

#[test]
fn an_access_log_without_a_reader_is_told_once() {
    let line = "mkfifo gone; head -c 1 gone & exec 3>gone; echo >&3; wait $!; exec >&3; \
                export ANTEROOM__LOG__TO=stdout";
    let origin = Origin::always(Reply::html("page"));
    let proxy = Proxy::behind(line, &origin);
    let lost = "the access log cannot be written";
    for _ in 0..3 {
        assert_eq!(proxy.get("/").send().status, 200);
        proxy.wait_for_complaint(lost);
        let_it_try_again();
    }
    assert_eq!(proxy.complaints().matches(lost).count(), 1, "{}", proxy.complaints());
}

#[test]
fn connections_without_a_free_file_are_told_once() {
    let origin = Origin::always(Reply::html("page"));
    let proxy = Proxy::behind("ulimit -n 64", &origin);
    let clients: Vec<_> = (0..80).map(|_| proxy.connect()).collect();
    let refused = "a connection could not be accepted";
    proxy.wait_for_complaint(refused);
    let_it_try_again();
    drop(clients);
    assert_eq!(proxy.get("/").send().status, 200);
    assert_eq!(proxy.complaints().matches(refused).count(), 1, "{}", proxy.complaints());
}

#[test]
fn a_message_of_each_request_is_logged_a_few_times() {
    let proxy = without_app(":");
    is_answered(&proxy);
    let lines = || proxy.complaints().matches("a request failed").count();
    wait_until("the first are written", || lines() > 0);
    assert!(lines() <= 5, "{}", proxy.complaints());
}
