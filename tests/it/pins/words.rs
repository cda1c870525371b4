//! What is another one each time, as words that stay.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// The names that a case's values were given, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    names: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
    /// What stands for addresses.
    addresses: Vec<(String, &'static str)>,
}

enum Word {
    /// The same for all.
    Same(&'static str),
    /// Numbered.
    Each(&'static str),
    /// Numbered, where it is as long as a token.
    Token,
    /// A number that goes up by the second: the hundred below it.
    Age,
    /// A number that goes down by the second: the hundred above it.
    Left,
}

/// What is replaced is what is captured. Of two that begin at one place the upper counts.
const KINDS: [(&str, Word); 17] = [
    (r"(\w{3}, \d\d \w{3} 20[2-9]\d \d\d:\d\d:\d\d GMT)", Word::Same("date")),
    (r"traceparent: (00-[0-9a-f]{32}-[0-9a-f]{16}-\d\d)", Word::Same("trace")),
    (r"cdn-loop: anteroom;id=([0-9a-f]{16})", Word::Same("mark")),
    (r"x-anteroom-signature: (.*)", Word::Same("signature")),
    (r"user-agent: (pin/\d+)", Word::Same("agent")),
    (r"^age: (\d+)", Word::Age),
    (r"ttl=(-?\d+)", Word::Left),
    (r"^retry-after: (\d\d+)", Word::Left),
    (r"PUBLISH purge: (\d+)", Word::Same("count")),
    // For how long the store keeps a page, before how many bytes of pages it keeps.
    (r"(\d+) 1073741824 ", Word::Same("ms")),
    (r"\b(\d:\d{5,10})\b", Word::Same("bucket")),
    (r"\b[bn]?(1[6-9]\d{8}(?:\d{3}|\.\d+)?)\b", Word::Same("time")),
    // A random number of 64 bits. One of a billion has fewer digits.
    (r"\b(\d{11,20})\b", Word::Each("number")),
    (r"\b([0-9a-f]{64})\b", Word::Each("sha")),
    (r"\b([0-9a-f]{40})\b", Word::Same("script")),
    (r"\bv?([0-9a-f]{32})\b", Word::Each("hex")),
    (r"([A-Za-z0-9_-]{43,})", Word::Token),
];

/// All of them: the number of a group is that of its kind.
static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let patterns: Vec<&str> = KINDS.iter().map(|(pattern, _)| *pattern).collect();
    Regex::new(&format!("(?i){}", patterns.join("|"))).unwrap()
});

impl Words {
    pub(super) fn new(addresses: &[(String, &'static str)]) -> Self {
        Self { addresses: addresses.to_vec(), ..Self::default() }
    }

    /// A line in which values of a kind are not told apart.
    pub(super) fn blurred(line: &str) -> String {
        static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<(\w+)-\d+>").unwrap());
        NUMBER.replace_all(&Self::default().line(line), "<$1>").into_owned()
    }

    /// What is named so far, to name more and forget it.
    pub(super) fn again(&self) -> Self {
        self.clone()
    }

    /// A line with words in the place of values.
    pub(super) fn line(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for (address, word) in &self.addresses {
            line = line.replace(address, word);
        }
        // Nothing that is replaced is without a digit, but a token by chance.
        if line.len() < 43 && !line.bytes().any(|byte| byte.is_ascii_digit()) {
            return line;
        }
        let (mut told, mut at) = (String::new(), 0);
        for found in PATTERN.captures_iter(&line) {
            let groups = KINDS.iter().enumerate();
            let group =
                groups.filter_map(|(at, (_, word))| Some((found.get(at + 1)?, word))).next();
            let (value, word) = group.expect("each kind captures");
            told += &line[at..value.start()];
            told += &self.word(value.as_str(), word);
            at = value.end();
        }
        told + &line[at..]
    }

    fn word(&mut self, value: &str, word: &Word) -> String {
        match word {
            Word::Same(word) => format!("<{word}>"),
            Word::Token if value.len() == 43 => self.word(value, &Word::Each("token")),
            Word::Token => value.to_owned(),
            Word::Each(word) => {
                let count = self.counts.entry(word).or_default();
                let name = self.names.entry(value.to_owned()).or_insert_with(|| {
                    *count += 1;
                    format!("<{word}-{count}>")
                });
                name.clone()
            }
            Word::Age => {
                let age: i64 = value.parse().unwrap();
                format!("{}+", age.div_euclid(100) * 100)
            }
            Word::Left => {
                let left: i64 = value.parse().unwrap();
                format!("{}-", -(-left).div_euclid(100) * 100)
            }
        }
    }
}
