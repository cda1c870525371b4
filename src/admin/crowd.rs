//! Who takes the app's time lately, each with the lines of `proxy.toml` that would stop or limit it.

use std::collections::BTreeMap;
use std::time::Instant;

use anteroom_http::clock::unix_now;
use anteroom_origin::ServerList;
use anteroom_policy::priority::RequestClass;
use anteroom_telemetry::crowd::{CrowdMember, CrowdTotals, Load};
use serde::{Deserialize, Serialize};

use super::commands::Commands;
use super::crowd_lines::{against_agent, against_network, against_pattern, put_in_order};

/// A class of strangers that takes so much of the app's time, in percent, is worth putting in order.
const WORTH_ORDER: f64 = 50.0;

/// Who takes the app's time. Figures are of the last minutes: after each minute, half of them is left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CrowdReport {
    /// The Unix time of the reading.
    pub at: f64,
    /// Seconds of the app's time that are taken in a second.
    pub seconds_per_second: f64,
    /// Requests that the app was asked.
    pub requests: f64,
    /// Networks, the heaviest first.
    pub networks: Vec<CrowdEntry>,
    /// User agents.
    pub agents: Vec<CrowdEntry>,
    /// Patterns of URLs.
    pub patterns: Vec<CrowdEntry>,
    /// Classes of requests, the best first.
    pub classes: Vec<CrowdEntry>,
}

/// One of those that take the app's time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CrowdEntry {
    /// The network, the user agent, the pattern or the class.
    pub name: String,
    /// Seconds of the app's time that it takes in a second.
    pub seconds_per_second: f64,
    /// Its part of all that is taken.
    pub percent: f64,
    /// Its requests.
    pub requests: f64,
    /// Those for URLs that the app was not asked for before.
    pub new_urls: f64,
    /// Its requests by class.
    pub classes: BTreeMap<String, f64>,
    /// Whether new URLs of a pattern never end.
    pub endless: bool,
    /// The lines of `proxy.toml` that would stop or limit it, if there are any.
    pub stop: Option<String>,
}

/// Whether hardly any of its requests was a user's or a login: no line is to refuse users.
fn is_without_users(member: &CrowdMember) -> bool {
    let count = |class: RequestClass| member.load.by_class[class as usize];
    count(RequestClass::Known) + count(RequestClass::LogIn) < 0.5
}

impl Commands {
    /// Who takes the app's time, as this process knows it.
    pub(super) fn crowd(&self) -> CrowdReport {
        let CrowdTotals { all, networks, agents, patterns, classes } =
            self.metrics.crowd(Instant::now());
        let list = |members: &[CrowdMember],
                    stop: fn(&CrowdMember) -> Option<String>|
         -> Vec<CrowdEntry> {
            members.iter().map(|member| entry(member, &all, stop(member))).collect()
        };
        let pattern = |pattern: &CrowdMember| CrowdEntry {
            endless: pattern.is_endless(),
            ..entry(pattern, &all, against_pattern(pattern))
        };
        CrowdReport {
            at: unix_now(),
            seconds_per_second: rounded(all.seconds_per_second()),
            requests: rounded(all.requests),
            networks: list(&networks, |one| {
                against_network(&one.name).filter(|_| is_without_users(one))
            }),
            agents: list(&agents, |one| against_agent(&one.name).filter(|_| is_without_users(one))),
            patterns: patterns.iter().map(pattern).collect(),
            classes: self.classes(&classes, &all),
        }
    }

    fn classes(&self, classes: &[Load; RequestClass::ALL.len()], all: &Load) -> Vec<CrowdEntry> {
        let one = |(class, load): (RequestClass, &Load)| {
            let member = CrowdMember { name: class.as_str().to_owned(), load: *load };
            let mut told = entry(&member, all, None);
            if class.is_stranger() && told.percent > WORTH_ORDER {
                told.stop = self.origin_without_order().map(put_in_order);
            }
            told
        };
        RequestClass::ALL.into_iter().zip(classes).map(one).collect()
    }

    /// The first origin that lets no request wait.
    fn origin_without_order(&self) -> Option<&str> {
        let has_order = |list: &ServerList| list.standings().iter().any(|one| one.limit.is_some());
        self.origins.iter().find(|list| !has_order(list)).map(|list| list.name())
    }
}

fn entry(member: &CrowdMember, all: &Load, stop: Option<String>) -> CrowdEntry {
    let load = &member.load;
    let percent = if all.seconds > 0.0 { 100.0 * load.seconds / all.seconds } else { 0.0 };
    let classes = RequestClass::ALL.into_iter().zip(load.by_class);
    CrowdEntry {
        name: member.name.clone(),
        seconds_per_second: rounded(load.seconds_per_second()),
        percent: rounded(percent),
        requests: rounded(load.requests),
        new_urls: rounded(load.new_urls),
        classes: classes
            .map(|(class, count)| (class.as_str().to_owned(), rounded(count)))
            .collect(),
        endless: false,
        stop,
    }
}

/// To a thousandth.
fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}
