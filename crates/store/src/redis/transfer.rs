//! What is moved to and from Redis: the part of one shard, which is all of the chapter's layout.

use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, Row, StoredToken, User, VisitorToken};
use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::pipe;

use super::{Pairs, RedisCall, RedisStore, ScoredMembers, milliseconds, script};
use crate::transfer::{
    IdleMark, LogInTime, SharedKind, SharedRecord, StoreCounts, TRANSFER_CART_MAX, TRANSFER_PAGE,
    TRANSFER_VIEWS_MAX, TransferCursor, TransferPage, TransferRecord, TransferStore,
};
use crate::{ROW_JSON_MAX, StoreError};

/// The parts of a walk over tokens.
const IN_LOGIN: u8 = 0;
const IN_RECENT: u8 = 1;
const IN_VISITORS: u8 = 2;
/// Entries of lists and streams on a page: each may be some 70 KiB.
const ENTRIES: u64 = 50;
/// Rows on a page: each may be 1 MiB.
const ROWS: usize = 4;
/// Tokens in one call of a script: longer calls would delay others.
const SCRIPT_BATCH: usize = 100;
/// Keys that one step of a walk over all keys looks at: a Redis 7.0 does nothing else for about 1 ms then.
const KEYS_LOOKED_AT: u32 = 500;
/// Rows that one step removes.
const ROWS_REMOVED: usize = 1_000;

/// What a script says of a token: user, last visit, login, first seen, views, cart.
type TokenExport = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<Vec<u8>>, Vec<Vec<u8>>);

