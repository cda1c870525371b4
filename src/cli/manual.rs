//! Man pages and shell completions, made of the command line's own definition.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::args::Cli;
use crate::cli::output::{failed, say};

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "anteroom", &mut script);
    say(String::from_utf8_lossy(&script).trim_end());
}

/// Writes a man page for each command into a folder, which is made if it is missing.
pub(crate) fn write_pages(folder: &Path) -> Result<(), u8> {
    let write = || {
        fs::create_dir_all(folder)?;
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        write_with_subcommands(&command, folder)
    };
    write().map_err(|error| failed(format!("{}: {error}", folder.display())))
}

fn write_with_subcommands(command: &Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_with_subcommands(subcommand, folder)?;
    }
    let man = Man::new(command.clone())
        .source(concat!("anteroom ", env!("CARGO_PKG_VERSION")))
        .manual("Anteroom");
    fs::write(folder.join(man.get_filename()), page(&man, command)?)
}

/// `Man::render` runs the lines of the examples together.
fn page(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|subcommand| !subcommand.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    explained(&after).to_writer(&mut page)?;
    Ok(page)
}

/// What follows the options in the help: a paragraph under a heading keeps its lines, others are text.
fn explained(after_help: &str) -> Roff {
    let mut roff = Roff::new();
    let mut is_in_notes = false;
    for paragraph in after_help.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        if let Some((heading, lines)) = paragraph.split_once(":\n") {
            is_in_notes = false;
            roff.control("SH", [heading.to_uppercase().as_str()]).control("nf", []);
            for line in lines.lines() {
                roff.text([roman(line)]);
            }
            roff.control("fi", []);
        } else {
            if std::mem::replace(&mut is_in_notes, true) {
                roff.control("PP", []);
            } else {
                roff.control("SH", ["NOTES"]);
            }
            roff.text([roman(paragraph)]);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("man1");
        write_pages(&pages).unwrap();
        let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
        let main = page("anteroom.1");
        assert!(
            main.contains("anteroom\\-run(1)") && !main.contains("anteroom\\-man(1)"),
            "{main}"
        );
        let check = page("anteroom-check.1");
        assert!(check.contains(".SH EXAMPLES\n.nf\n"), "{check}");
        assert!(check.contains("\n  anteroom check \\-\\-config proxy.toml\n"), "{check}");
        assert!(check.contains(".SH NOTES\nAll problems are printed"), "{check}");
        assert!(page("anteroom-sessions-revoke.1").contains("anteroom sessions revoke"));
        assert!(!pages.join("anteroom-man.1").exists());
    }

    #[test]
    fn paragraphs_without_a_heading_are_notes() {
        let text = explained("Examples:\n  a\n  b\n\nOne.\n\nTwo: three.").to_roff();
        let wanted = ".SH EXAMPLES\n.nf\n  a\n  b\n.fi\n.SH NOTES\nOne.\n.PP\nTwo: three.\n";
        assert!(text.ends_with(wanted), "{text}");
    }
}
