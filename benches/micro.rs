//! What single steps cost: the verdict, keys, the codec of pages, and both stores.
//!
//!     cargo bench --bench micro
//!     cargo bench --bench micro -- redis      those whose names hold the word
//!
//! The stores are real: an embedded one in a temporary folder, and a `redis-server` of this bench's
//! own on a free loopback port, without persistence. Both hold 10,000 sessions.

use std::cell::Cell;
use std::hint::black_box;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteroom_cache::entry::{Entry, LifetimeSource, StaleLifetimes, StoredValue};
use anteroom_cache::memory::{Memory, MemoryValue};
use anteroom_cache::page_fields::PageFields;
use anteroom_cache::rules::key::{KeyParts, ShareClass, hash_request};
use anteroom_cache::rules::leak_guard::{LeakChecks, inspect};
use anteroom_cache::rules::leak_kind::PersonalForms;
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_cache::rules::verdict::{Access, CacheSettings, RequestView, Sharing, can_cache};
use anteroom_http::clock::unix_now;
use anteroom_http::field_set::FieldSet;
use anteroom_http::ident::{Item, PageKey, StoredToken, User};
use anteroom_http::query::QueryRule;
use anteroom_policy::route::Route;
use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, Layout, OpenStore, RequestFrequency, StoreLimits, StoreSettings, Url, Visit,
};
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Sessions in the stores.
const SESSIONS: u32 = 10_000;
/// Items that are viewed.
const ITEMS: u32 = 1_000;
/// Visits in one step.
const VISITS: u32 = 50;
/// Unix time at which the page was stored.
const STORED_AT: u64 = 1_790_000_000;

criterion_group!(benches, decide, key, codec, guard, embedded, on_redis);
criterion_main!(benches);

// What is pure

fn decide(criterion: &mut Criterion) {
    let (headers, route) = (browser_fields(), Route::rest(false, QueryRule::default()));
    let policy = CacheSettings {
        default_ttl: Duration::from_secs(300),
        stale_while_revalidate: Duration::ZERO,
        stale_if_error: Duration::from_secs(3600),
        static_for_all: true,
        max_object: 8 << 20,
        client_directives: false,
    };
    let asked = RequestView {
        method: &Method::GET,
        path: "/item/lantern",
        query: "",
        headers: &headers,
        fields: FieldSet::of(&headers),
        has_body: false,
        bound: false,
        who: Sharing::Anonymous,
    };
    let memory = Memory::new(64 << 20);
    for n in 0..ITEMS {
        memory.put(
            key_of(&headers, &format!("/item/{n}")),
            MemoryValue::Page(Arc::new(entry())),
            0,
        );
    }
    memory.put(key_of(&headers, asked.path), MemoryValue::Page(Arc::new(entry())), 0);
    criterion.bench_function("verdict/can_cache", |bench| {
        bench.iter(|| can_cache(black_box(&asked), &route, &policy));
    });
    criterion.bench_function("verdict/hit", |bench| {
        bench.iter(|| {
            let access = can_cache(black_box(&asked), &route, &policy);
            assert!(matches!(access, Access::Shared(_)), "the page is shared");
            match memory.get(&key_of(&headers, asked.path)) {
                Some(MemoryValue::Page(page)) => page.is_fresh(STORED_AT + 10),
                Some(MemoryValue::Variants(_)) | None => unreachable!("the page is in memory"),
            }
        });
    });
}

fn key(criterion: &mut Criterion) {
    let headers = browser_fields();
    criterion.bench_function("key/hash_request", |bench| {
        bench.iter(|| key_of(&headers, black_box("/item/lantern")));
    });
}

fn codec(criterion: &mut Criterion) {
    let stored = StoredValue::Page(entry());
    let bytes = stored.encode();
    criterion.bench_function("codec/encode", |bench| bench.iter(|| black_box(&stored).encode()));
    criterion.bench_function("codec/decode", |bench| {
        bench.iter(|| StoredValue::decode(black_box(&bytes).clone()));
    });
}

/// The leak guard over a page of 16 KiB: fetched for a stranger, and for a user of whom it looks for the
/// name, two attributes and the token.
fn guard(criterion: &mut Criterion) {
    let item = "<li class=\"item\"><a href=\"/item/lantern?ref=list&amp;page=2\">A lantern of \
                brass &amp; glass</a> <span>19&nbsp;&euro;</span></li>\n";
    let page = format!("<html><body><ul>{}</ul></body></html>", item.repeat(120));
    let body = [Bytes::from(page)];
    let headers = fields(&[("content-type", "text/html; charset=utf-8")]);
    let mut somebody = PersonalData::default();
    somebody.user(b"alice.brown");
    somebody.attribute(b"alice.brown@example.com");
    somebody.attribute(b"C-10442");
    somebody.token(b"0a1b2c3d4e5f60718293a4b5c6d7e8f9");
    let json = fields(&[("content-type", "application/json")]);
    for (name, headers, personal_data) in [
        ("guard/stranger", &headers, &PersonalData::default()),
        ("guard/somebody", &headers, &somebody),
        ("guard/json of somebody", &json, &somebody),
    ] {
        let watch = LeakChecks { forms: PersonalForms::None, personal_data, max_decoded: 8 << 20 };
        criterion.bench_function(name, |bench| {
            bench.iter(|| inspect(headers, black_box(&body), &watch));
        });
    }
}

fn key_of(headers: &HeaderMap, path: &str) -> PageKey {
    hash_request(&KeyParts {
        site: "",
        scheme: "https",
        host: "bench.example",
        path,
        query: "",
        class: ShareClass::Anonymous,
        group: b"",
        headers,
        key_cookies: &[],
        key_headers: &[],
        conditions: &[],
        by_query: None,
    })
}

