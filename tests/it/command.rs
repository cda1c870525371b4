//! The command line: what it prints, and how it ends.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::client::{Ask, Client};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::{free_port, wait_until};

/// Runs the command in `folder` to its end.
fn run_in(folder: &Path, words: &[&str]) -> Output {
    anteroom().args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn help_shows_examples() {
    let folder = TempDir::new().unwrap();
    for words in [
        &["--help"][..],
        &["run", "--help"],
        &["demo", "--help"],
        &["check", "--help"],
        &["purge", "--help"],
        &["explain", "--help"],
        &["sessions", "--help"],
        &["sessions", "revoke", "--help"],
        &["user", "delete", "--help"],
        &["store", "migrate", "--help"],
        &["store", "backup", "--help"],
        &["store", "restore", "--help"],
        &["store", "verify", "--help"],
        &["completions", "--help"],
    ] {
        let output = run_in(folder.path(), words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(said(&output).contains("anteroom "), "{words:?}: {}", said(&output));
    }
    let run = said(&run_in(folder.path(), &["run", "--help"]));
    for option in ["--config", "--listen", "--origin", "--store", "--admin", "--threads"] {
        assert!(run.contains(option), "{option}");
    }
}

#[test]
fn completions_name_the_commands() {
    let folder = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&run_in(folder.path(), &["completions", shell]));
        assert!(script.contains("explain"), "{shell}");
    }
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    let folder = TempDir::new().unwrap();
    let output = run_in(folder.path(), &["run", "--no-such-flag"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("--no-such-flag"));
}

#[test]
fn a_run_without_an_origin_says_what_is_missing() {
    let folder = TempDir::new().unwrap();
    let output = run_in(folder.path(), &["run", "--listen", "127.0.0.1:0"]);
    assert!(matches!(output.status.code(), Some(2 | 64)), "{:?}", output.status);
    assert!(said(&output).contains("origin"), "{}", said(&output));
}

#[test]
fn check_tells_all_problems_at_once() {
    let folder = TempDir::new().unwrap();
    let config = "[origin]\nurl = \"http://127.0.0.1:3000\"\nfirst_byte_timeout = 60\n\
                  [cache]\ndefault_tll = \"300s\"\nmemory = \"many\"\n\
                  [session]\nmax_sessions = -1\n[[route]]\nmatch.path = \"/a\"\nshare = \"all\"\n";
    fs::write(folder.path().join("bad.toml"), config).unwrap();

    let output = run_in(folder.path(), &["check", "--config", "bad.toml"]);

    assert_eq!(output.status.code(), Some(64), "{}", said(&output));
    let said = said(&output);
    for wanted in [
        "bad.toml",
        "first_byte_timeout",
        "default_tll",
        "default_ttl",
        "memory",
        "max_sessions",
        "share",
    ] {
        assert!(said.contains(wanted), "{wanted} in:\n{said}");
    }
    for line in [3, 5, 6, 8, 11] {
        assert!(said.contains(&format!("bad.toml:{line}")), "line {line} in:\n{said}");
    }
}

#[test]
fn check_is_content_with_the_smallest_file() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("proxy.toml"), "[origin]\nurl = \"http://127.0.0.1:3000\"\n")
        .unwrap();
    let output = run_in(folder.path(), &["check", "--config", "proxy.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_bad_file_stops_the_run_as_well() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("proxy.toml"), "[orgin]\nurl = 1\n").unwrap();
    for words in [&["run", "--config", "proxy.toml"][..], &["check", "--config", "missing.toml"]] {
        let output = run_in(folder.path(), words);
        assert_eq!(output.status.code(), Some(64), "{words:?}: {}", said(&output));
    }
}

#[test]
fn a_printed_configuration_reads_back_as_itself() {
    let folder = TempDir::new().unwrap();
    let config = "[origin]\nurl = \"http://127.0.0.1:3000\"\n[session]\ncookie = [\"a\", \"b_*\"]\n\
                  [[route]]\nmatch.path = \"/item/{item}\"\nttl = \"90s\"\n";
    fs::write(folder.path().join("first.toml"), config).unwrap();

    let first = run_in(folder.path(), &["config", "print", "--config", "first.toml"]);
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    fs::write(folder.path().join("second.toml"), &first.stdout).unwrap();
    let second = run_in(folder.path(), &["config", "print", "--config", "second.toml"]);

    assert_eq!(second.status.code(), Some(0), "{}", said(&second));
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn the_environment_wins_over_the_file_and_the_command_line_over_both() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.toml"), "[origin]\nurl = \"http://file.test\"\n").unwrap();
    let print = |words: &[&str]| {
        let mut command = anteroom();
        command.args(["config", "print", "--config", "a.toml"]).args(words);
        command.env("ANTEROOM__ORIGIN__URL", "http://environment.test");
        said(&command.current_dir(folder.path()).output().unwrap())
    };
    assert!(print(&[]).contains("http://environment.test"), "{}", print(&[]));
    let printed = print(&["--origin", "http://command.test"]);
    assert!(printed.contains("http://command.test"), "{printed}");
}

