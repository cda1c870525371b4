//! `anteroom warm`: requests pages as a stranger does, so that the next visitor finds them in the cache.
//!
//! The requests go to an address of the proxy like those of visitors, without a cookie. So the pages are judged and
//! stored as they always are. What happened is read from `Cache-Status`.

mod client;
mod sitemap;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use ::http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response};
use anteroom_config::Plan;
use anteroom_http::cache_status::CACHE_STATUS;
use anteroom_http::host_pattern::{HostPattern, first_host};
use futures_util::stream::{self, StreamExt as _};
use serde::Serialize;

use super::runtime::runtime;
use super::start_error::StartError;
use client::{Destination, Page};
use sitemap::{SITEMAP_MAX, Sitemap, SitemapError};

/// The most pages of one call: ten full sitemaps.
const PAGES_MAX: usize = 500_000;
/// The most failures that are reported one by one.
const FAILURES_MAX: usize = 1_000;

/// What is to be warmed.
#[derive(Debug)]
pub struct WarmOrder {
    /// URLs of pages, or their paths on the first of `[origin] hosts`; and sitemaps: URLs or files that end in `.xml` or
    /// `.xml.gz`.
    pub of: Vec<String>,
    /// Where the proxy is, as `http://127.0.0.1:8080`; `None`: at the listeners of the plan.
    pub to: Option<String>,
    /// Further header fields, such as `Accept-Language`.
    pub fields: Vec<(String, String)>,
    /// How many pages are requested at a time.
    pub at_once: usize,
}

/// Why no page was requested.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// The destination is unusable.
    #[error("{0:?} is no address of a proxy: --to takes one such as http://127.0.0.1:8080")]
    Destination(String),
    /// The plan has no listener that a client can connect to.
    #[error(
        "no [[listen]] has a TCP address without proxy_protocol: say where the proxy is with --to http://127.0.0.1:8080"
    )]
    NoListener,
    /// There is no configuration.
    #[error(
        "no configuration says where the proxy is: name it with --config, or the address with --to"
    )]
    NoPlan,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// An argument is no URL.
    #[error(
        "{0:?} is no URL of a page: it begins with http:// or https://; a path alone works where [origin] hosts has a \
         name without a wildcard"
    )]
    Url(String),
    /// Hosts that the proxy does not serve, or that are not the sitemap's.
    #[error("foreign hosts are not warmed: {0}")]
    Foreign(String),
    /// A field is not a stranger's, or is malformed.
    #[error("{0}: a stranger's request cannot have this field")]
    Field(String),
    /// A sitemap cannot be had.
    #[error("the sitemap {of:?} cannot be read: {why}")]
    Sitemap {
        /// Its URL or file.
        of: String,
        /// The cause.
        why: String,
    },
    /// There are too many pages.
    #[error("more than {PAGES_MAX} pages: give the sitemaps one by one")]
    TooMany,
    /// The system refused a runtime.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What became of the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WarmReport {
    /// Pages that were fetched and stored.
    pub stored: usize,
    /// Pages that were fresh in the cache already.
    pub fresh: usize,
    /// Pages that are not stored, by the reason in `Cache-Status`.
    pub not_cacheable: BTreeMap<String, usize>,
    /// How many requests failed.
    pub failed: usize,
    /// The first of them.
    pub failures: Vec<WarmFailure>,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarmFailure {
    /// The URL.
    pub url: String,
    /// What happened.
    pub why: String,
}

/// Requests the pages, and calls `progress` with how many are done, of how many.
///
/// # Errors
/// See [`WarmError`]; no page was requested then, though a sitemap may have been.
pub fn warm(
    order: &WarmOrder,
    plan: Option<&Plan>,
    progress: impl FnMut(u64, u64),
) -> Result<WarmReport, WarmError> {
    runtime()?.block_on(async {
        let destination = match (&order.to, plan) {
            (Some(url), _) => Destination::at(url).await?,
            (None, Some(plan)) => Destination::of_plan(plan)?,
            (None, None) => return Err(WarmError::NoPlan),
        };
        let fields = fields(&order.fields)?;
        let served = plan.map_or(&[][..], |plan| &plan.origin.hosts);
        let pages = pages(&order.of, &destination, served).await?;
        Ok(visit_all(&destination, &fields, pages, order.at_once, progress).await)
    })
}

/// The fields of the requests.
fn fields(given: &[(String, String)]) -> Result<HeaderMap, WarmError> {
    let mut fields = HeaderMap::new();
    for (name, value) in given {
        let wrong = || WarmError::Field(name.clone());
        let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
        if [COOKIE, AUTHORIZATION, CACHE_CONTROL].contains(&name) {
            return Err(wrong());
        }
        fields.insert(name, HeaderValue::try_from(value.as_str()).map_err(|_| wrong())?);
    }
    Ok(fields)
}

