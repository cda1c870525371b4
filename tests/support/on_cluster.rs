//! Cases whose proxies have their store in a Redis Cluster, wherever the case itself would put it.

use std::cell::RefCell;

use super::redis::RedisServer;

/// Names the nodes of a Cluster that the tests share, `host:port,host:port`.
pub const SHARED_CLUSTER: &str = "ANTEROOM_TEST_CLUSTER";

/// The settings of the store, and the Cluster of one node that it is in, unless that is shared.
type Store = (String, Option<RedisServer>);

thread_local! {
    static STORE: RefCell<Option<Store>> = const { RefCell::new(None) };
}

/// All proxies that this thread starts from now on share one store in a Cluster.
pub fn turn_on() {
    let store = match std::env::var(SHARED_CLUSTER) {
        Ok(nodes) => {
            let prefix = format!("t{:016x}:", fastrand::u64(..));
            (settings(&nodes, &prefix), None)
        }
        Err(_) => {
            let own = RedisServer::start_cluster();
            (settings(&format!("127.0.0.1:{}", own.port()), ""), Some(own))
        }
    };
    STORE.set(Some(store));
}

/// The same, if it is on: on an empty store.
pub fn begin_another() {
    if STORE.with_borrow(Option::is_some) {
        turn_on();
    }
}

fn settings(nodes: &str, prefix: &str) -> String {
    format!("store.url = \"redis+cluster://{nodes}\"\nstore.prefix = \"{prefix}\"")
}

/// The settings of the store, if it is in a Cluster.
pub fn store() -> Option<String> {
    STORE.with_borrow(|store| store.as_ref().map(|(settings, _)| settings.clone()))
}
