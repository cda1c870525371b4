//! What happens, by chance.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use tempfile::TempDir;

use crate::app::{self, KINDS, Kind, SETTINGS};
use crate::check::{Asked, Does, SECOND, Tally, check, plain};
use crate::support::client::{Answer, Client};
use crate::support::origin::Origin;
use crate::support::proxy::{Proxy, Storage};
use crate::support::wait_until;
use crate::world::{Health, LogOut, Owner, USERS, World, between};

/// Browsers of each user, those of strangers, and one who comes with cookies of others.
const BROWSERS_EACH: usize = 2;
const STRANGERS: usize = 5;
const THIEF: usize = USERS * BROWSERS_EACH + STRANGERS;

/// Who may purge.
const TOKEN: &str = "the-token-of-the-operator";
/// Pages of a kind.
const PAGES: usize = 3;
/// Something fails in each of so many steps, and in others by chance.
const FAULT_EVERY: u64 = 40;
/// So much of what happened is told with what was wrong.
const TOLD_MAX: usize = 60;

/// A browser.
struct Browser {
    user: Option<usize>,
    session: Option<usize>,
    /// A session cookie that the app has not given out.
    junk: Option<String>,
    /// What we have given it while nobody was logged in.
    token: Option<String>,
    has_theme: bool,
}

/// A request on its way.
struct Pending {
    asked: Asked,
    client: Client,
}

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Origin(Health),
    RedisPauses,
    RedisDies,
    ProxyDies,
}

/// Everything.
pub(crate) struct Play {
    rng: Rng,
    world: Arc<World>,
    proxies: Vec<Proxy>,
    storage: Storage,
    browsers: Vec<Browser>,
    step: u64,
    asked: u64,
    oops: u64,
    is_well: bool,
    has_store: bool,
    began: Instant,
    told: Vec<String>,
    wrong: Option<String>,
    pub(crate) tally: Tally,
    _origin: Origin,
    _folder: TempDir,
}

