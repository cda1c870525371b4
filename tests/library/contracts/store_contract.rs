//! One contract for both stores, and what only one of them promises.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anteroom_http::ident::{Item, PageKey, StoredToken, Token, TokenStorage, User};
use anteroom_session::visit::VisitQueue;
use anteroom_store::remote::{RemoteCall, RemoteStore, answer};
use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, CART_MAX, CartAnswer, CartChange, CartOwner, Cursor, EXPIRING_BYTES, Engine,
    Eviction, EvictionResult, ExpiredSession, ExpiryAction, HandoverReason, Layout, OpenError,
    OpenStore, PurgePosition, RequestFrequency, RescaleResult, Rescaling, Rotation,
    SessionLifetimes, StoreError, StoreLimits, StoreSettings, StoreState, Url, Visit,
};
use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use anteroom_tests::on_cluster::SHARED_CLUSTER;
use anteroom_tests::redis::{RedisServer, connect};
use anteroom_tests::relay::Relay;

/// How long a condition may take to come true before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn limits() -> StoreLimits {
    StoreLimits {
        // Generous, so that a busy machine is no fault; the fault tests have their own.
        read_timeout: Duration::from_secs(2),
        write_timeout: Duration::from_secs(5),
        viewed_items: 25,
        pages: 1 << 20,
        max_page: 600 << 10,
    }
}

/// A store with what it stands on.
pub(crate) struct Bench {
    pub(crate) store: AnyStore,
    pub(crate) open: OpenStore,
    pub(crate) ground: Ground,
}

pub(crate) enum Ground {
    Folder(TempDir),
    Server(RedisServer),
    Cluster(TestCluster),
}

impl Bench {
    pub(crate) async fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = open_folder(folder.path()).await.unwrap();
        Self { store: open.thread_handle(), open, ground: Ground::Folder(folder) }
    }

    /// An embedded store that another process has taken over: each call travels, and `open` is that of the other process.
    pub(crate) async fn handed_over() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let given = open_folder(&folder.path().join("given")).await.unwrap();
        let open = open_folder(&folder.path().join("taken")).await.unwrap();
        let (calls, asked) = unbounded_channel();
        let taken = open.clone();
        std::thread::spawn(move || serve_calls(&taken, asked));
        given.switch().hold_for_successor().await.unwrap();
        given.switch().hand_over_to(Engine::Remote(RemoteStore::new(calls)));
        Self { store: given.thread_handle(), open, ground: Ground::Folder(folder) }
    }

    pub(crate) async fn redis() -> Self {
        Self::redis_with(limits()).await
    }

    pub(crate) async fn redis_with(limits: StoreLimits) -> Self {
        let server = RedisServer::start();
        let url = Url::Redis(server.url());
        let open = OpenStore::open(&StoreSettings {
            url,
            prefix: String::new(),
            layout: Layout::Single,
            limits,
        })
        .await
        .unwrap();
        let store = open.thread_handle();
        connected(&store).await;
        Self { store, open, ground: Ground::Server(server) }
    }

    /// A store in a Cluster.
    pub(crate) async fn cluster() -> Self {
        let cluster = TestCluster::start();
        let (url, prefix) = (Url::Redis(cluster.url()), cluster.prefix.clone());
        let layout = Layout::Sharded;
        // Each shard has its part of the room.
        let limits = StoreLimits { pages: 64 << 20, ..limits() };
        let settings = StoreSettings { url, prefix, layout, limits };
        let open = OpenStore::open(&settings).await.unwrap();
        let store = open.thread_handle();
        connected(&store).await;
        Self { store, open, ground: Ground::Cluster(cluster) }
    }

    pub(crate) fn in_background(self) -> Self {
        Self { store: self.store.background(), ..self }
    }

    pub(crate) fn server(&mut self) -> &mut RedisServer {
        match &mut self.ground {
            Ground::Server(server) => server,
            Ground::Folder(_) | Ground::Cluster(_) => panic!("there is not one server"),
        }
    }

    pub(crate) async fn raw(&self) -> MultiplexedConnection {
        match &self.ground {
            Ground::Server(server) => server.connection().await,
            Ground::Folder(_) | Ground::Cluster(_) => panic!("there is not one server"),
        }
    }

    /// Every key and member in the store, one a line, in the order of a set's scores.
    pub(crate) async fn dump(&self) -> Vec<String> {
        // The process that has the folder knows what is in it.
        let own = match &self.ground {
            Ground::Folder(_) => self.open.fixed_handle(),
            Ground::Server(_) | Ground::Cluster(_) => self.store.clone(),
        };
        match own.engine() {
            Engine::Embedded(store) => store.dump_keys().unwrap(),
            Engine::Remote(_) => panic!("it is another process's"),
            Engine::Redis(_) => lines_of(dump_redis(&mut self.raw().await, "").await),
            Engine::Sharded(_) => match &self.ground {
                Ground::Cluster(cluster) => cluster.dump().await,
                Ground::Folder(_) | Ground::Server(_) => panic!("there is no Cluster"),
            },
        }
    }

    /// The keys of a Cluster as they are.
    pub(crate) async fn raw_keys(&self) -> Vec<String> {
        let Ground::Cluster(cluster) = &self.ground else { panic!("there is no Cluster") };
        let found = cluster.found().await;
        found.into_iter().map(|(key, _, _)| key).collect()
    }

    /// The members of one key, in the order of their scores.
    pub(crate) async fn members(&self, key: &str) -> Vec<String> {
        let head = format!("{key} ");
        let lines = self.dump().await;
        lines.iter().filter_map(|line| line.strip_prefix(&head)).map(str::to_owned).collect()
    }

    pub(crate) async fn log_in(&self, token: &StoredToken, name: &str, now: f64) {
        self.store.update_token(token, &user(name), None, now).await.unwrap();
    }

    async fn evict(&self, keep: u64, batch: u32) -> usize {
        self.store.evict_oldest(Eviction { keep, batch, carts: true, before: 0.0 }).await.unwrap()
    }

    pub(crate) async fn user_of(&self, token: &StoredToken) -> Option<User> {
        self.store.check_token(token).await.unwrap()
    }
}

/// Carries out the calls of another process until it ends.
fn serve_calls(open: &OpenStore, mut asked: UnboundedReceiver<RemoteCall>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open.thread_handle();
        while let Some(RemoteCall { call, reply, .. }) = asked.recv().await {
            let (answer, _effects) = answer(&store, &call).await;
            // The caller may be gone.
            let _ = reply.send(answer);
        }
    });
}

/// A Cluster with the keys of one test.
pub(crate) struct TestCluster {
    /// The test's own, of one node, unless a Cluster is there for all tests.
    _own: Option<RedisServer>,
    nodes: Vec<String>,
    prefix: String,
}

impl TestCluster {
    fn start() -> Self {
        if let Ok(nodes) = std::env::var(SHARED_CLUSTER) {
            let nodes = nodes.split(',').map(str::to_owned).collect();
            let prefix = format!("t{:016x}:", fastrand::u64(..));
            return Self { _own: None, nodes, prefix };
        }
        let own = RedisServer::start_cluster();
        let nodes = vec![format!("127.0.0.1:{}", own.port())];
        Self { _own: Some(own), nodes, prefix: String::new() }
    }

    fn url(&self) -> String {
        format!("redis+cluster://{}", self.nodes.join(","))
    }

    /// Everything that the test has written, by key without its prefix.
    async fn found(&self) -> Vec<(String, f64, String)> {
        let mut found = Vec::new();
        for node in &self.nodes {
            let mut on = connect(&format!("redis://{node}")).await;
            let role: Vec<redis::Value> = ask(&mut on, &["ROLE"]).await;
            if role[0] == redis::Value::BulkString(b"master".to_vec()) {
                found.extend(dump_redis(&mut on, &self.prefix).await);
            }
        }
        for (key, _, _) in &mut found {
            *key = key.strip_prefix(&self.prefix).unwrap().to_owned();
        }
        found
    }

    /// As [`Bench::dump`]: without the tags of shards, as if there were one.
    async fn dump(&self) -> Vec<String> {
        let mut found = self.found().await;
        for (key, _, _) in &mut found {
            *key = without_tag(key);
        }
        found.sort_by(|(one, time, _), (other, later, _)| {
            one.cmp(other).then(time.total_cmp(later))
        });
        lines_of(found)
    }
}

/// `login:{s17}` is `login:`, `cart:{s17}:<token>` is `cart:<token>`.
fn without_tag(key: &str) -> String {
    let Some((before, rest)) = key.split_once("{s") else { return key.to_owned() };
    let after = rest.split_once('}').unwrap().1;
    format!("{before}{}", after.strip_prefix(':').unwrap_or(after))
}

fn lines_of(found: Vec<(String, f64, String)>) -> Vec<String> {
    found.into_iter().map(|(key, _, member)| format!("{key} {member}")).collect()
}

