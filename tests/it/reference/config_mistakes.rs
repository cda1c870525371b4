//! Mistakes in a configuration: each has a wrong file, what `anteroom check` says of it, and the file to write, which
//! has to follow from that.
//!
//! An entry is made by hand with any second block; `ANTEROOM_DOCS=record cargo nextest run reference::` fills
//! in what is said.

use std::fs;
use std::process::Stdio;

use tempfile::TempDir;

use crate::support::proxy::anteroom;
use crate::support::{fixed_text, root};

const PAGE: &str = "tests/it/reference/config_mistakes.md";

/// Words of a right file that no message can know, by the title of their entry: they are the operator's own.
const OWN_WORDS: [(&str, &[&str]); 7] = [
    ("A port that does not exist", &["8080"]),
    ("A certificate that is not there", &["letsencrypt", "live", "*", "fullchain.pem"]),
    ("PHP-FPM", &["8081", "http"]),
    ("An app without a table", &["4000", "http", "127.0.0.1"]),
    ("A token in the file", &["ADMIN_TOKEN"]),
    ("Any host, as in nginx", &["shop.example"]),
    ("`key`, as in nginx", &["X-Country"]),
];

/// One entry of the page.
#[derive(Debug)]
struct Mistake<'a> {
    title: &'a str,
    wrong: &'a str,
    said: &'a str,
    right: &'a str,
}

/// The entries of the page, in order.
fn mistakes(page: &str) -> Vec<Mistake<'_>> {
    let entries = page.split("\n### ").skip(1);
    entries
        .map(|entry| {
            let title = entry.lines().next().unwrap();
            let blocks: Vec<&str> = entry.split("```").skip(1).step_by(2).collect();
            let [wrong, said, right] = blocks[..] else { panic!("{title}: three blocks") };
            let text = |block: &'_ str| block.find('\n').unwrap() + 1;
            assert!(right.starts_with("toml\n"), "{title}: ends with a file");
            Mistake {
                title,
                wrong: &wrong[text(wrong)..],
                said: &said[text(said)..],
                right: &right[text(right)..],
            }
        })
        .collect()
}

/// The folder in which files are checked, and what lies in it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        fs::write(folder.path().join("shop.pem"), pem).unwrap();
        fs::write(folder.path().join("502.html"), "<p>down</p>").unwrap();
        Self(folder)
    }

    /// Whether the file is accepted, and what is said of it.
    fn check(&self, text: &str) -> (bool, String) {
        fs::write(self.0.path().join("proxy.toml"), text).unwrap();
        let mut command = anteroom();
        command.args(["check", "--config", "proxy.toml"]);
        // A file about something else leaves the app out.
        if !text.lines().any(|line| line.starts_with("origin") || line == "[origin]") {
            command.args(["--origin", "http://127.0.0.1:3000"]);
        }
        let output = command
            .current_dir(self.0.path())
            .env_clear()
            .env("REDIS_URL", "redis://127.0.0.1")
            .env("ADMIN_TOKEN", "0123456789abcdef0123456789abcdef")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }

    /// A text with the files here in place of those on the operator's machine.
    fn here(&self, text: &str) -> String {
        let file = |name: &str| self.0.path().join(name).display().to_string();
        text.replace("/etc/letsencrypt/live/*/fullchain.pem", &file("shop.pem"))
            .replace("/etc/anteroom/502.html", &file("502.html"))
    }
}

/// The names, numbers and words of a text.
fn words(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '*');
    text.split(|c| !is_word(c))
        .map(|word| word.trim_matches('.'))
        .filter(|w| !w.is_empty())
        .collect()
}

#[test]
fn the_page_of_mistakes_says_what_check_says() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(path).unwrap();
    let mut said_now = page.clone();
    let folder = Folder::new();
    for Mistake { title, wrong, said, right } in mistakes(&page) {
        let (is_accepted, complaint) = folder.check(wrong);
        assert!(!is_accepted, "{title}: {complaint}");
        let old = format!("{wrong}```\n\n```text\n{said}```\n\n```toml\n{right}```");
        let new = format!("{wrong}```\n\n```text\n{complaint}```\n\n```toml\n{right}```");
        assert_eq!(page.matches(&old).count(), 1, "{title}");
        said_now = said_now.replacen(&old, &new, 1);
    }
    fixed_text(PAGE, &said_now);
}

#[test]
fn what_to_write_is_valid_and_follows_from_what_is_said() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(path).unwrap();
    let (mistakes, folder) = (mistakes(&page), Folder::new());
    assert!(mistakes.len() >= 40, "{}", mistakes.len());
    for Mistake { title, wrong, said, right } in &mistakes {
        assert!(said.lines().all(|line| line.starts_with("proxy.toml:")), "{title}: {said}");
        let (is_accepted, complaint) = folder.check(&folder.here(right));
        assert!(is_accepted, "{title}: {complaint}");
        let own = OWN_WORDS.iter().find(|(there, _)| there == title).map_or(&[][..], |it| it.1);
        for word in words(right) {
            let is_known =
                [*wrong, *said].iter().any(|text| text.contains(word)) || own.contains(&word);
            assert!(is_known, "{title}: nothing leads to {word:?}:\n{wrong}\n{said}\n{right}");
        }
    }
}
