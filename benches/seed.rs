//! Fills a store with sessions, for the benches: not a measurement itself.
//!
//!     cargo bench --bench seed -- --url embedded:/tmp/folder --sessions 1000000
//!
//! Goes through the public store traits, so that what it leaves is what the proxy would have
//! written: `tok-00000000` and on, logged in as `user-0` and on, the first seen longest ago, each
//! with views and a cart.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, StoredToken, User};
use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, Layout, OpenStore, StoreError, StoreLimits, StoreSettings, Url, Visit,
};
use clap::Parser;
use tokio::task::JoinSet;

/// Items that views and carts name.
const ITEMS: u32 = 1_000;
/// Sessions under way at once: a group commit of the embedded store.
const GROUP: u32 = 256;
/// Visits in one call.
const TOUCH_BATCH: u32 = 50;

type Failure = Box<dyn std::error::Error>;

/// What to fill, and with how much.
#[derive(Debug, Parser)]
struct Options {
    /// `embedded:<folder>` or `redis://host:port`
    #[arg(long)]
    url: String,
    /// Sessions to log in.
    #[arg(long, default_value_t = 1_000_000)]
    sessions: u32,
    /// Items that each has viewed.
    #[arg(long, default_value_t = 5)]
    items: u32,
    /// Items in the cart of each.
    #[arg(long, default_value_t = 1)]
    cart: u32,
    /// What cargo passes to each bench.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Failure> {
    // Without arguments of its own there is nothing to fill: `cargo bench` runs every bench.
    if !std::env::args().any(|argument| argument == "--url") {
        return Ok(());
    }
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, fill(options))
}

async fn fill(options: Options) -> Result<(), Failure> {
    let open = OpenStore::open(&settings(&options.url)).await?;
    let store = open.thread_handle();
    store.connected().await;
    let options = Rc::new(options);
    let now = unix_now();
    for first in (0..options.sessions).step_by(GROUP as usize) {
        let end = options.sessions.min(first + GROUP);
        log_in(&store, &options, first..end, now).await?;
    }
    drop(store);
    open.close().await;
    Ok(())
}

async fn log_in(
    store: &AnyStore,
    options: &Rc<Options>,
    group: std::ops::Range<u32>,
    now: f64,
) -> Result<(), Failure> {
    let mut tasks = JoinSet::<Result<(), StoreError>>::new();
    for n in group.clone() {
        let (store, options) = (store.clone(), Rc::clone(options));
        tasks.spawn_local(async move {
            let seen = last_seen(&options, n, now);
            store.update_token(&token(n), &user(n), None, seen).await?;
            for at in 0..options.cart {
                store.add_to_cart(&token(n), &item(n + at), 1).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    if options.items > 0 {
        for first in group.clone().step_by(TOUCH_BATCH as usize) {
            let end = group.end.min(first + TOUCH_BATCH);
            let visits: Vec<Visit> = (first..end).map(|n| visit(options, n, now)).collect();
            store.touch_tokens(&visits).await?;
        }
    }
    Ok(())
}

fn settings(url: &str) -> StoreSettings {
    let url = match url.strip_prefix("embedded:") {
        Some(folder) => Url::Embedded(PathBuf::from(folder)),
        None => Url::Redis(url.to_owned()),
    };
    let patience = Duration::from_secs(60);
    let limits = StoreLimits {
        read_timeout: patience,
        write_timeout: patience,
        viewed_items: 25,
        pages: 1 << 30,
        max_page: 1 << 20,
    };
    StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits }
}

fn visit(options: &Options, n: u32, now: f64) -> Visit {
    let seen = last_seen(options, n, now);
    let items = (0..options.items).map(|at| (item(n.wrapping_mul(7) + at), seen)).collect();
    Visit { token: token(n), user: user(n), seen, items }
}

/// A millisecond apart, the last one an hour ago: a bench's own visits are all newer.
fn last_seen(options: &Options, n: u32, now: f64) -> f64 {
    now - 3_600.0 - f64::from(options.sessions - n) / 1_000.0
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
