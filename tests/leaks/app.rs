//! An app in PHP's manner: it keeps its sessions by a cookie, names the user when it is asked, and is
//! careless with what may be cached.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::check::SECOND;
use crate::support::origin::{Origin, Reply, Request};
use crate::world::{Health, Holder, LogOut, Owner, State, User, WITHOUT_LOGIN, World};

/// How the proxies know it.
pub(crate) const SETTINGS: &str = r##"
client.trusted_proxies = ["127.0.0.1"]
store.timeout = "1s"
session.cookie = "SID"
session.verify.path = "/whoami"
session.verify.user = { json = "/name" }
session.verify.nobody = { json = "/id", equals = 0 }
session.verify.attributes = { group = { json = "/group" }, email = { json = "/email" } }
session.verify.verify_every = "8s"
session.logout.match = { method = "POST", path = "/logout/**" }
cache.stale_if_error = "60s"
[[route]]
match.path = "/plain/{item}"
visitor_token = true
[[route]]
match.path = "/vary/**"
[[route]]
match.path = "/strips/**"
set_cookie = "strip_for_anonymous"
[[route]]
match.path = "/stale/**"
stale_while_revalidate = "60s"
[[route]]
match.path = "/holes/**"
share = "everyone"
fragments = [{ selector = "#name", fill = "user" }, { selector = "#count", fill = "cart_count" }, { selector = "#cart", from = "/partials/cart" }]
[[route]]
match.path = "/oops/**"
share = "everyone"
send_headers = ["X-Echo"]
[[route]]
match.path = "/segment/**"
share = "segment"
segment = ["logged_in", "attribute:group"]
[[route]]
match.path = ["/my/**", "/partials/**"]
share = "user"
[[route]]
match.path = ["/none/**", "/buy"]
share = "none"
visitor_token = true
[[route]]
match.path = ["/whoami", "/login", "/logout/**", "/change/**"]
share = "none"
"##;

/// The cookie of a visitor's token, which no app is to see.
pub(crate) const VISITOR: &str = "anteroom_visitor";

/// The kinds of pages, by the first part of their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For strangers; others have theirs.
    Plain,
    /// The same with `Vary: Cookie`.
    Vary,
    /// Each begins a session where there is none, and may lose it.
    Strips,
    /// The same, and may not.
    Begins,
    /// Soon stale.
    Stale,
    /// For everyone, with holes.
    Holes,
    /// For everyone by the operator's word, and personal all the same.
    Oops,
    /// One for each group; every fourth is personal by mistake.
    Segment,
    /// A user's own.
    My,
    /// What stands in a hole.
    Partial,
    /// None of these.
    None,
}

pub(crate) const KINDS: [Kind; 10] = [
    Kind::Plain,
    Kind::Vary,
    Kind::Strips,
    Kind::Begins,
    Kind::Stale,
    Kind::Holes,
    Kind::Segment,
    Kind::My,
    Kind::Partial,
    Kind::None,
];

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Vary => "vary",
            Self::Strips => "strips",
            Self::Begins => "begins",
            Self::Stale => "stale",
            Self::Holes => "holes",
            Self::Oops => "oops",
            Self::Segment => "segment",
            Self::My => "my",
            Self::Partial => "partials",
            Self::None => "none",
        }
    }

    fn of(path: &str) -> Option<Self> {
        let word = path.split('/').nth(1)?;
        KINDS.into_iter().chain([Self::Oops]).find(|kind| kind.word() == word)
    }
}

/// Which of a kind's pages say no name: what is personal in them no guard can know.
const QUIET: usize = 1;
/// Which of them have trailers.
const TRAILING: usize = 2;

/// The visitor, as the app sees it.
struct AppVisitor {
    session: Option<usize>,
    user: Option<usize>,
    /// The holder of the request; a page for all is asked for by a proxy.
    holder: Holder,
    /// What came beside the session.
    brought: String,
}

