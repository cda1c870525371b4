//! Converts a plan's `[session]` into the rules of sessions and of abandoned carts.

use anteroom_session::Rules;
use anteroom_session::expire::{CartSink, ExpiredFile};

use crate::task::CartExpiry;

/// The lifetimes of sessions, and the most per user.
pub(super) fn rules(plan: &anteroom_config::SessionConfig) -> Rules {
    Rules {
        idle: plan.idle_timeout,
        absolute: plan.absolute_timeout,
        most: plan.max_per_user,
        marks_revoked: plan.verify.path.is_some(),
        expiry_action: on_expire(plan).map(|on_expire| on_expire.expiry_action(plan.token_storage)),
    }
}

/// How the cleaner passes carts on, if it does.
pub(super) fn expiring(session: &anteroom_config::SessionConfig) -> Option<CartExpiry> {
    let on_expire = on_expire(session)?;
    Some(CartExpiry::new(on_expire, session.cart_idle, session.token_storage))
}

fn on_expire(session: &anteroom_config::SessionConfig) -> Option<CartSink> {
    Some(match &session.on_expire {
        anteroom_config::OnExpire::None => return None,
        anteroom_config::OnExpire::Stream => CartSink::Stream,
        anteroom_config::OnExpire::File(path) => CartSink::File(ExpiredFile::new(path.clone())),
        anteroom_config::OnExpire::Webhook(_) => CartSink::Queue,
    })
}
