//! Paths as a lenient origin might read them: decoded more than once, with backslashes as slashes, parameters
//! cut off, and trailing dots ignored.
//!
//! Which paths belong to the proxy itself is decided elsewhere.

use super::path::is_odd;

/// Whether any origin, however lenient, could read `path` as one whose first segment is `name`. `name` is
/// lower-case; the comparison ignores case. Where two parsers might differ about the first segment, any
/// segment counts.
#[must_use]
pub fn may_begin_with(path: &str, name: &str) -> bool {
    // PERF: this scan settles most paths.
    let is_plain = path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'%' | b'\\'));
    let mut windows = path.as_bytes().windows(name.len().max(1));
    if is_plain && !windows.any(|window| window.eq_ignore_ascii_case(name.as_bytes())) {
        return false;
    }
    let decoded = wholly_decoded(path);
    let mut segments = decoded
        .split(|b| matches!(b, b'/' | b'\\'))
        .map(bare)
        .skip_while(|segment| segment.is_empty());
    if is_odd(path) || climbs(path, &decoded) {
        segments.any(|segment| segment == name.as_bytes())
    } else {
        segments.next().is_some_and(|segment| segment == name.as_bytes())
    }
}

/// Whether decoding reveals segments that were not separate in the raw path, or segments that some servers
/// treat like dot segments. Either can change which segment comes first.
fn climbs(path: &str, decoded: &[u8]) -> bool {
    let slashes = |text: &[u8]| text.iter().filter(|b| matches!(b, b'/' | b'\\')).count();
    let vanishes = |segment: &[u8]| !segment.is_empty() && bare(segment).is_empty();
    slashes(decoded) > slashes(path.as_bytes())
        || decoded.split(|b| matches!(b, b'/' | b'\\')).any(vanishes)
}

/// A segment without what some servers cut off: parameters, an encoded query or fragment, control characters,
/// and surrounding spaces and dots.
fn bare(segment: &[u8]) -> Vec<u8> {
    let cut = segment.split(|b| matches!(b, b';' | b'?' | b'#')).next().unwrap_or_default();
    let seen = cut.iter().filter(|b| !b.is_ascii_control()).map(u8::to_ascii_lowercase);
    let text: Vec<u8> = seen.collect();
    let keeps = |b: &u8| !matches!(b, b' ' | b'.');
    let from = text.iter().position(keeps).unwrap_or(text.len());
    let to = text.iter().rposition(keeps).map_or(from, |last| last + 1);
    text[from..to].to_vec()
}

/// `text` decoded until no encoding is left: `%5f`, `%255f`, `%u005f` and the overlong `%c1%9f` all become
/// `_`. Invalid encodings stay. Runs in linear time: each decoded byte is checked again in place.
fn wholly_decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        out.push(byte);
        while let Some((length, decoded)) = encoding_at_end(&out) {
            out.truncate(out.len() - length);
            out.push(decoded);
        }
    }
    out
}

/// The encoding at the end of `text`: its length, and the byte that it encodes.
fn encoding_at_end(text: &[u8]) -> Option<(usize, u8)> {
    match text {
        [.., b'%', b'u' | b'U', b'0', b'0', high, low] => Some((6, hex_pair(*high, *low)?)),
        [.., b'%', high, low] => Some((3, hex_pair(*high, *low)?)),
        [.., lead @ (0xc0 | 0xc1), rest @ 0x80..=0xbf] => {
            Some((2, (lead & 1) << 6 | (rest & 0x3f)))
        }
        [.., 0xe0, middle @ (0x80 | 0x81), rest @ 0x80..=0xbf] => {
            Some((3, (middle & 1) << 6 | (rest & 0x3f)))
        }
        [.., 0xf0, 0x80, middle @ (0x80 | 0x81), rest @ 0x80..=0xbf] => {
            Some((4, (middle & 1) << 6 | (rest & 0x3f)))
        }
        _ => None,
    }
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_reserved(path: &str) -> bool {
        may_begin_with(path, "_anteroom")
    }

    #[test]
    fn every_spelling_of_the_first_segment_is_found() {
        for path in [
            "/_anteroom",
            "/_anteroom/",
            "/_anteroom/me",
            "/_ANTEROOM/me",
            "/%5Fanteroom/me",
            "/%255fanteroom/me",
            "/%25255fanteroom/me",
            "/%%35%66anteroom/me",
            "/%u005fanteroom/me",
            "/%c1%9fanteroom/me",
            "/%e0%81%9fanteroom/me",
            "/%f0%80%81%9fanteroom/me",
            "/x/..%20/_anteroom/me",
            "/x/%25u002e%25u002e/_anteroom/me",
            "/x/%25c0%25ae%25c0%25ae/_anteroom/me",
            "/x%25c0%25af..%25c0%25af_anteroom/me",
            "/x%25u002f..%25u002f_anteroom/me",
            "//_anteroom/me",
            "/%2f_anteroom/me",
            "/%c0%af_anteroom/me",
            "/./_anteroom/me",
            "/%2e/_anteroom/me",
            "/x/../_anteroom/me",
            "/x/..;/_anteroom/me",
            "/x/%2e%2e/_anteroom/me",
            "/x/..%2f_anteroom/me",
            "/x/..%5c_anteroom/me",
            "/\\_anteroom/me",
            "\\_anteroom\\me",
            "/_anteroom\\me",
            "/_anteroom%2fme",
            "/_anteroom%252fme",
            "/_anteroom;x=1/me",
            "/;x/_anteroom/me",
            "/_anteroom%3fme",
            "/_anteroom%23me",
            "/_anteroom%00/me",
            "/_anteroom./me",
            "/_anteroom%20/me",
            "/_ante%0aroom/me",
            "/_anteroom/../me",
            "_anteroom/me",
        ] {
            assert!(is_reserved(path), "{path}");
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        for path in [
            "/",
            "*",
            "",
            "/anteroom/me",
            "/_anteroom-x/me",
            "/_anteroomx",
            "/blog/_anteroom/me",
            "/blog/%5fanteroom",
            "/a%20b/%2f%zz",
            "/_/anteroom",
        ] {
            assert!(!is_reserved(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(path in ".{0,80}", odd in "[/%_a-f0-9.;\\\\]{0,80}") {
            is_reserved(&path);
            is_reserved(&odd);
        }

        #[test]
        fn however_often_it_was_encoded_it_is_found(mask in any::<u16>(), times in 1..5_usize) {
            let mut text = String::from("_anteroom");
            for _ in 0..times {
                text = text
                    .bytes()
                    .enumerate()
                    .map(|(at, b)| match mask >> (at % 16) & 1 {
                        0 => char::from(b).to_string(),
                        _ => format!("%{b:02x}"),
                    })
                    .collect();
            }
            let path = format!("/{text}/me");
            prop_assert!(is_reserved(&path), "{}", path);
        }
    }
}
