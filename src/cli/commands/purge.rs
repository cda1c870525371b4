//! `anteroom purge`.

use anteroom::admin;
use anteroom_cache::purge_order::{OrderedKind, PurgeOrder};
use anteroom_cache::purger::{PurgeDone, PurgePreview};
use http::Method;

use super::socket;
use crate::cli::args::PurgeArgs;
use crate::cli::output::{counted, failed, note, printable, say, wrong_usage};

/// What is said of a command that names nothing.
const NOTHING_NAMED: &str =
    "nothing to purge: name the URLs of pages, or write --tag, --prefix, --glob or --all";
/// What is said of a purge that found no page.
const NOTHING_MATCHED: &str = "no fresh page in this proxy's memory matched: a page that is stale already does not \
                               count, nor do pages in the memory of other proxies and those that are only in the \
                               store, which are purged, too. A URL needs the host and port that clients ask for";

/// Purges, and prints the result.
pub(crate) fn purge(args: PurgeArgs) -> Result<(), u8> {
    let PurgeArgs { urls, tag, prefix, glob, all, hard, dry_run, json, at } = args;
    if !all && [&urls, &tag, &prefix, &glob].into_iter().all(Vec::is_empty) {
        return Err(wrong_usage(NOTHING_NAMED));
    }
    let has_star = urls.iter().chain(&prefix).any(|url| url.contains('*'));
    let (prefixes, globs, tags) = (prefix, glob, tag);
    let order = PurgeOrder { urls, prefixes, globs, tags, all, hard, dry_run };
    let order = serde_json::to_vec(&order).map_err(failed)?;
    let reply = admin::send_command(&socket(at)?, Method::POST, "/purge", order).map_err(failed)?;
    if json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let (pages, told) = match dry_run {
        true => say_preview(serde_json::from_slice(&reply).map_err(failed)?),
        false => say_done(serde_json::from_slice(&reply).map_err(failed)?),
    };
    if let Some(told) = told {
        note(&told);
    } else if pages == 0 && !all {
        note(match has_star {
            true => "* stands for itself in a URL and in --prefix; --glob purges what matches it",
            false => NOTHING_MATCHED,
        });
    }
    Ok(())
}

/// Prints the result of a purge. Returns how many pages it hit, and a note.
fn say_done(done: PurgeDone) -> (usize, Option<String>) {
    let where_to = match done.confirmed {
        true => "confirmed by every proxy on the store",
        false => {
            "a proxy has not confirmed it; that proxy is cut off from the store, and \
                  follows within a second"
        }
    };
    say(&format!("purged: {} in this proxy's memory; {where_to}", counted(done.pages, "page")));
    (done.pages, done.note)
}

/// Prints what a purge would hit. Returns how many pages it would, and a note.
fn say_preview(preview: PurgePreview) -> (usize, Option<String>) {
    for touched in &preview.touches {
        let kind = match touched.kind {
            OrderedKind::Url => "url",
            OrderedKind::Prefix => "prefix",
            OrderedKind::Glob => "glob",
            OrderedKind::Tag => "tag",
            OrderedKind::All => "all",
        };
        say(&format!("{:>8}  {kind} {}", touched.pages, printable(&touched.name)));
    }
    let in_memory = counted(preview.pages, "page");
    say(&format!(
        "nothing is purged: it would hit {in_memory} in this proxy's memory; other proxies and the store are not \
         counted"
    ));
    (preview.pages, preview.note)
}
