//! What is promised of each answer.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::app::{Kind, VISITOR};
use crate::support::client::Answer;
use crate::world::{Holder, LogOut, Owner, Session, State, between};

/// Within this time every proxy knows of a login and a logout, and a little for the clocks' sake: the
/// proxies' is the time of day.
pub(crate) const SECOND: Duration = Duration::from_millis(1_100);

/// What a request does beside asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Nothing,
    LogIn(usize),
    LogOut(LogOut),
    /// Puts something into the visitor's cart.
    Buy,
    /// Asks the proxy itself.
    Me,
    Cart,
    Recent,
    /// Puts something into the cart of a browser without a login.
    Put,
}

/// A page that a browser has kept.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) tag: String,
    pub(crate) body: String,
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    pub(crate) browser: usize,
    /// The session whose cookie it bears.
    pub(crate) session: Option<usize>,
    pub(crate) proxy: usize,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) kind: Option<Kind>,
    pub(crate) does: Does,
    /// Whether it bears an unconfigured cookie.
    pub(crate) has_theme: bool,
    /// Whether it bears `Authorization`.
    pub(crate) has_credentials: bool,
    pub(crate) is_zipped: bool,
    /// What it asks about whether it is as it was.
    pub(crate) copy: Option<Copy>,
    /// The visitor's token that it bears.
    pub(crate) token: Option<String>,
    /// What it puts into the cart.
    pub(crate) puts: Option<String>,
    /// What its browser has put there before, and must find: in the cart of its token, and where that has gone
    /// with the login, in the user's.
    pub(crate) in_cart: Option<String>,
    /// What was in its cart before its last logout.
    pub(crate) left: Option<String>,
    pub(crate) sent: Instant,
    /// Whether nothing fails meanwhile.
    pub(crate) is_well: bool,
    /// Whether that has been so for long enough for the proxies to know all users that the app knows, and
    /// they were told of this one: of two simultaneous requests of a user, one is taken as unknown.
    pub(crate) is_settled: bool,
    /// Whether the store can be reached.
    pub(crate) has_store: bool,
}

impl SentRequest {
    /// The user that the answer may be for.
    fn user(&self, state: &State) -> Option<usize> {
        if let Does::LogIn(user) = self.does {
            return Some(user);
        }
        let session = &state.sessions[self.session?];
        // Where a logout is uncertain, the app is asked as it was before.
        session.was.filter(|_| !(self.has_store && self.is_over(session)))
    }

    /// Whether its session had ended before it was sent: a second before, where another proxy has ended it.
    fn is_over(&self, session: &Session) -> bool {
        session.ended.is_some_and(|ended| {
            let grace = if ended.proxy == self.proxy { Duration::ZERO } else { SECOND };
            self.sent >= ended.at + grace
        })
    }

    /// The user, where a login lies a second back and no logout has begun.
    pub(crate) fn known(&self, state: &State) -> Option<usize> {
        let session = &state.sessions[self.session?];
        let is_known = session.known.is_some_and(|known| self.sent >= known + SECOND);
        session.was.filter(|_| is_known && !session.is_unclear && session.ended.is_none())
    }

    /// Whether no user has logged in, for certain.
    pub(crate) fn is_without_login(&self, state: &State) -> bool {
        self.user(state).is_none()
    }

    /// What must be in the cart: in that of the token where no user has logged in, and in the user's where
    /// the token went with the login and the user must be known.
    fn must_find(&self, state: &State) -> Option<&String> {
        let is_sure = match self.token {
            Some(_) => self.is_without_login(state),
            None => self.is_settled && self.known(state).is_some(),
        };
        self.in_cart.as_ref().filter(|_| is_sure && self.is_well)
    }

    /// Whether the answer may be for another visitor, too, or for the same one once more.
    pub(crate) fn is_shareable(&self, state: &State) -> bool {
        let is_stranger = self.session.is_none_or(|it| state.sessions[it].was.is_none());
        let is_known = self.known(state).is_some();
        let has_more = self.has_theme || self.has_credentials;
        let may_be = match self.kind {
            Some(Kind::Plain | Kind::Vary | Kind::Strips | Kind::Stale) => is_stranger && !has_more,
            Some(Kind::Holes) => true,
            Some(Kind::Segment) if !self.path.ends_with('3') => {
                (is_stranger || is_known && self.is_settled) && !has_more
            }
            Some(Kind::My) => is_known && self.is_settled && !self.has_credentials,
            _ => false,
        };
        may_be && self.is_well && self.method == "GET"
    }

    pub(crate) fn text(&self) -> String {
        let Self { browser, session, proxy, method, path, does, .. } = self;
        let with = [
            ("theme", self.has_theme),
            ("credentials", self.has_credentials),
            ("a copy", self.copy.is_some()),
            ("a token", self.token.is_some()),
        ];
        let with: Vec<_> = with.iter().filter(|(_, has)| *has).map(|(what, _)| *what).collect();
        format!(
            "browser {browser} in session {session:?} at proxy {proxy}: {method} {path} {does:?} \
             with {with:?}"
        )
    }
}

