//! `CDN-Cache-Control` (RFC 9213): directives for CDN caches and reverse proxies such as this one, but for no
//! other caches. It is a dictionary of structured fields (RFC 9651 §3.2), and parsed strictly.
//!
//! What the directives lead to is decided elsewhere.

use ::http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::cache_control::{CacheControl, DELTA_MAX};

/// `cdn-cache-control` (RFC 9213 §3.1)
pub static CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Parses `CDN-Cache-Control`. Its directives replace `Cache-Control` and `Expires`, even if they are less
/// strict (RFC 9213 §2.2).
///
/// `None` if the field is absent, empty, not a dictionary, or has a directive of the wrong type: the field is
/// then ignored as a whole, and the other fields apply (§2.1). Delta-seconds must be numbers; other
/// directives must be `?1`, which is written as the name alone. `private` and `no-cache` may have a field
/// list of any type; for safety they then cover the whole response. A directive with `?0` counts as absent.
/// Of repeated directives the last counts (RFC 9651 §4.2.2). Unknown directives and parameters are ignored.
#[must_use]
pub fn cdn_cache_control(headers: &HeaderMap) -> Option<CacheControl> {
    let lines = headers.get_all(&CDN_CACHE_CONTROL).iter();
    let lines: Vec<&[u8]> = lines.map(|line| line.as_bytes()).collect();
    let directives: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
    let mut parsed = CacheControl::default();
    for (name, value) in &directives {
        set(&mut parsed, name.as_str(), Value::of(value))?;
    }
    (!directives.is_empty()).then_some(parsed)
}

/// Sets one directive; `None` if its value has the wrong type.
fn set(cc: &mut CacheControl, name: &str, value: Value) -> Option<()> {
    match name {
        "no-cache" => cc.no_cache = value != Value::Boolean(false),
        "private" => cc.private = value != Value::Boolean(false),
        "no-store" => cc.no_store = value.switch()?,
        "public" => cc.public = value.switch()?,
        "must-revalidate" => cc.must_revalidate = value.switch()?,
        "proxy-revalidate" => cc.proxy_revalidate = value.switch()?,
        "must-understand" => cc.must_understand = value.switch()?,
        "no-transform" => cc.no_transform = value.switch()?,
        "immutable" => cc.immutable = value.switch()?,
        "max-age" => cc.max_age = Some(value.seconds()?),
        "s-maxage" => cc.s_maxage = Some(value.seconds()?),
        "stale-while-revalidate" => cc.stale_while_revalidate = Some(value.seconds()?),
        "stale-if-error" => cc.stale_if_error = Some(value.seconds()?),
        _ => {}
    }
    Some(())
}

/// The value types that directives use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Boolean(bool),
    Integer(i64),
    /// Any other item, or an inner list.
    Other,
}

impl Value {
    fn of(entry: &ListEntry) -> Self {
        let ListEntry::Item(item) = entry else { return Self::Other };
        match item.bare_item {
            BareItem::Boolean(is_on) => Self::Boolean(is_on),
            BareItem::Integer(number) => Self::Integer(number.into()),
            _ => Self::Other,
        }
    }

    fn switch(self) -> Option<bool> {
        match self {
            Self::Boolean(is_on) => Some(is_on),
            Self::Integer(_) | Self::Other => None,
        }
    }

    /// Delta-seconds; a negative number counts as 0: stale (RFC 9111 §4.2.1).
    fn seconds(self) -> Option<u64> {
        match self {
            Self::Integer(number) => Some(u64::try_from(number).unwrap_or(0).min(DELTA_MAX)),
            Self::Boolean(_) | Self::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use ::http::header::CACHE_CONTROL;
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&str]) -> Option<CacheControl> {
        let headers: HeaderMap = lines
            .iter()
            .map(|line| {
                (CDN_CACHE_CONTROL.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap())
            })
            .collect();
        cdn_cache_control(&headers)
    }

