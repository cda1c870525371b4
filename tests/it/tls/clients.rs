//! Visitors who show certificates.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::version;

use super::{Files, hello};
use crate::support::client::{Answer, Client, SITE};
use crate::support::http2_client::{Http2Client, ask};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::tls::{Authority, Browser, CertificateWithKey};
use crate::support::{DEADLINE, free_port, wait_until};

/// How long a certificate holds that expires during a test. It must hold until the requests before that are answered.
const SHORT_LIFE: Duration = Duration::from_secs(8);

/// Those who are let in.
struct People {
    files: Files,
    authority: Authority,
}

impl People {
    fn new() -> Self {
        let people = Self { files: Files::new(), authority: Authority::new("people") };
        fs::write(people.files.path("people.crt"), &people.authority.cert).unwrap();
        people
    }

    fn listen(&self, whether: &str) -> String {
        let file = self.files.path("people.crt");
        self.files.listen(&format!(", client_certs = \"{whether}\", client_ca = {file:?}"))
    }
}

fn visit(proxy: &Proxy, browser: &Browser, target: &str) -> Option<Answer> {
    let (mut client, _) = browser.try_visit(proxy.address(), SITE, b"")?;
    proxy.get(target).try_send_on(&mut client)
}

#[test]
fn only_those_with_a_certificate_get_in_where_one_is_required() {
    let (people, origin) = (People::new(), hello());
    let proxy = Proxy::embedded(&origin, &people.listen("required"));
    assert!(visit(&proxy, &Browser::new(), "/").is_none());
    let stranger = Authority::new("people").person("Ada");
    assert!(visit(&proxy, &Browser::of(&stranger), "/").is_none());
    assert_eq!(origin.count(), 0);
    wait_until("they are counted", || proxy.metric("anteroom_tls_handshakes_failed_total") == 2.0);

    let ada = Browser::of(&people.authority.person("Ada, OU=admin"));
    assert_eq!(visit(&proxy, &ada, "/").unwrap().text(), "hello");
    let last = origin.last();
    let subject = last.header("x-anteroom-client-cert-subject");
    assert_eq!(subject, Some(r"CN=Ada\, OU\=admin"));
    assert_eq!(last.header("x-anteroom-client-cert-fingerprint").unwrap().len(), 64);
    assert!(last.header("client-cert").unwrap().starts_with(":MII"));
    // A returning client is still known.
    assert_eq!(visit(&proxy, &ada, "/").unwrap().text(), "hello");
    assert_eq!(origin.last().header("x-anteroom-client-cert-subject"), subject);
}

