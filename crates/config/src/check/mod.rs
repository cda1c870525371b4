//! Checks of the whole plan: settings that contradict each other, and settings that deserve a warning.
//!
//! A single value is checked by its form.

mod acme;
mod cache;
mod learn;
mod listen;
mod login;
mod origin;
mod personal;
mod route;
mod rows;
mod session;
mod tls;
mod traces;

use std::collections::HashSet;

use anteroom_http::peer::Peers;
use ipnet::IpNet;

use crate::plan::Plan;
use crate::problem::{Problem, Warning};
use crate::reader::SettingLocations;

/// Checks a plan as a whole.
#[derive(Debug)]
pub(super) struct ConfigCheck<'a> {
    plan: &'a Plan,
    places: &'a SettingLocations,
    /// Settings that could not be read. The plan holds a default for them, so nothing is concluded from
    /// it.
    unread: HashSet<&'a str>,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl<'a> ConfigCheck<'a> {
    pub(super) fn new(plan: &'a Plan, places: &'a SettingLocations, known: &'a [Problem]) -> Self {
        let unread = known.iter().map(|problem| problem.setting.as_str()).collect();
        Self { plan, places, unread, problems: Vec::new(), warnings: Vec::new() }
    }

    /// Returns the contradictions and the warnings.
    pub(super) fn run(mut self) -> (Vec<Problem>, Vec<Warning>) {
        self.listeners();
        self.tls();
        self.acme();
        self.origin();
        self.servers();
        self.origin_tls();
        self.store();
        self.client();
        self.session();
        self.own_sessions();
        self.unknown_visitors();
        self.cache();
        self.visitor_cookie();
        self.databases();
        self.rows();
        self.purge();
        self.learn();
        self.traces();
        for (index, route) in self.plan.routes.iter().enumerate() {
            self.route(index, route);
            self.reachable(index, route);
        }
        self.warnings.sort_by(|a, b| a.problem.location.cmp(&b.problem.location));
        (self.problems, self.warnings)
    }

    fn problem(&mut self, setting: &str, text: impl Into<String>) {
        if !self.unread.contains(setting) {
            self.problems.push(Problem::new(self.places.of(setting), setting, text));
        }
    }

    fn warning(&mut self, setting: &str, text: impl Into<String>) {
        let problem = Problem::new(self.places.of(setting), setting, text);
        self.warnings.push(Warning { problem, fails_check: false });
    }

    /// A warning that makes `anteroom check` fail.
    fn grave_warning(&mut self, setting: &str, text: impl Into<String>) {
        let problem = Problem::new(self.places.of(setting), setting, text);
        self.warnings.push(Warning { problem, fails_check: true });
    }

    fn unread(&self, setting: &str) -> bool {
        self.unread.contains(setting)
    }
}

/// The network that covers every address, if one is listed.
fn everyone(named: &[Peers]) -> Option<&IpNet> {
    named.iter().filter_map(Peers::network).find(|net| net.prefix_len() == 0)
}
