//! A Rust text as tokens, less its comments, its attributes, what stands in literals, and what only
//! tests see.

/// What a text consists of, as far as imports can depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Name(String),
    /// `::`
    Colons,
    Mark(char),
}

impl Token {
    pub(crate) fn is_name(&self, name: &str) -> bool {
        matches!(self, Self::Name(own) if own == name)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Colons | Self::Mark(_) => None,
        }
    }
}

/// The tokens of `text`, and the names of the modules in files that only tests see.
pub(crate) fn read(text: &str) -> (Vec<Token>, Vec<String>) {
    without_attributes(&lex(text))
}

/// The tokens of `text` with its attributes, and with what only tests see.
pub(crate) fn lex(text: &str) -> Vec<Token> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(c) = rest.chars().next() {
        if let Some(length) = blank(rest) {
            rest = &rest[length..];
        } else if let Some(length) = literal(rest) {
            tokens.push(Token::Mark('"'));
            rest = &rest[length..];
        } else if is_of_name(c) {
            let length = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..length].to_owned()));
            rest = &rest[length..];
        } else if let Some(behind) = rest.strip_prefix("::") {
            tokens.push(Token::Colons);
            rest = behind;
        } else {
            tokens.push(Token::Mark(c));
            rest = &rest[c.len_utf8()..];
        }
    }
    tokens
}

/// The length of the space, the comment or the lifetime that `text` begins with.
fn blank(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(text.find("*/").map_or(text.len(), |end| end + 2));
    }
    if text.starts_with("r#") && text[2..].starts_with(is_of_name) {
        return Some(2);
    }
    if let Some(behind) = text.strip_prefix('\'')
        && !is_character(behind)
    {
        return Some(1 + behind.find(|c| !is_of_name(c)).unwrap_or(behind.len()));
    }
    let first = text.chars().next()?;
    first.is_whitespace().then_some(first.len_utf8())
}

/// Whether what follows an apostrophe is a character, and no lifetime.
fn is_character(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

/// The length of the literal that `text` begins with.
fn literal(text: &str) -> Option<usize> {
    let quoted = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - quoted.len();
    if let Some(raw) = quoted.strip_prefix('r').filter(|_| prefix <= 1) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(inside) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let length = inside.find(&end).unwrap_or(inside.len());
            return Some(prefix + 2 + hashes + length + end.len());
        }
    }
    let quote = quoted.chars().next().filter(|c| prefix <= 1 && matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (at, c) in quoted.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(prefix + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Leaves out attributes, and with `#[cfg(test)]` what it stands before.
fn without_attributes(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let mut kept = Vec::new();
    let mut of_tests = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(end) = attribute_end(tokens, at) else {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        };
        let is_for_tests = matches!(
            &tokens[at..end],
            [_, _, Token::Name(cfg), _, Token::Name(test), ..] if cfg == "cfg" && test == "test"
        );
        at = end;
        if is_for_tests {
            let end = item_end(tokens, at);
            of_tests.extend(module_in_file(&tokens[at..end]));
            at = end;
        }
    }
    (kept, of_tests)
}

/// Where the attribute ends that begins at `at`, if one does.
fn attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    let bracket = match tokens.get(at..)? {
        [Token::Mark('#'), Token::Mark('['), ..] => at + 1,
        [Token::Mark('#'), Token::Mark('!'), Token::Mark('['), ..] => at + 2,
        _ => return None,
    };
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(bracket) {
        match token {
            Token::Mark('[') => depth += 1,
            Token::Mark(']') if depth == 1 => return Some(at + 1),
            Token::Mark(']') => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where the item ends that begins at `start`: with its semicolon or its braces.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token {
            Token::Mark('{' | '(' | '[') => depth += 1,
            Token::Mark('}') if depth <= 1 => return at + 1,
            Token::Mark('}' | ')' | ']') => depth = depth.saturating_sub(1),
            Token::Mark(';') if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The name in `mod name;`.
fn module_in_file(item: &[Token]) -> Option<String> {
    let [.., Token::Name(keyword), Token::Name(name), Token::Mark(';')] = item else {
        return None;
    };
    (keyword == "mod").then(|| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        read(text).0.iter().filter_map(|token| token.name().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_literals_lifetimes_and_attributes_are_left_out() {
        for text in [
            "a // b\n c",
            "a /* b */ c",
            "a \"b \\\" b\" c",
            "a r#\"b \" b\"# c",
            "a br\"b\" c",
            "a 'b' c",
            "a '\\'' c",
            "a &'b c",
            "#![b] a c",
            "a #[b(b = [b])] c",
        ] {
            assert_eq!(names(text), ["a", "c"], "{text}");
        }
    }

    #[test]
    fn test_only_code_is_left_out() {
        for text in [
            "a #[cfg(test)] mod b { fn b() { b } } c",
            "a #[cfg(test)] pub(crate) use b::{b}; c",
            "a #[cfg(test)] fn b(b: [u8; 3]) { b }\nc",
            "a #[cfg(test)] mod b; c",
        ] {
            assert_eq!(names(text).join("").replace(';', ""), "ac", "{text}");
        }
        assert_eq!(read("#[cfg(test)] mod b; #[cfg(test)] mod d {}").1, ["b"]);
    }
}
