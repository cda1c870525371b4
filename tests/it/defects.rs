//! A defect in the code that one request runs: it ends that request, and no other.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::wait_until;

#[test]
fn a_panic_ends_its_request_alone() {
    let origin = Origin::always(Reply::unstored("<p>fine</p>"));
    let proxy = Proxy::behind("export ANTEROOM_PANIC=/defect", &origin);
    let mut kept = proxy.connect();
    for method in ["GET", "POST", "GET"] {
        let answer = proxy.ask(method, "/defect").send_on(&mut kept);
        assert_eq!(answer.status, 500, "{method}");
        assert!(answer.text().contains("an error in this server"), "{}", answer.text());
        assert!(answer.cache_status().contains("detail=defect"), "{}", answer.cache_status());
        let next = proxy.get("/").send_on(&mut kept);
        assert_eq!(next.text(), "<p>fine</p>", "on the same connection");
    }
    wait_until("it is logged", || proxy.complaints().contains("a thread panicked: planted"));
    assert!(origin.seen().iter().all(|request| request.path() == "/"));
}
