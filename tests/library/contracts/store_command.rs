//! `anteroom store`: moving, backing up and restoring what a store holds, by the command itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anteroom_store::traits::*;
use anteroom_tests::origin::Reply;
use anteroom_tests::proxy::{Proxy, Storage, anteroom, log_in, shop};
use anteroom_tests::wait_until;
use tempfile::TempDir;

use crate::store_contract::{Bench, Ground, connected, token, user};
use crate::transfer_contract::{fill, shared_of, tokens_of};

/// Runs the command to its end, on another thread: this one may keep connections.
async fn store(words: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("store").args(words).stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

fn folder_of(bench: &Bench) -> String {
    match &bench.ground {
        Ground::Folder(folder) => format!("embedded:{}", folder.path().display()),
        Ground::Server(_) | Ground::Cluster(_) => panic!("there is no folder"),
    }
}

#[tokio::test]
async fn a_stopped_site_moves_from_its_folder_to_redis() {
    let (from, mut to) = (Bench::embedded().await, Bench::redis().await);
    fill(&from.store).await;
    let (tokens, shared) = (tokens_of(&from.store).await, shared_of(&from.store).await);
    let (folder, url) = (folder_of(&from), to.server().url());
    let words = ["migrate", "--from", &folder, "--to", &url];

    let in_use = store(&words).await;
    assert_eq!(in_use.status.code(), Some(1));
    assert!(said(&in_use).contains("in use by another process"), "{}", said(&in_use));
    assert!(said(&in_use).contains("[store.next]"), "{}", said(&in_use));

    from.open.clone().close().await;
    let moved = store(&words).await;
    let text = said(&moved);
    assert_eq!(moved.status.code(), Some(0), "{text}");
    assert!(text.contains("sessions                    298 -> 298"), "{text}");
    assert!(text.contains("token_storage = \"sha256\""), "{text}");
    assert_eq!(tokens_of(&to.store).await, tokens);
    assert_eq!(shared_of(&to.store).await, shared);

    let again = store(&words).await;
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("pass --replace"), "{}", said(&again));
    to.store.update_token(&token(950), &user("eve"), None, 1.0).await.unwrap();
    let again = store(&[&words[..], &["--replace", "--json"]].concat()).await;
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    let report: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&report["removed"], &report["counts"]["sessions"]["to"]), (&1.into(), &298.into()));
    assert_eq!(tokens_of(&to.store).await, tokens);
}

#[tokio::test]
async fn a_store_that_proxies_use_is_refused() {
    let (mut from, mut to) = (Bench::redis().await, Bench::redis().await);
    from.store.register_proxy(7, "{}", Duration::from_secs(60)).await.unwrap();
    let (from_url, to_url) = (from.server().url(), to.server().url());
    let refused = store(&["migrate", "--from", &from_url, "--to", &to_url]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("--from: 1 proxy is running"), "{}", said(&refused));
    from.store.unregister_proxy(7).await.unwrap();
    let done = store(&["migrate", "--from", &from_url, "--to", &to_url]).await;
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let same = store(&["migrate", "--from", &from_url, "--to", &from_url]).await;
    assert!(said(&same).contains("are the same store"), "{}", said(&same));
    let sharded = ["migrate", "--from", &from_url, "--to", &from_url, "--to-layout", "sharded"];
    let done = store(&sharded).await;
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
}

#[tokio::test]
async fn a_folder_that_is_no_store_is_not_made_one() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("typo");
    let from = format!("embedded:{}", missing.display());
    let refused = store(&["migrate", "--from", &from, "--to", "redis://127.0.0.1:1"]).await;
    assert!(said(&refused).contains("there is no store in"), "{}", said(&refused));
    assert!(!missing.exists());
    let half = store(&["migrate", "--from", &from]).await;
    assert_eq!(half.status.code(), Some(2));
}

async fn backed_up_and_restored(from: Bench, to: Bench) {
    fill(&from.store).await;
    let (tokens, shared) = (tokens_of(&from.store).await, shared_of(&from.store).await);
    let url_of = |bench: &Bench| match &bench.ground {
        Ground::Server(server) => server.url(),
        Ground::Folder(_) | Ground::Cluster(_) => folder_of(bench),
    };
    let (from_url, to_url) = (url_of(&from), url_of(&to));
    from.open.clone().close().await;
    to.open.clone().close().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("site.backup");
    let path = file.to_str().unwrap();

    let written = store(&["backup", path, "--from", &from_url]).await;
    assert_eq!(written.status.code(), Some(0), "{}", said(&written));
    assert!(said(&written).contains("298 sessions, 31 visitors"), "{}", said(&written));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(store(&["verify", path]).await.status.code(), Some(0));

    // A file that is damaged changes nothing, not even where it may replace.
    let whole = fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() - 1], &[&whole[..whole.len() / 2], b"x"].concat()] {
        fs::write(&file, damaged).unwrap();
        let refused = store(&["restore", path, "--to", &to_url, "--replace"]).await;
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("the backup is"), "{}", said(&refused));
        assert_eq!(store(&["verify", path]).await.status.code(), Some(1));
    }
    fs::write(&file, &whole).unwrap();
    let restored = store(&["restore", path, "--to", &to_url]).await;
    assert_eq!(restored.status.code(), Some(0), "{}", said(&restored));
    let again = store(&["restore", path, "--to", &to_url]).await;
    assert!(said(&again).contains("--replace"), "{}", said(&again));
    let again = store(&["restore", path, "--to", &to_url, "--replace"]).await;
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));

    let reopened = reopened(&to).await;
    let store = reopened.thread_handle();
    connected(&store).await;
    assert_eq!(tokens_of(&store).await, tokens);
    assert_eq!(shared_of(&store).await, shared);
    if let Ground::Folder(folder) = &to.ground {
        let path = folder.path().to_str().unwrap();
        assert!(said(&self::store(&["verify", path]).await).contains("in use"));
        reopened.close().await;
        assert!(said(&self::store(&["verify", path]).await).contains("the store is whole"));
    }
}

async fn reopened(bench: &Bench) -> anteroom_store::OpenStore {
    match &bench.ground {
        Ground::Folder(folder) => crate::store_contract::open_folder(folder.path()).await.unwrap(),
        Ground::Server(_) | Ground::Cluster(_) => bench.open.clone(),
    }
}

#[tokio::test]
async fn a_backup_of_a_folder_goes_back_into_a_folder() {
    backed_up_and_restored(Bench::embedded().await, Bench::embedded().await).await;
}

#[tokio::test]
async fn a_backup_of_redis_goes_back_into_redis() {
    backed_up_and_restored(Bench::redis().await, Bench::redis().await).await;
}

#[test]
fn a_running_proxy_writes_its_backup() {
    let origin = shop(|_| Reply::unstored("page"));
    for storage in [Storage::Embedded, Storage::redis()] {
        let proxy = Proxy::start(&origin, &storage, "session.mint = true");
        log_in(&proxy, "ann");
        let backup = |file: &Path| {
            let mut command = anteroom();
            command.args(["store", "backup"]).arg(file).args(["--config", "proxy.toml"]);
            command.current_dir(proxy.folder()).output().unwrap()
        };
        let file = proxy.folder().join("site.backup");
        wait_until("the session is in a backup", || {
            let output = backup(Path::new("site.backup"));
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
            said(&output).contains("site.backup: 1 session,")
        });
        assert!(file.exists());
        let refused = backup(Path::new("/dev/null/site.backup"));
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("/dev/null/site.backup: "), "{}", said(&refused));
    }
}
