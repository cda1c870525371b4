//! The origin: it says what chance tells it to, and remembers all of it.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anteroom_http::clock::unix_now;
use anteroom_tests::wire::{Fields, Framing as Read, Wire};
use fastrand::Rng;

use crate::cast::PATHS;
use crate::rules::{Control, Framing, Kind, Page};
use crate::world::{Event, Health, Hold, OriginRequest, Purge, Scope, State, Url, World};

/// `Last-Modified` of the answer with the number 0; each further one is a second later.
const FIRST_CHANGE: u64 = 1_500_000_000;
/// The tags by which pages are purged.
pub(crate) const TAGS: [&str; 3] = ["red", "green", "blue"];

/// Starts it; it ends with the process.
pub(crate) fn start(world: &Arc<World>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let world = Arc::clone(world);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, world) = (stream.unwrap(), Arc::clone(&world));
            thread::spawn(move || {
                let mut wire = Wire::new(stream);
                // The proxy may go away at any time.
                drop(converse(&mut wire, &world));
                drop(wire.socket().shutdown(Shutdown::Both));
            });
        }
    });
    address
}

/// What is sent.
struct Reply {
    /// The answer that it is, where it is one.
    number: Option<usize>,
    head: Vec<u8>,
    rest: Vec<u8>,
    /// Whether the connection ends behind it.
    ends: bool,
}

fn converse(wire: &mut Wire, world: &World) -> io::Result<()> {
    loop {
        let Some(head) = wire.head()? else { return Ok(()) };
        drop(wire.body(Read::of(&head.fields, Read::Nothing)));
        let asked = world.tick();
        let mut words = head.first.split(' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let Some(seen) = seen(method, target, &head.fields) else {
            let what = format!("the origin was asked for {} {:?}", head.first, head.fields);
            panic!("{what}");
        };
        let hold = hold(&mut world.state(), &seen);
        if hold == Some(false) {
            world.pass();
        }
        let reply = {
            let mut state = world.state();
            look(&mut state, &seen, &head.fields);
            let many_wait = hold.is_some();
            answer(&mut state, seen, asked, many_wait, world, &head.fields)
        };
        send(wire.socket(), &reply, hold == Some(true), world)?;
        if reply.ends {
            return Ok(());
        }
    }
}

/// Whether this answer is held up: in the body or before it.
fn hold(state: &mut State, seen: &OriginRequest) -> Option<bool> {
    let Hold::Wanted { url, in_body } = &state.hold else { return None };
    let in_body = *in_body;
    (*url == seen.url && seen.method == "GET").then(|| {
        state.hold = Hold::Held;
        in_body
    })
}

fn send(socket: &mut TcpStream, reply: &Reply, is_held: bool, world: &World) -> io::Result<()> {
    // What has no body is whole with its head.
    if is_held && !reply.rest.is_empty() {
        socket.write_all(&reply.head)?;
        world.pass();
        // Time may have gone by before the proxy saw the head.
        if let Some(number) = reply.number {
            world.state().events[number].arrived = unix_now();
        }
        return socket.write_all(&reply.rest);
    }
    socket.write_all(&[reply.head.as_slice(), &reply.rest].concat())
}

fn seen(method: &str, target: &str, fields: &Fields) -> Option<OriginRequest> {
    let text = |name: &str| fields.get(name).map(str::to_owned);
    let scheme = fields.get("x-forwarded-proto")?;
    let (url, query) = Url::of(scheme, fields.get("host")?, target)?;
    Some(OriginRequest {
        method: method.to_owned(),
        url,
        query,
        id: fields.get("sec-fetch-id").and_then(|id| id.parse().ok()),
        user: text("x-anteroom-user"),
        cookie: text("cookie"),
        authorization: text("authorization"),
        variant: text("x-variant"),
        language: text("accept-language"),
        agent: text("user-agent"),
        custom: text("x-custom"),
    })
}

/// Looks whether the request is one that may have been sent.
fn look(state: &mut State, seen: &OriginRequest, fields: &Fields) {
    state.tell(Some(&seen.url), &format!("the origin sees {}", seen.text()));
    match seen.id {
        Some(id) => look_at_own(state, seen, id, fields),
        None => look_at_fill(state, seen, fields),
    }
}