    #[test]
    fn every_directive_sets_its_field_and_no_other() {
        let none = CacheControl::default();
        for (line, expected) in [
            ("max-age=60", CacheControl { max_age: Some(60), ..none }),
            ("s-maxage=60", CacheControl { s_maxage: Some(60), ..none }),
            ("stale-while-revalidate=5", CacheControl { stale_while_revalidate: Some(5), ..none }),
            ("stale-if-error=5", CacheControl { stale_if_error: Some(5), ..none }),
            ("no-store", CacheControl { no_store: true, ..none }),
            ("no-store=?1", CacheControl { no_store: true, ..none }),
            ("no-store=?0", none),
            ("no-cache", CacheControl { no_cache: true, ..none }),
            ("no-cache=?0", none),
            ("no-cache=\"set-cookie\"", CacheControl { no_cache: true, ..none }),
            ("no-cache=set-cookie", CacheControl { no_cache: true, ..none }),
            ("private", CacheControl { private: true, ..none }),
            ("private=?0", none),
            ("private=\"x-a, x-b\"", CacheControl { private: true, ..none }),
            ("private=(\"x-a\" \"x-b\")", CacheControl { private: true, ..none }),
            ("private=1", CacheControl { private: true, ..none }),
            ("public", CacheControl { public: true, ..none }),
            ("must-revalidate", CacheControl { must_revalidate: true, ..none }),
            ("proxy-revalidate", CacheControl { proxy_revalidate: true, ..none }),
            ("must-understand", CacheControl { must_understand: true, ..none }),
            ("no-transform", CacheControl { no_transform: true, ..none }),
            ("immutable", CacheControl { immutable: true, ..none }),
            // Request directives and unknown ones have no effect here.
            ("only-if-cached", none),
            ("max-stale=5, min-fresh=6", none),
            ("unknown", none),
            ("unknown=1;a=b, other=(1 2);c", none),
        ] {
            assert_eq!(read(&[line]), Some(expected), "{line}");
        }
    }

    #[test]
    fn members_are_read_by_the_grammar_of_dictionaries() {
        let minute = CacheControl { max_age: Some(60), ..CacheControl::default() };
        for lines in [
            &["max-age=60"][..],
            &["  max-age=60  "],
            &["max-age=060"],
            &["max-age=000000000000060"],
            &["max-age=60;a"],
            &["max-age=60;a=1; b=\"x\";c=?0"],
            &["max-age=1, max-age=60"],
            &["max-age=1", "max-age=60"],
            &["max-age=x, max-age=60"],
            &["max-age=60", "no-store=?0"],
            &["max-age=60,unknown"],
            &["unknown\t, \t max-age=60"],
            &["max-age=60, ext=a-token"],
            &["max-age=60, ext=*to/ken:x"],
            &["max-age=60, ext=-1.5"],
            &["max-age=60, ext=123456789012.123"],
            &["max-age=60, ext=\"max-age=1, \\\"no-store\\\\\""],
            &["max-age=60, ext=:aGFsbG8=:"],
            &["max-age=60, ext=::"],
            &["max-age=60, ext=:aGFsbG8:"],
            &["max-age=60, ext=:iZ==:"],
            &["max-age=60, ext=@1659578233"],
            &["max-age=60, ext=@-5"],
            &["max-age=60, ext=%\"f%c3%bc\""],
            &["max-age=60, ext=()"],
            &["max-age=60, ext=( )"],
            &["max-age=60, ext=( 1  no-store;q=2 \"a\" );r=?1"],
            &["max-age=60, *ext_1.b-c"],
        ] {
            assert_eq!(read(lines), Some(minute), "{lines:?}");
        }
    }

    #[test]
    fn one_error_makes_nothing_of_all() {
        for lines in [
            &[][..],
            &[""],
            &["   "],
            &["\t"],
            &["\tmax-age=60"],
            &[","],
            &["max-age=60,"],
            &["max-age=60, "],
            &[",max-age=60"],
            &["max-age=60,,no-store"],
            &["max-age=60", ""],
            &["", "max-age=60"],
            &["max-age=60 no-store"],
            &["max-age=60; no-store ;b"],
            &["max-age =60"],
            &["max-age= 60"],
            &["max-age="],
            &["Max-Age=60"],
            &["max-Age=60"],
            &["max-age=60, No-Store"],
            &["max-age=60, 1ext"],
            &["max-age=60, -ext"],
            &["max-age=60, =1"],
            &["max-age=60, ext=&&&"],
            &["max-age=60, ext="],
            &["max-age=60;"],
            &["max-age=60;A"],
            &["max-age=60;a="],
            &["max-age=60, ext=\"open"],
            &["max-age=60, ext=\"a\\b\""],
            &["max-age=60, ext=\"a\\"],
            &["max-age=60, ext=\"ä\""],
            &["max-age=60, ext=\"a\tb\""],
            &["max-age=60, ext=:a"],
            &["max-age=60, ext=:a:"],
            &["max-age=60, ext=:a b:"],
            &["max-age=60, ext=:=:"],
            &["max-age=60, ext=:aG-_:"],
            &["max-age=60, ext=?2"],
            &["max-age=60, ext=?"],
            &["max-age=60, ext=?true"],
            &["max-age=60, ext=-"],
            &["max-age=60, ext=--1"],
            &["max-age=60, ext=1."],
            &["max-age=60, ext=.5"],
            &["max-age=60, ext=-.5"],
            &["max-age=60, ext=1.2.3"],
            &["max-age=60, ext=1.1234"],
            &["max-age=60, ext=1234567890123.1"],
            &["max-age=60, ext=@"],
            &["max-age=60, ext=@1.5"],
            &["max-age=60, ext=%a"],
            &["max-age=60, ext=%\"%C3%BC\""],
            &["max-age=60, ext=%\"%c3\""],
            &["max-age=60, ext=%\"%c\""],
            &["max-age=60, ext=%\"open"],
            &["max-age=60, ext=(1"],
            &["max-age=60, ext=(1,2)"],
            &["max-age=60, ext=(1 2"],
            &["max-age=60, ext=(\"a\"\"b\")"],
            &["max-age=60, ext=((1))"],
            &["max-age=60, ext=)"],
            &["max-age=60, ä"],
            &["max-age=60\u{7f}"],
        ] {
            // A line that is not a valid field value cannot occur in a message.
            if lines.iter().all(|line| HeaderValue::from_bytes(line.as_bytes()).is_ok()) {
                assert_eq!(read(lines), None, "{lines:?}");
            }
        }
    }

