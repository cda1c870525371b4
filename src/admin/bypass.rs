//! The bypass command: switches routes, or all of them, to bypass in every proxy on the store.

use std::time::{Duration, Instant};

use ::http::StatusCode;
use anteroom_cache::bypass_switch::Bypass;
use anteroom_http::clock::unix_now;
use anteroom_http::ident::nearest;
use anteroom_store::bypass::{BYPASS_LASTS_MAX, BypassChange, name_of};
use anteroom_store::{BypassScope, StoreError};
use serde::{Deserialize, Serialize};

use super::commands::{CommandRefusal, Commands, bad, read};

/// The shortest time for which a switch is on.
pub const BYPASS_LASTS_MIN: Duration = Duration::from_secs(1);
/// For how long a switch is on if the order does not say.
pub const BYPASS_LASTS: Duration = Duration::from_secs(3_600);
/// How long to wait for the store.
const TIMEOUT: Duration = Duration::from_secs(3);

/// An order to change the bypass switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BypassOrder {
    /// Whether to switch on.
    pub on: bool,
    /// For how many seconds, from [`BYPASS_LASTS_MIN`] to [`BYPASS_LASTS_MAX`].
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<f64>,
    /// The name of the route; `None`: all routes. To switch off: every switch.
    #[serde(default)]
    pub route: Option<String>,
    /// Who orders it, for the log and for other operators. It is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The switches of the answering proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BypassReport {
    /// Those that are on.
    pub bypasses: Vec<ListedBypass>,
}

/// A switch that is on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedBypass {
    /// The name of the route; `None`: all routes.
    pub route: Option<String>,
    /// The Unix time at which it ends by itself.
    pub until: f64,
    /// Who switched it on.
    pub by: String,
    /// Whether it is on in the answering proxy alone, because the store did not take it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_here: bool,
}

/// For serde, which asks by reference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(is: &bool) -> bool {
    !is
}

impl Commands {
    /// The switches of this process.
    pub(super) fn list_bypasses(&self) -> BypassReport {
        listed(self.worker.pages.purged.bypass.list())
    }

    /// Changes the switches in every proxy on the store. If the store does not take the change, it is in force in
    /// this process, and the answer says so.
    pub(super) async fn change_bypass(
        &self,
        operator: &str,
        body: &[u8],
    ) -> Result<BypassReport, CommandRefusal> {
        let change = self.read_change(operator, read(body)?)?;
        let switch = &self.worker.pages.purged.bypass;
        let changed = switch.change(&self.store, &change, TIMEOUT).await;
        let (state, route) = (change.state(), change.scope.to_string());
        match changed {
            Ok(()) => {
                tracing::info!(route, by = change.by, "the bypass switch was turned {state}");
                Ok(self.list_bypasses())
            }
            Err(error @ StoreError::BypassesFull) => Err(bad(&error)),
            Err(error) => {
                tracing::warn!(%error, route, by = change.by, "the bypass switch was turned {state} in this proxy alone");
                let why = format!(
                    "the switch is {state} in this proxy alone, and the others could not be told: {error}; they \
                     follow when the store is back"
                );
                Err((StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }

    fn read_change(
        &self,
        operator: &str,
        order: BypassOrder,
    ) -> Result<BypassChange, CommandRefusal> {
        if let Some(route) = &order.route {
            self.find_route(route, order.on)?;
        }
        let lasts = if order.on { Some(read_lasts(order.lasts)?) } else { None };
        let by = order.by.as_deref().map(name_of).filter(|by| !by.trim().is_empty());
        Ok(BypassChange {
            scope: order.route.map_or(BypassScope::All, BypassScope::Route),
            lasts,
            by: by.unwrap_or_else(|| operator.to_owned()),
        })
    }

    /// Refuses a name that no route has. A switch that is on may be switched off after its route is gone.
    fn find_route(&self, name: &str, is_on: bool) -> Result<(), CommandRefusal> {
        let routes = &self.worker.settings.routes;
        let switched = || self.worker.pages.purged.bypass.list();
        let is_switched = || switched().iter().any(|one| one.scope.route() == Some(name));
        if routes.names().any(|own| **own == *name) || (!is_on && is_switched()) {
            return Ok(());
        }
        Err(bad(&unknown(name, &routes.names().map(|name| &**name).collect::<Vec<_>>())))
    }
}

fn read_lasts(seconds: Option<f64>) -> Result<Duration, CommandRefusal> {
    let Some(seconds) = seconds else { return Ok(BYPASS_LASTS) };
    let lasts = Duration::try_from_secs_f64(seconds).ok();
    let lasts = lasts.filter(|lasts| (BYPASS_LASTS_MIN..=BYPASS_LASTS_MAX).contains(lasts));
    lasts.ok_or_else(|| {
        let (least, most) = (BYPASS_LASTS_MIN.as_secs(), BYPASS_LASTS_MAX.as_secs());
        bad(&format!("for: {seconds} is not a time from {least} to {most} seconds"))
    })
}

/// What is said of a name that no route has.
fn unknown(name: &str, names: &[&str]) -> String {
    match nearest(name, names) {
        Some(near) => format!("no route is named {name:?}; did you mean {near:?}?"),
        None => format!(
            "no route is named {name:?}; a route without a name has that of its first path pattern"
        ),
    }
}

fn listed(bypasses: Vec<Bypass>) -> BypassReport {
    let (clock, now) = (Instant::now(), unix_now());
    let bypasses = bypasses.into_iter().map(|bypass| ListedBypass {
        route: bypass.scope.route().map(str::to_owned),
        until: now + bypass.ends.saturating_duration_since(clock).as_secs_f64(),
        by: bypass.by,
        only_here: bypass.only_here,
    });
    BypassReport { bypasses: bypasses.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_bounded() {
        assert_eq!(read_lasts(None).unwrap(), BYPASS_LASTS);
        for seconds in [1.0, 2.5, 604_800.0] {
            assert_eq!(read_lasts(Some(seconds)).unwrap().as_secs_f64(), seconds);
        }
        for seconds in [0.0, 0.5, -1.0, 604_801.0, f64::NAN, f64::INFINITY] {
            assert_eq!(read_lasts(Some(seconds)).unwrap_err().0, StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn an_unknown_route_is_answered_with_the_name_that_was_meant() {
        let names = ["shop", "blog", "default"];
        assert!(unknown("shpo", &names).ends_with("did you mean \"shop\"?"));
        assert!(unknown("checkout", &names).contains("no route is named \"checkout\""));
    }

    #[test]
    fn an_order_is_read_as_the_interface_has_it() {
        let order: BypassOrder =
            serde_json::from_str(r#"{"on":true,"for":3600.0,"route":null}"#).unwrap();
        let expected = BypassOrder { on: true, lasts: Some(3_600.0), route: None, by: None };
        assert_eq!(order, expected);
        let off: BypassOrder = serde_json::from_str(r#"{"on":false,"route":"shop"}"#).unwrap();
        assert_eq!(off.route.as_deref(), Some("shop"));
        assert!(serde_json::from_str::<BypassOrder>(r#"{"on":true,"fro":1}"#).is_err());
    }
}