/// What was seen in an answer that is as it must be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerContent {
    /// Whether a visitor who must be known was.
    pub(crate) known: bool,
    /// Whether the name stood in its hole.
    pub(crate) hole: bool,
    /// Whether there was a number of things that is one visitor's.
    pub(crate) count: bool,
    /// Whether there was a cart, or what was viewed last, with something in it.
    pub(crate) cart: bool,
    pub(crate) recent: bool,
    /// The same of a visitor without a login.
    pub(crate) own_cart: bool,
    pub(crate) own_recent: bool,
    /// Whether a user found the cart from before the login.
    pub(crate) joined_cart: bool,
    /// Whether trailers named the user.
    pub(crate) trailers: bool,
}

/// Holds an answer against what is promised.
pub(crate) fn check(
    state: &State,
    asked: &SentRequest,
    answer: &Answer,
) -> Result<AnswerContent, String> {
    let lines = |fields: &crate::support::wire::Fields| -> String {
        fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    };
    let (head, trailers) = (lines(&answer.fields), lines(&answer.body.trailers));
    let body = match (&asked.copy, answer.status) {
        // The visitor is shown the copy at hand.
        (Some(copy), 304) => copy.body.clone(),
        _ => plain(answer),
    };
    let told = |wrong: String| format!("{wrong}\n{head}\n{body}\n{trailers}");
    let owners = state.owners(&format!("{head}\n{body}\n{trailers}"));
    for (mark, owner) in &owners {
        if !is_his(state, asked, *owner) {
            let user = asked.user(state);
            return Err(told(format!("{mark} is of {owner:?}, and {user:?} was to see it")));
        }
    }
    has_come(asked, answer).map_err(told)?;
    is_given_alone(answer).map_err(told)?;
    if asked.left.as_ref().is_some_and(|left| body.contains(left)) {
        return Err(told(format!("{:?} was there before the logout", asked.left)));
    }
    let mut seen = AnswerContent {
        count: owners.iter().any(|(mark, _)| mark.parse::<u64>().is_ok()),
        trailers: !state.owners(&trailers).is_empty(),
        ..AnswerContent::default()
    };
    if asked.method == "HEAD" || !answer.body.whole {
        return Ok(seen);
    }
    let known = asked.known(state);
    match asked.does {
        Does::Me | Does::Cart | Does::Recent => {
            let is_mine = owners.iter().any(|(_, owner)| matches!(owner, Owner::User(_)));
            seen.cart = asked.does == Does::Cart && is_mine;
            seen.recent = asked.does == Does::Recent && is_mine;
            let is_own = asked.is_without_login(state) && !owners.is_empty();
            seen.own_recent = asked.does == Does::Recent && is_own;
            if let (Does::Cart, Some(item)) = (asked.does, asked.must_find(state)) {
                if !body.contains(item) {
                    return Err(told(format!("{item} is not in the cart of who has put it there")));
                }
                seen.own_cart = asked.token.is_some();
                seen.joined_cart = asked.token.is_none();
            }
            if let Some(user) = known.filter(|_| asked.is_settled) {
                is_told_of_himself(state, asked, user, answer.status, &body).map_err(told)?;
            }
            return Ok(seen);
        }
        Does::Nothing if is_page(asked, answer) => {}
        _ => return Ok(seen),
    }
    is_as_said(state, asked, &body).map_err(told)?;
    let Some(user) = known else { return Ok(seen) };
    match asked.kind {
        Some(Kind::Oops) => return Ok(seen),
        Some(Kind::Holes) if !asked.is_settled => return Ok(seen),
        Some(Kind::Holes) => {
            are_filled(state, user, &body).map_err(told)?;
            seen.hole = true;
        }
        _ if !is_known_as(state, asked, user, &body) => {
            let name = &state.users[user].name;
            return Err(told(format!("{name} has logged in, and is taken for nobody")));
        }
        _ => {}
    }
    seen.known = true;
    Ok(seen)
}

/// Whether there is a whole page.
fn is_page(asked: &SentRequest, answer: &Answer) -> bool {
    let has_page = answer.status == 200 || (answer.status == 304 && asked.copy.is_some());
    asked.kind.is_some_and(|kind| kind != Kind::Partial) && has_page
}

/// Whether an answer is whole, and says what it must where nothing fails.
fn has_come(asked: &SentRequest, answer: &Answer) -> Result<(), String> {
    if !asked.is_well {
        return Ok(());
    }
    if !answer.body.whole {
        return Err("it broke off".to_owned());
    }
    let expected: &[u16] = match (asked.does, asked.method, &asked.copy) {
        (_, "POST", _) => &[303],
        (Does::Put, ..) => &[200, 401],
        (Does::Me, ..) => &[200],
        (Does::Cart | Does::Recent, ..) => &[200, 401],
        (_, _, Some(_)) => &[200, 304],
        _ => &[200],
    };
    match expected.contains(&answer.status) {
        true => Ok(()),
        false => Err(format!("all is well, and it is {}", answer.status)),
    }
}

