//! What an authority for certificates is reached by, and told.

use ::http::Uri;

use super::NAME_MAX;

/// The URL of an authority's directory.
pub(crate) fn acme_directory(text: &str) -> Result<String, String> {
    const EXPECTED: &str =
        r#"an https URL such as "https://acme-v02.api.letsencrypt.org/directory""#;
    let url = text.parse::<Uri>().map_err(|_| EXPECTED.to_owned())?;
    let is_https = url.scheme_str() == Some("https");
    let has_host = url.authority().is_some_and(|host| !host.as_str().contains('@'));
    (is_https && has_host).then(|| text.to_owned()).ok_or_else(|| EXPECTED.to_owned())
}

/// An address for mail, as far as a URL of the scheme mailto can hold it.
pub(crate) fn acme_email(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_graphic() && !b",;?&%<>\"".contains(&b);
    let is_whole = text
        .split_once('@')
        .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty() && !host.contains('@'));
    (is_whole && text.len() <= NAME_MAX && text.bytes().all(fits))
        .then(|| text.to_owned())
        .ok_or_else(|| r#"an address for mail such as "admin@example.com""#.to_owned())
}

/// The name of a profile.
pub(crate) fn acme_profile(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    ((1..=NAME_MAX).contains(&text.len()) && text.bytes().all(fits))
        .then(|| text.to_owned())
        .ok_or_else(|| r#"the name of a profile such as "tlsserver""#.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_an_https_url_and_a_contact_is_one_address() {
        assert!(acme_directory("https://localhost:14000/dir").is_ok());
        for bad in ["", "letsencrypt", "http://a.net/dir", "/dir", "https://u@a.net/dir"] {
            assert!(acme_directory(bad).is_err(), "{bad}");
        }
        assert!(acme_email("admin@example.com").is_ok());
        for bad in ["admin", "@a.net", "a@", "a@b@c", "a@b.net,c@d.net", "a b@c.net"] {
            assert!(acme_email(bad).is_err(), "{bad}");
        }
        assert!(acme_profile("tlsserver").is_ok() && acme_profile("a b").is_err());
    }
}
