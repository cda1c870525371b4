//! The tour of the demo: what to type, and what it shows.
//!
//! Text in backticks in a note is literal output of its command; a test types all of them.

use std::fmt::Write as _;
use std::path::Path;

use anteroom_demo::{TourCommand, TourStep};

/// What the commands of the tour are made of.
pub(super) struct Tour<'a> {
    /// `http://` and the address of the shop.
    pub(super) site: &'a str,
    /// How the command itself is called.
    pub(super) program: &'a str,
    /// Where the visitors' cookies are kept.
    pub(super) folder: &'a Path,
    /// The socket of the data commands.
    pub(super) socket: &'a Path,
}

impl Tour<'_> {
    /// The steps in order.
    pub(super) fn steps(&self) -> Vec<TourStep> {
        vec![
            self.hits(),
            self.explain(),
            self.purge(),
            self.sessions(),
            self.segments(),
            self.holes(),
            self.failing(),
        ]
    }

    fn hits(&self) -> TourStep {
        let site = self.site;
        let timed = self.timed("/item/umbrella");
        let login = format!("curl -sL -b '' -d user=ada {site}/login | grep -E 'Hello|Made by'");
        step(
            "Hits: a page is made once",
            &[
                ("A miss takes 0.3 s: `fwd=uri-miss`", timed.clone()),
                ("The same page, now from memory: `hit`", timed),
                ("A login: `Hello, ada`, on a page for ada alone", login),
            ],
        )
    }

    fn explain(&self) -> TourStep {
        let site = self.site;
        let account = format!("explain {site}/account --cookie consent=1");
        step(
            "Explain: why does a page come from the cache, or not?",
            &[
                (
                    "The page is stored: `Answered from the cache`",
                    self.ask(&format!("explain {site}/item/umbrella")),
                ),
                (
                    "A cookie that no rule names: `Forwarded (unknown-cookie)`; each `Hint` is a way out",
                    self.ask(&account),
                ),
            ],
        )
    }

    fn purge(&self) -> TourStep {
        step(
            "Purge: one page, or all pages with a tag",
            &[
                (
                    "Tell Anteroom that the page has changed: `purged`",
                    self.ask(&format!("purge {}/item/umbrella", self.site)),
                ),
                (
                    "So its next visitor gets a new page from the shop: `fwd=stale`",
                    self.status("", "/item/umbrella"),
                ),
                (
                    "The shop marks its pages with tags, by Surrogate-Key. All pages with the tag goods: `purged`",
                    self.ask("purge --tag goods"),
                ),
                (
                    "The page of the umbrella has this tag: `fwd=stale`",
                    self.status("", "/item/umbrella"),
                ),
            ],
        )
    }

    fn sessions(&self) -> TourStep {
        let (site, cookies) = (self.site, self.cookies("ada"));
        let (login, account) = (
            format!(
                "curl -so /dev/null -D - -c {cookies} -d user=ada {site}/login | grep -i set-cookie"
            ),
            format!("curl -so /dev/null -D - -b {cookies} {site}/account | grep -i location"),
        );
        let first = format!("$({} | head -n 1 | cut -d ' ' -f 1)", self.ask("sessions list"));
        step(
            "Sessions: list, show, revoke",
            &[
                ("A login: Anteroom sets the session cookie `login`", login),
                ("The sessions: `ada  logged in`", self.ask("sessions list")),
                (
                    "The data of one session, by its id in the list: `ada  logged in`",
                    self.ask(&format!("sessions show \"{first}\"")),
                ),
                (
                    "The end of all sessions of ada: `revoked`",
                    self.ask("sessions revoke --user ada"),
                ),
                ("The cookie is no login any more: `/login`", account),
            ],
        )
    }

    fn segments(&self) -> TourStep {
        let site = self.site;
        let login = format!(
            "for user in ada bob eve; do curl -so /dev/null -c {} -d user=$user@trade {site}/login; done",
            self.cookies("$user")
        );
        let offers = |user: &str, address: &str| {
            let options = format!("-b {} --interface {address} ", self.cookies(user));
            self.status(&options, "/offers")
        };
        step(
            "Segments: one page for all users of a group",
            &[
                ("Three users of the group trade log in", login),
                (
                    "The first page is for ada alone: `detail=awaiting-second-user`",
                    offers("ada", "127.0.0.1"),
                ),
                (
                    "A second user, at another address, is answered the same, which proves it: `fwd=uri-miss`",
                    offers("bob", "127.0.0.2"),
                ),
                ("It is the page of the group now: `hit`", offers("eve", "127.0.0.3")),
            ],
        )
    }

    fn holes(&self) -> TourStep {
        let (site, cookies) = (self.site, self.cookies("ada"));
        let seen = "grep -i -e ^cache-status -e Hello -e 'made for'";
        step(
            "Holes: one page for everyone, filled for each visitor",
            &[
                (
                    "A guest gets `<b id=\"name\">guest</b>` and `made for a guest`",
                    format!("curl -si {site}/greeting | {seen}"),
                ),
                (
                    "The same page from memory, `hit`, for ada: `made for ada`",
                    format!("curl -si -b {cookies} {site}/greeting | {seen}"),
                ),
            ],
        )
    }

    fn failing(&self) -> TourStep {
        let switch = |to: &str| format!("curl -s -d '' {}/tour/{to} | grep h1", self.site);
        let head = |path: &str| {
            format!(
                "curl -so /dev/null -D - {}{path} | grep -i -e ^HTTP -e cache-status",
                self.site
            )
        };
        step(
            "A failing shop: visitors still get stored pages",
            &[
                ("Request a page, so that it is stored: `200`", head("/item/lantern")),
                ("From now on the shop answers 500: `The shop fails now`", switch("fail")),
                (
                    "Purge the page, so that Anteroom has to ask the shop for it: `purged`",
                    self.ask(&format!("purge {}/item/lantern", self.site)),
                ),
                (
                    "The shop cannot make it, so the old page is served: `200` and `detail=stale`",
                    head("/item/lantern"),
                ),
                ("A page that is not stored shows the failure: `500`", head("/item/basket")),
                ("End the failure: `The shop works again`", switch("recover")),
                ("Now that page comes, too: `200`", head("/item/basket")),
            ],
        )
    }

    /// A request of which the head and the time are shown.
    pub(super) fn timed(&self, path: &str) -> String {
        format!("curl -so /dev/null -D - -w '%{{time_total}} s\\n' {}{path}", self.site)
    }

    /// A data command to this demo.
    pub(super) fn ask(&self, command: &str) -> String {
        let socket = quoted(&self.socket.to_string_lossy());
        format!("{} {command} --socket {socket}", quoted(self.program))
    }

    /// A request of which only `Cache-Status` is shown.
    pub(super) fn status(&self, options: &str, path: &str) -> String {
        format!("curl -so /dev/null -D - {options}{}{path} | grep -i cache-status", self.site)
    }

    /// The file with a user's cookies. The user may be a variable of the shell.
    pub(super) fn cookies(&self, user: &str) -> String {
        format!("{}/{user}.cookies", quoted(&self.folder.to_string_lossy()))
    }
}

