//! What a purge over HTTP names: the methods and fields that plugins and other caches' clients use. There is no
//! standard for them.
//!
//! A regular expression is understood if it stands for one page, or for everything below a path.

use ::http::{HeaderMap, HeaderName, Method};

use super::tags::{FIELDS, TAG_MAX};

/// The most tags of one purge.
const TAGS_MAX: usize = 1_000;

/// The methods that purge: that of Squid and Varnish, the one of Breeze for a single page, the one of
/// FOSHttpCache for tags, and the one that many VCLs use for patterns.
const METHODS: [&str; 4] = ["PURGE", "URLPURGE", "PURGEKEYS", "BAN"];

/// How the URL of a purge is read: Proxy Cache Purge, WP Rocket and others send `X-Purge-Method`, VCaching and
/// the VCL collection of DreamHost the other one.
static HOW: [HeaderName; 2] =
    [HeaderName::from_static("x-purge-method"), HeaderName::from_static("x-vc-purge-method")];

/// What is appended to the URL: `.*` from WP Rocket at some hosters.
static APPENDED: HeaderName = HeaderName::from_static("x-purge-regex");

/// The pattern of URLs in place of the request's own: from many VCLs, and from FOSHttpCache.
static URL: [HeaderName; 2] =
    [HeaderName::from_static("x-ban-url"), HeaderName::from_static("x-url")];

/// The host in place of the request's own.
static HOST: [HeaderName; 2] =
    [HeaderName::from_static("x-ban-host"), HeaderName::from_static("x-host")];

/// Tags, besides the fields in which responses alone name them: of the xkey module and FOSHttpCache, of Drupal's
/// modules, and of Proxy Cache Purge.
static TAGS: [HeaderName; 5] = [
    HeaderName::from_static("xkey-purge"),
    HeaderName::from_static("xkey-softpurge"),
    HeaderName::from_static("cache-tags"),
    HeaderName::from_static("purge-cache-tags"),
    HeaderName::from_static("x-cache-tags-pattern"),
];

/// Tags as Magento names them.
static MAGENTO: HeaderName = HeaderName::from_static("x-magento-tags-pattern");

/// Conditions on other fields of responses, which no purge can express: the second is of deployments of Magento.
static UNKNOWN: [HeaderName; 2] =
    [HeaderName::from_static("x-content-type"), HeaderName::from_static("x-pool")];

/// What a request purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeRequest {
    /// The page at the request's own URL.
    Own,
    /// One page without a query.
    Page(PurgeHost, String),
    /// A path and all paths below it, with all their queries.
    Below(PurgeHost, String),
    /// All pages with these tags.
    Tags(Vec<Vec<u8>>),
}

/// The host whose pages are purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeHost {
    /// That of the request.
    Own,
    /// This one, as written.
    Named(String),
    /// All hosts.
    Any,
}

/// The request names what no purge can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InexpressiblePurge(pub &'static str);

const PATTERN: InexpressiblePurge = InexpressiblePurge(
    "this pattern cannot be purged: write a path, a path and .* for all below it, or ^ and $ around a path",
);
const FIELD: InexpressiblePurge = InexpressiblePurge(
    "this field cannot be purged by: send the tags in xkey-purge or Surrogate-Key, or a path and .*",
);
const TAG: InexpressiblePurge = InexpressiblePurge(
    "these tags cannot be purged: write at most 1000 of 256 bytes, without patterns",
);
const MAGENTO_PATTERN: InexpressiblePurge = InexpressiblePurge(
    "this pattern cannot be purged: write ((^|,)TAG(,|$)), several of them with | between, or .* for all pages",
);
const NO_TAGS: InexpressiblePurge =
    InexpressiblePurge("name the tags in xkey-purge or Surrogate-Key");

/// Whether a method purges.
#[must_use]
pub fn is_purge(method: &Method) -> bool {
    METHODS.contains(&method.as_str())
}

