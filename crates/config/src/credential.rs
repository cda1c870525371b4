//! Forms of values that must stay hidden: secrets by reference, and store URLs with a password.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anteroom_policy::database::DatabaseKind;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use redis::IntoConnectionInfo as _;
use serde_json::Value as Json;

use super::form::{Faults, Form, List, string};
use super::node::{HIDDEN, Node, TomlTable, Value, without_password};
use super::plan::StoreUrl;
use super::problem::SettingLocation;
use super::secret::{Secret, SecretSource};
use super::{file, shape};

/// The longest secret, in bytes.
const SECRET_MAX: u64 = 64 << 10;

/// What has a meaning in the path of a URL, or may not be in it.
const NOT_IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'#').add(b'%').add(b'?');

/// The URLs of stores.
const SCHEMES: &str = "embedded:<dir>, redis://<host>, rediss://<host>, redis+unix:<path>, \
                       redis+cluster://<host>,<host> or redis+sentinel://<host>,<host>/<primary>";

/// The URLs of databases.
const DATABASES: &str =
    "postgres://<host>/<database>, mysql://<host>/<database>, mariadb://… or sqlite:<file>";

/// The expected form of a [`SecretRef`].
const REFERENCE: &str = r#"{ file = "/path/of/it" } or { env = "NAME_OF_IT" }"#;

/// `{ file = "path" }` or `{ env = "NAME" }`. The secret itself is refused, because anyone with access to
/// the configuration could read it.
#[derive(Debug)]
pub(super) struct SecretRef;

impl Form<Secret> for SecretRef {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Secret> {
        match &node.value {
            Value::Table(table) => resolve(node, table, faults),
            _ => faults.add(
                node,
                format!("a secret is never written in the configuration itself; write {REFERENCE}"),
            ),
        }
    }

    fn write(&self, secret: &Secret) -> Option<String> {
        match secret.source() {
            SecretSource::Plain => None,
            SecretSource::File(path) => Some(reference("file", &path.to_string_lossy())),
            SecretSource::Env(name) => Some(reference("env", name)),
        }
    }

    fn shape(&self) -> Json {
        let keys = [("file", shape::text("a path")), ("env", shape::text("a variable"))];
        shape::table("`{ file = \"…\" }` or `{ env = \"…\" }`", keys)
    }
}

/// A secret by reference, or a list of them during a key rotation. An empty list is written by omitting
/// the key.
#[derive(Debug)]
pub(super) struct SecretRefs;

impl Form<Vec<Secret>> for SecretRefs {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<Secret>> {
        List::of(SecretRef).read(node, faults)
    }

    fn write(&self, secrets: &Vec<Secret>) -> Option<String> {
        match secrets.as_slice() {
            [] => None,
            [secret] => SecretRef.write(secret),
            _ => List::of(SecretRef).write(secrets),
        }
    }

    fn shape(&self) -> Json {
        List::of(SecretRef).shape()
    }
}

/// A token that clients send as `Authorization: Bearer …`.
#[derive(Debug)]
pub(super) struct BearerToken;

impl Form<Secret> for BearerToken {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Secret> {
        let secret = SecretRef.read(node, faults)?;
        if secret.expose().bytes().all(|b| b.is_ascii_graphic()) {
            return Some(secret);
        }
        faults
            .add(node, "expected a token of visible ASCII without spaces, as header fields require")
    }

    fn write(&self, secret: &Secret) -> Option<String> {
        SecretRef.write(secret)
    }

    fn shape(&self) -> Json {
        SecretRef.shape()
    }
}

fn reference(kind: &str, name: &str) -> String {
    format!("{{ {kind} = {} }}", string(name))
}

fn resolve(node: &Node, table: &TomlTable, faults: &mut Faults<'_>) -> Option<Secret> {
    let mut entries = table.iter();
    let (Some((kind, name)), None) = (entries.next(), entries.next()) else {
        return faults.add(node, format!("expected {REFERENCE}, one of them"));
    };
    match (kind.as_str(), name.as_text()) {
        ("file", Some(path)) => from_file(name, &file::path_at(&name.location, path), faults),
        ("env", Some(variable)) => from_variable(name, variable, faults),
        _ => faults.add(name, format!("expected {REFERENCE}")),
    }
}

