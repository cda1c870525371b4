//! The Redis store: the chapter's keys, one multiplexed connection for each runtime thread, and a pool of
//! connections for tasks and administration.
//!
//! Here is which commands make a step. The connections are in `link` and `pool`, what their errors mean in
//! `fault`, names in `keys`, the steps that look before they write in `script`.

mod answers;
mod barred;
mod control;
mod dismissal;
mod ear;
mod events;
mod fault;
mod keys;
mod link;
mod pages;
mod pool;
mod purges;
mod rows;
mod script;
mod visitors;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult, pipe};
use tokio::time::timeout;

use self::keys::Keys;
use self::link::{Call, Link};
use self::pool::Pool;
use self::script::{Invocation, Script};
use super::any::{Counted, Counters, OpenError, StoreState};
use super::{
    CART_MAX, Cart, CartAnswer, CartChange, CartOwner, Cursor, EXPIRING_BATCH, EXPIRING_BYTES,
    Evicted, Eviction, Farewell, Limits, LogIn, Outbox, POPULARITY_MAX, Parted, Rescaled,
    Rescaling, Rotated, Rotation, SessionStore, StoreError, Terms, ViewStore, Visit,
};
use crate::ident::{Item, StoredToken, TokenStorage, User};

/// Visits in one call of the script: longer ones would keep others waiting.
const TOUCH_BATCH: usize = 50;
/// Sessions that one call evicts at most, whatever is asked: Lua passes that many arguments.
const EVICT_BATCH: u32 = 1000;
/// Items that one step removes from the popularity set, at most: others wait meanwhile.
const TRIM: u64 = 5_000;
/// Pages and rows over this size, in bytes, go over a connection of their own, so that a look-up of a token
/// does not wait behind them.
const BULK_SIZE: usize = 256 << 10;
/// The longest time to live that is passed on.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Where Redis is, and what every lane to it shares.
#[derive(Debug)]
pub(super) struct RedisAddress {
    client: redis::Client,
    pool: Pool,
    keys: Keys,
    limits: Limits,
    counters: Arc<Counters>,
    full: pages::Refused,
}

impl RedisAddress {
    /// Reads the address; connects nowhere. In a tokio runtime only.
    pub(super) fn parse(
        url: &str,
        prefix: &str,
        limits: Limits,
        counters: &Arc<Counters>,
    ) -> Result<Self, OpenError> {
        if url.starts_with("rediss:") || url.starts_with("valkeys:") {
            // An error says that a provider is installed already: as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = redis::Client::open(url).map_err(|error| OpenError::BadUrl(error.into()))?;
        let counters = Arc::clone(counters);
        let pool = Pool::new(&client, limits, Arc::clone(&counters))
            .map_err(|error| OpenError::BadUrl(error.into()))?;
        let (keys, full) = (Keys::new(prefix), pages::Refused::default());
        Ok(Self { client, pool, keys, limits, counters, full })
    }

    /// What Redis does when its memory is full; `None` where it does not tell.
    pub(super) async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("maxmemory-policy");
        let step = |mut on| async move { command.query_async(&mut on).await };
        let policy: Vec<String> = self.pool.call(Call::Read, step).await?;
        Ok(policy.into_iter().nth(1))
    }

    fn link(&self) -> Link {
        Link::start(self.client.clone(), self.limits, Arc::clone(&self.counters))
    }
}

/// Fields with their values, as another program may have written them.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Members of `recent:` with their scores, the lowest first.
type Oldest = Vec<(Vec<u8>, f64)>;

/// The cart that a HASH holds. What is no item or no count is left out.
fn cart_of(held: Pairs) -> Cart {
    let entry = |(item, count): (Vec<u8>, Vec<u8>)| {
        let count = std::str::from_utf8(&count).ok()?.parse().ok()?;
        Some((Item::new(std::str::from_utf8(&item).ok()?)?, count))
    };
    let mut cart: Cart = held.into_iter().filter_map(entry).collect();
    cart.sort_unstable();
    cart.truncate(CART_MAX);
    cart
}

