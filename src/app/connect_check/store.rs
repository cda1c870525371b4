//! The store: a folder that can be written and is free, or a Redis that can be used.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use anteroom_config::{Plan, Store, StoreUrl};
use anteroom_store::embedded::SESSIONS_FILE;
use anteroom_store::may_drop_sessions;
use anteroom_store::redis::{
    Denials, ProbeError, RedisContent, RedisReport, RedisUse, label, probe,
};

use super::super::store::layout_of;
use super::file::is_writable;
use super::{ConnectFinding, ConnectResult, Findings, TIMEOUT, causes, failed, fine, warning};

/// Those of the store, and of the next one.
pub(super) async fn findings(plan: &Plan) -> Vec<ConnectFinding> {
    let mut found = of_store(&plan.store, "store").await;
    if let Some(next) = plan.store.next() {
        found.extend(of_store(&next, "next store").await);
    }
    found
}

/// One for the store, and one for the Redis of pages if that is another.
async fn of_store(store: &Store, what: &'static str) -> Vec<ConnectFinding> {
    let mut findings = Findings::about(what);
    match &store.url {
        StoreUrl::Embedded(folder) => findings.add(folder.display().to_string(), embedded(folder)),
        StoreUrl::Redis(url) => {
            let content = match store.pages_url {
                Some(_) => RedisContent::WithoutPages,
                None => RedisContent::All,
            };
            findings.add(label(url.expose()), redis(url.expose(), &used(store, content)).await);
        }
    }
    if let Some(StoreUrl::Redis(url)) = &store.pages_url {
        let used = used(store, RedisContent::Pages);
        findings.add(label(url.expose()), redis(url.expose(), &used).await);
    }
    findings.found
}

fn embedded(folder: &Path) -> (ConnectResult, String) {
    if let Err(error) = is_writable(folder) {
        return failed(format!(
            "the folder cannot be written: {error}; create it for this user, or set another in [store] url"
        ));
    }
    match is_free(&folder.join(SESSIONS_FILE)) {
        Ok(true) if folder.exists() => fine("the folder can be written, and no process has it"),
        Ok(true) => fine("the folder can be created"),
        Ok(false) => {
            warning("a running proxy has the folder; a second proxy needs another folder, or Redis")
        }
        Err(error) => failed(format!("the store's file cannot be opened: {error}")),
    }
}

/// Whether no process has locked the file. The lock is held only while this looks.
fn is_free(path: &Path) -> io::Result<bool> {
    let file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn used(store: &Store, content: RedisContent) -> RedisUse<'_> {
    RedisUse { prefix: &store.prefix, layout: layout_of(store.layout), content }
}

async fn redis(url: &str, used: &RedisUse<'_>) -> (ConnectResult, String) {
    let report = match probe(url, used, TIMEOUT).await {
        Ok(report) => report,
        Err(ProbeError::TimedOut) => {
            return failed(unanswered(url));
        }
        Err(error) => return failed(causes(&error)),
    };
    let RedisReport { version, policy, kind, denials, mut warnings } = report;
    let version = version.as_deref().unwrap_or("of unknown version");
    let kind = kind.map(|kind| format!("; {kind}")).unwrap_or_default();
    if let Some(denied) = denied(&denials) {
        return failed(format!("Redis {version} answers{kind}, but {denied}"));
    }
    if !denials.channels.is_empty() {
        warnings.push(format!(
            "denies its user {}: what other proxies purge and log out takes effect within a second, not at once",
            denials.channels.join(", ")
        ));
    }
    let has_sessions = used.content != RedisContent::Pages;
    if let Some(policy) =
        policy.as_deref().filter(|policy| has_sessions && may_drop_sessions(policy))
    {
        warnings.push(format!(
            "maxmemory-policy {policy} evicts sessions when its memory is full: set volatile-lru, which evicts only \
             pages"
        ));
    }
    if !warnings.is_empty() {
        return warning(format!("Redis {version} answers{kind}, but {}", warnings.join("; ")));
    }
    match policy {
        Some(policy) => {
            fine(format!("Redis {version} answers{kind}; maxmemory-policy is {policy}"))
        }
        None => fine(format!("Redis {version} answers{kind}; maxmemory-policy cannot be read")),
    }
}

/// What is said of a Redis that does not answer. One with TLS waits for a handshake, and one without it for a command.
fn unanswered(url: &str) -> String {
    let other =
        if url.starts_with("rediss") { "without TLS is redis" } else { "with TLS is rediss" };
    format!("no answer to PING within {} s; the scheme of a Redis {other}", TIMEOUT.as_secs())
}

/// The commands and keys without which the store does not work.
fn denied(denials: &Denials) -> Option<String> {
    let list = |what: &str, names: &[String]| {
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    let lists = [list("the commands", &denials.commands), list("the keys", &denials.keys)];
    let lists: Vec<_> = lists.into_iter().flatten().collect();
    let needed = "docs/guides/redis-and-fleets.md lists what it needs";
    (!lists.is_empty()).then(|| format!("denies its user {}: {needed}", lists.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_that_does_not_answer_may_have_another_scheme() {
        assert!(unanswered("rediss://r").ends_with("the scheme of a Redis without TLS is redis"));
        assert!(unanswered("redis://r").ends_with("the scheme of a Redis with TLS is rediss"));
    }
}
