//! Prints an explanation for people: headings, with short sentences after them.

use std::fmt::{self, Display, Formatter, Write as _};

use super::explanation::{Explanation, Fill, Key, Outcome, Page, Route, Silent, Tier, Visitor};

/// The indentation of the sentences after their headings.
const INDENT: usize = 10;

/// Lines with their headings. Consecutive lines with one heading print it once.
type Lines = Vec<(&'static str, String)>;

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", Shown(&self.method), Shown(&self.url))?;
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        writeln!(f, "{}{reason}: {}", verb(self.outcome), Shown(&self.why))?;
        if let Some(status) = &self.cache_status {
            writeln!(f, "Cache-Status: {}", Shown(status))?;
        }
        let mut before = "";
        for (heading, line) in self.lines() {
            let blank = if before.is_empty() { "\n" } else { "" };
            let shown = if heading == before { "" } else { heading };
            writeln!(f, "{blank}{shown:<INDENT$}{}", Shown(&line))?;
            before = heading;
        }
        Ok(())
    }
}

impl Explanation {
    fn lines(&self) -> Lines {
        let mut lines = Lines::new();
        lines.extend(self.notes.iter().map(|note| ("Note", note.clone())));
        lines.extend(self.route.iter().map(|told| ("Route", route(told))));
        lines.extend(self.visitor.iter().map(|told| ("Visitor", visitor(told))));
        if !self.cookies.is_empty() {
            let told = self.cookies.iter().map(|told| format!("{} is {}", told.name, told.class));
            lines.push(("Cookies", told.collect::<Vec<_>>().join(", ")));
        }
        lines.extend(self.key.iter().flat_map(key).map(|line| ("Key", line)));
        lines.extend(self.fill.iter().flat_map(fill).map(|line| ("Fill", line)));
        lines.extend(self.memory.iter().map(|told| ("Memory", tier(told))));
        lines.extend(self.store.iter().map(|told| ("Store", tier(told))));
        lines.extend(self.uncacheable.iter().map(|told| {
            let text = format!(
                "uncacheable for {} s more, for the last response ({}): {}",
                told.seconds, told.reason, told.why
            );
            ("Learnt", text)
        }));
        lines.extend(self.leak.iter().map(|told| {
            let text = format!("not shared {} s ago ({}): {}", told.seconds, told.reason, told.why);
            ("Learnt", text)
        }));
        lines.extend(self.page.iter().flat_map(page).map(|line| ("Page", line)));
        lines.extend(self.silent.iter().map(|told| ("Then", silent(told))));
        lines
            .extend(self.hints.iter().map(|hint| ("Hint", format!("{}: {}", hint.key, hint.text))));
        lines
    }
}

fn verb(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Hit => "Answered from the cache",
        Outcome::Stale => "Answered from the cache, stale",
        Outcome::Fetch => "Fetched for the cache",
        Outcome::Forward => "Forwarded",
        Outcome::Row => "Answered with a row",
        Outcome::Own => "Answered by Anteroom",
        Outcome::Refuse => "Refused",
    }
}

fn route(told: &Route) -> String {
    let mut line = told.name.clone();
    line += match told.share.as_str() {
        "anonymous" => ", shared among visitors without a login",
        "everyone" => ", shared by everyone",
        "segment" => ", shared among visitors of one segment",
        "user" => ", kept for one user each",
        _ => ", shared by nobody",
    };
    add(&mut line, "; origin ", told.origin.as_deref().unwrap_or_default());
    add(&mut line, "; item ", told.item.as_deref().unwrap_or_default());
    add(&mut line, "; with ", &told.settings.join(", "));
    line
}

fn visitor(told: &Visitor) -> String {
    let mut line = told.class.clone();
    add(&mut line, " as ", told.user.as_deref().unwrap_or_default());
    add(&mut line, ": ", &told.why);
    line
}

fn key(told: &Key) -> Vec<String> {
    let mut made = format!("of {}, {}, {}, {}", told.class, told.scheme, told.site, told.path);
    add(&mut made, "?", &told.query);
    add(&mut made, "; cookies ", &told.cookies.join(", "));
    add(&mut made, "; fields ", &told.fields.join(", "));
    let mut lines = vec![told.key.clone(), made];
    if !told.ignored.is_empty() {
        lines.push(format!("without {} ([cache] ignore_query)", told.ignored.join(", ")));
    }
    lines
}

