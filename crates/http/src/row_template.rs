//! HTML templates with the fields of a row's JSON: `{qty} in stock`. Each value is escaped for the context of its
//! placeholder.

use std::fmt;

use serde_json::Value;

use super::template::{Escape, escape_behind};

/// HTML that is rendered once for an object, and for each object of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTemplate {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Html(String),
    Field {
        /// The names of the field, from the outermost object to the value.
        path: Vec<String>,
        escape: Escape,
    },
}

/// Why a row cannot be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowTemplateError {
    /// Another program may have written it.
    #[error("the row is not JSON")]
    NotJson,
    /// It has no fields.
    #[error("the row is neither an object nor an array of objects")]
    NoFields,
    /// The result would exceed the given size.
    #[error("the row makes too long a text")]
    TooLong,
}

impl RowTemplate {
    /// Parses a template. `{name}` is a field, `{a.b}` one of an object within, `{{` and `}}` are braces. A
    /// field is refused where a browser would interpret its value as something other than text.
    ///
    /// # Errors
    /// A description of what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "html with the fields of the row, such as \"{qty} in stock\"; {{ and }} are braces";
        let (mut pieces, mut html, mut before) = (Vec::new(), String::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (plain, behind) = rest.split_at(at);
            html.push_str(plain);
            before.push_str(plain);
            if let Some(after) = behind.strip_prefix("{{").or_else(|| behind.strip_prefix("}}")) {
                html.push_str(&behind[..1]);
                before.push_str(&behind[..1]);
                rest = after;
                continue;
            }
            let field = behind.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let Some((name, after)) = field else { return Err(FORM.to_owned()) };
            let path: Vec<String> = name.split('.').map(str::to_owned).collect();
            if path.iter().any(|part| part.is_empty() || part.contains(['{', '"', '<', '>'])) {
                return Err(FORM.to_owned());
            }
            let escape = escape_behind(&before, &format!("{{{name}}}"))?;
            if !html.is_empty() {
                pieces.push(Piece::Html(std::mem::take(&mut html)));
            }
            pieces.push(Piece::Field { path, escape });
            // A value is escaped, so that it cannot end what it stands in.
            before.push('x');
            rest = after;
        }
        html.push_str(rest);
        if pieces.is_empty() {
            return Err(FORM.to_owned());
        }
        if !html.is_empty() {
            pieces.push(Piece::Html(html));
        }
        Ok(Self { text: text.to_owned(), pieces })
    }

    /// The HTML for a row, of at most `most` bytes. Each object of an array makes one text; they follow one
    /// another. A field that is missing or null is empty; an object or an array within is shown as JSON.
    ///
    /// # Errors
    /// When the row has no fields, or makes too long a text.
    pub fn html(&self, json: &[u8], most: usize) -> Result<String, RowTemplateError> {
        let row: Value = serde_json::from_slice(json).map_err(|_| RowTemplateError::NotJson)?;
        let objects = match &row {
            Value::Array(objects) => objects.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut html = String::new();
        for object in objects {
            if !object.is_object() {
                return Err(RowTemplateError::NoFields);
            }
            self.write(object, most, &mut html)?;
        }
        Ok(html)
    }

    fn write(
        &self,
        object: &Value,
        most: usize,
        html: &mut String,
    ) -> Result<(), RowTemplateError> {
        for piece in &self.pieces {
            match piece {
                Piece::Html(text) => html.push_str(text),
                Piece::Field { path, escape } => {
                    let field = path.iter().try_fold(object, |object, name| object.get(name));
                    match field {
                        None | Some(Value::Null) => {}
                        Some(Value::String(text)) => escape.write(text, html),
                        Some(other) => escape.write(&other.to_string(), html),
                    }
                }
            }
            // Checked at each piece: a template may name a long field often.
            if html.len() > most {
                return Err(RowTemplateError::TooLong);
            }
        }
        Ok(())
    }
}