/// What a script says of a change to a cart; `None`: it is changed, and to be read with care.
fn changed_cart(told: redis::Value) -> Result<Option<CartAnswer>, StoreError> {
    Ok(match told {
        redis::Value::Int(0) => Some(CartAnswer::NotLoggedIn),
        redis::Value::Int(1) => Some(CartAnswer::Full),
        redis::Value::Int(_) => None,
        held => {
            let held =
                redis::from_redis_value(held).map_err(|error| StoreError::Failed(error.into()))?;
            Some(CartAnswer::Changed(cart_of(held)))
        }
    })
}

/// Gives a script the sessions that are meant: token, time when it was seen, and id of each.
fn add_sessions(script: &mut Invocation, sessions: &Oldest, storage: Option<TokenStorage>) {
    for (token, seen) in sessions {
        // Lua has no SHA-256: the ids are made here.
        let id = StoredToken::from_store(token)
            .map(|token| storage.map_or_else(|| "-".to_owned(), |how| token.public_id(how)));
        script.another(token).another(*seen).another(id.unwrap_or_default());
    }
}

/// Why a script handed no more carts on; empty: it did.
fn refusal_of(refusal: &[u8]) -> Option<String> {
    let refusal = String::from_utf8_lossy(refusal).into_owned();
    Some(refusal).filter(|refusal| !refusal.is_empty())
}

/// A time to live for Redis, which refuses nothing as one.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.min(TTL_MAX).as_millis().max(1)).unwrap_or(u64::MAX)
}

/// Members of a ZSET that are items, in their order.
fn items_of(found: Vec<(Vec<u8>, f64)>) -> Vec<(Item, f64)> {
    let entry =
        |(item, score): (Vec<u8>, f64)| Some((Item::new(std::str::from_utf8(&item).ok()?)?, score));
    found.into_iter().filter_map(entry).collect()
}

/// One thread's lane to Redis. Clones are the same lane.
#[derive(Clone, Debug)]
pub struct RedisStore {
    lane: Arc<Lane>,
    path: Path,
}

/// Which connections carry the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// The lane's own: nothing slow goes over them.
    Requests,
    /// Those of the pool.
    Background,
}

#[derive(Debug)]
struct Lane {
    address: Arc<RedisAddress>,
    link: Link,
    /// Connected when the first large page or row is written or read.
    bulk: OnceLock<Link>,
    large: rows::Large,
    /// Subscribed when it is first waited for.
    ear: OnceLock<ear::Ear>,
    /// The lane to the Redis that has the pages, if that is another one.
    pages: OnceLock<RedisStore>,
}

impl RedisStore {
    /// Begins to connect.
    pub(super) fn start(address: &Arc<RedisAddress>) -> Self {
        let lane = Arc::new(Lane {
            address: Arc::clone(address),
            link: address.link(),
            bulk: OnceLock::new(),
            large: rows::Large::default(),
            ear: OnceLock::new(),
            pages: OnceLock::new(),
        });
        Self { lane, path: Path::Requests }
    }

    /// The same, with pages in another Redis.
    pub(super) fn with_pages_in(self, pages: Self) -> Self {
        self.lane.pages.get_or_init(|| pages);
        self
    }

    /// The lane to the Redis that has the pages.
    pub(super) fn of_pages(&self) -> &Self {
        self.lane.pages.get().unwrap_or(self)
    }

    /// The same lane for calls that no request waits for. They go over the pool.
    pub(super) fn background(&self) -> Self {
        Self { path: Path::Background, ..self.clone() }
    }

    /// The same lane for calls that must not wait for others.
    fn foreground(&self) -> Self {
        Self { path: Path::Requests, ..self.clone() }
    }

    pub(super) fn state(&self) -> StoreState {
        self.lane.link.state()
    }

    pub(super) fn counted(&self) -> Counted {
        self.lane.address.counters.read()
    }

