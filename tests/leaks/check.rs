//! What is promised of each answer, and how much of it there was.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::app::Kind;
use crate::support::client::Answer;
use crate::world::{LogOut, Owner, State, between};

/// Within this time every proxy knows of a log-in and a log-out, and a little for the clocks' sake: the
/// proxies' is the time of day.
pub(crate) const SECOND: Duration = Duration::from_millis(1_100);

/// What a request does beside asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Nothing,
    LogIn(usize),
    LogOut(LogOut),
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) browser: usize,
    /// The session whose cookie it bears.
    pub(crate) session: Option<usize>,
    pub(crate) proxy: usize,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) kind: Option<Kind>,
    pub(crate) does: Does,
    /// Whether it bears a cookie that nobody has named.
    pub(crate) has_theme: bool,
    pub(crate) is_zipped: bool,
    pub(crate) sent: Instant,
    /// Whether nothing fails meanwhile.
    pub(crate) is_well: bool,
    /// Whether the store can be reached.
    pub(crate) has_store: bool,
}

impl Asked {
    /// Whose the answer may be.
    fn user(&self, state: &State) -> Option<usize> {
        if let Does::LogIn(user) = self.does {
            return Some(user);
        }
        let session = &state.sessions[self.session?];
        // Where nobody can say who has logged out, the app is asked as it was before.
        session.was.filter(|_| !(self.has_store && self.is_over(state)))
    }

    /// Whether its session had ended a second before it was sent.
    pub(crate) fn is_over(&self, state: &State) -> bool {
        let ended = self.session.and_then(|session| state.sessions[session].ended);
        ended.is_some_and(|ended| self.sent >= ended + SECOND)
    }

    /// Who it is, where a log-in lies a second back and no log-out has begun.
    fn known(&self, state: &State) -> Option<usize> {
        let session = &state.sessions[self.session?];
        let is_known = session.known.is_some_and(|known| self.sent >= known + SECOND);
        session.was.filter(|_| is_known && !session.is_unclear && session.ended.is_none())
    }

    /// Whether the answer may be somebody else's, too.
    pub(crate) fn is_shareable(&self, state: &State) -> bool {
        let is_stranger = self.session.is_none_or(|it| state.sessions[it].was.is_none());
        let is_known = self.known(state).is_some();
        let may_be = match self.kind {
            Some(Kind::Plain | Kind::Vary | Kind::Strips | Kind::Stale) => {
                is_stranger && !self.has_theme
            }
            Some(Kind::Holes) => true,
            Some(Kind::Segment) if !self.path.ends_with('3') => {
                (is_stranger || is_known) && !self.has_theme
            }
            Some(Kind::My) => is_known,
            _ => false,
        };
        may_be && self.is_well && self.method == "GET"
    }

    pub(crate) fn text(&self) -> String {
        let Self { browser, session, proxy, method, path, does, .. } = self;
        format!(
            "browser {browser} in session {session:?} at proxy {proxy}: {method} {path} {does:?}"
        )
    }
}

/// Holds an answer against what is promised. Returns whether a visitor who must be known was.
pub(crate) fn check(state: &mut State, asked: &Asked, answer: &Answer) -> Result<bool, String> {
    let head: String =
        answer.fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let body = plain(answer);
    if state.has_shown_token {
        return Err("the app was shown the token of a visitor".to_owned());
    }
    for (mark, owner) in state.owners(&format!("{head}\n{body}")) {
        if !is_his(state, asked, owner) {
            return Err(format!(
                "{mark} is of {owner:?}, and {:?} was to see it\n{head}\n{body}",
                asked.user(state)
            ));
        }
    }
    let is_page = asked.kind.is_some_and(|kind| kind != Kind::Partial);
    if !(is_page && asked.method == "GET" && answer.status == 200) {
        return Ok(false);
    }
    if !answer.body.whole {
        return match asked.is_well {
            true => Err(format!("it broke off\n{head}")),
            false => Ok(false),
        };
    }
    is_as_said(state, asked, &body).map_err(|wrong| format!("{wrong}\n{head}\n{body}"))?;
    let Some(user) = asked.known(state) else { return Ok(false) };
    let user = &state.users[user];
    let own = match asked.kind {
        Some(Kind::Holes | Kind::Oops) => return Ok(false),
        Some(Kind::Segment) if !asked.path.ends_with('3') => &state.groups[user.group],
        _ => &user.name,
    };
    match body.contains(own) {
        true => Ok(true),
        false => {
            Err(format!("{} has logged in, and is taken for nobody\n{head}\n{body}", user.name))
        }
    }
}

/// Whether a mark may stand in an answer. A session that has just begun is the first's who is given it.
fn is_his(state: &mut State, asked: &Asked, owner: Owner) -> bool {
    let user = asked.user(state);
    match owner {
        Owner::User(owner) => user == Some(owner),
        Owner::Group(group) => user.is_some_and(|user| state.users[user].group == group),
        Owner::Browser(browser) => browser == asked.browser,
        Owner::Session(session) => {
            let browser = state.sessions[session].browser.get_or_insert(asked.browser);
            asked.session == Some(session) || *browser == asked.browser
        }
    }
}

/// Whether a whole page is what the app has said there, but for what is in its holes.
fn is_as_said(state: &State, asked: &Asked, body: &str) -> Result<(), String> {
    if !body.ends_with("<!--end--></html>") {
        return Err("what broke off is given as a whole".to_owned());
    }
    let number = between(body, "<!--number:", "-->").and_then(|number| number.parse().ok());
    let said = number.and_then(|number: usize| state.said.get(number));
    let Some((path, said)) = said else { return Err("the app has not said that".to_owned()) };
    let has_holes = asked.kind == Some(Kind::Holes);
    let is_same = if has_holes { emptied(said) == emptied(body) } else { said == body };
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

/// How much there was.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answers: u64,
    pub(crate) unanswered: u64,
    pub(crate) shareable: u64,
    pub(crate) hits: u64,
    pub(crate) waited: u64,
    pub(crate) known: u64,
    pub(crate) log_ins: u64,
    pub(crate) log_outs: u64,
    pub(crate) revoked: u64,
    /// Tokens given to visitors without a login, and those that became part of a session.
    pub(crate) tokens: u64,
    pub(crate) merged: u64,
    pub(crate) over: u64,
    pub(crate) purges: u64,
    pub(crate) faults: u64,
}

impl Tally {
    pub(crate) fn text(&self) -> String {
        format!("{self:?}, {} % of what may be shared", self.hits * 100 / self.shareable.max(1))
    }

    /// Whether enough was tried for what was not found to mean something.
    pub(crate) fn check(&self) {
        assert!(self.hits * 2 >= self.shareable, "the cache is of little use: {}", self.text());
        let Self { known, log_ins, log_outs, over, purges, faults, waited, .. } = *self;
        let Self { tokens, merged, .. } = *self;
        let all = [known, log_ins, log_outs, over, purges, faults, waited, tokens, merged];
        let least = all.into_iter().min();
        assert!(self.answers < 1_000 || least > Some(0), "not all was tried: {}", self.text());
    }
}
