//! Visitors without a login, what they put into their carts, and that it goes with them when they log in.

use super::{BROWSERS_EACH, Play, THIEF};
use crate::app::{Kind, VISITOR};
use crate::check::{Does, SentRequest};
use crate::support::client::Answer;
use crate::world::{Owner, USERS, WITHOUT_LOGIN};

impl Play {
    /// A visitor without a login views something, puts something into the cart and looks at what is there;
    /// another one looks at another cart. The visitor may log in with it.
    pub(super) fn cart(&mut self) {
        let Some(browser) = self.any_without_login() else { return self.log_in_or_out() };
        let views = self.asks(browser, Kind::None, 0);
        let puts = SentRequest { puts: Some(self.thing(browser)), ..self.at_cart(browser, "PUT") };
        for asked in [views, puts] {
            let pending = vec![self.send(asked)];
            self.finish(pending);
        }
        let other = self.any_without_login().unwrap_or(browser);
        let mut pending = Vec::new();
        for browser in [browser, other] {
            let recent = self.does(browser, "GET", "/_anteroom/recent".to_owned(), Does::Recent);
            let cart = self.at_cart(browser, "GET");
            let pages = [Kind::Holes, Kind::Plain].map(|kind| self.asks(browser, kind, 0));
            for asked in [cart, recent].into_iter().chain(pages) {
                pending.push(self.send(asked));
            }
        }
        self.finish(pending);
        if self.browsers[browser].user.is_some() && self.rng.u8(..3) > 0 {
            self.changes_session(browser, Self::logs_in);
        }
    }

    /// A known user; mostly one who has brought a cart along, where there is one.
    pub(super) fn any_at_home(&mut self) -> Option<usize> {
        let mut known = self.known();
        known.retain(|browser| self.browsers[*browser].in_cart.is_some());
        match known.is_empty() || self.rng.u8(..4) == 0 {
            true => self.any_known(),
            false => Some(known[self.rng.usize(..known.len())]),
        }
    }

    /// A browser without a login; every second time one that can log in.
    fn any_without_login(&mut self) -> Option<usize> {
        let among = if self.rng.bool() { USERS * BROWSERS_EACH } else { THIEF };
        let without: Vec<_> = (0..among).filter(|browser| !self.is_in(*browser)).collect();
        (!without.is_empty()).then(|| without[self.rng.usize(..without.len())])
    }

    fn at_cart(&mut self, browser: usize, method: &'static str) -> SentRequest {
        let does = if method == "PUT" { Does::Put } else { Does::Cart };
        self.does(browser, method, "/_anteroom/cart".to_owned(), does)
    }

    /// Something that no other browser has.
    fn thing(&self, browser: usize) -> String {
        format!("cup{}", self.world.state().mark(Owner::Browser(browser)))
    }

    /// A thing that takes the place of the one before.
    pub(super) fn change_of_cart(&self, browser: usize, item: &str) -> String {
        let count = |item: &str, count: u64| format!("{{\"item\":\"{item}\",\"count\":{count}}}");
        let before = self.browsers[browser].put.iter().map(|before| count(before, 0) + ",");
        let before: String = before.collect();
        format!("{{\"items\":[{before}{}]}}", count(item, WITHOUT_LOGIN))
    }

    /// The browser brings its token, unless it comes with another one's; what it must find is as things are now.
    pub(super) fn with_token(&self, asked: SentRequest) -> SentRequest {
        if asked.token.is_some() {
            return asked;
        }
        let browser = &self.browsers[asked.browser];
        let (in_cart, left) = (browser.in_cart.clone(), browser.left.clone());
        SentRequest { token: browser.token.clone(), in_cart, left, ..asked }
    }

    /// A logout ends what is in the cart, and a login what is in the cart of a session before.
    pub(super) fn may_lose_cart(&mut self, asked: &SentRequest) {
        let browser = &mut self.browsers[asked.browser];
        if matches!(asked.does, Does::LogOut(_)) || browser.token.is_none() {
            browser.in_cart = None;
        }
    }

    /// A thing was put into the cart; `is_sure`: and must be there.
    pub(super) fn has_put(&mut self, asked: &SentRequest, is_sure: bool) {
        let browser = &mut self.browsers[asked.browser];
        browser.put.clone_from(&asked.puts);
        browser.in_cart = asked.puts.clone().filter(|_| is_sure && browser.token.is_some());
    }

    /// What an answer does to the browser's token, and to what goes with it.
    pub(super) fn heed_token(&mut self, asked: &SentRequest, answer: &Answer) {
        let is_out = matches!(asked.does, Does::LogOut(_)) && answer.status == 303;
        if is_out && asked.is_well {
            let browser = &mut self.browsers[asked.browser];
            browser.left.clone_from(&browser.put);
        }
        let Some(given) = answer.cookie(VISITOR) else { return };
        let given = Some(given).filter(|given| !given.is_empty());
        if let Some(token) = &given {
            self.tally.count("token");
            if !self.world.state().is_given(token, asked.browser) {
                return self.is_wrong("a visitor is given the token of another");
            }
        }
        let browser = &mut self.browsers[asked.browser];
        if asked.browser == THIEF || browser.token.is_none() && given.is_none() {
            return;
        }
        let before = std::mem::replace(&mut browser.token, given);
        let is_joined = browser.token.is_none()
            && before == asked.token
            && !matches!(asked.does, Does::LogOut(_));
        match before {
            Some(token) if is_joined => {
                self.joined.push(token);
                self.tally.count("token joined");
            }
            _ => browser.in_cart = None,
        }
    }

    /// A browser comes with a token that went with a login.
    pub(super) fn steal_token(&mut self) {
        if self.joined.is_empty() {
            return;
        }
        self.tally.count("token over");
        let token = self.joined[self.rng.usize(..self.joined.len())].clone();
        let cart = self.at_cart(THIEF, "GET");
        let recent = self.does(THIEF, "GET", "/_anteroom/recent".to_owned(), Does::Recent);
        let pages = [Kind::Holes, Kind::None].map(|kind| self.asks(THIEF, kind, 0));
        for proxy in 0..self.proxies.len() {
            let all = [&cart, &recent].into_iter().chain(&pages).cloned();
            let pending = all
                .map(|asked| self.send(SentRequest { proxy, token: Some(token.clone()), ..asked }));
            let pending = pending.collect();
            self.finish(pending);
        }
    }
}