pub(crate) fn start(world: &Arc<World>) -> Origin {
    let world = Arc::clone(world);
    Origin::start(move |request| {
        let mut state = world.state();
        let seen = see(&state, request);
        let told = is_told_right(&state, request, &seen);
        if let Err(wrong) = told.and_then(|()| is_shown_no_token(request, &seen)) {
            state.wrong.get_or_insert(wrong);
        }
        let reply = match (request.method.as_str(), state.health) {
            // It is unknown whether a change that fails was made.
            ("POST", Health::Failing) if state.one_of(2) == 0 => Reply::html("no"),
            ("POST", _) => post(&mut state, request, &seen),
            _ => get(&mut state, request, &seen),
        };
        let is_oops = request.path().starts_with("/oops");
        let slow = Duration::from_millis(state.one_of(60));
        let is_prompt = state.one_of(3) > 0 && !is_oops || request.path() == "/whoami";
        if is_oops {
            state = at_the_gate(&world, state);
        }
        match state.health {
            Health::Well if is_prompt => reply,
            Health::Well | Health::Slow => reply.after(slow),
            Health::Failing => {
                let page = said_to(&mut state, &seen, false);
                Reply::status("500 Oops").header("Content-Type", "text/html").body(page)
            }
            Health::Breaking => {
                let page = said_to(&mut state, &seen, false);
                Reply::status("200 OK")
                    .header("Content-Type", "text/html")
                    .header("Cache-Control", "max-age=60")
                    .header("Content-Length", "1000")
                    .bytes(&format!("<html>{page} it breaks off"))
                    .closing()
            }
        }
    })
}

/// Comes to the gate, and passes it.
fn at_the_gate<'w>(world: &'w World, mut state: MutexGuard<'w, State>) -> MutexGuard<'w, State> {
    state.at_gate += 1;
    let gate = Arc::clone(&state.gate);
    drop(state);
    gate.pass();
    world.state()
}

fn see(state: &State, request: &Request) -> AppVisitor {
    let session = cookie(request, "SID").and_then(|id| state.session_of(id));
    let address = request.header("x-forwarded-for").unwrap_or_default();
    let browser = address.strip_prefix("192.0.2.").and_then(|number| number.parse().ok());
    let brought =
        [cookie(request, "_ga"), cookie(request, "theme"), request.header("authorization")];
    let brought: Vec<_> = brought.into_iter().flatten().collect();
    AppVisitor {
        session,
        user: session.and_then(|number| state.sessions[number].user),
        holder: browser.map_or(Holder::Nobody, |number: usize| Holder::Browser(number - 1)),
        brought: if brought.is_empty() { String::new() } else { format!("<u>{brought:?}</u>") },
    }
}

fn cookie<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    let cookies = request.header("cookie")?.split("; ").filter_map(|pair| pair.split_once('='));
    cookies.filter(|(its, _)| *its == name).map(|(_, value)| value).next()
}

/// Whether the app is told of no user but that of the session it is shown.
fn is_told_right(state: &State, request: &Request, seen: &AppVisitor) -> Result<(), String> {
    let Some(told) = request.header("x-anteroom-user") else { return Ok(()) };
    let user = seen.session.and_then(|number| state.sessions[number].was);
    match user.map(|user| &state.users[user].name) {
        Some(name) if name == told => Ok(()),
        whose => Err(format!(
            "the app is told that {told} asks, with the session of {whose:?}: {} {} of {:?}",
            request.method, request.target, seen.holder
        )),
    }
}

/// Whether the proxy keeps to itself by what it knows a visitor without a login.
fn is_shown_no_token(request: &Request, seen: &AppVisitor) -> Result<(), String> {
    let cookies = request.header("cookie").unwrap_or_default();
    match cookies.contains(VISITOR) {
        false => Ok(()),
        true => Err(format!(
            "the app is shown the token of a visitor: {} {} of {:?}",
            request.method, request.target, seen.holder
        )),
    }
}

