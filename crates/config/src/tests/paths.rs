//! Paths in settings: what they are relative to.

use std::fs;
use std::path::{Path, PathBuf};

use anteroom_policy::access_log::AccessLogTarget;

use super::variables;
use crate::{
    Address, AdminSocket, ConfigSources, OnExpire, Overrides, Plan, Secret, StoreUrl, print,
};

/// A file that is not in the working directory.
fn file_in(folder: &Path, text: &str) -> ConfigSources {
    ConfigSources {
        file: Some((folder.join("proxy.toml"), text.to_owned())),
        ..ConfigSources::default()
    }
}

#[test]
fn paths_in_a_file_start_at_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    // A pattern must not take the name of the folder for a pattern.
    let folder = folder.path().join("a[b] %c");
    fs::create_dir(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    fs::write(folder.join("site.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(folder.join("token"), "secret").unwrap();
    let at = |name: &str| folder.join(name);
    let plan = super::read(&file_in(
        &folder,
        "store.url = \"embedded:./data\"\nadmin = { socket = \"a.sock\", token.file = \"token\" }\n\
         log.to = \"access.log\"\nsession.on_expire = \"file:./expired.jsonl\"\n\
         [[listen]]\naddress = \"unix:web.sock\"\n\
         tls = { cert = \"./*.pem\", key = \"key.pem\", client_ca = \"site.pem\", client_certs = \"optional\" }\n\
         [origin]\nurl = \"https://app\"\ntls = { ca = \"site.pem\", cert = \"site.pem\", key = \"key.pem\" }\n",
    ));
    assert_eq!(plan.store.url, StoreUrl::Embedded(at("data")));
    assert_eq!(plan.admin.socket, Some(at("a.sock")));
    assert_eq!(plan.admin.token.as_ref(), Some(&Secret::from_file("secret", &at("token"))));
    assert_eq!(plan.log.to, AccessLogTarget::File(at("access.log")));
    assert_eq!(plan.session.on_expire, OnExpire::File(at("expired.jsonl")));
    assert_eq!(plan.listen[0].address, Address::Unix(at("web.sock")));
    let tls = &plan.listen[0].tls;
    assert_eq!((&tls.key, &tls.client_ca), (&Some(at("key.pem")), &Some(at("site.pem"))));
    let tls = &plan.origin.tls;
    let paths = [&tls.ca, &tls.cert, &tls.key].map(|path| path.clone().unwrap());
    assert_eq!(paths, [at("site.pem"), at("site.pem"), at("key.pem")]);
    // What is printed means the same in any other file.
    let elsewhere = super::file(&print(&plan));
    assert_eq!(super::read(&elsewhere), plan);
}

#[test]
fn a_socket_of_redis_starts_at_the_folder_of_the_file() {
    for (url, expected) in [
        ("redis+unix:./redis.sock?db=1", "redis+unix:/etc/a%20b/redis.sock?db=1"),
        ("redis+unix:/run/redis.sock", "redis+unix:/run/redis.sock"),
        ("redis://127.0.0.1", "redis://127.0.0.1"),
    ] {
        let text = format!("origin = \"app\"\nstore.url = \"{url}\"");
        let plan = super::read(&file_in(Path::new("/etc/a b"), &text));
        assert_eq!(plan.store.url, StoreUrl::Redis(Secret::new(expected)));
    }
}

#[test]
fn paths_of_the_environment_and_the_command_line_stay_as_they_are() {
    let mut sources = file_in(Path::new("/etc/anteroom"), "origin = \"app\"\n");
    sources.env = variables(&[("ANTEROOM__LOG__TO", "access.log")]);
    sources.overrides.store = Some("embedded:./data".to_owned());
    let plan = super::read(&sources);
    assert_eq!(plan.log.to, AccessLogTarget::File(PathBuf::from("access.log")));
    assert_eq!(plan.store.url, StoreUrl::Embedded(PathBuf::from("./data")));
    assert_eq!(plan.admin.socket, Some(PathBuf::from("./data/admin.sock")));
}

#[test]
fn data_are_kept_beside_the_file_or_else_in_the_working_directory() {
    let read = |text: &str| super::read(&file_in(Path::new("/etc/anteroom"), text));
    let data = PathBuf::from("/etc/anteroom/anteroom-data");
    let socket = data.join("admin.sock");
    let plan = read("origin = \"app\"");
    assert_eq!(plan.admin.socket.as_ref(), Some(&socket));
    assert_eq!(plan.store.url, StoreUrl::Embedded(data));
    let on_redis = "origin = \"app\"\nstore = \"redis://r\"";
    assert_eq!(read(on_redis).admin.socket.as_ref(), Some(&socket));
    // The commands find the same socket.
    let sources = file_in(Path::new("/etc/anteroom"), on_redis);
    assert_eq!(Plan::socket(&sources), Ok(AdminSocket::Default(socket)));
    let sources = file_in(Path::new("/etc/anteroom"), "store = \"embedded:a\"");
    let beside = PathBuf::from("/etc/anteroom/a/admin.sock");
    assert_eq!(Plan::socket(&sources), Ok(AdminSocket::At(beside)));

    let overrides = Overrides { origin: Some("app".to_owned()), ..Default::default() };
    let plan = super::read(&ConfigSources { overrides, ..ConfigSources::default() });
    assert_eq!(plan.store.url, StoreUrl::Embedded(PathBuf::from("./anteroom-data")));
}

#[test]
fn paths_in_an_included_file_start_at_its_own_folder() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("conf.d");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("log.toml"), "[log]\nto = \"access.log\"\n").unwrap();
    let text = "include = \"conf.d/*\"\norigin = \"app\"\nadmin.socket = \"a.sock\"";
    let plan = super::read(&file_in(folder.path(), text));
    assert_eq!(plan.log.to, AccessLogTarget::File(below.join("access.log")));
    assert_eq!(plan.admin.socket, Some(folder.path().join("a.sock")));
}

#[test]
fn a_file_in_another_encoding_is_told_of_the_right_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy.toml");
    fs::write(&file, b"# caf\xe9\n").unwrap();
    let problem = ConfigSources::gather(Some(&file), Overrides::default()).unwrap_err();
    assert!(problem.text.ends_with("save it in the encoding UTF-8"), "{problem}");
}