#[test]
fn a_certificate_does_not_count_without_its_key() {
    let (people, origin) = (People::new(), hello());
    let [shown, own] = ["Ada", "Bob"].map(|name| people.authority.person(name));
    for whether in ["required", "optional"] {
        let proxy = Proxy::embedded(&origin, &people.listen(whether));
        for version in [&version::TLS12, &version::TLS13] {
            let impostor = Browser::impostor(version, &shown, &own);
            assert!(visit(&proxy, &impostor, "/").is_none(), "{whether} {version:?}");
        }
        wait_until("they are counted", || {
            proxy.metric("anteroom_tls_handshakes_failed_total") == 2.0
        });
        assert_eq!(visit(&proxy, &Browser::of(&own), "/").unwrap().text(), "hello");
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn no_client_can_forge_a_certificate_header() {
    let (people, origin) = (People::new(), hello());
    let proxy = Proxy::embedded(&origin, &people.listen("optional"));
    let names = [
        "Client-Cert",
        "client_cert",
        "Client-Cert-Chain",
        "X-Anteroom-Client-Cert-Subject",
        "x_anteroom_client.cert_subject",
        "X-SSL-Client-S-DN",
        "X-Forwarded-Client-Cert",
        "X-Client-Cert",
    ];
    let forged = |browser: &Browser| {
        let (mut client, _) = browser.visit(proxy.address(), SITE);
        let ask = names.iter().fold(proxy.post("/"), |ask, name| ask.header(name, "CN=root"));
        assert_eq!(ask.send_on(&mut client).status, 200);
        let told: Vec<_> =
            origin.last().fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert!(!told.iter().any(|line| line.contains("CN=root")), "{told:?}");
        told.iter().filter(|line| line.to_lowercase().contains("client-cert")).count()
    };
    assert_eq!(forged(&Browser::new()), 0);
    assert_eq!(forged(&Browser::of(&people.authority.person("Ada"))), 3);
}

/// A page that says who asked for it, and wants to be shared.
fn personal() -> Origin {
    Origin::start(|request| {
        let who = request.header("x-anteroom-client-cert-subject").unwrap_or("nobody");
        Reply::html(&format!("<p>{who}</p>")).header("Cache-Control", "public, max-age=60")
    })
}

#[test]
fn a_page_for_one_certificate_is_not_shared() {
    let people = People::new();
    let origin = personal();
    let proxy = Proxy::embedded(&origin, &people.listen("optional"));
    let [ada, bob] = ["Ada", "Bob"].map(|name| Browser::of(&people.authority.person(name)));
    for _ in 0..2 {
        let answer = visit(&proxy, &ada, "/").unwrap();
        assert_eq!(answer.text(), "<p>CN=Ada</p>");
        assert!(answer.cache_status().contains("client-certificate"), "{}", answer.cache_status());
        assert_eq!(visit(&proxy, &bob, "/").unwrap().text(), "<p>CN=Bob</p>");
        assert_eq!(visit(&proxy, &Browser::new(), "/").unwrap().text(), "<p>nobody</p>");
    }
    assert!(visit(&proxy, &Browser::new(), "/").unwrap().is_hit());
    assert_eq!(visit(&proxy, &ada, "/").unwrap().text(), "<p>CN=Ada</p>");
}

#[test]
fn a_page_for_everyone_is_asked_for_without_it() {
    let people = People::new();
    let origin = personal();
    let everyone = "[[route]]\nmatch.path = \"/all\"\nshare = \"everyone\"\n\
                    [[route]]\nmatch.path = \"/public\"\ntrust_public = true";
    let proxy = Proxy::embedded(&origin, &format!("{}\n{everyone}", people.listen("optional")));
    let ada = Browser::of(&people.authority.person("Ada"));
    for target in ["/all", "/public"] {
        let first = visit(&proxy, &ada, target).unwrap();
        assert_eq!(first.text(), "<p>nobody</p>", "{target}");
        assert_eq!(origin.last().header("client-cert"), None);
        assert!(visit(&proxy, &Browser::new(), target).unwrap().is_hit(), "{target}");
    }
    // What cannot be shared after all is asked for once more, as it came.
    let origin = Origin::start(|request| {
        let who = request.header("x-anteroom-client-cert-subject").unwrap_or("nobody");
        Reply::html(who).header("Cache-Control", "private")
    });
    let proxy = Proxy::embedded(&origin, &format!("{}\n{everyone}", people.listen("optional")));
    assert_eq!(visit(&proxy, &ada, "/all").unwrap().text(), "CN=Ada");
}

#[test]
fn a_connection_is_for_the_site_that_it_was_made_for() {
    let (people, origin) = (People::new(), hello());
    let proxy = Proxy::embedded(&origin, &people.listen("optional"));
    let ask = |browser: &Browser, name: &str, host: &str| {
        let (mut client, _) = browser.visit(proxy.address(), name);
        proxy.get("/").host(host).send_on(&mut client).status
    };
    assert_eq!(ask(&Browser::new(), SITE, "shop.test"), 200);
    assert_eq!(ask(&Browser::new(), SITE, "SHOP.test:8443"), 200);
    assert_eq!(ask(&Browser::new(), SITE, "other.test"), 421);
    assert_eq!(ask(&Browser::new().nameless(), SITE, SITE), 421);
    assert_eq!(ask(&Browser::new(), "127.0.0.1", "127.0.0.1"), 200);

    let proxy = Proxy::embedded(&origin, &people.files.listen(""));
    let (mut client, _) = Browser::new().visit(proxy.address(), SITE);
    assert_eq!(proxy.get("/").host("other.test").send_on(&mut client).status, 200);
}

/// A second listener, with authorities of its own.
fn two_listeners(people: &People, port: u16, file: &str) -> String {
    let listen = people.listen("optional");
    let cert = people.files.path("*.pem");
    let other = format!(
        ", {{ address = \"127.0.0.1:{port}\", tls = {{ cert = {cert:?}, \
         client_certs = \"required\", client_ca = {file:?} }} }}]"
    );
    format!("{}{other}", listen.strip_suffix(']').unwrap())
}

#[test]
fn a_certificate_of_one_listener_opens_no_other() {
    let (people, origin) = (People::new(), hello());
    let file = people.files.path("others.crt");
    fs::write(&file, Authority::new("others").cert).unwrap();
    let port = free_port();
    let proxy = Proxy::embedded(&origin, &two_listeners(&people, port, &file));
    for browser in [Browser::new(), Browser::of(&people.authority.person("Ada"))] {
        for _ in 0..2 {
            assert_eq!(visit(&proxy, &browser, "/").unwrap().status, 200);
        }
        let before = origin.count();
        let other = browser.try_visit(([127, 0, 0, 1], port).into(), SITE, b"");
        let answer = other.and_then(|(mut client, _)| proxy.get("/").try_send_on(&mut client));
        assert!(answer.is_none());
        assert_eq!(origin.count(), before);
    }
}

#[test]
fn a_ticket_of_a_listener_that_asks_for_none_opens_no_listener_that_does() {
    let (people, origin, port) = (People::new(), hello(), free_port());
    let file = people.files.path("people.crt");
    let cert = people.files.path("*.pem");
    let listen = people.files.listen("");
    let asking = format!(
        ", {{ address = \"127.0.0.1:{port}\", tls = {{ cert = {cert:?}, \
         client_certs = \"required\", client_ca = {file:?} }} }}]"
    );
    let listen = format!("{}{asking}", listen.strip_suffix(']').unwrap());
    let proxy = Proxy::embedded(&origin, &listen);
    for version in [&version::TLS12, &version::TLS13] {
        let browser = Browser::speaking(&[version], None);
        assert_eq!(visit(&proxy, &browser, "/").unwrap().status, 200);
        let other = browser.try_visit(([127, 0, 0, 1], port).into(), SITE, b"");
        let answer = other.and_then(|(mut client, _)| proxy.get("/").try_send_on(&mut client));
        assert!(answer.is_none(), "{version:?}");
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn tickets_of_clients_with_certificates_end_with_the_process() {
    let (people, origin) = (People::new(), hello());
    let secret = people.files.path("secret");
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let authorities = people.files.path("people.crt");
    let asks = format!(", client_certs = \"optional\", client_ca = {authorities:?}");
    for more in [String::new(), format!(", ticket_secret = {{ file = {secret:?} }}")] {
        let listen = people.files.listen(&format!("{asks}{more}"));
        let mut proxy = Proxy::embedded(&origin, &listen);
        let browsers = [Browser::of(&people.authority.person("Ada")), Browser::new()];
        let resumes = |proxy: &Proxy, browser: &Browser| {
            let (mut client, greeted) = browser.visit(proxy.address(), SITE);
            assert_eq!(proxy.get("/").send_on(&mut client).status, 200);
            greeted.resumed
        };
        for browser in &browsers {
            assert!(!resumes(&proxy, browser) && resumes(&proxy, browser));
        }
        proxy.restart();
        for browser in &browsers {
            assert!(!resumes(&proxy, browser));
        }
    }
}

#[test]
fn a_client_of_a_removed_authority_is_a_stranger() {
    let (people, origin) = (People::new(), hello());
    let proxy = Proxy::embedded(&origin, &people.listen("required"));
    let ada = Browser::of(&people.authority.person("Ada"));
    assert_eq!(visit(&proxy, &ada, "/").unwrap().status, 200);
    let new = Authority::new("new people");
    fs::write(people.files.path("people.crt"), &new.cert).unwrap();
    let bob: CertificateWithKey = new.person("Bob");
    wait_until("the new ones are asked for", || visit(&proxy, &Browser::of(&bob), "/").is_some());
    assert!(visit(&proxy, &ada, "/").is_none(), "by her ticket or without");
}

#[test]
fn a_resuming_client_with_an_expired_certificate_is_a_stranger() {
    let (people, origin) = (People::new(), hello());
    let proxy = Proxy::embedded(&origin, &people.listen("optional"));
    let end = unix_now() + SHORT_LIFE;
    let ada = people.authority.person_until("Ada", end);
    let browsers =
        [&version::TLS12, &version::TLS13].map(|one| Browser::speaking(&[one], Some(&ada)));
    for browser in &browsers {
        assert_eq!(visit(&proxy, browser, "/").unwrap().status, 200);
        assert!(origin.last().header("client-cert").is_some());
    }
    for browser in &browsers {
        wait_until("she is a stranger", || visit(&proxy, browser, "/").is_none());
    }
}

/// Connections of each kind that were answered once: by HTTP/1.1, and by HTTP/2.
fn kept(proxy: &Proxy, browser: impl Fn() -> Browser) -> (Client, Http2Client) {
    let (mut one, _) = browser().offering(&[b"http/1.1"]).visit(proxy.address(), SITE);
    assert_eq!(proxy.get("/").send_on(&mut one).status, 200);
    let two = browser().offering(&[b"h2"]).carry(proxy.address(), SITE);
    two.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut two = Http2Client::over(two);
    assert_eq!(two.get(ask("GET", &url(), &[])).unwrap().status, 200);
    (one, two)
}

fn url() -> String {
    format!("https://{SITE}/")
}

/// That nothing more is answered on them.
fn are_over(proxy: &Proxy, mut one: Client, mut two: Http2Client, origin: &Origin) {
    let before = origin.count();
    let is_refused = |status: Option<u16>| status.is_none_or(|status| status == 421);
    let answer = proxy.get("/").try_send_on(&mut one).map(|answer| answer.status);
    assert!(is_refused(answer), "{answer:?}");
    let answer = two.get(ask("GET", &url(), &[])).ok().map(|answer| answer.status);
    assert!(is_refused(answer), "{answer:?}");
    assert_eq!(origin.count(), before);
    wait_until("HTTP/1.1 has ended", || one.is_closed());
    wait_until("HTTP/2 has ended", || two.get(ask("GET", &url(), &[])).is_err());
}

#[test]
fn connections_of_clients_of_removed_authorities_end() {
    let (people, origin) = (People::new(), hello());
    let proxy = Proxy::embedded(&origin, &people.listen("optional"));
    let ada = people.authority.person("Ada");
    let held = [kept(&proxy, || Browser::of(&ada)), kept(&proxy, Browser::new)];
    let new = Authority::new("new people");
    fs::write(people.files.path("people.crt"), &new.cert).unwrap();
    let bob: CertificateWithKey = new.person("Bob");
    wait_until("the new ones are asked for", || visit(&proxy, &Browser::of(&bob), "/").is_some());
    for (one, two) in held {
        are_over(&proxy, one, two, &origin);
    }
}

#[test]
fn a_request_in_work_is_answered_when_authorities_are_gone() {
    let (people, gate) = (People::new(), Gate::closed());
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::unstored("hello")
    });
    let proxy = Proxy::embedded(&origin, &people.listen("required"));
    let ada = Browser::of(&people.authority.person("Ada"));
    let (mut client, _) = ada.visit(proxy.address(), SITE);
    assert!(client.send(format!("GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n").as_bytes()));
    wait_until("it is asked for", || origin.count() == 1);
    fs::write(people.files.path("people.crt"), Authority::new("new people").cert).unwrap();
    assert!(proxy.reload());
    gate.open();
    assert_eq!(client.answer().text(), "hello");
    wait_until("it has ended", || client.is_closed());
}

#[test]
fn connections_from_before_certificates_were_required_end() {
    let (people, origin) = (People::new(), hello());
    for before in [people.files.listen(""), people.listen("optional")] {
        let proxy = Proxy::embedded(&origin, &before);
        let held = kept(&proxy, Browser::new);
        // A change that concerns no certificate ends no connection.
        proxy.edit(|text| format!("{text}\n[[route]]\nmatch.path = \"/nowhere\"\nttl = \"9s\"\n"));
        assert!(proxy.reload(), "{}", proxy.complaints());
        let (mut one, mut two) = held;
        assert_eq!(proxy.get("/").send_on(&mut one).status, 200);
        assert_eq!(two.get(ask("GET", &url(), &[])).unwrap().status, 200);
        proxy.edit(|text| {
            let address = proxy.address().to_string();
            let required = people.listen("required").replace("{listen}", &address);
            let begin = text.find("listen = ").unwrap();
            let end = begin + text[begin..].find('\n').unwrap();
            format!("{}{required}{}", &text[..begin], &text[end..])
        });
        assert!(proxy.reload(), "{}", proxy.complaints());
        are_over(&proxy, one, two, &origin);
    }
}

#[test]
fn a_connection_ends_with_the_certificate_that_was_shown_on_it() {
    let (people, origin) = (People::new(), hello());
    let proxy = Proxy::embedded(&origin, &people.listen("optional"));
    let end = unix_now() + SHORT_LIFE;
    let ada = people.authority.person_until("Ada", end);
    let (one, two) = kept(&proxy, || Browser::of(&ada));
    let (mut nobody, _) = Browser::new().visit(proxy.address(), SITE);
    wait_until("it has expired", || unix_now().as_secs() > end.as_secs());
    are_over(&proxy, one, two, &origin);
    assert_eq!(proxy.get("/").send_on(&mut nobody).status, 200);
}

#[expect(clippy::disallowed_methods, reason = "until when a certificate holds")]
fn unix_now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

#[test]
fn the_certificate_of_a_proxy_is_not_the_visitors() {
    let people = People::new();
    let origin = personal();
    let settings =
        format!("client.trusted_proxies = [\"127.0.0.1\"]\n{}", people.listen("required"));
    let proxy = Proxy::embedded(&origin, &settings);
    let front = Browser::of(&people.authority.person("front"));
    let (mut client, _) = front.visit(proxy.address(), SITE);
    for is_hit in [false, true] {
        let answer = proxy.get("/").host("other.test").send_on(&mut client);
        assert_eq!((answer.text().as_str(), answer.is_hit()), ("<p>nobody</p>", is_hit));
    }
    assert_eq!(proxy.post("/").send_on(&mut client).text(), "<p>nobody</p>");
}

#[test]
fn a_page_chosen_by_the_certificate_is_for_those_without() {
    let people = People::new();
    for field in
        ["Client-Cert", "X-Anteroom-Client-Cert-Subject", "X-Anteroom-Client-Cert-Fingerprint"]
    {
        let origin = Origin::start(move |request| {
            let who = request.header("x-anteroom-client-cert-subject").unwrap_or("nobody");
            let reply = match request.path() {
                "/site.css" => Reply::typed("text/css", who).header("ETag", "\"1\""),
                _ => Reply::html(who),
            };
            reply.header("Cache-Control", "public, max-age=60").header("Vary", field)
        });
        let ways = "[[route]]\nmatch.path = \"/all\"\nshare = \"everyone\"\n\
                    [[route]]\nmatch.path = \"/public\"\ntrust_public = true";
        let proxy = Proxy::embedded(&origin, &format!("{}\n{ways}", people.listen("optional")));
        let ada = Browser::of(&people.authority.person("Ada"));
        for target in ["/all", "/public", "/site.css"] {
            for _ in 0..2 {
                assert_eq!(visit(&proxy, &ada, target).unwrap().text(), "CN=Ada", "{field}");
                let stranger = visit(&proxy, &Browser::new(), target).unwrap();
                assert_eq!(stranger.text(), "nobody", "{field} {target}");
            }
            assert!(visit(&proxy, &Browser::new(), target).unwrap().is_hit(), "{field} {target}");
        }
    }
}
