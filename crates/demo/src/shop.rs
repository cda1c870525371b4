//! The shop's responses, and its request counters.
//!
//! The shop imitates an application without support for caches: it sets no `Cache-Control` on any page, the
//! personal one included, ignores cookies, and trusts the fields that the proxy sends. Sockets are handled in
//! the parent module.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use anteroom_http::clock;
use anteroom_http::ident::USER_MAX;
use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, Limited};
use sha2::{Digest as _, Sha256};

use super::DemoShopSettings;
use super::catalogue::{self, CatalogueItem, File};
use super::form;
use super::html::Html;
use super::pages::{self, PageTiming, TourStep};

/// The demo shop: its settings, and how many requests have reached it.
///
/// | path | what |
/// |---|---|
/// | `/` | the front page |
/// | `/item/{item}` | one item |
/// | `/static/{file}` | style sheet and pictures, with an `ETag` |
/// | `/cart` | the cart, filled in by a script; a POST of `item` and `count` puts that in |
/// | `/login` | the login form; a POST of `user` logs that user in |
/// | `/logout` | a POST logs out |
/// | `/account` | the personal page |
/// | `/example` | a page for everyone that requests the visitor's own data from the proxy |
/// | `/greeting` | a page for everyone with two empty elements, which the proxy fills |
/// | `/partials/greeting` | the content of one of them, made for each visitor |
/// | `/offers` | the prices of the user's group, the same for `ada@trade` and `bob@trade` |
/// | `/tour/fail`, `/tour/recover` | a POST makes the shop answer 500 to everything else, or ends that |
/// | `/origin-stats` | requests so far, as JSON: `{"total":2,"by_path":{"/":2}}` |
#[derive(Debug)]
pub struct Shop {
    settings: DemoShopSettings,
    tour: Vec<TourStep>,
    counts: RefCell<BTreeMap<String, u64>>,
    /// Whether pages are answered with 500.
    fails: Cell<bool>,
}

type Answer = Response<Full<Bytes>>;

impl Shop {
    /// A shop with all counters at zero.
    #[must_use]
    pub fn new(settings: DemoShopSettings) -> Self {
        Self { settings, tour: Vec::new(), counts: RefCell::default(), fails: Cell::default() }
    }

    /// The same shop, with a tour on its front page.
    #[must_use]
    pub fn with_tour(self, tour: Vec<TourStep>) -> Self {
        Self { tour, ..self }
    }

