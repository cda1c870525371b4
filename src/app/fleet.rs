//! What this proxy says about itself to the others on its store.

use anteroom_config::{Fingerprint, fingerprint};
use anteroom_store::fleet::ProxyEntry;

use super::live_config::LiveConfig;
use super::shared_state::SharedState;

/// The longest name of a machine that is told.
const HOST_MAX: usize = 255;

/// The entry of this process under its present configuration.
pub(super) fn entry(live: &LiveConfig, shared: &SharedState) -> ProxyEntry {
    let Fingerprint { alike, tables } = fingerprint(&live.plan);
    ProxyEntry {
        host: host(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since: shared.since,
        at: shared.since,
        alike,
        tables,
        moving: String::new(),
    }
}

/// The name of this machine.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().take(HOST_MAX).collect()
}
