//! Character references in the attributes of a page: those of HTML, where a browser reads the page, and those of XML in
//! ESI tags.

use std::borrow::Cow;

/// The longest reference of XML between its `&` and behind its `;`, in bytes: more digits are only leading zeros.
const XML_MAX: usize = 16;

/// The named references that spell ASCII and could occur in a name or a URL.
const NAMED: [(&str, char); 24] = [
    ("amp", '&'),
    ("AMP", '&'),
    // These are used to write a page within a page.
    ("lt", '<'),
    ("LT", '<'),
    ("gt", '>'),
    ("GT", '>'),
    ("quot", '"'),
    ("QUOT", '"'),
    ("apos", '\''),
    ("lowbar", '_'),
    ("UnderBar", '_'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("sol", '/'),
    ("bsol", '\\'),
    ("plus", '+'),
    ("lpar", '('),
    ("rpar", ')'),
    ("lsqb", '['),
    ("rsqb", ']'),
    ("num", '#'),
    ("percnt", '%'),
    ("colon", ':'),
];

/// Decodes references of HTML that spell ASCII; others stay. The final `;` may be missing, as browsers allow for numeric
/// ones (WHATWG HTML §13.2.5.72).
pub(super) fn of_html(text: &str) -> Cow<'_, str> {
    decoded(text, |reference| numeric(reference).or_else(|| named(reference)))
}

/// Decodes the references of XML: the five predefined ones, and those by number (XML 1.0 §4.1, §4.6).
pub(super) fn of_xml(text: &str) -> Cow<'_, str> {
    decoded(text, |reference| {
        let end = reference.bytes().take(XML_MAX).position(|byte| byte == b';')?;
        let character = match &reference[..end] {
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            "amp" => '&',
            number => numbered(number.strip_prefix('#')?)?,
        };
        Some((character, &reference[end + 1..]))
    })
}

/// The text with each reference replaced that `read` understands: it gets what follows the `&`, and returns the
/// character and the rest.
fn decoded<'t>(text: &'t str, read: impl Fn(&'t str) -> Option<(char, &'t str)>) -> Cow<'t, str> {
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, reference)) = rest.split_once('&') {
        plain.push_str(before);
        rest = match read(reference) {
            Some((character, behind)) => {
                plain.push(character);
                behind
            }
            None => {
                plain.push('&');
                reference
            }
        };
    }
    if plain.is_empty() { Cow::Borrowed(rest) } else { Cow::Owned(plain + rest) }
}

/// Parses `#95;` or `#x5f;`, and returns the rest.
fn numeric(text: &str) -> Option<(char, &str)> {
    let number = text.strip_prefix('#')?;
    let digits = number.strip_prefix(['x', 'X']);
    let radix = if digits.is_some() { 16 } else { 10 };
    let digits = digits.unwrap_or(number);
    let behind = digits.trim_start_matches(|c: char| c.is_digit(radix));
    let character = numbered(&number[..number.len() - behind.len()])?;
    Some((character, behind.strip_prefix(';').unwrap_or(behind)))
}

/// Parses one of [`NAMED`], and returns the rest.
fn named(text: &str) -> Option<(char, &str)> {
    NAMED.iter().find_map(|(name, character)| {
        let behind = text.strip_prefix(name)?;
        // These four may lack their `;`.
        let closed = behind.strip_prefix(';');
        let may_be_open = matches!(character, '&' | '<' | '>' | '"');
        let behind = if may_be_open { Some(closed.unwrap_or(behind)) } else { closed };
        Some((*character, behind?))
    })
}

/// The character with a number such as `39` or `x27`.
fn numbered(number: &str) -> Option<char> {
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    // The library takes a sign, too.
    let is_number = digits.chars().all(|digit| digit.is_digit(radix));
    u32::from_str_radix(digits, radix).ok().filter(|_| is_number).and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_xml_are_decoded_once() {
        for (written, meant) in [
            ("", ""),
            ("/alice&#x27;s%20house", "/alice's%20house"),
            ("/bob&#039;s", "/bob's"),
            ("/p?a=1&#38;b=2&#X26;c=3&amp;d=4", "/p?a=1&b=2&c=3&d=4"),
            ("/&#228;&lt;&gt;&quot;&apos;", "/ä<>\"'"),
            ("/p?a=1&b=2&lt=3&#39", "/p?a=1&b=2&lt=3&#39"),
            ("/&amp;#39;&amp;amp;", "/&#39;&amp;"),
            (
                "/&#+39;&#;&#x;&#xd800;&#1114112;&#0000000000000039;&é;",
                "/&#+39;&#;&#x;&#xd800;&#1114112;&#0000000000000039;&é;",
            ),
        ] {
            assert_eq!(of_xml(written), meant);
        }
    }

    #[test]
    fn references_of_html_may_lack_their_end() {
        for (written, meant) in [
            ("&#95token&#x5F;&#X5ftoken", "_token__token"),
            ("&amp;#39;&ampx&lt&gt;&lowbar;", "&#39;&x<>_"),
            (
                "a & b &unknown; &lowbar &#; &#x; &#xfffffff; &#+39; &",
                "a & b &unknown; &lowbar &#; &#x; &#xfffffff; &#+39; &",
            ),
        ] {
            assert_eq!(of_html(written), meant);
        }
    }
}
