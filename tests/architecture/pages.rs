//! The pages of the documentation: their links and their sizes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The pages of a checkout, by their path from its top.
pub(crate) struct Pages {
    root: PathBuf,
    texts: BTreeMap<PathBuf, String>,
}

impl Pages {
    /// README, the other pages at the top, the one of the tests, and all below `docs`.
    pub(crate) fn read(root: &Path) -> Self {
        let mut pages = Self { root: root.to_owned(), texts: BTreeMap::new() };
        pages.add(Path::new(""), false);
        pages.add(Path::new("tests"), false);
        pages.add(Path::new("docs"), true);
        pages
    }

    fn add(&mut self, folder: &Path, is_deep: bool) {
        for entry in fs::read_dir(self.root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if path.extension().is_some_and(|end| end == "md") {
                let text = fs::read_to_string(entry.path()).unwrap();
                self.texts.insert(path, text);
            } else if is_deep && entry.file_type().unwrap().is_dir() {
                self.add(&path, true);
            }
        }
    }

    /// Each page, and its text.
    pub(crate) fn texts(&self) -> &BTreeMap<PathBuf, String> {
        &self.texts
    }

    /// How many bytes a page has.
    pub(crate) fn size(&self, page: &str) -> usize {
        self.texts[Path::new(page)].len()
    }

    /// The pages that `docs/SUMMARY.md` lacks.
    pub(crate) fn missing_in_summary(&self) -> Vec<String> {
        let summary = Path::new("docs/SUMMARY.md");
        let listed: Vec<PathBuf> = links(&self.texts[summary])
            .into_iter()
            .map(|(_, target)| resolved(summary, &target))
            .collect();
        let is_missing = |page: &&PathBuf| {
            page.starts_with("docs") && *page != summary && !listed.contains(page)
        };
        self.texts.keys().filter(is_missing).map(|page| page.display().to_string()).collect()
    }

    /// Each relative link that leads nowhere, with its page and line.
    pub(crate) fn broken_links(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (page, text) in &self.texts {
            for (line, target) in links(text) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                if let Some(why) = self.broken(page, &target) {
                    broken.push(format!("{}:{line}: {target}: {why}", page.display()));
                }
            }
        }
        broken
    }

    /// Each line that calls curl with a HEAD request, with its page.
    pub(crate) fn requests_with_head(&self) -> Vec<String> {
        let lines = self.texts.iter().flat_map(|(page, text)| {
            requests_with_head(text).map(move |line| format!("{}: {line}", page.display()))
        });
        lines.collect()
    }

    fn broken(&self, page: &Path, target: &str) -> Option<&'static str> {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { page.to_owned() } else { resolved(page, file) };
        if !self.root.join(&path).exists() {
            return Some("no such file");
        }
        let text = self.texts.get(&path).filter(|_| !anchor.is_empty())?;
        (!anchors(text).contains(&anchor.to_owned())).then_some("no such heading")
    }
}

/// The lines that call curl with `-I`, by itself or among other short options, or with `--head`.
pub(crate) fn requests_with_head(text: &str) -> impl Iterator<Item = &str> {
    let is_head = |word: &str| {
        let short = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        word == "--head" || short.is_some_and(|rest| rest.ends_with('I'))
    };
    text.lines().filter(move |line| {
        let call = line.split_once("curl ").map_or("", |(_, options)| options);
        call.split(|c: char| c.is_whitespace() || "`<|".contains(c)).any(is_head)
    })
}

/// The path of a link's target from the top.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap().to_owned();
    for part in Path::new(target.split('#').next().unwrap()).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{target} leads out of the checkout"),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// The lines of a page outside its blocks of code, numbered from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((at + 1, line))
    })
}

/// The targets of a page's links, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for rest in line.split("](").skip(1) {
            let end = rest.find(')').unwrap_or(rest.len());
            found.push((number, rest[..end].to_owned()));
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept =
                title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let times = seen.entry(anchor.clone()).or_default();
            *times += 1;
            if *times == 1 { anchor } else { format!("{anchor}-{}", *times - 1) }
        })
        .collect()
}

#[test]
fn anchors_are_made_of_headings() {
    let text = "# A page\n## `[cache] ttl`, and more\n```\n# no heading\n```\n## A page\n";
    assert_eq!(anchors(text), ["a-page", "cache-ttl-and-more", "a-page-1"]);
    assert_eq!(
        links("see [a](b.md#c) and [d](e)"),
        [(1, "b.md#c".to_owned()), (1, "e".to_owned())]
    );
}
