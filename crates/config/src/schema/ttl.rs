//! The form of a route's `ttl`: a duration, or a table of durations by status.

use std::time::Duration;

use anteroom_policy::route::Ttl;
use serde_json::Value as Json;

use super::shared::TTL;
use crate::form::{Faults, Form, string};
use crate::node::{Node, Value};
use crate::shape;

/// The key for statuses that are not named.
const USUAL: &str = "default";

/// Statuses that no lifetime applies to: they answer a range or a condition, or speak of the client and not of
/// the page.
const EXCLUDED: [u16; 7] = [206, 304, 401, 403, 407, 416, 429];

const EXPECTED: &str =
    r#"a duration such as "300s", or a table such as { default = "300s", 404 = "10s" }"#;

/// `"300s"`, or `{ default = "300s", 404 = "10s" }`.
#[derive(Debug)]
pub(super) struct TtlForm;

impl Form<Ttl> for TtlForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Ttl> {
        let Value::Table(table) = &node.value else {
            return TTL.read(node, faults).map(Ttl::all);
        };
        let mut ttl = Ttl::default();
        let before = faults.found.len();
        for (name, node) in table {
            let Some(lifetime) = TTL.read(node, faults) else { continue };
            match (name.as_str(), status(name)) {
                (USUAL, _) => ttl.usual = Some(lifetime),
                (_, Ok(status)) => ttl.by_status.push((status, lifetime)),
                (_, Err(why)) => {
                    let _: Option<()> =
                        faults.add(node, format!("found {}; expected {why}", string(name)));
                }
            }
        }
        (faults.found.len() == before).then_some(ttl)
    }

    fn write(&self, ttl: &Ttl) -> Option<String> {
        let show = |lifetime: &Duration| TTL.write(lifetime);
        if ttl.by_status.is_empty() {
            return ttl.usual.as_ref().and_then(show);
        }
        let usual = ttl.usual.as_ref().and_then(show).map(|shown| format!("{USUAL} = {shown}"));
        let named = ttl
            .by_status
            .iter()
            .filter_map(|(status, lifetime)| Some(format!("{status} = {}", show(lifetime)?)));
        let pairs: Vec<String> = usual.into_iter().chain(named).collect();
        Some(format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        let table = shape::named(EXPECTED, &TTL.shape());
        shape::any_of(&[TTL.shape(), table])
    }
}

fn status(name: &str) -> Result<u16, String> {
    let status = name.parse::<u16>().ok().filter(|status| (200..=599).contains(status));
    let status = status.ok_or_else(|| format!("{USUAL:?}, or a status such as 404"))?;
    match EXCLUDED.contains(&status) {
        true => Err(format!("another status: {status} is never stored")),
        false => Ok(status),
    }
}
