//! What types are called, and what functions take: a type is a thing, and has the name of one.

use super::tokens::{self, Token};

/// What defines a type.
const KEYWORDS: [&str; 5] = ["enum", "struct", "trait", "type", "union"];
/// How most participles end.
const ENDS: [&str; 4] = ["ed", "wn", "ept", "uilt"];
/// The others, and adjectives that are used like them.
const IRREGULAR: [&str; 49] = [
    "absent",
    "begun",
    "bought",
    "bound",
    "broken",
    "brought",
    "caught",
    "chosen",
    "cut",
    "dealt",
    "done",
    "driven",
    "fallen",
    "felt",
    "forgotten",
    "found",
    "frozen",
    "given",
    "gone",
    "gotten",
    "heard",
    "held",
    "hidden",
    "laid",
    "learnt",
    "left",
    "lent",
    "lost",
    "made",
    "meant",
    "met",
    "mistaken",
    "paid",
    "put",
    "said",
    "seen",
    "sent",
    "sold",
    "sought",
    "spent",
    "spoken",
    "stolen",
    "struck",
    "stuck",
    "taken",
    "taught",
    "told",
    "won",
    "written",
];
/// What a participle may begin with.
const PREFIXES: [&str; 2] = ["re", "un"];
/// Nouns that end like participles.
const NOUNS: [&str; 10] = [
    "Breakdown",
    "Concept",
    "Cooldown",
    "Countdown",
    "Feed",
    "Need",
    "Seed",
    "Shutdown",
    "Speed",
    "Teardown",
];

/// The types of a text whose whole name is a participle.
pub(crate) fn participles(text: &str) -> Vec<String> {
    let tokens = tokens::lex(text);
    let names = tokens.windows(2).filter_map(|pair| match pair {
        [Token::Name(keyword), Token::Name(name)] => {
            KEYWORDS.contains(&keyword.as_str()).then_some(name)
        }
        _ => None,
    });
    names.filter(|name| is_participle(name)).cloned().collect()
}

fn is_participle(name: &str) -> bool {
    let begins_as_type = name.starts_with(|c: char| c.is_ascii_uppercase());
    let is_one_word = begins_as_type && name.chars().skip(1).all(|c| c.is_ascii_lowercase());
    if !is_one_word || NOUNS.contains(&name) {
        return false;
    }
    let word = name.to_ascii_lowercase();
    let bare = PREFIXES.iter().find_map(|prefix| word.strip_prefix(prefix)).unwrap_or(&word);
    ENDS.iter().any(|end| word.ends_with(end))
        || [word.as_str(), bare].iter().any(|form| IRREGULAR.contains(form))
}

/// The functions of a text with a parameter `(one, other): (One, Other)`, which hides how many there are. A function
/// that is handed on by its name, as to `map`, has to take the items of another's iterator so.
pub(crate) fn tuple_parameters(text: &str) -> Vec<String> {
    let tokens = tokens::lex(text);
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [Token::Name(keyword), Token::Name(name)] = pair else { continue };
        if keyword == "fn"
            && takes_tuple(signature(&tokens[at + 2..]))
            && !is_handed_on(&tokens, name)
        {
            found.push(name.clone());
        }
    }
    found
}

/// What stands between the name of a function and its body.
fn signature(behind: &[Token]) -> &[Token] {
    let mut depth = 0_usize;
    let is_end = |token: &Token| {
        match token {
            Token::Mark('(' | '[') => depth += 1,
            Token::Mark(')' | ']') => depth = depth.saturating_sub(1),
            Token::Mark('{' | ';') => return depth == 0,
            Token::Mark(_) | Token::Name(_) | Token::Colons => {}
        }
        false
    };
    &behind[..behind.iter().position(is_end).unwrap_or(behind.len())]
}

fn takes_tuple(signature: &[Token]) -> bool {
    let seam = [Token::Mark(')'), Token::Mark(':'), Token::Mark('(')];
    signature.windows(seam.len()).any(|tokens| tokens == seam)
}

/// Whether a function is an argument somewhere.
fn is_handed_on(tokens: &[Token], function: &str) -> bool {
    tokens.windows(3).any(|three| {
        let [before, name, behind] = three else { return false };
        matches!(before, Token::Mark('(' | ',') | Token::Colons)
            && name.is_name(function)
            && matches!(behind, Token::Mark(')' | ','))
    })
}

#[test]
fn a_participle_is_told_from_a_noun() {
    let named = "pub struct Told(u8); enum Noted {} trait Kept {} type Built = u8; struct Unsent;";
    assert_eq!(participles(named), ["Told", "Noted", "Kept", "Built", "Unsent"]);
    let inside = "#[cfg(test)] mod tests { struct Known; }";
    assert_eq!(participles(inside), ["Known"]);
    for noun in ["Token", "Segment", "Event", "Screen", "Client", "Speed", "Result", "KeptRow"] {
        assert!(participles(&format!("struct {noun};")).is_empty(), "{noun}");
    }
    assert!(participles("enum Ending { Told, Kept } fn told() {} // struct Told").is_empty());
}

#[test]
fn a_tuple_that_is_taken_apart_is_told_from_one_that_is_given() {
    let own = "fn f<F: Fn(u8) -> u8>(a: F, (b, c): (u8, [u8; 2])) {} fn g((a, b): (u8, u8)) -> u8;";
    assert_eq!(tuple_parameters(own), ["f", "g"]);
    for other in [
        "fn f(a: (u8, u8), b: HashMap<u8, (u8, u8)>) { let (a, b): (u8, u8) = a; }",
        "fn f((a, b): &Pair) { g(|(a, b): (u8, u8)| a) }",
        "fn f((a, b): (u8, u8)) {} fn g() { all.map(f) }",
        "fn f((a, b): (u8, u8)) {} fn g() { all.fold(0, Self::f) }",
    ] {
        assert!(tuple_parameters(other).is_empty(), "{other}");
    }
}
