//! StoredValue entries: what is written is read back, and what is read is trusted in nothing.

use std::sync::Arc;

use anteroom_cache::entry::{
    Entry, LifetimeSource, MalformedPage, StaleLifetimes, StoredValue, VARIANTS_MAX, VariantIndex,
};
use anteroom_cache::page_fields::PageFields;
use anteroom_cache::purge::PurgeSnapshot;
use anteroom_http::ident::PageKey;
use anteroom_store::Generation;
use bytes::Bytes;
use http::HeaderName;
use http::header::{ACCEPT_LANGUAGE, COOKIE};

use crate::input::{Input, fields};

const SOURCES: [LifetimeSource; 5] = [
    LifetimeSource::Explicit,
    LifetimeSource::Default,
    LifetimeSource::Route,
    LifetimeSource::Override,
    LifetimeSource::Heuristic,
];

pub(crate) fn entries(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 3 {
        0 => drop(assert_stable(Bytes::copy_from_slice(input.0))),
        1 => assert_survives(&StoredValue::Page(entry(&mut input))),
        _ => assert_survives(&StoredValue::Variants(index(&mut input))),
    }
}

/// What can be read is written so that it is read the same.
fn assert_stable(bytes: Bytes) -> Result<StoredValue, MalformedPage> {
    let stored = StoredValue::decode(bytes)?;
    assert_eq!(StoredValue::decode(stored.encode()).as_ref(), Ok(&stored));
    if let StoredValue::Page(entry) = &stored {
        let now = entry.stored_at.saturating_add(1_000);
        // The remaining lifetime is written as a signed number, which ends far in the future.
        let is_told = i64::try_from(entry.lifetime.max(entry.age(now))).is_ok();
        assert!(!is_told || entry.is_fresh(now) == (entry.ttl(now) > 0));
        assert!(entry.worth(now) >= entry.lifetime.saturating_sub(entry.age(now)));
        assert!(entry.weight() >= entry.body.len());
    }
    Ok(stored)
}

/// An entry reads back unchanged; a truncated one is rejected, and a damaged one does no harm.
fn assert_survives(stored: &StoredValue) {
    let bytes = stored.encode();
    assert_eq!(assert_stable(bytes.clone()).as_ref(), Ok(stored));
    for end in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        let cut = StoredValue::decode(bytes.slice(..end));
        assert!(cut.is_err() || end == 0, "cut at {end}");
    }
    let longer = Bytes::from([&bytes[..], b"x"].concat());
    assert_eq!(StoredValue::decode(longer), Err(MalformedPage));
    // Another eighth of the bytes for each input.
    for at in (bytes.len() % 8..bytes.len()).step_by(8).take(16) {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at / 8 % 8);
        drop(assert_stable(damaged.into()));
    }
}

fn generation(input: &mut Input<'_>) -> Generation {
    Generation { era: input.number(u64::MAX), number: input.number(u64::MAX) }
}

fn entry(input: &mut Input<'_>) -> Entry {
    let slots = (0..input.byte() % 8).map(|_| u32::from(input.byte()) << 8).collect();
    let marks = PurgeSnapshot::stored(generation(input), slots).expect("few small slots");
    Entry {
        status: 200 + u16::from(input.byte()),
        source: SOURCES[usize::from(input.byte()) % SOURCES.len()],
        static_proof: input.byte().is_multiple_of(2),
        has_own_etag: input.byte().is_multiple_of(2),
        stored_at: input.number(u64::MAX),
        initial_age: input.number(u64::MAX),
        lifetime: input.number(u64::MAX),
        stale: StaleLifetimes {
            while_revalidate: input.number(u64::MAX),
            if_error: input.number(u64::MAX),
        },
        vary: names(input),
        purge_snapshot: Arc::new(marks),
        recipe: None,
        hits: anteroom_cache::hit_count::HitCount::default(),
        reason: Some(Bytes::copy_from_slice(input.line())).filter(|line| !line.is_empty()),
        fields: PageFields::of(&fields(input.block())),
        body: Bytes::copy_from_slice(input.0),
    }
}

fn names(input: &mut Input<'_>) -> Vec<HeaderName> {
    [ACCEPT_LANGUAGE, COOKIE].into_iter().take(usize::from(input.byte()) % 3).collect()
}

fn index(input: &mut Input<'_>) -> VariantIndex {
    let fields = names(input);
    let keys = input.0.chunks(32).take(VARIANTS_MAX).map(|chunk| {
        let mut key = [0; 32];
        key[..chunk.len()].copy_from_slice(chunk);
        PageKey(key)
    });
    VariantIndex { fields, keys: keys.collect() }
}
