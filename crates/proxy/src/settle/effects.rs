//! Reads the effects of the origin's response, once, from the request and the head of the response.

use ::http::{HeaderMap, StatusCode};
use anteroom_http::ident::{CookieHash, Item};

use super::change::SessionEffect;
use super::invalidate::Invalidation;
use super::{app_login, item_and_cart, session, session_cookies, user_purge};
use crate::context::{RequestContext, RequestKind};

/// What a response means besides its content.
#[derive(Debug)]
pub(crate) struct Effects {
    /// The effect on the visitor's session.
    pub(super) session: SessionEffect,
    /// The counts to set in the visitor's cart.
    pub(super) cart: Vec<(Item, i64)>,
    /// The item that was viewed, as the app states it.
    pub(super) item: Option<Item>,
    /// The session cookies for which the app's remembered answer is void.
    pub(super) voided: Vec<CookieHash>,
    /// Whether the visitor's own pages are purged although the session continues.
    pub(super) ends_own_pages: bool,
    /// The pages and rows that the request has changed.
    pub(super) changed: Option<Invalidation>,
}

impl Effects {
    /// Reads a response. A fragment's response changes neither session nor cart: the head of its page,
    /// which would carry the cookie for the client, has been sent already.
    pub(crate) fn read(cx: &RequestContext<'_>, status: StatusCode, headers: &HeaderMap) -> Self {
        let is_fragment = cx.kind == RequestKind::Fragment;
        let session = match &cx.worker.settings.minted {
            _ if is_fragment || !cx.rules().sessions => SessionEffect::None,
            Some(minted) => session::read(cx, minted, headers),
            None => app_login::read(cx, status, headers),
        };
        let ends_own_pages =
            matches!(session, SessionEffect::None) && user_purge::changes_session(cx, headers);
        let cart = if is_fragment { Vec::new() } else { item_and_cart::cart(cx, headers) };
        Self {
            session,
            cart,
            item: item_and_cart::item(cx, headers),
            voided: session_cookies::voided(cx, headers),
            ends_own_pages,
            changed: Invalidation::read(cx, status, headers),
        }
    }
}
