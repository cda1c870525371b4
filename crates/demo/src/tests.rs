//! Tests of the shop over real sockets: what a client receives.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::{DemoShopSettings, Shop, serve};

#[test]
fn the_front_page_links_every_item() {
    visit(async |shop| {
        let page = shop.get("/").await;
        assert_eq!(page.status(), StatusCode::OK);
        for item in &super::catalogue::ITEMS {
            let link = format!(r#"href="/item/{}""#, item.slug);
            assert!(page.body().contains(&link), "{link} is missing");
            assert_eq!(shop.get(&format!("/item/{}", item.slug)).await.status(), StatusCode::OK);
        }
    });
}

#[test]
fn pages_say_nothing_about_caching_and_set_no_cookie() {
    visit(async |shop| {
        for path in ["/", "/item/umbrella", "/login", "/account", "/example", "/static/shop.css"] {
            let page = shop.send(get(path).header("X-Anteroom-User", "ada"), "").await;
            assert_eq!(page.status(), StatusCode::OK, "{path}");
            for field in ["cache-control", "expires", "pragma", "vary", "set-cookie"] {
                assert!(!page.headers().contains_key(field), "{path} sends {field}");
            }
        }
    });
}

#[test]
fn public_pages_do_not_know_the_visitor() {
    visit(async |shop| {
        for path in ["/", "/item/fern", "/login", "/nowhere", "/example"] {
            let page = shop.send(get(path).header("X-Anteroom-User", "ada-lovelace"), "").await;
            assert!(!page.body().contains("ada-lovelace"), "{path}");
        }
    });
}

#[test]
fn a_log_in_answers_with_the_login_field_and_leads_to_the_account() {
    visit(async |shop| {
        let answer = shop.post("/login", "user=Zo%C3%AB+100%25").await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()["location"], "/account");
        assert_eq!(answer.headers()["anteroom-login"], "Zo%C3%AB%20100%25");
        assert!(!answer.headers().contains_key("set-cookie"));
    });
}

#[test]
fn a_log_in_without_a_usable_name_is_refused() {
    let long = format!("user={}", "x".repeat(257));
    visit(async |shop| {
        for form in ["", "user=", "user=++%20", "name=ada", &long] {
            let answer = shop.post("/login", form).await;
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{form}");
            assert!(!answer.headers().contains_key("anteroom-login"), "{form}");
            assert!(answer.body().contains("role=\"alert\""), "{form}");
        }
    });
}

#[test]
fn the_longest_name_is_taken() {
    visit(async |shop| {
        let answer = shop.post("/login", &format!("user={}", "x".repeat(256))).await;
        assert_eq!(answer.headers()["anteroom-login"].len(), 256);
    });
}

#[test]
fn a_form_is_read_up_to_its_bound() {
    visit(async |shop| {
        let fits = format!("user=ada&pad={}", "x".repeat(16 * 1024 - 13));
        assert_eq!(shop.post("/login", &fits).await.status(), StatusCode::SEE_OTHER);
        let told = shop.post("/login", &(fits.clone() + "x")).await;
        assert_eq!(told.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let chunked = get("/login").method("POST").header("transfer-encoding", "chunked");
        let found = shop.send(chunked, &(fits + "x")).await;
        assert_eq!(found.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(found.headers()["connection"], "close");
    });
}

#[test]
fn a_log_out_answers_with_the_logout_field() {
    visit(async |shop| {
        let answer = shop.post("/logout", "").await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()["anteroom-logout"], "1");
    });
}

#[test]
fn the_account_page_greets_the_user_in_the_proxy_header() {
    visit(async |shop| {
        let ada = get("/account").header("X-Anteroom-User", "Zo%C3%AB%20%3Cb%3E");
        let page = shop.send(ada.header("X-Anteroom-Session", "known"), "").await;
        assert!(page.body().contains("Hello, Zoë &lt;b&gt;"), "{}", page.body());
        assert!(page.body().contains("<dd>known</dd>"), "{}", page.body());
    });
}

#[test]
fn an_anonymous_account_page_redirects_to_the_log_in() {
    visit(async |shop| {
        let answer = shop.get("/account").await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()["location"], "/login");
    });
}