/// Keys that begin with a prefix, with their members and these' scores.
async fn dump_redis(on: &mut MultiplexedConnection, prefix: &str) -> Vec<(String, f64, String)> {
    let mut found = Vec::new();
    let keys: Vec<String> = ask(on, &["KEYS", &format!("{prefix}*")]).await;
    for key in keys {
        let members: Vec<(String, f64)> = match type_of(on, &key).await.as_str() {
            "zset" => ask(on, &["ZRANGE", &key, "0", "-1", "WITHSCORES"]).await,
            "hash" => unscored(ask(on, &["HKEYS", &key]).await),
            "list" => unscored(ask(on, &["LRANGE", &key, "0", "-1"]).await),
            "stream" => unscored(streamed(on, &key).await),
            _ => unscored(vec![String::new()]),
        };
        found.extend(members.into_iter().map(|(member, score)| (key.clone(), score, member)));
    }
    found
}

fn unscored(members: Vec<String>) -> Vec<(String, f64)> {
    members.into_iter().map(|member| (member, 0.0)).collect()
}

/// The fields of each entry of a stream.
async fn streamed(on: &mut MultiplexedConnection, key: &str) -> Vec<String> {
    let entries: Vec<(String, Vec<String>)> = ask(on, &["XRANGE", key, "-", "+"]).await;
    entries.into_iter().map(|(_, fields)| fields.join(" ")).collect()
}

pub(crate) async fn ask<T: redis::FromRedisValue>(
    on: &mut MultiplexedConnection,
    words: &[&str],
) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(on).await.unwrap()
}

async fn type_of(on: &mut MultiplexedConnection, key: &str) -> String {
    ask(on, &["TYPE", key]).await
}

pub(crate) async fn open_folder(folder: &Path) -> Result<OpenStore, OpenError> {
    open_folder_with(folder, limits()).await
}

async fn open_folder_with(folder: &Path, limits: StoreLimits) -> Result<OpenStore, OpenError> {
    let url = Url::Embedded(folder.to_owned());
    OpenStore::open(&StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits })
        .await
}

pub(crate) async fn connected(store: &AnyStore) {
    tokio::time::timeout(PATIENCE, store.connected()).await.expect("the store connects");
}

/// Tries until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sessions last for as long as they are kept.
pub(crate) const ENDLESS: SessionLifetimes =
    SessionLifetimes { now: 0.0, idle: None, absolute: None, notes: false };

pub(crate) fn token(number: usize) -> StoredToken {
    Token::parse(format!("token-{number:04}").as_bytes()).unwrap().stored(TokenStorage::Plain)
}

pub(crate) fn user(name: &str) -> User {
    User::new(name.as_bytes()).unwrap()
}

pub(crate) fn item(number: usize) -> Item {
    Item::new(&format!("item-{number}")).unwrap()
}

pub(crate) fn visit(number: usize, name: &str, seen: f64, items: &[usize]) -> Visit {
    let items = items.iter().map(|number| (item(*number), seen)).collect();
    Visit { token: token(number), user: user(name), seen, items }
}

pub(crate) fn rotation(old: Option<usize>, new: usize, name: &str) -> Rotation {
    let user = user(name);
    let (old, new) = (old.map(token), token(new));
    Rotation { old, new, user, now: 100.0, most: 0, expiry_action: None, visitor: None }
}

/// Makes a test of each promise for each store. Those after `of one place` are not made for a Cluster: what they
/// promise of an order or a bound holds there for each shard.
macro_rules! contract {
    ($($promise:ident),* $(,)? $(; of one place: $($here:ident),* $(,)?)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::Bench::embedded().await).await;
            })*
            $($(#[tokio::test]
            async fn $here() {
                super::$here(super::Bench::embedded().await).await;
            })*)?
        }
        mod redis_store {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::Bench::redis().await).await;
            })*
            $($(#[tokio::test]
            async fn $here() {
                super::$here(super::Bench::redis().await).await;
            })*)?
        }
        mod redis_in_background {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::Bench::redis().await.in_background()).await;
            })*
            $($(#[tokio::test]
            async fn $here() {
                super::$here(super::Bench::redis().await.in_background()).await;
            })*)?
        }
        mod cluster {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::Bench::cluster().await).await;
            })*
        }
    };
}
pub(crate) use contract;

/// Makes a test of each promise for a store whose calls travel to another process. They ask for nothing but what travels.
macro_rules! remote_contract {
    ($($promise:ident),* $(,)?) => {
        mod handed_over {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::Bench::handed_over().await).await;
            })*
        }
    };
}
pub(crate) use remote_contract;

remote_contract!(
    a_log_in_with_an_item_records_the_view_too,
    a_log_in_takes_over_what_the_same_user_had,
    a_log_in_takes_nothing_from_another_user,
    a_log_in_under_a_token_of_another_user_starts_empty,
    a_log_in_under_the_same_token_keeps_everything,
    a_cart_holds_what_was_put_in,
    a_cart_is_changed_only_for_a_logged_in_user,
    a_cart_has_a_bound,
    a_cart_goes_with_its_visitor_to_a_new_token,
    what_no_request_needs_does_not_travel,
);

async fn what_no_request_needs_does_not_travel(bench: Bench) {
    let store = &bench.store;
    assert_eq!(store.state(), StoreState::Connected);
    let key = PageKey([1; 32]);
    assert!(matches!(store.page(&key).await, Err(StoreError::Away)));
    assert!(matches!(store.outbox().await, Err(StoreError::Away)));
    assert!(matches!(store.newest(None, 10).await, Err(StoreError::Away)));
    assert!(matches!(store.move_state().await, Err(StoreError::Away)));
    assert!(matches!(store.counts().await, Err(StoreError::Away)));
}

contract!(
    a_token_is_known_from_log_in_to_log_out,
    a_log_in_with_an_item_records_the_view_too,
    the_newest_25_items_stay_in_order,
    a_touch_never_creates_a_session,
    each_touch_is_told_whether_its_session_is_there,
    recent_never_goes_back_in_time,
    the_oldest_go_first_in_batches_down_to_the_limit,
    carts_stay_when_only_sessions_are_cleaned,
    sessions_with_carts_stay_until_they_can_be_handed_on,
    no_more_carts_are_evicted_while_the_outbox_is_full,
    only_what_was_read_is_removed_from_the_outbox,
    a_visitor_returning_before_the_cleaner_is_kept_whole,
    a_visitor_returning_after_the_cleaner_stays_gone,
    a_visitor_returning_during_cleaning_is_never_half_gone,
    after_a_full_clean_nothing_mentions_a_token,
    two_evictors_do_no_work_twice,
    a_log_in_takes_nothing_that_a_cleaned_session_left,
    changing_a_cart_counts_as_a_visit,
    a_log_in_takes_over_what_the_same_user_had,
    a_log_in_takes_nothing_from_another_user,
    a_log_in_under_a_token_of_another_user_starts_empty,
    a_log_in_under_the_same_token_keeps_everything,
    attributes_stay_with_a_user_and_do_not_change_the_identity,
    a_cart_holds_what_was_put_in,
    a_cart_is_changed_only_for_a_logged_in_user,
    a_cart_has_a_bound,
    a_cart_goes_with_its_visitor_to_a_new_token,
    viewed_items_come_newest_first,
    the_most_viewed_rank_first,
    while_few_items_are_known_every_one_ranks,
    rescaling_keeps_the_most_viewed_and_halves,
    rescaling_waits_for_its_interval_across_processes,
    very_many_items_are_rescaled_too,
    a_page_is_served_until_its_time_is_up,
    a_page_can_be_replaced_and_deleted,
    a_page_over_the_limit_is_refused,
    ; of one place:
    large_carts_end_a_batch_early,
);

