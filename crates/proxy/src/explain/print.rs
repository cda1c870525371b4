//! Prints an explanation as text: headings, each followed by short sentences.

use std::fmt::{self, Display, Formatter, Write as _};

use super::explanation::{
    ExplainedFill, ExplainedKey, ExplainedOutcome, ExplainedPage, ExplainedReason, ExplainedRoute,
    ExplainedTier, ExplainedUncacheable, ExplainedVisitor, Explanation, SilentPage,
};

/// The indentation of the sentences after their headings.
const INDENT: usize = 10;

/// Lines with their headings. Consecutive lines with one heading print it once.
type PrintedLines = Vec<(&'static str, String)>;

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", EscapedText(&self.method), EscapedText(&self.url))?;
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        writeln!(f, "{}{reason}: {}", verb(self.outcome), EscapedText(&self.why))?;
        if let Some(status) = &self.cache_status {
            writeln!(f, "Cache-Status: {}", EscapedText(status))?;
        }
        let mut before = "";
        for (heading, line) in self.lines() {
            let blank = if before.is_empty() { "\n" } else { "" };
            let shown = if heading == before { "" } else { heading };
            writeln!(f, "{blank}{shown:<INDENT$}{}", EscapedText(&line))?;
            before = heading;
        }
        Ok(())
    }
}

impl Explanation {
    fn lines(&self) -> PrintedLines {
        let mut lines = PrintedLines::new();
        lines.extend(self.notes.iter().map(|note| ("Note", note.clone())));
        lines.extend(self.route.iter().map(|part| ("Route", route(part))));
        lines.extend(self.visitor.iter().map(|part| ("Visitor", visitor(part))));
        lines.extend(
            self.class.iter().map(|part| ("Class", format!("{}: {}", part.class, part.why))),
        );
        if !self.cookies.is_empty() {
            let part = self.cookies.iter().map(|part| format!("{}: {}", part.name, part.class));
            lines.push(("Cookies", part.collect::<Vec<_>>().join(", ")));
        }
        lines.extend(self.key.iter().flat_map(key).map(|line| ("Key", line)));
        lines.extend(self.fill.iter().flat_map(fill).map(|line| ("Fill", line)));
        lines.extend(self.memory.iter().map(|part| ("Memory", tier(part))));
        lines.extend(self.store.iter().map(|part| ("Store", tier(part))));
        let learnt = self.uncacheable.iter().flat_map(uncacheable);
        lines.extend(learnt.map(|line| ("Learnt", line)));
        lines.extend(self.leak.iter().map(|part| {
            let text = format!("not shared {} s ago ({}): {}", part.seconds, part.reason, part.why);
            ("Learnt", text)
        }));
        lines.extend(self.page.iter().flat_map(page).map(|line| ("Page", line)));
        lines.extend(self.silent.iter().map(|part| ("Then", silent(part))));
        lines
            .extend(self.hints.iter().map(|hint| ("Hint", format!("{}: {}", hint.key, hint.text))));
        lines
    }
}

/// What was found in the last response, with all that would keep it from being stored.
fn uncacheable(part: &ExplainedUncacheable) -> Vec<String> {
    let ExplainedUncacheable { seconds, reason, why, further } = part;
    let first = format!(
        "uncacheable for another {seconds} s, because of the last response ({reason}): {why}"
    );
    let further =
        further.iter().map(|ExplainedReason { reason, why }| format!("also {reason}: {why}"));
    std::iter::once(first).chain(further).collect()
}

/// What is done, as the beginning of a sentence.
pub(super) fn verb(outcome: ExplainedOutcome) -> &'static str {
    match outcome {
        ExplainedOutcome::Hit => "Answered from the cache",
        ExplainedOutcome::Stale => "Answered from the cache, stale",
        ExplainedOutcome::Fetch => "Fetched for the cache",
        ExplainedOutcome::Forward => "Forwarded",
        ExplainedOutcome::Row => "Answered with a row",
        ExplainedOutcome::Own => "Answered by Anteroom",
        ExplainedOutcome::Refuse => "Refused",
    }
}

fn route(part: &ExplainedRoute) -> String {
    let mut line = part.name.clone();
    line += match part.share.as_str() {
        "anonymous" => ", shared among anonymous visitors",
        "everyone" => ", shared by everyone",
        "segment" => ", shared within a segment",
        "user" => ", stored for each user",
        _ => ", not shared",
    };
    add(&mut line, "; origin ", part.origin.as_deref().unwrap_or_default());
    add(&mut line, "; item ", part.item.as_deref().unwrap_or_default());
    add(&mut line, "; with ", &part.settings.join(", "));
    line
}

