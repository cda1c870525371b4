//! What the documentation shows of the configuration: each file and each part of one can be read.

use super::{ORIGIN, file, read, usual, variables, warnings};
use crate::http::extract::{Extractor, ResponseMatcher};
use crate::policy::route::SetCookie;

const README: &str = include_str!("../../../README.md");
const APPS: &str = include_str!("../../../docs/apps.md");

/// The files in `docs/examples`.
const EXAMPLES: [(&str, &str); 4] = [
    ("mint", include_str!("../../../docs/examples/mint.toml")),
    ("php", include_str!("../../../docs/examples/php.toml")),
    ("django", include_str!("../../../docs/examples/django.toml")),
    ("tomcat", include_str!("../../../docs/examples/tomcat.toml")),
];

#[test]
fn the_example_files_say_nothing_that_is_warned_of() {
    for (name, text) in EXAMPLES {
        assert_eq!(warnings(text), [""; 0], "{name}");
    }
    let php = read(&file(EXAMPLES[1].1));
    assert_eq!(php.routes[0].set_cookie, SetCookie::StripForAnonymous);
    assert_eq!(php.session.verify.path.as_deref(), Some("/whoami.php"));
}

#[test]
fn all_example_files_are_read_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let mut found: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
    found.sort_unstable();
    let mut read: Vec<String> = EXAMPLES.iter().map(|(name, _)| format!("{name}.toml")).collect();
    read.sort_unstable();
    assert_eq!(found, read);
}

#[test]
fn configuration_examples_in_the_docs_can_be_read() {
    let shown: Vec<String> = [README, APPS].into_iter().flat_map(blocks).collect();
    assert!(shown.len() > 10, "{}", shown.len());
    // What lies on the operator's machine.
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let file_of = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let files = [
        ("/etc/letsencrypt/live/*/fullchain.pem", file_of("site.pem", &pem)),
        ("/etc/anteroom/webhook.key", file_of("webhook.key", "key")),
    ];
    for block in shown {
        // A part of a file is read as one.
        let is_whole =
            block.lines().any(|line| line == "[origin]" || line.starts_with("origin = {"));
        let origin = if is_whole { "" } else { "origin.url = \"http://app\"\n" };
        let mut text = format!("{origin}{block}");
        for (named, there) in &files {
            text = text.replace(named, there);
        }
        read(&file(&text));
    }
}

/// The pieces of TOML on a page.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("\n```toml\n").skip(1);
    parts.map(|part| part.split_once("\n```").expect("an end").0.to_owned() + "\n").collect()
}

#[test]
fn tables_can_be_set_as_a_whole_by_the_environment() {
    let mut sources = file(ORIGIN);
    sources.env = variables(&[
        (
            "ANTEROOM__SESSION__VERIFY",
            r#"{ path = "/who", user = { header = "X-User" }, nobody = { status = [401] } }"#,
        ),
        ("ANTEROOM__ROUTE", r#"[{ match.path = "/a", share = "none" }]"#),
    ]);
    let plan = read(&sources);
    let verify = &plan.session.verify;
    assert!(matches!(verify.user, Some(Extractor::Header(_))));
    assert_eq!(verify.anonymous, Some(ResponseMatcher::Status(vec![401])));
    assert_eq!((plan.routes.len(), usual().routes.len()), (1, 0));
}