    pub(super) async fn connected(&self) {
        self.lane.link.connected().await;
    }

    /// Returns when a purge is told, or may have been missed.
    pub(super) async fn purge_told(&self) {
        self.ear().told().await;
    }

    /// Tokens that others have made nobody's.
    pub(super) async fn gone_told(&self) -> Vec<StoredToken> {
        self.ear().gone().await
    }

    fn ear(&self) -> &ear::Ear {
        let (client, keys) = (&self.lane.address.client, self.keys());
        let channels = [keys.purge_channel.as_str(), keys.gone_channel.as_str()];
        self.lane.ear.get_or_init(|| ear::Ear::start(client.clone(), channels))
    }

    fn keys(&self) -> &Keys {
        &self.lane.address.keys
    }

    fn limits(&self) -> &Limits {
        &self.lane.address.limits
    }

    /// One step within its budget, over the connections of this path. Where the lane's own connection finds
    /// Redis away, the pool is not asked.
    async fn call<T, F>(
        &self,
        call: Call,
        step: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        match self.path {
            Path::Requests => self.lane.link.call(call, step).await,
            Path::Background if self.state() == StoreState::Away => Err(StoreError::Away),
            Path::Background => {
                let lane = &self.lane;
                // On the heap, so that a request's call is not larger for it.
                let answer = Box::pin(lane.address.pool.call(call, step)).await;
                answer.inspect_err(|error| lane.address.counters.count(error))
            }
        }
    }

    /// A call of a script, to be given what is its own.
    fn script(&self, script: &'static Script) -> Invocation {
        script.on(self.keys())
    }

    async fn invoke<T: FromRedisValue>(
        &self,
        call: Call,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        let script = script.complete();
        let step = |mut on| async move { script.invoke_async(&mut on).await };
        self.call(call, step).await
    }

    /// A script that writes so many bytes. A request's go over a connection of their own where they are many.
    async fn invoke_with<T: FromRedisValue>(
        &self,
        bytes: usize,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        if bytes <= BULK_SIZE || self.path == Path::Background {
            return self.invoke(Call::Write, script).await;
        }
        let script = script.complete();
        let step = |mut on| async move { script.invoke_async(&mut on).await };
        self.bulk().await?.call(Call::Write, step).await
    }

    /// A script that writes, and returns a number or nothing.
    async fn run(&self, script: &Invocation) -> Result<usize, StoreError> {
        Ok(self.invoke::<Option<usize>>(Call::Write, script).await?.unwrap_or_default())
    }

    async fn query<T: FromRedisValue>(
        &self,
        call: Call,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let step = |mut on| async move { command.query_async(&mut on).await };
        self.call(call, step).await
    }

    async fn query_all<T: FromRedisValue>(
        &self,
        call: Call,
        commands: &redis::Pipeline,
    ) -> Result<T, StoreError> {
        let step = |mut on| async move { commands.query_async(&mut on).await };
        self.call(call, step).await
    }

    /// Sends commands whose replies are not needed.
    async fn write(&self, commands: &redis::Pipeline) -> Result<(), StoreError> {
        let step = |mut on| async move { commands.exec_async(&mut on).await };
        self.call(Call::Write, step).await
    }

    /// Changes a cart: `script` takes the items, with their counts, behind its named arguments. `None`: it is
    /// changed, and has to be read in parts.
    async fn run_change(
        &self,
        mut script: Invocation,
        change: &CartChange,
    ) -> Result<Option<CartAnswer>, StoreError> {
        if let CartChange::Set(items) = change {
            for (item, count) in items {
                script.another(item.as_str()).another(*count);
            }
        }
        changed_cart(self.invoke(Call::Write, &script).await?)
    }

    /// Takes or keeps a turn.
    async fn take(&self, turn: &str, who: u64, time: Duration) -> Result<bool, StoreError> {
        let mut script = self.script(&script::TAKE_TURN);
        script.key("turn", turn).arg("who", who).arg("ms", milliseconds(time));
        Ok(self.run(&script).await? > 0)
    }