#[test]
fn the_proxy_is_told_what_goes_into_the_cart() {
    visit(async |shop| {
        let post = || get("/cart").method("POST");
        let ada = || post().header("X-Anteroom-User", "ada");
        let answer = shop.send(ada(), "count=2&item=umbrella").await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()["location"], "/cart");
        assert_eq!(answer.headers()["anteroom-cart"], "umbrella;count=2");

        let nobody = shop.send(post(), "count=2&item=umbrella").await;
        assert_eq!(nobody.headers()["location"], "/login");
        assert!(!nobody.headers().contains_key("anteroom-cart"));

        for form in
            ["", "item=umbrella", "item=none&count=1", "item=fern&count=0", "item=fern&count=x"]
        {
            let answer = shop.send(ada(), form).await;
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{form}");
            assert!(!answer.headers().contains_key("anteroom-cart"), "{form}");
        }
    });
}

#[test]
fn the_page_of_the_cart_is_the_same_for_everyone() {
    visit(async |shop| {
        let ada = shop.send(get("/cart").header("X-Anteroom-User", "ada"), "").await;
        assert_eq!(ada.status(), StatusCode::OK);
        assert!(!ada.body().contains("ada"), "{}", ada.body());
        assert!(ada.body().contains("data-item=\"umbrella\""), "{}", ada.body());
    });
}

#[test]
fn a_static_file_is_validated_by_its_tag() {
    visit(async |shop| {
        let file = shop.get("/static/umbrella.svg").await;
        assert_eq!(file.headers()["content-type"], "image/svg+xml");
        let tag = file.headers()["etag"].to_str().expect("the tag is ASCII");
        for held in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let again = shop.send(get("/static/umbrella.svg").header("If-None-Match", held), "");
            let again = again.await;
            assert_eq!((again.status(), again.body().len()), (StatusCode::NOT_MODIFIED, 0));
            assert_eq!(again.headers()["etag"], tag);
        }
        let other = get("/static/umbrella.svg").header("If-None-Match", "\"other\"");
        assert_eq!(shop.send(other, "").await.status(), StatusCode::OK);
    });
}

#[test]
fn head_gives_the_head_of_the_page_alone() {
    visit(async |shop| {
        for path in ["/", "/static/shop.css"] {
            let page = shop.get(path).await;
            let head = shop.send(get(path).method("HEAD"), "").await;
            assert_eq!((head.status(), head.body().len()), (StatusCode::OK, 0));
            assert_eq!(head.headers()["content-length"], page.body().len().to_string());
        }
    });
}

