//! A connection to one server of Redis as a step sees it. To a server that is taking a slot over, it puts ASKING
//! before each command: the server then answers for keys that have moved already.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisFuture, ServerErrorKind, Value};

/// A connection. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) inner: MultiplexedConnection,
    /// Whether commands follow an ASK redirection.
    pub(super) asks: bool,
}

impl From<MultiplexedConnection> for Connection {
    fn from(inner: MultiplexedConnection) -> Self {
        Self { inner, asks: false }
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        if !self.asks {
            return self.inner.req_packed_command(cmd);
        }
        Box::pin(async move {
            let asking = asking_before([cmd]);
            let replies = self.inner.send_packed_commands(&asking, 1, 1).await?;
            replies.into_iter().next().unwrap_or(Value::Nil).extract_error()
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        if !self.asks {
            return self.inner.req_packed_commands(pipeline, offset, count);
        }
        Box::pin(async move {
            if pipeline.is_transaction() {
                // The server would need each command's key to be there, or all of them to be gone.
                let reason = "a transaction waits until its slot has moved".to_owned();
                return Err(RedisError::from((
                    ServerErrorKind::TryAgain.into(),
                    "the slot is moving",
                    reason,
                )));
            }
            let asking = asking_before(pipeline.cmd_iter());
            let replies = self.inner.send_packed_commands(&asking, 0, asking.len()).await?;
            Ok(replies.into_iter().skip(1).step_by(2).collect())
        })
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}

fn asking_before<'a>(commands: impl IntoIterator<Item = &'a Cmd>) -> Pipeline {
    let mut asking = Pipeline::new();
    for command in commands {
        asking.cmd("ASKING");
        asking.add_command(command.clone());
    }
    asking
}
