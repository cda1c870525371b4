//! Files of what was seen, and what is another now.
//!
//! A group has one file of each store. That of the embedded store has every line; that of Redis has the lines that
//! are others there, so that what both have in common stands once. What follows from other lines is in shorthand.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::shorthand::{long, short};

/// The store whose file has every line.
const WHOLE: &str = "embedded";
/// The store whose file has its differences from the other one.
const DIFFERENT: &str = "redis";
/// Stands in a file of differences under what the other store alone has played.
const NOT_PLAYED: &str = "not played";

/// A headline, and what stands under it.
type Section = (String, Vec<String>);

/// What was recorded of one group on one store.
pub(super) struct Recording {
    files: Files,
    is_whole: bool,
    /// `None`: it is being rewritten.
    recorded: Option<Vec<Section>>,
    seen: Vec<Section>,
    faults: String,
}

impl Recording {
    /// With `ANTEROOM_PINS=record` the file is rewritten.
    pub(super) fn open(group: &str, store: &str) -> Self {
        let (files, is_whole) = (Files::of(group), store == WHOLE);
        let is_recorded = std::env::var("ANTEROOM_PINS").is_ok_and(|word| word == "record");
        let recorded = (!is_recorded).then(|| {
            let whole = files.all_sections();
            if is_whole { whole } else { with(&whole, &sections(&text_of(&files.different))) }
        });
        Self { files, is_whole, recorded, seen: Vec::new(), faults: String::new() }
    }

    /// Whether it is being rewritten.
    pub(super) fn records(&self) -> bool {
        self.recorded.is_none()
    }

    /// What stands under a headline.
    pub(super) fn expected(&self, headline: &str) -> Option<&[String]> {
        find(self.recorded.as_ref()?, headline)
    }

    /// What was seen.
    pub(super) fn add(&mut self, headline: String, lines: Vec<String>) {
        if !self.records() {
            match self.expected(&headline) {
                None => self.faults += &format!("\n{headline}: not in the file\n"),
                Some(expected) if expected != lines => {
                    let faults = difference(expected, &lines);
                    let _ = write!(self.faults, "\n{headline}\n{}\n", faults.join("\n"));
                }
                Some(_) => {}
            }
        }
        self.seen.push((headline, lines));
    }

    /// Writes the file, or panics with all that is not as recorded.
    pub(super) fn close(mut self) {
        let Some(recorded) = &self.recorded else {
            return self.files.record(&self.seen, self.is_whole);
        };
        for (headline, _) in recorded {
            if find(&self.seen, headline).is_none() {
                self.faults += &format!("\n{headline}: recorded, and not played\n");
            }
        }
        let file = if self.is_whole { &self.files.whole } else { &self.files.different };
        let name = file.display();
        assert!(self.faults.is_empty(), "{name}: - recorded, + seen\n{}", self.faults);
    }
}

/// The two files of a group.
struct Files {
    whole: PathBuf,
    different: PathBuf,
}

impl Files {
    fn folder() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/it/pins/recorded"))
    }

    fn of(group: &str) -> Self {
        let file = |store: &str| Self::folder().join(format!("{group}.{store}.txt"));
        Self { whole: file(WHOLE), different: file(DIFFERENT) }
    }

    /// The sections of the file that has every line, out of its shorthand.
    fn all_sections(&self) -> Vec<Section> {
        let sections = sections(&text_of(&self.whole)).into_iter();
        sections.map(|(headline, lines)| (headline, long(&lines))).collect()
    }

    /// Writes what was seen on one store. What is recorded of the other one stays.
    fn record(&self, seen: &[Section], is_whole: bool) {
        // Both stores may be recorded at once, each by a process of its own.
        let lock = fs::File::options().append(true).create(true).open(&self.whole).unwrap();
        lock.lock().unwrap();
        let whole = self.all_sections();
        if !is_whole {
            return fs::write(&self.different, text(&differences(&whole, seen))).unwrap();
        }
        let of_other = fs::read_to_string(&self.different).unwrap_or_default();
        let other = with(&whole, &sections(&of_other));
        fs::write(&self.whole, short_text(seen)).unwrap();
        fs::write(&self.different, text(&differences(seen, &other))).unwrap();
    }
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}; see pins/mod.rs", path.display()))
}

fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines() {
        if let Some(headline) = line.strip_prefix("== ") {
            sections.push((headline.to_owned(), Vec::new()));
        } else if let Some((_, lines)) = sections.last_mut().filter(|_| !line.is_empty()) {
            lines.push(line.to_owned());
        }
    }
    sections
}

fn text(sections: &[Section]) -> String {
    sections.iter().fold(String::new(), |text, (headline, lines)| {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        text + &format!("== {headline}\n{lines}\n")
    })
}

fn short_text(sections: &[Section]) -> String {
    let short = sections.iter().map(|(headline, lines)| (headline.clone(), short(lines)));
    text(&short.collect::<Vec<_>>())
}

fn find<'a>(sections: &'a [Section], headline: &str) -> Option<&'a [String]> {
    sections.iter().find(|(one, _)| one == headline).map(|(_, lines)| lines.as_slice())
}