    async fn touch_batch(&self, visits: &[Visit]) -> Result<Vec<u8>, StoreError> {
        let mut script = self.script(&script::TOUCH);
        script.arg("keep", self.limits().viewed_items);
        for visit in visits {
            script.another_key(self.keys().viewed(&visit.token));
            script.another(visit.token.as_str()).another(visit.user.as_stored());
            script.another(visit.seen).another(visit.items.len());
            for (item, seen) in &visit.items {
                script.another(*seen).another(item.as_str());
            }
        }
        self.invoke(Call::Write, &script).await
    }

    /// The connection for what is large. A call over it fails while it is not there yet.
    fn begin_bulk(&self) -> &Link {
        self.lane.bulk.get_or_init(|| self.lane.address.link())
    }

    /// How many sessions are over the limit, and the oldest of them behind the `left` first, each
    /// with the time when it was seen.
    async fn oldest(&self, how: Eviction, left: u64) -> Result<(u64, Oldest), StoreError> {
        let recent = &self.keys().recent;
        let last = left + u64::from(how.batch.clamp(1, EXPIRING_BATCH)) - 1;
        // No transaction: one is refused where memory is full, even if it only reads.
        let mut look = pipe();
        look.cmd("ZCARD").arg(recent);
        look.cmd("ZCOUNT").arg(recent).arg("-inf").arg(format!("({}", how.before));
        look.cmd("ZRANGE").arg(recent).arg(left).arg(last).arg("WITHSCORES");
        let (all, idle, mut oldest): (u64, u64, Oldest) =
            self.query_all(Call::Write, &look).await?;
        // Scores of other programs may be anything: without a time nobody is idle.
        let over = all.saturating_sub(how.keep).max(if how.before > 0.0 { idle } else { 0 });
        oldest.truncate(usize::try_from(over.saturating_sub(left)).unwrap_or(usize::MAX));
        Ok((over, oldest))
    }

    /// Parts with those of these sessions that are as they were, and over the limit still.
    async fn part(
        &self,
        how: Eviction,
        oldest: &Oldest,
        farewell: &Farewell,
    ) -> Result<Evicted, StoreError> {
        let mut script = self.script(&script::EVICT_EXPIRING);
        let storage = self.add_fate(&mut script, Some(farewell));
        script.arg("keep", how.keep).arg("before", how.before).arg("bytes_max", EXPIRING_BYTES);
        add_sessions(&mut script, oldest, storage);
        type Reply = (usize, usize, usize, usize, u8, Vec<u8>);
        let (removed, handed_on, dropped, waiting, more, refusal): Reply =
            self.invoke(Call::Write, &script).await?;
        Ok(Evicted {
            removed,
            handed_on,
            dropped,
            waiting,
            more: more > 0,
            refusal: refusal_of(&refusal),
            ..Evicted::default()
        })
    }

    /// Gives a script what becomes of carts, and within which bounds. Returns how tokens are stored, where
    /// their ids are needed.
    fn add_fate(
        &self,
        script: &mut Invocation,
        farewell: Option<&Farewell>,
    ) -> Option<TokenStorage> {
        let (action, entries) = match farewell {
            None => ("none", 0),
            Some(Farewell::Keep) => ("keep", 0),
            Some(Farewell::Stream { keep, .. }) => ("stream", *keep),
            Some(Farewell::Outbox { .. }) => ("outbox", 0),
            Some(Farewell::Queue { keep, .. }) => ("queue", *keep),
        };
        script.arg("action", action).arg("entries", entries).arg("cart_max", CART_MAX);
        script.arg("views_max", self.limits().viewed_items);
        farewell.and_then(Farewell::storage)
    }

    /// The connection for large pages, once it is there.
    async fn bulk(&self) -> Result<&Link, StoreError> {
        if self.state() == StoreState::Away {
            return Err(StoreError::Away);
        }
        let link = self.begin_bulk();
        let connected = timeout(self.limits().write_timeout, link.connected()).await;
        connected.map(|()| link).map_err(|_elapsed| StoreError::Away)
    }
}

