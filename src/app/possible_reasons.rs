//! Which reasons may occur under a configuration: the metrics leave out the others.

use anteroom_policy::learn::CacheMode;
use anteroom_policy::route::{CompiledRoute, Share};
use anteroom_telemetry::reason::Reason;

use super::live_config::LiveConfig;
use super::shared_state::has_others;

/// Whether a request may have this reason.
pub(super) fn may_occur(reason: Reason, live: &LiveConfig) -> bool {
    let settings = &live.settings;
    let routes = &settings.routes;
    let any = |has: &dyn Fn(&CompiledRoute) -> bool| routes.all().any(has);
    let shares = |share: Share| {
        let has = |route: &CompiledRoute| {
            let fills = route.fragments.iter().filter_map(|fragment| fragment.share);
            fills.chain([route.share]).any(|own| own == share)
        };
        any(&has)
    };
    match reason {
        Reason::Learn => any(&|route| route.mode == CacheMode::Learn),
        Reason::Audited => any(&|route| route.audit.hits().is_some()),
        // Another proxy on the store may audit.
        Reason::AuditStopped => true,
        Reason::Rank => any(&|route| route.only_top.is_some()),
        Reason::MinUses => any(&|route| route.min_uses > 1),
        Reason::Maintenance => any(&|route| route.maintenance),
        Reason::LoginRequired => any(&|route| route.requires_login == Some(true)),
        Reason::NotLoggedIn => shares(Share::User),
        Reason::Unconfirmed | Reason::AwaitingSecondUser => shares(Share::Segment),
        Reason::Unverified => settings.verify.is_some(),
        Reason::UnknownCookie => settings.cookies.unknown_bypass,
        Reason::RateLimited => !settings.rates.all.is_none() || any(&|route| route.is_limited()),
        Reason::Denied => {
            let addresses = &settings.allowed_addresses;
            let lists = !addresses.allow.is_empty() || !addresses.deny.is_empty();
            lists || routes.are_guarded() || any(&|route| route.deny)
        }
        Reason::Elsewhere => has_others(&live.plan),
        _ => true,
    }
}
