//! The visitor: what the cookies say, and who the store says it is.

use std::rc::Rc;

use ::http::request::Parts;

use super::revoked::Suspects;
use super::verify::{self, Asking, Verdict};
use crate::cache::Look;
use crate::cache::rules::verdict::Who;
use crate::http::client_cert::ClientCertificate;
use crate::http::cookie::{cookies, is_harmless};
use crate::http::extract::Expression;
use crate::http::pattern::Pattern;
use crate::http::query::session_id_in;
use crate::ident::{CookieHash, StoredToken, Token, User};
use crate::policy::route::Route;
use crate::proxy::Room;
use crate::store::{CartOwner, StoreError, Terms};
use crate::telemetry::access_log::VisitorClass;
use crate::telemetry::metrics::Count;
use crate::telemetry::reason::Reason;

/// Session cookies of one name that a log-out ends, at most: each is a call to the store.
const RIVALS_MAX: usize = 32;

/// Which cookies mean what.
#[derive(Clone, Debug)]
pub struct CookieRules {
    /// Cookies whose presence may mean a person; the token is the first of them that came.
    pub session: Vec<Pattern>,
    /// Whether the session cookie is one that only we mint.
    pub minted: bool,
    /// What of a session cookie is its token.
    pub token: TokenFrom,
    /// Harmless ones, beside the built-in list.
    pub ignored: Vec<Pattern>,
    /// Whether a cookie that is none of these makes its visitor unknown.
    pub unknown_bypass: bool,
}

/// What of a session cookie's value is the token.
#[derive(Clone, Debug)]
pub enum TokenFrom {
    /// All of it, or where the expression is given what that finds.
    Value(Option<Expression>),
    /// The SHA-256 of that.
    Sha256(Option<Expression>),
}

impl Default for TokenFrom {
    fn default() -> Self {
        Self::Value(None)
    }
}

impl TokenFrom {
    /// The token in a cookie's value.
    pub(in crate::proxy) fn token(&self, value: &[u8]) -> Option<Token> {
        let lasting = self.lasting(value).filter(|part| !part.is_empty())?;
        match self {
            Self::Value(_) => Token::parse(lasting),
            Self::Sha256(_) => Some(Token::digest(lasting)),
        }
    }

    /// What of the value stays the same while the session does.
    fn lasting<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        match self {
            Self::Value(None) | Self::Sha256(None) => Some(value),
            Self::Value(Some(part)) | Self::Sha256(Some(part)) => part.find(value),
        }
    }

    /// The hash of session cookies at a host for the origin `site`, under which it is remembered what the app said
    /// of their visitor: apps at two hosts, or two of one host, may each know somebody else by the same token.
    pub(in crate::proxy) fn hash(
        &self,
        (site, host): (&str, &str),
        cookies: &[(&[u8], &[u8])],
    ) -> CookieHash {
        let lasting = |&(name, value)| (name, self.lasting(value).unwrap_or(value));
        let mut cookies: Vec<(&[u8], &[u8])> = cookies.iter().map(lasting).collect();
        // No cookie has an empty name, nor one that holds an equals sign.
        cookies.extend([(&b""[..], site.as_bytes()), (b"=", host.as_bytes())]);
        CookieHash::of(&mut cookies)
    }
}

impl CookieRules {
    /// What a cookie is on a route.
    pub(in crate::proxy) fn class(&self, name: &[u8], route: &Route) -> CookieClass {
        match self.session.iter().position(|pattern| pattern.matches(name)) {
            Some(rank) => CookieClass::Session(rank),
            None if self.is_harmless(name) => CookieClass::Harmless,
            None if route.keys_cookie(name) => CookieClass::Keyed,
            None => CookieClass::Unknown,
        }
    }

    /// Whether a cookie may mean a person.
    pub(in crate::proxy) fn is_session(&self, name: &[u8]) -> bool {
        self.session.iter().any(|pattern| pattern.matches(name))
    }