async fn a_token_is_known_from_log_in_to_log_out(bench: Bench) {
    assert_eq!(bench.user_of(&token(1)).await, None);
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.store.touch_tokens(&[visit(1, "ann", 2.0, &[1, 2])]).await.unwrap();
    bench.store.add_to_cart(&token(1), &item(1), 1).await.unwrap();
    assert_eq!(bench.user_of(&token(1)).await, Some(user("ann")));

    bench.store.revoke_token(&token(1)).await.unwrap();
    assert_eq!(bench.user_of(&token(1)).await, None);
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn a_log_in_with_an_item_records_the_view_too(bench: Bench) {
    let item = item(7);
    bench.store.update_token(&token(1), &user("ann"), Some(&item), 1.0).await.unwrap();
    assert_eq!(bench.members(&format!("viewed:{}", token(1).as_str())).await, ["item-7"]);
    assert_eq!(bench.members("viewed:").await, ["item-7"]);
    assert_eq!(bench.members("recent:").await, [token(1).as_str()]);
}

async fn the_newest_25_items_stay_in_order(bench: Bench) {
    bench.log_in(&token(1), "ann", 0.5).await;
    for number in 0..40_u8 {
        let visits = [visit(1, "ann", f64::from(number) + 1.0, &[number.into()])];
        assert_eq!(bench.store.touch_tokens(&visits).await.unwrap(), [true]);
    }
    bench.store.touch_tokens(&[visit(1, "ann", 99.0, &[20])]).await.unwrap();
    let mut expected: Vec<_> = (15..40).filter(|number| *number != 20).collect();
    expected.push(20);
    let expected: Vec<_> = expected.into_iter().map(|n| item(n).as_str().to_owned()).collect();
    assert_eq!(bench.members(&format!("viewed:{}", token(1).as_str())).await, expected);
}

async fn a_touch_never_creates_a_session(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    let before = bench.dump().await;
    let visits = [visit(2, "ann", 2.0, &[1]), visit(1, "bob", 2.0, &[1])];
    assert_eq!(bench.store.touch_tokens(&visits).await.unwrap(), [false, false]);
    assert_eq!(bench.dump().await, before);
}

async fn each_touch_is_told_whether_its_session_is_there(bench: Bench) {
    // In Redis a script takes fifty.
    for count in [0, 1, 49, 50, 51, 100, 125] {
        let (mut visits, mut expected) = (Vec::new(), Vec::new());
        for number in 0..count {
            let is_in = number % 3 == 0 || number % 7 == 0;
            if is_in {
                bench.log_in(&token(number), "ann", 1.0).await;
            }
            let name = if number % 6 == 0 { "bob" } else { "ann" };
            let viewed: Vec<usize> = (0..number % 4).collect();
            visits.push(visit(number, name, 2.0, &viewed));
            expected.push(is_in && name == "ann");
        }
        // Not in the order of the tokens.
        fastrand::Rng::with_seed(9).shuffle(&mut visits);
        fastrand::Rng::with_seed(9).shuffle(&mut expected);
        assert_eq!(bench.store.touch_tokens(&visits).await.unwrap(), expected, "{count}");
    }
}

async fn recent_never_goes_back_in_time(bench: Bench) {
    bench.log_in(&token(1), "ann", 10.0).await;
    bench.log_in(&token(2), "bob", 20.0).await;
    bench.store.touch_tokens(&[visit(2, "bob", 5.0, &[])]).await.unwrap();
    bench.log_in(&token(2), "bob", 6.0).await;
    assert_eq!(bench.members("recent:").await, [token(1).as_str(), token(2).as_str()]);
}

async fn the_oldest_go_first_in_batches_down_to_the_limit(bench: Bench) {
    for number in 0..10_u8 {
        bench.log_in(&token(number.into()), "ann", f64::from(number)).await;
    }
    bench.store.touch_tokens(&[visit(0, "ann", 50.0, &[])]).await.unwrap();
    assert_eq!(bench.evict(10, 4).await, 0);
    assert_eq!(bench.evict(3, 4).await, 4);
    assert_eq!(bench.members("recent:").await[0], token(5).as_str());
    assert_eq!(bench.evict(3, 4).await, 3);
    assert_eq!(bench.evict(3, 4).await, 0);
    let left: Vec<_> = [8, 9, 0].map(|number| token(number).as_str().to_owned()).into();
    assert_eq!(bench.members("recent:").await, left);
    assert_eq!(bench.user_of(&token(7)).await, None);
    assert_eq!(bench.user_of(&token(0)).await, Some(user("ann")));
}

async fn carts_stay_when_only_sessions_are_cleaned(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.store.add_to_cart(&token(1), &item(1), 2).await.unwrap();
    let how = Eviction { keep: 0, batch: 100, carts: false, before: 0.0 };
    assert_eq!(bench.store.evict_oldest(how).await.unwrap(), 1);
    assert_eq!(bench.dump().await, [format!("cart:{} item-1", token(1).as_str())]);
}

const OUTBOX: ExpiryAction = ExpiryAction::Outbox { storage: TokenStorage::Plain };
const STREAM: ExpiryAction = ExpiryAction::Stream { storage: TokenStorage::Plain, keep: 100_000 };

const QUEUE: ExpiryAction = ExpiryAction::Queue { storage: TokenStorage::Plain, keep: 100_000 };

impl Bench {
    async fn evict_expiring(
        &self,
        keep: u64,
        batch: u32,
        from: &Cursor,
        expiry_action: ExpiryAction,
    ) -> EvictionResult {
        let how = Eviction { keep, batch, carts: true, before: 0.0 };
        self.store.evict_expiring(how, from, &expiry_action).await.unwrap()
    }

    /// Sessions 0 to `count`, each a second younger; those of `carts` have one.
    async fn log_in_many(&self, count: u8, carts: &[usize]) {
        for number in 0..count {
            self.log_in(&token(number.into()), "ann", f64::from(number) + 0.25).await;
        }
        for number in carts {
            self.store.add_to_cart(&token(*number), &item(1), 2).await.unwrap();
        }
    }
}

fn counts(evicted: &EvictionResult) -> (usize, usize, usize, bool) {
    (evicted.removed, evicted.handed_on, evicted.waiting, evicted.more)
}

fn expired(number: u8) -> ExpiredSession {
    ExpiredSession {
        id: token(number.into()).public_id(TokenStorage::Plain),
        user: Some(user("ann")),
        seen: f64::from(number) + 0.25,
        cart: vec![(item(1), 2)],
        viewed: Vec::new(),
        why: HandoverReason::Expired,
    }
}

async fn sessions_with_carts_stay_until_they_can_be_handed_on(bench: Bench) {
    bench.log_in_many(7, &[0, 2, 3]).await;
    let first = bench.evict_expiring(1, 3, &Cursor::default(), ExpiryAction::Keep).await;
    assert_eq!(counts(&first), (1, 0, 2, true));
    // The session that waited first was seen again: another session over the limit is removed in its place.
    bench.store.touch_tokens(&[visit(0, "ann", 50.0, &[])]).await.unwrap();
    bench.store.touch_tokens(&[visit(6, "ann", 51.0, &[])]).await.unwrap();
    let mut from = first.cursor;
    let mut removed = first.removed;
    loop {
        let next = bench.evict_expiring(1, 3, &from, ExpiryAction::Keep).await;
        removed += next.removed;
        from = next.cursor;
        if !next.more {
            break;
        }
    }
    assert!((2..=3).contains(&removed), "{removed}");
    let held: Vec<_> = bench.members("recent:").await.into_iter().take(2).collect();
    assert_eq!(held, [2, 3].map(|number| token(number).as_str().to_owned()));
    let end = bench.evict_expiring(1, 9, &Cursor::default(), OUTBOX).await;
    assert!(!end.more && end.waiting == 0, "{end:?}");
    assert_eq!(bench.members("recent:").await, [token(6).as_str()]);
}

async fn no_more_carts_are_evicted_while_the_outbox_is_full(bench: Bench) {
    bench.log_in_many(6, &[0, 2, 3]).await;
    bench.store.touch_tokens(&[visit(2, "ann", 2.25, &[7])]).await.unwrap();
    let first = bench.evict_expiring(1, 3, &Cursor::default(), OUTBOX).await;
    assert_eq!(counts(&first), (3, 2, 0, true));
    let outbox = bench.store.outbox().await.unwrap();
    let viewed = vec![(item(7), 2.25)];
    assert_eq!(outbox.expired, [expired(0), ExpiredSession { viewed, ..expired(2) }]);

    let full = bench.evict_expiring(1, 3, &first.cursor, OUTBOX).await;
    assert_eq!(counts(&full), (1, 0, 1, false));
    assert_eq!(bench.user_of(&token(3)).await, Some(user("ann")));

    bench.store.clear_outbox(&outbox).await.unwrap();
    let next = bench.evict_expiring(1, 3, &Cursor::default(), OUTBOX).await;
    assert_eq!(counts(&next), (1, 1, 0, false));
    assert_eq!(bench.store.outbox().await.unwrap().expired, [expired(3)]);
    let left = bench.dump().await;
    let is_of_5 = |line: &String| line.contains(token(5).as_str()) || line.starts_with("expiring:");
    assert!(left.iter().all(is_of_5), "{left:?}");
}

async fn only_what_was_read_is_removed_from_the_outbox(bench: Bench) {
    bench.store.clear_outbox(&bench.store.outbox().await.unwrap()).await.unwrap();
    bench.log_in_many(3, &[0, 1, 2]).await;
    assert_eq!(bench.evict_expiring(1, 9, &Cursor::default(), OUTBOX).await.handed_on, 2);
    let read = bench.store.outbox().await.unwrap();
    bench.store.clear_outbox(&read).await.unwrap();
    assert_eq!(bench.evict_expiring(0, 9, &Cursor::default(), OUTBOX).await.handed_on, 1);
    bench.store.clear_outbox(&read).await.unwrap();
    assert_eq!(bench.store.outbox().await.unwrap().expired, [expired(2)]);
}

async fn large_carts_end_a_batch_early(bench: Bench) {
    let long = |number: usize| Item::new(&format!("{number:03}{}", "\"".repeat(125))).unwrap();
    let cart: Vec<_> = (0..CART_MAX).map(|number| (long(number), 1)).collect();
    for number in 0..40_u8 {
        bench.log_in(&token(number.into()), "ann", f64::from(number)).await;
        bench.change_cart(number.into(), "ann", &CartChange::Set(cart.clone())).await;
    }
    let whole = cart.len() * 128;
    let first = bench.evict_expiring(0, 1000, &Cursor::default(), OUTBOX).await;
    assert!(first.more && first.waiting == 0, "{first:?}");
    assert!((10..40).contains(&first.handed_on), "{first:?}");
    assert!(first.handed_on * whole < EXPIRING_BYTES + whole, "{first:?}");
    let outbox = bench.store.outbox().await.unwrap();
    assert_eq!(outbox.expired.len(), first.handed_on);
    assert_eq!(outbox.expired[0].cart, cart);
    bench.store.clear_outbox(&outbox).await.unwrap();
    let second = bench.evict_expiring(0, 1000, &first.cursor, OUTBOX).await;
    assert_eq!(first.handed_on + second.handed_on, 40);
}

async fn a_visitor_returning_before_the_cleaner_is_kept_whole(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.log_in(&token(2), "bob", 2.0).await;
    bench.store.touch_tokens(&[visit(1, "ann", 3.0, &[1])]).await.unwrap();
    assert_eq!(bench.evict(1, 100).await, 1);
    assert_eq!(bench.user_of(&token(1)).await, Some(user("ann")));
    assert_eq!(bench.members("recent:").await, [token(1).as_str()]);
    assert_eq!(bench.members(&format!("viewed:{}", token(1).as_str())).await, ["item-1"]);
}

async fn a_visitor_returning_after_the_cleaner_stays_gone(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    assert_eq!(bench.evict(0, 100).await, 1);
    let visits = [visit(1, "ann", 3.0, &[1])];
    assert_eq!(bench.store.touch_tokens(&visits).await.unwrap(), [false]);
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn a_visitor_returning_during_cleaning_is_never_half_gone(bench: Bench) {
    for round in 0..30 {
        bench.log_in(&token(round), "ann", 1.0).await;
        let visits = [visit(round, "ann", 2.0, &[1])];
        let cleaner = bench.open.thread_handle();
        connected(&cleaner).await;
        let (touched, evicted) = tokio::join!(
            bench.store.touch_tokens(&visits),
            cleaner.evict_oldest(Eviction { keep: 0, batch: 1, carts: true, before: 0.0 }),
        );
        // Whichever came first: the cleaner removed it, and the touch brought nothing back.
        assert_eq!(evicted.unwrap(), 1);
        assert_eq!(touched.unwrap().len(), 1);
        assert_eq!(bench.dump().await, [""; 0]);
    }
}

async fn after_a_full_clean_nothing_mentions_a_token(bench: Bench) {
    let mut dice = fastrand::Rng::with_seed(7);
    for now in 0..400_u16 {
        let (now, number) = (f64::from(now) + 1.0, dice.usize(..30));
        let name = if dice.bool() { "ann" } else { "bob" };
        match dice.u8(..10) {
            0 => bench.log_in(&token(number), name, now).await,
            1 | 2 => {
                let visits = [visit(number, name, now, &[dice.usize(..9), dice.usize(..9)])];
                bench.store.touch_tokens(&visits).await.unwrap();
            }
            3 => bench.store.revoke_token(&token(number)).await.unwrap(),
            4 => {
                let old = Some(dice.usize(..30));
                bench.store.rotate_token(&rotation(old, number, name)).await.unwrap();
            }
            5 => {
                let change = set(&[(dice.usize(..5), dice.i64(-1..3))]);
                bench.change_cart(number, name, &change).await;
            }
            6 => drop(bench.evict(20, 3).await),
            7 => drop(bench.evict_expiring(20, 3, &Cursor::default(), STREAM).await),
            8 => drop(bench.evict_expiring(20, 3, &Cursor::default(), OUTBOX).await),
            _ => bench.count(&[(dice.usize(..9), 2)]).await,
        }
    }
    while bench.evict_expiring(0, 7, &Cursor::default(), STREAM).await.removed > 0 {}
    while bench.evict_expiring(0, 7, &Cursor::default(), OUTBOX).await.removed > 0 {}
    while bench.evict(0, 7).await > 0 {}
    let left = bench.dump().await;
    assert!(!left.iter().any(|line| line.contains("token-")), "{left:?}");
}

async fn two_evictors_do_no_work_twice(bench: Bench) {
    for number in 0..60_u8 {
        bench.log_in(&token(number.into()), "ann", f64::from(number)).await;
    }
    let other = bench.open.thread_handle();
    connected(&other).await;
    let clean = async |store: &AnyStore| {
        let how = Eviction { keep: 10, batch: 7, carts: true, before: 0.0 };
        let mut sum = 0;
        loop {
            let evicted = store.evict_oldest(how).await.unwrap();
            if evicted == 0 {
                return sum;
            }
            sum += evicted;
        }
    };
    let (one, two) = tokio::join!(clean(&bench.store), clean(&other));
    assert_eq!(one + two, 50);
    assert_eq!(bench.members("recent:").await.len(), 10);
}

/// A session with views and a cart under token 1.
async fn furnished(bench: &Bench, name: &str) {
    bench.log_in(&token(1), name, 1.0).await;
    bench.store.touch_within_reach(&[visit(1, name, 2.0, &[1])]).await.unwrap();
    bench.store.add_to_cart(&token(1), &item(2), 3).await.unwrap();
}

/// That token 2 has what [`furnished`] gave token 1, which is gone.
async fn moved(bench: &Bench) {
    let lines: BTreeSet<_> = bench.dump().await.into_iter().collect();
    assert!(lines.contains("viewed:token-0002 item-1"), "{lines:?}");
    assert!(lines.contains("cart:token-0002 item-2"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("token-0001")), "{lines:?}");
}

async fn a_log_in_takes_over_what_the_same_user_had(bench: Bench) {
    furnished(&bench, "ann").await;
    bench.store.rotate_token(&rotation(Some(1), 2, "ann")).await.unwrap();
    moved(&bench).await;
    assert_eq!(bench.user_of(&token(2)).await, Some(user("ann")));
}

async fn a_log_in_takes_nothing_that_a_cleaned_session_left(bench: Bench) {
    furnished(&bench, "bob").await;
    let how = Eviction { keep: 0, batch: 9, carts: false, before: 0.0 };
    assert_eq!(bench.store.evict_oldest(how).await.unwrap(), 1);
    assert_eq!(bench.members("cart:token-0001").await, ["item-2"]);
    bench.store.rotate_token(&rotation(Some(1), 2, "ann")).await.unwrap();
    assert_eq!(bench.members("cart:token-0002").await, [""; 0]);
    assert_eq!(bench.members("cart:token-0001").await, [""; 0]);
}

async fn a_log_in_takes_nothing_from_another_user(bench: Bench) {
    furnished(&bench, "bob").await;
    bench.store.rotate_token(&rotation(Some(1), 2, "ann")).await.unwrap();
    let lines = bench.dump().await;
    assert!(!lines.iter().any(|line| line.contains("item-") || line.contains("token-0001")));
    assert_eq!(bench.user_of(&token(2)).await, Some(user("ann")));
}

async fn a_log_in_under_a_token_of_another_user_starts_empty(bench: Bench) {
    furnished(&bench, "bob").await;
    bench.store.rotate_token(&rotation(None, 1, "ann")).await.unwrap();
    let lines = bench.dump().await;
    assert!(!lines.iter().any(|line| line.contains("item-")), "{lines:?}");
    assert_eq!(bench.user_of(&token(1)).await, Some(user("ann")));
}

async fn a_log_in_under_the_same_token_keeps_everything(bench: Bench) {
    furnished(&bench, "ann").await;
    let before: BTreeSet<_> = bench.dump().await.into_iter().collect();
    bench.store.rotate_token(&rotation(Some(1), 1, "ann")).await.unwrap();
    assert_eq!(bench.dump().await.into_iter().collect::<BTreeSet<_>>(), before);
}

/// Ann of a group.
fn ann_of(group: &str) -> User {
    user("ann").with_attributes(&[("group".to_owned(), group.to_owned())]).unwrap()
}

async fn attributes_stay_with_a_user_and_do_not_change_the_identity(bench: Bench) {
    furnished(&bench, "ann").await;
    let trade = Rotation { user: ann_of("trade"), ..rotation(Some(1), 2, "ann") };
    bench.store.rotate_token(&trade).await.unwrap();
    moved(&bench).await;
    assert_eq!(bench.user_of(&token(2)).await, Some(ann_of("trade")));

    // A visit from before the attributes were set still counts for the same user.
    let held = bench.store.touch_tokens(&[visit(2, "ann", 101.0, &[3])]).await.unwrap();
    assert_eq!(held, [true]);
    let seen_as = Visit { user: ann_of("retail"), ..visit(2, "ann", 102.0, &[4]) };
    assert_eq!(bench.store.touch_tokens(&[seen_as]).await.unwrap(), [true]);
    let owner = CartOwner { token: token(2), user: Some(user("ann")), now: 103.0, terms: ENDLESS };
    let changed = bench.store.change_cart(&owner, &set(&[(5, 1)])).await.unwrap();
    assert!(matches!(changed, CartAnswer::Changed(cart) if cart.len() == 2));
    assert_eq!(bench.user_of(&token(2)).await, Some(ann_of("trade")));
    let bob = CartOwner { user: Some(user("bob")), ..owner };
    let refused = bench.store.change_cart(&bob, &set(&[(5, 1)])).await.unwrap();
    assert_eq!(refused, CartAnswer::NotLoggedIn);

    let how = Eviction { keep: 0, batch: 9, carts: true, before: 0.0 };
    bench.store.evict_expiring(how, &Cursor::default(), &OUTBOX).await.unwrap();
    let outbox = bench.store.outbox().await.unwrap();
    assert_eq!(outbox.expired[0].user, Some(user("ann")), "carts are handed on by name");
}

async fn a_cart_holds_what_was_put_in(bench: Bench) {
    for (number, count) in [(1, 2), (2, 1), (1, 5), (3, 0)] {
        bench.store.add_to_cart(&token(1), &item(number), count).await.unwrap();
    }
    assert_eq!(bench.members("cart:token-0001").await, ["item-1", "item-2"]);
    for (number, count) in [(1, 0), (2, -1)] {
        bench.store.add_to_cart(&token(1), &item(number), count).await.unwrap();
    }
    assert_eq!(bench.dump().await, [""; 0]);
}

fn set(items: &[(usize, i64)]) -> CartChange {
    CartChange::Set(items.iter().map(|(number, count)| (item(*number), *count)).collect())
}

impl Bench {
    async fn change_cart(&self, number: usize, name: &str, change: &CartChange) -> CartAnswer {
        let user = Some(name).filter(|name| !name.is_empty()).map(user);
        let whose = CartOwner { token: token(number), user, now: 1.0, terms: ENDLESS };
        self.store.change_cart(&whose, change).await.unwrap()
    }

    async fn count(&self, views: &[(usize, u64)]) {
        let views: Vec<_> = views.iter().map(|(number, count)| (item(*number), *count)).collect();
        self.store.count_views(&views).await.unwrap();
    }

    /// The most viewed items with their views, once `first` is the first of them: ranks may be
    /// a moment old.
    async fn top(&self, first: usize) -> Vec<(Item, f64)> {
        let top = async || self.store.top(10).await.unwrap();
        until("the ranking is new", async || {
            top().await.first().is_some_and(|(found, _)| *found == item(first))
        })
        .await;
        top().await
    }
}

async fn a_cart_is_changed_only_for_a_logged_in_user(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    let before = bench.dump().await;
    for (number, name) in [(1, "bob"), (2, "ann")] {
        for change in [set(&[(1, 1)]), set(&[]), CartChange::Empty] {
            let answer = bench.change_cart(number, name, &change).await;
            assert_eq!(answer, CartAnswer::NotLoggedIn, "{name} {change:?}");
        }
    }
    assert_eq!(bench.dump().await, before);

    let both = bench.change_cart(1, "ann", &set(&[(2, 7), (1, 1)])).await;
    assert_eq!(both, CartAnswer::Changed(vec![(item(1), 1), (item(2), 7)]));
    let one = bench.change_cart(1, "ann", &set(&[(1, 0), (2, 3), (9, -1)])).await;
    assert_eq!(one, CartAnswer::Changed(vec![(item(2), 3)]));
    assert_eq!(bench.change_cart(1, "ann", &set(&[])).await, one);
    assert_eq!(bench.store.cart(&token(1)).await.unwrap(), [(item(2), 3)]);
    let none = bench.change_cart(1, "ann", &CartChange::Empty).await;
    assert_eq!(none, CartAnswer::Changed(Vec::new()));
    assert_eq!(bench.dump().await, before);
}

async fn changing_a_cart_counts_as_a_visit(bench: Bench) {
    for number in 1..4_u8 {
        bench.log_in(&token(number.into()), "ann", f64::from(number)).await;
    }
    let how = Eviction { keep: 1, batch: 9, carts: true, before: 0.0 };
    bench.change_cart(1, "ann", &set(&[(1, 1)])).await;
    let evicted = bench.store.evict_expiring(how, &Cursor::default(), &ExpiryAction::Keep).await;
    assert_eq!(counts(&evicted.unwrap()), (1, 0, 1, false));
    let whose = CartOwner { token: token(1), user: None, now: 9.0, terms: ENDLESS };
    let answer = bench.store.change_cart(&whose, &set(&[(2, 1)])).await.unwrap();
    assert_eq!(answer, CartAnswer::Changed(vec![(item(1), 1), (item(2), 1)]));
    assert_eq!(bench.store.evict_oldest(how).await.unwrap(), 1);
    assert_eq!(bench.user_of(&token(1)).await, Some(user("ann")), "the oldest no more");
    assert_eq!(bench.members("recent:").await, [token(1).as_str()]);

    let stranger = CartOwner { token: token(7), user: None, now: 9.0, terms: ENDLESS };
    let answer = bench.store.change_cart(&stranger, &set(&[(2, 1)])).await.unwrap();
    assert_eq!(answer, CartAnswer::NotLoggedIn);
}

async fn a_cart_has_a_bound(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    let all: Vec<_> = (0..CART_MAX).map(|number| (number, 1)).collect();
    bench.change_cart(1, "ann", &set(&all)).await;
    let held = bench.store.cart(&token(1)).await.unwrap();
    assert_eq!(held.len(), CART_MAX);

    for change in [set(&[(CART_MAX, 1)]), set(&[(0, 0), (CART_MAX, 1), (CART_MAX + 1, 1)])] {
        assert_eq!(bench.change_cart(1, "ann", &change).await, CartAnswer::Full);
        assert_eq!(bench.store.cart(&token(1)).await.unwrap(), held);
    }
    for change in [set(&[(0, 5)]), set(&[(0, 0), (CART_MAX, 1)])] {
        let answer = bench.change_cart(1, "ann", &change).await;
        assert!(matches!(answer, CartAnswer::Changed(cart) if cart.len() == CART_MAX));
    }
}

async fn a_cart_goes_with_its_visitor_to_a_new_token(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.change_cart(1, "ann", &set(&[(1, 2)])).await;
    bench.store.rotate_token(&rotation(Some(1), 2, "ann")).await.unwrap();
    assert_eq!(bench.store.cart(&token(2)).await.unwrap(), [(item(1), 2)]);
    bench.store.rotate_token(&rotation(Some(2), 3, "bob")).await.unwrap();
    assert_eq!(bench.store.cart(&token(3)).await.unwrap(), []);
    let left = bench.dump().await;
    assert!(!left.iter().any(|line| line.starts_with("cart:")), "{left:?}");
}

async fn viewed_items_come_newest_first(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    for (seen, number) in [(2.0, 5), (3.5, 6), (4.0, 5)] {
        bench.store.touch_tokens(&[visit(1, "ann", seen, &[number])]).await.unwrap();
    }
    let viewed = bench.store.viewed(&token(1)).await.unwrap();
    assert_eq!(viewed, [(item(5), 4.0), (item(6), 3.5)]);
    assert_eq!(bench.store.viewed(&token(2)).await.unwrap(), []);
}

async fn the_most_viewed_rank_first(bench: Bench) {
    bench.count(&[(1, 5), (2, 9), (3, 1)]).await;
    bench.count(&[(3, 1)]).await;
    assert_eq!(bench.top(2).await, [(item(2), 9.0), (item(1), 5.0), (item(3), 2.0)]);
    for (number, top, ranks) in
        [(2, 1, true), (1, 1, false), (1, 2, true), (3, 2, false), (3, 3, true), (4, 3, false)]
    {
        let found = bench.store.ranks_under(&item(number), top).await.unwrap();
        assert_eq!(found, ranks, "item {number} under {top}");
    }
}

async fn while_few_items_are_known_every_one_ranks(bench: Bench) {
    assert!(bench.store.ranks_under(&item(1), 1).await.unwrap());
    bench.count(&[(1, 1), (2, 1)]).await;
    bench.top(1).await;
    assert!(bench.store.ranks_under(&item(7), 3).await.unwrap());
    assert!(!bench.store.ranks_under(&item(7), 2).await.unwrap());
}

fn rescaling(keep_top: u64, now: f64) -> Rescaling {
    Rescaling { keep_top, factor: 0.5, every: Duration::from_secs(300), now }
}

async fn rescaling_keeps_the_most_viewed_and_halves(bench: Bench) {
    bench.count(&[(1, 8), (2, 5), (3, 1), (4, 8)]).await;
    assert_eq!(
        bench.store.rescale_views(rescaling(3, 1_000.0)).await.unwrap(),
        RescaleResult::NotYet
    );
    assert_eq!(bench.top(1).await.len(), 4, "the first look begins the period");
    assert_eq!(
        bench.store.rescale_views(rescaling(3, 1_300.0)).await.unwrap(),
        RescaleResult::Done
    );
    until("three are left", async || bench.store.top(10).await.unwrap().len() == 3).await;
    assert_eq!(bench.top(1).await, [(item(1), 4.0), (item(4), 4.0), (item(2), 2.5)]);
}

async fn very_many_items_are_rescaled_too(bench: Bench) {
    for from in (0..20_000_usize).step_by(500) {
        let views: Vec<_> = (from..from + 500).map(|number| (number, 1)).collect();
        bench.count(&views).await;
    }
    bench.count(&[(7, 9), (8, 5)]).await;
    assert_eq!(
        bench.store.rescale_views(rescaling(2, 1_000.0)).await.unwrap(),
        RescaleResult::NotYet
    );
    let rescale = || bench.store.rescale_views(rescaling(2, 1_300.0));
    let mut steps = 0;
    while rescale().await.unwrap() == RescaleResult::Begun {
        steps += 1;
        assert!(steps < 10, "each step removes some");
    }
    until("two are left", async || {
        bench.store.top(10).await.unwrap() == [(item(7), 5.0), (item(8), 3.0)]
    })
    .await;
}

async fn rescaling_waits_for_its_interval_across_processes(bench: Bench) {
    bench.count(&[(1, 8)]).await;
    let other = bench.open.thread_handle();
    connected(&other).await;
    let rescales = [
        (&bench.store, 1_000.0, false),
        (&other, 1_299.0, false),
        (&other, 1_300.0, true),
        (&bench.store, 1_300.5, false),
        // Its clock is a little behind the other's.
        (&bench.store, 1_299.5, false),
        // The clocks were set back.
        (&bench.store, 900.0, false),
        (&other, 1_200.0, true),
    ];
    for (store, now, done) in rescales {
        let rescaled = store.rescale_views(rescaling(3, now)).await.unwrap();
        assert_eq!(rescaled == RescaleResult::Done, done, "at {now}");
    }
    until("it was halved twice", async || bench.store.top(10).await.unwrap() == [(item(1), 2.0)])
        .await;
}

async fn a_page_is_served_until_its_time_is_up(bench: Bench) {
    let (store, short, long) = (&bench.store, PageKey([1; 32]), PageKey([2; 32]));
    let page = Bytes::from_static(b"page");
    store
        .put_page(&short, page.clone(), Duration::from_secs(3), RequestFrequency::Again)
        .await
        .unwrap();
    store
        .put_page(&long, page.clone(), Duration::from_secs(600), RequestFrequency::Again)
        .await
        .unwrap();
    assert_eq!(store.page(&short).await.unwrap(), Some(page.clone()));
    until("the page expires", async || store.page(&short).await.unwrap().is_none()).await;
    assert_eq!(store.page(&long).await.unwrap(), Some(page));
}

async fn a_page_can_be_replaced_and_deleted(bench: Bench) {
    let (store, ttl) = (&bench.store, Duration::from_secs(600));
    let keys = [PageKey([1; 32]), PageKey([2; 32])];
    for body in ["one", "two"] {
        store.put_page(&keys[0], body.into(), ttl, RequestFrequency::Again).await.unwrap();
    }
    assert_eq!(store.page(&keys[0]).await.unwrap().unwrap(), "two");
    store.delete_pages(&keys).await.unwrap();
    store.delete_pages(&[]).await.unwrap();
    assert_eq!(store.page(&keys[0]).await.unwrap(), None);
}

async fn a_page_over_the_limit_is_refused(bench: Bench) {
    let (store, ttl, key) = (&bench.store, Duration::from_secs(600), PageKey([1; 32]));
    let max = usize::try_from(limits().max_page).unwrap();
    let largest = Bytes::from(vec![7; max]);
    store.put_page(&key, largest.clone(), ttl, RequestFrequency::Again).await.unwrap();
    assert_eq!(store.page(&key).await.unwrap(), Some(largest));
    let over = store.put_page(&key, vec![7; max + 1].into(), ttl, RequestFrequency::Again).await;
    assert!(matches!(over, Err(StoreError::TooLarge)), "{over:?}");
}

// What only Redis promises.

#[tokio::test]
async fn names_and_types_in_redis_are_the_chapters() {
    let bench = Bench::redis().await;
    let (store, key) = (&bench.store, PageKey([0xab; 32]));
    store.update_token(&token(1), &user("ann"), Some(&item(1)), 5.0).await.unwrap();
    store.add_to_cart(&token(1), &item(1), 3).await.unwrap();
    store
        .put_page(&key, "page".into(), Duration::from_secs(300), RequestFrequency::Again)
        .await
        .unwrap();
    store.count_views(&[(item(1), 4), (item(2), 1)]).await.unwrap();

    let on = &mut bench.raw().await;
    let cache = format!("cache:{}", "ab".repeat(32));
    for (key, kind) in [
        ("login:", "hash"),
        ("recent:", "zset"),
        ("viewed:", "zset"),
        ("viewed:token-0001", "zset"),
        ("cart:token-0001", "hash"),
        (&cache, "string"),
        ("pagebytes:", "hash"),
        // Not the chapter's: the index of a user's sessions.
        ("tokens:ann", "zset"),
    ] {
        assert_eq!(type_of(on, key).await, kind, "{key}");
    }
    assert_eq!(ask::<i64>(on, &["DBSIZE"]).await, 8);
    assert_eq!(ask::<String>(on, &["HGET", "login:", "token-0001"]).await, "ann");
    assert_eq!(ask::<String>(on, &["HGET", "cart:token-0001", "item-1"]).await, "3");
    assert_eq!(ask::<f64>(on, &["ZSCORE", "recent:", "token-0001"]).await, 5.0);
    assert_eq!(ask::<f64>(on, &["ZSCORE", "viewed:", "item-1"]).await, -5.0);
    assert_eq!(ask::<i64>(on, &["ZRANK", "viewed:", "item-1"]).await, 0);
    assert!((1..=300).contains(&ask::<i64>(on, &["TTL", &cache]).await));
    assert_eq!(ask::<String>(on, &["GET", &cache]).await, "page");
}

#[tokio::test]
async fn a_prefix_stands_before_every_key() {
    let server = RedisServer::start();
    let url = Url::Redis(server.unix_url());
    let settings =
        StoreSettings { url, prefix: "shop:".to_owned(), layout: Layout::Single, limits: limits() };
    let store = OpenStore::open(&settings).await.unwrap().thread_handle();
    connected(&store).await;
    store.update_token(&token(1), &user("ann"), Some(&item(1)), 5.0).await.unwrap();
    store.add_to_cart(&token(1), &item(1), 3).await.unwrap();
    store
        .put_page(&PageKey([1; 32]), "page".into(), Duration::from_secs(9), RequestFrequency::Again)
        .await
        .unwrap();
    let lines = dump_redis(&mut server.connection().await, "").await;
    assert_eq!(lines.len(), 10, "{lines:?}");
    assert!(lines.iter().all(|line| line.0.starts_with("shop:")), "{lines:?}");
}

#[tokio::test]
async fn junk_in_recent_is_cleaned_away_and_harms_nothing() {
    let bench = Bench::redis().await;
    let on = &mut bench.raw().await;
    let junk =
        ["", "short", "with space", "semi;colon", "quo\"te\"quote", "br{a}ces!", "bad\\slash"];
    for member in junk {
        let _: i64 = ask(on, &["ZADD", "recent:", "0", member]).await;
        let _: i64 = ask(on, &["HSET", "login:", member, "nobody"]).await;
        if !member.is_empty() {
            let _: i64 = ask(on, &["SADD", &format!("viewed:{member}"), "foreign"]).await;
        }
    }
    let _: f64 = ask(on, &["ZINCRBY", "viewed:", "-1", "item-1"]).await;
    let _: i64 = ask(on, &["HSET", "cart:", "item-1", "1"]).await;
    bench.log_in(&token(1), "ann", 5.0).await;

    assert_eq!(bench.evict(1, 100).await, junk.len());
    assert_eq!(bench.members("recent:").await, [token(1).as_str()]);
    assert_eq!(bench.members("login:").await, [token(1).as_str()]);
    assert_eq!(bench.members("viewed:").await, ["item-1"]);
    assert_eq!(bench.members("cart:").await, ["item-1"]);
    let foreign: Vec<String> = ask(on, &["KEYS", "viewed:?*"]).await;
    assert_eq!(foreign.len(), junk.len() - 1, "another program's keys stay");
}

#[tokio::test]
async fn foreign_carts_are_handed_on_as_far_as_they_are_valid() {
    let bench = Bench::redis().await;
    bench.log_in_many(8, &[]).await;
    let on = &mut bench.raw().await;
    let cart = |number: usize| format!("cart:{}", token(number).as_str());
    let poisons =
        ["inf", "nan", "1.5", "0x10", "", "1e3", "9".repeat(40).as_str()].map(String::from);
    for (number, poison) in poisons.iter().enumerate() {
        let item = format!("item-{}", number + 2);
        let _: i64 = ask(on, &["HSET", &cart(0), "item-1", "2", &item, poison]).await;
    }
    let _: i64 = ask(on, &["HSET", &cart(1), "only", "inf"]).await;
    let _: i64 = ask(on, &["RPUSH", &cart(2), "no cart"]).await;
    let _: i64 = ask(on, &["HSET", &cart(3), "é\"\\/", "+7", "b", "-0", "c", "007"]).await;
    let _: i64 = redis::cmd("HSET")
        .arg(cart(3))
        .arg(b"\xff\xfe")
        .arg("1")
        .arg("a\nb")
        .arg("1")
        .arg("x".repeat(129))
        .arg("1")
        .query_async(on)
        .await
        .unwrap();
    let mut many = redis::cmd("HSET");
    many.arg(cart(4));
    for number in 0..20 * CART_MAX {
        many.arg(format!("item-{number}")).arg(1);
    }
    let _: i64 = many.query_async(on).await.unwrap();
    let _: i64 = redis::cmd("HSET")
        .arg("login:")
        .arg(token(5).as_str())
        .arg(b"\xffann")
        .query_async(on)
        .await
        .unwrap();
    let _: i64 = ask(on, &["HSET", &cart(5), "item-1", "2"]).await;

    let evicted = bench.evict_expiring(1, 99, &Cursor::default(), OUTBOX).await;
    assert_eq!((counts(&evicted), evicted.refusal), ((7, 4, 0, false), None));
    let told = bench.store.outbox().await.unwrap().expired;
    assert_eq!(told[0], expired(0));
    let strange = [("b", 0), ("c", 7), ("é\"\\/", 7)];
    assert_eq!(told[1].cart, strange.map(|(name, count)| (Item::new(name).unwrap(), count)));
    assert_eq!(told[2].cart.len(), CART_MAX);
    assert_eq!(told[3].user, Some(user("\u{fffd}ann")));
    let left: Vec<String> = ask(on, &["KEYS", "cart:*"]).await;
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn carts_that_a_stream_or_the_outbox_refuses_stay_with_their_sessions() {
    for (key, expiry_action) in
        [("expired:", STREAM), ("expiring:", OUTBOX), ("cartevents:", QUEUE)]
    {
        let bench = Bench::redis().await;
        let on = &mut bench.raw().await;
        bench.log_in_many(6, &[0, 2, 3]).await;
        let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "1"]).await;
        let full = bench.evict_expiring(1, 4, &Cursor::default(), expiry_action).await;
        assert_eq!(counts(&full), (1, 0, 3, true), "{key} {full:?}");
        assert!(full.refusal.is_some_and(|refusal| refusal.contains("OOM")));
        let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "0"]).await;
        let handed_on = bench.evict_expiring(1, 9, &Cursor::default(), expiry_action).await;
        assert_eq!((handed_on.handed_on, handed_on.more), (3, false), "{key}");
        assert_eq!(bench.members("recent:").await, [token(5).as_str()]);
    }
}