/// All pages of the arguments, each once.
async fn pages(
    of: &[String],
    destination: &Destination,
    served: &[HostPattern],
) -> Result<Vec<(String, Page)>, WarmError> {
    let mut collected = PageCollection { served, pages: Vec::new(), seen: HashSet::new() };
    for argument in of {
        if !is_sitemap(argument) {
            let host = first_host(served).filter(|_| argument.starts_with('/'));
            let url = host.map_or_else(|| argument.clone(), |host| destination.url(host, argument));
            let page = Page::parse(&url).ok_or_else(|| WarmError::Url(argument.clone()))?;
            collected.check_host(&page, None)?;
            collected.add(url, page)?;
            continue;
        }
        let mut waiting = vec![(argument.clone(), true)];
        while let Some((sitemap, is_first)) = waiting.pop() {
            let wrong = |why: String| WarmError::Sitemap { of: sitemap.clone(), why };
            let own = Page::parse(&sitemap);
            let data = match &own {
                Some(page) => {
                    collected.check_host(page, None)?;
                    let fetched = destination.fetch(page, SITEMAP_MAX).await;
                    fetched.map_err(|error| wrong(error.to_string()))?
                }
                None => read_file(&sitemap).map_err(|error| wrong(error.to_string()))?.into(),
            };
            match sitemap::read(&data).map_err(|error: SitemapError| wrong(error.to_string()))? {
                Sitemap::Pages(urls) => {
                    for url in urls {
                        let page = Page::parse(&url).ok_or_else(|| WarmError::Url(url.clone()))?;
                        collected.check_host(&page, own.as_ref())?;
                        collected.add(url, page)?;
                    }
                }
                Sitemap::Index(_) if !is_first => {
                    return Err(wrong("an index is listed in an index".to_owned()));
                }
                Sitemap::Index(urls) => {
                    for url in urls.into_iter().rev() {
                        let page = Page::parse(&url).ok_or_else(|| WarmError::Url(url.clone()))?;
                        collected.check_host(&page, own.as_ref())?;
                        waiting.push((url, false));
                    }
                }
            }
        }
    }
    Ok(collected.pages)
}

fn is_sitemap(argument: &str) -> bool {
    let path = argument.split('?').next().unwrap_or(argument);
    path.ends_with(".xml") || path.ends_with(".xml.gz")
}

/// A file of at most the size that a sitemap may have.
fn read_file(path: &str) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut data = Vec::new();
    let file = std::fs::File::open(Path::new(path))?;
    file.take(SITEMAP_MAX as u64 + 1).read_to_end(&mut data)?;
    Ok(data)
}

/// The pages found so far.
struct PageCollection<'p> {
    /// The hosts that the proxy serves; empty: any.
    served: &'p [HostPattern],
    pages: Vec<(String, Page)>,
    seen: HashSet<String>,
}

impl PageCollection<'_> {
    /// Refuses a host that the proxy does not serve; where it serves any, one that is not the host of the `sitemap`.
    fn check_host(&self, page: &Page, sitemap: Option<&Page>) -> Result<(), WarmError> {
        let site = page.site();
        if !self.served.is_empty() && !self.served.iter().any(|host| host.matches(&site)) {
            let served: Vec<_> = self.served.iter().map(HostPattern::as_str).collect();
            return Err(WarmError::Foreign(format!(
                "{site} is not in [origin] hosts ({})",
                served.join(", ")
            )));
        }
        let own = sitemap.filter(|_| self.served.is_empty()).map(Page::site);
        match own.filter(|own| *own != site) {
            Some(own) => Err(WarmError::Foreign(format!(
                "{site} is in a sitemap of {own}; list the hosts of the site in [origin] hosts"
            ))),
            None => Ok(()),
        }
    }

    fn add(&mut self, url: String, page: Page) -> Result<(), WarmError> {
        if self.seen.insert(url.clone()) {
            if self.pages.len() == PAGES_MAX {
                return Err(WarmError::TooMany);
            }
            self.pages.push((url, page));
        }
        Ok(())
    }
}

async fn visit_all(
    destination: &Destination,
    fields: &HeaderMap,
    pages: Vec<(String, Page)>,
    at_once: usize,
    progress: impl FnMut(u64, u64),
) -> WarmReport {
    let all = pages.len() as u64;
    let state = RefCell::new((WarmReport::default(), progress, 0));
    stream::iter(pages)
        .for_each_concurrent(at_once.max(1), |(url, page)| {
            let state = &state;
            async move {
                let outcome = visit(destination, &page, fields).await;
                let (report, progress, done) = &mut *state.borrow_mut();
                report.add(url, outcome);
                *done += 1;
                progress(*done, all);
            }
        })
        .await;
    state.into_inner().0
}

