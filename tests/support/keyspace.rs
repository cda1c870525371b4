//! A look into a Redis of the cases, past the proxy: single commands, and all that it holds.

use redis::{Cmd, Connection, FromRedisValue, Value};

use super::redis::RedisServer;

impl RedisServer {
    /// Carries out one command, as `redis-cli` would.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        to_cmd(words).query(&mut self.open()).unwrap()
    }

    /// The keys that match a pattern.
    pub fn keys(&self, pattern: &str) -> Vec<String> {
        self.command(&["KEYS", pattern])
    }

    /// Every key and all that stands under it, as text to search.
    pub fn dump(&self) -> String {
        let mut connection = self.open();
        self.keys("*")
            .iter()
            .map(|key| format!("{key}: {:?}\n", content(&mut connection, key)))
            .collect()
    }

    fn open(&self) -> Connection {
        ::redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }
}

fn content(connection: &mut Connection, key: &str) -> Option<Value> {
    let kind: String = to_cmd(&["TYPE", key]).query(connection).unwrap();
    let read: &[&str] = match kind.as_str() {
        "hash" => &["HGETALL", key],
        "zset" => &["ZRANGE", key, "0", "-1", "WITHSCORES"],
        "set" => &["SMEMBERS", key],
        "list" => &["LRANGE", key, "0", "-1"],
        "stream" => &["XRANGE", key, "-", "+"],
        _ => &["GET", key],
    };
    // Between the look at the keys and this one a key may have expired.
    to_cmd(read).query(connection).ok()
}

fn to_cmd(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}
