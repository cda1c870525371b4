//! `Cache-Control` (RFC 9111 §5.2) of requests and responses, and other fields with the same syntax.
//!
//! What the directives lead to is decided elsewhere.

use ::http::{HeaderMap, HeaderName};

use super::list::{divide, is_string, saturating_digits, split, trim};

/// The largest delta-seconds value: larger ones are reduced to it (RFC 9111 §1.2.2).
pub const DELTA_MAX: u64 = 1 << 31;

/// The directives of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent directives of one field")]
pub struct CacheControl {
    /// `no-store` (§5.2.1.5, §5.2.2.5)
    pub no_store: bool,
    /// `no-cache` (§5.2.1.4, §5.2.2.4). The form with a field list also sets it: withholding only the listed
    /// fields would be allowed, but treating the whole response as `no-cache` is safer.
    pub no_cache: bool,
    /// `private` (§5.2.2.7). The form with a field list also sets it.
    pub private: bool,
    /// `public` (§5.2.2.9)
    pub public: bool,
    /// `must-revalidate` (§5.2.2.2)
    pub must_revalidate: bool,
    /// `proxy-revalidate` (§5.2.2.8)
    pub proxy_revalidate: bool,
    /// `must-understand` (§5.2.2.3)
    pub must_understand: bool,
    /// `no-transform` (§5.2.1.6, §5.2.2.6)
    pub no_transform: bool,
    /// `only-if-cached` (§5.2.1.7)
    pub only_if_cached: bool,
    /// `immutable` (RFC 8246)
    pub immutable: bool,
    /// `max-age` in seconds (§5.2.1.1, §5.2.2.1). An invalid number counts as 0: stale (§4.2.1).
    pub max_age: Option<u64>,
    /// `s-maxage` in seconds (§5.2.2.10), read like `max_age`.
    pub s_maxage: Option<u64>,
    /// `max-stale` in seconds (§5.2.1.2): how far past its freshness lifetime a response may be. Without an
    /// argument there is no limit; an invalid number counts as 0.
    pub max_stale: Option<u64>,
    /// `min-fresh` in seconds (§5.2.1.3), read like `max_age`.
    pub min_fresh: Option<u64>,
    /// `stale-while-revalidate` in seconds (RFC 5861 §3), read like `max_age`.
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` in seconds (RFC 5861 §4), read like `max_age`.
    pub stale_if_error: Option<u64>,
}

impl CacheControl {
    /// Parses all lines of the field `name`: `Cache-Control`, or a field with the same syntax. Without a line
    /// the result is the default, at no cost.
    #[must_use]
    pub fn parse(headers: &HeaderMap, name: &HeaderName) -> Self {
        let (mut parsed, mut hidden) = (Self::default(), Self::default());
        for line in headers.get_all(name) {
            for directive in split(line.as_bytes(), b',') {
                parsed.read(directive);
                hidden.read_hidden(directive);
            }
        }
        parsed.heed(&hidden);
        parsed
    }

    /// Reads directives that stray quotes may hide: quotes in any position other than around the argument
    /// make it unclear which directives were meant.
    fn read_hidden(&mut self, directive: &[u8]) {
        let is_quoted = directive.iter().any(|byte| matches!(byte, b'"' | b'\''));
        if !is_quoted || divide(directive, b'=').1.is_some_and(is_string) {
            return;
        }
        for hidden in directive.split(|&byte| byte == b',') {
            let is_stray = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\'' | b' ' | b'\t');
            let bare: Vec<u8> = hidden.iter().copied().filter(|byte| !is_stray(byte)).collect();
            self.read(&bare);
        }
    }

    /// Applies the restrictive ones of the hidden directives after all others are read.
    fn heed(&mut self, hidden: &Self) {
        self.no_store |= hidden.no_store;
        self.no_cache |= hidden.no_cache;
        self.private |= hidden.private;
        self.must_revalidate |= hidden.must_revalidate;
        self.proxy_revalidate |= hidden.proxy_revalidate;
        // §4.2.1: an unclear freshness lifetime counts as stale, whatever the other directives say.
        self.max_age = hidden.max_age.map_or(self.max_age, |_| Some(0));
        self.s_maxage = hidden.s_maxage.map_or(self.s_maxage, |_| Some(0));
    }

    /// Reads one directive, `name` or `name=argument`. Names are case-insensitive (§5.2); unknown ones are
    /// ignored (§5.2.3).
    fn read(&mut self, directive: &[u8]) {
        let (name, argument) = divide(directive, b'=');
        match DirectiveName::of(trim(name)) {
            Some(DirectiveName::Switch(switch)) => *switch(self) = true,
            Some(DirectiveName::Seconds(seconds, bare)) => {
                let given = argument.map_or(bare, seconds_in);
                let known = seconds(self);
                // Of conflicting repetitions, §4.2.1 allows the first value or treating the response as
                // stale. The smallest value is at most the first, so a repetition never extends a lifetime.
                *known = Some(known.map_or(given, |known| known.min(given)));
            }
            None => {}
        }
    }
}

/// The member that a directive's name sets.
enum DirectiveName {
    Switch(fn(&mut CacheControl) -> &mut bool),
    /// Sets a number of seconds; the second value applies if there is no argument.
    Seconds(fn(&mut CacheControl) -> &mut Option<u64>, u64),
}

impl DirectiveName {
    fn of(name: &[u8]) -> Option<Self> {
        /// Longer than any known name.
        const LONGER: usize = 32;
        let mut lower = [0_u8; LONGER];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        Some(match &*lower {
            b"no-store" => Self::Switch(|cc| &mut cc.no_store),
            b"no-cache" => Self::Switch(|cc| &mut cc.no_cache),
            b"private" => Self::Switch(|cc| &mut cc.private),
            b"public" => Self::Switch(|cc| &mut cc.public),
            b"must-revalidate" => Self::Switch(|cc| &mut cc.must_revalidate),
            b"proxy-revalidate" => Self::Switch(|cc| &mut cc.proxy_revalidate),
            b"must-understand" => Self::Switch(|cc| &mut cc.must_understand),
            b"no-transform" => Self::Switch(|cc| &mut cc.no_transform),
            b"only-if-cached" => Self::Switch(|cc| &mut cc.only_if_cached),
            b"immutable" => Self::Switch(|cc| &mut cc.immutable),
            b"max-age" => Self::Seconds(|cc| &mut cc.max_age, 0),
            b"s-maxage" => Self::Seconds(|cc| &mut cc.s_maxage, 0),
            b"max-stale" => Self::Seconds(|cc| &mut cc.max_stale, DELTA_MAX),
            b"min-fresh" => Self::Seconds(|cc| &mut cc.min_fresh, 0),
            b"stale-while-revalidate" => Self::Seconds(|cc| &mut cc.stale_while_revalidate, 0),
            b"stale-if-error" => Self::Seconds(|cc| &mut cc.stale_if_error, 0),
            _ => return None,
        })
    }
}

/// Delta-seconds (§1.2.2), as a token or a quoted string; §5.2 recommends that recipients accept both.
/// Anything else is 0: stale (§4.2.1).
fn seconds_in(argument: &[u8]) -> u64 {
    let digits = match argument {
        [b'"', inner @ .., b'"'] => inner,
        _ => argument,
    };
    saturating_digits(digits, DELTA_MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use ::http::header::CACHE_CONTROL;
    use proptest::prelude::*;

    use super::*;

    fn parse(lines: &[&str]) -> CacheControl {
        let headers: HeaderMap = lines
            .iter()
            .map(|line| (CACHE_CONTROL, HeaderValue::from_bytes(line.as_bytes()).unwrap()))
            .collect();
        CacheControl::parse(&headers, &CACHE_CONTROL)
    }

    #[test]
    fn nothing_is_set_without_the_field_or_by_unknown_directives() {
        for lines in [
            &[][..],
            &[""],
            &[", ,"],
            &["unknown"],
            &["max-agex=3600"],
            &["xmax-age=3600"],
            &["ext=\"max-age=3600\""],
            &["ext=\"a, max-age=3600, private\""],
            &["ext=\"a\\\", private\""],
            &["=private"],
            &["a-name-that-is-longer-than-all-that-are-known=1"],
        ] {
            assert_eq!(parse(lines), CacheControl::default(), "{lines:?}");
        }
    }

    #[test]
    fn restrictive_directives_are_obeyed_despite_stray_quotes() {
        let all = CacheControl { no_store: true, no_cache: true, private: true, ..parse(&[]) };
        let stale = CacheControl { max_age: Some(0), ..parse(&[]) };
        for (lines, expected) in [
            (&["ext=\"a, private, No-Store ,no-cache=\"set-cookie"][..], all),
            (&["ext=\"a, private=\"x\", no-store, no-cache"], all),
            (&["\"a, private, no-store, no-cache"], all),
            (&["ext=\"a\\, private, no-store, no-cache"], all),
            (&["a=\"b\", ext=\"a,private,no-store,no-cache"], all),
            (&["\"private, no-store, no-cache\""], all),
            (&["\"private\", \"no-store\", 'no-cache'"], all),
            (&["foo=\"a\", private\"; no-store", "private\"", "no-store\"", "no-cache \""], all),
            (&["ext=\"a, max-age=60, public, must-understand"], stale),
            (&["ext=\"private, no-store\", x='no-cache'"], CacheControl::default()),
            (&["ext=\"a, no-store-at-all, max-age=60"], stale),
            (&["ext=\"a, max-age=60", "max-age=600"], stale),
            (&["max-age=600, ext=\"a, max-age=60"], stale),
            (&["max-age=600", "ext=\"a, max-age=60"], stale),
            (&["max-age=\"60, s-maxage=60"], CacheControl { s_maxage: Some(0), ..stale }),
            (&["ext=\"a, must-revalidate"], CacheControl { must_revalidate: true, ..parse(&[]) }),
        ] {
            assert_eq!(parse(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn seconds_are_digits_and_anything_else_is_stale() {
        for (lines, expected) in [
            (&["max-age=3600"][..], Some(3600)),
            (&["MaX-aGe=3600"], Some(3600)),
            (&["max-age=003600"], Some(3600)),
            (&["max-age=\"3600\""], Some(3600)),
            (&["public,max-age=3600,foo"], Some(3600)),
            (&["foo=\"bar\", max-age=3600"], Some(3600)),
            (&["foo", "max-age=3600"], Some(3600)),
            (&["max-age=0"], Some(0)),
            (&["max-age=2147483647"], Some(DELTA_MAX - 1)),
            (&["max-age=2147483648"], Some(DELTA_MAX)),
            (&["max-age=99999999999"], Some(DELTA_MAX)),
            (&["max-age=99999999999999999999999999999"], Some(DELTA_MAX)),
            (&["max-age=-3600"], Some(0)),
            (&["max-age=+3600"], Some(0)),
            (&["max-age='3600'"], Some(0)),
            (&["max-age=3600.5"], Some(0)),
            (&["max-age=a3600"], Some(0)),
            (&["max-age=3600a"], Some(0)),
            (&["max-age=36 00"], Some(0)),
            (&["max-age= 3600"], Some(0)),
            (&["max-age=\"3600"], Some(0)),
            (&["max-age=\""], Some(0)),
            (&["max-age="], Some(0)),
            (&["max-age"], Some(0)),
            (&["max-age=60, max-age=3600"], Some(60)),
            (&["max-age=3600", "max-age=60"], Some(60)),
        ] {
            assert_eq!(parse(lines).max_age, expected, "{lines:?}");
        }
    }

    #[test]
    fn every_directive_sets_its_field_and_no_other() {
        let none = CacheControl::default();
        for (line, expected) in [
            ("no-store", CacheControl { no_store: true, ..none }),
            ("No-Cache", CacheControl { no_cache: true, ..none }),
            ("no-cache=\"set-cookie, x\"", CacheControl { no_cache: true, ..none }),
            ("PRIVATE", CacheControl { private: true, ..none }),
            ("private=\"set-cookie\"", CacheControl { private: true, ..none }),
            ("private =x", CacheControl { private: true, ..none }),
            ("public", CacheControl { public: true, ..none }),
            ("must-revalidate", CacheControl { must_revalidate: true, ..none }),
            ("proxy-revalidate", CacheControl { proxy_revalidate: true, ..none }),
            ("must-understand", CacheControl { must_understand: true, ..none }),
            ("no-transform", CacheControl { no_transform: true, ..none }),
            ("only-if-cached", CacheControl { only_if_cached: true, ..none }),
            ("immutable", CacheControl { immutable: true, ..none }),
            ("s-maxage=5", CacheControl { s_maxage: Some(5), ..none }),
            ("max-stale=5", CacheControl { max_stale: Some(5), ..none }),
            ("min-fresh=5", CacheControl { min_fresh: Some(5), ..none }),
            ("stale-while-revalidate=5", CacheControl { stale_while_revalidate: Some(5), ..none }),
            ("stale-if-error=5", CacheControl { stale_if_error: Some(5), ..none }),
        ] {
            assert_eq!(parse(&[line]), expected, "{line}");
        }
    }

    #[test]
    fn all_that_is_stale_is_taken_where_no_bound_is_named() {
        for (lines, expected) in [
            (&["max-stale"][..], Some(DELTA_MAX)),
            (&["Max-Stale"], Some(DELTA_MAX)),
            (&["max-stale=0"], Some(0)),
            (&["max-stale=60"], Some(60)),
            (&["max-stale=\"60\""], Some(60)),
            (&["max-stale=99999999999"], Some(DELTA_MAX)),
            (&["max-stale="], Some(0)),
            (&["max-stale=x"], Some(0)),
            (&["max-stale=-1"], Some(0)),
            (&["max-stale, max-stale=60"], Some(60)),
            (&["max-stale=60", "max-stale"], Some(60)),
            (&["max-age"], None),
            (&["min-fresh=60"], None),
        ] {
            assert_eq!(parse(lines).max_stale, expected, "{lines:?}");
        }
    }

    #[test]
    fn a_request_s_directives_are_read_together() {
        let none = CacheControl::default();
        for (line, expected) in [
            ("no-cache, max-age=0", CacheControl { no_cache: true, max_age: Some(0), ..none }),
            (
                "max-age=10, max-stale, min-fresh=5",
                CacheControl {
                    max_age: Some(10),
                    max_stale: Some(DELTA_MAX),
                    min_fresh: Some(5),
                    ..none
                },
            ),
            (
                "only-if-cached,max-stale=7200",
                CacheControl { only_if_cached: true, max_stale: Some(7200), ..none },
            ),
            ("no-store, no-transform", CacheControl { no_store: true, no_transform: true, ..none }),
            ("min-fresh", CacheControl { min_fresh: Some(0), ..none }),
            ("min-fresh=x", CacheControl { min_fresh: Some(0), ..none }),
        ] {
            assert_eq!(parse(&[line]), expected, "{line}");
        }
    }

    #[test]
    fn lines_are_joined() {
        let parsed = parse(&["private", "max-age=1, no-store"]);
        assert!(parsed.private && parsed.no_store);
        assert_eq!(parsed.max_age, Some(1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let headers: HeaderMap = [(CACHE_CONTROL, value)].into_iter().collect();
                let _ = CacheControl::parse(&headers, &CACHE_CONTROL);
            }
        }

        #[test]
        fn seconds_are_read_as_printed(seconds in 0..=DELTA_MAX, more in "[a-z]{0,5}") {
            prop_assert_eq!(parse(&[&format!("x{more}, s-maxage={seconds}")]).s_maxage, Some(seconds));
        }

        #[test]
        fn private_is_seen_wherever_it_stands(before in "[a-z=0-9,]{0,12}", after in "[a-z=\"0-9,]{0,12}") {
            let line = format!("{before}, private , {after}");
            prop_assert!(parse(&[&line]).private);
        }
    }
}
