//! What happens, by chance.

mod cart;
mod fail;

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use regex::Regex;
use tempfile::TempDir;

use self::fail::Fault;
use crate::app::{self, KINDS, Kind, SETTINGS, VISITOR};
use crate::check::{AnswerContent, Copy, Does, SECOND, SentRequest, check, plain};
use crate::support::client::{Answer, Ask, Client};
use crate::support::origin::{Gate, Origin};
use crate::support::proxy::{Proxy, Storage};
use crate::support::{holds_within, wait_until};
use crate::tally::Tally;
use crate::world::{LogOut, SessionEnd, State, USERS, World, between};

/// Browsers of each user, those of strangers, and one with cookies of others.
const BROWSERS_EACH: usize = 2;
const STRANGERS: usize = 5;
const THIEF: usize = USERS * BROWSERS_EACH + STRANGERS;

/// The token that may purge.
const TOKEN: &str = "the-token-of-the-operator";
/// Pages of a kind.
const PAGES: usize = 3;
/// In a round of so many steps each of these is forced once; else it goes by chance.
const ROUND: u64 = 26;
const PURGED_AT: u64 = 10;
const REVOKED_AT: u64 = 15;
const AT_HOME_AT: [u64; 2] = [14, 24];
const LOGGED_OUT_AT: [u64; 2] = [5, 20];
const CART_AT: [u64; 3] = [3, 12, 18];
/// A connection is used again that has rested for less: the proxies end those that rest for long.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// For so long a proxy does not ask the app again about a visitor after an unclear answer, and a little
/// longer for the clocks' sake.
const UNCLEAR_FOR: Duration = Duration::from_millis(2_100);
/// For so long it is remembered at least what the app has said: less than `verify_every`.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// What a proxy counts where the store could not be read, and how many answers that excuses.
const READ_ERRORS: &str = "anteroom_store_read_errors_total";
const EXCUSED_MAX: usize = 8;
/// So much of what happened is told with what was wrong.
const TOLD_MAX: usize = 60;

/// A browser.
struct Browser {
    user: Option<usize>,
    session: Option<usize>,
    /// A session cookie that the app has not given out.
    junk: Option<String>,
    /// What the proxies know it by without a login.
    token: Option<String>,
    /// What it has put into its cart last.
    put: Option<String>,
    /// The same where it was acknowledged, and must be there.
    in_cart: Option<String>,
    /// What it had put there before its last logout.
    left: Option<String>,
}

/// A request on its way.
struct PendingRequest {
    asked: SentRequest,
    client: Client,
    /// Of what puts something into a cart, while all is well: how often the proxy could not read the store before.
    read_errors: Option<f64>,
}

/// Everything.
pub(crate) struct Play {
    rng: Rng,
    world: Arc<World>,
    proxies: Vec<Proxy>,
    storage: Storage,
    browsers: Vec<Browser>,
    /// Connections to each proxy that rest, of all browsers': as behind a load balancer.
    idle: Vec<Vec<(Client, Instant)>>,
    /// What browsers have kept, by the path.
    copies: HashMap<(usize, String), Copy>,
    /// Sessions that were logged out while the store was away, where, and whether the cookie stays.
    waiting: Vec<(usize, usize, bool)>,
    /// Those of which the store has heard meanwhile.
    ended_late: Vec<usize>,
    /// Visitors' tokens that went with a login.
    joined: Vec<String>,
    /// How often each proxy could not read the store, when that was looked at last.
    read_errors: Vec<f64>,
    /// How many answers were excused by that.
    excuses: usize,
    /// When the app was well again.
    app_failed: Option<Instant>,
    /// How often something has failed.
    failed: usize,
    step: u64,
    asked: u64,
    oops: u64,
    is_well: bool,
    has_store: bool,
    began: Instant,
    told: Vec<String>,
    wrong: Option<String>,
    sought: Option<Regex>,
    /// The first that was wrong and not sought.
    pub(crate) passed_over: Option<String>,
    pub(crate) tally: Tally,
    _origin: Origin,
    _folder: TempDir,
}

