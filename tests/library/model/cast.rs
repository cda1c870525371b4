//! Visitors and their requests: addresses, cookies, the routes of the configuration.

use fastrand::Rng;

/// The sites.
const HOSTS: [&str; 2] = ["a.test", "b.test"];
/// The names of the schemes.
const SCHEMES: [&str; 2] = ["http", "https"];
/// Queries, as they are when what is ignored is gone.
const QUERIES: [&str; 3] = ["", "q=1", "q=2"];
/// The paths: those that come first are asked for more often.
pub(crate) const PATHS: [&str; 14] = [
    "/a/1", "/a/2", "/e/1", "/p/1", "/a/3", "/k/1", "/s/1", "/t/1", "/e/2", "/a/4", "/p/2", "/n/1",
    "/w/1", "/a/4/5",
];
/// The users who have sessions, each under the token `token-of-<user>`.
pub(crate) const USERS: [&str; 3] = ["ada", "bob", "eve"];

/// The configuration's routes.
pub(crate) const ROUTES: &str = r#"
[[route]]
match.path = "/e/**"
share = "everyone"

[[route]]
match.path = "/n/**"
share = "none"

[[route]]
match.path = "/p/**"
trust_public = true

[[route]]
match.path = "/k/**"
key_cookies = ["lang"]
key_headers = ["x-variant"]

[[route]]
match.path = "/s/**"
strip_set_cookie = ["track"]

[[route]]
match.path = "/t/**"
ttl = "300s"

[[route]]
match.path = "/w/**"
purges = ["/a/**", "/e/1"]
"#;

/// The visitors that share a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Anonymous,
    Everyone,
    None,
    Public,
}

/// What a route says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) share: Share,
    /// By a cookie and by a field.
    pub(crate) is_keyed: bool,
    /// The cookie that is cut off.
    pub(crate) strips: Option<&'static str>,
    /// Whether pages of any type have the default lifetime.
    pub(crate) has_ttl: bool,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Url {
    pub(crate) scheme: &'static str,
    pub(crate) host: &'static str,
    pub(crate) path: &'static str,
    /// The query without what is ignored.
    pub(crate) kept_query: &'static str,
}

impl Url {
    pub(crate) fn rule(&self) -> Rule {
        let plain = Rule { share: Share::Anonymous, is_keyed: false, strips: None, has_ttl: false };
        match &self.path[..3] {
            "/e/" => Rule { share: Share::Everyone, ..plain },
            "/n/" => Rule { share: Share::None, ..plain },
            "/p/" => Rule { share: Share::Public, ..plain },
            "/k/" => Rule { is_keyed: true, ..plain },
            "/s/" => Rule { strips: Some("track"), ..plain },
            "/t/" => Rule { has_ttl: true, ..plain },
            _ => plain,
        }
    }

    /// Some address; the first ones more often.
    pub(crate) fn any(rng: &mut Rng) -> Self {
        let mut some = || rng.usize(..PATHS.len());
        let path = some().min(some()).min(some()).min(some());
        Self {
            scheme: SCHEMES[usize::from(rng.u8(..5) == 0)],
            host: HOSTS[usize::from(rng.u8(..10) == 0)],
            path: PATHS[path],
            kept_query: QUERIES[if rng.u8(..3) > 0 { 0 } else { rng.usize(..QUERIES.len()) }],
        }
    }

    /// The address that a request which reached the origin was for; `None` where the model knows none
    /// such.
    pub(crate) fn of(scheme: &str, host: &str, target: &str) -> Option<(Self, String)> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let kept: Vec<_> = query.split('&').filter(|part| !part.starts_with("utm_")).collect();
        let kept = kept.join("&");
        let url = Self {
            scheme: SCHEMES.into_iter().find(|known| *known == scheme)?,
            host: HOSTS.into_iter().find(|known| *known == host)?,
            path: PATHS.into_iter().find(|known| *known == path)?,
            kept_query: QUERIES.into_iter().find(|known| *known == kept)?,
        };
        Some((url, query.to_owned()))
    }
}

/// The visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visitor {
    Anonymous,
    /// With a cookie that only scripts in the browser use.
    Harmless,
    Known(&'static str),
    /// With an unknown session cookie.
    Token,
    /// With an unknown cookie.
    Cookie,
    Authorization,
    /// With two session cookies.
    Rivals,
}

impl Visitor {
    pub(crate) fn any(rng: &mut Rng) -> Self {
        match rng.u8(..20) {
            0..10 => Self::Anonymous,
            10..12 => Self::Harmless,
            12..16 => Self::Known(USERS[rng.usize(..USERS.len())]),
            16 => Self::Token,
            17 => Self::Cookie,
            18 => Self::Authorization,
            _ => Self::Rivals,
        }
    }
}

/// A request in the making.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) method: &'static str,
    pub(crate) url: Url,
    /// As it is sent.
    pub(crate) query: String,
    pub(crate) visitor: Visitor,
    /// The value of the cookie that one route is keyed by; unknown to the others.
    pub(crate) lang: Option<&'static str>,
    pub(crate) variant: Option<String>,
    pub(crate) language: Option<&'static str>,
    pub(crate) agent: Option<&'static str>,
    pub(crate) custom: Option<&'static str>,
    pub(crate) address: Option<&'static str>,
    /// `Accept-Encoding`.
    pub(crate) coding: Option<&'static str>,
    /// `If-None-Match`.
    pub(crate) tag: Option<String>,
}