#[tokio::test]
async fn a_foreign_key_holds_up_no_other_visit() {
    let bench = Bench::redis().await;
    let _: String = ask(&mut bench.raw().await, &["SET", "viewed:token-0001", "foreign"]).await;
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.log_in(&token(2), "ann", 1.0).await;
    let visits = [visit(1, "ann", 2.0, &[1]), visit(2, "ann", 2.0, &[1])];
    assert_eq!(bench.store.touch_tokens(&visits).await.unwrap(), [true, true]);
    assert_eq!(bench.members("viewed:token-0002").await, ["item-1"]);
}

#[tokio::test]
async fn a_full_redis_refuses_visits_as_a_whole() {
    let bench = Bench::redis().await;
    let on = &mut bench.raw().await;
    bench.log_in(&token(1), "ann", 1.0).await;
    let visits = [visit(1, "ann", 2.0, &[1])];
    let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = bench.store.touch_tokens(&visits).await;
    assert!(refused.is_err(), "{refused:?}");
    let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(bench.members("viewed:token-0001").await, [""; 0]);
    assert_eq!(bench.store.touch_tokens(&visits).await.unwrap(), [true]);
    assert_eq!(bench.members("viewed:token-0001").await, ["item-1"]);
}

#[tokio::test]
async fn foreign_values_are_read_or_ignored_but_never_trusted() {
    let bench = Bench::redis().await;
    let on = &mut bench.raw().await;
    let long = "x".repeat(300);
    let _: i64 = ask(on, &["HSET", "login:", "token-0001", &long]).await;
    assert_eq!(bench.user_of(&token(1)).await, None, "too long for a user");
    let huge = "x".repeat(usize::try_from(limits().max_page).unwrap() + 1);
    let key = PageKey([1; 32]);
    let _: String = ask(on, &["SET", &format!("cache:{}", key.hex()), &huge]).await;
    assert_eq!(bench.store.page(&key).await.unwrap(), None, "too long for a page");
    let _: i64 = ask(on, &["DEL", "login:"]).await;
    let _: String = ask(on, &["SET", "login:", "no hash"]).await;
    let answer = bench.store.check_token(&token(1)).await;
    assert!(matches!(answer, Err(StoreError::Failed(_))), "{answer:?}");
    assert_eq!(bench.store.state(), StoreState::Connected);
}

