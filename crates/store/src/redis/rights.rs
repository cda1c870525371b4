//! What Redis has to allow the user in `[store] url`: commands, keys and channels; and how to find out what it denies.
//!
//! Commands are only queued, in a transaction that is discarded: Redis judges a command when it is queued.

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Client, Cmd, Pipeline, RedisResult};

use super::fault::denial;
use super::keys::Keys;
use crate::Layout;

/// The commands of all steps and scripts, by the arguments that complete them.
const COMMANDS: [(usize, &str); 5] = [
    (0, "PING TIME"),
    (
        1,
        "BITFIELD DEL EXISTS GET HGETALL HLEN LLEN LPOP PEXPIRETIME PTTL SCAN SCRIPT|LOAD STRLEN UNLINK XLEN ZCARD \
         ZRANDMEMBER",
    ),
    (
        2,
        "HDEL HEXISTS HGET HMGET HSCAN LINDEX PEXPIRE PEXPIREAT PUBLISH RENAMENX RPUSH SET WAIT XDEL ZMSCORE ZRANK \
         ZREM ZSCAN ZSCORE",
    ),
    (
        3,
        "EVALSHA GETRANGE HINCRBY HSET LRANGE LREM LTRIM SETRANGE XRANGE XREVRANGE ZADD ZCOUNT ZINCRBY ZINTERSTORE \
         ZRANGE ZRANGEBYSCORE ZREMRANGEBYRANK ZREVRANGE ZREVRANGEBYSCORE ZUNIONSTORE",
    ),
    (4, "XADD"),
];
/// Those of them that a Redis with pages alone is sent.
const OF_PAGES: &str = "DEL EVALSHA EXISTS GET GETRANGE HDEL HGET HINCRBY HSET PEXPIRETIME PING PTTL SCRIPT|LOAD SET \
                        STRLEN TIME UNLINK";
/// Those around a transaction.
const TRANSACTION: [&str; 3] = ["MULTI", "EXEC", "DISCARD"];
/// The one that writes to channels.
const PUBLISH: &str = "PUBLISH";
/// The one that listens to channels.
const SUBSCRIBE: &str = "SUBSCRIBE";

/// What of the state a Redis has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisContent {
    /// All of it.
    All,
    /// All but pages.
    WithoutPages,
    /// Pages alone.
    Pages,
}

/// What a Redis has, and under which names.
#[derive(Clone, Copy, Debug)]
pub struct RedisUse<'p> {
    /// What stands before every key.
    pub prefix: &'p str,
    /// How keys are laid out.
    pub layout: Layout,
    /// What it has.
    pub content: RedisContent,
}

/// What Redis denies its user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// Commands, `ZADD` or `SCRIPT|LOAD`.
    pub commands: Vec<String>,
    /// Keys; `*` stands for what follows a name.
    pub keys: Vec<String>,
    /// Channels.
    pub channels: Vec<String>,
}

impl RedisUse<'_> {
    fn keys(&self) -> Keys {
        match self.layout {
            Layout::Single => Keys::new(self.prefix),
            Layout::Sharded => Keys::of_shard(self.prefix, 0),
        }
    }

    fn key_names(&self, keys: &Keys) -> Vec<String> {
        match self.content {
            RedisContent::All => [keys.names(), keys.names_of_pages()].concat(),
            RedisContent::WithoutPages => keys.names(),
            RedisContent::Pages => keys.names_of_pages(),
        }
    }

    /// The commands, with the number of their arguments.
    fn commands(&self) -> Vec<(&'static str, usize)> {
        let is_sent = |name: &str| {
            self.content != RedisContent::Pages
                || OF_PAGES.split(' ').any(|of_pages| of_pages == name)
        };
        commands().filter(|(name, _)| is_sent(name)).collect()
    }
}

fn commands() -> impl Iterator<Item = (&'static str, usize)> {
    COMMANDS.into_iter().flat_map(|(args, names)| names.split(' ').map(move |name| (name, args)))
}