impl SessionStore for RedisStore {
    async fn check_token(&self, token: &StoredToken) -> Result<Option<User>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.keys().login).arg(token.as_str());
        let user: Option<Vec<u8>> = self.query(Call::Read, &command).await?;
        Ok(user.and_then(|user| User::from_store(&user)))
    }

    async fn live_token(
        &self,
        token: &StoredToken,
        terms: &Terms,
    ) -> Result<Option<LogIn>, StoreError> {
        if terms.are_endless() {
            let user = self.check_token(token).await?;
            return Ok(user.map(|user| LogIn { user, ends: f64::INFINITY }));
        }
        self.look_up(token, terms).await
    }

    async fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        let mut script = self.script(&script::UPDATE);
        script.key("viewed", self.keys().viewed(token));
        script.arg("token", token.as_str()).arg("user", user.as_stored()).arg("now", now);
        script.arg("item", item.map_or("", Item::as_str));
        script.arg("last_dropped", -1 - i64::from(self.limits().viewed_items));
        self.run(&script).await.map(drop)
    }

    async fn touch_tokens(&self, visits: &[Visit]) -> Result<Vec<bool>, StoreError> {
        let mut held = Vec::with_capacity(visits.len());
        for batch in visits.chunks(TOUCH_BATCH) {
            let told = self.touch_batch(batch).await?;
            held.extend((0..batch.len()).map(|at| told.get(at) == Some(&b'1')));
        }
        Ok(held)
    }

    async fn rotate_token(&self, rotation: &Rotation) -> Result<Rotated, StoreError> {
        self.rotate(rotation).await
    }

    async fn revoke_token(&self, token: &StoredToken) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut script = self.script(&script::REVOKE);
        script.key("viewed", keys.viewed(token)).key("cart", keys.cart(token));
        script.arg("token", token.as_str());
        self.run(&script).await.map(drop)
    }

    async fn dismiss_token(
        &self,
        token: &StoredToken,
        farewell: &Farewell,
    ) -> Result<Parted, StoreError> {
        self.dismiss(token, farewell).await
    }

    async fn evict_oldest(&self, how: Eviction) -> Result<usize, StoreError> {
        let mut script = self.script(&script::EVICT);
        script.arg("keep", how.keep).arg("before", how.before);
        script.arg("batch", how.batch.min(EVICT_BATCH)).arg("with_carts", u8::from(how.carts));
        self.run(&script).await
    }

    async fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        farewell: &Farewell,
    ) -> Result<Evicted, StoreError> {
        let (over, oldest) = self.oldest(how, from.left).await?;
        if oldest.is_empty() {
            return Ok(Evicted { cursor: from.clone(), ..Evicted::default() });
        }
        let behind = over > from.left + oldest.len() as u64;
        let mut evicted = self.part(how, &oldest, farewell).await?;
        evicted.more |= behind;
        evicted.cursor = Cursor { left: from.left + evicted.waiting as u64, last: None };
        Ok(evicted)
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        let mut script = self.script(&script::OUTBOX);
        script.arg("most", EXPIRING_BATCH).arg("bytes_max", EXPIRING_BYTES);
        // A read, but a large one that no request waits for.
        let (records, all): (Vec<Vec<u8>>, u64) = self.invoke(Call::Write, &script).await?;
        Ok(Outbox::of(records, all))
    }

    async fn clear_outbox(&self, outbox: &Outbox) -> Result<bool, StoreError> {
        let mut script = self.script(&script::CLEAR_OUTBOX);
        script.arg("first", &outbox.first).arg("count", outbox.records);
        Ok(self.run(&script).await? > 0)
    }

    async fn take_turn(&self, who: u64, time: Duration) -> Result<bool, StoreError> {
        self.take(&self.keys().cleaner, who, time).await
    }

    async fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> Result<(), StoreError> {
        let cart = self.keys().cart(token);
        let mut step = pipe();
        if count > 0 {
            step.cmd("HSET").arg(cart).arg(item.as_str()).arg(count);
        } else {
            step.cmd("HDEL").arg(cart).arg(item.as_str());
        }
        self.write(&step).await
    }

    async fn change_cart(
        &self,
        whose: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, StoreError> {
        let CartOwner { token, user, now, terms } = whose;
        let mut script = self.script(&script::CHANGE_CART);
        script.key("cart", self.keys().cart(token));
        script.arg("token", token.as_str());
        script.arg("user", user.as_ref().map_or(&[][..], User::as_stored)).arg("seen", *now);
        script.arg("is_emptied", u8::from(*change == CartChange::Empty)).arg("cart_max", CART_MAX);
        control::add_terms(&mut script, terms);
        match self.run_change(script, change).await? {
            Some(answer) => Ok(answer),
            None => Ok(CartAnswer::Changed(self.cart(token).await?)),
        }
    }

    async fn cart(&self, token: &StoredToken) -> Result<Cart, StoreError> {
        // HSCAN, not HGETALL: another program's cart of any size must not fill our memory.
        let mut command = redis::cmd("HSCAN");
        command.arg(self.keys().cart(token)).arg(0).arg("COUNT").arg(2 * CART_MAX);
        let (_, held): (u64, Pairs) = self.query(Call::Read, &command).await?;
        Ok(cart_of(held))
    }

    async fn viewed(&self, token: &StoredToken) -> Result<Vec<(Item, f64)>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command
            .arg(self.keys().viewed(token))
            .arg(0)
            .arg(i64::from(self.limits().viewed_items) - 1);
        command.arg("REV").arg("WITHSCORES");
        Ok(items_of(self.query(Call::Read, &command).await?))
    }
}

