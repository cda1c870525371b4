//! Every reason for which a request was not answered from the cache, or a response not stored.
//!
//! Named once: the access log, `Cache-Status` and the metrics all say these words.

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Not GET or HEAD.
    Method,
    /// A GET with a body.
    RequestBody,
    /// The route says `share = "none"`.
    Route,
    /// The item is not among the most viewed (`only_top`).
    Rank,
    /// The visitor is logged in, and the route shares among anonymous visitors only.
    Login,
    /// The visitor is not logged in, and the route keeps pages for one user each.
    NotLoggedIn,
    /// Nobody has confirmed who the visitor is, so that he counts to no segment.
    Unconfirmed,
    /// The session cookie's token is not known.
    UnknownToken,
    /// The app has not said, or could not say, who the visitor is.
    Unverified,
    /// The store could not say who the visitor is.
    StoreAway,
    /// The session cookie is malformed, or came twice.
    BadSessionCookie,
    /// A session id in the path or the query.
    SessionInUrl,
    /// A cookie that is neither the session's nor known to be harmless.
    UnknownCookie,
    /// The request carries Authorization.
    Authorization,
    /// The client showed a certificate.
    ClientCertificate,
    /// The connection is bound to a log-in (NTLM, Negotiate).
    BoundConnection,
    /// The request has a condition that only the origin can judge: `If-Match`, `If-Unmodified-Since`.
    Condition,
    /// The request says `Cache-Control: no-store`.
    RequestNoStore,
    /// The request says `no-cache`, `max-age` or `min-fresh`, or `only-if-cached` of what is not stored.
    RequestDirective,
    /// A page fragment was asked for (`X-Requested-With` and the like).
    Fragment,
    /// `Accept` names no kind of page, and the page has only the default lifetime.
    Accept,
    /// The path could mean another one to the origin.
    OddPath,
    /// The request carries a field that `Vary` names and a fill does not send.
    Vary,
    /// Not stored yet, or no more.
    Miss,
    /// A HEAD for a page that is not stored.
    Head,
    /// Too many requests wait already, or there is no room for bodies in flight.
    Crowded,
    /// The response sets a cookie.
    SetCookie,
    /// The page waits for a second user of the segment who is given the same.
    Twin,
    /// The response says `no-store`.
    NoStore,
    /// The response says `no-cache`.
    NoCache,
    /// The response says `private`.
    Private,
    /// The response says that it is stale already.
    Stale,
    /// `Vary: *`.
    VaryAny,
    /// A status that has no default lifetime.
    Status,
    /// A content type that has no default lifetime.
    ContentType,
    /// An image or the like without validator, which has no default lifetime.
    NoValidator,
    /// `Pragma`, `Refresh`, `WWW-Authenticate` or an attachment: no default lifetime.
    ResponseField,
    /// A query parameter that looks like a secret or a nonce: no default lifetime.
    QueryParameter,
    /// A static extension with an html or JSON type (cache deception).
    Deception,
    /// The origin said nothing of freshness, and no default applies.
    NoLifetime,
    /// The leak guard found a CSRF field.
    CsrfField,
    /// The leak guard found a session id in a link.
    SessionInLink,
    /// The leak guard could not decode or read the page.
    Undecodable,
    /// The leak guard found a field for a password or a form that logs in, on a page that has lost its cookie
    /// or is a segment's.
    PasswordField,
    /// The page has lost its cookie, and the leak guard found a form that is sent by POST.
    PostForm,
    /// The leak guard found the name of the user for whom the page was fetched.
    LeakUser,
    /// The leak guard found an attribute of his.
    LeakAttribute,
    /// The leak guard found a token of his, or the value of a cookie that the page would set.
    LeakToken,
    /// Over `max_object`.
    TooLarge,
    /// The leak guard would have had to wait too long for the whole page, or the visitor for a fetch that
    /// carries another user's session.
    Slow,
    /// The body has no length and no chunks: an end cannot be told from a cut.
    Unframed,
    /// The response logs a visitor in or out.
    Anteroom,
    /// Too many variants of one URL.
    Variants,
    /// More tags than a page may have, or one too long.
    Tags,
    /// More bytes of fields than a stored page may have.
    Fields,
    /// The page was changed by an unsafe request while it was fetched.
    Invalidated,
    /// The request was for us, under `/_anteroom/`.
    Endpoint,
    /// The request was refused by us.
    Refused,
    /// The origin failed.
    Origin,
    /// The origin answered with a server error.
    ServerError,
    /// The request asks for another protocol than HTTP.
    Upgrade,
    /// Another proxy of the fleet has just found the page to be for nobody else.
    Elsewhere,
    /// Not for this address: `deny`, `allow`, `allow_from`.
    Denied,
    /// One request too many for its address or session.
    RateLimited,
}