/// The budgets of production.
pub(crate) fn tight() -> StoreLimits {
    StoreLimits {
        read_timeout: Duration::from_millis(50),
        write_timeout: Duration::from_secs(2),
        ..limits()
    }
}

#[tokio::test]
async fn when_redis_is_killed_calls_fail_at_once_and_recover_by_themselves() {
    let mut bench = Bench::redis_with(tight()).await;
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.server().kill();
    let store = bench.store.clone();
    until("the loss is noticed", async || {
        let begun = Instant::now();
        let answer = store.check_token(&token(1)).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "no request waits for a dead store");
        matches!(answer, Err(StoreError::Away))
    })
    .await;
    assert_eq!(store.state(), StoreState::Away);
    let write = store.update_token(&token(2), &user("bob"), None, 1.0).await;
    assert!(matches!(write, Err(StoreError::Away)), "{write:?}");

    bench.server().restart();
    until("it is back", async || matches!(store.check_token(&token(1)).await, Ok(Some(_)))).await;
    assert_eq!(store.state(), StoreState::Connected);
}

/// Its old connections stay open, and answer all reads.
#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_left_for_the_new_one() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let relay = Relay::start(old.port());
    let url = Url::Redis(format!("redis://127.0.0.1:{}", relay.port()));
    let settings =
        StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits: limits() };
    let open = OpenStore::open(&settings).await.unwrap();
    // Each handle finds out by itself, one by a transaction and one by a script.
    let [one, other] = [open.thread_handle(), open.thread_handle()];
    for handle in [&one, &other] {
        connected(handle).await;
        handle.update_token(&token(1), &user("ann"), None, 1.0).await.unwrap();
    }
    relay.lead_to(new.port());
    let mut command = redis::cmd("REPLICAOF");
    command.arg("127.0.0.1").arg(new.port());
    command.exec_async(&mut old.connection().await).await.unwrap();

    let failure = one.update_token(&token(2), &user("ann"), None, 2.0).await.unwrap_err();
    assert!(matches!(failure, StoreError::Away), "nothing was done: {failure:?}");
    until("the new one has it", async || {
        one.update_token(&token(2), &user("ann"), None, 2.0).await.is_ok()
    })
    .await;
    let known = PurgePosition::default();
    let failure = other.purged_since(1, known).await.unwrap_err();
    assert!(matches!(failure, StoreError::Away), "nothing was done: {failure:?}");
    until("the new one is asked", async || other.purged_since(1, known).await.is_ok()).await;
    let held: u64 =
        redis::cmd("HLEN").arg("seen:").query_async(&mut new.connection().await).await.unwrap();
    assert_eq!(held, 2);
}