fn get(state: &mut State, request: &Request, seen: &AppVisitor) -> Reply {
    let path = request.path().to_owned();
    if path == "/whoami" {
        return whoami(state, seen);
    }
    let Some(kind) = Kind::of(&path) else { return Reply::status("404 Not Found").body("nothing") };
    let number: usize = path.rsplit('/').next().and_then(|last| last.parse().ok()).unwrap_or(0);
    let personal = said_to(state, seen, number == QUIET);
    let group = seen.user.map(|user| state.groups[state.users[user].group].clone());
    let shared = |text: &str| format!("{}{text}", seen.brought);
    let text = match kind {
        Kind::Partial => {
            return Reply::html(&personal).header("Cache-Control", "private, max-age=60");
        }
        Kind::Holes => shared("<b id=name>you</b> <i id=count>0</i> <p id=cart>nothing</p>"),
        Kind::Oops => shared(&format!("<p>{}</p>", request.header("x-echo").unwrap_or("nothing"))),
        Kind::Segment if number % 4 == 3 => personal,
        Kind::Segment => shared(&format!("<p>for {}</p>", group.as_deref().unwrap_or("everybody"))),
        _ => personal,
    };
    let body = match kind {
        Kind::Segment => state.say_again(&path, &text, |number| page(number, &text)),
        _ => state.say(&path, |number| page(number, &text)),
    };
    let page = match number == TRAILING {
        true => trailing(state, seen, &body),
        false => Reply::html(&body),
    };
    let page = page.header("Cache-Tag", &format!("{}, all", kind.word()));
    let begins = [Kind::Strips, Kind::Begins, Kind::My, Kind::None].contains(&kind);
    let page = match begins && seen.session.is_none() {
        true => page.header("Set-Cookie", &new_session(state, None, seen)),
        false => page,
    };
    match kind {
        Kind::Vary | Kind::Segment => {
            page.header("Vary", "Cookie").header("Cache-Control", "max-age=60")
        }
        Kind::Stale => page.header("Cache-Control", "max-age=1"),
        Kind::My => page.header("Cache-Control", "private, max-age=60"),
        Kind::None => viewed(state, seen, page).header("Cache-Control", "no-store"),
        _ => page.header("Cache-Control", "public, max-age=60"),
    }
}

/// Begins a session, and returns the line that gives it.
fn new_session(state: &mut State, user: Option<usize>, seen: &AppVisitor) -> String {
    let new = state.session(user, seen.holder);
    format!("SID={}; Path=/; HttpOnly", state.sessions[new].id)
}

/// A page whose trailers name the visitor.
fn trailing(state: &mut State, seen: &AppVisitor, body: &str) -> Reply {
    let secret = match (seen.user, seen.session) {
        (Some(user), _) => state.mark(Owner::User(user)),
        (None, Some(session)) => state.sessions[session].secret.clone(),
        (None, None) => "nobody".to_owned(),
    };
    Reply::status("200 OK")
        .header("Content-Type", "text/html; charset=utf-8")
        .header("Trailer", "X-Seen")
        .chunks(&[body], &[("X-Seen", &secret)])
}

/// A page that the proxy is told to note as viewed.
fn viewed(state: &mut State, seen: &AppVisitor, page: Reply) -> Reply {
    let owner = match (seen.user, seen.holder) {
        (Some(user), _) if is_known(state, seen) => Owner::User(user),
        (_, Holder::Browser(browser)) => Owner::Browser(browser),
        (_, Holder::Nobody) => return page,
    };
    let item = state.mark(owner);
    page.header("Anteroom-Item", &format!("item{item}"))
}

/// Whether every proxy knows the user by now. For a second after the login a proxy may remember the visitor
/// as anonymous: views and purchases there are the browser's, as they were before.
fn is_known(state: &State, seen: &AppVisitor) -> bool {
    let known = seen.session.and_then(|session| state.sessions[session].known);
    known.is_some_and(|known| known.elapsed() >= SECOND)
}

/// A page of some length, with its number and its end.
fn page(number: usize, text: &str) -> String {
    let filling = "<p>the same for all</p>".repeat(40);
    format!("<html><!--number:{number}-->{text}{filling}<!--end--></html>")
}

/// What a page says to its visitor.
fn said_to(state: &mut State, seen: &AppVisitor, is_quiet: bool) -> String {
    let brought = &seen.brought;
    match (seen.user, seen.session) {
        (Some(user), _) => {
            let secret = state.mark(Owner::User(user));
            let User { name, email, .. } = &state.users[user];
            match is_quiet {
                true => format!("{brought}<p>{secret}</p>"),
                false => format!("{brought}<p>{name} {email} {secret}</p>"),
            }
        }
        (None, Some(session)) => {
            format!("{brought}<p>guest {}</p>", state.sessions[session].secret)
        }
        (None, None) => format!("{brought}<p>welcome</p>"),
    }
}

