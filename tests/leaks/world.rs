//! The visitors, their belongings, and what the app has said.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use fastrand::Rng;

use crate::support::origin::Gate;

/// What every mark begins and ends with; twelve digits stand between.
const BEGIN: &str = "zq";
const END: &str = "qz";
const DIGITS: usize = 12;

/// Users, and the groups among which they are dealt out.
pub(crate) const USERS: usize = 6;
pub(crate) const GROUPS: usize = 2;

/// How often each thing is in a cart that was put there without a login: as often as it may be, and more than
/// any number of a user's.
pub(crate) const WITHOUT_LOGIN: u64 = 1_000_000;

/// The owner of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    User(usize),
    /// All users of a group.
    Group(usize),
    /// The browser that has the session.
    Session(usize),
    /// A browser, with any user: also what it has put into its cart without a login.
    Browser(usize),
}

/// The receiver of a session, by the address from which the app was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Browser(usize),
    /// It was begun for a proxy that fetched a page for all.
    Nobody,
}

/// Where and when the end of a session was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionEnd {
    pub(crate) at: Instant,
    /// The proxy that has acknowledged it.
    pub(crate) proxy: usize,
}

/// What a browser brings beside its session.
#[derive(Debug)]
pub(crate) struct BrowserState {
    /// In `_ga`, which scripts write.
    pub(crate) counted: String,
    /// In `theme`, an unconfigured cookie.
    pub(crate) theme: String,
    /// In `Authorization`.
    pub(crate) credentials: String,
    /// What the app has put into its cart last, while no user was logged in.
    pub(crate) bought: Option<String>,
}

/// A user of the app.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) email: String,
    pub(crate) group: usize,
}

/// A session of the app's.
#[derive(Debug)]
pub(crate) struct Session {
    /// The cookie's value.
    pub(crate) id: String,
    /// What a visitor without a login keeps in it.
    pub(crate) secret: String,
    /// The user by the app's word.
    pub(crate) user: Option<usize>,
    /// The only user it ever had: a session never is two users'.
    pub(crate) was: Option<usize>,
    pub(crate) holder: Holder,
    /// When the login was acknowledged, where all was well then.
    pub(crate) known: Option<Instant>,
    /// Whether a logout has begun, or the outcome of a login is unknown.
    pub(crate) is_unclear: bool,
    pub(crate) ended: Option<SessionEnd>,
    /// Whether the browser keeps the cookie of a session that has ended so, and may log in with it.
    pub(crate) is_kept: bool,
    /// When it was last answered as that of a known visitor, since it was last used to change something: so
    /// that what the app has said of the visitor is remembered.
    pub(crate) recognised: Option<Instant>,
    /// When it was last used to change something.
    pub(crate) changed: Option<Instant>,
    /// What the app has put into its cart last.
    pub(crate) bought: Option<String>,
    /// The same where it was acknowledged, and must be there.
    pub(crate) in_cart: Option<String>,
}

/// What ails the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    /// It answers 500.
    Failing,
    /// Its answers break off.
    Breaking,
    /// It takes its time.
    Slow,
}

/// How an app ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOut {
    /// It takes the cookie away.
    Clears,
    /// It takes the cookie away, and goes on to believe in it.
    Believes,
    /// It keeps the cookie in place, and knows it to be anonymous.
    Keeps,
    /// It gives another cookie, and goes on to believe in the old one.
    Replaces,
}

/// All that is known.
pub(crate) struct State {
    rng: Rng,
    marks: HashMap<String, Owner>,
    pub(crate) users: Vec<User>,
    pub(crate) groups: Vec<String>,
    pub(crate) browsers: Vec<BrowserState>,
    pub(crate) sessions: Vec<Session>,
    by_id: HashMap<String, usize>,
    /// The number of things in a cart is a mark, too: it gives the owner.
    counts: HashMap<u64, usize>,
    /// Visitors' tokens, each with the browser that was given it.
    tokens: HashMap<String, usize>,
    /// Path and body of all pages that the app has said, by their numbers.
    pub(crate) said: Vec<(String, String)>,
    /// The numbers of those that stay the same, by path and text.
    again: HashMap<(String, String), usize>,
    pub(crate) health: Health,
    /// Where the app waits with a page that names its visitor, and how many requests have come there.
    pub(crate) gate: Arc<Gate>,
    pub(crate) at_gate: usize,
    /// What the app has found wrong with what it was told.
    pub(crate) wrong: Option<String>,
}

/// The same, for the app's threads and the play's.
pub(crate) struct World(Mutex<State>);

