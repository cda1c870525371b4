//! The visitor of a request, as far as the cookies, the store and the app say.

use crate::cache::rules::verdict::Who;
use crate::http::client_cert::ClientCertificate;
use crate::ident::{CookieHash, StoredToken, User};
use crate::store::{CartOwner, Terms};
use crate::telemetry::access_log::VisitorClass;
use crate::telemetry::reason::Reason;

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
    pub(in crate::proxy) user: Option<User>,
    /// Whether the store could not say whose the token is.
    pub(in crate::proxy) unsure: bool,
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

    pub(in crate::proxy) fn unknown(reason: Reason, token: Option<StoredToken>) -> Self {
        let class = VisitorClass::Unknown;
        Self { class, sharing: Who::Unknown(reason), token, ..Self::default() }
    }
}