#[tokio::test]
async fn visits_with_a_lost_answer_are_repeated_and_views_are_not() {
    let bench = Bench::redis().await;
    bench.log_in(&token(1), "ann", 1.0).await;
    let Ground::Server(server) = &bench.ground else { unreachable!() };
    let relay = Relay::start(server.port());
    let url = Url::Redis(format!("redis://127.0.0.1:{}", relay.port()));
    let settings =
        StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits: limits() };
    let store = OpenStore::open(&settings).await.unwrap().thread_handle();
    connected(&store).await;
    let queue = VisitQueue::new(100, 25);
    for _ in 0..3 {
        queue.count_view(item(1));
    }

    relay.lose_answer_to("ZINCRBY");
    let failure = queue.drain_all(&store).await.failure;
    assert!(matches!(failure, Some(StoreError::Unanswered(_))), "{failure:?}");
    assert_eq!((queue.backlog(), queue.dropped()), (0, 3));
    connected(&store).await;
    queue.note(token(1), user("ann"), None, 7.0);
    relay.lose_answer_to("EVALSHA");
    let failure = queue.drain_all(&store).await.failure;
    assert!(matches!(failure, Some(StoreError::Unanswered(_))), "{failure:?}");
    assert_eq!((queue.backlog(), queue.dropped()), (1, 3));
    connected(&store).await;
    let progress = queue.drain_all(&store).await;
    assert_eq!((progress.visits, progress.items), (1, 0), "{:?}", progress.failure);

    let on = &mut bench.raw().await;
    let views: f64 = ask(on, &["ZSCORE", "viewed:", "item-1"]).await;
    let seen: f64 = ask(on, &["ZSCORE", "recent:", token(1).as_str()]).await;
    assert_eq!((views, seen), (-3.0, 7.0));
}

