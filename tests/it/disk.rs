//! The folder of the embedded store on bad days: deleted, emptied, on a disk that does not sync.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};
use crate::support::wait_until;

fn app() -> Origin {
    shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")))
}

#[test]
fn a_folder_that_is_moved_away_takes_no_log_ins_until_it_is_back() {
    let origin = app();
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let alice = log_in(&proxy, "alice");
    let is_alice = || assert_eq!(proxy.get("/").cookie(&alice).send().text(), "alice");
    let [folder, away] = ["data", "away"].map(|name| proxy.folder().join(name));

    fs::rename(&folder, &away).unwrap();
    wait_until("logins are refused", || proxy.post("/login?bob").send().status == 503);
    is_alice();
    proxy.wait_for_complaint("the store's file is gone");

    fs::rename(&away, &folder).unwrap();
    wait_until("logins are taken", || proxy.post("/login?bob").send().status == 303);
    is_alice();
}

/// What a proxy says that does not start.
fn refusal(folder: &Path) -> String {
    let mut command = anteroom();
    let output = command.args(["run", "--config", "proxy.toml"]).current_dir(folder).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn sessions_that_are_missing_or_empty_are_told_before_a_start_without_them() {
    let origin = app();
    let mut proxy = Proxy::embedded(&origin, "session.mint = true");
    let sessions = proxy.folder().join("data/sessions.redb");
    for lose in [
        |path: &Path| drop(File::create(path).unwrap()),
        |path: &Path| fs::remove_file(path).unwrap(),
    ] {
        log_in(&proxy, "alice");
        proxy.kill9();
        lose(&sessions);
        let said = refusal(proxy.folder());
        assert!(said.contains("delete sessions.created, too, to start without sessions"), "{said}");

        fs::remove_file(proxy.folder().join("data/sessions.created")).unwrap();
        proxy.restart();
    }
    proxy.wait_for_complaint("the file of sessions is empty: starting without");
}

#[test]
fn a_start_that_broke_off_leaves_nothing_in_the_way() {
    let origin = app();
    let mut proxy = Proxy::embedded(&origin, "session.mint = true");
    proxy.kill9();
    let data = proxy.folder().join("data");
    fs::remove_dir_all(&data).unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("sessions.redb.new"), "half a file").unwrap();
    proxy.restart();
    log_in(&proxy, "alice");
    assert!(!data.join("sessions.redb.new").exists());
}

/// Compiles a library, and returns the environment of a process that is to load it, and the path of its GATE.
pub(crate) fn preload(folder: &Path, source: &str) -> (String, PathBuf) {
    let [file, library, gate] = ["gated.c", "gated.so", "gate"].map(|name| folder.join(name));
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).status();
    assert!(compiled.unwrap().success());
    let environment = format!("export LD_PRELOAD={} GATE={}", library.display(), gate.display());
    (environment, gate)
}

/// Syncs of the file of pages do not end while the file at GATE is there.
const HANGING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int hang(long call, int fd) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "pages.redb"))
        while (access(getenv("GATE"), F_OK) == 0) usleep(1000);
    return syscall(call, fd);
}

int fsync(int fd) { return hang(SYS_fsync, fd); }
int fdatasync(int fd) { return hang(SYS_fdatasync, fd); }
"#;

#[test]
fn no_request_waits_for_a_sync_of_pages() {
    let folder = TempDir::new().unwrap();
    let (environment, gate) = preload(folder.path(), HANGING);
    let origin = Origin::always(Reply::html(&"page ".repeat(4_000)));
    let proxy = Proxy::behind(&environment, &origin);

    File::create(&gate).unwrap();
    // The file grows to twice its size again and again.
    for number in 0..600 {
        assert_eq!(proxy.get(&format!("/page/{number}")).send().status, 200);
    }
    wait_until("pages are in the store", || {
        fs::metadata(proxy.folder().join("data/pages.redb")).unwrap().len() > 4 << 20
    });
    fs::remove_file(&gate).unwrap();
}

/// Syncs of the file of sessions fail while the file at GATE is there.
const FAILING: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fail(long call, int fd) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "sessions.redb")
            && access(getenv("GATE"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return syscall(call, fd);
}

int fsync(int fd) { return fail(SYS_fsync, fd); }
int fdatasync(int fd) { return fail(SYS_fdatasync, fd); }
"#;

#[test]
fn after_a_failed_sync_log_ins_wait_until_the_file_is_written_again() {
    let folder = TempDir::new().unwrap();
    let (environment, gate) = preload(folder.path(), FAILING);
    let origin = app();
    let proxy = Proxy::behind_with(&environment, &origin, "session.mint = true");
    let alice = log_in(&proxy, "alice");

    File::create(&gate).unwrap();
    assert_eq!(proxy.post("/login?bob").send().status, 503);
    proxy.wait_for_complaint("the disk failed to keep what was written");
    proxy.wait_for_complaint("cannot be reopened; retrying");
    assert_eq!(proxy.post("/login?bob").send().status, 503);
    fs::remove_file(&gate).unwrap();
    wait_until("logins are taken", || proxy.post("/login?bob").send().status == 303);
    proxy.wait_for_complaint("was written once more, and is on the disk");
    assert_eq!(proxy.get("/").cookie(&alice).send().text(), "alice");
}

/// The blocks of 4 KiB that have `text`, and are leaves of redb's trees: their first byte says so.
fn leaves_of<'f>(file: &'f mut [u8], text: &str) -> Vec<&'f mut [u8]> {
    let has = |block: &[u8]| block.windows(text.len()).any(|window| window == text.as_bytes());
    file.chunks_mut(4_096).filter(|block| block[0] == 1 && has(block)).collect()
}

#[test]
fn a_damaged_block_makes_its_visitors_unknown_and_nothing_else() {
    let origin = app();
    let mut proxy =
        Proxy::embedded(&origin, "session.mint = true\nsession.token_storage = \"plain\"");
    let cookies: Vec<_> = (0..300).map(|n| log_in(&proxy, &format!("visitor-{n}"))).collect();
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    let path = proxy.folder().join("data/sessions.redb");
    let mut file = fs::read(&path).unwrap();
    // One of them is the session itself, others are lists of sessions, or copies that are no longer used.
    let leaves = leaves_of(&mut file, cookies[0].strip_prefix("login=").unwrap());
    leaves.into_iter().for_each(|leaf| leaf.fill(0xa5));
    fs::write(&path, file).unwrap();
    proxy.restart();

    let mut unknown = 0;
    for (number, cookie) in cookies.iter().enumerate() {
        let answer = proxy.get("/").cookie(cookie).send();
        assert_eq!(answer.status, 200, "{}", answer.text());
        if answer.text() == "-" {
            unknown += 1;
        } else {
            assert_eq!(answer.text(), format!("visitor-{number}"));
        }
    }
    assert!((1..150).contains(&unknown), "{unknown} of 300 are unknown");
    // Their names are behind all others, and so in another block of the list of users.
    let log_ins = (0..40).map(|n| proxy.post(&format!("/login?zoe-{n}")).send().status);
    let taken = log_ins.filter(|status| *status == 303).count();
    assert!(taken > 10, "{taken} of 40 logins were taken");
    proxy.wait_for_complaint("a block of the store is damaged");

    // A restart needs no repair, which would find the damage, and not start.
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    proxy.restart();
}