/// A visitor's own request comes as it was sent.
fn look_at_own(state: &mut State, seen: &OriginRequest, id: u64, fields: &Fields) {
    if seen.method == "POST" {
        let writes = state.writes.entry(id).or_default();
        *writes += 1;
        if *writes > 1 {
            state.wrong(&seen.url, &format!("the write {id} came twice"));
        }
    }
    let Some(sent) = state.sent.iter().find(|sent| sent.ask.id == id) else { return };
    let ask = &sent.ask;
    let is_known = fields.get("x-anteroom-session") == Some("known");
    let user = ask.user().filter(|_| is_known);
    if (ask.method, &ask.url, ask.query.as_str(), user, ask.cookies(), ask.authorization())
        != (
            seen.method.as_str(),
            &seen.url,
            seen.query.as_str(),
            seen.user.as_deref(),
            seen.cookie.clone(),
            seen.authorization.clone(),
        )
    {
        let what = format!("{} came to the origin as {}", ask.text(), seen.text());
        state.wrong(&seen.url, &what);
    }
}

/// A request for all carries nothing of a visitor, and is made for one who may.
fn look_at_fill(state: &mut State, seen: &OriginRequest, fields: &Fields) {
    let rule = seen.url.rule();
    let is_keyed =
        |line: &String| rule.is_keyed && line.starts_with("lang=") && !line.contains(';');
    let cookie_is_keyed = seen.cookie.as_ref().is_none_or(is_keyed);
    let may_authorize = rule.share == crate::cast::Share::Public;
    let is_bare = cookie_is_keyed
        && seen.user.is_none()
        && (seen.authorization.is_none() || may_authorize)
        && (seen.variant.is_none() || rule.is_keyed)
        && seen.custom.is_none()
        && seen.method == "GET"
        && seen.query == seen.url.kept_query
        && fields.get("x-anteroom-session") == Some("none")
        && fields.get("x-forwarded-for") == Some("127.0.0.1");
    if !is_bare {
        let what = format!("a fetch for all carries something of a visitor: {fields:?}");
        state.wrong(&seen.url, &what);
    }
    if !state.open(&seen.url).any(|sent| sent.ask.may_fill()) {
        state.wrong(&seen.url, "a fetch for all is made for nobody who may");
    }
    let about = condition(fields).and_then(|number| state.events.get(number));
    if about.is_some_and(|page| page.seen.id.is_some() || page.seen.url != seen.url) {
        state.wrong(&seen.url, &format!("a fetch asks about another page: {fields:?}"));
    }
}

/// The answer that a conditional request is about.
fn condition(fields: &Fields) -> Option<usize> {
    if let Some(tag) = fields.get("if-none-match") {
        return tag.strip_prefix("\"s")?.strip_suffix('"')?.parse().ok();
    }
    let date = httpdate::parse_http_date(fields.get("if-modified-since")?).ok()?;
    let seconds = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
    usize::try_from(seconds.checked_sub(FIRST_CHANGE)?).ok()
}

fn answer(
    state: &mut State,
    seen: OriginRequest,
    asked: u64,
    many_wait: bool,
    world: &World,
    fields: &Fields,
) -> Reply {
    let fails = state.health == Health::Failing || state.rng.u8(..100) < 6;
    let now = unix_now();
    if fails {
        state.failures.insert(seen.url.place(), (state.step, now));
        if state.rng.u8(..3) == 0 {
            return hang_up(state, &seen, world);
        }
    }
    let is_cut = fails && seen.method == "GET" && state.rng.bool();
    let number = state.events.len();
    let (of, page) = match right_still(state, &seen, fields) {
        Some(held) if !fails => (held.of, revised(&held.page, &mut state.rng)),
        _ if many_wait && !fails => (number, Page::interesting(&mut state.rng)),
        _ => (number, new_page(&mut state.rng, &seen, fails, is_cut)),
    };
    let location = (page.status == 303).then(|| PATHS[state.rng.usize(..PATHS.len())]);
    let is_done = seen.method == "POST" && !fails;
    let purges = if is_done { change(state, &seen, location, world.tick()) } else { Vec::new() };
    // It may have asked before, of which nothing came.
    let asked_at = state.open(&seen.url).map(|sent| sent.at).fold(now, f64::min);
    // No request waits for it, so that time may go by before the proxy has it.
    let is_alone = state.open(&seen.url).all(|sent| sent.goes_on);
    let arrived = if is_alone { now + 1_000.0 } else { now };
    let (came, uses) = (now, 0);
    let event =
        Event { number, of, page, seen, asked, asked_at, came, arrived, is_cut, uses, purges };
    let reply = written(&event, location);
    remember(state, event, &reply);
    reply
}