    #[test]
    fn a_wrong_type_makes_nothing_of_all() {
        for line in [
            "max-age",
            "max-age=?1",
            "max-age=?0",
            "max-age=60.0",
            "max-age=\"60\"",
            "max-age=sixty",
            "max-age=(60)",
            "max-age=@60",
            "max-age=:NjA=:",
            "max-age=9999999999999999",
            "no-store, max-age=\"60\"",
            "s-maxage=\"60\", max-age=60",
            "stale-while-revalidate, max-age=60",
            "stale-if-error=1.5, max-age=60",
            "no-store=1, max-age=60",
            "no-store=\"\", max-age=60",
            "public=yes, max-age=60",
            "must-revalidate=(), max-age=60",
        ] {
            assert_eq!(read(&[line]), None, "{line}");
        }
    }

    #[test]
    fn seconds_have_bounds() {
        for (line, expected) in [
            ("max-age=0", 0),
            ("max-age=-0", 0),
            ("max-age=-1", 0),
            ("max-age=-999999999999999", 0),
            ("max-age=2147483647", DELTA_MAX - 1),
            ("max-age=2147483648", DELTA_MAX),
            ("max-age=99999999999", DELTA_MAX),
            ("max-age=999999999999999", DELTA_MAX),
        ] {
            assert_eq!(read(&[line]).unwrap().max_age, Some(expected), "{line}");
        }
    }

    #[test]
    fn other_fields_are_not_read() {
        let headers: HeaderMap =
            [(CACHE_CONTROL, HeaderValue::from_static("max-age=60"))].into_iter().collect();
        assert_eq!(cdn_cache_control(&headers), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let headers: HeaderMap = [(CDN_CACHE_CONTROL.clone(), value)].into_iter().collect();
                let _ = cdn_cache_control(&headers);
            }
        }

        #[test]
        fn near_misses_break_nothing(line in "[a=;,()\"?0-9.%@: \\\\-]{0,24}") {
            let _ = read(&[&line]);
        }

        #[test]
        fn a_plain_field_reads_as_cache_control_does(
            seconds in 0..=DELTA_MAX, name in "(s-maxage|max-age|stale-if-error)",
            switch in "(no-store|no-cache|private|public|must-revalidate|x-[a-z]{1,5})",
        ) {
            let line = format!("{switch}, {name}={seconds}");
            let headers: HeaderMap =
                [(CACHE_CONTROL, HeaderValue::from_str(&line).unwrap())].into_iter().collect();
            let plain = CacheControl::parse(&headers, &CACHE_CONTROL);
            prop_assert_eq!(read(&[&line]), Some(plain));
        }

        #[test]
        fn whole_dictionaries_are_taken(
            members in proptest::collection::vec(
                "[a-z*][a-z0-9_.*-]{0,5}(=(-?[0-9]{1,15}|[A-Za-z*][A-Za-z0-9:/!]{0,5}|\\?[01]|\"[ a-z,;=]{0,8}\"|\\((1 2)?\\)))?(;[a-z]{1,3}(=1)?){0,2}",
                1..6,
            ),
        ) {
            // With an `x` in front, no key is one with a required type.
            let line = members.iter().map(|member| format!("x{member}")).collect::<Vec<_>>();
            prop_assert_eq!(read(&[&line.join(" , ")]), Some(CacheControl::default()));
        }
    }
}
