//! The words and signs of a filter, with their places.

use std::ops::Range;

use super::FilterError;

/// A word, a sign, or a parenthesis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Without quotes it may be a keyword or a field.
    Word {
        text: String,
        is_quoted: bool,
    },
    /// A run of the characters of operators.
    Sign(String),
    Open,
    Close,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: Range<usize>,
}

fn is_sign(c: char) -> bool {
    "=!<>~&|".contains(c)
}

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !is_sign(c) && !"()\"'".contains(c)
}

/// Divides a text into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while let Some(c) = text[start..].chars().next() {
        let rest = &text[start..];
        let run = |is_part: fn(char) -> bool| rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (kind, length) = match c {
            '(' => (TokenKind::Open, 1),
            ')' => (TokenKind::Close, 1),
            '"' | '\'' => {
                let (text, length) = quoted(rest, c).ok_or_else(|| FilterError {
                    text: text.to_owned(),
                    at: start..text.len(),
                    why: format!("the quote has no end; close it with {c}"),
                })?;
                (TokenKind::Word { text, is_quoted: true }, length)
            }
            c if c.is_whitespace() => {
                start += c.len_utf8();
                continue;
            }
            c if is_sign(c) => (TokenKind::Sign(rest[..run(is_sign)].to_owned()), run(is_sign)),
            _ => {
                let length = run(is_word);
                (TokenKind::Word { text: rest[..length].to_owned(), is_quoted: false }, length)
            }
        };
        tokens.push(Token { kind, at: start..start + length });
        start += length;
    }
    Ok(tokens)
}

/// The text of a quote at the start of `text`, and the length of the quote. A backslash keeps the next
/// character.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut found = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => found.push(characters.next()?.1),
            c if c == quote => return Some((found, at + 1)),
            c => found.push(c),
        }
    }
    None
}
