//! Content codings (RFC 9110 §8.4.1): the coding of a response, the codings that a client accepts
//! (`Accept-Encoding`, §12.5.3), and the one to send.
//!
//! How a body is coded, and whether it may be recoded, is decided elsewhere.

use ::http::HeaderMap;
use ::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};

use super::list::{divide, members, split, trim};

/// The codings that this proxy can decode, as `Accept-Encoding` lists them.
pub const READABLE: &str = "gzip, br, zstd";

/// A coding that this proxy can decode and encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// No coding.
    Identity,
    /// `gzip` (RFC 1952), also by its old name `x-gzip`
    Gzip,
    /// `br` (RFC 7932)
    Brotli,
    /// `zstd` (RFC 8878)
    Zstd,
}

impl Coding {
    /// All codings, `Identity` included.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Gzip, Self::Brotli, Self::Zstd];

    /// The registered name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    fn parse(name: &[u8]) -> Option<Self> {
        // RFC 9110 §8.4.1.3: `x-gzip` is equivalent to `gzip`.
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.as_str().as_bytes()))
    }

    /// The coding of a response; `None` if it has several codings, or an unknown one.
    #[must_use]
    pub fn of(response: &HeaderMap) -> Option<Self> {
        let mut codings = members(response, &CONTENT_ENCODING);
        match (codings.next(), codings.next()) {
            (None, _) => Some(Self::Identity),
            (Some(only), None) => Self::parse(only),
            (Some(_), Some(_)) => None,
        }
    }
}

/// The `Accept-Encoding` of a fetch for the client of `request`, whose response may be recoded for others: those of
/// [`READABLE`] that this client accepts. `None`: no coding.
#[must_use]
pub fn readable_for(request: &HeaderMap) -> Option<&'static str> {
    let accepted = AcceptedCodings::parse(request);
    let takes = |coding| accepted.takes(coding);
    match (takes(Coding::Gzip), takes(Coding::Brotli), takes(Coding::Zstd)) {
        (true, true, true) => Some(READABLE),
        (true, true, false) => Some("gzip, br"),
        (true, false, true) => Some("gzip, zstd"),
        (true, false, false) => Some("gzip"),
        (false, true, true) => Some("br, zstd"),
        (false, true, false) => Some("br"),
        (false, false, true) => Some("zstd"),
        (false, false, false) => None,
    }
}

/// The weight that a client gives to a coding, from 0 (not acceptable) to 1000 (RFC 9110 §12.4.2).
pub type Quality = u16;

/// The weight of no coding, if the field neither lists nor refuses it: below every listed coding.
const UNSTATED: Quality = 1;

/// The codings that a request accepts, with weights.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptedCodings {
    listed: [Option<Quality>; Coding::ALL.len()],
    /// The weight of `*`, for codings that are not listed.
    others: Option<Quality>,
}

impl AcceptedCodings {
    /// Parses all `Accept-Encoding` lines. If a coding is listed twice, the lower weight counts.
    ///
    /// Without the field any coding would be acceptable (§12.5.3). In practice most clients without it cannot
    /// decode any, so the result then accepts no coding.
    #[must_use]
    pub fn parse(request: &HeaderMap) -> Self {
        let mut accepted = Self::default();
        for member in members(request, &ACCEPT_ENCODING) {
            let name = trim(divide(member, b';').0);
            let place = match Coding::parse(name) {
                Some(coding) => &mut accepted.listed[coding as usize],
                None if name == b"*" => &mut accepted.others,
                None => continue,
            };
            let quality = quality(member);
            *place = Some(place.map_or(quality, |other| other.min(quality)));
        }
        accepted
    }

    /// The weight of a coding.
    #[must_use]
    pub fn quality(&self, coding: Coding) -> Quality {
        let said = self.listed[coding as usize].or(self.others);
        said.unwrap_or(if coding == Coding::Identity { UNSTATED } else { 0 })
    }

    /// Whether a coding is acceptable.
    #[must_use]
    pub fn takes(&self, coding: Coding) -> bool {
        self.quality(coding) > 0
    }
}

/// The coding in which a client is sent a response that is stored as `stored` and can be recoded as any of
/// `ours`, the most preferred first. `None`: the client accepts none of them.
///
/// A stored coding goes out unchanged to every client that accepts it, because this costs nothing. A response
/// stored without coding goes out in the one of `ours` with the highest weight, unless no coding has a higher
/// one.
#[must_use]
pub fn choose(accepted: &AcceptedCodings, stored: Coding, ours: &[Coding]) -> Option<Coding> {
    if stored != Coding::Identity && accepted.takes(stored) {
        return Some(stored);
    }
    // `max_by_key` returns the last of equal elements, which is the first of `ours`.
    let candidates = [Coding::Identity].iter().chain(ours.iter().rev());
    candidates
        .copied()
        .filter(|coding| accepted.takes(*coding))
        .max_by_key(|coding| accepted.quality(*coding))
}