impl PurgeRequest {
    /// Reads a request that [`is_purge`]; `path` is its percent-decoded path, and `has_query` is whether it has
    /// a query.
    ///
    /// # Errors
    /// [`InexpressiblePurge`]: the request would purge less than it means.
    pub fn read(
        method: &Method,
        headers: &HeaderMap,
        path: &str,
        has_query: bool,
    ) -> Result<Self, InexpressiblePurge> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("("));
        let any = |names: &[HeaderName]| names.iter().find_map(text);
        if UNKNOWN.iter().any(|name| text(name).is_some_and(|value| value != ".*")) {
            return Err(FIELD);
        }
        if headers.contains_key(&MAGENTO) {
            let lines = headers.get_all(&MAGENTO).iter();
            return magento(lines.map(|line| line.to_str().unwrap_or("(")));
        }
        let tags = tags(headers)?;
        if !tags.is_empty() {
            return Ok(Self::Tags(tags));
        }
        if method.as_str() == "PURGEKEYS" {
            return Err(NO_TAGS);
        }
        let host = any(&HOST).map_or(Ok(PurgeHost::Own), host)?;
        let how = any(&HOW).unwrap_or_default();
        let is_exact = ["exact", "default"].iter().any(|word| how.eq_ignore_ascii_case(word));
        let is_pattern = !is_exact
            && method.as_str() != "URLPURGE"
            && (method.as_str() == "BAN"
                || how.eq_ignore_ascii_case("regex")
                || path.ends_with(".*"));
        match (any(&URL), text(&APPENDED)) {
            (Some(url), _) => below(host, url),
            (None, _) if has_query && is_pattern => Err(PATTERN),
            (None, Some(rest)) => below(host, &format!("{path}{rest}")),
            (None, None) if is_pattern => below(host, path),
            (None, None) if host == PurgeHost::Own => Ok(Self::Own),
            (None, None) if has_query => Err(PATTERN),
            (None, None) => Ok(Self::Page(host, path.to_owned())),
        }
    }
}

/// Reads the patterns of tags that Magento sends. Several lines, also where a proxy has joined them by commas (RFC 9110
/// §5.3), purge what any of them names. Varnish reads the first line alone, and so purges less than was asked for.
fn magento<'a>(lines: impl Iterator<Item = &'a str>) -> Result<PurgeRequest, InexpressiblePurge> {
    let (mut tags, mut is_all) = (Vec::new(), false);
    for line in lines {
        match line {
            ".*" => is_all = true,
            pattern => tags.extend(magento_tags(pattern)?),
        }
    }
    match is_all {
        true => Ok(PurgeRequest::Below(PurgeHost::Any, "/".to_owned())),
        false => plain(tags).map(PurgeRequest::Tags),
    }
}

/// The tags in a pattern, each of which has an expression of its own.
fn magento_tags(pattern: &str) -> Result<Vec<Vec<u8>>, InexpressiblePurge> {
    let (mut tags, mut rest) = (Vec::new(), pattern);
    loop {
        let expression = rest.strip_prefix("((^|,)").and_then(|begun| begun.split_once("(,|$))"));
        let (tag, behind) = expression.filter(|(tag, _)| !tag.is_empty()).ok_or(MAGENTO_PATTERN)?;
        tags.push(tag.as_bytes().to_vec());
        if behind.is_empty() {
            return Ok(tags);
        }
        let joined = || behind.strip_prefix(',').map(str::trim_start);
        rest = behind.strip_prefix('|').or_else(joined).ok_or(MAGENTO_PATTERN)?;
    }
}

/// Reads a pattern of paths. An expression without an end matches all that continues it, so `/a` means more
/// than what is below `/a`: it stands for all below `/`.
fn below(host: PurgeHost, pattern: &str) -> Result<PurgeRequest, InexpressiblePurge> {
    let text = pattern.strip_prefix('^').unwrap_or(pattern);
    if ["", ".", ".*", ".*$", "/*"].contains(&text) {
        return Ok(PurgeRequest::Below(host, "/".to_owned()));
    }
    if let Some(exact) = text.strip_suffix('$').filter(|text| !text.ends_with(".*")) {
        return Ok(PurgeRequest::Page(host, literal(exact)?));
    }
    let stem = text.strip_suffix('$').unwrap_or(text);
    let stem = stem.strip_suffix(".*").or_else(|| stem.strip_suffix('*')).unwrap_or(stem);
    let mut path = literal(stem)?;
    let end = path.rfind('/').map_or(0, |slash| slash + 1);
    path.truncate(end);
    Ok(PurgeRequest::Below(host, path))
}

