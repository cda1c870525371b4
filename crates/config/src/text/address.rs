//! Addresses, networks, hosts, URLs and files.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ::http::uri::PathAndQuery;
use anteroom_http::host::Scheme;
use anteroom_http::host_pattern::HostPattern;
use anteroom_http::peer::Peers;
use ipnet::{IpNet, Ipv6Net};

use super::NAME_MAX;
use super::path::path_prefix;
use crate::plan::{Address, OriginUrl, TracesEndpoint, WebhookUrl};

/// The longest file path, in bytes; no system opens longer ones.
const PATH_MAX: usize = 4_096;

/// The port of https.
pub(crate) const HTTPS: u16 = 443;

/// An address and port to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| r#"an address and port such as "127.0.0.1:8080" or "[::]:80""#.into())
}

/// A listener's address: address and port, `unix:` and a path, or sockets of systemd.
pub(crate) fn listen_address(text: &str) -> Result<Address, String> {
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
    if let Some(port) = text.strip_prefix(':').and_then(port_number) {
        return Ok(Address::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))));
    }
    let or = |why| match meant_listen_address(text) {
        Some(meant) => meant,
        None => format!(r#"{why}, ":8080" for all addresses, "unix:" and a path, or "systemd""#),
    };
    address(text).map(Address::Tcp).map_err(or)
}

/// What was probably meant by an address in the notation of another proxy.
fn meant_listen_address(text: &str) -> Option<String> {
    let first = text.split_whitespace().next()?;
    let plain = ["http://", "https://", "tcp://"].iter().find_map(|it| first.strip_prefix(it));
    let plain = plain.unwrap_or(first).trim_end_matches('/');
    let port = plain.rsplit_once(':').map_or(plain, |(_, port)| port);
    if is_beyond_ports(port) {
        return Some("a port from 1 to 65535".to_owned());
    }
    let every = plain.strip_prefix("*:").or(Some(plain)).filter(|port| port_number(port).is_some());
    if let Some(port) = every {
        return Some(format!("\":{port}\""));
    }
    if let Ok(ip) = plain.parse::<IpAddr>() {
        return Some(format!("a port, too, as in \"{}\"", SocketAddr::new(ip, 8080)));
    }
    let loopback = plain.replacen("localhost", "127.0.0.1", 1);
    loopback.parse::<SocketAddr>().ok().map(|address| format!("\"{address}\""))
}

/// Whether this is a number, and too large for a port.
fn is_beyond_ports(text: &str) -> bool {
    text.len() > 4 && text.bytes().all(|b| b.is_ascii_digit()) && port_number(text).is_none()
}

