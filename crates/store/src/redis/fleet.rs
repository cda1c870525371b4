//! The register of proxies in Redis: the hash `fleet:`. A value is a version, the server's time in milliseconds and
//! the proxy's entry.

use std::time::Duration;

use super::keys::Keys;
use super::purges::field_of;
use super::{RedisCall, RedisStore, fault, milliseconds, script};
use crate::fleet::{ENTRY_MAX, FLEET_MAX, FleetRegister, FleetStore, RegisteredProxy};
use crate::{Generation, StoreError};

/// A process in the reply: its field, its value, and what `seen:` has of it.
type ProcessEntry = (String, Vec<u8>, String);

impl FleetStore for RedisStore {
    async fn register_proxy(
        &self,
        process_id: u64,
        entry: &str,
        lives: Duration,
    ) -> Result<FleetRegister, StoreError> {
        let mut script = self.script(&script::REGISTER_PROXY);
        script.arg("who", field_of(process_id)).arg("entry", entry);
        script.arg("lives_ms", milliseconds(lives)).arg("most", FLEET_MAX);
        let (now, era, number, moving, found): (u64, u64, u64, String, Vec<ProcessEntry>) =
            self.invoke(RedisCall::Write, &script).await?;
        let mut proxies: Vec<_> = found.iter().filter_map(proxy).collect();
        proxies.sort_unstable_by_key(|proxy| proxy.process_id);
        let moving = (!moving.is_empty()).then_some(moving);
        let (now, purges) = (seconds(now), Generation { era, number });
        Ok(FleetRegister { now, clock: Some(now), purges, moving, proxies })
    }

    async fn unregister_proxy(&self, process_id: u64) -> Result<(), StoreError> {
        let mut command = redis::cmd("HDEL");
        command.arg(&self.keys().fleet).arg(field_of(process_id));
        self.query(RedisCall::Write, &command).await
    }

    async fn change_move(
        &self,
        before: Option<&str>,
        after: Option<&str>,
        lives: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let mut script = self.script(&script::CHANGE_MOVE);
        script.arg("before", before.unwrap_or_default()).arg("after", after.unwrap_or_default());
        script.arg("ms", lives.map_or(0, milliseconds));
        Ok(self.acknowledge::<u8>(&script).await? > 0)
    }

    async fn move_state(&self) -> Result<Option<String>, StoreError> {
        self.query(RedisCall::Write, redis::cmd("GET").arg(&self.keys().moving)).await
    }

    async fn has_other_layout(&self) -> Result<bool, StoreError> {
        if self.handle.address.is_cluster() {
            return Ok(false);
        }
        let mut command = redis::cmd("EXISTS");
        command.arg(self.keys().of_other_layout());
        Ok(self.query::<u64>(RedisCall::Write, &command).await? > 0)
    }

    /// Each proxy listens to its channels, and Redis knows of them without a key.
    async fn other_prefixes(&self) -> Result<Vec<String>, StoreError> {
        if self.handle.address.is_cluster() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("PUBSUB");
        command.arg("CHANNELS").arg(Keys::GONE_CHANNELS);
        let command = &command;
        let step = |mut on| async move {
            match command.query_async::<Vec<Vec<u8>>>(&mut on).await {
                // Access rules need not allow it.
                Err(error) if fault::denial(&error).is_some() => Ok(Vec::new()),
                answer => answer,
            }
        };
        let channels = self.call(RedisCall::Write, step).await?;
        let mut prefixes = self.keys().prefixes_beside(&channels);
        prefixes.truncate(FLEET_MAX);
        Ok(prefixes)
    }
}

/// A proxy in the reply. Values that are not ours are left out.
fn proxy((field, value, seen): &ProcessEntry) -> Option<RegisteredProxy> {
    let value = str::from_utf8(value).ok().filter(|value| value.len() <= ENTRY_MAX)?;
    let (_version, value) = value.split_once(' ')?;
    let (written, entry) = value.split_once(' ')?;
    Some(RegisteredProxy {
        process_id: u64::from_str_radix(field, 16).ok()?,
        written: seconds(written.parse().ok()?),
        seen: seen_of(seen),
        entry: entry.to_owned(),
    })
}

/// The position in a value of `seen:`.
fn seen_of(value: &str) -> Option<Generation> {
    let mut numbers = value.split(' ').map(|number| number.parse().ok());
    Some(Generation { era: numbers.next()??, number: numbers.next()?? })
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}