impl Denials {
    /// Asks what a server denies. The connection is not to be used for anything else then.
    pub(super) async fn of(
        client: &Client,
        mut on: MultiplexedConnection,
        wanted: &RedisUse<'_>,
    ) -> RedisResult<Self> {
        let mut denials = Self::default();
        if denials.judge_transactions(&mut on).await? {
            denials.judge_commands(&mut on, wanted).await?;
        }
        if wanted.content != RedisContent::Pages {
            denials.judge_channels(client, &wanted.keys()).await?;
        }
        Ok(denials)
    }

    /// Whether a transaction can be begun: without one, what follows would be carried out.
    async fn judge_transactions(&mut self, on: &mut MultiplexedConnection) -> RedisResult<bool> {
        let mut empty = redis::pipe();
        for name in TRANSACTION {
            empty.cmd(name);
        }
        let refused = refusals(on, &empty).await?;
        let denied = TRANSACTION.iter().zip(&refused).filter(|(_, refusal)| refusal.is_some());
        self.commands.extend(denied.map(|(name, _)| (*name).to_owned()));
        Ok(refused.first().is_some_and(Option::is_none))
    }

    async fn judge_commands(
        &mut self,
        on: &mut MultiplexedConnection,
        wanted: &RedisUse<'_>,
    ) -> RedisResult<()> {
        let (keys, commands) = (wanted.keys(), wanted.commands());
        let names = wanted.key_names(&keys);
        let first = names.first().map_or("", String::as_str);
        let mut queued = redis::pipe();
        queued.cmd("MULTI");
        for (name, args) in &commands {
            // A denied channel is in the log of ACLs, too, although it says nothing of the command.
            let on_what = if *name == PUBLISH { keys.purge_channel.as_str() } else { first };
            queued.add_command(complete(name, *args, on_what));
        }
        for name in &names {
            queued.add_command(complete("GET", 1, name)).add_command(complete("SET", 2, name));
        }
        queued.cmd("DISCARD");
        let refused = refusals(on, &queued).await?;
        let of_commands = refused.iter().skip(1).take(commands.len());
        for ((name, _), refusal) in commands.iter().zip(of_commands) {
            if refusal.as_deref().is_some_and(is_of_command) {
                self.commands.push((*name).to_owned());
            }
        }
        let is_of_key = |refusal: &Option<String>| {
            refusal.as_deref().is_some_and(|reason| !is_of_command(reason))
        };
        let of_keys = refused.get(1 + commands.len()..).unwrap_or_default();
        for (name, of_key) in names.into_iter().zip(of_keys.chunks(2)) {
            if of_key.iter().any(is_of_key) {
                self.keys.push(name);
            }
        }
        Ok(())
    }

    async fn judge_channels(&mut self, client: &Client, keys: &Keys) -> RedisResult<()> {
        let mut subscribed = client.get_async_pubsub().await?;
        for channel in [&keys.purge_channel, &keys.gone_channel] {
            let Err(error) = subscribed.subscribe(channel).await else { continue };
            match denial(&error) {
                Some(reason) if is_of_command(&reason) => {
                    self.commands.push(SUBSCRIBE.to_owned());
                    return Ok(());
                }
                Some(_) => self.channels.push(channel.clone()),
                None => return Err(error),
            }
        }
        Ok(())
    }
}

/// A command that lacks nothing. It is never carried out.
fn complete(name: &str, args: usize, key: &str) -> Cmd {
    let mut command = Cmd::new();
    for word in name.split('|') {
        command.arg(word);
    }
    if args > 0 {
        command.arg(key);
    }
    for _ in 1..args {
        command.arg(1);
    }
    command
}

/// Of each command, why it is denied.
async fn refusals(
    on: &mut MultiplexedConnection,
    commands: &Pipeline,
) -> RedisResult<Vec<Option<String>>> {
    let answers = on.req_packed_commands(commands, 0, commands.len()).await?;
    Ok(answers.into_iter().map(|answer| denial(&answer.extract_error().err()?)).collect())
}