/// No answer.
fn hang_up(state: &mut State, seen: &OriginRequest, world: &World) -> Reply {
    state.tell(Some(&seen.url), "the origin hangs up");
    // It may have done what it was asked before.
    if seen.method == "POST" && state.rng.bool() {
        let purges = change(state, seen, None, world.tick());
        // The outcome is unknown, so that nothing is gone.
        for purge in &purges {
            state.purges[*purge].is_hard = false;
        }
        state.lost.insert(seen.id.unwrap_or_default(), purges);
    }
    Reply { number: None, head: Vec::new(), rest: Vec::new(), ends: true }
}

fn new_page(rng: &mut Rng, seen: &OriginRequest, fails: bool, is_cut: bool) -> Page {
    let page = Page::any(rng);
    if seen.method == "POST" {
        let status = if fails { 500 } else { [200, 204, 303][rng.usize(..3)] };
        return Page { status, framing: Framing::Length, ..page };
    }
    if is_cut {
        // An end that is told by nothing else cannot be told from a cut.
        let framing = if page.framing == Framing::Close { Framing::Chunks } else { page.framing };
        return Page { framing, ..page };
    }
    if fails {
        let status = [500, 503][rng.usize(..2)];
        return Page { status, control: None, targeted: None, expires: None, ..page };
    }
    page
}

fn remember(state: &mut State, event: Event, reply: &Reply) {
    let Event { number, of, is_cut, page, seen, .. } = &event;
    let head = String::from_utf8_lossy(&reply.head);
    let head = head.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n", "; ");
    let kinds = format!("cut: {is_cut}, a token: {}", page.has_token);
    state.tell(Some(&seen.url), &format!("the origin answers {number} of {of} ({kinds}): {head}"));
    if seen.id.is_none() {
        state.newest.insert(seen.url.clone(), *number);
        if !page.vary.is_empty() {
            state.varied.insert(seen.url.clone());
        }
    }
    state.events.push(event);
}

/// The page that the request asks about, where it is right still.
fn right_still(state: &mut State, seen: &OriginRequest, fields: &Fields) -> Option<Event> {
    let about = state.events.get(condition(fields)?).filter(|_| seen.method != "POST")?;
    let changed = state.changes.get(&seen.url.place()).copied().unwrap_or(0);
    let is_right = about.seen.is_like(seen, &about.page.vary)
        && about.page.status == 200
        && about.of == about.number
        && about.asked > changed
        && !about.is_cut;
    if is_right && state.rng.u8(..10) < 7 { Some(about.clone()) } else { None }
}

/// What a 304 makes of a page.
fn revised(page: &Page, rng: &mut Rng) -> Page {
    let fresh = Control { max_age: Some(seconds(rng)), ..Control::any(rng) };
    Page {
        targeted: page.targeted.as_ref().map(|_| fresh.clone()),
        control: Some(fresh),
        expires: None,
        dated: page.dated.map(|_| u64::from(rng.u8(..50))),
        age: (rng.u8(..6) == 0).then(|| u64::from(rng.u8(..100))),
        sets_cookie: (rng.u8(..20) == 0).then_some("mine"),
        ..page.clone()
    }
}

/// Carries out what a write changes; the places of the purges.
fn change(
    state: &mut State,
    seen: &OriginRequest,
    location: Option<&'static str>,
    begun: u64,
) -> Vec<usize> {
    let (host, path, query) = seen.url.place();
    let mut scopes = vec![(Scope::Url { host, path, query }, true)];
    state.changes.insert((host, path, query), begun);
    if let Some(path) = location {
        state.changes.insert((host, path, ""), begun);
        scopes.push((Scope::Url { host, path, query: "" }, true));
    }
    if path.starts_with("/w/") {
        scopes.push((Scope::Prefix { host, path: "/a" }, false));
        scopes.push((Scope::Url { host, path: "/e/1", query: "" }, false));
    }
    let first = state.purges.len();
    state.purges.extend(scopes.into_iter().map(|(scope, is_hard)| Purge {
        scope,
        is_hard,
        begun,
        ended: None,
    }));
    (first..state.purges.len()).collect()
}

