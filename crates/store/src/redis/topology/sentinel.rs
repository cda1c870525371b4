//! The keeper of the table behind Sentinel: it asks the Sentinels for the primary, and listens to their word that it
//! has changed.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo, RedisConnectionInfo, RedisResult};
use tokio::time::{sleep, timeout};

use super::cluster::connect;
use super::{ANSWER, CALM, PAUSE, Primary, ServerAddress, Table, Topology};
use crate::redis::fault::tell_denial;

/// What the keeper needs.
#[derive(Clone, Debug)]
pub(in crate::redis) struct SentinelKeeper {
    pub(in crate::redis) sentinels: Vec<ServerAddress>,
    pub(in crate::redis) master: String,
    /// The login at a Sentinel.
    pub(in crate::redis) login: ConnectionInfo,
    /// How many shards the one primary has.
    pub(in crate::redis) shards: usize,
}

impl SentinelKeeper {
    pub(in crate::redis) fn new(
        sentinels: Vec<ServerAddress>,
        master: String,
        server: &ConnectionInfo,
        at_sentinels: RedisConnectionInfo,
        shards: usize,
    ) -> Self {
        // A Sentinel has TLS where its servers have it.
        let login = server.clone().set_redis_settings(at_sentinels);
        Self { sentinels, master, login, shards }
    }

    /// Keeps the table up to date, for ever. `on_moved` is told which shards have another primary than before.
    pub(in crate::redis) async fn keep(
        self,
        topology: Arc<Topology>,
        on_moved: impl Fn(Vec<usize>),
    ) {
        let listening = self.listen(&topology);
        let asking = async {
            let mut open = HashMap::new();
            let mut was_silent = false;
            loop {
                match self.ask(&mut open).await {
                    Some(primary) => {
                        was_silent = false;
                        let of_shard = vec![Some(0); self.shards];
                        let address = primary.address.clone();
                        let table = Table { version: 0, primaries: vec![primary], of_shard };
                        let moved = topology.install(table);
                        if !moved.is_empty() {
                            tracing::info!(primary = %address, "Sentinel names another primary");
                            on_moved(moved);
                        }
                    }
                    None if !was_silent => {
                        was_silent = true;
                        tracing::warn!(
                            master = self.master,
                            "no Sentinel names the primary: retrying"
                        );
                    }
                    None => {}
                }
                topology.pause().await;
            }
        };
        tokio::join!(listening, asking);
    }

    /// The primary now; `None` if no Sentinel names one.
    pub(in crate::redis) async fn primary(&self) -> Option<Primary> {
        self.ask(&mut HashMap::new()).await
    }

    /// The primary by the Sentinel with the highest configuration epoch.
    async fn ask(
        &self,
        open: &mut HashMap<ServerAddress, MultiplexedConnection>,
    ) -> Option<Primary> {
        let asked = self.sentinels.iter().map(|sentinel| {
            let connection = open.remove(sentinel);
            async move { (sentinel, timeout(ANSWER, self.ask_one(sentinel, connection)).await) }
        });
        let mut best: Option<(u64, Primary)> = None;
        for (sentinel, answer) in join_all(asked).await {
            match answer {
                Ok(Ok((connection, named))) => {
                    open.insert(sentinel.clone(), connection);
                    if let Some(named) = named
                        && best.as_ref().is_none_or(|(epoch, _)| *epoch < named.0)
                    {
                        best = Some(named);
                    }
                }
                Ok(Err(error)) => {
                    tracing::debug!(%sentinel, %error, "a Sentinel cannot be asked");
                    tell_denial(&error);
                }
                Err(_elapsed) => tracing::debug!(%sentinel, "a Sentinel does not answer"),
            }
        }
        best.map(|(_, primary)| primary)
    }

    async fn ask_one(
        &self,
        sentinel: &ServerAddress,
        open: Option<MultiplexedConnection>,
    ) -> RedisResult<(MultiplexedConnection, Option<(u64, Primary)>)> {
        let mut connection = match open {
            Some(connection) => connection,
            None => connect(&self.login, sentinel).await?,
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("MASTER").arg(&self.master);
        let said: HashMap<String, String> = command.query_async(&mut connection).await?;
        let mut named = primary_of(&said, sentinel);
        if let Some((_, primary)) = named.as_mut().filter(|(_, primary)| primary.has_replicas) {
            // The number counts replicas that have died, too.
            let mut command = redis::cmd("SENTINEL");
            command.arg("REPLICAS").arg(&self.master);
            let replicas: Vec<HashMap<String, String>> =
                command.query_async(&mut connection).await?;
            primary.has_replicas = replicas.iter().any(is_up);
        }
        Ok((connection, named))
    }

    /// Asks again when a Sentinel says that a primary has changed. One is listened to at a time.
    async fn listen(&self, topology: &Topology) {
        for sentinel in self.sentinels.iter().cycle() {
            if let Err(error) = self.listen_to(sentinel, topology).await {
                tracing::debug!(%sentinel, %error, "a Sentinel cannot be listened to");
            }
            sleep(PAUSE).await;
        }
    }

    async fn listen_to(&self, sentinel: &ServerAddress, topology: &Topology) -> RedisResult<()> {
        let client = Client::open(self.login.clone().set_addr(sentinel.like(self.login.addr())))?;
        let Ok(subscribed) = timeout(ANSWER, client.get_async_pubsub()).await else {
            return Ok(());
        };
        let mut subscribed = subscribed?;
        subscribed.subscribe("+switch-master").await?;
        // It may have changed before.
        topology.refresh();
        let mut words = subscribed.on_message();
        // A dead connection is silent: after a while the next Sentinel is listened to.
        while let Ok(Some(_)) = timeout(CALM * 12, words.next()).await {
            topology.refresh();
        }
        Ok(())
    }
}

/// The primary that a Sentinel names, with its configuration epoch; `None` if it names none.
fn primary_of(said: &HashMap<String, String>, sentinel: &ServerAddress) -> Option<(u64, Primary)> {
    let number = |field: &str| said.get(field)?.parse::<u64>().ok();
    let port = u16::try_from(number("port")?).ok()?;
    let host = said.get("ip").filter(|ip| !ip.is_empty()).unwrap_or(&sentinel.host);
    let has_replicas = number("num-slaves").unwrap_or_default() > 0;
    let primary = Primary { address: ServerAddress::new(host, port), has_replicas };
    Some((number("config-epoch").unwrap_or_default(), primary))
}

/// Whether a Sentinel reaches a replica.
fn is_up(replica: &HashMap<String, String>) -> bool {
    let flags = replica.get("flags").map_or("", String::as_str);
    !flags.split(',').any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_names_the_primary() {
        let said =
            [("ip", "10.0.0.1"), ("port", "7000"), ("config-epoch", "3"), ("num-slaves", "1")];
        let said = said.map(|(field, value)| (field.to_owned(), value.to_owned())).into();
        let sentinel = ServerAddress::new("s", 26_379);
        let address = ServerAddress::new("10.0.0.1", 7000);
        let primary = Primary { address, has_replicas: true };
        assert_eq!(primary_of(&said, &sentinel), Some((3, primary)));
        assert_eq!(primary_of(&HashMap::new(), &sentinel), None);
    }

    #[test]
    fn a_replica_that_a_sentinel_does_not_reach_is_not_up() {
        for (flags, up) in [
            ("slave", true),
            ("s_down,slave", false),
            ("slave,disconnected", false),
            ("s_down,o_down,slave", false),
        ] {
            let replica = HashMap::from([("flags".to_owned(), flags.to_owned())]);
            assert_eq!(is_up(&replica), up, "{flags}");
        }
    }
}
