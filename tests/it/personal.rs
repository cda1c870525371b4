//! Users, pages and changes by chance: no user is ever shown the page of another, and pages that may be
//! shared are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;

use crate::support::at_once;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};

on_both_stores!(no_user_is_shown_the_page_of_another);

/// Threads, the users that each of them plays, and what it does.
const THREADS: usize = 4;
const USERS: usize = 2;
const STEPS: usize = 250;

fn user(request: &Request) -> &str {
    request.header("x-anteroom-user").unwrap_or("nobody")
}

fn group(name: &str) -> &'static str {
    match name {
        "nobody" => "none",
        _ if name.ends_with('0') => "trade",
        _ => "retail",
    }
}

/// Pages of a segment, pages that the operator took for some, and pages of users.
fn origin() -> Origin {
    let changes = Mutex::new(HashMap::<String, usize>::new());
    shop(move |request| {
        let name = user(request);
        let mut changes = changes.lock().unwrap();
        let count = changes.entry(name.to_owned()).or_default();
        if request.method == "POST" {
            *count += 1;
            return Reply::status("303 See Other").header("Location", "/").body("");
        }
        let session = request.header("cookie").unwrap_or_default();
        let text = match request.path().split('/').nth(1) {
            Some("same") => format!("for {}: {}", group(name), request.path()),
            // Personal for some of them alone, and for all.
            Some("some") if name.starts_with('1') => format!("of {name}"),
            Some("some") => format!("for {}", group(name)),
            Some("each") => format!("of {name}"),
            _ => format!("of {name} in {session} after {count}"),
        };
        let page = Reply::html(&text).header("Vary", "Cookie, Accept-Encoding");
        page.header("Cache-Control", if name == "nobody" { "no-store" } else { "max-age=60" })
    })
}

/// One of the users of a thread: the name, and the cookie while the user is logged in.
struct Player {
    name: String,
    cookie: Option<String>,
    changes: usize,
}

impl Player {
    fn cookie(&mut self, proxy: &Proxy) -> &str {
        let name = &self.name;
        self.cookie.get_or_insert_with(|| log_in(proxy, &format!("{name};group={}", group(name))))
    }
}

/// What is shareable, and what of it was hit.
#[derive(Default)]
struct Tally {
    asked: AtomicUsize,
    hit: AtomicUsize,
}

fn play(proxy: &Proxy, player: &mut Player, chance: &mut Rng, tally: &Tally) {
    if chance.u32(..40) == 0 {
        if let Some(cookie) = player.cookie.take() {
            proxy.get("/logout").cookie(&cookie).send();
            let answer = proxy.get("/own/1").cookie(&cookie).send();
            assert!(answer.text().starts_with("of nobody "), "{}", answer.text());
        }
        return;
    }
    let cookie = player.cookie(proxy).to_owned();
    let (name, number) = (player.name.clone(), chance.u32(..4));
    if chance.u32(..15) == 0 {
        assert_eq!(proxy.post("/change").cookie(&cookie).send().status, 303);
        player.changes += 1;
    }
    let get = |path: &str| proxy.get(path).cookie_at_home(&cookie).send();
    match chance.u32(..10) {
        0..5 => {
            let answer = get(&format!("/same/{number}"));
            assert_eq!(answer.text(), format!("for {}: /same/{number}", group(&name)));
            tally.asked.fetch_add(1, Ordering::Relaxed);
            tally.hit.fetch_add(usize::from(answer.is_hit()), Ordering::Relaxed);
        }
        5 => {
            let text = get(&format!("/some/{number}")).text();
            let shared = format!("for {}", group(&name));
            assert!(text == shared || text == format!("of {name}"), "{name}: {text}");
        }
        6 => assert_eq!(get(&format!("/each/{number}")).text(), format!("of {name}")),
        _ => {
            let text = get(&format!("/own/{number}")).text();
            assert_eq!(text, format!("of {name} in {cookie} after {}", player.changes));
        }
    }
}

fn no_user_is_shown_the_page_of_another(storage: &Storage) {
    let seed = fastrand::u64(..);
    let settings = "client.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n\
                    [[route]]\nmatch.path = [\"/same/*\", \"/some/*\", \"/each/*\"]\nshare = \"segment\"\n\
                    segment = [\"attribute:group\"]\n\
                    [[route]]\nmatch.path = \"/own/*\"\nshare = \"user\"\n";
    let origin = origin();
    let proxy = Arc::new(Proxy::start(&origin, storage, settings));
    let tally = Tally::default();
    at_once(THREADS, |thread| {
        let mut chance = Rng::with_seed(seed.wrapping_add(thread as u64));
        let player =
            |number| Player { name: format!("{thread}{number}"), cookie: None, changes: 0 };
        let mut players: Vec<_> = (0..USERS).map(player).collect();
        for _ in 0..STEPS {
            let place = chance.usize(..USERS);
            play(&proxy, &mut players[place], &mut chance, &tally);
        }
    });
    let (asked, hit) = (tally.asked.into_inner(), tally.hit.into_inner());
    assert!(2 * hit > asked, "{hit} of {asked} shareable requests were hits, with seed {seed}");
}