fn visitor(part: &ExplainedVisitor) -> String {
    let mut line = part.class.clone();
    add(&mut line, " as ", part.user.as_deref().unwrap_or_default());
    add(&mut line, ": ", &part.why);
    line
}

fn key(part: &ExplainedKey) -> Vec<String> {
    let mut made = format!("of {}, {}, {}, {}", part.class, part.scheme, part.site, part.path);
    add(&mut made, "?", &part.query);
    add(&mut made, "; cookies ", &part.cookies.join(", "));
    add(&mut made, "; fields ", &part.fields.join(", "));
    let mut lines = vec![part.key.clone(), made];
    if !part.ignored.is_empty() {
        lines.push(format!("without {} ([cache] ignore_query)", part.ignored.join(", ")));
    }
    lines
}

fn fill(part: &ExplainedFill) -> Vec<String> {
    let mut sent = format!("GET {}", part.target);
    add(&mut sent, " with ", &part.fields.join(", "));
    sent += " and Anteroom's own fields";
    let mut lines = vec![sent];
    let mut lost = part.lost_fields.join(", ");
    if !part.lost_cookies.is_empty() {
        lost = format!("{lost} (of it {})", part.lost_cookies.join(", "));
    }
    if !lost.is_empty() {
        lines.push(format!("without {lost}"));
    }
    if part.own_address {
        lines.push("from Anteroom's address instead of the visitor's".to_owned());
    }
    if part.validates {
        lines.push("validates the stored page".to_owned());
    }
    lines.push(
        match (part.spares, part.own_address) {
            (true, false) => "if the response may not be shared, this visitor still gets it",
            (true, true) => {
                "if the response may not be shared, this visitor still gets it, unless it sets a \
                 cookie or refuses the visitor"
            }
            (false, _) => {
                "if the response may not be shared, this visitor's own request may have to be sent, too: see Asked once in \
                 docs/reference/cache-rules.md"
            }
        }
        .to_owned(),
    );
    lines
}

fn tier(part: &ExplainedTier) -> String {
    if let Some(error) = &part.error {
        return format!("unknown: {error}");
    }
    let page = match (part.page.as_deref(), part.ttl) {
        (None, _) => None,
        (Some("fresh"), Some(ttl)) => Some(format!("a page, fresh for another {ttl} s")),
        (Some("stale"), Some(ttl @ ..=0)) => Some(format!("a page, stale for {} s", -ttl)),
        (Some(standing), _) => Some(format!("a page, {standing}")),
    };
    match (&part.variants, page) {
        (None, page) => page.unwrap_or_else(|| "nothing".to_owned()),
        (Some(variants), page) => format!(
            "{} by {}; for this request: {}",
            plural(variants.count, "variant"),
            variants.fields.join(", "),
            page.as_deref().unwrap_or("none"),
        ),
    }
}

fn page(part: &ExplainedPage) -> Vec<String> {
    let mut what = part.status.to_string();
    add(&mut what, " ", part.kind.as_deref().unwrap_or_default());
    add(&mut what, ", in ", part.coding.as_deref().unwrap_or_default());
    add(&mut what, ", ", &plural(part.bytes, "byte"));
    add(&mut what, "; sent in ", part.recoded.as_deref().unwrap_or_default());
    let left = match part.ttl {
        ttl @ 1.. => format!("{ttl} s left"),
        ttl => format!("stale for {} s", -ttl),
    };
    let mut lines = vec![
        what,
        format!("lifetime {} s ({}), age {} s: {left}", part.lifetime, part.source, part.age),
        format!(
            "may be served stale for {} s while it is revalidated, for {} s while the app fails",
            part.stale_while_revalidate, part.stale_if_error
        ),
    ];
    match part.purged.as_str() {
        "soft" => lines.push("soft purge: the page is stale".to_owned()),
        "hard" => lines.push("hard purge: the page is never served again".to_owned()),
        _ => {}
    }
    if !part.validators.is_empty() {
        lines.push(format!("the app can validate it by {}", part.validators.join(", ")));
    }
    if !part.vary.is_empty() {
        lines.push(format!("varies on {}", part.vary.join(", ")));
    }
    if part.static_proof {
        lines.push("static by proof: logged-in visitors may get it, too".to_owned());
    }
    lines.extend(part.refused.iter().map(|reason| format!("not served to this request: {reason}")));
    lines
}

