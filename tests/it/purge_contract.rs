//! One contract for both stores: purges, in one order for all.

use anteroom::store::{Generation, MARKS, News, PURGE_MARKS_MAX, PurgeStore as _};

use crate::store_contract::{Bench, contract};

contract!(
    purges_are_numbered_and_told_in_order,
    news_come_in_pieces,
    whoever_was_away_for_long_reads_the_whole_table,
    a_purge_has_a_bound,
);

async fn now(bench: &Bench) -> Generation {
    match bench.store.purged_since(1, Generation::default()).await.unwrap() {
        News::All { upto, .. } => upto,
        News::Since { .. } => panic!("nobody is of the era 0"),
    }
}

async fn purges_are_numbered_and_told_in_order(bench: Bench) {
    let begin = now(&bench).await;
    assert_eq!(begin.number, 0);
    let nothing = News::Since { purges: Vec::new(), upto: begin, more: false };
    assert_eq!(bench.store.purged_since(1, begin).await.unwrap(), nothing);
    for marks in [vec![0, 7], vec![MARKS - 1]] {
        bench.store.purge(&marks).await.unwrap();
    }
    let upto = Generation { number: 2, ..begin };
    let both = News::Since { purges: vec![vec![0, 7], vec![MARKS - 1]], upto, more: false };
    assert_eq!(bench.store.purged_since(1, begin).await.unwrap(), both);
    let first = Generation { number: 1, ..begin };
    let last = News::Since { purges: vec![vec![MARKS - 1]], upto, more: false };
    assert_eq!(bench.store.purged_since(1, first).await.unwrap(), last);
}

async fn news_come_in_pieces(bench: Bench) {
    let begin = now(&bench).await;
    for mark in 0..1_500 {
        bench.store.purge(&[mark]).await.unwrap();
    }
    let (mut seen, mut marks) = (begin, Vec::new());
    loop {
        match bench.store.purged_since(1, seen).await.unwrap() {
            News::Since { purges, upto, more } => {
                marks.extend(purges.concat());
                seen = upto;
                if !more {
                    break;
                }
            }
            News::All { .. } => panic!("all of them are kept"),
        }
    }
    assert_eq!(marks, (0..1_500).collect::<Vec<_>>());
    assert_eq!(seen.number, 1_500);
}

async fn whoever_was_away_for_long_reads_the_whole_table(bench: Bench) {
    let begin = now(&bench).await;
    bench.store.purge(&[9, MARKS - 1]).await.unwrap();
    for _ in 0..10_000 {
        bench.store.purge(&[5]).await.unwrap();
    }
    let News::All { upto, mut marks } = bench.store.purged_since(1, begin).await.unwrap() else {
        panic!("the first is not kept one by one");
    };
    marks.sort_unstable();
    assert_eq!(upto, Generation { number: 10_001, ..begin });
    assert_eq!(marks, [(5, 10_001), (9, 1), (MARKS - 1, 1)]);
}

async fn a_purge_has_a_bound(bench: Bench) {
    let begin = now(&bench).await;
    let many: Vec<u32> = (0..).take(PURGE_MARKS_MAX).collect();
    assert_eq!(bench.store.purge(&many).await.unwrap(), Generation { number: 1, ..begin });
    bench.store.purge(&[&many[..], &[0]].concat()).await.unwrap_err();
    assert_eq!(now(&bench).await.number, 1);
}

mod redis_alone {
    use super::*;

    #[tokio::test]
    async fn a_purge_is_seen_when_all_who_live_have_asked_behind_it() {
        let bench = Bench::redis().await;
        let begin = now(&bench).await;
        for who in [1, 2] {
            bench.store.purged_since(who, begin).await.unwrap();
        }
        let purge = bench.store.purge(&[1]).await.unwrap();
        assert!(!bench.store.is_seen(purge).await.unwrap());
        bench.store.purged_since(1, purge).await.unwrap();
        assert!(!bench.store.is_seen(purge).await.unwrap(), "2 has not seen it");
        bench.store.purged_since(2, purge).await.unwrap();
        assert!(bench.store.is_seen(purge).await.unwrap());
    }

    #[tokio::test]
    async fn a_count_that_was_lost_or_set_back_begins_another_era() {
        let bench = Bench::redis().await;
        let begin = now(&bench).await;
        let last = bench.store.purge(&[1]).await.unwrap();
        let mut raw = bench.raw().await;
        for lose in [&["HSET", "purges:", "number", "0"][..], &["DEL", "purges:"], &["FLUSHALL"]] {
            let mut command = redis::cmd(lose[0]);
            command.arg(&lose[1..]).exec_async(&mut raw).await.unwrap();
            let News::All { upto, marks } = bench.store.purged_since(1, last).await.unwrap() else {
                panic!("{lose:?}");
            };
            assert_ne!(upto.era, begin.era);
            assert_eq!((upto.number, marks), (0, Vec::new()));
            // The next loss is found by whoever has seen more.
            raw_restore(&mut raw, last).await;
        }
    }

    async fn raw_restore(raw: &mut redis::aio::MultiplexedConnection, last: Generation) {
        let era = last.era.to_string();
        for words in [
            &["HSET", "purges:", "era", &era, "number", "1"][..],
            &["RPUSH", "purging:", "1"],
            &["SETBIT", "purged:", "100", "1"],
        ] {
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]).exec_async(raw).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_full_memory_hides_no_purge() {
        let bench = Bench::redis().await;
        let begin = now(&bench).await;
        bench.store.purge(&[3]).await.unwrap();
        let mut raw = bench.raw().await;
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec_async(&mut raw).await.unwrap();
        let News::Since { purges, .. } = bench.store.purged_since(1, begin).await.unwrap() else {
            panic!("it is kept");
        };
        assert_eq!(purges, [[3]]);
        assert!(bench.store.purge(&[4]).await.unwrap_err().is_refusal());
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).exec_async(&mut raw).await.unwrap();
        assert_eq!(now(&bench).await.number, 1);
    }
}