impl Play {
    pub(crate) fn new(seed: u64, storage: Storage, proxies: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let world = Arc::new(World::new(rng.u64(..)));
        let origin = app::start(&world);
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, TOKEN).unwrap();
        let settings = format!("admin.token = {{ file = \"{}\" }}\n{SETTINGS}", file.display());
        let proxies = (0..proxies).map(|_| Proxy::start(&origin, &storage, &settings)).collect();
        let browsers = (0..=THIEF).map(|number| Browser {
            user: Some(number / BROWSERS_EACH).filter(|user| *user < USERS),
            session: None,
            junk: (number + 2 == THIEF).then(|| "sid-of-a-stranger".to_owned()),
            token: None,
            has_theme: number + 1 == THIEF,
        });
        Self {
            browsers: browsers.collect(),
            rng,
            world,
            proxies,
            storage,
            step: 0,
            asked: 0,
            oops: 0,
            is_well: true,
            has_store: true,
            began: Instant::now(),
            told: Vec::new(),
            wrong: None,
            tally: Tally::default(),
            _origin: origin,
            _folder: folder,
        }
    }

    /// What is wrong by now, with what led to it: what happened last, and all of that session.
    pub(crate) fn wrong(&self) -> Option<String> {
        let wrong = self.wrong.as_ref()?;
        let session =
            between(wrong, "in session Some(", ")").map(|it| format!("session Some({it})"));
        let last = self.told.len().saturating_sub(TOLD_MAX);
        let told = self.told.iter().enumerate().filter(|(number, told)| {
            *number >= last || session.as_ref().is_some_and(|session| told.contains(session))
        });
        let told: Vec<_> = told.map(|(_, told)| told.as_str()).collect();
        Some(format!("step {}: {wrong}\n{}", self.step, told.join("\n")))
    }

    pub(crate) fn step(&mut self) {
        self.step += 1;
        match self.rng.u8(..100) {
            _ if self.step.is_multiple_of(FAULT_EVERY) => self.fault(),
            0..50 => self.burst(),
            50..66 => self.log_in_or_out(),
            66..69 => self.change(),
            69..72 => self.cart(),
            72..80 => self.oops(),
            80..85 => self.purge(),
            85..88 => self.revoke(),
            88..98 => self.steal(),
            _ => self.fault(),
        }
    }

    /// Who has logged out is nobody, and who is logged in somebody, at every proxy.
    pub(crate) fn end(&mut self) {
        self.step += 1;
        let over: Vec<usize> = {
            let state = self.world.state();
            let numbers = 0..state.sessions.len();
            numbers.filter(|number| state.sessions[*number].ended.is_some()).collect()
        };
        let last = Instant::now();
        wait_until("a second is over", || last.elapsed() >= SECOND);
        for session in over {
            self.come_with(session);
        }
        for browser in 0..THIEF {
            let pending = (0..self.proxies.len())
                .flat_map(|proxy| [Kind::Plain, Kind::Segment, Kind::My].map(|kind| (proxy, kind)));
            let pending: Vec<_> = pending.collect();
            let pending: Vec<_> = pending
                .into_iter()
                .map(|(proxy, kind)| {
                    let asked = self.asks(browser, kind, 0);
                    self.send(Asked { proxy, ..asked })
                })
                .collect();
            self.finish(pending);
        }
    }

    /// Several visitors ask at once, most of them for the same.
    fn burst(&mut self) {
        let pending = self.send_burst();
        self.finish(pending);
    }

    fn send_burst(&mut self) -> Vec<Pending> {
        let (kind, page) = self.any_page();
        let count = self.rng.usize(3..10);
        (0..count)
            .map(|_| {
                let (kind, page) =
                    if self.rng.u8(..10) < 7 { (kind, page) } else { self.any_page() };
                let browser = self.rng.usize(..THIEF);
                let asked = self.asks(browser, kind, page);
                self.send(asked)
            })
            .collect()
    }

    fn any_page(&mut self) -> (Kind, usize) {
        let kind = KINDS[self.rng.usize(..KINDS.len())];
        let pages = if kind == Kind::Segment { PAGES + 1 } else { PAGES };
        (kind, self.rng.usize(..pages))
    }

    fn asks(&mut self, browser: usize, kind: Kind, page: usize) -> Asked {
        let Browser { session, has_theme, .. } = self.browsers[browser];
        Asked {
            browser,
            session,
            proxy: self.rng.usize(..self.proxies.len()),
            method: "GET",
            path: format!("/{}/{page}", kind.word()),
            kind: Some(kind),
            does: Does::Nothing,
            has_theme,
            is_zipped: self.rng.u8(..5) == 0,
            sent: Instant::now(),
            is_well: self.is_well,
            has_store: self.has_store,
        }
    }

    /// A browser that asks for something else than a page.
    fn does(&mut self, browser: usize, method: &'static str, path: String, does: Does) -> Asked {
        let asked = self.asks(browser, Kind::None, 0);
        Asked { method, path, does, kind: None, ..asked }
    }

    /// Somebody logs in or out, while he asks for pages, and others do.
    fn log_in_or_out(&mut self) {
        let browser = self.rng.usize(..USERS * BROWSERS_EACH);
        let user = self.browsers[browser].user.expect("strangers come behind");
        let is_in = self.browsers[browser].session.is_some_and(|session| {
            let session = &self.world.state().sessions[session];
            session.known.is_some() && session.ended.is_none()
        });
        // A visitor without a session gets one now and then, which he may keep when he logs in.
        if !is_in && self.rng.bool() {
            let asked = self.asks(browser, Kind::None, 0);
            let pending = vec![self.send(asked)];
            self.finish(pending);
        }
        let before = self.rng.usize(..3);
        let behind = self.rng.usize(..3);
        let mut pending: Vec<_> = (0..before).map(|_| self.his(browser)).collect();
        let asked = if is_in {
            let how = LogOut::ALL[self.rng.usize(..LogOut::ALL.len())];
            self.does(browser, "POST", format!("/logout/{}", how.word()), Does::LogOut(how))
        } else {
            let keeps = if self.rng.u8(..3) > 0 { "keeps" } else { "gives" };
            self.does(browser, "POST", format!("/login?{user}-{keeps}"), Does::LogIn(user))
        };
        self.begins(&asked);
        pending.push(self.send(asked));
        pending.extend((0..behind).map(|_| self.his(browser)).collect::<Vec<_>>());
        pending.extend(self.send_burst());
        self.finish(pending);
    }

    /// A request of that browser for anything.
    fn his(&mut self, browser: usize) -> Pending {
        let (kind, page) = self.any_page();
        let asked = self.asks(browser, kind, page);
        self.send(asked)
    }

    /// What a log-in or a log-out makes unclear until it is answered.
    fn begins(&self, asked: &Asked) {
        let mut state = self.world.state();
        let Some(session) = asked.session.map(|session| &mut state.sessions[session]) else {
            return;
        };
        session.is_unclear = true;
        if let Does::LogIn(_) = asked.does
            && session.is_kept
        {
            session.ended = None;
        }
    }

    fn change(&mut self) {
        let browser = self.rng.usize(..THIEF);
        let path = if self.rng.bool() { "/buy" } else { "/change/1" };
        let asked = self.does(browser, "POST", path.to_owned(), Does::Nothing);
        let mut pending = vec![self.send(asked)];
        pending.extend(self.send_burst());
        self.finish(pending);
    }

    /// Somebody puts something of his own into his cart, and looks into it; others do that, too.
    fn cart(&mut self) {
        // Who logs in at one of the others has a count in his cart that tells whose it is.
        let browsers: Vec<_> = (0..THIEF).filter(|browser| browser % BROWSERS_EACH == 1).collect();
        for _ in 0..3 {
            let browser = browsers[self.rng.usize(..browsers.len())];
            for method in ["PUT", "GET"] {
                let path = "/_anteroom/cart".to_owned();
                let asked = self.does(browser, method, path, Does::Nothing);
                let pending = vec![self.send(asked)];
                self.finish(pending);
            }
        }
        let pending = self.send_burst();
        self.finish(pending);
    }

    /// A page that nobody has seen yet, and that says who asked for it: those who wait must not see it.
    fn oops(&mut self) {
        self.oops += 1;
        let proxy = self.rng.usize(..self.proxies.len());
        let mut browsers: Vec<_> = (0..THIEF).collect();
        self.rng.shuffle(&mut browsers);
        // Who has a session comes first: of the others there is nothing to say.
        browsers.sort_by_key(|browser| self.browsers[*browser].session.is_none());
        let second = browsers.len() / 2;
        let chosen = [&browsers[..2], &browsers[second..second + 3]].concat();
        let page = 1_000 + usize::try_from(self.oops).unwrap();
        let pending = chosen.into_iter().map(|browser| {
            let asked = self.asks(browser, Kind::Oops, page);
            self.send(Asked { proxy, ..asked })
        });
        let pending = pending.collect();
        self.finish(pending);
    }

    /// A purge while requests are under way.
    fn purge(&mut self) {
        self.tally.purges += 1;
        let pending = self.send_burst();
        let (kind, page) = self.any_page();
        let word = kind.word();
        let order = match self.rng.u8(..5) {
            0 => "{\"all\":true".to_owned(),
            1 => format!("{{\"tags\":[\"{word}\"]"),
            _ => format!("{{\"urls\":[\"http://shop.test/{word}/{page}\"]"),
        };
        let is_hard = self.rng.bool();
        let proxy = self.rng.usize(..self.proxies.len());
        let answer = self.order(proxy, "/purge", &format!("{order},\"hard\":{is_hard}}}"));
        if answer.status != 200 {
            self.is_wrong(&format!("a purge came to {answer:?}"));
        }
        self.finish(pending);
    }

    fn order(&self, proxy: usize, path: &str, order: &str) -> Answer {
        let ask = self.proxies[proxy].admin(path).method("POST").body(order.as_bytes());
        let ask = ask.header("Content-Type", "application/json");
        ask.header("Authorization", &format!("Bearer {TOKEN}")).send()
    }

    /// All sessions of a user end, as far as they are known.
    fn revoke(&mut self) {
        let user = self.rng.usize(..USERS);
        let name = self.world.state().users[user].name.clone();
        let mut known = Vec::new();
        for browser in user * BROWSERS_EACH..(user + 1) * BROWSERS_EACH {
            let Some(session) = self.browsers[browser].session else { continue };
            self.world.state().sessions[session].is_unclear = true;
            let asked = self.does(browser, "GET", "/_anteroom/me".to_owned(), Does::Nothing);
            let pending = self.send(asked);
            if self.finish_one(pending).is_some_and(|answer| plain(&answer).contains(&name)) {
                known.push(session);
            }
        }
        let proxy = self.rng.usize(..self.proxies.len());
        let answer = self.order(proxy, "/sessions/revoke", &format!("{{\"user\":\"{name}\"}}"));
        self.tell(&format!("{name} is revoked: {} {}", answer.status, answer.text()));
        if answer.status != 200 {
            self.is_wrong(&format!("a revocation came to {answer:?}"));
        }
        let mut state = self.world.state();
        for session in known {
            self.tally.revoked += 1;
            state.sessions[session].ended.get_or_insert_with(Instant::now);
            // Barred is barred, whatever the app says.
            state.sessions[session].is_kept = false;
        }
    }

    /// Somebody comes with cookies of those who have logged out.
    fn steal(&mut self) {
        for _ in 0..3 {
            let over: Vec<usize> = {
                let state = self.world.state();
                let numbers = 0..state.sessions.len();
                let is_over = |number: &usize| {
                    state.sessions[*number].ended.is_some_and(|it| it.elapsed() >= SECOND)
                };
                numbers.filter(is_over).collect()
            };
            if over.is_empty() {
                return;
            }
            let session = over[self.rng.usize(..over.len())];
            self.come_with(session);
        }
    }

    /// The cookie of a session comes to all proxies at once.
    fn come_with(&mut self, session: usize) {
        let pending: Vec<_> = (0..self.proxies.len())
            .flat_map(|proxy| [(proxy, None), (proxy, Some(Kind::None)), (proxy, Some(Kind::My))])
            .collect();
        let mut pending: Vec<_> = pending
            .into_iter()
            .map(|(proxy, kind)| {
                let (any, page) = self.any_page();
                let asked = self.asks(THIEF, kind.unwrap_or(any), page);
                self.send(Asked { proxy, session: Some(session), ..asked })
            })
            .collect();
        let asked = self.does(THIEF, "GET", "/_anteroom/me".to_owned(), Does::Nothing);
        pending.push(self.send(Asked { session: Some(session), ..asked }));
        self.tally.over += 1;
        self.finish(pending);
    }

    fn fault(&mut self) {
        self.tally.faults += 1;
        let all = match self.storage {
            Storage::Redis(_) => 7,
            Storage::Embedded => 5,
        };
        let fault = match self.rng.u8(..all) {
            0 => Fault::Origin(Health::Failing),
            1 => Fault::Origin(Health::Breaking),
            2 => Fault::Origin(Health::Slow),
            3 | 4 => Fault::ProxyDies,
            5 => Fault::RedisPauses,
            _ => Fault::RedisDies,
        };
        self.tell(&format!("{fault:?}"));
        self.is_well = false;
        match fault {
            Fault::Origin(health) => {
                self.world.state().health = health;
                self.burst();
                self.burst();
                self.log_in_or_out();
                self.world.state().health = Health::Well;
            }
            Fault::ProxyDies => {
                let pending = self.send_burst();
                let dying = self.rng.usize(..self.proxies.len());
                self.proxies[dying].kill9();
                self.finish(pending);
                self.proxies[dying].restart();
            }
            Fault::RedisPauses | Fault::RedisDies => {
                self.has_store = false;
                let pending = self.send_burst();
                self.redis(|server| match fault {
                    Fault::RedisPauses => server.pause(),
                    _ => server.kill(),
                });
                self.finish(pending);
                self.log_in_or_out();
                self.burst();
                self.redis(|server| match fault {
                    Fault::RedisPauses => server.resume(),
                    _ => server.restart(),
                });
                self.recover();
                self.has_store = true;
            }
        }
        self.is_well = true;
        self.tell("all is well");
    }

    fn redis(&mut self, does: impl FnOnce(&mut crate::support::redis::RedisServer)) {
        if let Storage::Redis(server) = &mut self.storage {
            does(server);
        }
    }

    /// Waits until every thread of every proxy asks the store again.
    fn recover(&mut self) {
        for proxy in 0..self.proxies.len() {
            let mut well = 0;
            wait_until("the store is back", || {
                self.asked += 1;
                let proxy = &self.proxies[proxy];
                let probe = format!("SID=a-probe-of-the-store-{}", self.asked);
                let me = proxy.get("/_anteroom/me").cookie(&probe).send().text();
                well = if me.contains("\"session\":\"none\"") { well + 1 } else { 0 };
                well >= 10
            });
        }
    }

    fn send(&mut self, asked: Asked) -> Pending {
        self.asked += 1;
        let browser = &self.browsers[asked.browser];
        let id = asked.session.map(|session| self.world.state().sessions[session].id.clone());
        let id = id.or_else(|| browser.junk.clone());
        let mut ask = self.proxies[asked.proxy].ask(asked.method, &asked.path);
        let theme = asked.has_theme.then(|| "theme=dark".to_owned());
        let cookies =
            ["_ga=1".to_owned()].into_iter().chain(id.iter().map(|id| format!("SID={id}")));
        let token = browser.token.as_ref().map(|token| format!("anteroom_visitor={token}"));
        let cookies: Vec<_> = cookies.chain(theme).chain(token).collect();
        ask = ask.cookie(&cookies.join("; "));
        // Two users at one place prove nothing of their segment's page.
        ask = ask.header("X-Forwarded-For", &format!("192.0.2.{}", asked.browser + 1));
        if asked.kind == Some(Kind::Oops)
            && let Some(id) = &id
        {
            ask = ask.header("X-Echo", id);
        }
        if asked.is_zipped {
            ask = ask.header("Accept-Encoding", "gzip");
        }
        if asked.method == "POST" {
            ask = ask.body(b"");
        }
        if asked.method == "PUT" {
            let mark = self.world.state().mark(Owner::Browser(asked.browser));
            // As many as there may be: with them no sum is somebody's count.
            let change = format!("{{\"item\":\"{mark}\",\"count\":1000000}}");
            ask = ask.header("Sec-Fetch-Site", "same-origin").body(change.as_bytes());
            ask = ask.header("Content-Type", "application/json");
        }
        self.tell(&asked.text());
        let asked = Asked { sent: Instant::now(), ..asked };
        Pending { asked, client: ask.start() }
    }

    fn finish(&mut self, pending: Vec<Pending>) {
        for one in pending {
            drop(self.finish_one(one));
        }
    }

    /// Reads an answer, and looks at it.
    fn finish_one(&mut self, mut pending: Pending) -> Option<Answer> {
        let answer = pending.client.try_answer(pending.asked.method);
        let asked = pending.asked;
        let Some(answer) = answer.filter(|answer| asked.method == "GET" || answer.body.whole)
        else {
            self.tally.unanswered += 1;
            if asked.is_well {
                self.is_wrong(&format!("no answer to {}", asked.text()));
            }
            self.gives_up(&asked);
            return None;
        };
        let status = answer.cache_status().to_owned();
        self.tell(&format!("{} for {}: {status}", answer.status, asked.text()));
        self.tally.answers += 1;
        let mut state = self.world.state();
        let checked = check(&mut state, &asked, &answer);
        let is_shareable = asked.is_shareable(&state);
        drop(state);
        match checked {
            Ok(is_known) => self.tally.known += u64::from(is_known),
            Err(wrong) => self.is_wrong(&format!("{wrong}\n{}", asked.text())),
        }
        self.tally.waited += u64::from(status.contains("collapsed"));
        if is_shareable && answer.status == 200 {
            self.tally.shareable += 1;
            self.tally.hits += u64::from(answer.is_hit());
        }
        self.heed(&asked, &answer);
        Some(answer)
    }

    /// Nobody knows what became of it: the browser begins anew.
    fn gives_up(&mut self, asked: &Asked) {
        if asked.does != Does::Nothing {
            self.browsers[asked.browser].session = None;
        }
    }

    /// What an answer does to the browser and its session.
    fn heed(&mut self, asked: &Asked, answer: &Answer) {
        let now = Instant::now();
        let mut state = self.world.state();
        let set = answer.cookie("SID");
        let jar = &mut self.browsers[asked.browser].session;
        if asked.browser != THIEF
            && let Some(id) = &set
        {
            match state.session_of(id) {
                Some(given) => *jar = Some(given),
                // It is taken away.
                None if *jar == asked.session => *jar = None,
                None => {}
            }
        }
        if let Some(token) = answer.cookie("anteroom_visitor") {
            let held = &mut self.browsers[asked.browser].token;
            if token.is_empty() {
                self.tally.merged += u64::from(held.is_some());
                *held = None;
            } else if state.given(&token, asked.browser) {
                self.tally.tokens += 1;
                *held = Some(token);
            } else {
                drop(state);
                return self.is_wrong("a token is given to two");
            }
        }
        let is_done = answer.status == 303;
        match asked.does {
            Does::Nothing => {}
            Does::LogIn(_) if is_done => {
                self.tally.log_ins += 1;
                let given = set.and_then(|id| state.session_of(&id));
                let Some(session) = given.or(asked.session) else { return };
                let session = &mut state.sessions[session];
                let is_sure = session.ended.is_none() && asked.has_store;
                session.known = Some(now);
                session.is_unclear = !is_sure;
            }
            Does::LogOut(how) if is_done => {
                self.tally.log_outs += 1;
                let Some(session) = asked.session.filter(|_| asked.has_store) else { return };
                let session = &mut state.sessions[session];
                if session.ended.is_none() {
                    session.ended = Some(now);
                    session.is_kept = how == LogOut::Keeps;
                }
            }
            Does::LogIn(_) | Does::LogOut(_) => {
                drop(state);
                self.gives_up(asked);
            }
        }
    }

    fn is_wrong(&mut self, wrong: &str) {
        self.wrong.get_or_insert_with(|| wrong.to_owned());
    }

    fn tell(&mut self, told: &str) {
        if self.wrong.is_some() {
            return;
        }
        let after = self.began.elapsed().as_millis();
        self.told.push(format!("{after} ms: {told}"));
    }
}
