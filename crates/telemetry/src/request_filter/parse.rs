//! From the text of a filter to its condition.

use std::ops::Range;

use anteroom_http::ident::nearest;

use super::field::{FieldKind, HIT};
use super::token::{Token, TokenKind, tokens};
use super::{Comparison, Condition, Field, FilterError};

/// How deep parentheses and `not` may nest.
const DEPTH_MAX: usize = 32;
/// What is written in other languages, and what it is here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("==", "="),
    ("===", "="),
    ("=~", "~"),
    ("=>", ">="),
    ("=<", "<="),
    ("<>", "!="),
    ("&&", "and"),
    ("||", "or"),
    ("!", "not"),
];
/// What else fields are called, and what they are here.
const OTHER_NAMES: [(&str, &str); 8] = [
    ("cache", "result"),
    ("code", "status"),
    ("url", "path"),
    ("uri", "path"),
    ("time", "ms"),
    ("duration", "ms"),
    ("size", "bytes"),
    ("site", "host"),
];

/// Reads a filter.
pub(super) fn parse(text: &str) -> Result<Condition, FilterError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0 };
    let condition = parser.any(0)?;
    match parser.peek() {
        None => Ok(condition),
        Some(Token { kind: TokenKind::Close, at }) => {
            Err(parser.wrong(at.clone(), "this parenthesis closes none"))
        }
        Some(token) => {
            let (at, sign) = (token.at.clone(), parser.sign_elsewhere());
            let near = sign.map_or_else(String::new, |sign| format!("; write `{sign}`"));
            Err(parser.wrong(at, format!("expected `and` or `or`{near}")))
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    next: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn wrong(&self, at: Range<usize>, why: impl Into<String>) -> FilterError {
        FilterError { text: self.text.to_owned(), at, why: why.into() }
    }

    /// The place of the next token, or the end.
    fn here(&self) -> Range<usize> {
        self.peek().map_or(self.text.len()..self.text.len(), |token| token.at.clone())
    }

    /// Whether the next token is this keyword, which is then passed.
    fn takes(&mut self, keyword: &str) -> bool {
        let is_next = matches!(
            self.peek(),
            Some(Token { kind: TokenKind::Word { text, is_quoted: false }, .. })
                if text.eq_ignore_ascii_case(keyword)
        );
        self.next += usize::from(is_next);
        is_next
    }

    /// What the next token means in another language.
    fn sign_elsewhere(&self) -> Option<&'static str> {
        let Some(Token { kind: TokenKind::Sign(sign), .. }) = self.peek() else { return None };
        ELSEWHERE.iter().find(|(there, _)| there == sign).map(|(_, here)| *here)
    }

    fn any(&mut self, depth: usize) -> Result<Condition, FilterError> {
        let mut conditions = vec![self.all(depth)?];
        while self.takes("or") {
            conditions.push(self.all(depth)?);
        }
        Ok(joined(conditions, Condition::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Condition, FilterError> {
        let mut conditions = vec![self.one(depth)?];
        while self.takes("and") {
            conditions.push(self.one(depth)?);
        }
        Ok(joined(conditions, Condition::All))
    }

    fn one(&mut self, depth: usize) -> Result<Condition, FilterError> {
        if depth > DEPTH_MAX {
            let why = format!("more than {DEPTH_MAX} parentheses and `not` within each other");
            return Err(self.wrong(self.here(), why));
        }
        if self.takes("not") {
            return Ok(Condition::Not(Box::new(self.one(depth + 1)?)));
        }
        let open = self.here();
        if matches!(self.peek(), Some(Token { kind: TokenKind::Open, .. })) {
            self.next += 1;
            let inner = self.any(depth + 1)?;
            if !matches!(self.peek(), Some(Token { kind: TokenKind::Close, .. })) {
                return Err(self.wrong(open, "this parenthesis is not closed"));
            }
            self.next += 1;
            return Ok(inner);
        }
        self.compared()
    }

    /// `field operator value`, or a flag alone.
    fn compared(&mut self) -> Result<Condition, FilterError> {
        let field = self.field()?;
        let at = self.here();
        let is_alone = !matches!(self.peek(), Some(Token { kind: TokenKind::Sign(_), .. }));
        if field.kind() == FieldKind::Flag && is_alone {
            return Ok(Condition::Aborted);
        }
        let comparison = self.comparison(field)?;
        let value_at = self.here();
        let Some(Token { kind: TokenKind::Word { text, .. }, .. }) = self.peek() else {
            let name = field.as_str();
            return Err(self.wrong(
                value_at,
                format!("expected a value, such as {}", example(field, name, comparison)),
            ));
        };
        let value = text.clone();
        self.next += 1;
        match field.kind() {
            FieldKind::Number if comparison != Comparison::Contains => {
                self.number(field, comparison, &value, value_at)
            }
            FieldKind::Text if is_for_texts(comparison) => {
                self.text(field, comparison, value, value_at)
            }
            FieldKind::Flag if is_equality(comparison) => {
                let is_wanted = match value.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(self.wrong(value_at, "expected `true` or `false`")),
                };
                let is_plain = is_wanted == (comparison == Comparison::Equal);
                Ok(negated(Condition::Aborted, !is_plain))
            }
            kind => {
                let (name, sign) = (field.as_str(), comparison.as_str());
                let may = match kind {
                    FieldKind::Number => "a number is compared by =, !=, <, <=, > or >=",
                    FieldKind::Text => "a text is compared by =, != or ~",
                    FieldKind::Flag => "it is compared by = or !=",
                };
                Err(self.wrong(at, format!("`{sign}` is not for `{name}`: {may}")))
            }
        }
    }

    fn field(&mut self) -> Result<Field, FilterError> {
        let at = self.here();
        let token = self.peek().map(|token| token.kind.clone());
        let Some(TokenKind::Word { text, is_quoted: false }) = token else {
            let near = self.sign_elsewhere().filter(|sign| *sign == "not");
            let near = near.map_or_else(String::new, |_| "; write `not`".to_owned());
            return Err(self.wrong(at, format!("expected a field, such as `status`{near}")));
        };
        let name = text.to_ascii_lowercase();
        let found = Field::ALL.into_iter().find(|field| field.as_str() == name);
        let Some(field) = found else {
            let known = Field::ALL.map(Field::as_str);
            let other = OTHER_NAMES.iter().find(|(there, _)| *there == name);
            let near = other.map_or_else(
                || probably(&name, &known),
                |(_, here)| format!("; the nearest is `{here}`"),
            );
            let why = format!(
                "unknown field `{}`{near}. Fields are {}",
                text.escape_debug(),
                known.join(", ")
            );
            return Err(self.wrong(at, why));
        };
        self.next += 1;
        Ok(field)
    }

    fn comparison(&mut self, field: Field) -> Result<Comparison, FilterError> {
        let at = self.here();
        let known = Comparison::ALL.map(Comparison::as_str);
        let Some(Token { kind: TokenKind::Sign(sign), .. }) = self.peek() else {
            let why =
                format!("expected an operator after `{}`: {}", field.as_str(), known.join(" "));
            return Err(self.wrong(at, why));
        };
        let found = Comparison::ALL.into_iter().find(|comparison| comparison.as_str() == sign);
        let Some(comparison) = found else {
            let near = self.sign_elsewhere().map_or_else(
                || probably(sign, &known),
                |here| format!("; the nearest is `{here}`"),
            );
            let why = format!("unknown operator `{sign}`{near}. Operators are {}", known.join(" "));
            return Err(self.wrong(at, why));
        };
        self.next += 1;
        Ok(comparison)
    }

    fn number(
        &self,
        field: Field,
        comparison: Comparison,
        value: &str,
        at: Range<usize>,
    ) -> Result<Condition, FilterError> {
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(|number| Condition::Number(field, comparison, number)).ok_or_else(|| {
            let unit = match field {
                Field::Ms | Field::OriginMs => "a number of milliseconds, such as 200",
                Field::Bytes => "a number of bytes, such as 1048576",
                _ => "a number, such as 404",
            };
            self.wrong(at, format!("expected {unit}"))
        })
    }

    fn text(
        &self,
        field: Field,
        comparison: Comparison,
        value: String,
        at: Range<usize>,
    ) -> Result<Condition, FilterError> {
        let value = match field {
            Field::Method => value.to_ascii_uppercase(),
            Field::Path | Field::Route => value,
            _ => value.to_ascii_lowercase(),
        };
        if let Some(words) = field.words().filter(|_| is_equality(comparison))
            && !words.contains(&value.as_str())
        {
            let (name, near) = (field.as_str(), probably(&value, &words));
            let value = value.escape_debug();
            let why = format!("`{value}` is no {name}{near}");
            return Err(self.wrong(at, why));
        }
        if field == Field::Result && value == HIT && is_equality(comparison) {
            return Ok(negated(Condition::Hit, comparison == Comparison::Unequal));
        }
        Ok(Condition::Text(field, comparison, value))
    }
}

fn joined(mut conditions: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    match (conditions.pop(), conditions.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            conditions.extend(last);
            join(conditions)
        }
    }
}

fn negated(condition: Condition, is_negated: bool) -> Condition {
    if is_negated { Condition::Not(Box::new(condition)) } else { condition }
}

fn is_equality(comparison: Comparison) -> bool {
    matches!(comparison, Comparison::Equal | Comparison::Unequal)
}

fn is_for_texts(comparison: Comparison) -> bool {
    is_equality(comparison) || comparison == Comparison::Contains
}

fn example(field: Field, name: &str, comparison: Comparison) -> String {
    let value = match field.kind() {
        FieldKind::Number => "200",
        FieldKind::Flag => "true",
        FieldKind::Text => field.words().and_then(|words| words.first().copied()).unwrap_or("shop"),
    };
    format!("`{name} {} {value}`", comparison.as_str())
}

/// What was probably meant, as the end of a message.
fn probably(name: &str, known: &[&str]) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!("; the nearest is `{near}`"))
}