    /// The name of the first of session cookies by rank: of that which gives the token.
    pub(in crate::proxy) fn leading<'c>(&self, cookies: &[(&'c [u8], &[u8])]) -> Option<&'c [u8]> {
        let rank = |name: &[u8]| self.session.iter().position(|pattern| pattern.matches(name));
        let ranked = cookies.iter().filter_map(|(name, _)| Some((rank(name)?, *name)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, name)| name)
    }

    /// The token of session cookies: of the first of them by rank. `None` where there are several of its
    /// name, of which an app may take either.
    pub(in crate::proxy) fn only_token_of(&self, cookies: &[(&[u8], &[u8])]) -> Option<Token> {
        let leading = self.leading(cookies)?;
        let mut values = cookies.iter().filter(|(name, _)| *name == leading);
        let (_, value) = values.next().filter(|_| values.next().is_none())?;
        self.token.token(value)
    }

    /// Whether an app may take the cookie for one that may mean a person.
    pub(in crate::proxy) fn may_be_session(&self, name: &[u8]) -> bool {
        self.session.iter().any(|pattern| pattern.may_be_read_as(name))
    }

    /// Whether no origin reads the cookie: scripts in the browser do, or the operator said so.
    pub(in crate::proxy) fn is_harmless(&self, name: &[u8]) -> bool {
        is_harmless(name) || self.ignored.iter().any(|pattern| pattern.matches(name))
    }
}

/// What a cookie is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum CookieClass {
    /// A session's, by the pattern in this place.
    Session(usize),
    /// No origin reads it.
    Harmless,
    /// Part of the key on this route.
    Keyed,
    /// Nobody has named it.
    Unknown,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Visitor {
    /// For the identity header and the log.
    pub(in crate::proxy) class: VisitorClass,
    /// For sharing: a known visitor may be unknown here.
    pub(in crate::proxy) sharing: Who,
    /// The token that came, if it is one.
    pub(in crate::proxy) token: Option<StoredToken>,
    /// What the app's word about him is remembered under, where it is asked for that.
    pub(in crate::proxy) carried: Option<CookieHash>,
    /// Whether the app must not see his session cookies: he has logged out with them.
    pub(in crate::proxy) is_barred: bool,
    /// The tokens that came where there were several: none of them is believed, and a log-out or a
    /// log-in ends them all.
    pub(in crate::proxy) rivals: Vec<StoredToken>,
    user: Option<User>,
    /// Whether the store could not say whose the token is.
    unsure: bool,
}

impl Default for Visitor {
    /// Nobody in particular.
    fn default() -> Self {
        Self {
            class: VisitorClass::Anonymous,
            sharing: Who::Anonymous,
            token: None,
            carried: None,
            is_barred: false,
            rivals: Vec::new(),
            user: None,
            unsure: false,
        }
    }
}

impl Visitor {
    /// Token and user of a known visitor.
    pub(in crate::proxy) fn known(&self) -> Option<(&StoredToken, &User)> {
        self.token.as_ref().zip(self.user.as_ref())
    }

    /// The user of a known visitor.
    pub(in crate::proxy) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Whose cart he may change: his own, and where the store could not say in time who he is,
    /// whatever it says when it is changed.
    pub(in crate::proxy) fn cart_owner(&self, terms: Terms) -> Option<CartOwner> {
        let token = self.token.clone().filter(|_| self.user.is_some() || self.unsure)?;
        Some(CartOwner { token, user: self.user.clone(), now: terms.now, terms })
    }

    /// Whether nobody is logged in, for certain, by whatever he may be known.
    pub(in crate::proxy) fn is_nobody(&self) -> bool {
        self.class == VisitorClass::Anonymous && self.sharing == Who::Anonymous
    }

    /// Whether the store could not say who he is.
    pub(in crate::proxy) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Who shows a certificate is somebody, also where no cookie says so: what he is shown may be his.
    pub(in crate::proxy) fn over(mut self, certificate: Option<&ClientCertificate>) -> Self {
        if certificate.is_none() {
            return self;
        }
        self.sharing = match self.sharing {
            Who::Anonymous => Who::Unknown(Reason::ClientCertificate),
            Who::Known | Who::Apart(_) => Who::Apart(Reason::ClientCertificate),
            unknown @ Who::Unknown(_) => unknown,
        };
        self
    }

