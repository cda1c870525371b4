//! The keeper of the table of a Cluster: it asks the nodes which of them has which slots.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisResult};
use tokio::time::timeout;

use super::cluster_nodes::table_of;
use super::{ANSWER, ServerAddress, Topology};
use crate::redis::fault::tell_denial;

/// What the keeper needs.
#[derive(Debug)]
pub(in crate::redis) struct ClusterKeeper {
    pub(in crate::redis) seeds: Vec<ServerAddress>,
    pub(in crate::redis) login: ConnectionInfo,
    /// The slot of each shard.
    pub(in crate::redis) slots: Vec<u16>,
}

impl ClusterKeeper {
    /// Keeps the table up to date, for ever. `on_moved` is told which shards have another primary than before.
    pub(in crate::redis) async fn keep(
        self,
        topology: Arc<Topology>,
        on_moved: impl Fn(Vec<usize>),
    ) {
        let mut open: HashMap<ServerAddress, MultiplexedConnection> = HashMap::new();
        let mut was_silent = false;
        loop {
            let replies = self.ask(&topology, &mut open).await;
            match table_of(&replies, &self.slots) {
                Some(table) => {
                    if was_silent {
                        tracing::info!("a node of the Redis Cluster answers again");
                    }
                    was_silent = false;
                    let moved = topology.install(table);
                    if !moved.is_empty() {
                        tracing::info!(shards = moved.len(), "the Redis Cluster has moved shards");
                        on_moved(moved);
                    }
                }
                None if !was_silent => {
                    was_silent = true;
                    tracing::warn!("no node of the Redis Cluster answers: retrying");
                }
                None => {}
            }
            topology.pause().await;
        }
    }

    /// Asks the known nodes and the named ones, all at once. What does not answer in time is left out.
    async fn ask(
        &self,
        topology: &Topology,
        open: &mut HashMap<ServerAddress, MultiplexedConnection>,
    ) -> Vec<(ServerAddress, String)> {
        let known =
            topology.table().primaries.iter().map(|one| one.address.clone()).collect::<Vec<_>>();
        let nodes: BTreeSet<ServerAddress> =
            known.into_iter().chain(self.seeds.iter().cloned()).collect();
        open.retain(|node, _| nodes.contains(node));
        let asked = nodes.into_iter().map(|node| {
            let connection = open.get(&node).cloned();
            async move {
                let reply = timeout(ANSWER, nodes_of(&self.login, &node, connection)).await;
                (node, reply)
            }
        });
        let mut replies = Vec::new();
        for (node, reply) in join_all(asked).await {
            match reply {
                Ok(Ok((connection, reply))) => {
                    open.insert(node.clone(), connection);
                    replies.push((node, reply));
                }
                Ok(Err(error)) => {
                    tracing::debug!(%node, %error, "a node of the Cluster cannot be asked");
                    tell_denial(&error);
                    open.remove(&node);
                }
                Err(_elapsed) => drop(open.remove(&node)),
            }
        }
        replies
    }
}

/// `CLUSTER NODES` of a node, over a connection that is open or a new one.
pub(in crate::redis) async fn nodes_of(
    login: &ConnectionInfo,
    node: &ServerAddress,
    open: Option<MultiplexedConnection>,
) -> RedisResult<(MultiplexedConnection, String)> {
    let mut connection = match open {
        Some(connection) => connection,
        None => connect(login, node).await?,
    };
    let mut command = redis::cmd("CLUSTER");
    command.arg("NODES");
    let reply = command.query_async(&mut connection).await?;
    Ok((connection, reply))
}

/// A connection to a server, logged in as to its neighbours.
pub(in crate::redis) async fn connect(
    login: &ConnectionInfo,
    server: &ServerAddress,
) -> RedisResult<MultiplexedConnection> {
    let client = Client::open(login.clone().set_addr(server.like(login.addr())))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    client.get_multiplexed_async_connection_with_config(&config).await
}