    /// Answers one request. A form post's body is read whole, up to 16 KiB; other bodies are left unread.
    pub async fn respond<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let route = Route::of(head.uri.path());
        self.count(&route, head.uri.path());
        if self.fails.get() && !route.works_always() {
            let about = "The shop was told to fail. A POST to /tour/recover ends that.";
            return self.says(StatusCode::INTERNAL_SERVER_ERROR, "Out of order", about).await;
        }
        match (route, head.method) {
            (Route::Fail, Method::POST) => self.switch(true).await,
            (Route::Recover, Method::POST) => self.switch(false).await,
            (Route::Fail | Route::Recover, _) => self.refused("POST").await,
            (Route::Login, Method::POST) => self.log_in(&head.headers, body).await,
            (Route::Cart, Method::POST) => self.buy(&head.headers, body).await,
            (Route::Logout, Method::POST) => log_out(),
            (Route::Logout, _) => self.refused("POST").await,
            (route, Method::GET | Method::HEAD) => self.show(route, &head.headers).await,
            (Route::Login | Route::Cart, _) => self.refused("GET, HEAD, POST").await,
            (_, _) => self.refused("GET, HEAD").await,
        }
    }

    async fn show(&self, route: Route, headers: &HeaderMap) -> Answer {
        match route {
            Route::Front => {
                tagged(page(StatusCode::OK, pages::front(&self.tour, self.made().await)), "goods")
            }
            Route::Item(item) => {
                let tags = format!("goods item-{}", item.slug);
                tagged(page(StatusCode::OK, pages::item(item, self.made().await)), &tags)
            }
            Route::Cart => page(StatusCode::OK, pages::cart(self.made().await)),
            Route::Login => page(StatusCode::OK, pages::login(None, self.made().await)),
            Route::Account => self.account(headers).await,
            Route::Example => {
                self.made().await;
                page(StatusCode::OK, pages::example())
            }
            Route::Greeting => page(StatusCode::OK, pages::greeting(self.made().await)),
            Route::GreetingPartial => {
                let made = self.made().await;
                page(StatusCode::OK, pages::greeting_partial(user_of(headers).as_deref(), made))
            }
            Route::Offers => {
                self.made().await;
                page(StatusCode::OK, pages::offers(user_of(headers).as_deref().map(group_of)))
            }
            Route::File(file) => static_file(file, headers),
            Route::Stats => self.stats(),
            Route::Logout | Route::Fail | Route::Recover | Route::Unknown => {
                self.says(StatusCode::NOT_FOUND, "Not found", "There is nothing at this address.")
                    .await
            }
        }
    }

    /// The personal page. It deliberately has no `Cache-Control: private`: many real shops forget it, and the
    /// proxy must keep the page from other visitors without it.
    async fn account(&self, headers: &HeaderMap) -> Answer {
        let Some(user) = user_of(headers) else {
            return see_other("/login");
        };
        let session = headers.get("x-anteroom-session").and_then(|field| field.to_str().ok());
        let made = self.made().await;
        page(StatusCode::OK, pages::account(&user, session.unwrap_or("not told"), made))
    }

    /// Logs in a visitor under the given name. `Anteroom-Login` asks the proxy to mint the session; the shop
    /// never sees the cookie.
    async fn log_in<B>(&self, headers: &HeaderMap, body: B) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = match read(headers, body).await {
            Ok(body) => body,
            Err(refusal) => return self.unread(refusal).await,
        };
        match user_in(&body) {
            Ok(user) => {
                let mut answer = see_other("/account");
                let login = match group_of(&user) {
                    "" => form::encode_user(&user),
                    group => format!("{}; group={group}", form::encode_user(&user)),
                };
                let login = HeaderValue::from_str(&login)
                    .expect("a percent-encoded name and a word of letters are ASCII");
                answer.headers_mut().insert("anteroom-login", login);
                answer
            }
            Err(problem) => {
                page(StatusCode::BAD_REQUEST, pages::login(Some(problem), self.made().await))
            }
        }
    }

    /// Adds goods to the visitor's cart. The shop keeps no carts: `Anteroom-Cart` tells the proxy what to
    /// add.
    async fn buy<B>(&self, headers: &HeaderMap, body: B) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = match read(headers, body).await {
            Ok(body) => body,
            Err(refusal) => return self.unread(refusal).await,
        };
        let Some((item, count)) = wish_in(&body) else {
            let about = "The form names nothing that we sell, or no number from 1 to 99.";
            return self.says(StatusCode::BAD_REQUEST, "That did not work", about).await;
        };
        if !headers.contains_key("x-anteroom-user") {
            return see_other("/login");
        }
        let mut answer = see_other("/cart");
        let wish = HeaderValue::from_str(&format!("{};count={count}", item.slug))
            .expect("a slug and a number are visible ASCII");
        answer.headers_mut().insert("anteroom-cart", wish);
        answer
    }

    /// Makes the shop fail, or ends that. The request changes nothing else, so that anyone may send it.
    async fn switch(&self, fails: bool) -> Answer {
        self.fails.set(fails);
        page(StatusCode::OK, pages::switched(fails, self.made().await))
    }

    /// The response after a body that was not read to its end. The connection cannot be reused.
    async fn unread(&self, refusal: Refusal) -> Answer {
        let (status, about) = match refusal {
            Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "A form may have up to 16 KiB."),
            Refusal::TooSlow => (StatusCode::REQUEST_TIMEOUT, "The form did not arrive in time."),
            Refusal::Broken => (StatusCode::BAD_REQUEST, "The form did not arrive whole."),
        };
        let mut answer = self.says(status, "That did not work", about).await;
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    }

    async fn refused(&self, allow: &'static str) -> Answer {
        let about = "This address does not take that kind of request.";
        let mut answer = self.says(StatusCode::METHOD_NOT_ALLOWED, "Not here", about).await;
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        answer
    }

    async fn says(&self, status: StatusCode, title: &str, about: &str) -> Answer {
        page(status, pages::message(title, about, self.made().await))
    }

    /// Waits as long as a page of a real shop takes, with its templates, queries and remote calls.
    async fn made(&self) -> PageTiming {
        tokio::time::sleep(self.settings.delay).await;
        PageTiming { at: clock::unix_now(), took: self.settings.delay }
    }

    /// Counts a request. Unknown paths share one entry, which bounds the table; requests for the counters
    /// themselves are not counted.
    fn count(&self, route: &Route, path: &str) {
        let name = match route {
            Route::Stats => return,
            Route::Unknown => "(not found)",
            _ => path,
        };
        let mut counts = self.counts.borrow_mut();
        match counts.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(counts.insert(name.to_owned(), 1)),
        }
    }

    fn stats(&self) -> Answer {
        let counts = self.counts.borrow();
        let total: u64 = counts.values().sum();
        let body = serde_json::json!({ "total": total, "by_path": &*counts }).to_string();
        let mut answer = Response::new(Full::from(body + "\n"));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }
}