/// Whether a command is denied, and not what it is used on.
fn is_of_command(reason: &str) -> bool {
    reason.contains(" to run the ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Commands that only some servers are sent, or that only tell more.
    const OTHERS: [&str; 5] = ["ASKING", "CLUSTER|NODES", "CONFIG|GET", "INFO", "PUBSUB|CHANNELS"];

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/redis")
    }

    /// The commands that a file of Rust or Lua sends, but those of its tests.
    fn used_in(file: &Path) -> BTreeSet<String> {
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let is_lua = file.extension().is_some_and(|extension| extension == "lua");
        let (beginning, end) = if is_lua { ("call('", '\'') } else { ("cmd(\"", '"') };
        let names = text.split(beginning).skip(1).map(|rest| rest.split(end).next().unwrap());
        names.map(str::to_owned).collect()
    }

    fn first_words<'n>(names: impl IntoIterator<Item = &'n str>) -> BTreeSet<String> {
        names.into_iter().map(|name| name.split('|').next().unwrap().to_owned()).collect()
    }

    fn files_below(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
            .collect()
    }

    #[test]
    fn the_commands_are_those_of_the_source() {
        let used: BTreeSet<_> =
            files_below(&folder()).iter().flat_map(|file| used_in(file)).collect();
        let mut known = first_words(commands().map(|(name, _)| name).chain(OTHERS));
        // The library sends these for scripts, and Sentinels have users of their own.
        for by_library in ["EVALSHA", "SCRIPT"] {
            assert!(known.remove(by_library));
        }
        known.extend(["SENTINEL", "MULTI", "DISCARD"].map(str::to_owned));
        assert_eq!(used, known);
    }

    #[test]
    fn the_commands_for_pages_are_those_of_their_files() {
        let lua = ["put_page", "delete_pages", "lease", "end_lease", "lib/page_bytes"];
        let files = ["pages.rs", "hot_pages.rs"].map(str::to_owned).into_iter();
        let files = files.chain(lua.map(|name| format!("lua/{name}.lua")));
        let mut used: BTreeSet<_> = files.flat_map(|file| used_in(&folder().join(file))).collect();
        used.extend(["EVALSHA", "SCRIPT", "PING"].map(str::to_owned));
        assert_eq!(used, first_words(OF_PAGES.split(' ')));
    }

    #[test]
    fn the_guide_lists_what_a_user_needs() {
        let guide = folder().join("../../../../docs/guides/redis-and-fleets.md");
        let guide = fs::read_to_string(guide).unwrap();
        let (_, block) = guide.split_once("ACL SETUSER").unwrap();
        let (block, behind) = block.split_once("```").unwrap();
        let listed = |text: &str| -> BTreeSet<String> {
            let words = text.split(|c: char| c.is_whitespace() || "'`".contains(c));
            words.filter_map(|word| Some(word.strip_prefix('+')?.to_uppercase())).collect()
        };
        let needed: BTreeSet<String> = commands()
            .map(|(name, _)| name)
            .chain(TRANSACTION)
            .chain([SUBSCRIBE, "CONFIG|GET", "INFO", "PUBSUB|CHANNELS"])
            .map(str::to_owned)
            .collect();
        assert_eq!(listed(block), needed);
        let of_cluster = behind.split_once("\n- ").unwrap().0;
        assert_eq!(listed(of_cluster), ["ASKING", "CLUSTER|NODES"].map(str::to_owned).into());
    }

    #[test]
    fn a_command_is_complete_with_its_key() {
        let words = |command: &Cmd| -> Vec<String> {
            let args = command.args_iter().map(|arg| match arg {
                redis::Arg::Simple(word) => String::from_utf8(word.to_vec()).unwrap(),
                _ => panic!("no cursor"),
            });
            args.collect()
        };
        assert_eq!(words(&complete("SCRIPT|LOAD", 1, "k")), ["SCRIPT", "LOAD", "k"]);
        assert_eq!(words(&complete("TIME", 0, "k")), ["TIME"]);
        assert_eq!(words(&complete("XADD", 4, "k")), ["XADD", "k", "1", "1", "1"]);
    }
}
