//! What the documentation shows of the configuration: each file and each part of one can be read.

use std::path::{Path, PathBuf};

use anteroom_http::extract::{Extractor, ResponseMatcher};
use anteroom_policy::route::SetCookie;

use super::{ConfigSources, ORIGIN, Plan, file, read, told, usual, variables, warnings};

/// The files in `docs/examples`.
const EXAMPLES: [(&str, &str); 4] = [
    ("mint", include_str!("../../../../docs/examples/mint.toml")),
    ("php", include_str!("../../../../docs/examples/php.toml")),
    ("django", include_str!("../../../../docs/examples/django.toml")),
    ("tomcat", include_str!("../../../../docs/examples/tomcat.toml")),
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let mut found: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
    found.sort_unstable();
    let mut read: Vec<String> = EXAMPLES.iter().map(|(name, _)| format!("{name}.toml")).collect();
    read.sort_unstable();
    assert_eq!(found, read);
}

#[test]
fn configuration_examples_in_the_docs_can_be_read() {
    let top = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut pages = vec![top.join("README.md")];
    add_pages(&top.join("docs"), &mut pages);
    let shown: Vec<(String, String)> = pages
        .iter()
        .flat_map(|page| {
            let text = std::fs::read_to_string(page).unwrap();
            blocks(&text).into_iter().map(|block| (page.display().to_string(), block))
        })
        .collect();
    assert!(shown.len() > 50, "{}", shown.len());
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
        ("\"shop.pem\"", format!("{:?}", file_of("shop.pem", &pem))),
        ("/etc/anteroom/tls/*.pem", file_of("other.pem", &pem)),
        ("/etc/anteroom/internal-root.pem", file_of("root.pem", &made.cert.pem())),
        ("/etc/anteroom/acme-secret", file_of("acme-secret", &"s".repeat(64))),
        ("/etc/anteroom/admin-token", file_of("admin-token", &"k".repeat(32))),
        ("/etc/anteroom/alice-token", file_of("alice-token", &"a".repeat(32))),
        ("/etc/anteroom/support-token", file_of("support-token", &"s".repeat(32))),
        ("/etc/anteroom/traces-key", file_of("traces-key", "Basic bXk6a2V5")),
        ("/etc/anteroom/webhook.key", file_of("webhook.key", "key")),
        ("/run/credentials/anteroom.service/origin-secret", file_of("origin-secret", "key")),
        ("/etc/anteroom/ticket-secret", file_of("ticket-secret", &"t".repeat(64))),
        ("/etc/anteroom/502.html", file_of("502.html", "<p>down</p>")),
    ];
    let environment = variables(&[
        ("REDIS_URL", "redis://127.0.0.1"),
        ("ADMIN_TOKEN", "0123456789abcdef0123456789abcdef"),
    ]);
    for (page, block) in shown {
        // A part of a file is read as one.
        let names_an_app =
            |line: &str| line.starts_with("origin =") || line.starts_with("origin.url");
        let is_whole = block.lines().any(|line| line == "[origin]")
            || block.lines().take_while(|line| !line.starts_with('[')).any(names_an_app);
        let origin = if is_whole { "" } else { "origin.url = \"http://app\"\n" };
        let mut text = format!("{origin}{block}");
        for (named, there) in &files {
            text = text.replace(named, there);
        }
        let sources = ConfigSources { env: environment.clone(), ..file(&text) };
        if let Err(problems) = Plan::read(&sources) {
            panic!("{page}:\n{text}\n{}", told(&problems).join("\n"));
        }
    }
}

/// The pages in a folder and those below.
fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
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
