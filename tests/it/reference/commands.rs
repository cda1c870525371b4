//! The commands: `help.txt` records what `--help` prints of each, so that a change of it is reviewed. The page of
//! commands is made of the same texts, and has a line a command.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{escaped, stdout};
use crate::support::fixed_text;

/// The command that prints what `--help` prints.
const OF_CLAP: &str = "help";
/// An option that more commands have than this, in the same words, is a common one.
const FEW: usize = 2;
/// What a sentence about exit codes has.
const EXIT_CODE: &str = "xit code";

const HEAD: &str = "# Commands

Arguments, options and examples are in `anteroom COMMAND --help`, and in the man pages of the packages. A command \
                    below another stands under it: `anteroom rows list`.

";

/// What a command prints of itself.
struct Help {
    /// The words of the command, without `anteroom` before them.
    command: String,
    text: String,
}

impl Help {
    /// The text, cut where a line begins behind an empty one.
    fn blocks(&self) -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        for part in self.text.trim_end().split("\n\n") {
            match blocks.last_mut().filter(|_| part.starts_with(' ')) {
                Some(block) => *block += &format!("\n\n{part}"),
                None => blocks.push(part.to_owned()),
            }
        }
        blocks
    }
}

#[test]
fn the_page_of_commands_has_what_help_says() {
    let mut helps = Vec::new();
    add(&mut helps, &[]);
    fixed_text("tests/it/reference/help.txt", &recording(&helps));
    fixed_text("docs/reference/cli.md", &page(&helps));
}

/// Adds the help of a command, and of the commands below it.
fn add(helps: &mut Vec<Help>, words: &[&str]) {
    let help = stdout(&[words, &["--help"]].concat());
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    helps.push(Help { command: words.join(" "), text: lines.join("\n") });
    let listed = lines.iter().skip_while(|line| **line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        // Further lines of a description are indented more.
        let name = line.strip_prefix("  ").and_then(|rest| rest.split(' ').next());
        let name = name.unwrap_or_default();
        if name != OF_CLAP && !name.is_empty() {
            add(helps, &[words, &[name]].concat());
        }
    }
}

fn recording(helps: &[Help]) -> String {
    let mut recording = String::new();
    for Help { command, text } in helps {
        let words = [command.as_str(), "--help"].join(" ");
        let _ = writeln!(recording, "$ anteroom {}\n{}\n", words.trim_start(), text.trim_end());
    }
    recording
}

fn page(helps: &[Help]) -> String {
    let mut page = HEAD.to_owned();
    for help in helps.iter().skip(1) {
        let (above, name) = help.command.rsplit_once(' ').unwrap_or(("", help.command.as_str()));
        let indent = if above.is_empty() { "" } else { "  " };
        let about = escaped(&words(&help.blocks()[0]));
        let _ = writeln!(page, "{indent}- `{name}`: {about}");
    }
    page += "\n## Common options\n\nEvery command has `-h, --help`. Several have:\n\n";
    for option in common(helps) {
        let words: Vec<&str> = option.split(' ').collect();
        let at = words.iter().position(|word| !word.starts_with(['-', '<'])).unwrap();
        let _ = writeln!(page, "- `{}`: {}", words[..at].join(" "), words[at..].join(" "));
    }
    page += "\n## Exit codes\n\n";
    let mut said = BTreeSet::new();
    for help in helps {
        let mut codes: Vec<String> = help.blocks().iter().flat_map(|one| exit_codes(one)).collect();
        // The notes of a command stand in the help of those below it, too.
        codes.retain(|code| said.insert(code.clone()));
        if !codes.is_empty() {
            let command =
                Some(help.command.as_str()).filter(|it| !it.is_empty()).unwrap_or("anteroom");
            let _ = writeln!(page, "- `{command}`: {}", escaped(&codes.join(". ")));
        }
    }
    page
}

/// The options that several commands have, each in one line.
fn common(helps: &[Help]) -> Vec<String> {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for option in helps.iter().flat_map(Help::blocks).flat_map(|block| options(&block)) {
        *uses.entry(option).or_default() += 1;
    }
    uses.into_iter().filter(|(_, uses)| *uses > FEW).map(|(option, _)| option).collect()
}

/// The options of a block, each in one line, without those that every command has.
fn options(block: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let lines = block.strip_prefix("Options:\n").unwrap_or_default().lines();
    for line in lines.filter(|line| !line.is_empty()) {
        match options.last_mut().filter(|_| line.starts_with("        ")) {
            Some(option) => *option += &format!("\n{line}"),
            None => options.push(line.to_owned()),
        }
    }
    options.retain(|option| !option.split_whitespace().any(|word| word == "--help"));
    options.iter().map(|option| words(option)).collect()
}

/// The sentences of a block that tell an exit code.
fn exit_codes(block: &str) -> Vec<String> {
    let text = words(block);
    let sentences = text.trim_end_matches('.').split(". ");
    let told = sentences.filter(|sentence| sentence.contains(EXIT_CODE));
    told.map(|sentence| sentence.strip_prefix("Exit codes: ").unwrap_or(sentence).to_owned())
        .collect()
}

/// A text in one line.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