impl Play {
    /// `sought`: what is wrong otherwise is passed over.
    pub(crate) fn new(seed: u64, storage: Storage, proxies: usize, sought: Option<Regex>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let world = Arc::new(World::new(rng.u64(..), THIEF + 1));
        let origin = app::start(&world);
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, TOKEN).unwrap();
        let settings = format!("admin.token = {{ file = \"{}\" }}\n{SETTINGS}", file.display());
        let proxies: Vec<_> =
            (0..proxies).map(|_| Proxy::start(&origin, &storage, &settings)).collect();
        let browsers = (0..=THIEF).map(|number| Browser {
            user: Some(number / BROWSERS_EACH).filter(|user| *user < USERS),
            session: None,
            junk: (number + 2 == THIEF).then(|| "sid-of-a-stranger".to_owned()),
            token: None,
            put: None,
            in_cart: None,
            left: None,
        });
        let away =
            matches!(storage, Storage::Redis(_)).then(|| "logout without the store".to_owned());
        let tried = Fault::all(&storage).iter().map(|fault| fault.name()).chain(away);
        Self {
            tally: Tally::new(tried),
            idle: proxies.iter().map(|_| Vec::new()).collect(),
            copies: HashMap::new(),
            waiting: Vec::new(),
            ended_late: Vec::new(),
            joined: Vec::new(),
            read_errors: vec![0.0; proxies.len()],
            excuses: 0,
            app_failed: None,
            failed: 0,
            sought,
            passed_over: None,
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
        match self.step % ROUND {
            0 => self.fault(),
            PURGED_AT => self.purge(),
            REVOKED_AT => self.revoke(),
            at if AT_HOME_AT.contains(&at) => {
                self.wait_for_somebody();
                self.at_home();
            }
            at if LOGGED_OUT_AT.contains(&at) => self.log_out(),
            at if CART_AT.contains(&at) => self.cart(),
            _ => self.by_chance(),
        }
    }

    fn by_chance(&mut self) {
        match self.rng.u8(..100) {
            0..36 => self.burst(),
            36..54 => self.log_in_or_out(),
            54..60 => self.change(),
            60..75 => self.at_home(),
            75..82 => self.oops(),
            82..88 => self.purge(),
            _ => self.steal(),
        }
    }

