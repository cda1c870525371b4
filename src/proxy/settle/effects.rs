//! What the origin's answer to a request means: read once, from the request and the head of the answer.

use ::http::{HeaderMap, StatusCode};

use super::change::SessionEffect;
use super::invalidate::Changed;
use super::{app_session, item_and_cart, session, session_cookies, user_purge};
use crate::ident::{CookieHash, Item};
use crate::proxy::context::{RequestContext, RequestKind};

/// What an answer means beside its bytes.
#[derive(Debug)]
pub(in crate::proxy) struct Effects {
    /// For the visitor's session.
    pub(super) session: SessionEffect,
    /// The counts that it sets in the visitor's cart.
    pub(super) cart: Vec<(Item, i64)>,
    /// The item that was viewed, by the app's word.
    pub(super) item: Option<Item>,
    /// The session cookies of which the app's word is void.
    pub(super) voided: Vec<CookieHash>,
    /// Whether the pages that are the visitor's own end, also where the session stays.
    pub(super) ends_own_pages: bool,
    /// The pages and rows that the request has changed.
    pub(super) changed: Option<Changed>,
}

impl Effects {
    /// Reads an answer. A fragment's answer changes neither session nor cart: its page's head, in which the
    /// client would be told of that, has left already.
    pub(in crate::proxy) fn read(
        cx: &RequestContext<'_>,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Self {
        let is_fragment = cx.kind == RequestKind::Fragment;
        let session = match &cx.worker.settings.minted {
            _ if is_fragment || !cx.rules().sessions => SessionEffect::None,
            Some(minted) => session::read(cx, minted, headers),
            None => app_session::read(cx, status, headers),
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
            changed: Changed::read(cx, status, headers),
        }
    }
}