/// How the sections of one store differ from those of the other: under each headline its changes. What is the same
/// is left out.
fn differences(whole: &[Section], other: &[Section]) -> Vec<Section> {
    let of_common = whole.iter().filter_map(|(headline, lines)| {
        let changes = match find(other, headline) {
            None => vec![NOT_PLAYED.to_owned()],
            Some(own) if own != lines.as_slice() => changes(lines, own),
            Some(_) => return None,
        };
        Some((headline.clone(), changes))
    });
    let of_own = other.iter().filter(|(headline, _)| find(whole, headline).is_none());
    of_common
        .chain(of_own.map(|(headline, lines)| (headline.clone(), changes(&[], lines))))
        .collect()
}

/// The sections of the other store, from those of the first and the differences.
fn with(whole: &[Section], differences: &[Section]) -> Vec<Section> {
    let of_common = whole.iter().filter_map(|(headline, lines)| {
        let lines = match find(differences, headline) {
            None => lines.clone(),
            Some([only]) if only == NOT_PLAYED => return None,
            Some(changes) => changed(lines, changes),
        };
        Some((headline.clone(), lines))
    });
    let of_own = differences.iter().filter(|(headline, _)| find(whole, headline).is_none());
    of_common
        .chain(of_own.map(|(headline, changes)| (headline.clone(), changed(&[], changes))))
        .collect()
}

/// What has to be changed: behind `@ 7`, which stands for the first seven lines, lines that go (`-`) and come (`+`).
fn changes(lines: &[String], other: &[String]) -> Vec<String> {
    let (mut changes, mut next) = (Vec::new(), None);
    for (at, change) in edits(lines, other) {
        if next != Some(at) {
            changes.push(format!("@ {at}"));
        }
        next = Some(at + usize::from(change.starts_with("- ")));
        changes.push(change);
    }
    changes
}

fn changed(lines: &[String], changes: &[String]) -> Vec<String> {
    let (mut changed, mut at) = (Vec::new(), 0_usize);
    for change in changes {
        if let Some(place) = change.strip_prefix("@ ") {
            let place: usize = place.parse().unwrap();
            changed.extend_from_slice(&lines[at..place]);
            at = place;
        } else if let Some(line) = change.strip_prefix("+ ") {
            changed.push(line.to_owned());
        } else {
            assert_eq!(change.strip_prefix("- "), lines.get(at).map(String::as_str));
            at += 1;
        }
    }
    changed.extend_from_slice(&lines[at..]);
    changed
}

/// The lines of one that the other lacks (`-`), and the other way round (`+`), in order.
pub(super) fn difference(one: &[String], other: &[String]) -> Vec<String> {
    edits(one, other).into_iter().map(|(_, line)| line).collect()
}

/// The same, each with the number of lines of `one` that stand before it.
fn edits(one: &[String], other: &[String]) -> Vec<(usize, String)> {
    let mut common = vec![vec![0_usize; other.len() + 1]; one.len() + 1];
    for (at, line) in one.iter().enumerate().rev() {
        for (place, seen) in other.iter().enumerate().rev() {
            common[at][place] = match line == seen {
                true => common[at + 1][place + 1] + 1,
                false => common[at + 1][place].max(common[at][place + 1]),
            };
        }
    }
    let (mut at, mut place, mut edits) = (0, 0, Vec::new());
    while at < one.len() || place < other.len() {
        if at < one.len() && place < other.len() && one[at] == other[place] {
            (at, place) = (at + 1, place + 1);
        } else if place == other.len()
            || (at < one.len() && common[at + 1][place] >= common[at][place + 1])
        {
            edits.push((at, format!("- {}", one[at])));
            at += 1;
        } else {
            edits.push((at, format!("+ {}", other[place])));
            place += 1;
        }
    }
    edits
}

#[test]
fn differences_give_the_other_text_back() {
    let whole = sections("== one\na\nb\nc\n\n== two\na\n\n== gone\na\n");
    let other = sections("== one\nb\nx\nc\ny\n\n== two\na\n\n== own\n@ 1\n");
    let between = differences(&whole, &other);
    let expected =
        "== one\n@ 0\n- a\n@ 2\n+ x\n@ 3\n+ y\n\n== gone\nnot played\n\n== own\n@ 0\n+ @ 1\n\n";
    assert_eq!(text(&between), expected);
    assert_eq!(with(&whole, &between), other);
}

#[test]
fn files_are_as_short_as_they_can_be() {
    let mut groups = 0;
    for entry in fs::read_dir(Files::folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some((group, _)) = name.split_once(&format!(".{DIFFERENT}.")) else { continue };
        let files = Files::of(group);
        let (whole, different) = (files.all_sections(), text_of(&files.different));
        let other = with(&whole, &sections(&different));
        assert_eq!(text(&differences(&whole, &other)), different, "{name}");
        assert_eq!(short_text(&whole), text_of(&files.whole), "{group}");
        groups += 1;
    }
    assert!(groups > 0);
}
