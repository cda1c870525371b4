//! The reasons for which a request was not answered from the cache, or a response was not stored.
//!
//! Each is defined once: the access log, `Cache-Status` and the metrics all use these words.

use super::words::words;

words! {
    /// Why a request was not answered from the cache, or a response not stored.
    pub enum Reason {
        /// Not GET or HEAD.
        Method = "method",
        /// A GET with a body.
        RequestBody = "request-body",
        /// The route says `share = "none"`.
        Route = "route",
        /// The operator has switched the route to bypass (`anteroom bypass`).
        BypassSwitch = "bypass-switch",
        /// The route learns (`mode = "learn"`): the cache would have looked the page up.
        Learn = "learn",
        /// The request is one that a stored page would answer, and is held against the app (`audit`).
        Audited = "audited",
        /// Visitors see different things in the page, so that it is not shared any more (`audit`).
        AuditStopped = "audit-stopped",
        /// The item is not among the most viewed (`only_top`).
        Rank = "rank",
        /// The visitor is logged in, and the route shares among anonymous visitors only.
        Login = "login",
        /// The visitor is not logged in, and the route keeps pages for one user each.
        NotLoggedIn = "not-logged-in",
        /// The visitor's identity is not confirmed, so that it counts to no segment.
        Unconfirmed = "unconfirmed",
        /// The session cookie's token is not known.
        UnknownToken = "unknown-token",
        /// The app has not identified the visitor, or could not.
        Unverified = "unverified",
        /// The store could not identify the visitor.
        StoreAway = "store-away",
        /// The session cookie is malformed, or came twice.
        BadSessionCookie = "bad-session-cookie",
        /// A session id in the path or the query.
        SessionInUrl = "session-in-url",
        /// A cookie that is neither the session's nor known to be harmless.
        UnknownCookie = "unknown-cookie",
        /// The request carries Authorization.
        Authorization = "authorization",
        /// The request carries a field that names its sender (`[cache] identity_headers`).
        IdentityField = "identity-field",
        /// The client showed a certificate.
        ClientCertificate = "client-certificate",
        /// The connection is bound to a login (NTLM, Negotiate).
        BoundConnection = "bound-connection",
        /// The request has a condition that only the origin can judge: `If-Match`, `If-Unmodified-Since`.
        Condition = "condition",
        /// The request says `Cache-Control: no-store`.
        RequestNoStore = "request-no-store",
        /// The request says `no-cache`, `max-age` or `min-fresh`, or `only-if-cached` of a page that is not
        /// stored.
        RequestDirective = "request-directive",
        /// The request is for a page fragment (`X-Requested-With` and the like).
        Fragment = "fragment",
        /// `Accept` names no kind of page, and the page has only the default lifetime.
        Accept = "accept",
        /// The origin could read the path as another one.
        OddPath = "odd-path",
        /// The request carries a field that `Vary` names and a fill does not send.
        Vary = "vary",
        /// Not stored yet, or no longer.
        Miss = "miss",
        /// Not stored yet, and requested fewer times than the route's `min_uses`.
        MinUses = "min-uses",
        /// The URL may be a secret, or a fetch would leave out a field of the request, and no response to a similar
        /// URL could be shared yet.
        Unproven = "unproven",
        /// Recent responses to similar URLs could not be shared.
        Pattern = "pattern",
        /// A HEAD for a page that is not stored.
        Head = "head",
        /// Too many requests wait already, or there is no room for bodies in flight.
        Crowded = "crowded",
        /// The response sets a cookie.
        SetCookie = "set-cookie",
        /// The page waits for a second user of the segment that gets the same response.
        AwaitingSecondUser = "awaiting-second-user",
        /// The response says `no-store`.
        NoStore = "no-store",
        /// The response says `no-cache`.
        NoCache = "no-cache",
        /// The response says `private`.
        Private = "private",
        /// The response says that it is already stale.
        Stale = "stale",
        /// `Vary: *`.
        VaryAny = "vary-any",
        /// A status that has no default lifetime.
        Status = "status",
        /// A content type that has no default lifetime.
        ContentType = "content-type",
        /// An image or the like without validator, which has no default lifetime.
        NoValidator = "no-validator",
        /// `Pragma`, `Refresh`, `WWW-Authenticate` or an attachment: no default lifetime.
        ResponseField = "response-field",
        /// A query parameter that looks like a secret or a nonce: no default lifetime.
        QueryParameter = "query-parameter",
        /// A static extension with an html or JSON type (cache deception).
        Deception = "deception",
        /// The origin set no freshness lifetime, and no default applies.
        NoLifetime = "no-lifetime",
        /// The leak guard found a CSRF field.
        CsrfField = "csrf-field",
        /// The leak guard found a session id in a link.
        SessionInLink = "session-id-in-link",
        /// The leak guard could not decode or read the page.
        Undecodable = "undecodable",
        /// The leak guard found a password field or a login form, on a page that has lost its cookie or is a
        /// segment's.
        PasswordField = "password-field",
        /// The page has lost its cookie, and the leak guard found a form that is sent by POST.
        PostForm = "post-form",
        /// The leak guard found the name of the user for whom the page was fetched.
        LeakUser = "leak-user",
        /// The leak guard found an attribute of that user.
        LeakAttribute = "leak-attribute",
        /// The leak guard found a token of that user, or the value of a cookie that the page would set.
        LeakToken = "leak-token",
        /// The leak guard found the value of a request field that the fetch sent and the page's key lacks.
        Reflected = "reflected",
        /// Over `max_object`.
        TooLarge = "too-large",
        /// The leak guard would have had to wait too long for the whole page, or the visitor for a fetch that
        /// carries another user's session.
        Slow = "slow",
        /// The body has neither a length nor chunks: a cut looks like an end.
        Unframed = "unframed",
        /// The response logs a visitor in or out.
        Anteroom = "anteroom",
        /// Too many variants of one URL.
        Variants = "variants",
        /// More tags than a page may have, or one too long.
        Tags = "tags",
        /// More bytes of fields than a stored page may have.
        Fields = "fields",
        /// The page was changed by an unsafe request while it was fetched.
        Invalidated = "invalidated",
        /// The request was for the proxy itself, under `/_anteroom/`.
        Endpoint = "endpoint",
        /// The proxy refused the request.
        Refused = "refused",
        /// The origin failed.
        Origin = "origin",
        /// The origin answered with a server error.
        ServerError = "server-error",
        /// The request asks for another protocol than HTTP.
        Upgrade = "upgrade",
        /// Another proxy of the fleet has just found that the page cannot be shared.
        Elsewhere = "elsewhere",
        /// The client's address is refused (`deny`, `allow`, `allow_from`), or all requests of the route (`deny`).
        Denied = "denied",
        /// The request has come back to the proxy that sent it.
        Loop = "loop",
        /// A defect of the proxy ended the request.
        Defect = "defect",
        /// The route requires a login.
        LoginRequired = "login-required",
        /// The operator has taken the route out of service.
        Maintenance = "maintenance",
        /// The address or session exceeded a request limit.
        RateLimited = "rate-limited",
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn reasons_have_words_of_their_own() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