/// The path that an expression stands for, if it stands for one. A dot stands for itself.
fn literal(expression: &str) -> Result<String, InexpressiblePurge> {
    let mut path = String::with_capacity(expression.len());
    let mut chars = expression.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => path.push(
                chars.next().filter(|escaped| escaped.is_ascii_punctuation()).ok_or(PATTERN)?,
            ),
            '^' | '$' | '|' | '?' | '*' | '+' | '(' | ')' | '[' | ']' | '{' | '}' => {
                return Err(PATTERN);
            }
            char => path.push(char),
        }
    }
    path.starts_with('/').then_some(path).ok_or(PATTERN)
}

/// The host in a pattern of hosts.
fn host(pattern: &str) -> Result<PurgeHost, InexpressiblePurge> {
    if [".*", "^.*$", "."].contains(&pattern) {
        return Ok(PurgeHost::Any);
    }
    let text = pattern.strip_prefix('^').unwrap_or(pattern);
    let text = text.strip_suffix('$').unwrap_or(text);
    let name = literal(&format!("/{text}"))?;
    Ok(PurgeHost::Named(name[1..].to_owned()))
}

/// The tags that a purge names. Lists in patterns are understood: `a|b`, and `(^|,)(a|b)(,|$)`.
fn tags(headers: &HeaderMap) -> Result<Vec<Vec<u8>>, InexpressiblePurge> {
    let of_responses = FIELDS.iter().map(|(name, dividers)| (name, *dividers));
    let of_responses = of_responses.filter(|(name, _)| !TAGS.contains(name));
    let of_purges = TAGS.iter().map(|name| (name, b" \t,|".as_slice()));
    let mut tags = Vec::new();
    for (name, dividers) in of_responses.chain(of_purges) {
        for line in headers.get_all(name) {
            let line = line.as_bytes();
            let inner = line.strip_prefix(b"(^|,)(").and_then(|rest| rest.strip_suffix(b")(,|$)"));
            let parts = match inner {
                Some(inner) => inner.split(|byte| *byte == b'|').collect::<Vec<_>>(),
                None => line.split(|byte| dividers.contains(byte)).collect(),
            };
            let parts = parts.into_iter().map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty());
            tags.extend(parts.map(<[u8]>::to_vec));
        }
    }
    plain(tags)
}

