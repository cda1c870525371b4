//! The page of commands: what `--help` prints of each. What several commands have in common stands once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::stdout;
use crate::support::fixed_text;

/// The command that prints what `--help` prints.
const OF_CLAP: &str = "help";
/// An option that more commands have than this, in the same words, is a common one.
const FEW: usize = 2;

const HEAD: &str = "# Commands

What `anteroom --help` and `anteroom COMMAND --help` print. Options of several commands, and notes on a command \
                    and those below it, stand once.

## Common options

Every command has `-h, --help`.
";

/// What a command prints of itself, cut where a line begins behind an empty one.
struct Help {
    command: String,
    blocks: Vec<String>,
}

#[test]
fn the_page_of_commands_has_what_help_says() {
    let mut helps = Vec::new();
    add(&mut helps, &[]);
    fixed_text("docs/reference/cli.md", &page(&helps));
}

/// Adds the help of a command, and of the commands below it.
fn add(helps: &mut Vec<Help>, words: &[&str]) {
    let help = stdout(&[words, &["--help"]].concat());
    let command = [&["anteroom"], words].concat().join(" ");
    helps.push(Help { command, blocks: blocks(&help) });
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        // Further lines of a description are indented more.
        let name = line.strip_prefix("  ").and_then(|rest| rest.split(' ').next());
        let name = name.unwrap_or_default();
        if name != OF_CLAP && !name.is_empty() {
            add(helps, &[words, &[name]].concat());
        }
    }
}

fn blocks(help: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for part in help.trim_end().split("\n\n") {
        match blocks.last_mut().filter(|_| part.starts_with(' ')) {
            Some(block) => *block += &format!("\n\n{part}"),
            None => blocks.push(part.to_owned()),
        }
    }
    blocks
}

fn page(helps: &[Help]) -> String {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for option in helps.iter().flat_map(|help| &help.blocks).flat_map(|block| options(block)) {
        *uses.entry(words(&option)).or_default() += 1;
    }
    uses.retain(|_, uses| *uses > FEW);
    let mut page = HEAD.to_owned();
    for option in uses.keys() {
        let words: Vec<&str> = option.split(' ').collect();
        let at = words.iter().position(|word| !word.starts_with(['-', '<'])).unwrap();
        let _ = write!(page, "\n- `{}`: {}", words[..at].join(" "), words[at..].join(" "));
    }
    page.push('\n');
    let mut said = BTreeSet::new();
    for Help { command, blocks } in helps {
        let _ = write!(page, "\n## `{command}`\n\n```text\n");
        let shown: Vec<String> =
            blocks.iter().filter_map(|block| shown(command, block, &uses, &mut said)).collect();
        let _ = write!(page, "{}\n```\n", shown.join("\n\n"));
    }
    page
}

/// What of a block stands under its command; `said`: the notes that stand on the page already.
fn shown<'a>(
    command: &str,
    block: &'a str,
    common: &BTreeMap<String, usize>,
    said: &mut BTreeSet<&'a str>,
) -> Option<String> {
    if block.starts_with("Commands:\n") {
        // Those of the others follow at once.
        return (command == "anteroom").then(|| block.to_owned());
    }
    if !block.starts_with("Options:\n") {
        let is_of_one = block.starts_with("Usage:") || block.starts_with("Arguments:");
        return (is_of_one || said.insert(block)).then(|| block.to_owned());
    }
    let (common, mut own): (Vec<String>, Vec<String>) =
        options(block).into_iter().partition(|option| common.contains_key(&words(option)));
    if !common.is_empty() {
        let names: Vec<&str> = common.iter().filter_map(|option| name(option)).collect();
        own.push(format!("  Common: {}", names.join(", ")));
    }
    (!own.is_empty()).then(|| format!("Options:\n{}", own.join("\n")))
}

/// The options of a block, each with its lines, without those that every command has.
fn options(block: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let lines = block.strip_prefix("Options:\n").unwrap_or_default().lines();
    for line in lines.map(str::trim_end).filter(|line| !line.is_empty()) {
        match options.last_mut().filter(|_| line.starts_with("        ")) {
            Some(option) => *option += &format!("\n{line}"),
            None => options.push(line.to_owned()),
        }
    }
    options.retain(|option| name(option) != Some("--help"));
    options
}

/// The long name of an option.
fn name(option: &str) -> Option<&str> {
    option.split_whitespace().find(|word| word.starts_with("--"))
}

fn words(option: &str) -> String {
    option.split_whitespace().collect::<Vec<_>>().join(" ")
}
