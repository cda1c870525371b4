//! Tables without a socket: how far a request comes through the stages, what is decided about it, and what its response
//! means.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the way to fail, and unwrap says where"
)]

mod decisions;
mod settle;
mod stages;

use std::rc::Rc;

use anteroom::app::dry_run;
use anteroom_config::{ConfigSources, Overrides, Plan};
use anteroom_proxy::WorkerContext;

/// Runs `test` with a worker of this configuration. Its origin does not exist, and its store is empty.
fn with_worker(settings: &str, test: impl AsyncFnOnce(&Rc<WorkerContext>)) {
    let text =
        format!("origin.url = \"http://127.0.0.1:9\"\norigin.hosts = [\"shop.test\"]\n{settings}");
    let file = Some(("proxy.toml".into(), text));
    let overrides = Overrides { store: Some("embedded:unused".to_owned()), ..Overrides::default() };
    let sources = ConfigSources { file, overrides, ..ConfigSources::default() };
    let (plan, _) = Plan::read(&sources).unwrap_or_else(|problems| panic!("{problems:?}"));
    dry_run::with_worker(plan, test).unwrap();
}
