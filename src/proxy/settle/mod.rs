//! What the origin's answer means for the client's session, cart and pages, and the one place that carries it out.

pub(in crate::proxy) mod app_login;
pub(in crate::proxy) mod item_and_cart_headers;
pub(in crate::proxy) mod login;
pub(in crate::proxy) mod user_purge;
pub(in crate::proxy) mod visitor_token;
