//! The parts of a page that are filled for each visitor.

use std::sync::Arc;

use super::Share;
use crate::http::selector::Selector;
use crate::http::template::Template;

/// One of a route's `fragments`: elements of its pages that are filled for each visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// `selector`: the elements. Required.
    pub selector: Selector,
    /// `from` or `fill`: their content. Required.
    pub fill: Fill,
    /// `share`: the visitors that share a response to `from`, instead of the `share` of its own route.
    pub share: Option<Share>,
    /// `fallback`: the content if filling fails; `None`: the original content of the element.
    pub fallback: Option<Arc<str>>,
    /// `on`, `"all"`; `"session"`: only for visitors with a session cookie. Others get the original
    /// content.
    pub only_sessions: bool,
}

/// The content of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// `from`: the response to a request for this target, made for the visitor.
    From(Arc<str>),
    /// `fill = "user"`: the user's name.
    User,
    /// `fill = "cart_count"`: the number of things in the cart.
    CartCount,
    /// `fill = "recent"`: the items viewed last, each by `template`.
    Recent(Template),
}

/// When ESI tags are processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Esi {
    /// `false`: never.
    #[default]
    Off,
    /// `true`: if the app sends `Surrogate-Control: content="ESI/1.0"`.
    Said,
    /// `"always"`: in every text response.
    Always,
}