enum Route {
    Front,
    Cart,
    Item(&'static CatalogueItem),
    Login,
    Logout,
    Account,
    Example,
    Greeting,
    GreetingPartial,
    Offers,
    Fail,
    Recover,
    File(&'static File),
    Stats,
    Unknown,
}

impl Route {
    fn of(path: &str) -> Self {
        match path {
            "/" => Self::Front,
            "/cart" => Self::Cart,
            "/login" => Self::Login,
            "/logout" => Self::Logout,
            "/account" => Self::Account,
            "/example" => Self::Example,
            "/greeting" => Self::Greeting,
            "/partials/greeting" => Self::GreetingPartial,
            "/offers" => Self::Offers,
            "/tour/fail" => Self::Fail,
            "/tour/recover" => Self::Recover,
            "/origin-stats" => Self::Stats,
            _ => Self::named(path).unwrap_or(Self::Unknown),
        }
    }

    fn named(path: &str) -> Option<Self> {
        if let Some(slug) = path.strip_prefix("/item/") {
            return catalogue::item(slug).map(Self::Item);
        }
        path.strip_prefix("/static/").and_then(catalogue::file).map(Self::File)
    }

    /// Whether requests are answered while the shop fails: the switch, and what its page needs.
    fn works_always(&self) -> bool {
        matches!(self, Self::Fail | Self::Recover | Self::File(_) | Self::Stats)
    }
}

/// The user that the proxy names. The field is trusted: the proxy removes a client's own, and the shop
/// listens on loopback only.
fn user_of(headers: &HeaderMap) -> Option<String> {
    let user = headers.get("x-anteroom-user").filter(|user| !user.is_empty())?;
    Some(form::decode_user(user.as_bytes()).into_owned())
}

/// Adds the tags by which a cache purges the page.
fn tagged(mut answer: Answer, tags: &str) -> Answer {
    let tags = HeaderValue::from_str(tags).expect("tags are made of slugs, which are ASCII");
    answer.headers_mut().insert("surrogate-key", tags);
    answer
}

fn page(status: StatusCode, html: Html) -> Answer {
    let mut answer = Response::new(Full::from(html.into_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

fn see_other(location: &'static str) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static(location));
    answer
}

fn log_out() -> Answer {
    let mut answer = see_other("/");
    answer.headers_mut().insert("anteroom-logout", HeaderValue::from_static("1"));
    answer
}

fn static_file(file: &File, headers: &HeaderMap) -> Answer {
    let tag = entity_tag(file);
    let mut answer = if holds(headers, &tag) {
        let mut unchanged = Response::new(Full::default());
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        let mut whole = Response::new(Full::from(file.body));
        let kind = HeaderValue::from_static(file.content_type);
        whole.headers_mut().insert(CONTENT_TYPE, kind);
        whole
    };
    let tag = HeaderValue::from_str(&tag).expect("a quoted hex string is a valid field value");
    answer.headers_mut().insert(ETAG, tag);
    answer
}

fn entity_tag(file: &File) -> String {
    let digest = Sha256::digest(file.body.as_bytes());
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{short}\"")
}

/// Whether `If-None-Match` names `tag`, compared weakly (RFC 9110 13.1.2). Splitting at commas is exact here:
/// the shop's tags contain no comma, so a piece of a foreign tag never matches.
fn holds(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

/// Why a request body was not read to its end.
enum Refusal {
    TooLarge,
    TooSlow,
    Broken,
}

async fn read<B>(headers: &HeaderMap, body: B) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let told = headers.get(CONTENT_LENGTH).and_then(|field| field.to_str().ok()?.parse().ok());
    if told.is_some_and(|length: u64| length > MAX_FORM as u64) {
        return Err(Refusal::TooLarge);
    }
    let whole = tokio::time::timeout(FORM_TIME, Limited::new(body, MAX_FORM).collect());
    match whole.await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::TooLarge),
        Ok(Err(_)) => Err(Refusal::Broken),
        Err(_) => Err(Refusal::TooSlow),
    }
}

/// The user in a login form, or an error message for the visitor.
fn user_in(body: &[u8]) -> Result<String, &'static str> {
    let user = form::field(body, "user").unwrap_or_default();
    let user = user.trim();
    if user.is_empty() {
        return Err("Please give a name.");
    }
    if user.len() > USER_MAX {
        return Err("That name is too long.");
    }
    Ok(user.to_owned())
}

/// The group of a user: the word behind the `@` in the name, or empty. The shop keeps no list of users.
fn group_of(user: &str) -> &str {
    let group = user.rsplit_once('@').map_or("", |(_, group)| group);
    let is_word = group.len() <= 16 && group.bytes().all(|b| b.is_ascii_lowercase());
    if is_word { group } else { "" }
}

/// The item in a cart form, and its count.
fn wish_in(body: &[u8]) -> Option<(&'static CatalogueItem, u32)> {
    let item = catalogue::item(&form::field(body, "item")?)?;
    let count = form::field(body, "count")?.parse().ok()?;
    (1..=99).contains(&count).then_some((item, count))
}

/// The largest form body, in bytes.
const MAX_FORM: usize = 16 * 1024;
/// How long a form body may take to arrive.
const FORM_TIME: Duration = Duration::from_secs(10);
