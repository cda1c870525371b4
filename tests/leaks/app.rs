//! An app in PHP's manner: it keeps its sessions by a cookie, says who one is when it is asked, and is
//! careless with what may be cached.

use std::sync::Arc;
use std::time::Duration;

use crate::support::origin::{Origin, Reply, Request};
use crate::world::{Health, LogOut, Owner, State, World};

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
match.path = ["/none/**", "/whoami", "/login", "/logout/**", "/buy", "/change/**"]
share = "none"
"##;

/// The kinds of pages, by the first part of their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For strangers; others have theirs.
    Plain,
    /// The same with `Vary: Cookie`.
    Vary,
    /// Each begins a session where there is none.
    Strips,
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
    /// Nobody else's.
    None,
}

pub(crate) const KINDS: [Kind; 9] = [
    Kind::Plain,
    Kind::Vary,
    Kind::Strips,
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

/// Who asks, as the app sees it.
struct Seen {
    session: Option<usize>,
    user: Option<usize>,
}

pub(crate) fn start(world: &Arc<World>) -> Origin {
    let world = Arc::clone(world);
    Origin::start(move |request| {
        let mut state = world.state();
        let cookies = request.header("cookie").unwrap_or_default();
        state.has_shown_token |= cookies.contains("anteroom_visitor");
        let session = sid(request).and_then(|id| state.session_of(id));
        let seen = Seen { session, user: session.and_then(|number| state.sessions[number].user) };
        if request.method == "POST" {
            return post(&mut state, request, &seen);
        }
        let reply = get(&mut state, request, &seen);
        let slow = Duration::from_millis(fastrand::u64(..60));
        match state.health {
            Health::Well if request.path() == "/whoami" => reply,
            Health::Well if fastrand::u8(..3) > 0 && !request.path().starts_with("/oops") => reply,
            Health::Well | Health::Slow => reply.after(slow),
            Health::Failing => {
                Reply::status("500 Oops").header("Content-Type", "text/html").body("no")
            }
            Health::Breaking => Reply::status("200 OK")
                .header("Content-Type", "text/html")
                .header("Cache-Control", "max-age=60")
                .header("Content-Length", "1000")
                .bytes("<html>it breaks off")
                .closing(),
        }
    })
}

fn sid(request: &Request) -> Option<&str> {
    let cookies = request.header("cookie")?.split("; ");
    cookies.filter_map(|cookie| cookie.strip_prefix("SID=")).next()
}

fn get(state: &mut State, request: &Request, seen: &Seen) -> Reply {
    let path = request.path().to_owned();
    if path == "/whoami" {
        return whoami(state, seen);
    }
    let Some(kind) = Kind::of(&path) else { return Reply::status("404 Not Found").body("nothing") };
    let personal = personal(state, seen);
    let group = seen.user.map(|user| state.groups[state.users[user].group].clone());
    let number: usize = path.rsplit('/').next().and_then(|last| last.parse().ok()).unwrap_or(0);
    let text = match kind {
        Kind::Partial => {
            return Reply::html(&personal).header("Cache-Control", "private, max-age=60");
        }
        Kind::Holes => "<b id=name>you</b> <i id=count>0</i> <p id=cart>nothing</p>".to_owned(),
        Kind::Oops => format!("<p>{}</p>", request.header("x-echo").unwrap_or("nothing")),
        Kind::Segment if number % 4 == 3 => personal,
        Kind::Segment => format!("<p>for {}</p>", group.as_deref().unwrap_or("everybody")),
        _ => personal,
    };
    let body = match kind {
        Kind::Segment => state.say_again(&path, &text, |number| page(number, &text)),
        _ => state.say(&path, |number| page(number, &text)),
    };
    let page = Reply::html(&body).header("Cache-Tag", &format!("{}, all", kind.word()));
    let begins = matches!(kind, Kind::Strips | Kind::My | Kind::None) && seen.session.is_none();
    let page = match begins {
        true => {
            let new = state.session(None);
            page.header("Set-Cookie", &format!("SID={}; Path=/; HttpOnly", state.sessions[new].id))
        }
        false => page,
    };
    match kind {
        Kind::Vary | Kind::Segment => {
            page.header("Vary", "Cookie").header("Cache-Control", "max-age=60")
        }
        Kind::Stale => page.header("Cache-Control", "max-age=1"),
        Kind::My => page.header("Cache-Control", "private, max-age=60"),
        Kind::None => page.header("Cache-Control", "no-store"),
        _ => page.header("Cache-Control", "public, max-age=60"),
    }
}

/// A page of some length, with its number and its end.
fn page(number: usize, text: &str) -> String {
    let filling = "<p>the same for all</p>".repeat(40);
    format!("<html><!--number:{number}-->{text}{filling}<!--end--></html>")
}

/// What a page says to whom it is for.
fn personal(state: &mut State, seen: &Seen) -> String {
    match (seen.user, seen.session) {
        (Some(user), _) => {
            let secret = state.mark(Owner::User(user));
            let user = &state.users[user];
            format!("<p>{} {} {secret}</p>", user.name, user.email)
        }
        (None, Some(session)) => format!("<p>guest {}</p>", state.sessions[session].secret),
        (None, None) => "<p>welcome</p>".to_owned(),
    }
}

fn whoami(state: &State, seen: &Seen) -> Reply {
    let json = match seen.user.map(|user| &state.users[user]) {
        Some(user) => format!(
            r#"{{"id":7,"name":"{}","email":"{}","group":"{}"}}"#,
            user.name, user.email, state.groups[user.group]
        ),
        None => r#"{"id":0}"#.to_owned(),
    };
    Reply::typed("application/json", &json).header("Cache-Control", "no-store")
}

fn post(state: &mut State, request: &Request, seen: &Seen) -> Reply {
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
            let new = state.session(Some(user));
            let cookie = format!("SID={}; Path=/; HttpOnly", state.sessions[new].id);
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
                    let new = state.session(None);
                    let cookie = format!("SID={}; Path=/; HttpOnly", state.sessions[new].id);
                    see.header("Set-Cookie", &cookie).body("bye")
                }
            }
        }
        Some("buy") => match seen.user {
            Some(user) => {
                let count = state.count(user);
                see.header("Anteroom-Cart", &format!("mug;count={count}")).body("bought")
            }
            None => see.body("who are you?"),
        },
        _ => see.body("changed"),
    }
}

/// Who logs in, and whether his session stays: `/login?3-keeps`.
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