fn fill(told: &Fill) -> Vec<String> {
    let mut sent = format!("GET {}", told.target);
    add(&mut sent, " with ", &told.fields.join(", "));
    sent += " and Anteroom's own fields";
    let mut lines = vec![sent];
    let mut lost = told.lost_fields.join(", ");
    if !told.lost_cookies.is_empty() {
        lost = format!("{lost} (of it {})", told.lost_cookies.join(", "));
    }
    if !lost.is_empty() {
        lines.push(format!("without {lost}"));
    }
    if told.own_address {
        lines.push("by Anteroom's address instead of the visitor's".to_owned());
    }
    if told.validates {
        lines.push("asks whether the page that is held is right still".to_owned());
    }
    lines.push(
        match (told.spares, told.own_address) {
            (true, false) => {
                "where it may not be shared, the answer is this visitor's all the same"
            }
            (true, true) => {
                "where it may not be shared, the answer is this visitor's all the same, unless it \
                 sets a cookie or refuses him"
            }
            (false, _) => {
                "where it may not be shared, this visitor's request is forwarded as it came"
            }
        }
        .to_owned(),
    );
    lines
}

fn tier(told: &Tier) -> String {
    if let Some(error) = &told.error {
        return format!("cannot be told: {error}");
    }
    let page = match (told.page.as_deref(), told.ttl) {
        (None, _) => None,
        (Some("fresh"), Some(ttl)) => Some(format!("a page, fresh for {ttl} s more")),
        (Some("stale"), Some(ttl @ ..=0)) => Some(format!("a page, stale for {} s", -ttl)),
        (Some(standing), _) => Some(format!("a page, {standing}")),
    };
    match (&told.variants, page) {
        (None, page) => page.unwrap_or_else(|| "nothing".to_owned()),
        (Some(variants), page) => format!(
            "{} by {}; for this request {}",
            plural(variants.count, "variant"),
            variants.fields.join(", "),
            page.as_deref().unwrap_or("none"),
        ),
    }
}

fn page(told: &Page) -> Vec<String> {
    let mut what = told.status.to_string();
    add(&mut what, " ", told.kind.as_deref().unwrap_or_default());
    add(&mut what, ", in ", told.coding.as_deref().unwrap_or_default());
    add(&mut what, ", ", &plural(told.bytes, "byte"));
    add(&mut what, "; sent in ", told.recoded.as_deref().unwrap_or_default());
    let left = match told.ttl {
        ttl @ 1.. => format!("{ttl} s are left"),
        ttl => format!("stale for {} s", -ttl),
    };
    let mut lines = vec![
        what,
        format!("lifetime {} s ({}), age {} s: {left}", told.lifetime, told.source, told.age),
        format!(
            "served stale for {} s while it is fetched anew, for {} s while the app fails",
            told.stale_while_revalidate, told.stale_if_error
        ),
    ];
    match told.purged.as_str() {
        "soft" => lines.push("purged: stale since then".to_owned()),
        "hard" => lines.push("purged: not shown again".to_owned()),
        _ => {}
    }
    if !told.validators.is_empty() {
        lines.push(format!(
            "the app can be asked whether it is right still, by {}",
            told.validators.join(", ")
        ));
    }
    if !told.vary.is_empty() {
        lines.push(format!("depends on {}", told.vary.join(", ")));
    }
    if told.static_proof {
        lines.push("static by proof: visitors with a login may have it, too".to_owned());
    }
    lines.extend(told.refused.iter().map(|reason| format!("not for this request: {reason}")));
    lines
}

fn silent(told: &Silent) -> String {
    let page = "an html page of which the app says nothing";
    match &told.reason {
        None => format!("{page} would be fresh for {} s ({})", told.lifetime, told.source),
        Some(reason) => format!("{page} would not be kept: {reason}"),
    }
}