impl Reason {
    /// All reasons, in order.
    pub const ALL: [Self; 64] = {
        use Reason::*;
        [
            Method,
            RequestBody,
            Route,
            Rank,
            Login,
            NotLoggedIn,
            Unconfirmed,
            UnknownToken,
            Unverified,
            StoreAway,
            BadSessionCookie,
            SessionInUrl,
            UnknownCookie,
            Authorization,
            ClientCertificate,
            BoundConnection,
            Condition,
            RequestNoStore,
            RequestDirective,
            Fragment,
            Accept,
            OddPath,
            Vary,
            Miss,
            Head,
            Crowded,
            SetCookie,
            Twin,
            NoStore,
            NoCache,
            Private,
            Stale,
            VaryAny,
            Status,
            ContentType,
            NoValidator,
            ResponseField,
            QueryParameter,
            Deception,
            NoLifetime,
            CsrfField,
            SessionInLink,
            Undecodable,
            PasswordField,
            PostForm,
            LeakUser,
            LeakAttribute,
            LeakToken,
            TooLarge,
            Slow,
            Unframed,
            Anteroom,
            Variants,
            Tags,
            Fields,
            Invalidated,
            Endpoint,
            Refused,
            Origin,
            ServerError,
            Upgrade,
            Elsewhere,
            Denied,
            RateLimited,
        ]
    };

    /// The word for it, stable, lower-case with dashes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::RequestBody => "request-body",
            Self::Route => "route",
            Self::Rank => "rank",
            Self::Login => "login",
            Self::NotLoggedIn => "not-logged-in",
            Self::Unconfirmed => "unconfirmed",
            Self::UnknownToken => "unknown-token",
            Self::Unverified => "unverified",
            Self::StoreAway => "store-away",
            Self::BadSessionCookie => "bad-session-cookie",
            Self::SessionInUrl => "session-in-url",
            Self::UnknownCookie => "unknown-cookie",
            Self::Authorization => "authorization",
            Self::ClientCertificate => "client-certificate",
            Self::BoundConnection => "bound-connection",
            Self::Condition => "condition",
            Self::RequestNoStore => "request-no-store",
            Self::RequestDirective => "request-directive",
            Self::Fragment => "fragment",
            Self::Accept => "accept",
            Self::OddPath => "odd-path",
            Self::Vary => "vary",
            Self::Miss => "miss",
            Self::Head => "head",
            Self::Crowded => "crowded",
            Self::SetCookie => "set-cookie",
            Self::Twin => "twin",
            Self::NoStore => "no-store",
            Self::NoCache => "no-cache",
            Self::Private => "private",
            Self::Stale => "stale",
            Self::VaryAny => "vary-any",
            Self::Status => "status",
            Self::ContentType => "content-type",
            Self::NoValidator => "no-validator",
            Self::ResponseField => "response-field",
            Self::QueryParameter => "query-parameter",
            Self::Deception => "deception",
            Self::NoLifetime => "no-lifetime",
            Self::CsrfField => "csrf-field",
            Self::SessionInLink => "session-id-in-link",
            Self::Undecodable => "undecodable",
            Self::PasswordField => "password-field",
            Self::PostForm => "post-form",
            Self::LeakUser => "leak-user",
            Self::LeakAttribute => "leak-attribute",
            Self::LeakToken => "leak-token",
            Self::TooLarge => "too-large",
            Self::Slow => "slow",
            Self::Unframed => "unframed",
            Self::Anteroom => "anteroom",
            Self::Variants => "variants",
            Self::Tags => "tags",
            Self::Fields => "fields",
            Self::Invalidated => "invalidated",
            Self::Endpoint => "endpoint",
            Self::Refused => "refused",
            Self::Origin => "origin",
            Self::ServerError => "server-error",
            Self::Upgrade => "upgrade",
            Self::Elsewhere => "elsewhere",
            Self::Denied => "denied",
            Self::RateLimited => "rate-limited",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn reasons_stand_in_their_own_order_and_have_words_of_their_own() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(place, *reason as usize, "{reason:?}");
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
    #[test]
    fn each_reason_stands_once_in_the_table_of_what_helps() {
        let table = include_str!("../../docs/reasons.md");
        let rows = || table.lines().filter(|line| line.starts_with("| `"));
        for reason in Reason::ALL {
            let start = format!("| `{}` | ", reason.as_str());
            assert_eq!(rows().filter(|row| row.starts_with(&start)).count(), 1, "{reason:?}");
        }
        assert_eq!(rows().count(), Reason::ALL.len());
    }
}
