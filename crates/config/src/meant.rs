//! What was probably meant by a value that a key does not take.
//!
//! The words are those of other proxies, and those that come to mind first.

use super::node::{Node, Value};
use super::suggest::without_numbers;

/// The longest name of a variable in a message, in bytes.
const NAME_MAX: usize = 64;

/// Words for a key, and what to write instead.
type Advice = (&'static str, &'static [&'static str], &'static str);

const WORDS: &[Advice] = &[
    (
        "route[].share",
        &["public", "all", "any", "shared", "everybody", "anyone"],
        "write \"everyone\" if the page holds nothing personal",
    ),
    (
        "route[].share",
        &["private"],
        "write \"user\" for a copy for each user, or \"none\" for a page that is never stored",
    ),
    (
        "route[].share",
        &["true", "yes", "on", "cache", "guest", "guests", "anon", "logged_out"],
        "write \"anonymous\" for visitors without a login",
    ),
    (
        "route[].share",
        &["false", "no", "off", "never", "no-store", "no-cache", "bypass", "pass", "nobody"],
        "write \"none\" for a page that is never stored",
    ),
    ("route[].share", &["users", "per_user", "personal"], "write \"user\""),
    (
        "route[].share",
        &["group", "groups", "role", "logged_in", "login", "segments"],
        "write \"segment\", and what makes one in segment",
    ),
    ("session.app", &["java", "servlet", "jsp", "jetty", "spring"], "write \"tomcat\""),
    ("session.app", &["wp", "woocommerce"], "write \"wordpress\""),
    ("session.app", &["rails"], "leave app out, and write cookie = \"_*_session\""),
    ("session.app", &["laravel"], "leave app out, and write cookie = \"*_session\""),
    ("listen[].redirect", &["true", "on", "yes"], "write \"https\""),
    ("store.layout", &["chapter"], "write \"single\", which is what \"chapter\" was"),
    ("store.next.layout", &["chapter"], "write \"single\", which is what \"chapter\" was"),
    ("threads", &["auto"], "leave threads out for one for each core"),
    ("purge.method", &["PURGE", "purge"], "write true"),
    ("cache.default_ttl", &["off", "none", "no", "false"], "write \"0s\""),
    ("route[].ttl", &["off", "none", "no", "false"], "write share = \"none\" instead of ttl"),
];

/// What to write in place of this value of the key at `path`.
pub(super) fn advice(path: &str, node: &Node) -> Option<String> {
    let path = without_numbers(path);
    let word = match (&node.value, node.as_text()) {
        (Value::Boolean(flag), _) => flag.to_string(),
        (_, Some(text)) => text.to_owned(),
        (Value::List(nodes), _) => return of_list(&path, nodes),
        _ => return None,
    };
    let is_said = |(key, words, _): &&Advice| *key == path && words.contains(&word.as_str());
    if let Some((_, _, advice)) = WORDS.iter().find(is_said) {
        return Some((*advice).to_owned());
    }
    match path.as_str() {
        "log.access" if word.contains('/') => {
            Some(format!("the path of a file belongs in to = {word:?}"))
        }
        "session.app" if word.chars().all(|c| c.is_ascii_lowercase()) => Some(
            "for another app leave app out, and write cookie = the name of its session cookie"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The table that is meant by a value in its place.
pub(super) fn table(path: &str, node: &Node) -> Option<String> {
    let shown = node.shown();
    match (path, &node.value) {
        ("origin", Value::List(nodes)) if nodes.iter().all(|node| node.as_text().is_some()) => {
            let urls: Vec<String> = nodes.iter().map(Node::shown).collect();
            Some(format!("origin = {{ urls = [{}] }}", urls.join(", ")))
        }
        ("origin", Value::List(nodes)) if nodes.iter().all(is_table) => Some(
            "[origin] for the first app, and a header with a name, such as [origins.blog], for each other".to_owned(),
        ),
        // Keys of an app: the header is one letter too long.
        ("origins.url" | "origins.urls" | "origins.hosts", Value::Text(_) | Value::List(_)) => {
            Some("the header [origin] in place of [origins]".to_owned())
        }
        ("origins", Value::List(_)) => Some(
            "a header with the name, such as [origins.blog], in place of [[origins]]".to_owned(),
        ),
        (path, Value::Text(_)) => {
            let name = path.strip_prefix("origins.")?;
            Some(format!("{name} = {{ url = {shown} }}"))
        }
        (path, Value::Boolean(true)) if path.ends_with(".proxy_protocol") => {
            Some("proxy_protocol.from = [the addresses of the load balancers]".to_owned())
        }
        (path, Value::Boolean(true)) if path.ends_with("].tls") => Some(
            "tls = \"auto\" for a certificate by ACME, or tls.cert = the path of the certificate"
                .to_owned(),
        ),
        _ => None,
    }
}

fn is_table(node: &Node) -> bool {
    matches!(node.value, Value::Table(_))
}

fn of_list(path: &str, nodes: &[Node]) -> Option<String> {
    let shown: Vec<String> = nodes.iter().map(Node::shown).collect();
    if path == "origin.host" {
        return Some(format!("for the sites of the app write hosts = [{}]", shown.join(", ")));
    }
    let is_url = path == "origin.url" || path.starts_with("origins.") && path.ends_with(".url");
    is_url.then(|| format!("for several servers write urls = [{}]", shown.join(", ")))
}

/// The variable that a text has in it, as shells and other proxies write one: `${NAME}`, `{$NAME}`,
/// `{env.NAME}`, or `$NAME` alone. A file of Anteroom has none.
pub(super) fn variable(text: &str) -> Option<&str> {
    let is_name = |name: &&str| {
        name.len() <= NAME_MAX
            && name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let in_braces = ["${", "{$", "{env."].iter().find_map(|start| {
        let (_, rest) = text.split_once(start)?;
        rest.split_once('}').map(|(name, _)| name).filter(is_name)
    });
    in_braces.or_else(|| text.strip_prefix('$').filter(is_name))
}

/// What to say of a key whose value has a variable in it.
pub(super) fn instead_of_variable(path: &str, name: &str) -> String {
    let key = path.rsplit('.').next().unwrap_or_default();
    let is_secret =
        ["acme.secret", "admin.token", "origin.secret", "session.webhook_secret"].contains(&path);
    if is_secret || path.ends_with("].tls.ticket_secret") {
        return format!("a file has no variables; write {key} = {{ env = \"{name}\" }}");
    }
    if path.starts_with("store.") && key.ends_with("url") {
        return format!(
            "a file has no variables; write {key} = {{ env = \"{name}\" }} below [store], with the \
             whole URL in that variable"
        );
    }
    if path.contains(['[', '*']) || path.matches('.').count() > 1 {
        return "a file has no variables; write the value itself".to_owned();
    }
    let variable = path.to_ascii_uppercase().replace('.', "__");
    format!(
        "a file has no variables; write the value itself, or leave the key out and set \
         ANTEROOM__{variable} in the environment"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_paths::KeyPaths;
    use crate::node::TomlTable;
    use crate::problem::SettingLocation;

    #[test]
    fn words_of_others_lead_to_a_value() {
        let paths = KeyPaths::of_schema();
        for (path, words, advice) in WORDS {
            assert!(paths.all().iter().any(|known| known == path), "{path}");
            assert!(!advice.is_empty() && !words.is_empty());
        }
        for (path, text, expected) in [
            (
                "route[3].share",
                "public",
                Some("write \"everyone\" if the page holds nothing personal"),
            ),
            ("route[3].share", "everyone", None),
            (
                "session.app",
                "drupal",
                Some(
                    "for another app leave app out, and write cookie = the name of its session cookie",
                ),
            ),
            ("log.access", "/a.log", Some("the path of a file belongs in to = \"/a.log\"")),
            ("cache.status", "public", None),
        ] {
            let node = Node::text(SettingLocation::Nowhere, text);
            assert_eq!(advice(path, &node).as_deref(), expected, "{path} {text}");
        }
    }

    #[test]
    fn headers_of_apps_lead_to_the_right_ones() {
        let text = || Node::text(SettingLocation::Nowhere, "http://app");
        let list = |nodes| Node::list(SettingLocation::Nowhere, nodes);
        let one = Some("the header [origin] in place of [origins]".to_owned());
        assert_eq!(table("origins.url", &text()), one);
        assert_eq!(table("origins.hosts", &list(vec![text()])), one);
        let app = Node::table(SettingLocation::Nowhere, TomlTable::new());
        let several = table("origin", &list(vec![app])).unwrap_or_default();
        assert!(several.contains("such as [origins.blog], for each other"), "{several}");
        let urls = Some("origin = { urls = [\"http://app\"] }".to_owned());
        assert_eq!(table("origin", &list(vec![text()])), urls);
        let hosts = advice("origin.host", &list(vec![text()]));
        assert_eq!(
            hosts.as_deref(),
            Some("for the sites of the app write hosts = [\"http://app\"]")
        );
    }

    #[test]
    fn variables_of_shells_are_found() {
        for (text, name) in [
            ("redis://:${REDIS_PASSWORD}@r", Some("REDIS_PASSWORD")),
            ("{$TOKEN}", Some("TOKEN")),
            ("{env.TOKEN}", Some("TOKEN")),
            ("$BACKEND", Some("BACKEND")),
            ("$host", None),
            ("https://${host}{path}", None),
            ("a$B", None),
            ("^([^.]+)\\.$", None),
            ("${1}", None),
            ("${", None),
            ("{item}", None),
            ("", None),
        ] {
            assert_eq!(variable(text), name, "{text}");
        }
    }
}