fn silent(part: &SilentPage) -> String {
    let page = "an HTML page without caching fields";
    match &part.reason {
        None => format!("{page} would be fresh for {} s ({})", part.lifetime, part.source),
        Some(reason) => format!("{page} would not be stored: {reason}"),
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
struct EscapedText<'t>(&'t str);

impl Display for EscapedText<'_> {
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
    use crate::explain::explanation::{ConfigHint, ExplainedCookie, ExplainedVariants};

    fn bare() -> Explanation {
        Explanation {
            method: "GET".to_owned(),
            url: "http://shop.test/".to_owned(),
            outcome: ExplainedOutcome::Forward,
            reason: Some("set-cookie".to_owned()),
            why: "the response sets a cookie".to_owned(),
            cache_status: None,
            notes: Vec::new(),
            route: None,
            visitor: None,
            class: None,
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
    fn unknown_values_print_no_line() {
        let expected =
            "GET http://shop.test/\nForwarded (set-cookie): the response sets a cookie\n";
        assert_eq!(bare().to_string(), expected);
    }

    #[test]
    fn sentences_follow_their_headings() {
        let cookie =
            |name: &str, class: &str| ExplainedCookie { name: name.into(), class: class.into() };
        let hint = |key: &str, text: &str| ConfigHint { key: key.into(), text: text.into() };
        let part = Explanation {
            cache_status: Some("anteroom; fwd=bypass; detail=set-cookie".to_owned()),
            cookies: vec![cookie("_ga", "harmless"), cookie("lang", "keyed")],
            uncacheable: Some(ExplainedUncacheable {
                reason: "set-cookie".to_owned(),
                why: "the response sets a cookie".to_owned(),
                further: vec![ExplainedReason {
                    reason: "no-store".to_owned(),
                    why: "the response has no-store".to_owned(),
                }],
                seconds: 93,
            }),
            hints: vec![hint("[a] b", "one"), hint("[a] c", "two")],
            ..bare()
        };
        let expected = "\
GET http://shop.test/
Forwarded (set-cookie): the response sets a cookie
Cache-Status: anteroom; fwd=bypass; detail=set-cookie

Cookies   _ga: harmless, lang: keyed
Learnt    uncacheable for another 93 s, because of the last response (set-cookie): the response sets a cookie
          also no-store: the response has no-store
Hint      [a] b: one
          [a] c: two
";
        assert_eq!(part.to_string(), expected);
    }

    #[test]
    fn a_page_is_printed_with_its_times() {
        let part = ExplainedPage {
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
            "may be served stale for 0 s while it is revalidated, for 3600 s while the app fails",
            "soft purge: the page is stale",
            "the app can validate it by etag",
            "varies on accept-language, origin",
            "static by proof: logged-in visitors may get it, too",
            "not served to this request: vary",
        ];
        assert_eq!(page(&part), expected);
    }

    #[test]
    fn a_tier_says_what_it_has() {
        let nothing = ExplainedTier { error: None, variants: None, page: None, ttl: None };
        let held = |page: &str, ttl| ExplainedTier {
            page: Some(page.to_owned()),
            ttl: Some(ttl),
            ..nothing.clone()
        };
        let several = |count| ExplainedVariants { fields: words(&["accept"]), count };
        for (part, expected) in [
            (nothing.clone(), "nothing"),
            (held("fresh", 5), "a page, fresh for another 5 s"),
            (held("stale", -5), "a page, stale for 5 s"),
            (held("stale", 5), "a page, stale"),
            (held("purged", 5), "a page, purged"),
            (ExplainedTier { error: Some("away".to_owned()), ..nothing.clone() }, "unknown: away"),
            (
                ExplainedTier { variants: Some(several(1)), ..nothing.clone() },
                "1 variant by accept; for this request: none",
            ),
            (
                ExplainedTier { variants: Some(several(2)), ..held("fresh", 5) },
                "2 variants by accept; for this request: a page, fresh for another 5 s",
            ),
        ] {
            assert_eq!(tier(&part), expected);
        }
    }

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        let part = Explanation { url: "http://a/\u{1b}[2J\u{9b}1m".to_owned(), ..bare() };
        let text = part.to_string();
        assert!(text.contains("\\u{1b}[2J\\u{9b}1m"), "{text}");
    }
}