pub(super) fn step(title: &str, commands: &[(&str, String)]) -> TourStep {
    let commands = commands
        .iter()
        .map(|(note, command)| TourCommand { note: (*note).to_owned(), command: command.clone() });
    TourStep { title: title.to_owned(), commands: commands.collect() }
}

/// The tour as text: notes are comments of a shell, so that a whole step can be pasted.
pub(super) fn text(steps: &[TourStep]) -> String {
    let mut text = String::new();
    for (number, step) in (1..).zip(steps) {
        writeln!(text, "## {number}. {}", step.title).expect("writing to a String cannot fail");
        for TourCommand { note, command } in &step.commands {
            writeln!(text, "# {note}\n{command}").expect("writing to a String cannot fail");
        }
        text.push('\n');
    }
    text
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("/tmp/anteroom-demo/admin.sock"), "/tmp/anteroom-demo/admin.sock");
        assert_eq!(quoted("/tmp/my data/a"), "'/tmp/my data/a'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_folder_with_blanks_is_quoted_in_each_command() {
        let folder = Path::new("/tmp/my data");
        let (site, socket) = ("http://shop.test", folder.join("admin.sock"));
        let tour = Tour { site, program: "anteroom", folder, socket: &socket };
        let text = text(&tour.steps());
        assert!(text.contains("anteroom purge --tag goods --socket '/tmp/my data/admin.sock'\n"));
        assert!(text.contains("-c '/tmp/my data'/ada.cookies "), "{text}");
        assert!(!text.replace("'/tmp/my data", "").contains("my data"), "{text}");
    }

    #[test]
    fn each_step_has_its_number_once() {
        let (folder, socket) = (Path::new("/data"), Path::new("/data/admin.sock"));
        let tour = Tour { site: "http://shop.test", program: "anteroom", folder, socket };
        for steps in [tour.steps(), tour.learn_steps()] {
            // The list on the first page numbers them itself.
            let is_numbered =
                |step: &TourStep| step.title.starts_with(|c: char| c.is_ascii_digit());
            assert!(!steps.iter().any(is_numbered), "{steps:?}");
            let text = text(&steps);
            let titles: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
            for (number, title) in (1..).zip(titles) {
                assert!(title.starts_with(&format!("{number}. ")), "{title}");
            }
        }
    }
}