    /// Of whom the app is asked who he is.
    pub(in crate::proxy) fn in_question() -> Self {
        Self::unknown(Reason::Unverified, None)
    }

    fn unknown(reason: Reason, token: Option<StoredToken>) -> Self {
        let class = VisitorClass::Unknown;
        Self { class, sharing: Who::Unknown(reason), token, ..Self::default() }
    }
}

/// What the cookies alone say.
enum Carried {
    Nothing,
    Token(Token, Option<CookieHash>),
    /// One that is no token.
    Malformed,
    /// Several of one name, of which these are tokens.
    Rivals(Vec<Token>),
}

/// Recognises the visitor of a request to a host, as `Admitted::site` says it.
pub(in crate::proxy) async fn recognise(
    room: &Rc<Room>,
    (head, host): (&Parts, &str),
    route: &Route,
    now: f64,
    asking: Asking<'_>,
) -> Visitor {
    let rules = &room.settings.cookies;
    let verify = room.settings.verify.as_ref();
    let Sorted { carried, has_unknown, is_odd } =
        sort(rules, (head, host), route, verify.is_some());
    let query = head.uri.query().unwrap_or_default();
    let in_url = session_id_in(head.uri.path(), query).then_some(Reason::SessionInUrl);
    let unknown_cookie = (has_unknown && rules.unknown_bypass).then_some(Reason::UnknownCookie);
    if is_odd && verify.is_some() && brings_barred(room, head, now).await {
        let nobody = nobody(None, in_url.or(unknown_cookie));
        return Visitor { is_barred: true, ..nobody };
    }
    match carried {
        Carried::Malformed => Visitor::unknown(in_url.unwrap_or(Reason::BadSessionCookie), None),
        Carried::Rivals(tokens) => {
            let rivals = tokens.iter().map(|token| room.sessions.stored(token)).collect();
            let reason = in_url.unwrap_or(Reason::BadSessionCookie);
            Visitor { rivals, ..Visitor::unknown(reason, None) }
        }
        Carried::Nothing => nobody(None, in_url.or(unknown_cookie)),
        Carried::Token(token, carried) => {
            let token = room.sessions.stored(&token);
            let asked = verify.zip(carried);
            let found = match (asked, asking.look()) {
                (Some((verify, carried)), _) => {
                    let whose = verify::Whose { head, token: &token, carried, now };
                    match verify::verify(room, verify, whose, asking).await {
                        Ok(Verdict::Known(user)) => Ok(Some(user)),
                        Ok(Verdict::Nobody) => {
                            let nobody = nobody(Some(token), in_url.or(unknown_cookie));
                            return Visitor { carried: Some(carried), ..nobody };
                        }
                        Ok(Verdict::Barred) => {
                            let nobody = nobody(None, in_url.or(unknown_cookie));
                            return Visitor { carried: Some(carried), is_barred: true, ..nobody };
                        }
                        Ok(Verdict::Unknown) => {
                            let reason = in_url.unwrap_or(Reason::Unverified);
                            let unknown = Visitor::unknown(reason, Some(token));
                            return Visitor { carried: Some(carried), ..unknown };
                        }
                        Err(error) => Err(error),
                    }
                }
                (None, look) => user_at(room, (&token, host), now, look).await,
            };
            match found {
                Ok(Some(user)) => Visitor {
                    class: VisitorClass::Known,
                    sharing: in_url.map_or_else(|| with_whom(&user, has_unknown), Who::Unknown),
                    token: Some(token),
                    carried,
                    user: Some(user),
                    ..Visitor::default()
                },
                Ok(None) if rules.minted => nobody(Some(token), in_url.or(unknown_cookie)),
                Ok(None) => Visitor::unknown(in_url.unwrap_or(Reason::UnknownToken), Some(token)),
                Err(error) => {
                    tracing::debug!(%error, "a token could not be looked up");
                    room.sheet.count(Count::StoreReadErrors);
                    let reason = in_url.unwrap_or(Reason::StoreAway);
                    let unknown = Visitor::unknown(reason, Some(token));
                    Visitor { unsure: true, carried, ..unknown }
                }
            }
        }
    }
}

