//! Files of what was seen, and what is another now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// The file of one group on one store.
pub(super) struct Golden {
    path: PathBuf,
    /// What was recorded, by its headline. `None`: it is being rewritten.
    recorded: Option<BTreeMap<String, Vec<String>>>,
    seen: Vec<(String, Vec<String>)>,
    faults: String,
}

impl Golden {
    /// With `ANTEROOM_PINS=record` the file is rewritten.
    pub(super) fn open(group: &str, store: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/it/pins/recorded");
        let path = PathBuf::from(folder).join(format!("{group}.{store}.txt"));
        let is_recorded = std::env::var("ANTEROOM_PINS").is_ok_and(|word| word == "record");
        let text = || {
            fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}; see pins/mod.rs", path.display()))
        };
        let recorded = (!is_recorded).then(|| sections(&text()));
        Self { path, recorded, seen: Vec::new(), faults: String::new() }
    }

    /// Whether it is being rewritten.
    pub(super) fn records(&self) -> bool {
        self.recorded.is_none()
    }

    /// What stands under a headline.
    pub(super) fn expected(&self, headline: &str) -> Option<&[String]> {
        self.recorded.as_ref()?.get(headline).map(Vec::as_slice)
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
            let told = self.seen.iter().fold(String::new(), |told, (headline, lines)| {
                let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
                told + &format!("== {headline}\n{lines}\n")
            });
            return fs::write(&self.path, told).unwrap();
        };
        for headline in recorded.keys() {
            if !self.seen.iter().any(|(seen, _)| seen == headline) {
                self.faults += &format!("\n{headline}: recorded, and not played\n");
            }
        }
        let name = self.path.display();
        assert!(self.faults.is_empty(), "{name}: - recorded, + seen\n{}", self.faults);
    }
}

fn sections(text: &str) -> BTreeMap<String, Vec<String>> {
    let (mut sections, mut lines) = (BTreeMap::new(), &mut Vec::new());
    for line in text.lines() {
        if let Some(headline) = line.strip_prefix("== ") {
            lines = sections.entry(headline.to_owned()).or_default();
        } else if !line.is_empty() {
            lines.push(line.to_owned());
        }
    }
    sections
}

/// The lines of one that the other lacks (`-`), and the other way round (`+`), in order.
pub(super) fn difference(one: &[String], other: &[String]) -> Vec<String> {
    let mut common = vec![vec![0_usize; other.len() + 1]; one.len() + 1];
    for (at, line) in one.iter().enumerate().rev() {
        for (place, seen) in other.iter().enumerate().rev() {
            common[at][place] = match line == seen {
                true => common[at + 1][place + 1] + 1,
                false => common[at + 1][place].max(common[at][place + 1]),
            };
        }
    }
    let (mut at, mut place, mut lines) = (0, 0, Vec::new());
    while at < one.len() || place < other.len() {
        if at < one.len() && place < other.len() && one[at] == other[place] {
            (at, place) = (at + 1, place + 1);
        } else if place == other.len()
            || (at < one.len() && common[at + 1][place] >= common[at][place + 1])
        {
            lines.push(format!("- {}", one[at]));
            at += 1;
        } else {
            lines.push(format!("+ {}", other[place]));
            place += 1;
        }
    }
    lines
}