#[tokio::test]
async fn a_redis_that_came_back_empty_is_used_as_it_is() {
    let mut bench = Bench::redis_with(tight()).await;
    bench.log_in(&token(1), "ann", 1.0).await;
    assert_eq!(bench.evict(5, 100).await, 0);
    bench.server().restart_empty();
    let store = bench.store.clone();
    until("it is back", async || matches!(store.check_token(&token(1)).await, Ok(None))).await;
    // It has forgotten the scripts too.
    bench.log_in(&token(1), "ann", 1.0).await;
    assert_eq!(store.touch_tokens(&[visit(1, "ann", 2.0, &[1])]).await.unwrap(), [true]);
    assert_eq!(bench.evict(0, 100).await, 1);
}

#[tokio::test]
async fn when_redis_stands_still_calls_cost_their_budget_and_then_nothing() {
    let mut bench = Bench::redis_with(tight()).await;
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.server().pause();
    let store = bench.store.clone();
    until("the breaker opens", async || {
        let begun = Instant::now();
        let answer = store.check_token(&token(1)).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "the budget holds");
        matches!(answer, Err(StoreError::Away))
    })
    .await;
    let counted = store.counted();
    assert!(counted.timeouts >= 5 && counted.breaker_openings == 1, "{counted:?}");
    let answers = store.page(&PageKey([1; 32])).await;
    assert!(matches!(answers, Err(StoreError::Away)), "{answers:?}");

    bench.server().resume();
    until("it is back", async || matches!(store.check_token(&token(1)).await, Ok(Some(_)))).await;
}

