//! Options before a subcommand, as in `anteroom rows --config proxy.toml list`: they are read behind it, where each
//! command has its own.

use std::ffi::{OsStr, OsString};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, CommandFactory as _, Error};

use super::Cli;

/// The words of a command line, the name of the program first, with the options that stand before a subcommand behind
/// it.
pub(crate) fn options_last(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let cli = Cli::command();
    let mut command = &cli;
    let mut words = words.into_iter();
    let mut commands: Vec<OsString> = words.next().into_iter().collect();
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        if let Some(is_valued) = takes_value(command, &word) {
            options.push(word);
            if is_valued {
                options.extend(words.next());
            }
            continue;
        }
        // The first word that is neither an option nor a subcommand belongs to the last of these.
        let Some(subcommand) = command.find_subcommand(&word) else {
            options.push(word);
            break;
        };
        command = subcommand;
        commands.push(word);
    }
    commands.extend(options);
    commands.extend(words);
    commands
}

/// The error about a command line, with the option that the name of a configuration file needs, where it has none.
pub(crate) fn with_tip(mut error: Error) -> Error {
    let word =
        [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter().find_map(|kind| {
            match error.get(kind) {
                Some(ContextValue::String(word)) => Some(word.clone()),
                _ => None,
            }
        });
    let file = match word.as_deref() {
        Some("-c") => "FILE",
        Some(word) if word.ends_with(".toml") => word,
        _ => return error,
    };
    let tip = StyledStr::from(format!("a configuration file is named by '--config {file}'"));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    error
}

/// Whether the word behind an option is its value; `None`: no command below this one has such an option.
fn takes_value(command: &Command, word: &OsStr) -> Option<bool> {
    let (name, has_value) = match word.to_str()?.split_once('=') {
        Some((name, _)) => (name, true),
        None => (word.to_str()?, false),
    };
    let option = option(command, name)?;
    Some(option.get_action().takes_values() && !has_value && !option.is_require_equals_set())
}

/// The option of this name, of a command or of one below it.
fn option<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let is_meant = |option: &&Arg| {
        let long = option.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
        let short = || option.get_short().is_some_and(|short| name == format!("-{short}"));
        long || short()
    };
    let own = command.get_arguments().find(is_meant);
    own.or_else(|| command.get_subcommands().find_map(|subcommand| option(subcommand, name)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn ordered(line: &str) -> String {
        let words = options_last(line.split(' ').map(OsString::from));
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn a_file_without_an_option_leads_to_config() {
        let said = |words: &[&str]| with_tip(Cli::try_parse_from(words).unwrap_err()).to_string();
        for words in [&["a", "check", "p.toml"][..], &["a", "p.toml"], &["a", "run", "p.toml"]] {
            assert!(said(words).contains("'--config p.toml'"), "{words:?}: {}", said(words));
        }
        assert!(said(&["a", "-c", "p.toml"]).contains("'--config FILE'"));
        assert!(!said(&["a", "check", "--conect"]).contains("'--config"));
    }

    #[test]
    fn options_before_a_subcommand_are_read_behind_it() {
        for (line, expected) in [
            ("a rows --config f schedule x 1 2", "a rows schedule --config f x 1 2"),
            ("a rows --config=f list --json", "a rows list --config=f --json"),
            (
                "a --config f rows --every 5s schedule x 1",
                "a rows schedule --config f --every 5s x 1",
            ),
            ("a --config check check", "a check --config check"),
            ("a top --json -n 5 items", "a top items --json -n 5"),
            ("a --take-over run --config f", "a run --take-over --config f"),
            ("a --listen :80 --origin http://b run", "a run --listen :80 --origin http://b"),
            // Nothing is moved where no subcommand follows.
            ("a", "a"),
            ("a --config f", "a --config f"),
            ("a purge /item --tag rows", "a purge /item --tag rows"),
            ("a sessions list --user list", "a sessions list --user list"),
            ("a rows --unknown f list", "a rows --unknown f list"),
            ("a --help rows", "a --help rows"),
            ("a rows -- list", "a rows -- list"),
        ] {
            assert_eq!(ordered(line), expected, "{line}");
        }
    }

    #[test]
    fn each_command_takes_the_configuration_before_its_subcommand() {
        let mut lines = 0;
        for command in Cli::command().get_subcommands() {
            for subcommand in command.get_subcommands() {
                let (of, name) = (command.get_name(), subcommand.get_name());
                if option(subcommand, "--config").is_some() {
                    let line = format!("a {of} --config f {name}");
                    assert_eq!(ordered(&line), format!("a {of} {name} --config f"));
                    lines += 1;
                }
            }
        }
        assert!(lines > 15, "{lines}");
    }
}
