//! What fails, in turn, and that all is well again behind it.

use std::time::{Duration, Instant};

use super::{BROWSERS_EACH, PendingRequest, Play};
use crate::support::proxy::Storage;
use crate::support::redis::RedisServer;
use crate::support::wait_within;
use crate::world::{Health, LogOut, SessionEnd, USERS};

/// How long proxies may take until the store is there for them again: other tests may have the machine.
const RECOVERED_WITHIN: Duration = Duration::from_secs(40);
/// How many users log out while the store is away.
const LOG_OUTS: usize = 3;

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Origin(Health),
    ProxyDies,
    RedisPauses,
    RedisDies,
}

impl Fault {
    /// All that may fail where sessions are kept so.
    pub(super) fn all(storage: &Storage) -> &'static [Self] {
        const ALL: [Fault; 6] = [
            Fault::Origin(Health::Failing),
            Fault::RedisPauses,
            Fault::Origin(Health::Breaking),
            Fault::RedisDies,
            Fault::Origin(Health::Slow),
            Fault::ProxyDies,
        ];
        const WITHOUT_REDIS: [Fault; 4] = [
            Fault::Origin(Health::Failing),
            Fault::Origin(Health::Breaking),
            Fault::Origin(Health::Slow),
            Fault::ProxyDies,
        ];
        match storage {
            Storage::Redis(_) => &ALL,
            Storage::Embedded => &WITHOUT_REDIS,
        }
    }

    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }
}

impl Play {
    /// The next thing fails.
    pub(super) fn fault(&mut self) {
        let all = Fault::all(&self.storage);
        let fault = all[self.failed % all.len()];
        self.failed += 1;
        self.tally.count(&fault.name());
        self.tell(&fault.name());
        self.is_well = false;
        match fault {
            Fault::Origin(health) => self.origin_fails(health),
            Fault::ProxyDies => self.proxy_dies(),
            Fault::RedisPauses => self.store_is_away(|redis| redis.pause(), |redis| redis.resume()),
            Fault::RedisDies => self.store_is_away(RedisServer::kill, RedisServer::restart),
        }
        self.store_is_read();
        self.is_well = true;
        self.tell("all is well");
        for session in std::mem::take(&mut self.ended_late) {
            self.is_over_at_once(session);
        }
    }

    fn origin_fails(&mut self, health: Health) {
        self.world.state().health = health;
        self.burst();
        self.burst();
        self.log_in_or_out();
        self.world.state().health = Health::Well;
        self.app_failed = Some(Instant::now());
    }

    fn proxy_dies(&mut self) {
        let pending = self.send_burst();
        let dying = self.rng.usize(..self.proxies.len());
        self.proxies[dying].kill9();
        self.finish(pending);
        self.idle[dying].clear();
        self.proxies[dying].restart();
    }

    fn store_is_away(
        &mut self,
        goes: impl FnOnce(&mut RedisServer),
        comes: impl FnOnce(&mut RedisServer),
    ) {
        // A user is to log out meanwhile.
        self.wait_for_somebody();
        self.has_store = false;
        let mut pending = self.send_burst();
        self.redis(goes);
        pending.extend(self.log_out_some());
        self.finish(pending);
        self.log_in_or_out();
        self.redis(comes);
        self.recover();
        self.has_store = true;
        self.log_outs_hold();
    }

    /// Logouts that the store hears of later.
    fn log_out_some(&mut self) -> Vec<PendingRequest> {
        let mut browsers = self.known();
        let others: Vec<_> = (0..USERS * BROWSERS_EACH)
            .filter(|browser| self.is_in(*browser) && !browsers.contains(browser))
            .collect();
        browsers.extend(others);
        let log_outs = browsers.into_iter().take(LOG_OUTS).map(|browser| {
            // The app goes on to believe in it.
            let how = [LogOut::Believes, LogOut::Replaces][self.rng.usize(..2)];
            let log_out = self.logs_out_so(browser, how);
            self.begins(&log_out);
            self.send(log_out)
        });
        log_outs.collect()
    }

    /// The store has heard of them.
    fn log_outs_hold(&mut self) {
        for (number, proxy, is_kept) in std::mem::take(&mut self.waiting) {
            self.tally.count("logout without the store");
            self.ended_late.push(number);
            let mut state = self.world.state();
            let session = &mut state.sessions[number];
            session.ended.get_or_insert_with(|| SessionEnd { at: Instant::now(), proxy });
            session.is_kept = is_kept;
        }
    }

    fn redis(&mut self, does: impl FnOnce(&mut RedisServer)) {
        if let Storage::Redis(server) = &mut self.storage {
            does(server);
        }
    }

    /// Waits until every thread of every proxy asks the store again, and it knows all that they had to say.
    fn recover(&mut self) {
        for proxy in 0..self.proxies.len() {
            let mut well = 0;
            wait_within(RECOVERED_WITHIN, "the store is back", || {
                self.asked += 1;
                let proxy = &self.proxies[proxy];
                let probe = format!("SID=a-probe-of-the-store-{}", self.asked);
                let me = proxy.get("/_anteroom/me").cookie(&probe).send().text();
                well = if me.contains("\"session\":\"none\"") { well + 1 } else { 0 };
                well >= 10 && proxy.metric("anteroom_log_outs_waiting") == 0.0
            });
        }
    }
}
