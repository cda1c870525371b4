//! What the store keeps in memory only, as text for the process that takes it over.
//!
//! What is missing is learnt again, but for purges: without these, the pages of the other process would count as newer
//! than they are.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anteroom_http::ident::{hex, unhex};
use bytes::Bytes;

use super::answers::Answers;
use super::purges::{PurgeLog, PurgeReader};
use crate::{HOT_LIST_MAX, OpenError, StorePart};

/// The names of the parts. Each has its first layout.
const PURGES: &str = "purges";
const ANSWERS: &str = "answers";
const HOT_PAGES: &str = "hot";
const LAYOUT: u32 = 1;
/// A part ends with the line that makes it longer than this, in bytes: a line has a few thousand.
const PART_BYTES: usize = 512 << 10;
/// How many bytes of the list of pages are in one line.
const LIST_LINE: usize = 4 << 10;

/// What a store keeps in memory only, as its parts tell it.
#[derive(Debug, Default)]
pub struct StoreMemory {
    purges: PurgeReader,
    answers: Answers,
    hot_pages: Vec<u8>,
}

impl StoreMemory {
    /// Takes in a part. One that this version does not know is passed over.
    pub fn add(&mut self, name: &str, layout: u32, text: &str) {
        if layout != LAYOUT {
            return;
        }
        let now = Instant::now();
        match name {
            PURGES => text.lines().for_each(|line| self.purges.read(line)),
            ANSWERS => text.lines().for_each(|line| self.answers.read(line, now)),
            HOT_PAGES => {
                for bytes in text.lines().filter_map(unhex) {
                    let room = HOT_LIST_MAX.saturating_sub(self.hot_pages.len());
                    self.hot_pages.extend(bytes.into_iter().take(room));
                }
            }
            _ => {}
        }
    }

    /// What a store begins with that takes over the one in `folder`.
    pub(super) fn begin(self, folder: &Path) -> Result<StartingMemory, OpenError> {
        let Self { purges, answers, hot_pages } = self;
        let needs_restart = || OpenError::NeedsRestart(folder.to_owned());
        Ok(StartingMemory {
            purges: purges.log(Instant::now()).ok_or_else(needs_restart)?,
            answers,
            hot_pages: HotList(Mutex::new((!hot_pages.is_empty()).then(|| hot_pages.into()))),
        })
    }
}

/// What a store begins with.
#[derive(Debug)]
pub(super) struct StartingMemory {
    pub(super) purges: PurgeLog,
    pub(super) answers: Answers,
    pub(super) hot_pages: HotList,
}

impl StartingMemory {
    /// That of a store that takes nothing over.
    pub(super) fn new() -> Self {
        let (answers, hot_pages) = (Answers::default(), HotList::default());
        Self { purges: PurgeLog::new(), answers, hot_pages }
    }
}

/// The list of the pages that the process before had in memory.
#[derive(Debug, Default)]
pub(super) struct HotList(Mutex<Option<Bytes>>);

impl HotList {
    /// It is needed once, at the start.
    pub(super) fn take(&self) -> Option<Bytes> {
        // No code that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// All parts of a store's memory, and the list of the pages that the process has in memory.
pub(super) fn parts(
    purges: PurgeLog,
    answers: &Answers,
    hot_pages: Option<Bytes>,
) -> impl Iterator<Item = StorePart> + use<> {
    let answers = answers.lines(Instant::now());
    let hot_pages = hot_pages.unwrap_or_default();
    let lines = hot_pages.len().div_ceil(LIST_LINE);
    let list = (0..lines).map(move |line| {
        let rest = &hot_pages[line * LIST_LINE..];
        hex(&rest[..rest.len().min(LIST_LINE)])
    });
    let purges = Parts { name: PURGES, lines: purges.lines() };
    purges
        .chain(Parts { name: ANSWERS, lines: answers })
        .chain(Parts { name: HOT_PAGES, lines: list })
}

/// Lines, put together as parts.
struct Parts<I> {
    name: &'static str,
    lines: I,
}

impl<I: Iterator<Item = String>> Iterator for Parts<I> {
    type Item = StorePart;

    fn next(&mut self) -> Option<StorePart> {
        let mut text = String::new();
        while text.len() < PART_BYTES
            && let Some(line) = self.lines.next()
        {
            text.push_str(&line);
            text.push('\n');
        }
        (!text.is_empty()).then_some(StorePart { name: self.name, layout: LAYOUT, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PurgePosition;
    use crate::purge::Generation;

    fn all(memory: &[StorePart]) -> StoreMemory {
        let mut read = StoreMemory::default();
        memory.iter().for_each(|part| read.add(part.name, part.layout, &part.text));
        read
    }

    fn begin(parts: &[StorePart]) -> Result<StartingMemory, OpenError> {
        all(parts).begin(Path::new("store"))
    }

    #[test]
    fn parts_are_bounded_and_read_as_they_are_written() {
        let mut purges = PurgeLog::new();
        let known = PurgePosition { at: Generation { era: 1, number: 100 }, nonce: 0 };
        let marks: Vec<u32> = (0..1_000).collect();
        for _ in 0..300 {
            purges.add(known, &marks).unwrap().unwrap();
        }
        let list: Bytes = (0..HOT_LIST_MAX).map(|place| place as u8).collect();
        let expected = purges.since(known);
        let parts: Vec<_> = parts(purges, &Answers::default(), Some(list.clone())).collect();
        assert!(parts.len() > 20, "{}", parts.len());
        assert!(parts.iter().all(|part| part.text.len() < 2 * PART_BYTES));
        let memory = begin(&parts).unwrap();
        assert_eq!(memory.purges.since(known), expected);
        assert_eq!(memory.hot_pages.take(), Some(list));
        assert_eq!(memory.hot_pages.take(), None, "it is needed once");
    }

    #[test]
    fn a_store_is_not_taken_over_without_its_purges() {
        let mut parts: Vec<_> = parts(PurgeLog::new(), &Answers::default(), None).collect();
        assert!(begin(&parts).is_ok());
        assert!(matches!(begin(&[]), Err(OpenError::NeedsRestart(_))));
        parts.push(StorePart { name: "other", layout: LAYOUT, text: "1\n".to_owned() });
        parts.push(StorePart { name: HOT_PAGES, layout: LAYOUT + 1, text: "00\n".to_owned() });
        assert_eq!(begin(&parts).unwrap().hot_pages.take(), None);
        parts[0].layout += 1;
        assert!(matches!(begin(&parts), Err(OpenError::NeedsRestart(_))));
    }
}