/// Whether a client accepts all codings of `response`, including unknown ones.
#[must_use]
pub fn takes_as_it_is(request: &HeaderMap, response: &HeaderMap) -> bool {
    let accepted = AcceptedCodings::parse(request);
    members(response, &CONTENT_ENCODING).all(|coding| match Coding::parse(coding) {
        // A response without coding suits every client.
        Some(Coding::Identity) => true,
        Some(known) => accepted.takes(known),
        None => takes_unknown(request, coding, &accepted),
    })
}

fn takes_unknown(request: &HeaderMap, coding: &[u8], accepted: &AcceptedCodings) -> bool {
    let mut named = members(request, &ACCEPT_ENCODING)
        .filter(|member| trim(divide(member, b';').0).eq_ignore_ascii_case(coding))
        .peekable();
    if named.peek().is_none() {
        return accepted.others.is_some_and(|quality| quality > 0);
    }
    named.all(|member| quality(member) > 0)
}

/// The weight of a list member, in thousandths. A missing or malformed weight is 1.
pub(crate) fn quality(member: &[u8]) -> Quality {
    let weight = split(member, b';').skip(1).find_map(|parameter| {
        let (name, value) = divide(parameter, b'=');
        value.map(trim).filter(|_| trim(name).eq_ignore_ascii_case(b"q"))
    });
    let (whole, fraction) = weight.map_or((b"1".as_slice(), None), |text| divide(text, b'.'));
    let digits = fraction.unwrap_or_default();
    match whole {
        b"0" if digits.iter().all(u8::is_ascii_digit) => {
            // A nonzero weight stays nonzero, however small.
            let least = Quality::from(digits.iter().any(|digit| *digit != b'0'));
            let places = digits.iter().copied().chain(std::iter::repeat(b'0')).take(3);
            let thousandths = places.fold(0, |sum, digit| sum * 10 + Quality::from(digit - b'0'));
            thousandths.max(least)
        }
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::Coding::{Brotli, Gzip, Identity, Zstd};
    use super::*;

    const OURS: [Coding; 3] = [Zstd, Brotli, Gzip];

    fn with(name: &HeaderName, lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (name.clone(), HeaderValue::from_str(line).unwrap())).collect()
    }

    fn accepting(lines: &[&str]) -> AcceptedCodings {
        AcceptedCodings::parse(&with(&ACCEPT_ENCODING, lines))
    }

    #[test]
    fn a_response_is_in_one_coding_or_in_one_that_we_do_not_know() {
        for (lines, expected) in [
            (&[][..], Some(Identity)),
            (&[""], Some(Identity)),
            (&["identity"], Some(Identity)),
            (&["gzip"], Some(Gzip)),
            (&["X-GZip"], Some(Gzip)),
            (&["BR"], Some(Brotli)),
            (&[" zstd "], Some(Zstd)),
            (&["deflate"], None),
            (&["*"], None),
            (&["gzip, br"], None),
            (&["gzip", "gzip"], None),
            (&["gzip;q=1"], None),
        ] {
            assert_eq!(Coding::of(&with(&CONTENT_ENCODING, lines)), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_body_stored_uncoded_is_sent_in_the_preferred_coding() {
        for (lines, expected) in [
            (&[][..], Some(Identity)),
            (&[""], Some(Identity)),
            (&["identity"], Some(Identity)),
            (&["deflate, compress"], Some(Identity)),
            (&["gzip, deflate, br, zstd"], Some(Zstd)),
            (&["gzip, deflate, br"], Some(Brotli)),
            (&["gzip", "br"], Some(Brotli)),
            (&["gzip"], Some(Gzip)),
            (&["x-gzip;q=0.2"], Some(Gzip)),
            (&["zstd;q=0.5, gzip;q=0.9, br;q=0.4"], Some(Gzip)),
            (&["zstd;q=0.5, br;Q=0.5"], Some(Zstd)),
            (&["gzip;q=0.001"], Some(Gzip)),
            (&["gzip;q=0.0001"], Some(Gzip)),
            (&["gzip;q=0"], Some(Identity)),
            (&["gzip;q=0.000, br;q=0.0"], Some(Identity)),
            (&["gzip, gzip;q=0"], Some(Identity)),
            (&["*"], Some(Zstd)),
            (&["*;q=0.5, gzip"], Some(Gzip)),
            (&["zstd;q=0, *"], Some(Brotli)),
            (&["*;q=0"], None),
            (&["identity;q=0"], None),
            (&["identity;q=0, gzip"], Some(Gzip)),
            (&["*;q=0, gzip;q=0.1"], Some(Gzip)),
            (&["*;q=0, identity"], Some(Identity)),
            (&["identity;q=0, *"], Some(Zstd)),
            (&["identity, gzip"], Some(Gzip)),
            (&["identity;q=0.5, gzip;q=0.4"], Some(Identity)),
            (&["identity;q=0.4, gzip;q=0.5"], Some(Gzip)),
            (&["gzip;q=bad"], Some(Gzip)),
            (&["gzip;q"], Some(Gzip)),
            (&["gzip ; q = 0"], Some(Identity)),
        ] {
            assert_eq!(choose(&accepting(lines), Identity, &OURS), expected, "{lines:?}");
        }
        assert_eq!(choose(&accepting(&["gzip, br, zstd"]), Identity, &[Gzip, Zstd]), Some(Gzip));
        assert_eq!(choose(&accepting(&["gzip, br, zstd"]), Identity, &[]), Some(Identity));
    }

    #[test]
    fn a_coded_body_is_sent_as_stored_to_clients_that_accept_it() {
        for (lines, ours, expected) in [
            (&["gzip, deflate, br, zstd"][..], &OURS[..], Some(Gzip)),
            (&["br, gzip;q=0.1"], &OURS, Some(Gzip)),
            (&["br"], &OURS, Some(Brotli)),
            (&["br"], &[], Some(Identity)),
            (&[], &OURS, Some(Identity)),
            (&["identity"], &OURS, Some(Identity)),
            (&["gzip;q=0"], &OURS, Some(Identity)),
            (&["gzip;q=0, *"], &OURS, Some(Zstd)),
            (&["identity;q=0, br"], &[], None),
            (&["*;q=0"], &OURS, None),
        ] {
            assert_eq!(choose(&accepting(lines), Gzip, ours), expected, "{lines:?}");
        }
    }

    #[test]
    fn codings_that_we_do_not_know_are_compared_by_name() {
        for (lines, coded, expected) in [
            (&[][..], &[][..], true),
            (&[], &["identity"], true),
            (&["identity;q=0"], &["identity"], true),
            (&[], &["gzip"], false),
            (&["gzip"], &["gzip"], true),
            (&["Deflate"], &["deflate"], true),
            (&["deflate;q=0"], &["deflate"], false),
            (&["deflate, deflate;q=0"], &["deflate"], false),
            (&["gzip"], &["deflate"], false),
            (&["*"], &["deflate"], true),
            (&["*;q=0"], &["deflate"], false),
            (&["gzip"], &["gzip, deflate"], false),
            (&["gzip, deflate"], &["gzip", "deflate"], true),
        ] {
            let (request, response) =
                (with(&ACCEPT_ENCODING, lines), with(&CONTENT_ENCODING, coded));
            assert_eq!(takes_as_it_is(&request, &response), expected, "{lines:?} {coded:?}");
        }
    }

    #[test]
    fn the_proxy_requests_only_codings_it_can_read() {
        let accepted = accepting(&[READABLE]);
        assert!(Coding::ALL.into_iter().all(|coding| accepted.takes(coding)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let headers: HeaderMap =
                    [ACCEPT_ENCODING, CONTENT_ENCODING].map(|name| (name, value.clone())).into_iter().collect();
                let _ = (Coding::of(&headers), takes_as_it_is(&headers, &headers));
            }
        }

        #[test]
        fn no_client_is_sent_a_coding_it_refuses(
            line in "((gzip|br|zstd|identity|\\*)(;q=(0|1|0\\.[0-9]{0,3}))?, ){0,4}x",
            stored in 0_usize..4,
            count in 0_usize..=3,
        ) {
            let accepted = accepting(&[&line]);
            let (stored, ours) = (Coding::ALL[stored], &OURS[..count]);
            match choose(&accepted, stored, ours) {
                Some(chosen) => {
                    prop_assert!(accepted.takes(chosen));
                    prop_assert!(chosen == stored || chosen == Identity || ours.contains(&chosen));
                }
                None => {
                    prop_assert!(!accepted.takes(stored) && !accepted.takes(Identity));
                    prop_assert!(ours.iter().all(|coding| !accepted.takes(*coding)));
                }
            }
        }
    }
}
