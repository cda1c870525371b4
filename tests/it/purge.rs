//! Purges and changes: what they hit, when, and in which process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, on_both_stores};

on_both_stores!(
    a_change_hits_every_form_of_its_page,
    a_change_hits_what_its_route_names,
    a_change_in_the_middle_of_a_fetch_leaves_no_old_page,
);

/// An origin whose pages tell how often something was changed: a POST counts.
fn counting(decorate: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> Origin {
    let changes = AtomicUsize::new(0);
    Origin::start(move |request| {
        if request.method == "POST" {
            changes.fetch_add(1, Ordering::SeqCst);
            let location = request.header("x-location").unwrap_or("/done");
            return Reply::status("303 See Other").header("Location", location).body("");
        }
        let page = format!("{} after {} changes", request.target, changes.load(Ordering::SeqCst));
        decorate(Reply::html(&page).header("Cache-Control", "max-age=300"))
    })
}

fn a_change_hits_every_form_of_its_page(storage: &Storage) {
    let origin = counting(|reply| reply.header("Vary", "Accept-Language"));
    let settings = "[[route]]\nmatch.path = \"/**\"\nkey_cookies = [\"lang\"]";
    let proxy = Proxy::start(&origin, storage, settings);
    let forms = || {
        let form = |(cookie, language)| {
            let ask = proxy.get("/dir/a?b=1&utm_source=x").header("Cookie", cookie);
            ask.header("Accept-Language", language).send()
        };
        [("lang=de", "de"), ("lang=de", "en"), ("lang=en", "en")].map(form)
    };
    for (path, location) in [
        ("/dir/a?b=1", "/done"),
        ("/x", "/dir/a?b=1"),
        ("/dir/x/y", "../a?b=1#top"),
        ("/dir/x", "http://shop.test/dir/%61?b=1"),
        ("/dir/a?b=0", "?b=1"),
    ] {
        forms();
        assert!(forms().iter().all(|answer| answer.is_hit()));
        proxy.post(path).header("X-Location", location).send();
        assert!(!forms().iter().any(|answer| answer.is_hit()), "{path} {location}");
        assert!(forms().iter().all(|answer| answer.is_hit()), "{path} {location}");
    }
    for (path, location) in [("/x", "http://other.test/dir/a?b=1"), ("/dir/a", "/dir/a?b=2")] {
        proxy.post(path).header("X-Location", location).send();
        assert!(forms().iter().all(|answer| answer.is_hit()), "{path} {location}");
    }
}

fn a_change_hits_what_its_route_names(storage: &Storage) {
    let origin = counting(|reply| reply);
    let settings = "[[route]]\nmatch.path = \"/write\"\npurges = [\"/\", \"/feed/**\"]";
    let proxy = Proxy::start(&origin, storage, settings);
    let pages = ["/", "/feed", "/feed/", "/feed/a/b?c=1", "/?a=1", "/feeds"];
    for page in pages {
        proxy.get(page).send();
    }
    assert_eq!(pages.map(|page| proxy.get(page).send().is_hit()), [true; 6]);
    proxy.post("/write").send();
    let hits = pages.map(|page| proxy.get(page).send().is_hit());
    assert_eq!(hits, [false, false, false, false, true, true]);
    assert_eq!(pages.map(|page| proxy.get(page).send().is_hit()), [true; 6]);
    assert_eq!(proxy.get("/feed").send().text(), "/feed after 1 changes");
}

/// A page that stops in the middle until the gate opens, once; later ones come at once.
fn slow_once(gate: &Arc<Gate>) -> Origin {
    let (gate, asked) = (Arc::clone(gate), AtomicUsize::new(0));
    Origin::start(move |request| {
        if request.method == "POST" {
            return Reply::status("204 No Content");
        }
        let reply = Reply::status("200 OK").header("Content-Type", "text/css");
        let reply = reply.header("Cache-Control", "max-age=300").header("Content-Length", "3");
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => reply.bytes("o").until(&gate).bytes("ld"),
            _ => reply.bytes("new"),
        }
    })
}

fn a_change_in_the_middle_of_a_fetch_leaves_no_old_page(storage: &Storage) {
    let gate = Gate::closed();
    let origin = slow_once(&gate);
    let settings =
        "[[route]]\nmatch.path = \"/**\"\nkey_headers = [\"x-form\"]\npurges = [\"/a.css\"]";
    let proxy = Proxy::start(&origin, storage, settings);
    // Another form than that of the request which changes it.
    let ask = || proxy.get("/a.css").header("X-Form", "one");
    let mut first = ask().start();
    let begun = first.head();
    proxy.post("/write").send();
    assert_eq!(ask().send().text(), "new", "nobody joins the old fetch");
    gate.open();
    assert_eq!(first.rest(begun).text(), "old");
    let after = ask().send();
    assert_eq!((after.text().as_str(), after.is_hit()), ("new", true));
}
