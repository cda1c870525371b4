//! The keys of `[session]` and `[visitor]`.

use std::path::PathBuf;

use anteroom_http::ident::TokenStorage;
use anteroom_http::pattern::Pattern;
use anteroom_policy::answer::Endpoint;
use anteroom_policy::cookie::{SameSite, Secure};

use super::login;
use super::path::PathText;
use super::shared::{LIFETIME, TIMEOUT, count, expression, named};
use crate::apps::APPS;
use crate::credential::SecretRefs;
use crate::form::{Either, Flag, List, Optional, Text, Words};
use crate::plan::{OnExpire, SessionConfig, Visitor};
use crate::text;
use crate::walk::Walk;

/// The most sessions that a user may have; the store has the same bound.
const PER_USER_MAX: u32 = 1_000;

pub(super) fn session(at: &mut impl Walk, session: &mut SessionConfig) {
    at.key("app", &mut session.app, &Words(&APPS));
    at.preset(|| session.app.into_iter().for_each(|app| app.set(session)));
    let cookies = List::of(Text { parse: text::cookie_pattern, show: Pattern::to_string });
    at.key("cookie", &mut session.cookies, &cookies);
    at.key("mint", &mut session.mint, &Flag);
    at.key("per_host", &mut session.per_host, &Flag);
    let identity = Text { parse: text::identity_header, show: ToString::to_string };
    at.key("identity_header", &mut session.identity_header, &identity);
    let sites = [("Lax", SameSite::Lax), ("Strict", SameSite::Strict), ("None", SameSite::None)];
    at.key("same_site", &mut session.same_site, &Words(&sites));
    let secure = [("auto", Secure::Auto), ("always", Secure::Always), ("never", Secure::Never)];
    at.key("secure", &mut session.secure, &Words(&secure));
    at.key("cookie_lifetime", &mut session.cookie_lifetime, &Either("session", LIFETIME));
    at.key("idle_timeout", &mut session.idle_timeout, &Either("off", LIFETIME));
    at.key("absolute_timeout", &mut session.absolute_timeout, &Either("off", LIFETIME));
    at.key("max_per_user", &mut session.max_per_user, &count(0, PER_USER_MAX.into()));
    let storage = [("plain", TokenStorage::Plain), ("sha256", TokenStorage::Sha256)];
    at.key("token_storage", &mut session.token_storage, &Words(&storage));
    at.key("max_sessions", &mut session.max_sessions, &count(1, 1_000_000_000));
    at.key("viewed_items", &mut session.viewed_items, &count(1, 1_000));
    at.key("clean_batch", &mut session.clean_batch, &count(1, 10_000));
    at.key("clean_every", &mut session.clean_every, &TIMEOUT);
    at.key("clean_carts", &mut session.clean_carts, &Flag);
    let target = Text { parse: on_expire, show: show_on_expire };
    let target = PathText { prefix: "file:", word: None, form: target };
    at.key("on_expire", &mut session.on_expire, &target);
    at.key("webhook_secret", &mut session.webhook_secret, &SecretRefs);
    at.key("cart_idle", &mut session.cart_idle, &Either("none", LIFETIME));
    let token_from = [("value", false), ("sha256", true)];
    at.key("token_from", &mut session.token_is_digest, &Words(&token_from));
    at.key("part", &mut session.part, &Optional(expression()));
    at.section("verify", |at| login::verify(at, &mut session.verify));
    at.section("login", |at| login::login(at, &mut session.login));
    at.section("logout", |at| login::logout(at, &mut session.logout));
}

pub(super) fn visitor(at: &mut impl Walk, visitor: &mut Visitor) {
    let endpoints = [
        ("me", Endpoint::Me),
        ("cart", Endpoint::Cart),
        ("recent", Endpoint::Recent),
        ("top", Endpoint::Top),
    ];
    at.key("endpoints", &mut visitor.endpoints, &List::of(Words(&endpoints)));
    at.key("cookie", &mut visitor.cookie, &named(text::cookie_name));
    at.key("token_lifetime", &mut visitor.token_lifetime, &LIFETIME);
    at.key("max_tokens", &mut visitor.max_tokens, &count(1, 1_000_000_000));
}

fn on_expire(text: &str) -> Result<OnExpire, String> {
    if let Some(url) = text.strip_prefix("webhook:") {
        return text::webhook_url(url).map(OnExpire::Webhook);
    }
    match (text, text.strip_prefix("file:")) {
        ("none", _) => Ok(OnExpire::None),
        ("stream", _) => Ok(OnExpire::Stream),
        (_, Some(path)) if !path.is_empty() => Ok(OnExpire::File(PathBuf::from(path))),
        _ => Err(r#""none", "stream", "file:" and a path, or "webhook:" and a URL"#.to_owned()),
    }
}

fn show_on_expire(on_expire: &OnExpire) -> String {
    match on_expire {
        OnExpire::None => "none".to_owned(),
        OnExpire::Stream => "stream".to_owned(),
        OnExpire::File(path) => format!("file:{}", path.to_string_lossy()),
        OnExpire::Webhook(url) => format!("webhook:{}", text::show_webhook_url(url)),
    }
}