impl World {
    pub(crate) fn new(seed: u64, browsers: usize) -> Self {
        let mut state = State {
            rng: Rng::with_seed(seed),
            marks: HashMap::new(),
            users: Vec::new(),
            groups: Vec::new(),
            browsers: Vec::new(),
            sessions: Vec::new(),
            by_id: HashMap::new(),
            counts: HashMap::new(),
            tokens: HashMap::new(),
            said: Vec::new(),
            again: HashMap::new(),
            health: Health::Well,
            gate: opened(),
            at_gate: 0,
            wrong: None,
        };
        for number in 0..GROUPS {
            let group = state.mark(Owner::Group(number));
            state.groups.push(format!("group{group}"));
        }
        for number in 0..USERS {
            let name = format!("user{}", state.mark(Owner::User(number)));
            let email = format!("{}@mail.test", state.mark(Owner::User(number)));
            state.users.push(User { name, email, group: number % GROUPS });
        }
        for number in 0..browsers {
            let [counted, theme, credentials] =
                [(); 3].map(|()| state.mark(Owner::Browser(number)));
            state.browsers.push(BrowserState { counted, theme, credentials, bought: None });
        }
        Self(Mutex::new(state))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    /// A new mark.
    pub(crate) fn mark(&mut self, owner: Owner) -> String {
        let digits = self.rng.u64(..) >> 16;
        let mark = format!("{BEGIN}{digits:012x}{END}");
        self.marks.insert(mark.clone(), owner);
        mark
    }

    /// A new number of things in a user's cart.
    pub(crate) fn count(&mut self, user: usize) -> u64 {
        let count = 100_000 + self.counts.len() as u64;
        self.counts.insert(count, user);
        count
    }

    /// Notes that a browser is given a token; false where it is another's.
    pub(crate) fn is_given(&mut self, token: &str, browser: usize) -> bool {
        *self.tokens.entry(token.to_owned()).or_insert(browser) == browser
    }

    /// One of so many, by chance.
    pub(crate) fn one_of(&mut self, many: u64) -> u64 {
        self.rng.u64(..many)
    }

    /// A new session.
    pub(crate) fn session(&mut self, user: Option<usize>, holder: Holder) -> usize {
        let number = self.sessions.len();
        let id = format!("sid{}", self.mark(Owner::Session(number)));
        let secret = self.mark(Owner::Session(number));
        self.by_id.insert(id.clone(), number);
        self.sessions.push(Session {
            id,
            secret,
            user,
            was: user,
            holder,
            known: None,
            is_unclear: false,
            ended: None,
            is_kept: false,
            recognised: None,
            changed: None,
            bought: None,
            in_cart: None,
        });
        number
    }

    pub(crate) fn session_of(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// What the app says at a path, by the number of the page.
    pub(crate) fn say(&mut self, path: &str, body: impl FnOnce(usize) -> String) -> String {
        let number = self.said.len();
        let body = body(number);
        self.said.push((path.to_owned(), body.clone()));
        body
    }

    /// The same of a page that is byte for byte as it was where `text` is.
    pub(crate) fn say_again(
        &mut self,
        path: &str,
        text: &str,
        body: impl FnOnce(usize) -> String,
    ) -> String {
        let again = (path.to_owned(), text.to_owned());
        if let Some(number) = self.again.get(&again) {
            return self.said[*number].1.clone();
        }
        self.again.insert(again, self.said.len());
        self.say(path, body)
    }

    /// The owners of all that bears a mark in a text.
    pub(crate) fn owners(&self, text: &str) -> Vec<(String, Owner)> {
        let length = BEGIN.len() + DIGITS + END.len();
        let at = text.match_indices(BEGIN).map(|(at, _)| at);
        let marks = at.filter_map(|at| text.get(at..at + length));
        let marks = marks.filter_map(|mark| Some((mark.to_owned(), *self.marks.get(mark)?)));
        let count = between(text, "<i id=count>", "</i>").and_then(|count| count.parse().ok());
        let count = count.and_then(|count: u64| {
            // A cart brought along from before the login counts no mark.
            let bought = count % WITHOUT_LOGIN;
            Some((count, *self.counts.get(&bought)?))
        });
        let count = count.map(|(count, user)| (count.to_string(), Owner::User(user)));
        marks.chain(count).collect()
    }
}

/// A gate that holds no request.
pub(crate) fn opened() -> Arc<Gate> {
    let gate = Gate::closed();
    gate.open();
    gate
}

/// What stands between two words.
pub(crate) fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let text = &text[text.find(start)? + start.len()..];
    Some(&text[..text.find(end)?])
}