fn from_file(node: &Node, path: &Path, faults: &mut Faults<'_>) -> Option<Secret> {
    let text = match file::read(path, SECRET_MAX) {
        Ok(text) => text,
        Err(error) => {
            return faults.add(node, format!("cannot read the file {}: {error}", path.display()));
        }
    };
    match without_line_end(&text) {
        "" => faults.add(node, format!("the file {} is empty", path.display())),
        secret => Some(Secret::from_file(secret, path)),
    }
}

fn from_variable(node: &Node, variable: &str, faults: &mut Faults<'_>) -> Option<Secret> {
    let found = faults.environment.iter().find(|(name, _)| name == variable);
    match found.map(|(_, text)| without_line_end(text)) {
        None => faults.add(node, format!("the environment variable {variable} is not set")),
        Some("") => faults.add(node, format!("the environment variable {variable} is empty")),
        Some(secret) => Some(Secret::from_env(secret, variable)),
    }
}

/// Removes one line end, which editors and `echo` add and no password ends with.
fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// A store: a plain text, or a reference if the URL contains a password.
#[derive(Debug)]
pub(super) struct StoreForm;

impl Form<StoreUrl> for StoreForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<StoreUrl> {
        let url = match (&node.value, node.as_text()) {
            (Value::Table(table), _) => resolve(node, table, faults)?,
            (_, Some(text)) => Secret::new(with_path(&node.location, text)),
            _ => return faults.expected(node, "a text in quotes"),
        };
        // The value is left out of the message: in a malformed URL, the position of the password is
        // unknown.
        store_url(url).map_or_else(|why| faults.add(node, why), Some)
    }

    fn write(&self, url: &StoreUrl) -> Option<String> {
        match url {
            StoreUrl::Embedded(dir) => Some(string(&format!("embedded:{}", dir.display()))),
            StoreUrl::Redis(url) => {
                SecretRef.write(url).or_else(|| Some(string(&without_password(url.expose()))))
            }
        }
    }

    fn shape(&self) -> Json {
        shape::any_of(&[shape::text(SCHEMES), SecretRef.shape()])
    }
}

/// As [`StoreForm`], without reading secrets: a reference leaves the store unchanged.
#[derive(Debug)]
pub(super) struct OpenStoreForm;

impl Form<StoreUrl> for OpenStoreForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<StoreUrl> {
        match &node.value {
            Value::Table(_) => None,
            _ => StoreForm.read(node, faults),
        }
    }

    fn write(&self, url: &StoreUrl) -> Option<String> {
        StoreForm.write(url)
    }

    fn shape(&self) -> Json {
        StoreForm.shape()
    }
}

/// A database: a plain text, or a reference if the URL contains a password.
#[derive(Debug)]
pub(super) struct DatabaseForm;

impl Form<Secret> for DatabaseForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Secret> {
        let url = match (&node.value, node.as_text()) {
            (Value::Table(table), _) => resolve(node, table, faults)?,
            (_, Some(text)) => Secret::new(database_path(&node.location, text)),
            _ => return faults.expected(node, "a text in quotes"),
        };
        match database_fault(url.expose()) {
            Some(why) => faults.add(node, why),
            None => Some(url),
        }
    }

    fn write(&self, url: &Secret) -> Option<String> {
        SecretRef.write(url).or_else(|| Some(string(&without_password(url.expose()))))
    }

    fn shape(&self) -> Json {
        shape::any_of(&[shape::text(DATABASES), SecretRef.shape()])
    }
}

/// A file of SQLite with a path that does not depend on the working directory.
fn database_path<'a>(location: &SettingLocation, url: &'a str) -> Cow<'a, str> {
    match (location.file(), url.strip_prefix("sqlite:").filter(|path| !path.is_empty())) {
        (Some(written_in), Some(path)) => {
            format!("sqlite:{}", file::beside(written_in, Path::new(path)).display()).into()
        }
        _ => url.into(),
    }
}