#[tokio::test]
async fn redis_that_is_not_there_delays_nothing() {
    let server = RedisServer::start();
    let settings = StoreSettings {
        url: Url::Redis(server.url()),
        prefix: String::new(),
        layout: Layout::Single,
        limits: limits(),
    };
    drop(server);
    let store = OpenStore::open(&settings).await.unwrap().thread_handle();
    assert!(matches!(store.check_token(&token(1)).await, Err(StoreError::Away)));
    assert_eq!(store.state(), StoreState::Away);
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_showing_it() {
    let url = Url::Redis("http://:secret@host".to_owned());
    let settings =
        StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits: limits() };
    let error = OpenStore::open(&settings).await.unwrap_err();
    assert!(matches!(error, OpenError::BadUrl(_)));
    assert!(!format!("{settings:?} {error:?} {error}").contains("secret"), "{error:?}");
}

// What only the embedded store promises.

/// Opens a copy of a live store's folder: what `kill -9` would leave. An error where the store
/// was being written while the copy was made.
async fn after_a_crash(live: &Path) -> Result<(TempDir, OpenStore), OpenError> {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(live).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let open = open_folder(folder.path()).await?;
    Ok((folder, open))
}

#[tokio::test]
async fn acknowledged_writes_survive_a_crash() {
    let bench = Bench::embedded().await;
    let Ground::Folder(live) = &bench.ground else { unreachable!() };
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.store.add_to_cart(&token(1), &item(1), 2).await.unwrap();
    bench.store.rotate_token(&rotation(Some(1), 2, "ann")).await.unwrap();
    // A copy that is made while the store is written may be of no use; each that is whole has them all.
    until("a copy is whole", async || {
        let Ok((_folder, open)) = after_a_crash(live.path()).await else { return false };
        let store = open.thread_handle();
        let Engine::Embedded(store) = store.engine() else { unreachable!() };
        assert_eq!(store.check_token(&token(2)).await.unwrap(), Some(user("ann")));
        assert_eq!(store.check_token(&token(1)).await.unwrap(), None);
        assert!(store.dump_keys().unwrap().contains(&"cart:token-0002 item-1".to_owned()));
        true
    })
    .await;
}

#[tokio::test]
async fn visits_survive_a_crash_soon_after_they_are_taken() {
    let bench = Bench::embedded().await;
    let Ground::Folder(live) = &bench.ground else { unreachable!() };
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.store.touch_tokens(&[visit(1, "ann", 2.0, &[7])]).await.unwrap();
    until("the visit is on disk", async || {
        let Ok((_folder, open)) = after_a_crash(live.path()).await else { return false };
        let store = open.thread_handle();
        let Engine::Embedded(store) = store.engine() else { unreachable!() };
        store.dump_keys().unwrap().contains(&"viewed:token-0001 item-7".to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_closed_store_is_whole_and_can_be_opened_again() {
    let bench = Bench::embedded().await;
    let Ground::Folder(folder) = &bench.ground else { unreachable!() };
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.store.touch_tokens(&[visit(1, "ann", 2.0, &[7])]).await.unwrap();
    bench.open.close().await;
    assert!(matches!(bench.store.check_token(&token(1)).await, Err(StoreError::Away)));
    assert!(matches!(bench.store.revoke_token(&token(1)).await, Err(StoreError::Away)));
    assert_eq!(bench.store.state(), StoreState::Away);

    let open = open_folder(folder.path()).await.unwrap();
    let store = open.thread_handle();
    let Engine::Embedded(store) = store.engine() else { unreachable!() };
    assert!(store.dump_keys().unwrap().contains(&"viewed:token-0001 item-7".to_owned()));
}

#[tokio::test]
async fn a_folder_in_use_is_refused_by_name() {
    let bench = Bench::embedded().await;
    let Ground::Folder(folder) = &bench.ground else { unreachable!() };
    let key = PageKey([1; 32]);
    bench
        .store
        .put_page(&key, "page".into(), Duration::from_secs(60), RequestFrequency::Again)
        .await
        .unwrap();
    let error = open_folder(folder.path()).await.unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "{error:?}");
    assert!(error.to_string().contains(folder.path().to_str().unwrap()));
    assert!(bench.store.page(&key).await.unwrap().is_some(), "its pages are left alone");
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let error = open_folder(&file.join("data")).await.unwrap_err();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");

    std::fs::write(folder.path().join("sessions.redb"), "no database".repeat(500)).unwrap();
    let error = open_folder(folder.path()).await.unwrap_err();
    assert!(matches!(error, OpenError::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn full_of_pages_it_refuses_more_until_some_expire() {
    let bench = Bench::embedded().await;
    let (store, page) = (&bench.store, Bytes::from(vec![7; 60 << 10]));
    let mut stored = 0_u8;
    let refused = loop {
        match store
            .put_page(
                &PageKey([stored; 32]),
                page.clone(),
                Duration::from_secs(5),
                RequestFrequency::Again,
            )
            .await
        {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
    assert_eq!(u64::from(stored), limits().pages / (64 << 10));
    let next = PageKey([0xff; 32]);
    until("there is room again", async || {
        store
            .put_page(&next, page.clone(), Duration::from_secs(60), RequestFrequency::Again)
            .await
            .is_ok()
    })
    .await;
    assert!(store.page(&next).await.unwrap().is_some());
}
