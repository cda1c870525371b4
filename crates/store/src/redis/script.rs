//! The scripts: steps that read before they write, each atomic on the server.
//!
//! A script is a Lua file in `lua/`, which documents its work and its result. This is the list of
//! them: the named parameters of each, and the libraries that it uses. The names become locals at
//! the start of the script, and the caller gives them, too. A plain pipeline costs Redis less (a
//! script 1.3 to 1.5 times as much), so a step that need not read is a pipeline. Scripts are sent
//! by hash; redis-rs loads one that the server does not know.

use std::fmt::Write as _;
use std::sync::LazyLock;

use redis::ToRedisArgs;

use super::keys::Keys;

/// A script, and the names of its parameters.
pub(super) struct Script {
    /// Keys that are the same for all calls.
    keys: &'static [LuaName],
    /// Keys of one call. More may follow.
    own_keys: &'static [&'static str],
    /// Names and prefixes that are the same for all calls: the first arguments.
    names: &'static [LuaName],
    /// Arguments of one call. More may follow.
    args: &'static [&'static str],
    compiled: LazyLock<redis::Script>,
}

/// A name in Lua, and its value from the keys.
type LuaName = (&'static str, fn(&Keys) -> &str);

/// Functions that scripts share, each a file in `lua/lib/`. They use the names of the script's keys and
/// arguments.
macro_rules! libraries {
    ($($name:ident = $file:literal;)*) => {
        $(const $name: &str = include_str!(concat!("lua/lib/", $file, ".lua"));)*
    };
}

libraries! {
    BYPASSES_IN_STORE = "bypasses";
    DISMISS_ONE = "dismiss_one";
    HAND_ON = "hand_on";
    HAND_OVER = "hand_over";
    IN_JSON = "in_json";
    IS_BEHIND = "is_behind";
    IS_OVER = "is_over";
    IS_TOKEN = "is_token";
    JOIN_VISITOR = "join_visitor";
    NAME_OF = "name_of";
    OVER_LIMIT = "over_limit";
    PAGE_BYTES = "page_bytes";
    PURGE_ERA = "purge_era";
    SET_CART = "set_cart";
    UNINDEX = "unindex";
}

/// `NAME = "file" (libraries) keys (of all calls; of this call) args (names; of this call);`
macro_rules! scripts {
    ($($script:ident = $file:literal ($($library:ident)*)
        keys ($($key:ident)*; $($own_key:ident)*)
        args ($($name:ident)*; $($arg:ident)*);)*
    ) => {
        $(pub(super) static $script: Script = Script {
            keys: &[$((stringify!($key), |keys| &keys.$key)),*],
            own_keys: &[$(stringify!($own_key)),*],
            names: &[$((stringify!($name), |keys| &keys.$name)),*],
            args: &[$(stringify!($arg)),*],
            compiled: LazyLock::new(|| {
                let parts: &[&str] = &[$($library,)* include_str!(concat!("lua/", $file, ".lua"))];
                redis::Script::new(&$script.source(parts))
            }),
        };)*

        #[cfg(test)]
        const SOURCES: &[(&str, fn() -> String)] = &[$(
            ($file, || $script.source(&[
                $($library,)* include_str!(concat!("lua/", $file, ".lua"))
            ])),
        )*];
    };
}

scripts! {
    // Sessions.
    LIVE = "live" (NAME_OF IS_OVER)
        keys (login recent since;)
        args (tokens_prefix; token now idle absolute may_note);
    UPDATE = "update" (NAME_OF)
        keys (login recent since popularity; viewed)
        args (tokens_prefix; token user now item last_dropped is_counted);
    TOUCH = "touch" (NAME_OF)
        keys (login recent;)
        args (; keep);
    REVOKE = "revoke" (NAME_OF)
        keys (login recent since; viewed cart)
        args (tokens_prefix gone_channel; token);
    END_AGAIN = "end_again" (NAME_OF)
        keys (login recent since; viewed cart)
        args (tokens_prefix gone_channel; token ended);
    DISMISS = "dismiss" (NAME_OF IN_JSON HAND_ON DISMISS_ONE)
        keys (login recent since expired expiring events;)
        args (viewed_prefix cart_prefix tokens_prefix gone_channel;
            action entries cart_max views_max outbox_max token id);
    ROTATE = "rotate" (NAME_OF IS_TOKEN IN_JSON HAND_ON DISMISS_ONE JOIN_VISITOR)
        keys (login recent since expired expiring events visitors; viewed cart old_viewed old_cart)
        args (viewed_prefix cart_prefix tokens_prefix gone_channel;
            action entries cart_max views_max outbox_max
            token id user now most per_user_max may_lose old old_id visitor);
    // Logins from one shard to another.
    END_FOR = "end_for" (NAME_OF IN_JSON HAND_ON DISMISS_ONE HAND_OVER)
        keys (login recent since expired expiring events handovers; old_viewed old_cart)
        args (viewed_prefix cart_prefix tokens_prefix gone_channel;
            action entries cart_max views_max outbox_max
            old old_id user now field has_cart has_views);
    END_VISITOR_FOR = "end_visitor_for" (HAND_OVER)
        keys (visitors handovers; old_viewed old_cart)
        args (; visitor user now field);
    TAKE_OVER = "take_over" (NAME_OF)
        keys (login; viewed cart)
        args (; token field record views_max cart_max);
    FORGET_HANDOVER = "forget_handover" ()
        keys (handovers;)
        args (; field record);
    HANDOVERS = "handovers" ()
        keys (handovers;)
        args (; before);
    CHANGE_CART = "change_cart" (NAME_OF IS_OVER SET_CART)
        keys (login recent since; cart)
        args (tokens_prefix; token user seen is_emptied cart_max now idle absolute);

    // What the cleaner does.
    EVICT = "evict" (NAME_OF IS_TOKEN OVER_LIMIT UNINDEX)
        keys (login recent since;)
        args (viewed_prefix cart_prefix tokens_prefix; keep before batch with_carts);
    EVICT_EXPIRING = "evict_expiring" (NAME_OF OVER_LIMIT UNINDEX IN_JSON HAND_ON)
        keys (login recent since expired expiring events;)
        args (viewed_prefix cart_prefix tokens_prefix;
            action entries cart_max views_max keep before bytes_max);
    OUTBOX = "outbox" ()
        keys (expiring;)
        args (; most bytes_max);
    CLEAR_OUTBOX = "clear_outbox" ()
        keys (expiring;)
        args (; first count);
    TAKE_LEASE = "take_lease" ()
        keys (; lease)
        args (; who ms);

    // Events.
    IDLE = "idle" (IS_BEHIND)
        keys (recent idle_reported;)
        args (; batch now newest);
    REPORT_IDLE_CARTS = "report_idle_carts" (NAME_OF IN_JSON HAND_ON IS_BEHIND)
        keys (login recent expired expiring events idle_reported;)
        args (viewed_prefix cart_prefix;
            action entries cart_max views_max known_mark bytes_max full);
    REMOVE_EVENT = "remove_event" ()
        keys (events;)
        args (; event);
    PUT_BACK = "put_back" ()
        keys (events;)
        args (; event becomes);

    // Visitors without a login.
    CHANGE_VISITOR_CART = "change_visitor_cart" (SET_CART)
        keys (visitors; cart)
        args (; token begins now is_emptied cart_max);
    TOUCH_VISITORS = "touch_visitors" ()
        keys (visitors;)
        args (; keep);
    MERGE_VISITOR = "merge_visitor" (NAME_OF JOIN_VISITOR)
        keys (login visitors;)
        args (viewed_prefix cart_prefix; token user visitor views_max cart_max);
    EVICT_VISITORS = "evict_visitors" (OVER_LIMIT)
        keys (visitors;)
        args (viewed_prefix cart_prefix; keep before batch);

    // Views and answers about visitors.
    RESCALE = "rescale" ()
        keys (popularity rescaled;)
        args (; keep every now kept_ms factor most);
    REMEMBER = "remember" ()
        keys (; answer)
        args (; before value ms);

    // Pages.
    PUT_PAGE = "put_page" (PAGE_BYTES)
        keys (page_bytes; page)
        args (; head body ttl_ms bound bound_of_new);
    DELETE_PAGES = "delete_pages" (PAGE_BYTES)
        keys (page_bytes;)
        args (; head);
    LEASE = "lease" ()
        keys (; lease)
        args (; who ms);
    END_LEASE = "end_lease" ()
        keys (; lease)
        args (; who is_shareable);

    // Purges.
    PURGE = "purge" (PURGE_ERA)
        keys (purges purging purged;)
        args (purge_channel;
            marks_before nonces_kept asked_era asked_number asked_nonce next_era next_key
            kept kept_bytes nonce);
    PURGED_SINCE = "purged_since" (PURGE_ERA BYPASSES_IN_STORE)
        keys (purges purging purged seen bypass;)
        args (purge_channel;
            bypasses_max marks_before nonces_kept asked_era asked_number asked_nonce next_era next_key
            who news_max lives_ms);
    IS_SEEN = "is_seen" ()
        keys (seen;)
        args (; era number lives_ms cut_off_ms);

    // The bypass switches.
    CHANGE_BYPASS = "change_bypass" (BYPASSES_IN_STORE)
        keys (bypass;)
        args (purge_channel; bypasses_max kind_max field lasts_ms by);
    BYPASSES = "bypasses" (BYPASSES_IN_STORE)
        keys (bypass;)
        args (; bypasses_max);

    // What is moved to another store.
    EXPORT_TOKENS = "export_tokens" (NAME_OF)
        keys (login recent since visitors;)
        args (viewed_prefix cart_prefix tokens_prefix; views_max cart_max);
    IMPORT_TOKENS = "import_tokens" (NAME_OF)
        keys (login recent since visitors;)
        args (viewed_prefix cart_prefix tokens_prefix;);
    REMOVE_TOKENS = "remove_tokens" (NAME_OF)
        keys (login recent since visitors;)
        args (viewed_prefix cart_prefix tokens_prefix; before);
    WALK_RECENT = "walk_recent" ()
        keys (login recent;)
        args (; cursor count);
    SEEN_SINCE = "seen_since" (IS_BEHIND)
        keys (; set)
        args (; from_time from_token most);
    IDLE_POSITION = "idle_position" ()
        keys (recent idle_reported;)
        args (;);
    ADD_TO_STREAM = "add_to_stream" ()
        keys (expired;)
        args (;);
    CLEAR_ROWS = "clear_rows" ()
        keys (delay schedule refreshed unschedule;)
        args (row_prefix; most);

    // The proxies on the store.
    REGISTER_PROXY = "register_proxy" ()
        keys (fleet seen purges moving;)
        args (; who entry lives_ms most);
    CHANGE_MOVE = "change_move" ()
        keys (moving;)
        args (; before after ms);

    // Rows.
    SCHEDULE_ROW = "schedule_row" ()
        keys (delay schedule unschedule;)
        args (; row every now most);
    SCHEDULE_UNTIL = "schedule_until" ()
        keys (delay schedule unschedule;)
        args (; every due end_time most);
    DROP_ROWS = "drop_rows" ()
        keys (delay schedule refreshed unschedule;)
        args (row_prefix; now most);
    MAKE_DUE = "make_due" ()
        keys (delay schedule;)
        args (; now);
    CLAIM_ROWS = "claim_rows" ()
        keys (delay schedule refreshed unschedule;)
        args (row_prefix; now most lease);
    PUT_ROW = "put_row" ()
        keys (delay schedule refreshed; content)
        args (; row fence due_next json now);
    POSTPONE_ROW = "postpone_row" ()
        keys (schedule;)
        args (; row fence due_next);
    OUTDATE_ROW = "outdate_row" ()
        keys (delay schedule refreshed; content)
        args (; row now);
    LIST_ROWS = "list_rows" ()
        keys (delay schedule refreshed;)
        args (; first last);
}

impl Script {
    /// A call of it, with the parameters that all calls share.
    pub(super) fn on(&'static self, keys: &Keys) -> Invocation {
        let mut inner = self.compiled.prepare_invoke();
        for (_, key) in self.keys {
            inner.key(key(keys));
        }
        for (_, name) in self.names {
            inner.arg(name(keys));
        }
        Invocation { script: self, inner, own_keys: 0, args: 0 }
    }

    /// The whole script: locals for its parameters, and its parts. `first_key` and `first_arg` are
    /// the indexes after the named keys and arguments.
    fn source(&self, parts: &[&str]) -> String {
        let keys: Vec<&str> =
            self.keys.iter().map(|(name, _)| *name).chain(self.own_keys.iter().copied()).collect();
        let args: Vec<&str> =
            self.names.iter().map(|(name, _)| *name).chain(self.args.iter().copied()).collect();
        let mut source = String::new();
        for (table, names) in [("KEYS", &keys), ("ARGV", &args)] {
            if let Some(last) = names.len().checked_sub(1) {
                let values = (1..=last + 1).map(|at| format!("{table}[{at}]"));
                let values = values.collect::<Vec<_>>().join(", ");
                // Writing to a string does not fail.
                let _ = writeln!(source, "local {} = {values}", names.join(", "));
            }
        }
        let _ =
            writeln!(source, "local first_key, first_arg = {}, {}", keys.len() + 1, args.len() + 1);
        source + &parts.concat()
    }
}

/// A call of a script. Its parameters are given in the order of the list.
pub(super) struct Invocation {
    script: &'static Script,
    inner: redis::ScriptInvocation<'static>,
    own_keys: usize,
    args: usize,
}

impl Invocation {
    /// The next key.
    pub(super) fn key(&mut self, name: &str, key: impl ToRedisArgs) -> &mut Self {
        debug_assert_eq!(self.script.own_keys.get(self.own_keys), Some(&name));
        self.own_keys += 1;
        self.inner.key(key);
        self
    }

    /// The next argument.
    pub(super) fn arg(&mut self, name: &str, value: impl ToRedisArgs) -> &mut Self {
        debug_assert_eq!(self.script.args.get(self.args), Some(&name));
        self.args += 1;
        self.inner.arg(value);
        self
    }

    /// A key after the named ones.
    pub(super) fn another_key(&mut self, key: impl ToRedisArgs) -> &mut Self {
        debug_assert_eq!(self.own_keys, self.script.own_keys.len());
        self.inner.key(key);
        self
    }

    /// An argument after the named ones.
    pub(super) fn another(&mut self, value: impl ToRedisArgs) -> &mut Self {
        debug_assert_eq!(self.args, self.script.args.len());
        self.inner.arg(value);
        self
    }

    /// The call, once all parameters are given.
    pub(super) fn complete(&self) -> &redis::ScriptInvocation<'static> {
        debug_assert_eq!(self.own_keys, self.script.own_keys.len());
        debug_assert_eq!(self.args, self.script.args.len());
        &self.inner
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn script_arguments_have_names_in_the_source() {
        let source = REVOKE.source(&["return 1\n"]);
        assert_eq!(
            source,
            "local login, recent, since, viewed, cart = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]\n\
             local tokens_prefix, gone_channel, token = ARGV[1], ARGV[2], ARGV[3]\n\
             local first_key, first_arg = 6, 4\n\
             return 1\n"
        );
    }

    #[test]
    fn every_file_of_lua_is_in_the_list() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/lua");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let mut files: Vec<_> = files.map(|file| file.into_string().unwrap()).collect();
        files.retain(|file| file.ends_with(".lua"));
        files.sort_unstable();
        let mut listed: Vec<_> = SOURCES.iter().map(|(file, _)| format!("{file}.lua")).collect();
        listed.sort_unstable();
        assert_eq!(files, listed);
    }

    /// What Redis and Lua 5.1 provide to a script.
    const GLOBALS: [&str; 14] = [
        "ARGV", "KEYS", "cjson", "cmsgpack", "ipairs", "math", "pairs", "pcall", "redis", "string",
        "table", "tonumber", "type", "unpack",
    ];

    /// If a Lua 5.1 compiler is installed, it finds syntax errors, and undefined names.
    #[test]
    fn scripts_compile_and_use_no_name_that_is_not_there() {
        for (file, source) in SOURCES {
            let compiler = Command::new("luac5.1")
                .args(["-p", "-l", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let Ok(mut compiler) = compiler else { return };
            compiler.stdin.take().unwrap().write_all(source().as_bytes()).unwrap();
            let listing = compiler.wait_with_output().unwrap();
            assert!(
                listing.status.success(),
                "{file}: {}",
                String::from_utf8_lossy(&listing.stderr)
            );
            let listing = String::from_utf8(listing.stdout).unwrap();
            for line in listing.lines().filter(|line| line.contains("ETGLOBAL")) {
                assert!(line.contains("GETGLOBAL"), "{file} sets a global: {line}");
                let name = line.rsplit("; ").next().unwrap_or_default();
                assert!(GLOBALS.contains(&name), "{file}: {name} is not defined");
            }
        }
    }
}