impl Ask {
    /// A request by anybody.
    pub(crate) fn any(rng: &mut Rng, id: u64, url: Url) -> Self {
        let mut some = |of: u8| rng.u8(..of) == 0;
        let (noise, is_head, has_lang) =
            (some(8), some(30), some(if url.rule().is_keyed { 2 } else { 40 }));
        let (has_variant, has_custom, has_address) = (some(3), some(20), some(3));
        let is_coded = some(8);
        let query = match (noise, url.kept_query) {
            (false, kept) => kept.to_owned(),
            (true, "") => "utm_source=x".to_owned(),
            (true, kept) => format!("utm_medium=y&{kept}&utm_source=x"),
        };
        Self {
            id,
            method: if is_head { "HEAD" } else { "GET" },
            query,
            lang: has_lang.then(|| if rng.bool() { "de" } else { "fr" }),
            variant: (has_variant && url.rule().is_keyed).then(|| rng.u8(..2).to_string()),
            language: [None, Some("de"), Some("en")][rng.usize(..3)],
            agent: [None, Some("Browser/1"), Some("Robot/2")][rng.usize(..3)],
            custom: has_custom.then_some("custom"),
            address: has_address.then_some("192.0.2.7"),
            visitor: Visitor::any(rng),
            coding: is_coded.then_some("gzip"),
            tag: None,
            url,
        }
    }

    /// Whether the visitor is certainly anonymous.
    pub(crate) fn is_anonymous(&self) -> bool {
        matches!(self.visitor, Visitor::Anonymous | Visitor::Harmless)
            && (self.lang.is_none() || self.url.rule().is_keyed)
    }

    /// Whether a fetch for all may be made for this request.
    pub(crate) fn may_fill(&self) -> bool {
        self.method == "GET"
            && match self.url.rule().share {
                Share::None => false,
                Share::Everyone | Share::Public => true,
                Share::Anonymous => self.is_anonymous(),
            }
    }

    pub(crate) fn user(&self) -> Option<&'static str> {
        match self.visitor {
            Visitor::Known(user) => Some(user),
            _ => None,
        }
    }

    pub(crate) fn authorization(&self) -> Option<String> {
        (self.visitor == Visitor::Authorization).then(|| "Bearer of-the-visitor".to_owned())
    }

    /// The cookie line of the visitor's request.
    pub(crate) fn cookies(&self) -> Option<String> {
        let own = match self.visitor {
            Visitor::Anonymous | Visitor::Authorization => None,
            Visitor::Harmless => Some("_ga=GA1.1.2".to_owned()),
            Visitor::Known(user) => Some(format!("login=token-of-{user}")),
            Visitor::Token => Some("login=token-of-nobody".to_owned()),
            Visitor::Cookie => Some("theme=dark".to_owned()),
            Visitor::Rivals => Some("login=token-of-ada; login=token-of-bob".to_owned()),
        };
        let all: Vec<_> = own.into_iter().chain(self.keyed_cookie_anywhere()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn keyed_cookie_anywhere(&self) -> Option<String> {
        self.lang.map(|lang| format!("lang={lang}"))
    }

    /// The cookies that a fetch for all may carry.
    pub(crate) fn keyed_cookie(&self) -> Option<String> {
        self.keyed_cookie_anywhere().filter(|_| self.url.rule().is_keyed)
    }

    /// The cookies by which an origin could choose.
    pub(crate) fn telling_cookies(&self) -> Option<String> {
        if self.visitor == Visitor::Harmless {
            self.keyed_cookie_anywhere()
        } else {
            self.cookies()
        }
    }

    /// In short, for the story.
    pub(crate) fn text(&self) -> String {
        let Self { id, method, query, visitor, variant, language, agent, custom, .. } = self;
        let told = (query, &self.lang, variant, language, agent, custom, &self.address, &self.tag);
        format!("{id} {method} {visitor:?} {told:?}")
    }

    /// The bytes to send.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Url { scheme, host, path, .. } = &self.url;
        let query = if self.query.is_empty() { String::new() } else { format!("?{}", self.query) };
        let mut head = format!(
            "{} {path}{query} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Proto: {scheme}\r\n\
             Sec-Fetch-Id: {}\r\n",
            self.method, self.id
        );
        let lines = [
            ("Cookie", self.cookies()),
            ("Authorization", self.authorization()),
            ("X-Variant", self.variant.clone()),
            ("Accept-Language", self.language.map(str::to_owned)),
            ("User-Agent", self.agent.map(str::to_owned)),
            ("X-Custom", self.custom.map(str::to_owned)),
            ("X-Forwarded-For", self.address.map(str::to_owned)),
            ("Accept-Encoding", self.coding.map(str::to_owned)),
            ("If-None-Match", self.tag.clone()),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                head += &format!("{name}: {value}\r\n");
            }
        }
        if self.method == "POST" {
            head += "Content-Length: 4\r\n\r\nbody";
        } else {
            head += "\r\n";
        }
        head.into_bytes()
    }
}