/// A file mode, in octal.
pub(crate) fn mode(text: &str) -> Result<u32, String> {
    let digits = matches!(text.len(), 3 | 4) && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
    mode.ok_or_else(|| r#"a file mode such as "0660""#.into())
}

/// Where visitors by http are redirected: `https`, or with a port `https:8443`.
pub(crate) fn https(text: &str) -> Result<u16, String> {
    match text.split_once(':') {
        None if text == "https" => Some(HTTPS),
        Some(("https", port)) => port_number(port),
        _ => None,
    }
    .ok_or_else(|| r#""https", or with a port "https:8443""#.into())
}

/// The text that [`https`] reads back.
pub(crate) fn show_https(port: &u16) -> String {
    if *port == HTTPS { "https".to_owned() } else { format!("https:{port}") }
}

/// The path of a file.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    file_pattern(text).map(PathBuf::from).map_err(|_| "the path of a file".to_owned())
}

/// The path of a certificate file, or a pattern of paths.
pub(crate) fn file_pattern(text: &str) -> Result<String, String> {
    let expected = r#"the path of a file, or a pattern such as "/etc/anteroom/tls/*.pem""#;
    if is_path(text) { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

/// The path of a configuration file, or a pattern of paths.
pub(crate) fn config_pattern(text: &str) -> Result<String, String> {
    let expected = r#"the path of a file, or a pattern such as "conf.d/*.toml""#;
    if is_path(text) { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

/// Whether this may be the path of a file.
pub(crate) fn is_path(text: &str) -> bool {
    (1..=PATH_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Peers: a network, a single address, or `unix`.
pub(crate) fn peers(text: &str) -> Result<Peers, String> {
    if text == "unix" {
        return Ok(Peers::Unix);
    }
    network(text).map(Peers::Network).map_err(|why| format!("{why}, or \"unix\""))
}

/// A network, or a single address as a network.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text
        .parse()
        .or_else(|_| one())
        .map_err(|_| r#"an address or a network such as "10.0.0.0/8""#.to_owned())?;
    // Peers are compared by their IPv4 address, so a network of mapped addresses would match nothing.
    let is_mapped = |net: &Ipv6Net| net.addr().to_ipv4_mapped().is_some();
    match network {
        IpNet::V6(net) if net.prefix_len() >= 96 && is_mapped(&net) => {
            Err("an IPv4 network in IPv4 notation, such as \"10.0.0.0/8\"".to_owned())
        }
        // A network is easily wider than the address in it suggests.
        net if net.addr() != net.network() => {
            Err(format!("the network \"{}\", or the address \"{}\"", net.trunc(), net.addr()))
        }
        network => Ok(network),
    }
}

/// `http://host[:port]` or `https://host[:port]` with at most a `/` after it; or `unix:` and a path.
pub(crate) fn origin_url(text: &str) -> Result<OriginUrl, String> {
    // nginx ends the path of a socket with a colon.
    let is_socket = |path: &&str| is_rooted(path) && !path.ends_with(':') && !path.contains(":/");
    if let Some(path) = text.strip_prefix("unix:").filter(is_socket) {
        let socket = Some(PathBuf::from(path));
        return Ok(OriginUrl { socket, ..OriginUrl::http("localhost", 80) });
    }
    let lower = text.to_ascii_lowercase();
    let expected = || {
        meant_origin_url(&lower).unwrap_or_else(|| {
            r#"a URL such as "http://127.0.0.1:3000", without path or user, or "unix:" and a path that begins with /"#
                .to_owned()
        })
    };
    let (scheme, rest, usual) = match lower.split_once("://") {
        Some(("https", rest)) => (Scheme::Https, rest, HTTPS),
        Some(("http", rest)) => (Scheme::Http, rest, 80),
        Some(_) => return Err(expected()),
        // As on a command line: localhost:3000. A port alone, or a scheme with a mistake behind it, is no host.
        None => {
            let host = lower.split(':').next().unwrap_or_default();
            let is_port = host.bytes().all(|byte| byte.is_ascii_digit());
            if is_port || ["http", "https", "unix", "off"].contains(&host) {
                return Err(expected());
            }
            (Scheme::Http, lower.as_str(), 80)
        }
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = host_and_port(authority).ok_or_else(expected)?;
    let port = port.unwrap_or(usual);
    Ok(OriginUrl { scheme, ..OriginUrl::http(host, port) })
}

/// What was probably meant by a URL in the notation of another proxy.
fn meant_origin_url(text: &str) -> Option<String> {
    let (before, rest) = text.split_once("://").unwrap_or(("", text));
    // Apache writes the socket before the scheme: unix:/run/php.sock|fcgi://localhost.
    let scheme = before.rsplit('|').next().unwrap_or(before);
    if ["fastcgi", "fcgi", "uwsgi", "scgi", "ajp"].contains(&scheme) {
        return Some(format!(
            "an app that speaks HTTP: for {scheme} put a web server in between, as in docs/guides/apps.md#php"
        ));
    }
    if let Some((_, path)) = text.split_once("unix:").filter(|(_, path)| is_rooted(path)) {
        let path = path.split(':').next().filter(|path| is_path(path) && !path.contains('"'))?;
        return Some(format!("\"unix:{path}\""));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').unwrap_or(("", authority));
    if is_beyond_ports(port) {
        return Some("a port from 1 to 65535".to_owned());
    }
    if host.is_empty() && scheme.is_empty() && port_number(port).is_some() && path.is_empty() {
        return Some(format!("\"http://127.0.0.1:{port}\""));
    }
    host_and_port(authority)?;
    let is_http = ["", "http", "https"].contains(&scheme);
    let known = if scheme == "https" { scheme } else { "http" };
    match scheme {
        "h2c" | "grpc" => Some(format!("\"http://{authority}\", with http2 = \"always\"")),
        "tcp" | "ws" => Some(format!("\"http://{authority}\"")),
        "wss" => Some(format!("\"https://{authority}\"")),
        _ if is_http => {
            let prefix = path_prefix(&format!("/{}", path.trim_end_matches('/'))).ok()?;
            let add = format!("a [[route]] adds a path by add_prefix = \"{prefix}\"");
            Some(format!("\"{known}://{authority}\"; {add}"))
        }
        _ => None,
    }
}

/// The URL that [`origin_url`] reads back.
pub(crate) fn show_origin_url(url: &OriginUrl) -> String {
    url.to_string()
}

/// The URL of a webhook: `http://` or `https://`, with an optional path and query.
pub(crate) fn webhook_url(text: &str) -> Result<WebhookUrl, String> {
    let expected = || {
        r#"a URL such as "https://crm.example.com/carts", without user and fragment, after "webhook:""#
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
pub(crate) fn show_webhook_url(url: &WebhookUrl) -> String {
    format!("{}{}", show_origin_url(&url.server), url.target)
}

/// Whether a host of a URL is this machine.
pub(crate) fn is_near(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The URL of a receiver of traces, without the `/v1/traces` that is added.
pub(crate) fn traces_endpoint(text: &str) -> Result<TracesEndpoint, String> {
    let expected =
        || r#"a URL such as "http://127.0.0.1:4318", without user, query and fragment"#.to_owned();
    let WebhookUrl { server, target } = webhook_url(text).map_err(|_| expected())?;
    if target.contains('?') {
        return Err(expected());
    }
    let path = target.trim_end_matches('/').to_owned();
    if path.ends_with(TRACES_PATH) {
        return Err(format!("a URL without {TRACES_PATH}, which is added"));
    }
    Ok(TracesEndpoint { server, path })
}

/// Where an endpoint takes traces (OTLP specification, "OTLP/HTTP Request").
const TRACES_PATH: &str = "/v1/traces";

/// The URL that [`traces_endpoint`] reads back.
pub(crate) fn show_traces_endpoint(endpoint: &TracesEndpoint) -> String {
    format!("{}{}", show_origin_url(&endpoint.server), endpoint.path)
}

/// Whether the text is an absolute path, and not part of a URL.
fn is_rooted(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//")
}

/// The name that a certificate must contain: a host name or an address.
pub(crate) fn server_name(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    match rustls_pki_types::ServerName::try_from(lower.as_str()) {
        Ok(_) => Ok(lower),
        Err(_) => Err(r#"a name such as "app.example.com""#.into()),
    }
}

/// `host[:port]`, in lower case.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    match host_and_port(&lower) {
        Some(_) => Ok(lower),
        None => Err(r#"a host such as "example.com" or "example.com:8080""#.into()),
    }
}

/// `[*.]host[:port]`, in lower case, and as DNS has it.
pub(crate) fn host_pattern(text: &str) -> Result<HostPattern, String> {
    let is_name = text != "_";
    let pattern = match text.is_ascii() {
        true => HostPattern::parse(text),
        false => in_ascii(text).and_then(|ascii| HostPattern::parse(&ascii)),
    };
    pattern.filter(|_| is_name).ok_or_else(|| meant_host(text))
}

/// A host with letters beyond ASCII as browsers send it (UTS #46): `xn--bcher-kva.example` for `bücher.example`.
fn in_ascii(text: &str) -> Option<String> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, format!(":{port}")),
        None => (text, String::new()),
    };
    let (star, name) = match name.strip_prefix("*.") {
        Some(name) => ("*.", name),
        None => ("", name),
    };
    let name = idna::domain_to_ascii_cow(name.as_bytes(), idna::AsciiDenyList::URL).ok()?;
    Some(format!("{star}{name}{port}"))
}

/// What is expected in place of a text that is no host.
fn meant_host(text: &str) -> String {
    let expected =
        r#"a host such as "example.com" (with any port), "example.com:8080" or "*.example.com""#;
    if matches!(text, "_" | "*" | ".*" | "default") {
        return format!("{expected}; without this key every host is served");
    }
    let without_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    let plain = without_scheme.split('/').next().unwrap_or_default();
    let plain = match plain.strip_prefix('.') {
        Some(domain) => format!("*.{domain}"),
        None => plain.to_owned(),
    };
    if plain != text && HostPattern::parse(&plain).is_some() {
        return format!("{plain:?}");
    }
    if text.contains(['~', '^', '$', '\\', '(']) {
        return format!("{expected}; a regular expression is not read here");
    }
    expected.to_owned()
}

/// The Host that the origin receives: `preserve` for the client's, or a host.
pub(crate) fn origin_host(text: &str) -> Result<Option<String>, String> {
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
            ("localhost:3000", "localhost", 3000),
            ("App", "app", 80),
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
            "app:",
            "app/path",
            "ftp://app",
            "http:/app",
            "3000",
            ":3000",
            "http:3000",
            "https:443",
            "unix:80",
            "off",
            "user:pass@app",
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
    fn an_app_that_speaks_no_http_needs_a_web_server_in_between() {
        for (text, scheme) in [
            ("fastcgi://127.0.0.1:9000", "fastcgi"),
            ("FastCGI://127.0.0.1:9000/srv/app", "fastcgi"),
            ("fastcgi://unix:/run/php/php-fpm.sock", "fastcgi"),
            ("proxy:unix:/run/php/php-fpm.sock|fcgi://localhost/", "fcgi"),
            ("uwsgi://app:3031", "uwsgi"),
            ("uwsgi://unix:/run/uwsgi.sock:", "uwsgi"),
            ("scgi://app:4000", "scgi"),
            ("ajp://tomcat:8009", "ajp"),
        ] {
            let told = origin_url(text).unwrap_err();
            let expected =
                format!("an app that speaks HTTP: for {scheme} put a web server in between");
            assert!(told.starts_with(&expected), "{text}: {told}");
        }
        let told = origin_url("http://unix:/run/app.sock:/").unwrap_err();
        assert_eq!(told, "\"unix:/run/app.sock\"");
    }
}
