//! Texts with a meaning of the trade: addresses, hosts, names, patterns.
//!
//! Each function gives the value or says what was expected. Nothing here knows of other
//! settings.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ::http::uri::PathAndQuery;
use ipnet::{IpNet, Ipv6Net};

use super::plan::{Address, OriginUrl, Trait, WebhookUrl};
use crate::http::forwarded;
use crate::http::host::Scheme;
use crate::http::lenient;
use crate::http::path::{Branch, PathPattern};
use crate::http::pattern::Pattern;
use crate::http::peer::Peers;
use crate::ident::is_attribute_name;

/// Longest pattern, name or host that is taken, in bytes.
const TEXT_MAX: usize = 1_024;
/// Longest path of a file that is taken, in bytes: no system opens longer ones.
const PATH_MAX: usize = 4_096;
/// The port of https.
const HTTPS: u16 = 443;
/// Longest route name, in bytes: it stands in every line of the log.
pub(super) const NAME_MAX: usize = 128;

/// Longest name of a source of rows, in bytes.
const ROWS_NAME_MAX: usize = 32;

/// An address and port to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| r#"an address and port such as "127.0.0.1:8080" or "[::]:80""#.into())
}

/// Where clients are served: address and port, `unix:` and a path, or sockets of systemd.
pub(super) fn listen_address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    if text == "systemd" {
        return Ok(Address::Systemd(None));
    }
    if let Some(name) = text.strip_prefix("systemd:") {
        let fits = |b: u8| b.is_ascii_graphic() && b != b':';
        if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) {
            return Ok(Address::Systemd(Some(name.to_owned())));
        }
        return Err(r#""systemd:" and the FileDescriptorName of a socket"#.into());
    }
    let or = |why| format!(r#"{why}, "unix:" and a path, or "systemd""#);
    address(text).map(Address::Tcp).map_err(or)
}

/// The mode of a file that others are to open, in octal.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    let digits = matches!(text.len(), 3 | 4) && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
    mode.ok_or_else(|| r#"the mode of a file such as "0660""#.into())
}

/// Where visitors by http are sent: `https`, or with a port `https:8443`.
pub(super) fn https(text: &str) -> Result<u16, String> {
    match text.split_once(':') {
        None if text == "https" => Some(HTTPS),
        Some(("https", port)) => port_number(port),
        _ => None,
    }
    .ok_or_else(|| r#""https", or with a port "https:8443""#.into())
}

/// The text that [`https`] reads back.
pub(super) fn show_https(port: &u16) -> String {
    if *port == HTTPS { "https".to_owned() } else { format!("https:{port}") }
}

/// The path of a file.
pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    file_pattern(text).map(PathBuf::from).map_err(|_| "the path of a file".to_owned())
}

/// The path of a file, or a pattern of paths.
pub(super) fn file_pattern(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > PATH_MAX || text.chars().any(char::is_control) {
        return Err(r#"the path of a file, or a pattern such as "/etc/anteroom/tls/*.pem""#.into());
    }
    Ok(text.to_owned())
}

/// Peers: a network, one address for a network of it, or `unix`.
pub(super) fn peers(text: &str) -> Result<Peers, String> {
    if text == "unix" {
        return Ok(Peers::Unix);
    }
    network(text).map(Peers::Network).map_err(|why| format!("{why}, or \"unix\""))
}

/// A network, or one address for a network of it.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text
        .parse()
        .or_else(|_| one())
        .map_err(|_| r#"an address or a network such as "10.0.0.0/8""#.to_owned())?;
    // Peers count by the address that is mapped, so that nobody would ever be meant.
    let is_mapped = |net: &Ipv6Net| net.addr().to_ipv4_mapped().is_some();
    match network {
        IpNet::V6(net) if net.prefix_len() >= 96 && is_mapped(&net) => {
            Err("a network of IPv4 as one of IPv4, such as \"10.0.0.0/8\"".to_owned())
        }
        network => Ok(network),
    }
}

/// `http://host[:port]` or `https://host[:port]`, and nothing behind it but a `/`; or `unix:` and a path.
pub(super) fn origin_url(text: &str) -> Result<OriginUrl, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| is_rooted(path)) {
        let socket = Some(PathBuf::from(path));
        return Ok(OriginUrl { socket, ..OriginUrl::http("localhost", 80) });
    }
    let lower = text.to_ascii_lowercase();
    let expected = || {
        r#"a URL such as "http://127.0.0.1:3000", without path or user, or "unix:" and a path that begins with /"#
            .to_owned()
    };
    let (scheme, rest, usual) = if let Some(rest) = lower.strip_prefix("https://") {
        (Scheme::Https, rest, 443)
    } else {
        (Scheme::Http, lower.strip_prefix("http://").ok_or_else(expected)?, 80)
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = host_and_port(authority).ok_or_else(expected)?;
    let port = port.unwrap_or(usual);
    Ok(OriginUrl { scheme, ..OriginUrl::http(host, port) })
}