impl fmt::Display for RowTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(template: &str, json: &str) -> Result<String, RowTemplateError> {
        RowTemplate::parse(template).unwrap().html(json.as_bytes(), 1_000)
    }

    #[test]
    fn the_fields_of_a_row_stand_in_their_places() {
        for (template, json, expected) in [
            ("{qty} in stock", r#"{"id":7,"qty":12}"#, "12 in stock"),
            ("{qty}", r#"{"qty":0}"#, "0"),
            ("{qty}", r#"{"qty":9007199254740991}"#, "9007199254740991"),
            ("{price} EUR", r#"{"price":"12.50"}"#, "12.50 EUR"),
            ("{price}", r#"{"price":-1.5}"#, "-1.5"),
            ("{is_new}", r#"{"is_new":true}"#, "true"),
            ("[{qty}]", r#"{"qty":null}"#, "[]"),
            ("[{qty}]", r#"{"name":"Lamp"}"#, "[]"),
            ("{a.b.c}", r#"{"a":{"b":{"c":"d"}}}"#, "d"),
            ("[{a.b.c}]", r#"{"a":{"b":1}}"#, "[]"),
            ("[{a.b}]", r#"{"a":[1]}"#, "[]"),
            ("{a}", r#"{"a":[1,"x"]}"#, "[1,&quot;x&quot;]"),
            ("{{{qty}}}", r#"{"qty":1}"#, "{1}"),
            ("}}{qty}{{x", r#"{"qty":1}"#, "}1{x"),
            ("{Größe cm}", r#"{"Größe cm":"ä"}"#, "ä"),
            ("{qty}{qty}", r#"{"qty":1,"qty":2}"#, "22"),
            // An array makes a list.
            ("<li>{name}", r#"[{"name":"a"},{"name":"b"}]"#, "<li>a<li>b"),
            ("<li>{name}", "[]", ""),
        ] {
            assert_eq!(html(template, json).as_deref(), Ok(expected), "{template} {json}");
        }
    }

    #[test]
    fn a_value_is_text_and_never_markup() {
        let evil = r#"{"v":"\"><script>'&/..\u0000</p>"}"#;
        assert_eq!(html("{v}", evil).unwrap(), "&quot;&gt;&lt;script&gt;&#39;&amp;/..\0&lt;/p&gt;");
        assert_eq!(
            html("<a href=\"/i/{v}\" title='{v}'>", evil).unwrap(),
            "<a href=\"/i/%22%3E%3Cscript%3E%27%26%2F%2E%2E%00%3C%2Fp%3E\" \
             title='&quot;&gt;&lt;script&gt;&#39;&amp;/..\0&lt;/p&gt;'>"
        );
        // A text that looks like a placeholder is not one.
        assert_eq!(html("{v}{w}", r#"{"v":"{w}","w":1}"#).unwrap(), "{w}1");
    }

    #[test]
    fn a_row_without_fields_is_not_rendered() {
        for json in ["7", "\"x\"", "null", "[1]", "[{},null]"] {
            assert_eq!(html("{v}", json), Err(RowTemplateError::NoFields), "{json}");
        }
        let deep = "[".repeat(100_000);
        for json in ["", "{", "{\"v\":\"\u{1}\"}", "[,]", deep.as_str()] {
            assert_eq!(html("{v}", json), Err(RowTemplateError::NotJson), "{json}");
        }
        let bytes = RowTemplate::parse("{v}").unwrap().html(b"{\"v\":\"\xff\"}", 1_000);
        assert_eq!(bytes, Err(RowTemplateError::NotJson));
    }

    #[test]
    fn the_text_is_bounded() {
        let row = format!("{{\"v\":\"{}\"}}", "x".repeat(500));
        assert_eq!(html("{v}{v}", &row).unwrap().len(), 1_000);
        assert_eq!(html("{v}{v}.", &row), Err(RowTemplateError::TooLong));
        assert_eq!(
            html("{v}", &format!("[{}]", [row.as_str(); 3].join(","))),
            Err(RowTemplateError::TooLong)
        );
    }

    #[test]
    fn a_template_says_what_is_wrong_with_it() {
        for bad in
            ["", "in stock", "{}", "{a.}", "{.a}", "{qty", "qty}", "{a{b}}", "{{qty}}", "{a}}"]
        {
            let why = RowTemplate::parse(bad).unwrap_err();
            assert!(why.contains("such as \"{qty} in stock\""), "{bad}: {why}");
        }
        for (bad, expected) in [
            ("<a {v}>", "{v} in a tag only within a quoted attribute"),
            ("<a href=\"{v}\">", "{v} in href only behind a path"),
            ("<button formaction='{v}'>", "{v} in formaction only behind a path"),
            ("<a onclick=\"{v}\">", "{v} in no attribute onclick"),
            ("{a}<script>var x = {v}</script>", "{v} in text or in quoted attributes"),
            ("<b title=\"{a}\"{v}>", "within a quoted attribute"),
        ] {
            let why = RowTemplate::parse(bad).unwrap_err();
            assert!(why.contains(expected), "{bad}: {why}");
        }
        let text = "<b title=\"{a.b}\">{{{v}}}</b>";
        assert_eq!(RowTemplate::parse(text).unwrap().to_string(), text);
    }
}