/// Requests a page, and looks whether it is in the cache then.
async fn visit(destination: &Destination, page: &Page, fields: &HeaderMap) -> Outcome {
    let first = match destination.visit(page, fields).await {
        Ok(response) => outcome(&response),
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let Outcome::NotCacheable(_) = &first else { return first };
    // The head of an answer goes out before its page is stored, and does not say whether it will be.
    let mut only_if_cached = fields.clone();
    only_if_cached.insert(CACHE_CONTROL, HeaderValue::from_static("only-if-cached"));
    match destination.visit(page, &only_if_cached).await {
        Ok(response) if outcome(&response) == Outcome::Fresh => Outcome::Stored,
        Ok(_) | Err(_) => first,
    }
}

/// What became of a page.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Stored,
    Fresh,
    NotCacheable(String),
    Failed(String),
}

/// What the proxy says of its answer.
fn outcome(response: &Response<()>) -> Outcome {
    let status = response.status();
    let mut values = response.headers().get_all(&CACHE_STATUS).iter();
    // A cache before this one may have added a member of its own.
    let own = values.find_map(|value| {
        value.to_str().ok()?.split(", ").find(|member| member.starts_with("anteroom"))
    });
    let Some(own) = own else {
        return Outcome::Failed(format!(
            "{status} without Cache-Status of Anteroom: see --to, and [cache] status"
        ));
    };
    let mut parameters = own.split("; ").skip(1);
    let has = |name: &str| own.split("; ").any(|parameter| parameter == name);
    if has("hit") {
        return Outcome::Fresh;
    }
    if has("stored") {
        return Outcome::Stored;
    }
    if status.is_server_error() || status == ::http::StatusCode::MISDIRECTED_REQUEST {
        return Outcome::Failed(status.to_string());
    }
    let detail = parameters.clone().find_map(|parameter| parameter.strip_prefix("detail="));
    let reason = detail.or_else(|| parameters.find_map(|one| one.strip_prefix("fwd=")));
    let reason =
        reason.map_or_else(|| format!("status {status}"), |why| why.trim_matches('"').to_owned());
    Outcome::NotCacheable(reason)
}

impl WarmReport {
    fn add(&mut self, url: String, outcome: Outcome) {
        match outcome {
            Outcome::Stored => self.stored += 1,
            Outcome::Fresh => self.fresh += 1,
            Outcome::NotCacheable(reason) => *self.not_cacheable.entry(reason).or_default() += 1,
            Outcome::Failed(why) => {
                self.failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(WarmFailure { url, why });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_is_what_cache_status_says() {
        let not = |why: &str| Outcome::NotCacheable(why.to_owned());
        for (status, value, expected) in [
            (200, "anteroom; hit; ttl=299; detail=memory", Outcome::Fresh),
            (200, "anteroom; fwd=uri-miss; stored", Outcome::Stored),
            (200, "cdn; hit, anteroom; fwd=uri-miss; stored", Outcome::Stored),
            (200, "anteroom; fwd=bypass; detail=route", not("route")),
            (200, "anteroom; fwd=uri-miss; detail=\"a b\"", not("a b")),
            (200, "anteroom; fwd=miss", not("miss")),
            (200, "anteroom", not("status 200 OK")),
            (502, "anteroom; fwd=miss", Outcome::Failed("502 Bad Gateway".to_owned())),
        ] {
            let response = Response::builder().status(status).header("cache-status", value);
            assert_eq!(outcome(&response.body(()).unwrap()), expected, "{value}");
        }
        let silent = Response::new(());
        assert!(matches!(outcome(&silent), Outcome::Failed(why) if why.contains("--to")));
    }

    #[test]
    fn a_request_has_nothing_of_a_user() {
        let given = |name: &str| fields(&[(name.to_owned(), "x".to_owned())]);
        assert!(given("Accept-Language").is_ok());
        for name in ["Cookie", "authorization", "a b"] {
            assert!(matches!(given(name), Err(WarmError::Field(_))), "{name}");
        }
    }

    #[test]
    fn foreign_hosts_are_refused() {
        let page = |url| Page::parse(url).unwrap();
        let hosts = [HostPattern::parse("shop.test").unwrap()];
        let with = |served| PageCollection { served, pages: Vec::new(), seen: HashSet::new() };
        assert!(with(&hosts).check_host(&page("https://shop.test/a"), None).is_ok());
        let foreign = with(&hosts).check_host(&page("https://evil.test/"), None).unwrap_err();
        assert!(foreign.to_string().contains("evil.test is not in [origin] hosts (shop.test)"));
        let sitemap = page("https://shop.test/sitemap.xml");
        assert!(with(&[]).check_host(&page("https://any.test/"), None).is_ok());
        assert!(with(&[]).check_host(&page("https://shop.test/"), Some(&sitemap)).is_ok());
        assert!(with(&[]).check_host(&page("https://any.test/"), Some(&sitemap)).is_err());
    }
}