impl ViewStore for RedisStore {
    async fn count_views(&self, views: &[(Item, u64)]) -> Result<(), StoreError> {
        if views.is_empty() {
            return Ok(());
        }
        let mut step = pipe();
        step.atomic();
        for (item, count) in views {
            let score = format!("-{count}");
            step.cmd("ZINCRBY").arg(&self.keys().popularity).arg(score).arg(item.as_str());
        }
        // At the bound the least viewed go: more than one flush brings, few enough for one step.
        let last = POPULARITY_MAX + TRIM - 1;
        step.cmd("ZREMRANGEBYRANK").arg(&self.keys().popularity).arg(POPULARITY_MAX).arg(last);
        self.write(&step).await
    }

    async fn ranks_under(&self, item: &Item, top: u64) -> Result<bool, StoreError> {
        let popularity = &self.keys().popularity;
        let mut look = pipe();
        look.cmd("ZRANK").arg(popularity).arg(item.as_str());
        look.cmd("ZCARD").arg(popularity);
        let (rank, known): (Option<u64>, u64) = self.query_all(Call::Read, &look).await?;
        Ok(known < top || rank.is_some_and(|rank| rank < top))
    }

    async fn top(&self, most: u32) -> Result<Vec<(Item, f64)>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(&self.keys().popularity).arg(0).arg(i64::from(most) - 1).arg("WITHSCORES");
        let found = items_of(self.query(Call::Read, &command).await?);
        Ok(found.into_iter().map(|(item, score)| (item, -score)).collect())
    }

    async fn rescale_views(&self, how: Rescaling) -> Result<Rescaled, StoreError> {
        let mut script = self.script(&script::RESCALE);
        script.arg("keep", how.keep_top).arg("every", how.every.as_secs_f64()).arg("now", how.now);
        script.arg("kept_ms", milliseconds(how.every * 2)).arg("factor", how.factor);
        script.arg("most", TRIM);
        Ok(match self.run(&script).await? {
            0 => Rescaled::NotYet,
            1 => Rescaled::Done,
            _ => Rescaled::Begun,
        })
    }
}
