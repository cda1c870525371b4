//! The visitor of a request, as identified by the cookies, the store and the app.

use anteroom_http::client_cert::ClientCertificate;
use anteroom_http::ident::{CookieHash, StoredToken, User};
use anteroom_store::{CartOwner, SessionLifetimes};
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::reason::Reason;

use anteroom_cache::rules::verdict::Sharing;

/// The visitor of a request.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// The class for the identity header and the log.
    pub(crate) class: VisitorClass,
    /// The class for sharing. A known visitor may be unknown here.
    pub(crate) sharing: Sharing,
    /// The token that the request carries, if any.
    pub(crate) token: Option<StoredToken>,
    /// The key of the app's remembered answer about the visitor, if the app is asked.
    pub(crate) cookie_hash: Option<CookieHash>,
    /// Whether the visitor's session cookies must be withheld from the app, because their session was
    /// revoked.
    pub(crate) is_revoked: bool,
    /// The tokens, if the request carries several. None of them is trusted, and a logout or login ends them
    /// all.
    pub(crate) duplicates: Vec<StoredToken>,
    pub(crate) user: Option<User>,
    /// Whether the store could not say which user the token belongs to.
    pub(crate) unsure: bool,
}

impl Default for Visitor {
    /// A visitor without a login.
    fn default() -> Self {
        Self {
            class: VisitorClass::Anonymous,
            sharing: Sharing::Anonymous,
            token: None,
            cookie_hash: None,
            is_revoked: false,
            duplicates: Vec::new(),
            user: None,
            unsure: false,
        }
    }
}

impl Visitor {
    /// Token and user of a known visitor.
    pub(crate) fn known(&self) -> Option<(&StoredToken, &User)> {
        self.token.as_ref().zip(self.user.as_ref())
    }

    /// The user of a known visitor.
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// The owner of the cart that the visitor may change. If the store could not identify the visitor in
    /// time, the store decides when the cart is changed.
    pub(crate) fn cart_owner(&self, terms: SessionLifetimes) -> Option<CartOwner> {
        let token = self.token.clone().filter(|_| self.user.is_some() || self.unsure)?;
        Some(CartOwner { token, user: self.user.clone(), now: terms.now, terms })
    }

    /// Whether the visitor is certainly logged out, by every means of identification.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.class == VisitorClass::Anonymous && self.sharing == Sharing::Anonymous
    }

    /// Whether the store could not identify the visitor.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Adds the client's certificate. A client with a certificate counts as logged in even without a
    /// cookie, because its responses may be personal.
    pub(crate) fn with_certificate(mut self, certificate: Option<&ClientCertificate>) -> Self {
        if certificate.is_none() {
            return self;
        }
        self.sharing = match self.sharing {
            Sharing::Anonymous => Sharing::Unknown(Reason::ClientCertificate),
            Sharing::Known | Sharing::Apart(_) => Sharing::Apart(Reason::ClientCertificate),
            unknown @ Sharing::Unknown(_) => unknown,
        };
        self
    }

    /// The visitor of a question to the app.
    pub(crate) fn in_question() -> Self {
        Self::unknown(Reason::Unverified, None)
    }

    pub(crate) fn unknown(reason: Reason, token: Option<StoredToken>) -> Self {
        let class = VisitorClass::Unknown;
        Self { class, sharing: Sharing::Unknown(reason), token, ..Self::default() }
    }
}