/// The tags, if none of them is a pattern, and they are not too many.
fn plain(tags: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, InexpressiblePurge> {
    let is_plain =
        |tag: &Vec<u8>| tag.len() <= TAG_MAX && !tag.iter().any(|b| b"*()[]^$\\".contains(b));
    let all_fit = tags.len() <= TAGS_MAX && tags.iter().all(is_plain);
    all_fit.then_some(tags).ok_or(TAG)
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    fn read(method: &str, target: &str, fields: &[(&'static str, &str)]) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        assert!(is_purge(&method));
        let on = |host| match host {
            PurgeHost::Own => String::new(),
            PurgeHost::Named(name) => name,
            PurgeHost::Any => "*".to_owned(),
        };
        match PurgeRequest::read(&method, &headers, path, !query.is_empty()) {
            Ok(PurgeRequest::Own) => "own".to_owned(),
            Ok(PurgeRequest::Page(host, path)) => format!("page {}{path}", on(host)),
            Ok(PurgeRequest::Below(host, path)) => format!("below {}{path}", on(host)),
            Ok(PurgeRequest::Tags(tags)) => {
                let tags = tags.iter().map(|tag| String::from_utf8_lossy(tag).into_owned());
                format!("tags {}", tags.collect::<Vec<_>>().join(" "))
            }
            Err(_) => "no".to_owned(),
        }
    }

    #[test]
    fn a_purge_is_read_as_its_sender_means_it() {
        let regex = ("x-purge-method", "regex");
        for (method, target, fields, expected) in [
            ("PURGE", "/a?b", &[][..], "own"),
            ("PURGE", "/a?b", &[("x-purge-method", "default")], "own"),
            ("PURGE", "/a.*", &[("x-purge-method", "exact")], "own"),
            ("PURGE", "/.*", &[], "below /"),
            ("PURGE", "/.*", &[regex], "below /"),
            ("PURGE", "/a/.*", &[regex], "below /a/"),
            ("PURGE", "/a.*", &[regex], "below /"),
            ("PURGE", "/a/", &[regex], "below /a/"),
            ("PURGE", "/a.html$", &[regex], "page /a.html"),
            ("PURGE", "/a?b", &[regex], "no"),
            ("PURGE", "/(a|b)", &[regex], "no"),
            ("PURGE", "/", &[("x-purge-regex", ".*")], "below /"),
            ("PURGE", "/a/", &[("x-purge-regex", ".*")], "below /a/"),
            ("PURGE", "/.*", &[("x-vc-purge-method", "regex")], "below /"),
            ("URLPURGE", "/a.*", &[], "own"),
            ("BAN", "/a/b", &[], "below /a/"),
            ("BAN", "/", &[("x-ban-url", "^/a/.*")], "below /a/"),
            ("BAN", "/", &[("x-ban-url", "^/a\\.html$")], "page /a.html"),
            ("BAN", "/", &[("x-ban-url", "/a/*")], "below /a/"),
            ("BAN", "/", &[("x-ban-url", ".")], "below /"),
            ("BAN", "/", &[("x-ban-url", "\\.css$")], "no"),
            (
                "BAN",
                "/",
                &[("x-ban-url", "/a/.*"), ("x-ban-host", "^b\\.test$")],
                "below b.test/a/",
            ),
            ("BAN", "/", &[("x-ban-url", "/a/.*"), ("x-ban-host", "(a|b).test")], "no"),
            (
                "BAN",
                "/",
                &[("x-host", ".*"), ("x-url", "/a/.*"), ("x-content-type", ".*")],
                "below */a/",
            ),
            ("BAN", "/", &[("x-url", ".*"), ("x-content-type", "text/css")], "no"),
            ("BAN", "/", &[("cache-tags", "node:1 node:2")], "tags node:1 node:2"),
            ("BAN", "/", &[("x-cache-tags", "(^|,)(a|b)(,|$)")], "tags a b"),
            ("PURGE", "/", &[regex, ("x-cache-tags-pattern", "p-7|home")], "tags p-7 home"),
            ("PURGE", "/", &[("surrogate-key", "a b,c")], "tags a b,c"),
            ("PURGE", "/", &[("x-cache-tags", "a.*")], "no"),
            ("PURGEKEYS", "/", &[("xkey-purge", "a b")], "tags a b"),
            ("PURGEKEYS", "/", &[], "no"),
            ("BAN", "/", &[("cache-tags", "node:1|node:2")], "tags node:1 node:2"),
            ("BAN", "/", &[("purge-cache-tags", "node:1")], "tags node:1"),
            ("PURGE", "/", &[("x-pool", "a")], "no"),
        ] {
            assert_eq!(read(method, target, fields), expected, "{method} {target} {fields:?}");
        }
    }

    #[test]
    fn the_patterns_of_magento_name_tags_in_one_line_or_several() {
        let (product, block) = ("((^|,)cat_p_1(,|$))", "((^|,)cms_b_2(,|$))");
        let [joined, listed] = ["|", ", "].map(|between| format!("{product}{between}{block}"));
        for (lines, expected) in [
            (&[product][..], "tags cat_p_1"),
            (&[joined.as_str()], "tags cat_p_1 cms_b_2"),
            (&[listed.as_str()], "tags cat_p_1 cms_b_2"),
            (&[product, block], "tags cat_p_1 cms_b_2"),
            (&[".*"], "below */"),
            (&[product, ".*"], "below */"),
            (&[product, "cat_p_1"], "no"),
            (&["cat_p_1"], "no"),
            (&["((^|,)cat_p_1(,|$))|"], "no"),
            (&["((^|,)(,|$))"], "no"),
            (&["((^|,)cat_[0-9](,|$))"], "no"),
            (&[""], "no"),
        ] {
            let fields: Vec<_> =
                lines.iter().map(|line| ("x-magento-tags-pattern", *line)).collect();
            assert_eq!(read("PURGE", "/", &fields), expected, "{lines:?}");
        }
    }
}