/// What is wrong with the URL of a database, without the URL: it may hold a password.
fn database_fault(url: &str) -> Option<String> {
    let Some(kind) = DatabaseKind::of_url(url) else {
        return Some(format!("not a database; expected {DATABASES}"));
    };
    let rest = url.split_once(':').map_or("", |(_, rest)| rest);
    if url.contains(HIDDEN) {
        return Some(format!(
            "the password is {HIDDEN}, as config print writes it; expected the password itself"
        ));
    }
    if kind == DatabaseKind::Sqlite {
        let is_path = !rest.is_empty() && !rest.starts_with("//") && !rest.contains(":memory:");
        return (!is_path).then(|| {
            "expected the path of a file behind sqlite:, such as sqlite:/var/lib/shop/shop.db"
                .to_owned()
        });
    }
    if !rest.starts_with("//") || rest.len() == 2 {
        return Some("expected a host, such as postgres://user:password@host/database".to_owned());
    }
    let query = url.split_once('?').map_or("", |(_, query)| query);
    if query.split('&').any(|part| part.starts_with("password=")) {
        return Some("the password belongs before the host: user:password@host".to_owned());
    }
    None
}

/// A store's URL with a path that does not depend on the working directory, if it is written in a file.
fn with_path<'a>(location: &SettingLocation, url: &'a str) -> Cow<'a, str> {
    let Some(written_in) = location.file() else { return url.into() };
    let beside = |path: &str| file::beside(written_in, Path::new(path));
    if let Some(folder) = url.strip_prefix("embedded:").filter(|folder| !folder.is_empty()) {
        return format!("embedded:{}", beside(folder).display()).into();
    }
    match url.strip_prefix("redis+unix:").filter(|path| !path.starts_with(['/', '?'])) {
        Some(socket) => {
            // The socket's path is written as part of a URL, and the name of the folder is not.
            let folder = beside("").to_string_lossy().into_owned();
            let folder = utf8_percent_encode(folder.trim_end_matches('/'), NOT_IN_PATH);
            format!("redis+unix:{folder}/{}", socket.trim_start_matches("./")).into()
        }
        None => url.into(),
    }
}

/// Reads the URL of a store, as `[store] url` has it.
///
/// # Errors
/// What is wrong with it, without the URL: it may hold a password.
pub fn read_store_url(url: &str) -> Result<StoreUrl, String> {
    store_url(Secret::new(url))
}

fn store_url(url: Secret) -> Result<StoreUrl, String> {
    let text = url.expose();
    if let Some(dir) = text.strip_prefix("embedded:") {
        let dir = Some(dir).filter(|dir| !dir.is_empty());
        let dir = dir.ok_or("embedded: needs a folder, such as embedded:./data")?;
        return Ok(StoreUrl::Embedded(PathBuf::from(dir)));
    }
    let several = SEVERAL.iter().any(|scheme| text.starts_with(scheme));
    let one = ["redis://", "rediss://", "redis+unix:"];
    if !several && !one.iter().any(|scheme| text.starts_with(scheme)) {
        return Err(format!("not a store; expected {SCHEMES}"));
    }
    if text.contains(HIDDEN) {
        return Err(format!(
            "the password is {HIDDEN}, as config print writes it; expected the password itself"
        ));
    }
    if several {
        several_servers(text)?;
    } else if text.into_connection_info().is_err() {
        let signs = if text.contains('@') { SIGNS } else { "" };
        return Err(format!(
            "not a Redis URL; expected one such as redis://user:password@host:6379/0{signs}"
        ));
    }
    Ok(StoreUrl::Redis(url))
}

/// What to do where a password may have ended its part of the URL.
const SIGNS: &str = "; in a password write %2F for /, %23 for # and %3F for ?";

/// The schemes of stores that have several servers.
const SEVERAL: [&str; 4] =
    ["redis+cluster://", "rediss+cluster://", "redis+sentinel://", "rediss+sentinel://"];