/// Whose a token is at a host.
async fn user_at(
    room: &Room,
    (token, host): (&StoredToken, &str),
    now: f64,
    look: Look,
) -> Result<Option<User>, StoreError> {
    let found = match look {
        Look::Use => room.sessions.check_token(&room.store, token, now).await?,
        Look::Peek => room.sessions.peek_token(&room.store, token, now).await?,
    };
    // SECURITY: users of an app may choose its tokens, and what it says of one holds at its host alone.
    Ok(found.filter(|user| user.is_known_at(host)))
}

/// How far a known visitor is one of many. Who has not been confirmed may be one and the same as another
/// user; and a cookie that nobody has named, the app may know him by.
fn with_whom(user: &User, has_unknown: bool) -> Who {
    if !user.is_confirmed() {
        Who::Apart(Reason::Unconfirmed)
    } else if has_unknown {
        Who::Apart(Reason::UnknownCookie)
    } else {
        Who::Known
    }
}

/// A visitor without a login, unless something else makes him unknown.
fn nobody(token: Option<StoredToken>, unknown: Option<Reason>) -> Visitor {
    match unknown {
        Some(reason) => Visitor::unknown(reason, token),
        None => Visitor { token, ..Visitor::default() },
    }
}

/// Whether an app that looks for a session elsewhere than we do may find one that was logged out. Where the
/// store is away it may.
async fn brings_barred(room: &Room, head: &Parts, now: f64) -> bool {
    let barred = Suspects::of(room, &head.headers).are_barred(room, now).await;
    barred.unwrap_or_else(|error| {
        tracing::debug!(%error, "it could not be looked up whether a token is barred");
        false
    })
}

/// The cookies, sorted.
struct Sorted {
    /// The session's.
    carried: Carried,
    /// Whether there is one that nobody knows.
    has_unknown: bool,
    /// Whether an app may find its session in another place than we do.
    is_odd: bool,
}

/// Sorts the cookies. `verifies`: the app is asked about its session cookies, by the hash of all of them.
fn sort(
    rules: &CookieRules,
    (head, host): (&Parts, &str),
    route: &Route,
    verifies: bool,
) -> Sorted {
    let mut best: Option<(usize, &[u8])> = None;
    let mut came: Vec<(&[u8], &[u8])> = Vec::new();
    let (mut has_unknown, mut may_be_session) = (false, false);
    for (name, value) in cookies(&head.headers) {
        match rules.class(name, route) {
            CookieClass::Session(rank) => {
                came.push((name, value));
                if best.is_none_or(|(first, _)| rank < first) {
                    best = Some((rank, value));
                }
            }
            CookieClass::Unknown => {
                has_unknown = true;
                may_be_session |= verifies && rules.may_be_session(name);
            }
            CookieClass::Harmless | CookieClass::Keyed => {}
        }
    }
    // A head has room for thousands of them: sorted, that costs little.
    came.sort_unstable();
    let twice = came.windows(2).any(|pair| pair[0].0 == pair[1].0);
    let carried = match best {
        None => Carried::Nothing,
        Some(_) if twice => {
            Carried::Rivals(tokens(&rules.token, came.iter().map(|(_, value)| *value)))
        }
        Some((_, value)) => match rules.token.token(value) {
            Some(token) => Carried::Token(
                token,
                verifies.then(|| rules.token.hash((&route.site, host), &came)),
            ),
            None => Carried::Malformed,
        },
    };
    let is_odd = may_be_session || matches!(carried, Carried::Malformed | Carried::Rivals(_));
    Sorted { carried, has_unknown, is_odd }
}

/// Those of the values that are tokens, up to a bound.
fn tokens<'h>(from: &TokenFrom, values: impl Iterator<Item = &'h [u8]>) -> Vec<Token> {
    values.filter_map(|value| from.token(value)).take(RIVALS_MAX).collect()
}