/// The bytes of an answer.
fn written(event: &Event, location: Option<&str>) -> Reply {
    let (page, number) = (&event.page, event.number);
    let is_validation = event.of != number;
    let status = if is_validation { 304 } else { page.status };
    let mut head = format!("HTTP/1.1 {status} So\r\nX-Event: {number}\r\n");
    let mut line = |name: &str, value: &str| head += &format!("{name}: {value}\r\n");
    if let Some(dated) = page.dated {
        let at = UNIX_EPOCH + Duration::from_secs_f64(event.came) - Duration::from_secs(dated);
        line("Date", &httpdate::fmt_http_date(at));
    }
    if let Some(control) = &page.control {
        line("Cache-Control", &control.text());
    }
    if let Some(targeted) = &page.targeted {
        line("CDN-Cache-Control", &targeted.text());
    }
    if let Some(expires) = page.expires {
        let at = UNIX_EPOCH + Duration::from_secs_f64(event.came) + Duration::from_secs(expires);
        line("Expires", &httpdate::fmt_http_date(at));
    }
    if let Some(age) = page.age {
        line("Age", &age.to_string());
    }
    if !page.vary.is_empty() {
        line("Vary", &page.vary.join(", "));
    }
    if let Some(name) = page.sets_cookie {
        line("Set-Cookie", &format!("{name}=of-{number}; Path=/"));
    }
    if page.has_tag {
        line("ETag", &format!("\"s{}\"", event.of));
    }
    if page.has_date_of_change {
        let at = UNIX_EPOCH + Duration::from_secs(FIRST_CHANGE + event.of as u64);
        line("Last-Modified", &httpdate::fmt_http_date(at));
    }
    if !page.purge_tags.is_empty() {
        line("Surrogate-Key", &page.purge_tags.join(" "));
    }
    if page.speaks_of_visitor {
        line("Anteroom-Item", "lamp");
    }
    if let Some(location) = location {
        line("Location", location);
    }
    if is_validation || status == 204 {
        let head = format!("{head}\r\n").into_bytes();
        return Reply { number: Some(number), head, rest: Vec::new(), ends: false };
    }
    line("Content-Type", page.kind.name());
    with_body(event, head)
}

/// Adds the body, or a part of it.
fn with_body(event: &Event, mut head: String) -> Reply {
    let page = &event.page;
    let body = body(event.number, page);
    match page.framing {
        Framing::Length => head += &format!("Content-Length: {}\r\n\r\n", body.len()),
        Framing::Chunks => head += "Transfer-Encoding: chunked\r\n\r\n",
        Framing::Close => head += "Connection: close\r\n\r\n",
    }
    let ends = event.is_cut || page.framing == Framing::Close;
    if event.seen.method == "HEAD" {
        return Reply {
            number: Some(event.number),
            head: head.into_bytes(),
            rest: Vec::new(),
            ends,
        };
    }
    let (first, second) = body.split_at(body.len() / 2);
    let part = |part: &str| match page.framing {
        Framing::Chunks if part.is_empty() => String::new(),
        Framing::Chunks => format!("{:x}\r\n{part}\r\n", part.len()),
        Framing::Length | Framing::Close => part.to_owned(),
    };
    let mut rest = if event.is_cut { String::new() } else { part(second) };
    if page.framing == Framing::Chunks && !event.is_cut {
        rest += "0\r\n\r\n";
    }
    let head = (head + &part(first)).into_bytes();
    Reply { number: Some(event.number), head, rest: rest.into_bytes(), ends }
}

/// The whole body of an answer.
pub(crate) fn body(number: usize, page: &Page) -> String {
    let mut body = match page.kind {
        Kind::Html => format!("<p>{number:08}</p>\n"),
        Kind::Css => format!("/*{number:08}*/\n"),
        Kind::Image | Kind::Json => format!("\"{number:08}\"\n"),
    }
    .repeat(page.copies);
    if page.has_token {
        body += "<form><input type=\"hidden\" name=\"csrf_token\" value=\"3f9a\"></form>\n";
    }
    body
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Css => "text/css",
            Self::Image => "image/png",
            Self::Json => "application/json",
        }
    }
}

/// Some lifetime.
fn seconds(rng: &mut Rng) -> u64 {
    [0, 5, 20, 60, 120, 300, 300, 600][rng.usize(..8)]
}