/// The URL of a webhook: `http://` or `https://`, and a path and a query if it has them.
pub(super) fn webhook_url(text: &str) -> Result<WebhookUrl, String> {
    let expected = || {
        r#"a URL such as "https://crm.example.com/carts", without user and fragment, behind "webhook:""#
            .to_owned()
    };
    let authority = text.find("://").ok_or_else(expected)? + 3;
    let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |end| authority + end);
    let (server, target) = text.split_at(end);
    let server = origin_url(server).map_err(|_| expected())?;
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    let is_plain = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let is_target = is_plain && target.parse::<PathAndQuery>().is_ok();
    is_target.then_some(WebhookUrl { server, target }).ok_or_else(expected)
}

/// The URL that [`webhook_url`] reads back.
pub(super) fn show_webhook_url(url: &WebhookUrl) -> String {
    format!("{}{}", show_origin_url(&url.server), url.target)
}

/// Whether it is a path from the root on, and not the half of a URL.
fn is_rooted(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//")
}

/// The URL that [`origin_url`] reads back.
pub(super) fn show_origin_url(url: &OriginUrl) -> String {
    match &url.socket {
        Some(path) => format!("unix:{}", path.display()),
        None => format!("{}://{}:{}", url.scheme.as_str(), url.host, url.port),
    }
}

/// The name that a certificate must have: a host name, or an address.
pub(super) fn server_name(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    match rustls_pki_types::ServerName::try_from(lower.as_str()) {
        Ok(_) => Ok(lower),
        Err(_) => Err(r#"a name such as "app.example.com""#.into()),
    }
}

/// `host[:port]`, in lower case.
pub(super) fn host(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    match host_and_port(&lower) {
        Some(_) => Ok(lower),
        None => Err(r#"a host such as "example.com" or "example.com:8080""#.into()),
    }
}

/// What the origin gets as Host: `preserve` for the client's, or a host.
pub(super) fn origin_host(text: &str) -> Result<Option<String>, String> {
    if text == "preserve" {
        return Ok(None);
    }
    host(text).map(Some).map_err(|why| format!("{why}, or \"preserve\""))
}

fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port_number(port)?)),
        _ => (authority, None),
    };
    is_host(host).then_some((host, port))
}

fn port_number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.strip_suffix(']').is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok());
    }
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    (1..=253).contains(&host.len()) && host.bytes().all(known)
}

/// A cookie's name (RFC 6265 §4.1.1: a token).
pub(super) fn cookie_name(text: &str) -> Result<String, String> {
    if is_token(text) && !text.contains('*') {
        return Ok(text.to_owned());
    }
    Err("the name of a cookie".into())
}

