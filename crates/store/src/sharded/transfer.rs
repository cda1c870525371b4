//! What is moved to and from the shards: tokens one shard after the other, the stream in the order of all shards.

use anteroom_http::ident::StoredToken;
use futures_util::future::try_join_all;

use super::ShardedStore;
use crate::StoreError;
use crate::transfer::{
    IdleMark, SharedKind, SharedRecord, StoreCounts, TransferCursor, TransferPage, TransferRecord,
    TransferStore,
};

impl TransferStore for ShardedStore {
    async fn walk_tokens(
        &self,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<StoredToken>, StoreError> {
        let shard = from.as_ref().map_or(0, |from| from.shard);
        let page = self.any.of_shard(shard).walk_tokens(from).await?;
        Ok(self.page_of(shard, page))
    }

    async fn tokens_seen_since(
        &self,
        since: f64,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<StoredToken>, StoreError> {
        let shard = from.as_ref().map_or(0, |from| from.shard);
        let page = self.any.of_shard(shard).tokens_seen_since(since, from).await?;
        Ok(self.page_of(shard, page))
    }

    async fn export(
        &self,
        tokens: &[StoredToken],
    ) -> Result<Vec<Option<TransferRecord>>, StoreError> {
        let by_shard = self.by_shard(tokens, StoredToken::as_str);
        let exported = by_shard.into_iter().map(|(shard, tokens)| async move {
            let of_shard: Vec<_> = tokens.iter().map(|(_, token)| (*token).clone()).collect();
            let records = shard.export(&of_shard).await?;
            Ok::<_, StoreError>(
                tokens.into_iter().map(|(place, _)| place).zip(records).collect::<Vec<_>>(),
            )
        });
        let mut records = vec![None; tokens.len()];
        for (place, record) in try_join_all(exported).await?.into_iter().flatten() {
            records[place] = record;
        }
        Ok(records)
    }

    async fn import(&self, records: &[TransferRecord]) -> Result<usize, StoreError> {
        let by_shard = self.by_shard(records, |record| record.token.as_str());
        let imported = by_shard.into_iter().map(|(shard, records)| async move {
            let of_shard: Vec<_> = records.into_iter().map(|(_, record)| record.clone()).collect();
            shard.import(&of_shard).await
        });
        Ok(try_join_all(imported).await?.into_iter().sum())
    }

    async fn holds(&self, tokens: &[StoredToken]) -> Result<Vec<bool>, StoreError> {
        let by_shard = self.by_shard(tokens, StoredToken::as_str);
        let looks = by_shard.into_iter().map(|(shard, tokens)| async move {
            let of_shard: Vec<_> = tokens.iter().map(|(_, token)| (*token).clone()).collect();
            let held = shard.holds(&of_shard).await?;
            Ok::<_, StoreError>(
                tokens.into_iter().map(|(place, _)| place).zip(held).collect::<Vec<_>>(),
            )
        });
        let mut held = vec![false; tokens.len()];
        for (place, is_held) in try_join_all(looks).await?.into_iter().flatten() {
            held[place] = is_held;
        }
        Ok(held)
    }

    async fn remove(&self, tokens: &[StoredToken], before: f64) -> Result<usize, StoreError> {
        let by_shard = self.by_shard(tokens, StoredToken::as_str);
        let removed = by_shard.into_iter().map(|(shard, tokens)| async move {
            let of_shard: Vec<_> = tokens.into_iter().map(|(_, token)| token.clone()).collect();
            shard.remove(&of_shard, before).await
        });
        Ok(try_join_all(removed).await?.into_iter().sum())
    }

    async fn counts(&self) -> Result<StoreCounts, StoreError> {
        let counts = self.at_all(|shard| async move { shard.counts().await }).await?;
        Ok(counts.into_iter().fold(StoreCounts::default(), StoreCounts::plus))
    }

    async fn export_shared(
        &self,
        kind: SharedKind,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<SharedRecord>, StoreError> {
        match kind {
            SharedKind::Popularity | SharedKind::Events | SharedKind::Outbox => {
                let shard = from.as_ref().map_or(0, |from| from.shard);
                let page = self.any.of_shard(shard).export_shared(kind, from).await?;
                Ok(self.page_of(shard, page))
            }
            SharedKind::Rows => self.first().export_shared(kind, from).await,
            SharedKind::Revoked => self.export_revoked(from.unwrap_or_default()).await,
            SharedKind::Stream => self.export_stream(from.unwrap_or_default()).await,
            SharedKind::IdleMark => {
                let mark = self.idle_mark().await?;
                Ok(TransferPage::last(mark.map(SharedRecord::IdleMark).into_iter().collect()))
            }
        }
    }

    async fn clear_shared(&self, kind: SharedKind) -> Result<(), StoreError> {
        self.at_all(|shard| async move { shard.clear_shared(kind).await }).await.map(drop)
    }

    async fn import_shared(&self, records: &[SharedRecord]) -> Result<usize, StoreError> {
        let mut by_shard = vec![Vec::new(); self.any.shards()];
        for record in records {
            match self.shard_of(record) {
                Some(shard) => by_shard[shard].push(record.clone()),
                None => by_shard.iter_mut().for_each(|shard| shard.push(shared_by_all(record))),
            }
        }
        let parts = self.all().zip(by_shard).filter(|(_, part)| !part.is_empty());
        let imported = parts.map(|(shard, part)| async move { shard.import_shared(&part).await });
        Ok(try_join_all(imported).await?.into_iter().sum())
    }

    /// How durable a write is, is a setting of Redis.
    async fn forget_purges(&self) -> Result<(), StoreError> {
        self.first().forget_purges().await
    }

    async fn make_durable(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A record for every shard.
fn shared_by_all(record: &SharedRecord) -> SharedRecord {
    match record {
        SharedRecord::IdleMark(mark) => SharedRecord::IdleMark(mark.without_token()),
        other => other.clone(),
    }
}

impl ShardedStore {
    /// A page of a shard, after which the next shard follows.
    fn page_of<T>(&self, shard: usize, page: TransferPage<T>) -> TransferPage<T> {
        let inside = page.next.map(|next| TransferCursor { shard, ..next });
        let behind = (shard + 1 < self.any.shards())
            .then(|| TransferCursor { shard: shard + 1, ..TransferCursor::default() });
        TransferPage { found: page.found, next: inside.or(behind) }
    }

    /// The shard of a record; `None`: every shard has it. Carts that wait were those of a token that is not known any
    /// more, so they are spread by their session's public id, or by their bytes.
    fn shard_of(&self, record: &SharedRecord) -> Option<usize> {
        Some(match record {
            SharedRecord::Popularity(item, _) => self.index_of(item.as_str()),
            SharedRecord::Row { .. } => super::FIRST,
            SharedRecord::Revoked { digest, .. } => self.index_of(digest),
            SharedRecord::Event(record) | SharedRecord::Outbox(record) => {
                self.index_of(&String::from_utf8_lossy(record))
            }
            SharedRecord::Stream { fields, .. } => {
                let id = fields.iter().find(|(name, _)| name == b"id");
                self.index_of(&String::from_utf8_lossy(id.map_or(&[], |(_, id)| id)))
            }
            SharedRecord::IdleMark(_) => return None,
        })
    }

    /// All keys of one server after the other are walked.
    async fn export_revoked(
        &self,
        from: TransferCursor,
    ) -> Result<TransferPage<SharedRecord>, StoreError> {
        let TransferCursor { shard, at, .. } = from;
        let (found, next) = self.any.of_shard(shard).scan_revoked(at).await?;
        let inside = next.map(|at| TransferCursor { shard, at, ..TransferCursor::default() });
        let behind = self.any.first_of_servers().into_iter().find(|first| *first > shard);
        let behind = behind.map(|shard| TransferCursor { shard, ..TransferCursor::default() });
        Ok(TransferPage { found, next: inside.or(behind) })
    }

    /// The streams of all shards in the order of their ids. Of each shard some entries are read; what is taken of them
    /// ends where the first of the shards that have more ends.
    async fn export_stream(
        &self,
        from: TransferCursor,
    ) -> Result<TransferPage<SharedRecord>, StoreError> {
        let after = &from.last;
        let pages = self.at_all(|shard| async move { shard.stream_after(after).await }).await?;
        let full = pages.iter().filter(|page| page.len() >= self.any.stream_page());
        let until = full.filter_map(|page| page.last().and_then(id_of)).min();
        let mut found: Vec<SharedRecord> = pages.into_iter().flatten().collect();
        found.sort_by_key(id_of);
        if let Some(until) = until {
            found.retain(|entry| id_of(entry).is_some_and(|id| id <= until));
        }
        let next = until.map(|(time, number)| TransferCursor {
            last: format!("{time}-{number}").into_bytes(),
            ..TransferCursor::default()
        });
        Ok(TransferPage { found, next })
    }

    /// Up to when all shards have told of idle carts: just before the first session of which one has not, and no later
    /// than any has come. A session may be told of again that another shard has told of already; none is left out.
    async fn idle_mark(&self) -> Result<Option<IdleMark>, StoreError> {
        let positions = self.at_all(|shard| async move { shard.idle_position().await }).await?;
        let marks = positions.iter().filter_map(|(mark, _)| mark.as_ref());
        let Some(latest) = marks.map(|mark| mark.until).max_by(f64::total_cmp) else {
            return Ok(None);
        };
        let next = positions.iter().filter_map(|(_, next)| *next).min_by(f64::total_cmp);
        let until = next.map_or(latest, |next| latest.min(next.next_down()));
        Ok(Some(IdleMark { until, token: None }))
    }
}

fn id_of(record: &SharedRecord) -> Option<(u64, u64)> {
    match record {
        SharedRecord::Stream { id, .. } => Some(*id),
        _ => None,
    }
}