impl Control {
    /// Mostly what can be shared.
    fn any(rng: &mut Rng) -> Self {
        let mut some = |of: u8| rng.u8(..of) == 0;
        let (private, no_store, no_cache) = (some(40), some(40), some(40));
        let (public, must_revalidate) = (some(3), some(12));
        let (has_age, has_shared, has_swr, has_sie) = (!some(10), some(10), some(6), some(6));
        Self {
            private,
            no_store,
            no_cache,
            public,
            must_revalidate,
            max_age: has_age.then(|| seconds(rng)),
            s_maxage: has_shared.then(|| seconds(rng)),
            while_revalidate: has_swr.then(|| u64::from(rng.u8(..60))),
            if_error: has_sie.then(|| u64::from(rng.u8(..60))),
        }
    }
}

impl Page {
    fn any(rng: &mut Rng) -> Self {
        if rng.u8(..8) == 0 { Self::wild(rng) } else { Self::plain(rng) }
    }

    /// What those who wait for it are easily given wrongly: soon stale, or with a token in it.
    fn interesting(rng: &mut Rng) -> Self {
        let page = Self::any(rng);
        match rng.u8(..3) {
            0 => {
                let max_age = Some(20);
                let control = Some(Control { max_age, public: true, ..Control::default() });
                Self { control, targeted: None, age: None, dated: None, ..page }
            }
            1 => Self { has_token: page.kind == Kind::Html, ..page },
            _ => page,
        }
    }

    /// What most pages are like.
    fn plain(rng: &mut Rng) -> Self {
        let max_age = Some(60 * rng.u64(1..11));
        let has_control = rng.u8(..4) > 0;
        let kind = [Kind::Html, Kind::Css][rng.usize(..2)];
        Self {
            status: 200,
            framing: [Framing::Length, Framing::Chunks][rng.usize(..2)],
            kind,
            control: has_control.then(|| Control { max_age, ..Control::default() }),
            targeted: None,
            expires: None,
            dated: rng.bool().then_some(0),
            age: None,
            vary: if rng.u8(..20) == 0 { vec!["Accept-Language"] } else { Vec::new() },
            sets_cookie: None,
            has_token: kind == Kind::Html && rng.u8(..30) == 0,
            speaks_of_visitor: false,
            ..Self::wild(rng)
        }
    }

    /// Anything.
    fn wild(rng: &mut Rng) -> Self {
        let mut some = |of: u8| rng.u8(..of) == 0;
        let (has_control, has_target, has_expires) = (!some(3), some(20), some(12));
        let (has_date, has_age, has_vary, sets_cookie) = (some(2), some(8), some(6), some(30));
        let (has_tag, has_date_of_change) = (some(2), some(4));
        let (has_token, speaks_of_visitor, is_large) = (some(25), some(60), some(30));
        let vary = [
            &["Accept-Language"][..],
            &["Accept-Language", "User-Agent"],
            &["X-Custom"],
            &["Cookie"],
            &["*"],
            &["Accept-Language"],
        ];
        let kind = [Kind::Html, Kind::Html, Kind::Css, Kind::Image, Kind::Json][rng.usize(..5)];
        let framing = [Framing::Length, Framing::Chunks, Framing::Close];
        Self {
            status: [200, 200, 200, 200, 200, 200, 200, 200, 200, 404, 302][rng.usize(..11)],
            kind,
            framing: framing[if rng.u8(..30) == 0 { 2 } else { rng.usize(..2) }],
            copies: if is_large { 600 } else { rng.usize(1..30) },
            control: has_control.then(|| Control::any(rng)),
            targeted: has_target
                .then(|| Control { max_age: Some(seconds(rng)), ..Control::any(rng) }),
            expires: has_expires.then(|| seconds(rng)),
            dated: has_date.then(|| u64::from(rng.u8(..4)) * u64::from(rng.u8(..40))),
            age: has_age.then(|| u64::from(rng.u8(..200))),
            vary: if has_vary { vary[rng.usize(..vary.len())].to_vec() } else { Vec::new() },
            sets_cookie: sets_cookie.then(|| if rng.bool() { "mine" } else { "track" }),
            has_tag,
            has_date_of_change,
            purge_tags: TAGS.into_iter().filter(|_| rng.u8(..3) == 0).collect(),
            has_token: has_token && kind == Kind::Html,
            speaks_of_visitor,
        }
    }
}
