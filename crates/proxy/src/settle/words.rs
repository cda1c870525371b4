//! What a response means, in words, for tables of tests.

use anteroom_http::ident::User;

use super::change::{AppLogIn, AppLogOut, SessionEffect};
use super::effects::Effects;

/// What a response means, in words.
pub(crate) fn in_words(effects: &Effects) -> String {
    let Effects { session, cart, item, voided, ends_own_pages, changed } = effects;
    let name = |user: &User| String::from_utf8_lossy(user.as_bytes()).into_owned();
    let mut words = match session {
        SessionEffect::None => Vec::new(),
        SessionEffect::LogIn(user) => vec![format!("login of {}", name(user))],
        SessionEffect::LogOut => vec!["logout".to_owned()],
        SessionEffect::AppLogIn(AppLogIn { user, .. }) => {
            vec![format!("the app's login of {}", name(user))]
        }
        SessionEffect::AppLogOut(AppLogOut { left, is_by_rule }) => {
            let how = if *is_by_rule { "by rule" } else { "by cookie" };
            vec![format!("the app's logout {how}, {} left", left.len())]
        }
    };
    words.extend(cart.iter().map(|(item, count)| format!("cart {}={count}", item.as_str())));
    words.extend(item.iter().map(|item| format!("item {}", item.as_str())));
    words.extend((!voided.is_empty()).then(|| format!("{} answers void", voided.len())));
    words.extend(ends_own_pages.then(|| "own pages end".to_owned()));
    if let Some(changed) = changed {
        let rows = if changed.changes_rows { "" } else { ", no rows" };
        words.push(format!("changed {}{rows}", changed.targets.join(" ")));
    }
    words.join("; ")
}