/// What makes a segment.
pub(super) fn segment_trait(text: &str) -> Result<Trait, String> {
    const EXPECTED: &str = r#""logged_in", "attribute:group", "cookie:currency", "language", or with those that there are "language:en|de""#;
    let found = match text.split_once(':') {
        None if text == "logged_in" => Some(Trait::LoggedIn),
        None if text == "language" => Some(Trait::Language(Vec::new())),
        Some(("attribute", name)) if is_attribute_name(name) => {
            Some(Trait::Attribute(name.to_owned()))
        }
        Some(("cookie", name)) => cookie_name(name).ok().map(Trait::Cookie),
        Some(("language", tags)) => {
            let tags: Vec<String> = tags.split('|').map(str::to_ascii_lowercase).collect();
            tags.iter().all(|tag| is_language(tag)).then_some(Trait::Language(tags))
        }
        _ => None,
    };
    found.ok_or_else(|| EXPECTED.to_owned())
}

/// Whether `tag` may be a language's, such as `pt-br`.
fn is_language(tag: &str) -> bool {
    let is_part = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    tag.len() <= 35 && tag.split('-').all(is_part)
}

/// A cookie's name, or a pattern with one `*`.
pub(super) fn cookie_pattern(text: &str) -> Result<Pattern, String> {
    if !is_token(text) {
        return Err(r#"the name of a cookie, or a pattern such as "*_session""#.into());
    }
    pattern(text)
}

/// The same, or `*` for all cookies.
pub(super) fn any_cookie(text: &str) -> Result<Pattern, String> {
    match text {
        "*" => Pattern::parse(text).map_err(|error| error.to_string()),
        _ => cookie_pattern(text),
    }
}

/// A text, or a pattern of texts with one `*`.
pub(super) fn pattern_of_values(text: &str) -> Result<Pattern, String> {
    pattern(text)
}

/// The name of a field in a form.
pub(super) fn form_field(text: &str) -> Result<String, String> {
    if (1..=TEXT_MAX).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err("the name of a field in a form".into())
}

/// The name of a query parameter as it stands in a URL, or a pattern with one `*`.
pub(super) fn query_pattern(text: &str) -> Result<Pattern, String> {
    if !is_query_name(text) {
        return Err(r#"the name of a query parameter, or a pattern such as "utm_*""#.into());
    }
    pattern(text)
}

fn pattern(text: &str) -> Result<Pattern, String> {
    if text == "*" {
        return Err("one * at most, with something beside it".into());
    }
    Pattern::parse(text).map_err(|why| why.to_string())
}

/// The pattern of a path.
pub(super) fn path_pattern(text: &str) -> Result<PathPattern, String> {
    if !text.starts_with('/') || text.len() > TEXT_MAX {
        return Err("a path that begins with /".into());
    }
    if !text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#')) {
        return Err("a path as it stands in a URL, without query".into());
    }
    PathPattern::parse(text).map_err(|why| why.to_string())
}

/// A path that is purged, or with `/**` behind it a path and all below.
pub(super) fn branch(text: &str) -> Result<Branch, String> {
    let branch = Branch::parse(text).filter(|_| text.len() <= TEXT_MAX);
    branch.ok_or_else(|| r#"a path such as "/", or with all below it "/feed/**""#.into())
}

/// The name of a query parameter that a route asks for.
pub(super) fn query_name(text: &str) -> Result<(), String> {
    let fits = is_query_name(text) && !text.contains('*');
    fits.then_some(()).ok_or_else(|| "the name of a query parameter".into())
}

/// The value of a query parameter that a route asks for: a literal, or `{item}`.
pub(super) fn query_value(text: &str) -> Result<String, String> {
    if text != "{item}" && text.contains(['{', '}']) {
        return Err("a literal value, or \"{item}\"".into());
    }
    if text.len() > TEXT_MAX || text.chars().any(char::is_control) {
        return Err(format!("a printable text of at most {TEXT_MAX} bytes"));
    }
    Ok(text.to_owned())
}

fn is_query_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'&' | b'=' | b'#' | b'?');
    (1..=TEXT_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// A method as it stands in a request: a token (RFC 9110 §9.1), in upper case.
pub(super) fn method(text: &str) -> Result<String, String> {
    if text == "CONNECT" || !is_token(text) {
        return Err(r#"a method such as "GET", and not CONNECT"#.into());
    }
    let upper = text.to_ascii_uppercase();
    if upper != text {
        return Err(format!("{upper:?}: methods are told apart by their case"));
    }
    Ok(upper)
}

/// The name of a field that the page key may hold.
pub(super) fn key_header(text: &str) -> Result<http::HeaderName, String> {
    let name = field_name(text)?;
    if is_reserved(name.as_str()) || forwarded::is_reserved(name.as_str()) {
        return Err("another field: this one is removed, rewritten or never shared".into());
    }
    if forwarded::is_detour(name.as_str()) {
        return Err("another field: an app may take this one for the path or the host".into());
    }
    Ok(name)
}

/// The name of a field that a fill sends, and that the page key need not hold.
pub(super) fn send_header(text: &str) -> Result<http::HeaderName, String> {
    let name = key_header(text)?;
    if forwarded::is_other_method(name.as_str()) {
        return Err("another field: an app may take this one for the method".into());
    }
    Ok(name)
}

/// The name of the field that tells the origin who the visitor is.
pub(super) fn identity_header(text: &str) -> Result<http::HeaderName, String> {
    let name = field_name(text)?;
    let taken = is_reserved(name.as_str()) || STANDARD_FIELDS.contains(&name.as_str());
    if taken {
        return Err("a field of your own: this one has a meaning already".into());
    }
    Ok(name)
}

fn field_name(text: &str) -> Result<http::HeaderName, String> {
    text.parse().map_err(|_| r#"the name of a field such as "X-Anteroom-User""#.into())
}

/// Fields that hop between two peers (RFC 9110 §7.6.1), that say whose a request is, or that
/// we set.
fn is_reserved(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["anteroom-", "x-forwarded-", "proxy-", "if-"];
    const NAMES: [&str; 18] = [
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy",
        "range",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-anteroom-session",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Request fields with a meaning of their own, which an identity would take away.
const STANDARD_FIELDS: [&str; 18] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "date",
    "from",
    "max-forwards",
    "origin",
    "pragma",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
];

/// The name of a route.
pub(super) fn route_name(text: &str) -> Result<String, String> {
    if !(1..=NAME_MAX).contains(&text.len()) || text.chars().any(char::is_control) {
        return Err(format!("a printable name of 1 to {NAME_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// The name of a source of rows: part of keys in the store.
pub(super) fn rows_name(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !(1..=ROWS_NAME_MAX).contains(&text.len()) || !text.bytes().all(fits) {
        return Err(format!("a name of 1 to {ROWS_NAME_MAX} letters, digits, \"-\" or \"_\""));
    }
    Ok(text.to_owned())
}

/// What a further origin is called. The first one has the name of its table.
pub(super) fn origin_name(text: &str) -> Result<String, String> {
    match text {
        "origin" => Err("another name: this is the one of [origin]".to_owned()),
        text => rows_name(text),
    }
}

/// Where the origin has a row: a target with `{row}` in it, once.
pub(super) fn rows_path(text: &str) -> Result<String, String> {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    let rest = text.replacen("{row}", "", 1);
    let once = rest.len() < text.len() && !rest.contains(['{', '}']);
    let rooted = text.starts_with('/') && !text.starts_with("//") && text.len() <= TEXT_MAX;
    if printable && once && rooted {
        return Ok(text.to_owned());
    }
    Err(r#"a path with {row} in it once, such as "/api/inventory/{row}""#.into())
}

/// Where the content of a hole is: a path of the site, with a query maybe, that is none of ours.
pub(super) fn hole_path(text: &str) -> Result<String, String> {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    let rooted = text.starts_with('/') && !text.starts_with("//") && text.len() <= TEXT_MAX;
    let path = text.split('?').next().unwrap_or_default();
    let is_ours = lenient::may_begin_with(path, "_anteroom");
    if printable && rooted && !is_ours && text.parse::<::http::uri::PathAndQuery>().is_ok() {
        return Ok(text.to_owned());
    }
    Err(r#"a path such as "/partials/cart", and none under /_anteroom/"#.into())
}

/// What a server is asked to learn whether it is well.
pub(super) fn health_path(text: &str) -> Result<String, String> {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if printable && text.starts_with('/') && !text.starts_with("//") && text.len() <= TEXT_MAX {
        return Ok(text.to_owned());
    }
    Err(r#"a path such as "/healthz""#.into())
}

/// What goes before every key of the store.
pub(super) fn key_prefix(text: &str) -> Result<String, String> {
    if text.len() > NAME_MAX || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("at most {NAME_MAX} bytes of visible ASCII"));
    }
    Ok(text.to_owned())
}

/// A token by RFC 9110 §5.6.2: methods, and the names of cookies.
fn is_token(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=TEXT_MAX).contains(&text.len()) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_a_server_and_a_target() {
        for (text, shown) in [
            ("https://Crm.Example", "https://crm.example:443/"),
            ("http://127.0.0.1:8000/Carts?a=B", "http://127.0.0.1:8000/Carts?a=B"),
            ("http://[::1]?q", "http://[::1]:80/?q"),
        ] {
            let url = webhook_url(text).unwrap();
            assert_eq!(show_webhook_url(&url), shown);
            assert_eq!(webhook_url(shown), Ok(url), "{text}");
        }
        for text in
            ["", "crm", "unix:/run/a", "unix:///run/a", "https://", "https:///a", "http://a/\u{e9}"]
        {
            webhook_url(text).expect_err(text);
        }
    }

    #[test]
    fn an_origin_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("http://127.0.0.1:3000", "127.0.0.1", 3000),
            ("http://app", "app", 80),
            ("HTTP://App.Example/", "app.example", 80),
            ("http://[::1]:8080", "[::1]", 8080),
            ("http://[::1]", "[::1]", 80),
        ] {
            let url = OriginUrl::http(host, port);
            assert_eq!(origin_url(text).as_ref(), Ok(&url), "{text}");
            assert_eq!(origin_url(&show_origin_url(&url)), Ok(url), "{text}");
        }
        for (text, shown) in [
            ("https://App", "https://app:443"),
            ("https://[::1]:8443/", "https://[::1]:8443"),
            ("unix:/run/App.sock", "unix:/run/App.sock"),
        ] {
            let url = origin_url(text).unwrap();
            assert_eq!(show_origin_url(&url), shown);
            assert_eq!(origin_url(shown), Ok(url), "{text}");
        }
        for text in [
            "",
            "127.0.0.1:3000",
            "http://",
            "http://a:0",
            "http://a:65536",
            "http://a:+1",
            "http://a/path",
            "http://a//",
            "http://a?q",
            "http://u:p@a",
            "http://[::1",
            "http://::1",
            "http://[1]",
            "https://a/path",
            "unix:",
            "unix:app.sock",
            "unix://app.sock",
        ] {
            assert!(origin_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_pattern_is_a_path_as_it_stands_in_a_url() {
        for good in ["/", "/a/*/b", "/**", "/a/**", "/item/{item}", "/a/*.css", "/a%20b/"] {
            assert_eq!(path_pattern(good).unwrap().as_str(), good);
        }
        for bad in ["", "a", "/**/a/**", "/{id}", "/{item}/{item}", "/a?b", "/a#b", "/a b", "/ä"] {
            assert!(path_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cookie_pattern_has_one_star_with_something_beside_it() {
        for good in ["login", "*_session", "a_*_a"] {
            assert_eq!(cookie_pattern(good).unwrap().to_string(), good);
        }
        for bad in ["", "*", "**", "a*b*", "a b", "a=b", "a;b", "ä"] {
            assert!(cookie_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_identity_takes_no_name_that_means_something_else() {
        assert!(identity_header("X-Remote-User").is_ok());
        for bad in ["Host", "cookie", "Connection", "Via", "X-Forwarded-For", "Accept", "a b", ""] {
            assert!(identity_header(bad).is_err(), "{bad}");
        }
    }
}