fn whoami(state: &State, seen: &AppVisitor) -> Reply {
    let json = match seen.user.map(|user| &state.users[user]) {
        Some(user) => format!(
            r#"{{"id":7,"name":"{}","email":"{}","group":"{}"}}"#,
            user.name, user.email, state.groups[user.group]
        ),
        None => r#"{"id":0}"#.to_owned(),
    };
    Reply::typed("application/json", &json).header("Cache-Control", "no-store")
}

fn post(state: &mut State, request: &Request, seen: &AppVisitor) -> Reply {
    let see = Reply::status("303 See Other").header("Location", "/plain/0");
    match request.path().split('/').nth(1) {
        Some("login") => {
            let Some((user, keeps)) = logs_in(&request.target) else {
                return Reply::status("400 Bad Request").body("no");
            };
            let name = state.users[user].name.clone();
            let old = seen.session.filter(|_| keeps && seen.user.is_none_or(|it| it == user));
            if let Some(old) = old {
                state.sessions[old].user = Some(user);
                state.sessions[old].was = Some(user);
                return see.body(format!("welcome {name}"));
            }
            let cookie = new_session(state, Some(user), seen);
            see.header("Set-Cookie", &cookie).body(format!("welcome {name}"))
        }
        Some("logout") => {
            let how = request.path().rsplit('/').next().and_then(LogOut::parse);
            let (Some(how), Some(session)) = (how, seen.session) else { return see.body("bye") };
            if matches!(how, LogOut::Clears | LogOut::Keeps) {
                state.sessions[session].user = None;
            }
            match how {
                LogOut::Clears | LogOut::Believes => {
                    see.header("Set-Cookie", "SID=deleted; Path=/; Max-Age=0").body("bye")
                }
                LogOut::Keeps => see.body("bye"),
                LogOut::Replaces => {
                    see.header("Set-Cookie", &new_session(state, None, seen)).body("bye")
                }
            }
        }
        Some("buy") => match buy(state, seen).or_else(|| buy_without_login(state, seen)) {
            Some(cart) => see.header("Anteroom-Cart", &cart).body("bought"),
            None => see.body("who are you?"),
        },
        _ => see.body("changed"),
    }
}

/// Puts a thing into the user's cart in the place of the one before, in a number that is its own.
fn buy(state: &mut State, seen: &AppVisitor) -> Option<String> {
    let (user, session) = seen.user.zip(seen.session).filter(|_| is_known(state, seen))?;
    let count = state.count(user);
    let item = format!("mug{}", state.mark(Owner::User(user)));
    let before = state.sessions[session].bought.replace(item.clone());
    let before = before.map(|before| format!("{before};count=0, ")).unwrap_or_default();
    Some(format!("{before}{item};count={count}"))
}

/// The same for a visitor without a login, or with one just made.
fn buy_without_login(state: &mut State, seen: &AppVisitor) -> Option<String> {
    let Holder::Browser(browser) = seen.holder else { return None };
    let item = format!("jug{}", state.mark(Owner::Browser(browser)));
    let before = state.browsers[browser].bought.replace(item.clone());
    let before = before.map(|before| format!("{before};count=0, ")).unwrap_or_default();
    Some(format!("{before}{item};count={WITHOUT_LOGIN}"))
}

/// The user that logs in, and whether the session stays: `/login?3-keeps`.
fn logs_in(target: &str) -> Option<(usize, bool)> {
    let (user, how) = target.split_once('?')?.1.split_once('-')?;
    Some((user.parse().ok()?, how == "keeps"))
}

impl LogOut {
    pub(crate) const ALL: [Self; 4] = [Self::Clears, Self::Believes, Self::Keeps, Self::Replaces];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Clears => "clears",
            Self::Believes => "believes",
            Self::Keeps => "keeps",
            Self::Replaces => "replaces",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|how| how.word() == word)
    }
}