/// Appends `before` and `word`, unless `word` is empty.
fn add(line: &mut String, before: &str, word: &str) {
    if !word.is_empty() {
        line.push_str(before);
        line.push_str(word);
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Text of foreign origin. Control characters are escaped, so that it cannot control the terminal.
struct Shown<'t>(&'t str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::explain::explanation::{Cookie, Hint, Uncacheable, Variants};

    fn bare() -> Explanation {
        Explanation {
            method: "GET".to_owned(),
            url: "http://shop.test/".to_owned(),
            outcome: Outcome::Forward,
            reason: Some("set-cookie".to_owned()),
            why: "the response sets a cookie".to_owned(),
            cache_status: None,
            notes: Vec::new(),
            route: None,
            visitor: None,
            cookies: Vec::new(),
            key: None,
            fill: None,
            memory: None,
            store: None,
            uncacheable: None,
            leak: None,
            page: None,
            silent: None,
            hints: Vec::new(),
        }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_is_not_known_takes_no_line() {
        let expected =
            "GET http://shop.test/\nForwarded (set-cookie): the response sets a cookie\n";
        assert_eq!(bare().to_string(), expected);
    }

    #[test]
    fn sentences_stand_behind_their_headings() {
        let cookie = |name: &str, class: &str| Cookie { name: name.into(), class: class.into() };
        let hint = |key: &str, text: &str| Hint { key: key.into(), text: text.into() };
        let told = Explanation {
            cache_status: Some("anteroom; fwd=bypass; detail=set-cookie".to_owned()),
            cookies: vec![cookie("_ga", "harmless"), cookie("lang", "keyed")],
            uncacheable: Some(Uncacheable {
                reason: "set-cookie".to_owned(),
                why: "the response sets a cookie".to_owned(),
                seconds: 93,
            }),
            hints: vec![hint("[a] b", "one"), hint("[a] c", "two")],
            ..bare()
        };
        let expected = "\
GET http://shop.test/
Forwarded (set-cookie): the response sets a cookie
Cache-Status: anteroom; fwd=bypass; detail=set-cookie

Cookies   _ga is harmless, lang is keyed
Learnt    uncacheable for 93 s more, for the last response (set-cookie): the response sets a cookie
Hint      [a] b: one
          [a] c: two
";
        assert_eq!(told.to_string(), expected);
    }

    #[test]
    fn a_page_is_told_with_its_times() {
        let told = Page {
            status: 200,
            kind: Some("text/html".to_owned()),
            coding: None,
            recoded: Some("zstd".to_owned()),
            bytes: 1,
            standing: "stale".to_owned(),
            purged: "soft".to_owned(),
            lifetime: 60,
            source: "Cache-Control: max-age".to_owned(),
            age: 100,
            ttl: -40,
            stale_while_revalidate: 0,
            stale_if_error: 3600,
            validators: words(&["etag"]),
            vary: words(&["accept-language", "origin"]),
            static_proof: true,
            refused: Some("vary".to_owned()),
        };
        let expected = [
            "200 text/html, 1 byte; sent in zstd",
            "lifetime 60 s (Cache-Control: max-age), age 100 s: stale for 40 s",
            "served stale for 0 s while it is fetched anew, for 3600 s while the app fails",
            "purged: stale since then",
            "the app can be asked whether it is right still, by etag",
            "depends on accept-language, origin",
            "static by proof: visitors with a login may have it, too",
            "not for this request: vary",
        ];
        assert_eq!(page(&told), expected);
    }

    #[test]
    fn a_tier_says_what_it_has() {
        let nothing = Tier { error: None, variants: None, page: None, ttl: None };
        let held = |page: &str, ttl| Tier {
            page: Some(page.to_owned()),
            ttl: Some(ttl),
            ..nothing.clone()
        };
        let several = |count| Variants { fields: words(&["accept"]), count };
        for (told, expected) in [
            (nothing.clone(), "nothing"),
            (held("fresh", 5), "a page, fresh for 5 s more"),
            (held("stale", -5), "a page, stale for 5 s"),
            (held("stale", 5), "a page, stale"),
            (held("purged", 5), "a page, purged"),
            (Tier { error: Some("away".to_owned()), ..nothing.clone() }, "cannot be told: away"),
            (
                Tier { variants: Some(several(1)), ..nothing.clone() },
                "1 variant by accept; for this request none",
            ),
            (
                Tier { variants: Some(several(2)), ..held("fresh", 5) },
                "2 variants by accept; for this request a page, fresh for 5 s more",
            ),
        ] {
            assert_eq!(tier(&told), expected);
        }
    }

    #[test]
    fn others_text_does_not_speak_to_the_terminal() {
        let told = Explanation { url: "http://a/\u{1b}[2J\u{9b}1m".to_owned(), ..bare() };
        let text = told.to_string();
        assert!(text.contains("\\u{1b}[2J\\u{9b}1m"), "{text}");
    }
}