#[test]
fn unknown_paths_are_not_found() {
    visit(async |shop| {
        for path in ["/nowhere", "/item/", "/item/none", "/item/umbrella/", "/static/../mod.rs"] {
            assert_eq!(shop.get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
        }
    });
}

#[test]
fn a_log_in_may_name_a_group() {
    visit(async |shop| {
        for (form, login) in [
            ("user=ada@trade", "ada@trade; group=trade"),
            ("user=ada@a%3Bb%3Dc", "ada@a;b=c"),
            ("user=ada@", "ada@"),
        ] {
            let answer = shop.post("/login", form).await;
            assert_eq!(answer.headers()["anteroom-login"], login);
        }
    });
}

#[test]
fn offers_depend_on_the_group_alone() {
    visit(async |shop| {
        let page = async |user: &str| {
            let answer = shop.send(get("/offers").header("X-Anteroom-User", user), "").await;
            answer.into_body()
        };
        assert_eq!(page("ada@trade").await, page("bob@trade").await);
        assert_ne!(page("ada@trade").await, page("ada@retail").await);
        assert_eq!(page("ada").await, page("bob").await);
    });
}

#[test]
fn pages_are_tagged() {
    visit(async |shop| {
        assert_eq!(shop.get("/").await.headers()["surrogate-key"], "goods");
        let item = shop.get("/item/fern").await;
        assert_eq!(item.headers()["surrogate-key"], "goods item-fern");
    });
}

#[test]
fn the_switch_makes_pages_fail_until_it_is_turned_back() {
    visit(async |shop| {
        assert_eq!(shop.get("/tour/fail").await.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(shop.get("/").await.status(), StatusCode::OK);
        assert_eq!(shop.post("/tour/fail", "").await.status(), StatusCode::OK);
        for path in ["/", "/item/fern", "/account", "/nowhere"] {
            assert_eq!(shop.get(path).await.status(), StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        }
        assert_eq!(shop.get("/static/shop.css").await.status(), StatusCode::OK);
        assert_eq!(shop.post("/tour/recover", "").await.status(), StatusCode::OK);
        assert_eq!(shop.get("/").await.status(), StatusCode::OK);
    });
}

#[test]
fn other_methods_are_told_what_is_allowed() {
    visit(async |shop| {
        for (path, allow) in [("/", "GET, HEAD"), ("/login", "GET, HEAD, POST")] {
            let answer = shop.send(get(path).method("DELETE"), "").await;
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(answer.headers()["allow"], allow);
        }
        assert_eq!(shop.get("/logout").await.headers()["allow"], "POST");
    });
}

#[test]
fn the_counter_tells_requests_by_path_and_not_its_own() {
    visit(async |shop| {
        for path in ["/", "/", "/?page=2", "/item/fern", "/a", "/b", "/origin-stats"] {
            shop.get(path).await;
        }
        let stats = shop.get("/origin-stats").await;
        assert_eq!(stats.headers()["cache-control"], "no-store");
        let stats: serde_json::Value = serde_json::from_str(stats.body()).expect("it is JSON");
        let expected = serde_json::json!({
            "total": 6, "by_path": { "/": 3, "/item/fern": 1, "(not found)": 2 }
        });
        assert_eq!(stats, expected);
    });
}

#[test]
fn a_page_takes_the_delay_and_a_static_file_does_not_wait_for_it() {
    let settings = DemoShopSettings { delay: Duration::from_secs(3_600) };
    visit_with(settings, async |shop| {
        let mut page = std::pin::pin!(shop.get("/"));
        tokio::select! {
            biased;
            _ = &mut page => unreachable!("the page cannot be ready before its hour"),
            file = shop.get("/static/shop.css") => assert_eq!(file.status(), StatusCode::OK),
        }
    });
}

#[test]
fn dropping_the_server_ends_its_connections() {
    local(async {
        let (shop, server) = open(DemoShopSettings { delay: Duration::ZERO }).await;
        let idle = TcpStream::connect(shop.address).await.expect("the shop listens");
        shop.get("/").await;
        server.abort();
        let mut byte = [0];
        let read = async {
            idle.readable().await?;
            idle.try_read(&mut byte)
        };
        let ended = tokio::time::timeout(DEADLINE, read).await.expect("the shop closes");
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    });
}

/// A client of one shop; each request uses its own connection.
struct Visitor {
    address: SocketAddr,
}

impl Visitor {
    async fn get(&self, path: &str) -> Response<String> {
        self.send(get(path), "").await
    }

    async fn post(&self, path: &str, form: &str) -> Response<String> {
        self.send(get(path).method("POST"), form).await
    }

    async fn send(&self, request: http::request::Builder, body: &str) -> Response<String> {
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let request = request.body(body).expect("the request is valid");
        tokio::time::timeout(DEADLINE, self.exchange(request)).await.expect("an answer in time")
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Response<String> {
        let stream = TcpStream::connect(self.address).await.expect("the shop listens");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::task::spawn_local(connection);
        let (head, body) = sender.send_request(request).await.expect("an answer").into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Response::from_parts(head, String::from_utf8(body.into()).expect("UTF-8"))
    }
}

fn get(path: &str) -> http::request::Builder {
    Request::get(path).header("host", "shop.test")
}

fn visit(test: impl AsyncFnOnce(&Visitor)) {
    visit_with(DemoShopSettings { delay: Duration::ZERO }, test);
}

fn visit_with(settings: DemoShopSettings, test: impl AsyncFnOnce(&Visitor)) {
    local(async {
        let (shop, _server) = open(settings).await;
        test(&shop).await;
    });
}

async fn open(
    settings: DemoShopSettings,
) -> (Visitor, tokio::task::JoinHandle<std::convert::Infallible>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let server = tokio::task::spawn_local(serve(listener, Rc::new(Shop::new(settings))));
    (Visitor { address }, server)
}

fn local(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default()).expect("a runtime");
    runtime.block_on(test);
}

/// How long a test waits before it fails.
const DEADLINE: Duration = Duration::from_secs(20);
