//! What the main loop of the process carries out for operators: take-overs and reloads.

use super::reload::{ReloadEntrance, ReloadRequests, reload_entrance};
use super::take_over::{TakeOverEntrance, TakeOverRequests, take_over_entrance};

/// Where operators' requests to the main loop come in.
#[derive(Clone, Debug)]
pub struct MainLoopEntrances {
    /// For processes that want to take over, and the command to start one.
    pub successors: TakeOverEntrance,
    /// For the command to reload.
    pub reloads: ReloadEntrance,
}

/// What the main loop is asked for.
#[derive(Debug)]
pub struct MainLoopRequests {
    /// Take-overs.
    pub take_overs: TakeOverRequests,
    /// Reloads.
    pub reloads: ReloadRequests,
}

/// The entrances, and what comes in.
#[must_use]
pub fn main_loop_entrances() -> (MainLoopEntrances, MainLoopRequests) {
    let (successors, take_overs) = take_over_entrance();
    let (reload_entrance, reloads) = reload_entrance();
    let entrances = MainLoopEntrances { successors, reloads: reload_entrance };
    (entrances, MainLoopRequests { take_overs, reloads })
}

impl MainLoopRequests {
    /// Refuses what comes from now on, and the reloads that wait.
    pub fn close(&mut self) {
        self.take_overs.close();
        self.reloads.close();
        while self.reloads.try_recv().is_ok() {}
    }
}