    /// A logged-out session is anonymous, and a logged-in one is known, at every proxy.
    pub(crate) fn end(&mut self) {
        self.step += 1;
        let over = self.over(Duration::ZERO);
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
                    self.send(SentRequest { proxy, ..asked })
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

    fn send_burst(&mut self) -> Vec<PendingRequest> {
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

    fn asks(&mut self, browser: usize, kind: Kind, page: usize) -> SentRequest {
        let path = format!("/{}/{page}", kind.word());
        let copy = self.copies.get(&(browser, path.clone())).cloned();
        SentRequest {
            browser,
            session: self.browsers[browser].session,
            proxy: self.rng.usize(..self.proxies.len()),
            method: if self.rng.u8(..16) == 0 { "HEAD" } else { "GET" },
            copy: copy.filter(|_| self.rng.u8(..3) == 0),
            token: None,
            puts: None,
            in_cart: None,
            left: None,
            path,
            kind: Some(kind),
            does: Does::Nothing,
            has_theme: self.rng.u8(..10) == 0,
            has_credentials: self.rng.u8(..16) == 0,
            is_zipped: self.rng.u8(..5) == 0,
            sent: Instant::now(),
            is_well: self.is_well,
            is_settled: self.is_well && self.app_failed.is_none_or(|it| it.elapsed() > UNCLEAR_FOR),
            has_store: self.has_store,
        }
    }

    /// A browser that asks for something else than a page.
    fn does(
        &mut self,
        browser: usize,
        method: &'static str,
        path: String,
        does: Does,
    ) -> SentRequest {
        let asked = self.asks(browser, Kind::None, 0);
        SentRequest { method, path, does, kind: None, copy: None, ..asked }
    }

    /// The browser of a logged-in user, where there is one: of those first who must be known by now.
    fn any_known(&mut self) -> Option<usize> {
        let known = self.known();
        let is_in = |browser: &usize| self.is_in(*browser);
        let of: Vec<_> = match known.is_empty() {
            true => (0..USERS * BROWSERS_EACH).filter(is_in).collect(),
            false => known,
        };
        (!of.is_empty()).then(|| of[self.rng.usize(..of.len())])
    }

    /// The browsers of those who must be known by now.
    fn known(&mut self) -> Vec<usize> {
        let asked: Vec<_> =
            (0..USERS * BROWSERS_EACH).map(|browser| self.asks(browser, Kind::My, 0)).collect();
        let state = self.world.state();
        let known = asked.iter().filter(|asked| asked.known(&state).is_some());
        known.map(|asked| asked.browser).collect()
    }

    /// Where anybody has logged in, the proxies are to know it.
    fn wait_for_somebody(&mut self) {
        let comes = |browser: usize| {
            let session = self.browsers[browser].session?;
            let session = &self.world.state().sessions[session];
            (!session.is_unclear && session.ended.is_none()).then_some(session.known?)
        };
        if (0..USERS * BROWSERS_EACH).any(|browser| comes(browser).is_some()) {
            let settled = self.app_failed.map(|failed| failed + UNCLEAR_FOR);
            wait_until("somebody is known", || {
                let is_settled = settled.is_none_or(|it| Instant::now() > it);
                is_settled && !self.known().is_empty()
            });
        }
    }

    /// Whether a login of that browser's was acknowledged, and no logout was.
    fn is_in(&self, browser: usize) -> bool {
        self.browsers[browser].session.is_some_and(|session| {
            let session = &self.world.state().sessions[session];
            session.known.is_some() && session.ended.is_none()
        })
    }

    /// A user logs in or out.
    fn log_in_or_out(&mut self) {
        // Of two, so that more are in than out.
        let [one, other] = [(); 2].map(|()| self.rng.usize(..USERS * BROWSERS_EACH));
        let browser = if self.is_in(one) { other } else { one };
        match self.is_in(browser) {
            true => self.changes_session(browser, Self::logs_out),
            false => self.changes_session(browser, Self::logs_in),
        }
    }

    /// A user logs out, where any can.
    fn log_out(&mut self) {
        match self.any_known() {
            Some(browser) => self.changes_session(browser, Self::logs_out),
            None => self.log_in_or_out(),
        }
    }

    /// A browser's session changes, while it asks for pages, and others do.
    fn changes_session(&mut self, browser: usize, how: fn(&mut Self, usize) -> SentRequest) {
        let [before, behind] = [(); 2].map(|()| self.rng.usize(..3));
        let change = how(self, browser);
        if let Does::LogOut(_) = change.does {
            // So that the user is remembered there.
            let me = self.does(browser, "GET", "/_anteroom/me".to_owned(), Does::Me);
            let pending = vec![self.send(SentRequest { proxy: change.proxy, ..me })];
            self.finish(pending);
        }
        let mut pending: Vec<_> = (0..before).map(|_| self.his(browser)).collect();
        self.begins(&change);
        let session = change.session;
        pending.push(self.send(change));
        let mut others: Vec<_> = (0..behind).map(|_| self.his(browser)).collect();
        others.extend(self.send_burst());
        self.finish(pending);
        // Before the others are read, which takes a second now and then.
        if let Some(session) = session {
            self.is_over_at_once(session);
        }
        self.finish(others);
    }

    fn logs_in(&mut self, browser: usize) -> SentRequest {
        // A visitor without a session gets one now and then, which may be kept at the login.
        if self.rng.bool() {
            let asked = self.asks(browser, Kind::None, 0);
            let pending = vec![self.send(asked)];
            self.finish(pending);
        }
        let user = self.browsers[browser].user.expect("strangers come behind");
        let keeps = if self.rng.u8(..3) > 0 { "keeps" } else { "gives" };
        self.does(browser, "POST", format!("/login?{user}-{keeps}"), Does::LogIn(user))
    }

    fn logs_out(&mut self, browser: usize) -> SentRequest {
        let how = LogOut::ALL[self.rng.usize(..LogOut::ALL.len())];
        self.logs_out_so(browser, how)
    }

    fn logs_out_so(&mut self, browser: usize, how: LogOut) -> SentRequest {
        self.does(browser, "POST", format!("/logout/{}", how.word()), Does::LogOut(how))
    }

    /// A request of that browser for anything.
    fn his(&mut self, browser: usize) -> PendingRequest {
        let (kind, page) = self.any_page();
        let asked = self.asks(browser, kind, page);
        self.send(asked)
    }

    /// What a login or a logout makes unclear until it is answered.
    fn begins(&mut self, asked: &SentRequest) {
        self.may_lose_cart(asked);
        let mut state = self.world.state();
        let Some(session) = asked.session.map(|session| &mut state.sessions[session]) else {
            return;
        };
        session.is_unclear = true;
        // A cart goes with its session.
        session.in_cart = None;
        if let Does::LogIn(_) = asked.does {
            session.known = None;
            if session.is_kept {
                session.ended = None;
            }
        }
    }

    fn change(&mut self) {
        let browser = self.rng.usize(..THIEF);
        let (path, does) =
            if self.rng.bool() { ("/buy", Does::Buy) } else { ("/change/1", Does::Nothing) };
        let asked = self.does(browser, "POST", path.to_owned(), does);
        let mut pending = vec![self.send(asked)];
        pending.extend(self.send_burst());
        self.finish(pending);
    }

    /// A known user buys, and looks at personal pages; others ask for theirs.
    fn at_home(&mut self) {
        let Some(browser) = self.any_at_home() else { return self.log_in_or_out() };
        let me = self.does(browser, "GET", "/_anteroom/me".to_owned(), Does::Me);
        let buys = self.does(browser, "POST", "/buy".to_owned(), Does::Buy);
        for asked in [me, buys] {
            let pending = vec![self.send(asked)];
            self.finish(pending);
        }
        let proxy = self.rng.usize(..self.proxies.len());
        let (_, page) = self.any_page();
        // Twice: the user's own page is kept.
        for _ in 0..2 {
            let other = match self.rng.bool() {
                true => self.any_known().unwrap_or(browser),
                false => self.rng.usize(..THIEF),
            };
            let mut asked = Vec::new();
            for kind in [Kind::My, Kind::Holes, Kind::Segment, Kind::None] {
                asked.push(self.asks(browser, kind, page % PAGES));
                asked.push(self.asks(other, kind, page));
            }
            for (path, does) in [("me", Does::Me), ("cart", Does::Cart), ("recent", Does::Recent)] {
                let path = format!("/_anteroom/{path}");
                asked.push(self.does(browser, "GET", path.clone(), does));
                asked.push(self.does(other, "GET", path, does));
            }
            let pending = asked.into_iter().map(|asked| self.send(SentRequest { proxy, ..asked }));
            let pending = pending.collect();
            self.finish(pending);
        }
    }

    /// A page that was never seen yet, and that names its visitor: those who wait must not see it.
    fn oops(&mut self) {
        self.oops += 1;
        let proxy = self.rng.usize(..self.proxies.len());
        let mut browsers: Vec<_> = (0..THIEF).collect();
        self.rng.shuffle(&mut browsers);
        // Visitors with a session come first: of the others there is nothing to say.
        browsers.sort_by_key(|browser| self.browsers[*browser].session.is_none());
        let second = browsers.len() / 2;
        let chosen = [&browsers[..2], &browsers[second..second + 3]].concat();
        let page = 1_000 + usize::try_from(self.oops).unwrap();
        let gate = Gate::closed();
        {
            let mut state = self.world.state();
            (state.gate, state.at_gate) = (Arc::clone(&gate), 0);
        }
        let count = chosen.len();
        let pending = chosen.into_iter().map(|browser| {
            let asked = self.asks(browser, Kind::Oops, page);
            self.send(SentRequest { proxy, method: "GET", ..asked })
        });
        let pending = pending.collect();
        // All have come, to the app or to the fetch for all; where something fails some may not.
        holds_within(if self.is_well { SECOND } else { Duration::ZERO }, || {
            let waiting = self.proxies[proxy].metric("anteroom_waiting");
            self.world.state().at_gate as f64 + waiting >= count as f64
        });
        gate.open();
        self.finish(pending);
    }

    /// A purge while requests are under way.
    fn purge(&mut self) {
        self.tally.count("purge");
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
        let known = self.any_known().and_then(|browser| self.browsers[browser].user);
        let user = known.unwrap_or_else(|| self.rng.usize(..USERS));
        let name = self.world.state().users[user].name.clone();
        let mut known = Vec::new();
        for browser in user * BROWSERS_EACH..(user + 1) * BROWSERS_EACH {
            self.browsers[browser].in_cart = None;
            let Some(session) = self.browsers[browser].session else { continue };
            self.world.state().sessions[session].is_unclear = true;
            let asked = self.does(browser, "GET", "/_anteroom/me".to_owned(), Does::Me);
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
        for session in &known {
            self.tally.count("revoked");
            let session = &mut self.world.state().sessions[*session];
            session.ended.get_or_insert_with(|| SessionEnd { at: Instant::now(), proxy });
            // Revoked is revoked, whatever the app says.
            session.is_kept = false;
        }
        for session in known {
            self.is_over_at_once(session);
        }
    }

    /// A browser comes with cookies of users who have logged out.
    fn steal(&mut self) {
        self.steal_token();
        for _ in 0..3 {
            let over = self.over(SECOND);
            if over.is_empty() {
                return;
            }
            let session = over[self.rng.usize(..over.len())];
            self.come_with(session);
        }
    }

    /// The sessions whose end lies so far back.
    fn over(&self, since: Duration) -> Vec<usize> {
        let state = self.world.state();
        let is_over = |number: &usize| {
            state.sessions[*number].ended.is_some_and(|ended| ended.at.elapsed() >= since)
        };
        (0..state.sessions.len()).filter(is_over).collect()
    }

    /// The cookie of a session comes to all proxies.
    fn come_with(&mut self, session: usize) {
        self.tally.count("over");
        for proxy in 0..self.proxies.len() {
            self.come_to(proxy, session);
        }
    }

    /// Where a session was ended, it is over at once.
    fn is_over_at_once(&mut self, session: usize) {
        let ended = self.world.state().sessions[session].ended;
        let Some(ended) = ended.filter(|_| self.has_store) else { return };
        self.tally.count("over at once");
        self.come_to(ended.proxy, session);
    }

    /// The cookie of a session comes to a proxy, from another browser.
    fn come_to(&mut self, proxy: usize, session: usize) {
        let (any, page) = self.any_page();
        let asked = [Kind::None, Kind::My, any].map(|kind| self.asks(THIEF, kind, page));
        let me = self.does(THIEF, "GET", "/_anteroom/me".to_owned(), Does::Me);
        let pending = asked.into_iter().chain([me]).map(|asked| {
            self.send(SentRequest { proxy, session: Some(session), copy: None, ..asked })
        });
        let pending = pending.collect();
        self.finish(pending);
    }

    fn send(&mut self, asked: SentRequest) -> PendingRequest {
        self.asked += 1;
        let asked = self.with_token(asked);
        let ask = self.ask(&asked);
        let mut client = self.connection(asked.proxy);
        self.tell(&asked.text());
        let recognised =
            asked.session.and_then(|session| self.world.state().sessions[session].recognised);
        let is_told = recognised.is_some_and(|at| at.elapsed() < REMEMBERED_FOR);
        let is_settled = asked.is_settled && is_told;
        let asked = SentRequest { sent: Instant::now(), is_settled, ..asked };
        let is_sure = asked.does == Does::Buy && asked.is_well;
        let read_errors = is_sure.then(|| self.proxies[asked.proxy].metric(READ_ERRORS));
        ask.start_on(&mut client);
        PendingRequest { asked, client, read_errors }
    }

    fn ask(&self, asked: &SentRequest) -> Ask {
        let state = self.world.state();
        let brought = &state.browsers[asked.browser];
        let id = asked.session.map(|session| state.sessions[session].id.clone());
        let id = id.or_else(|| self.browsers[asked.browser].junk.clone());
        let cookies = [
            Some(format!("_ga={}", brought.counted)),
            id.as_ref().map(|id| format!("SID={id}")),
            asked.has_theme.then(|| format!("theme={}", brought.theme)),
            asked.token.as_ref().map(|token| format!("{VISITOR}={token}")),
        ];
        let cookies: Vec<_> = cookies.into_iter().flatten().collect();
        // Two users at one place prove nothing of their segment's page.
        let address = format!("192.0.2.{}", asked.browser + 1);
        let mut ask = self.proxies[asked.proxy]
            .ask(asked.method, &asked.path)
            .cookie(&cookies.join("; "))
            .header("X-Forwarded-For", &address)
            .header("TE", "trailers");
        if asked.has_credentials {
            ask = ask.header("Authorization", &format!("Bearer {}", brought.credentials));
        }
        if let (Some(Kind::Oops), Some(id)) = (asked.kind, &id) {
            ask = ask.header("X-Echo", id);
        }
        if asked.is_zipped {
            ask = ask.header("Accept-Encoding", "gzip");
        }
        if let Some(copy) = &asked.copy {
            ask = ask.header("If-None-Match", &copy.tag);
        }
        match &asked.puts {
            Some(item) => ask
                .header("Sec-Fetch-Site", "same-origin")
                .header("Content-Type", "application/json")
                .body(self.change_of_cart(asked.browser, item).as_bytes()),
            None if asked.method == "POST" => ask.body(b""),
            None => ask,
        }
    }

    /// One that another browser may have used before.
    fn connection(&mut self, proxy: usize) -> Client {
        let idle = &mut self.idle[proxy];
        idle.retain(|(_, since)| since.elapsed() < KEPT_FOR);
        match idle.len() {
            0 => self.proxies[proxy].connect(),
            many => idle.swap_remove(self.rng.usize(..many)).0,
        }
    }

    fn finish(&mut self, pending: Vec<PendingRequest>) {
        for one in pending {
            drop(self.finish_one(one));
        }
        let wrong = self.world.state().wrong.take();
        if let Some(wrong) = wrong {
            self.is_wrong(&wrong);
        }
    }

    /// Reads an answer, and looks at it.
    fn finish_one(&mut self, pending: PendingRequest) -> Option<Answer> {
        let PendingRequest { asked, mut client, read_errors } = pending;
        let Some(answer) = client.try_answer(asked.method) else {
            self.tally.unanswered += 1;
            if asked.is_well {
                self.is_wrong(&format!("no answer to {}", asked.text()));
            }
            self.gives_up(&asked);
            return None;
        };
        if stays_open(&asked, &answer) {
            self.idle[asked.proxy].push((client, Instant::now()));
        }
        let status = answer.cache_status();
        self.tell(&format!("{} for {}: {status}", answer.status, asked.text()));
        let state = self.world.state();
        let checked = check(&state, &asked, &answer);
        let is_shareable = asked.is_shareable(&state);
        drop(state);
        match checked.or_else(|wrong| self.excused(&asked, &answer, wrong)) {
            Ok(seen) => self.tally.answer(&asked, &answer, seen),
            Err(wrong) => self.is_wrong(&format!("{wrong}\n{}", asked.text())),
        }
        if is_shareable {
            self.tally.shareable(&asked, &answer);
        }
        if asked.method == "POST" && !answer.body.whole {
            self.gives_up(&asked);
            return None;
        }
        self.keep(&asked, &answer);
        self.heed_token(&asked, &answer);
        let has_read = read_errors
            .is_some_and(|before| self.proxies[asked.proxy].metric(READ_ERRORS) <= before);
        self.heed(&asked, &answer, has_read);
        Some(answer)
    }

    /// What would be right without the store is right where the proxy says that it could not be read: a busy
    /// machine stops everything for a second now and then.
    fn excused(
        &mut self,
        asked: &SentRequest,
        answer: &Answer,
        wrong: String,
    ) -> Result<AnswerContent, String> {
        let away =
            SentRequest { has_store: false, is_well: false, is_settled: false, ..asked.clone() };
        let without = check(&self.world.state(), &away, answer);
        let Some(seen) = without.ok().filter(|_| asked.is_well) else { return Err(wrong) };
        let errors = self.proxies[asked.proxy].metric(READ_ERRORS);
        // Each excuses one answer: several are under way at a time, and all their errors may be counted by now.
        let excusing = &mut self.read_errors[asked.proxy];
        if errors <= *excusing {
            return Err(wrong);
        }
        *excusing += 1.0;
        self.excuses += 1;
        if self.excuses <= EXCUSED_MAX {
            self.tell(&format!("excused, for the store could not be read: {wrong:.100}"));
            return Ok(seen);
        }
        Err(wrong)
    }

    /// From now on the store can be read.
    fn store_is_read(&mut self) {
        self.read_errors = self.proxies.iter().map(|proxy| proxy.metric(READ_ERRORS)).collect();
    }

    /// The browser keeps the page, to ask later whether it is as it was.
    fn keep(&mut self, asked: &SentRequest, answer: &Answer) {
        let is_page = asked.kind.is_some_and(|kind| kind != Kind::Oops) && asked.method == "GET";
        if asked.browser == THIEF || !is_page || answer.status != 200 || !answer.body.whole {
            return;
        }
        let place = (asked.browser, asked.path.clone());
        match answer.header("etag") {
            Some(tag) => {
                let copy = Copy { tag: tag.to_owned(), body: plain(answer) };
                self.copies.insert(place, copy);
            }
            None => drop(self.copies.remove(&place)),
        }
    }

    /// The outcome is unknown: the browser begins again.
    fn gives_up(&mut self, asked: &SentRequest) {
        if asked.does != Does::Nothing {
            let browser = &mut self.browsers[asked.browser];
            browser.session = None;
            browser.token = None;
            browser.in_cart = None;
        }
    }

    /// What an answer does to the browser and its session; `has_read`: the proxy could read the store all the while.
    /// Where it could not, it may not have known the visitor, and then nothing was put into a cart.
    fn heed(&mut self, asked: &SentRequest, answer: &Answer, has_read: bool) {
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
        let is_done = answer.status == 303;
        note_recognised(&mut state, asked, answer, now);
        match asked.does {
            Does::Nothing | Does::Me | Does::Cart | Does::Recent => {}
            Does::Put => {
                let is_sure = answer.status == 200 && asked.is_without_login(&state);
                drop(state);
                self.has_put(asked, is_sure);
            }
            Does::Buy => {
                let Some(session) = asked.session else { return };
                let is_known = asked.is_settled && asked.known(&state).is_some();
                let is_sure = is_done && is_known && has_read;
                let session = &mut state.sessions[session];
                session.in_cart = session.bought.clone().filter(|_| is_sure);
            }
            Does::LogIn(_) if is_done => {
                let given = set.and_then(|id| state.session_of(&id));
                let Some(session) = given.or(asked.session) else { return };
                let session = &mut state.sessions[session];
                let is_sure = session.ended.is_none() && asked.has_store;
                session.known = Some(now);
                session.is_unclear = !is_sure;
            }
            Does::LogOut(how) if is_done => {
                let Some(number) = asked.session else { return };
                let session = &mut state.sessions[number];
                let is_kept = how == LogOut::Keeps;
                if !asked.has_store {
                    self.waiting.push((number, asked.proxy, is_kept));
                } else if session.ended.is_none() {
                    session.ended = Some(SessionEnd { at: now, proxy: asked.proxy });
                    session.is_kept = is_kept;
                }
            }
            Does::LogIn(_) | Does::LogOut(_) => {
                drop(state);
                self.gives_up(asked);
            }
        }
    }

    fn is_wrong(&mut self, wrong: &str) {
        if self.sought.as_ref().is_none_or(|sought| sought.is_match(wrong)) {
            self.wrong.get_or_insert_with(|| wrong.to_owned());
        } else {
            self.passed_over.get_or_insert_with(|| format!("step {}: {wrong}", self.step));
        }
    }

    fn tell(&mut self, told: &str) {
        if self.wrong.is_some() {
            return;
        }
        let after = self.began.elapsed().as_millis();
        self.told.push(format!("{after} ms: {told}"));
    }
}

/// Notes that an answer shows its visitor recognised, or may change the user.
fn note_recognised(state: &mut State, asked: &SentRequest, answer: &Answer, now: Instant) {
    let is_known = asked.known(state).is_some();
    let Some(session) = asked.session.map(|session| &mut state.sessions[session]) else { return };
    if asked.method == "POST" {
        session.changed = Some(now);
        session.recognised = None;
    } else if asked.is_well
        && is_known
        && matches!(answer.status, 200 | 304)
        && session.changed.is_none_or(|changed| changed < asked.sent)
    {
        session.recognised = Some(now);
    }
}

/// Whether a connection may carry another request when this was answered.
fn stays_open(asked: &SentRequest, answer: &Answer) -> bool {
    let is_empty = asked.method == "HEAD" || matches!(answer.status, 204 | 304);
    let has_end = ["content-length", "transfer-encoding"];
    let is_framed = is_empty || has_end.iter().any(|name| answer.header(name).is_some());
    let is_closed =
        answer.header("connection").is_some_and(|said| said.eq_ignore_ascii_case("close"));
    answer.body.whole && is_framed && !is_closed
}