#[test]
fn a_port_in_use_is_a_clear_failure() {
    let origin = Origin::always(Reply::unstored("hello"));
    let running = Proxy::embedded(&origin, "");
    let folder = TempDir::new().unwrap();
    let (listen, admin) = (running.address().to_string(), format!("127.0.0.1:{}", free_port()));
    let url = format!("http://{}", origin.address());

    let words = ["run", "--listen", &listen, "--origin", &url, "--admin", &admin];
    let output = run_in(folder.path(), &words);

    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains(&listen), "{}", said(&output));
}

#[test]
fn no_file_is_needed() {
    let admin = format!("127.0.0.1:{}", free_port());
    serves_with(&["--admin", &admin]);
}

#[test]
fn a_second_proxy_serves_though_the_first_has_the_usual_address_for_administration() {
    // If this fails, another process has the port, which serves as well.
    let _first = std::net::TcpListener::bind("127.0.0.1:9180");
    serves_with(&[]);
}

#[test]
fn the_usual_file_is_read_where_none_is_named_and_again_by_each_reload() {
    let (folder, listen) = (TempDir::new().unwrap(), format!("127.0.0.1:{}", free_port()));
    let file = folder.path().join("proxy.toml");
    fs::write(&file, format!("listen = \"{listen}\"\norigin = \"localhost:1\"\nadmin = \"off\"\n"))
        .unwrap();
    let checked = run_in(folder.path(), &["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
    assert!(said(&checked).contains("the configuration is ./proxy.toml"), "{}", said(&checked));

    let log = folder.path().join("log");
    let mut child = anteroom()
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let says = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    // By then it listens for signals.
    wait_until("it serves", || says("the app is at http://localhost:1"));
    // As while another file is put in its place.
    fs::remove_file(&file).unwrap();
    let hup = Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
    assert!(hup.success());
    wait_until("the reload is over", || says("the old one stays in force") || says("the new"));
    let _ = child.kill();
    let _ = child.wait();
    assert!(!says("the new configuration is in force"));
}

#[test]
fn without_a_file_the_commands_look_at_the_usual_places_for_the_proxy() {
    let folder = TempDir::new().unwrap();
    let top = |variables: &[(&str, &str)]| {
        let mut command = anteroom();
        command.arg("top").current_dir(folder.path()).env_remove("ANTEROOM_SOCKET");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        said(&output)
    };
    let none = "anteroom: found no socket of a running proxy at ./anteroom-data/admin.sock, \
                /run/anteroom/admin.sock or /var/lib/anteroom/admin.sock; give --config FILE, the \
                configuration of the running proxy, or its socket as --socket PATH or in ANTEROOM_SOCKET\n";
    assert_eq!(top(&[]), none);
    for (variable, value) in [
        ("ANTEROOM_SOCKET", "/nowhere/a.sock"),
        ("ANTEROOM__ADMIN__SOCKET", "/nowhere/a.sock"),
        ("ANTEROOM__STORE__URL", "embedded:/nowhere"),
    ] {
        let told = top(&[(variable, value)]);
        assert!(told.contains("at /nowhere/a"), "{variable}: {told}");
    }
    fs::create_dir(folder.path().join("anteroom-data")).unwrap();
    fs::write(folder.path().join("anteroom-data/admin.sock"), "").unwrap();
    assert!(top(&[]).contains("no running proxy answers at ./anteroom-data/admin.sock"));
    // A file decides before the variable.
    fs::write(folder.path().join("proxy.toml"), "admin.socket = \"/elsewhere/a.sock\"").unwrap();
    let told = top(&[("ANTEROOM_SOCKET", "/nowhere/a.sock")]);
    assert!(told.contains("at /elsewhere/a.sock"), "{told}");
}

#[test]
fn the_proxy_of_a_file_is_found_from_any_folder() {
    let proxy = Proxy::embedded(&Origin::always(Reply::unstored("hello")), "");
    let file = proxy.folder().join("proxy.toml");
    let output = run_in(Path::new("/"), &["top", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn options_before_a_subcommand_are_taken() {
    let proxy = Proxy::embedded(&Origin::always(Reply::unstored("hello")), "");
    let file = proxy.folder().join("proxy.toml");
    let file = file.to_str().unwrap();
    for words in [
        &["rows", "--config", file, "list"][..],
        &["--config", file, "rows", "list", "--json"],
        &["rows", "--json", "--config", file, "list"],
        &["sessions", "--config", file, "list"],
        &["top", "--config", file, "cookies"],
        &["learn", "--config", file, "restart"],
        &["bypass", "--config", file, "off"],
        &["config", "--config", file, "print"],
        &["--config", file, "check"],
    ] {
        let output = run_in(Path::new("/"), words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
    }
    let output = run_in(Path::new("/"), &["rows", "--config", file, "--once", "list"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

/// Starts a proxy without a file, with these options more, and asks it for a page.
fn serves_with(options: &[&str]) {
    let origin = Origin::always(Reply::unstored("hello"));
    let folder = TempDir::new().unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let url = format!("http://{}", origin.address());
    let mut child = anteroom()
        .args(["--listen", &listen, "--origin", &url])
        .args(options)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let address = listen.parse().unwrap();

    let accepts = || TcpStream::connect(&listen).is_ok();
    wait_until("it serves, or has ended", || accepts() || child.try_wait().unwrap().is_some());
    let answer = Ask::new(address, "GET", "/").try_send_on(&mut Client::open(address));

    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(answer.expect("an answer").text(), "hello");
}

#[test]
fn a_check_without_a_file_says_that_none_was_read() {
    let folder = TempDir::new().unwrap();
    let output = run_in(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(64), "{}", said(&output));
    assert!(said(&output).contains("no configuration file was read"), "{}", said(&output));
    fs::write(folder.path().join("proxy.toml"), "").unwrap();
    let output = run_in(folder.path(), &["check"]);
    assert!(!said(&output).contains("no configuration file was read"), "{}", said(&output));
}

#[test]
fn empty_lists_say_that_they_are_empty() {
    let proxy = Proxy::embedded(&Origin::always(Reply::unstored("hello")), "");
    for (words, wanted) in [
        (["top", "items"], "no item was viewed"),
        (["rows", "list"], "no row is scheduled"),
        (["sessions", "list"], "there are no sessions"),
    ] {
        let output = run_in(proxy.folder(), &[&words[..], &["--config", "proxy.toml"]].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(said(&output).contains(wanted), "{words:?}: {}", said(&output));
    }
}