/// Checks the URL of a Cluster or of Sentinels: each host must do for a URL of its own.
fn several_servers(text: &str) -> Result<(), String> {
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    let is_cluster = scheme.ends_with("cluster");
    let expected = match is_cluster {
        true => "expected some nodes, such as redis+cluster://user:password@a:6379,b:6379",
        false => {
            "expected Sentinels and the name of the primary, such as redis+sentinel://a:26379,b:26379/mymaster"
        }
    };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) =
        authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
    let (primary, database) = path.split_once('/').unwrap_or((path, ""));
    let is_host = |host: &str| {
        !host.is_empty()
            && format!("redis://{login}{host}/{database}").into_connection_info().is_ok()
    };
    if !hosts.split(',').all(is_host) {
        return Err(format!("not the URL of a store; {expected}"));
    }
    if is_cluster && !matches!(path, "" | "0") {
        return Err("a Cluster has one database only: leave out what follows the hosts".into());
    }
    if !is_cluster && primary.is_empty() {
        return Err(format!("names no primary; {expected}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StoreUrl, String> {
        store_url(Secret::new(text))
    }

    #[test]
    fn every_kind_of_store_that_works_is_taken() {
        let dir = PathBuf::from("./data");
        assert_eq!(read("embedded:./data"), Ok(StoreUrl::Embedded(dir)));
        for url in [
            "redis://127.0.0.1",
            "redis://:pw@127.0.0.1:6379/3",
            "rediss://u:pw@redis.example",
            "redis+unix:/run/redis.sock",
            "redis+unix:///run/redis.sock?db=1&pass=pw",
            "redis+cluster://a,b:7000,[::1]:7001",
            "rediss+cluster://u:p,w@a",
            "redis+sentinel://:pw@a,b/mymaster/2?sentinel_password=q",
        ] {
            assert_eq!(read(url), Ok(StoreUrl::Redis(Secret::new(url))), "{url}");
        }
    }

    #[test]
    fn a_database_is_named_by_its_url_and_no_complaint_shows_its_password() {
        for fine in [
            "postgres://shop:hunter2@db/shop?sslmode=require",
            "postgresql://db",
            "mysql://shop@db/shop",
            "mariadb://shop@db/shop",
            "sqlite:shop.db",
            "sqlite:/var/lib/shop.db",
        ] {
            assert_eq!(database_fault(fine), None, "{fine}");
        }
        for (url, part) in [
            ("hunter2", "not a database"),
            ("redis://:hunter2@db", "not a database"),
            ("postgres:hunter2", "expected a host"),
            ("postgres://", "expected a host"),
            ("mysql://db/shop?password=hunter2", "before the host"),
            ("postgres://a:(hidden)@db/shop", "as config print"),
            ("sqlite:", "path of a file"),
            ("sqlite::memory:", "path of a file"),
        ] {
            let why = database_fault(url).unwrap();
            assert!(why.contains(part) && !why.contains("hunter2"), "{url}: {why}");
        }
        let url = Secret::new("postgres://shop:hunter2@db/shop");
        let written = DatabaseForm.write(&url).unwrap();
        assert_eq!(written, "\"postgres://shop:(hidden)@db/shop\"");
    }

    #[test]
    fn a_password_that_ends_its_url_is_told_how_to_be_written() {
        let why = read("redis://:ge/he#im@127.0.0.1:6379/0").unwrap_err();
        assert!(why.contains("write %2F for /") && !why.contains("he#im"), "{why}");
        let why = read("redis://127.0.0.1:6379/abc").unwrap_err();
        assert!(why.ends_with("redis://user:password@host:6379/0"), "{why}");
    }

    #[test]
    fn no_complaint_about_a_store_shows_its_password() {
        for url in [
            "embedded:",
            "redis+sentinel://:hunter2@a",
            "redis+cluster://:hunter2@a/3",
            "redis+cluster://:hunter2@",
            "redis+cluster://:hunter2@a,,b",
            "redis+sentinel://:hunter2@a:x/master",
            "postgres://:hunter2@a",
            "redis://:hunter2@host:port",
            "hunter2",
            "redis://:(hidden)@a",
        ] {
            let why = read(url).unwrap_err();
            assert!(!why.contains("hunter2"), "{url}: {why}");
        }
    }

    #[test]
    fn a_written_store_url_hides_its_password() {
        for (url, written) in [
            ("redis://a:6379/1", "\"redis://a:6379/1\""),
            ("redis://:hunter2@a", "\"redis://:(hidden)@a\""),
            ("redis://me:hun@ter/2@a/1", "\"redis://me:(hidden)@a/1\""),
            ("redis+unix:/s?pass=hunter2://hunter2@hunter2", "\"redis+unix:/s?pass=(hidden)\""),
            ("redis+unix:/s?pass=hunter2&db=1", "\"redis+unix:/s?pass=(hidden)&db=1\""),
            ("redis+cluster://me:hunter2@a,b", "\"redis+cluster://me:(hidden)@a,b\""),
            (
                "redis+sentinel://:hunter2@a/m?sentinel_user=s&sentinel_password=hunter2",
                "\"redis+sentinel://:(hidden)@a/m?sentinel_user=s&sentinel_password=(hidden)\"",
            ),
        ] {
            let url = StoreUrl::Redis(Secret::new(url));
            assert_eq!(StoreForm.write(&url).as_deref(), Some(written));
        }
    }
}
