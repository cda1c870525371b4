//! Writes what was learned into a configuration, and leaves the rest of its text as it is.

use toml_edit::{DocumentMut, Item, Table, TomlError};

/// The configuration `text` with the lines of the proposals, each a reason and TOML, and `[cache] mode = "serve"`.
///
/// Keys of tables are replaced. A `[[route]]` is put before the others, because the first that matches decides. Lines
/// that are comments stand at the end.
///
/// # Errors
/// If the text, or a proposal, is no TOML.
pub fn learned_config<'p>(
    text: &str,
    proposals: impl Iterator<Item = (&'p str, &'p str)>,
) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let (mut routes, mut remarks) = (String::new(), String::new());
    for (reason, toml) in proposals {
        let reason = comment(reason);
        if toml.starts_with("[[route]]") {
            routes += &format!("{reason}{toml}\n\n");
        } else if toml.starts_with('#') {
            remarks += &format!("\n{reason}{toml}\n");
        } else {
            set_keys(&mut document, &toml.parse()?, &reason);
        }
    }
    let served: DocumentMut = "[cache]\nmode = \"serve\"".parse()?;
    set_keys(&mut document, &served, "");
    let text = document.to_string();
    let at = first_route(&text).unwrap_or(text.len());
    let (before, after) = text.split_at(at);
    let gap =
        if before.is_empty() || before.ends_with("\n\n") || routes.is_empty() { "" } else { "\n" };
    let written = format!("{before}{gap}{routes}{after}");
    Ok(format!("{}\n{remarks}", written.trim_end()))
}

/// Sets each key of the tables of `from`, with the comment above it.
fn set_keys(document: &mut DocumentMut, from: &DocumentMut, comment: &str) {
    for (section, item) in from.iter() {
        let Some(keys) = item.as_table() else { continue };
        let table = document.entry(section).or_insert_with(|| Item::Table(Table::new()));
        let Some(table) = table.as_table_like_mut() else { continue };
        for (key, value) in keys.iter() {
            let Some(value) = value.as_value() else { continue };
            let mut value = value.clone();
            value.decor_mut().set_prefix(" ");
            value.decor_mut().set_suffix("");
            table.insert(key, Item::Value(value));
            if let (Some(mut key), false) = (table.key_mut(key), comment.is_empty()) {
                key.leaf_decor_mut().set_prefix(comment);
            }
        }
    }
}

/// Where the first `[[route]]` begins, with the comment right above it.
fn first_route(text: &str) -> Option<usize> {
    let mut begins = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let plain = line.trim();
        if plain.starts_with("[[route]]") {
            return begins.or(Some(at));
        }
        begins = if plain.starts_with('#') { begins.or(Some(at)) } else { None };
        at += line.len();
    }
    None
}

/// A reason as a comment. Names in it are text of visitors: it stays on one line.
fn comment(reason: &str) -> String {
    let line: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# Learned: {line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# The shop\n[origin]\nurl = \"http://127.0.0.1:3000\" # the app\n\n[cache]\nmode = \"learn\"\n\n# all of it\n[[route]]\nmatch.path = \"/shop/**\"\n";

    #[test]
    fn keys_are_set_routes_come_first_and_the_rest_stays() {
        let proposals = [
            ("sid is a visitor", "[session]\ncookie = [\"sid\"]"),
            ("no page\ndepends on it", "[cache]\nignore_cookies = [\"consent\"]"),
            ("it differs", "[[route]]\nmatch.path = \"/me\"\nshare = \"none\""),
            ("few values", "# key_cookies = [\"lang\"]"),
        ];
        let learned = learned_config(BEFORE, proposals.into_iter()).unwrap();
        let expected = "# The shop\n[origin]\nurl = \"http://127.0.0.1:3000\" # the app\n\n[cache]\nmode = \"serve\"\n# Learned: no page depends on it\nignore_cookies = [\"consent\"]\n\n# Learned: it differs\n[[route]]\nmatch.path = \"/me\"\nshare = \"none\"\n\n# all of it\n[[route]]\nmatch.path = \"/shop/**\"\n\n[session]\n# Learned: sid is a visitor\ncookie = [\"sid\"]\n\n# Learned: few values\n# key_cookies = [\"lang\"]\n";
        assert_eq!(learned, expected);
    }

    #[test]
    fn an_empty_configuration_gets_what_was_learned() {
        let route = ("it differs", "[[route]]\nmatch.path = \"/me\"\nshare = \"none\"");
        let learned = learned_config("", [route].into_iter()).unwrap();
        assert!(learned.parse::<DocumentMut>().is_ok(), "{learned}");
        assert!(learned.contains("mode = \"serve\""));
        assert!(learned_config("[origin", std::iter::empty()).is_err());
    }
}