impl TransferStore for RedisStore {
    async fn walk_tokens(
        &self,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<StoredToken>, StoreError> {
        let TransferCursor { part, at, .. } = from.unwrap_or_default();
        let (next, found) = match part {
            IN_LOGIN => self.scan_pairs("HSCAN", &self.keys().login, at).await?,
            IN_RECENT => self.scan_recent(at).await?,
            _ => self.scan_pairs("ZSCAN", &self.keys().visitors, at).await?,
        };
        let found = found.iter().filter_map(|token| match part {
            IN_VISITORS => visitor_in(token),
            _ => StoredToken::from_store(token),
        });
        let next = match next {
            0 if part == IN_VISITORS => None,
            0 => Some(TransferCursor { part: part + 1, ..TransferCursor::default() }),
            at => Some(TransferCursor { part, at, ..TransferCursor::default() }),
        };
        Ok(TransferPage { found: found.collect(), next })
    }

    async fn tokens_seen_since(
        &self,
        since: f64,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<StoredToken>, StoreError> {
        let TransferCursor { part, at, last, .. } = from.unwrap_or_default();
        let set = if part == 0 { &self.keys().recent } else { &self.keys().visitors };
        let time = if last.is_empty() { since } else { f64::from_bits(at) };
        let mut script = self.script(&script::SEEN_SINCE);
        script.key("set", set).arg("from_time", time).arg("from_token", &last);
        script.arg("most", TRANSFER_PAGE);
        let found: ScoredMembers = self.invoke(RedisCall::Write, &script).await?;
        let next = match found.last().filter(|_| found.len() == TRANSFER_PAGE) {
            Some((token, seen)) => {
                let (at, last) = (seen.to_bits(), token.clone());
                Some(TransferCursor { part, at, last, ..TransferCursor::default() })
            }
            None if part == 0 => Some(TransferCursor { part: 1, ..TransferCursor::default() }),
            None => None,
        };
        let found = found.iter().filter_map(|(token, _)| match part {
            0 => StoredToken::from_store(token),
            _ => visitor_in(token),
        });
        Ok(TransferPage { found: found.collect(), next })
    }

    async fn export(
        &self,
        tokens: &[StoredToken],
    ) -> Result<Vec<Option<TransferRecord>>, StoreError> {
        let parts = tokens.chunks(SCRIPT_BATCH).map(|part| self.export_part(part));
        Ok(try_join_all(parts).await?.concat())
    }

    async fn import(&self, records: &[TransferRecord]) -> Result<usize, StoreError> {
        let parts = records.chunks(SCRIPT_BATCH).map(|part| self.import_part(part));
        Ok(try_join_all(parts).await?.into_iter().sum())
    }

    async fn holds(&self, tokens: &[StoredToken]) -> Result<Vec<bool>, StoreError> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.keys();
        let names: Vec<&str> = tokens.iter().map(StoredToken::as_str).collect();
        let mut look = pipe();
        look.cmd("HMGET").arg(&keys.login).arg(&names);
        look.cmd("ZMSCORE").arg(&keys.recent).arg(&names);
        look.cmd("ZMSCORE").arg(&keys.visitors).arg(&names);
        type Reply = (Vec<Option<Bytes>>, Vec<Option<f64>>, Vec<Option<f64>>);
        let (users, recent, visitors): Reply = self.query_all(RedisCall::Write, &look).await?;
        let held = users.iter().zip(&recent).zip(&visitors);
        Ok(held
            .map(|((user, seen), visitor)| user.is_some() || seen.or(*visitor).is_some())
            .collect())
    }

    async fn remove(&self, tokens: &[StoredToken], before: f64) -> Result<usize, StoreError> {
        let parts = tokens.chunks(SCRIPT_BATCH).map(|part| self.remove_part(part, before));
        Ok(try_join_all(parts).await?.into_iter().sum())
    }

    async fn counts(&self) -> Result<StoreCounts, StoreError> {
        let keys = self.keys();
        let mut look = pipe();
        look.cmd("ZCARD").arg(&keys.recent);
        look.cmd("ZCARD").arg(&keys.visitors);
        look.cmd("ZCARD").arg(&keys.popularity);
        look.cmd("ZCARD").arg(&keys.delay);
        look.cmd("LLEN").arg(&keys.events);
        look.cmd("LLEN").arg(&keys.expiring);
        look.cmd("XLEN").arg(&keys.expired);
        let [sessions, visitors, items, rows, events, outbox, stream]: [u64; 7] =
            self.query_all(RedisCall::Write, &look).await?;
        Ok(StoreCounts { sessions, visitors, items, rows, events, outbox, stream })
    }

    async fn export_shared(
        &self,
        kind: SharedKind,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<SharedRecord>, StoreError> {
        let from = from.unwrap_or_default();
        match kind {
            SharedKind::Popularity => self.export_popularity(from.at).await,
            SharedKind::Rows => self.export_rows(from).await,
            SharedKind::Revoked => {
                let (found, next) = self.scan_revoked(from.at).await?;
                Ok(TransferPage { found, next: next.map(at) })
            }
            SharedKind::Events => {
                self.export_list(&self.keys().events, from.at, SharedRecord::Event).await
            }
            SharedKind::Outbox => {
                self.export_list(&self.keys().expiring, from.at, SharedRecord::Outbox).await
            }
            SharedKind::Stream => self.export_stream(&from.last).await,
            SharedKind::IdleMark => {
                let (mark, _) = self.idle_position().await?;
                Ok(TransferPage::last(mark.map(SharedRecord::IdleMark).into_iter().collect()))
            }
        }
    }

    async fn clear_shared(&self, kind: SharedKind) -> Result<(), StoreError> {
        let keys = self.keys();
        let key = match kind {
            SharedKind::Popularity => &keys.popularity,
            SharedKind::Rows => return self.clear_rows().await,
            SharedKind::Revoked => return Ok(()),
            SharedKind::Events => &keys.events,
            SharedKind::Outbox => &keys.expiring,
            SharedKind::Stream => &keys.expired,
            SharedKind::IdleMark => &keys.idle_reported,
        };
        self.write(pipe().cmd("UNLINK").arg(key)).await
    }

    async fn import_shared(&self, records: &[SharedRecord]) -> Result<usize, StoreError> {
        let (keys, now) = (self.keys(), unix_now());
        let mut add = pipe();
        let mut stream = self.script(&script::ADD_TO_STREAM);
        let mut has_stream = false;
        for record in records {
            match record {
                SharedRecord::Popularity(item, score) => {
                    add.cmd("ZADD").arg(&keys.popularity).arg(*score).arg(item.as_str());
                }
                SharedRecord::Row { row, delay, due, refreshed, until, json } => {
                    let name = row.as_str();
                    add.cmd("ZADD").arg(&keys.delay).arg(*delay).arg(name);
                    let times = [
                        (&keys.schedule, due),
                        (&keys.refreshed, refreshed),
                        (&keys.unschedule, until),
                    ];
                    for (key, time) in times {
                        if let Some(time) = time {
                            add.cmd("ZADD").arg(key).arg(*time).arg(name);
                        }
                    }
                    if let Some(json) = json {
                        add.cmd("SET").arg(keys.row(row)).arg(json.as_ref());
                    }
                }
                SharedRecord::Revoked { digest, until } => {
                    let left = std::time::Duration::try_from_secs_f64(until - now);
                    if let Ok(left) = left.map(milliseconds) {
                        add.cmd("SET")
                            .arg(keys.revoked_digest(digest))
                            .arg("1")
                            .arg("PX")
                            .arg(left);
                    }
                }
                SharedRecord::Event(record) => {
                    add.cmd("RPUSH").arg(&keys.events).arg(record);
                }
                SharedRecord::Outbox(record) => {
                    add.cmd("RPUSH").arg(&keys.expiring).arg(record);
                }
                SharedRecord::Stream { id: (time, number), fields } => {
                    has_stream = true;
                    stream.another(format!("{time}-{number}")).another(fields.len());
                    for (name, value) in fields {
                        stream.another(name).another(value);
                    }
                }
                SharedRecord::IdleMark(IdleMark { until, token }) => {
                    let mark = match token {
                        Some(token) => format!("{until} {}", token.as_str()),
                        None => until.to_string(),
                    };
                    add.cmd("SET").arg(&keys.idle_reported).arg(mark);
                }
            }
        }
        if !add.is_empty() {
            self.write(&add).await?;
        }
        if has_stream {
            self.run(&stream).await?;
        }
        Ok(0)
    }

    /// How durable a write is, is a setting of Redis.
    async fn forget_purges(&self) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut command = redis::cmd("DEL");
        command.arg(&keys.purges).arg(&keys.purging).arg(&keys.purged).arg(&keys.seen);
        self.query(RedisCall::Write, &command).await
    }

    async fn make_durable(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A position that is a number.
fn at(at: u64) -> TransferCursor {
    TransferCursor { at, ..TransferCursor::default() }
}

fn visitor_in(token: &[u8]) -> Option<StoredToken> {
    VisitorToken::from_store(token).map(|token| token.as_stored().clone())
}

/// A score as a script takes it; empty: none.
fn score_text(score: Option<f64>) -> String {
    score.map(|score| score.to_string()).unwrap_or_default()
}

fn score_in(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn item_in(bytes: &[u8]) -> Option<Item> {
    Item::new(std::str::from_utf8(bytes).ok()?)
}

fn record_of(token: &StoredToken, found: &TokenExport) -> TransferRecord {
    let (user, seen, log_in, noted, viewed, cart) = found;
    let since = match (score_in(log_in), score_in(noted)) {
        (Some(time), _) => LogInTime::At(time),
        (None, Some(time)) => LogInTime::FirstSeen(time),
        (None, None) => LogInTime::Unknown,
    };
    let viewed = viewed.as_chunks::<2>().0.iter();
    let viewed = viewed.filter_map(|[item, seen]| Some((item_in(item)?, score_in(seen)?)));
    let count = |count: &[u8]| std::str::from_utf8(count).ok()?.parse().ok();
    let cart = cart.as_chunks::<2>().0.iter();
    let cart = cart.filter_map(|[item, number]| Some((item_in(item)?, count(number)?)));
    let mut cart: Vec<_> = cart.take(TRANSFER_CART_MAX).collect();
    cart.sort_unstable();
    TransferRecord {
        token: token.clone(),
        user: User::from_store(user),
        seen: score_in(seen),
        since,
        viewed: viewed.collect(),
        cart,
    }
}

/// The id of an entry of a stream.
fn stream_id(id: &str) -> Option<(u64, u64)> {
    let (time, number) = id.split_once('-')?;
    Some((time.parse().ok()?, number.parse().ok()?))
}

/// The part of one script.
impl RedisStore {
    async fn export_part(
        &self,
        tokens: &[StoredToken],
    ) -> Result<Vec<Option<TransferRecord>>, StoreError> {
        let mut script = self.script(&script::EXPORT_TOKENS);
        script.arg("views_max", TRANSFER_VIEWS_MAX).arg("cart_max", TRANSFER_CART_MAX);
        for token in tokens {
            script.another(token.as_str());
        }
        let found: Vec<Option<TokenExport>> = self.invoke(RedisCall::Write, &script).await?;
        let records = tokens.iter().zip(found);
        Ok(records.map(|(token, found)| found.map(|found| record_of(token, &found))).collect())
    }

    async fn import_part(&self, records: &[TransferRecord]) -> Result<usize, StoreError> {
        let mut script = self.script(&script::IMPORT_TOKENS);
        for record in records {
            let (kind, began) = match record.since {
                LogInTime::Unknown => ("", None),
                LogInTime::At(time) => ("a", Some(time)),
                LogInTime::FirstSeen(time) => ("f", Some(time)),
            };
            script.another(record.token.as_str());
            script.another(record.user.as_ref().map(User::as_stored).unwrap_or_default());
            script.another(score_text(record.seen)).another(kind).another(score_text(began));
            script.another(record.viewed.len()).another(record.cart.len());
            for (item, seen) in &record.viewed {
                script.another(*seen).another(item.as_str());
            }
            for (item, count) in &record.cart {
                script.another(item.as_str()).another(*count);
            }
        }
        self.run(&script).await
    }

    async fn remove_part(&self, tokens: &[StoredToken], before: f64) -> Result<usize, StoreError> {
        let mut script = self.script(&script::REMOVE_TOKENS);
        script.arg("before", score_text(Some(before).filter(|before| before.is_finite())));
        for token in tokens {
            script.another(token.as_str());
        }
        self.run(&script).await
    }
}

impl RedisStore {
    /// The first of each pair in a step of a walk over a hash or a set.
    async fn scan_pairs(
        &self,
        command: &str,
        key: &str,
        at: u64,
    ) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        let mut scan = redis::cmd(command);
        scan.arg(key).arg(at).arg("COUNT").arg(TRANSFER_PAGE);
        let (next, found): (u64, Pairs) = self.query(RedisCall::Write, &scan).await?;
        Ok((next, found.into_iter().map(|(first, _)| first).collect()))
    }

    async fn scan_recent(&self, at: u64) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        let mut script = self.script(&script::WALK_RECENT);
        script.arg("cursor", at).arg("count", TRANSFER_PAGE);
        self.invoke(RedisCall::Write, &script).await
    }

    async fn export_popularity(&self, from: u64) -> Result<TransferPage<SharedRecord>, StoreError> {
        let mut scan = redis::cmd("ZSCAN");
        scan.arg(&self.keys().popularity).arg(from).arg("COUNT").arg(TRANSFER_PAGE);
        let (next, found): (u64, ScoredMembers) = self.query(RedisCall::Write, &scan).await?;
        let found = found.into_iter();
        let found = found
            .filter_map(|(item, score)| Some(SharedRecord::Popularity(item_in(&item)?, score)));
        Ok(TransferPage { found: found.collect(), next: (next != 0).then(|| at(next)) })
    }

    /// The names are listed by the hundred, and then a few rows at a time are read.
    async fn export_rows(
        &self,
        from: TransferCursor,
    ) -> Result<TransferPage<SharedRecord>, StoreError> {
        /// Names are left to read.
        const READING: u8 = 1;
        let TransferCursor { part, mut at, mut pending, .. } = from;
        if part != READING {
            (at, pending) = self.scan_pairs("ZSCAN", &self.keys().delay, at).await?;
        }
        let left = pending.split_off(pending.len().min(ROWS));
        let found = self.read_rows(&pending).await?;
        let next = match (left.is_empty(), at) {
            (true, 0) => None,
            (true, at) => Some(TransferCursor { at, ..TransferCursor::default() }),
            (false, at) => Some(TransferCursor {
                part: READING,
                at,
                pending: left,
                ..TransferCursor::default()
            }),
        };
        Ok(TransferPage { found, next })
    }

    async fn read_rows(&self, names: &[Vec<u8>]) -> Result<Vec<SharedRecord>, StoreError> {
        let keys = self.keys();
        let rows: Vec<Row> =
            names.iter().filter_map(|name| Row::new(std::str::from_utf8(name).ok()?)).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut read = pipe();
        for row in &rows {
            for key in [&keys.delay, &keys.schedule, &keys.refreshed, &keys.unschedule] {
                read.cmd("ZSCORE").arg(key).arg(row.as_str());
            }
            read.cmd("GETRANGE").arg(keys.row(row)).arg(0).arg(ROW_JSON_MAX);
        }
        let found: Vec<Option<Vec<u8>>> = self.query_all(RedisCall::Write, &read).await?;
        let found = rows.into_iter().zip(found.as_chunks::<5>().0);
        let found = found.filter_map(|(row, [delay, due, refreshed, until, json])| {
            let time = |time: &Option<Vec<u8>>| time.as_deref().and_then(score_in);
            let json = json.as_deref().filter(|json| (1..=ROW_JSON_MAX).contains(&json.len()));
            Some(SharedRecord::Row {
                row,
                delay: time(delay)?,
                due: time(due),
                refreshed: time(refreshed),
                until: time(until),
                json: json.map(Bytes::copy_from_slice),
            })
        });
        Ok(found.collect())
    }

    async fn clear_rows(&self) -> Result<(), StoreError> {
        loop {
            let mut script = self.script(&script::CLEAR_ROWS);
            script.arg("most", ROWS_REMOVED);
            if self.run(&script).await? == 0 {
                return Ok(());
            }
        }
    }

    /// Of the shards of each server the first: a walk over all keys of the servers visits these.
    pub(crate) fn first_of_servers(&self) -> Vec<usize> {
        self.handle.links.first_of_servers(self.shards())
    }

    /// Revoked tokens among some keys of this shard's server, and where the next step begins. There is no list of them:
    /// all keys of the server are walked.
    pub(crate) async fn scan_revoked(
        &self,
        from: u64,
    ) -> Result<(Vec<SharedRecord>, Option<u64>), StoreError> {
        let keys = self.keys();
        let mut scan = redis::cmd("SCAN");
        scan.arg(from).arg("MATCH").arg(keys.revoked_pattern()).arg("COUNT").arg(KEYS_LOOKED_AT);
        let (next, found): (u64, Vec<Vec<u8>>) = self.query(RedisCall::Write, &scan).await?;
        let marks: Vec<(&[u8], String)> =
            found.iter().filter_map(|key| Some((key.as_slice(), keys.digest_in(key)?))).collect();
        let mut records = Vec::with_capacity(marks.len());
        if !marks.is_empty() {
            let mut look = pipe();
            for (key, _) in &marks {
                look.cmd("PTTL").arg(key);
            }
            let left: Vec<i64> = self.query_all(RedisCall::Write, &look).await?;
            let now = unix_now();
            records.extend(marks.into_iter().zip(left).filter(|(_, left)| *left > 0).map(
                |((_, digest), left)| SharedRecord::Revoked {
                    digest,
                    until: now + left as f64 / 1e3,
                },
            ));
        }
        Ok((records, (next != 0).then_some(next)))
    }

    async fn export_list(
        &self,
        key: &str,
        from: u64,
        record: fn(Vec<u8>) -> SharedRecord,
    ) -> Result<TransferPage<SharedRecord>, StoreError> {
        let mut read = redis::cmd("LRANGE");
        read.arg(key).arg(from).arg(from + ENTRIES - 1);
        let found: Vec<Vec<u8>> = self.query(RedisCall::Write, &read).await?;
        let next = (found.len() as u64 == ENTRIES).then(|| at(from + ENTRIES));
        Ok(TransferPage { found: found.into_iter().map(record).collect(), next })
    }

    async fn export_stream(&self, after: &[u8]) -> Result<TransferPage<SharedRecord>, StoreError> {
        let found = self.stream_after(after).await?;
        let last = found.last().filter(|_| found.len() as u64 == ENTRIES);
        let next = last.and_then(|last| match last {
            SharedRecord::Stream { id: (time, number), .. } => {
                let last = format!("{time}-{number}").into_bytes();
                Some(TransferCursor { last, ..TransferCursor::default() })
            }
            _ => None,
        });
        Ok(TransferPage { found, next })
    }

    /// Some entries of the stream behind this id; empty: from the first.
    pub(crate) async fn stream_after(&self, after: &[u8]) -> Result<Vec<SharedRecord>, StoreError> {
        let from = if after.is_empty() { b"-".to_vec() } else { [b"(", after].concat() };
        let mut read = redis::cmd("XRANGE");
        read.arg(&self.keys().expired).arg(from).arg("+").arg("COUNT").arg(ENTRIES);
        let found: Vec<(String, Pairs)> = self.query(RedisCall::Write, &read).await?;
        let entry = |(id, fields): (String, Pairs)| {
            Some(SharedRecord::Stream { id: stream_id(&id)?, fields })
        };
        Ok(found.into_iter().filter_map(entry).collect())
    }

    /// How many entries [`Self::stream_after`] reads at most.
    pub(crate) fn stream_page(&self) -> usize {
        ENTRIES as usize
    }

    /// The mark of idle carts, and when the first session was seen of which has not been told.
    pub(crate) async fn idle_position(
        &self,
    ) -> Result<(Option<IdleMark>, Option<f64>), StoreError> {
        let script = self.script(&script::IDLE_POSITION);
        let (mark, next): (String, Vec<u8>) = self.invoke(RedisCall::Write, &script).await?;
        let (until, token) = match mark.split_once(' ') {
            Some((until, token)) => (until, StoredToken::from_store(token.as_bytes())),
            None => (mark.as_str(), None),
        };
        let mark = until.parse().ok().map(|until| IdleMark { until, token });
        Ok((mark, score_in(&next)))
    }
}