/// What a browser sends with a click.
fn browser_fields() -> HeaderMap {
    fields(&[
        ("host", "bench.example"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"),
        ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        ("accept-language", "en-GB,en;q=0.5"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("referer", "https://bench.example/"),
        ("upgrade-insecure-requests", "1"),
        ("sec-fetch-dest", "document"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-site", "same-origin"),
    ])
}

fn entry() -> Entry {
    let headers = fields(&[
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "16384"),
        ("cache-control", "max-age=300"),
        ("date", "Mon, 21 Sep 2026 14:13:20 GMT"),
        ("etag", "\"5f2a\""),
        ("x-content-type-options", "nosniff"),
    ]);
    Entry {
        recipe: None,
        hits: anteroom_cache::hit_count::HitCount::default(),
        status: 200,
        reason: None,
        fields: PageFields::of(&headers),
        body: Bytes::from(vec![b'x'; 16 << 10]),
        stored_at: STORED_AT,
        initial_age: 0,
        lifetime: 300,
        source: LifetimeSource::Explicit,
        stale: StaleLifetimes::default(),
        static_proof: false,
        has_own_etag: false,
        vary: Vec::new(),
        purge_snapshot: Default::default(),
    }
}

fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let field = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    lines.iter().map(field).collect()
}

// The stores

fn embedded(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("the system has room for a folder");
    measure(criterion, "embedded", Url::Embedded(folder.path().to_owned()));
}

fn on_redis(criterion: &mut Criterion) {
    let server = RedisServer::start();
    measure(criterion, "redis", Url::Redis(format!("redis://127.0.0.1:{}", server.port)));
}

fn measure(criterion: &mut Criterion, name: &str, url: Url) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let (open, store) = runtime.block_on(filled(url));
    reads(criterion, name, &runtime, &store);
    writes(criterion, name, &runtime, &store);
    drop(store);
    runtime.block_on(open.close());
}

fn reads(criterion: &mut Criterion, name: &str, runtime: &Runtime, store: &AnyStore) {
    let next = Cell::new(0);
    criterion.bench_function(&format!("{name}/check_token"), |bench| {
        bench.to_async(runtime).iter(async || {
            let user = store.check_token(&token(turn(&next))).await.expect("the store is there");
            assert!(user.is_some(), "everybody is logged in");
        });
    });
    criterion.bench_function(&format!("{name}/page"), |bench| {
        bench.to_async(runtime).iter(async || {
            let page = store.page(&PageKey([1; 32])).await.expect("the store is there");
            assert!(page.is_some(), "the page is stored");
        });
    });
}

fn writes(criterion: &mut Criterion, name: &str, runtime: &Runtime, store: &AnyStore) {
    let next = Cell::new(0);
    criterion.bench_function(&format!("{name}/touch_tokens of {VISITS} with an item"), |bench| {
        bench.to_async(runtime).iter(async || {
            let now = unix_now();
            let visits: Vec<Visit> = (0..VISITS).map(|_| visit(turn(&next), now)).collect();
            let held = store.touch_tokens(&visits).await.expect("the store is there");
            assert!(held.iter().all(|held| *held), "everybody is logged in");
        });
    });
    criterion.bench_function(&format!("{name}/count_views of {VISITS}"), |bench| {
        bench.to_async(runtime).iter(async || {
            let views: Vec<_> = (0..VISITS).map(|_| (item(turn(&next)), 1)).collect();
            store.count_views(&views).await.expect("the store is there");
        });
    });
    criterion.bench_function(&format!("{name}/add_to_cart"), |bench| {
        bench.to_async(runtime).iter(async || {
            let n = turn(&next);
            store.add_to_cart(&token(n), &item(n), 1).await.expect("the store is there");
        });
    });
}

/// A store with everybody logged in, and a page.
async fn filled(url: Url) -> (OpenStore, AnyStore) {
    let patience = Duration::from_secs(10);
    let limits = StoreLimits {
        read_timeout: patience,
        write_timeout: patience,
        viewed_items: 25,
        pages: 1 << 30,
        max_page: 1 << 20,
    };
    let settings = StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits };
    let open = OpenStore::open(&settings).await.expect("the store opens");
    let store = open.thread_handle();
    store.connected().await;
    for n in 0..SESSIONS {
        store.update_token(&token(n), &user(n), None, 1.0).await.expect("the store is there");
    }
    let page = StoredValue::Page(entry()).encode();
    let day = Duration::from_secs(86_400);
    store
        .put_page(&PageKey([1; 32]), page, day, RequestFrequency::Again)
        .await
        .expect("there is room for a page");
    (open, store)
}

/// The next session: each in its turn, far from the last.
fn turn(next: &Cell<u32>) -> u32 {
    next.set((next.get() + 7_919) % SESSIONS);
    next.get()
}

fn visit(n: u32, seen: f64) -> Visit {
    Visit { token: token(n), user: user(n), seen, items: vec![(item(n), seen)] }
}

fn token(n: u32) -> StoredToken {
    StoredToken::from_store(format!("tok-{n:08}").as_bytes()).expect("follows the grammar")
}

fn user(n: u32) -> User {
    User::new(format!("user-{n}").as_bytes()).expect("neither empty nor too long")
}

fn item(n: u32) -> Item {
    Item::new(&format!("item-{}", n % ITEMS)).expect("neither empty nor too long")
}

/// A `redis-server` of the bench's own, gone on drop.
struct RedisServer {
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl RedisServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("the system has room for a folder");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"])
            .arg(folder.path())
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed and in PATH");
        let server = Self { port, child, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(15);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(Instant::now() < deadline, "redis-server did not come up");
            std::thread::yield_now();
        }
        server
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