/// Whether an answer that gives or takes a visitor's token is for that visitor alone.
fn is_given_alone(answer: &Answer) -> Result<(), String> {
    let control = answer.header("cache-control").unwrap_or_default();
    let is_alone = ["private", "no-store"].iter().any(|word| control.contains(word));
    match is_alone || answer.set_cookie(VISITOR).is_none() {
        true => Ok(()),
        false => Err("any cache may keep what gives a token".to_owned()),
    }
}

/// Whether a mark may stand in an answer.
fn is_his(state: &State, asked: &SentRequest, owner: Owner) -> bool {
    let user = asked.user(state);
    match owner {
        Owner::User(owner) => user == Some(owner),
        Owner::Group(group) => user.is_some_and(|user| state.users[user].group == group),
        Owner::Session(session) => {
            asked.session == Some(session)
                || state.sessions[session].holder == Holder::Browser(asked.browser)
        }
        Owner::Browser(browser) => asked.browser == browser,
    }
}

/// Whether the proxy tells a known visitor the right identity.
fn is_told_of_himself(
    state: &State,
    asked: &SentRequest,
    user: usize,
    status: u16,
    body: &str,
) -> Result<(), String> {
    let in_cart = asked.session.and_then(|session| state.sessions[session].in_cart.as_ref());
    let name = &state.users[user].name;
    match asked.does {
        _ if status != 200 => Err(format!("{name} has logged in, and is not told of himself")),
        Does::Me if !body.contains(name) => Err(format!("{name} has logged in, and is not named")),
        Does::Cart if in_cart.is_some_and(|item| !body.contains(item)) => {
            Err(format!("{in_cart:?} is not in the cart of {name}"))
        }
        _ => Ok(()),
    }
}

/// Whether the holes of a page have the user's own content.
fn are_filled(state: &State, user: usize, body: &str) -> Result<(), String> {
    let name = &state.users[user].name;
    let is_named = between(body, "<b id=name>", "</b>") == Some(name);
    let cart = between(body, "<p id=cart>", "<p>the same").unwrap_or_default();
    let has_cart = state.owners(cart).iter().any(|(_, owner)| *owner == Owner::User(user));
    match (is_named, has_cart) {
        (true, true) => Ok(()),
        _ => Err(format!("{name} has logged in, and his holes are not filled")),
    }
}

/// Whether a page shows that its visitor is known.
fn is_known_as(state: &State, asked: &SentRequest, user: usize, body: &str) -> bool {
    let owner = match asked.kind {
        Some(Kind::Segment) if !asked.path.ends_with('3') => Owner::Group(state.users[user].group),
        _ => Owner::User(user),
    };
    state.owners(body).iter().any(|(_, its)| *its == owner)
}

/// Whether a whole page is what the app has said there, but for what is in its holes.
fn is_as_said(state: &State, asked: &SentRequest, body: &str) -> Result<(), String> {
    if !body.ends_with("<!--end--></html>") {
        return Err("what broke off is given as a whole".to_owned());
    }
    let number = between(body, "<!--number:", "-->").and_then(|number| number.parse().ok());
    let said = number.and_then(|number: usize| state.said.get(number));
    let Some((path, said)) = said else { return Err("the app has not said that".to_owned()) };
    let has_fragments = asked.kind == Some(Kind::Holes);
    let is_same = if has_fragments { emptied(said) == emptied(body) } else { said == body };
    match (*path == asked.path, is_same) {
        (false, _) => Err(format!("it is the page of {path}")),
        (true, false) => Err(format!("the app has said another one: {said}")),
        (true, true) => Ok(()),
    }
}

/// A page without what is in its holes.
fn emptied(page: &str) -> String {
    let holes = [("<b id=name>", "</b>"), ("<i id=count>", "</i>"), ("<p id=cart>", "</p> ")];
    let mut page = page.replace("</p><p>the same", "</p> <p>the same");
    for (start, end) in holes {
        if let Some(inside) = between(&page, start, end).map(str::to_owned) {
            page = page.replacen(&format!("{start}{inside}{end}"), &format!("{start}{end}"), 1);
        }
    }
    page
}

/// The body without its coding, as far as it came.
pub(crate) fn plain(answer: &Answer) -> String {
    let mut bytes = Vec::new();
    if answer.header("content-encoding") == Some("gzip") {
        // What broke off has no end.
        drop(flate2::read::GzDecoder::new(answer.body.bytes.as_slice()).read_to_end(&mut bytes));
    } else {
        bytes.clone_from(&answer.body.bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
