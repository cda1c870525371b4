//! One contract for both stores: purges, in one order for all.

use std::time::{Duration, Instant};

use anteroom_store::traits::*;
use anteroom_store::{Generation, LATER_MARKS, MARKS, PURGE_MARKS_MAX, PurgePosition, PurgesSince};
use anteroom_tests::DEADLINE;

use crate::store_contract::{Bench, contract, remote_contract};

contract!(
    purges_are_numbered_and_told_in_order,
    marks_of_another_era_are_not_taken,
    news_come_in_pieces,
    a_process_away_for_long_reads_the_whole_table,
    purges_of_much_take_no_more_room_than_others,
    a_purge_has_a_bound,
);

remote_contract!(
    purges_are_numbered_and_told_in_order,
    marks_of_another_era_are_not_taken,
    news_come_in_pieces,
    a_process_away_for_long_reads_the_whole_table,
    purges_of_much_take_no_more_room_than_others,
    a_purge_has_a_bound,
);

/// What a store that holds nothing yet tells a process that knows nothing.
async fn now(bench: &Bench) -> PurgePosition {
    match bench.store.purged_since(1, PurgePosition::default()).await.unwrap() {
        PurgesSince::All { upto, .. } => upto,
        PurgesSince::Since { .. } => panic!("no process is of the era 0"),
    }
}

async fn purge(bench: &Bench, known: PurgePosition, marks: &[u32]) -> PurgePosition {
    bench.store.purge(known, marks).await.unwrap().expect("that is its era")
}

async fn purges_are_numbered_and_told_in_order(bench: Bench) {
    let begin = now(&bench).await;
    assert_eq!(begin.at.number, 0);
    let nothing = PurgesSince::Since { purges: Vec::new(), upto: begin, more: false };
    assert_eq!(bench.store.purged_since(1, begin).await.unwrap(), nothing);
    let first = purge(&bench, begin, &[0, 7]).await;
    let upto = purge(&bench, begin, &[MARKS - 1]).await;
    assert_eq!((first.at.number, upto.at), (1, Generation { number: 2, ..begin.at }));
    let both = PurgesSince::Since { purges: vec![vec![0, 7], vec![MARKS - 1]], upto, more: false };
    assert_eq!(bench.store.purged_since(1, begin).await.unwrap(), both);
    let last = PurgesSince::Since { purges: vec![vec![MARKS - 1]], upto, more: false };
    assert_eq!(bench.store.purged_since(1, first).await.unwrap(), last);
    let none = PurgesSince::Since { purges: Vec::new(), upto, more: false };
    assert_eq!(bench.store.purged_since(1, upto).await.unwrap(), none);
}

async fn marks_of_another_era_are_not_taken(bench: Bench) {
    assert_eq!(bench.store.purge(PurgePosition::default(), &[1]).await.unwrap(), None);
    let begin = now(&bench).await;
    let other = PurgePosition { at: Generation { era: begin.at.era - 1, number: 0 }, nonce: 0 };
    assert_eq!(bench.store.purge(other, &[1]).await.unwrap(), None);
    assert_eq!(now(&bench).await, begin);
}

async fn news_come_in_pieces(bench: Bench) {
    let begin = now(&bench).await;
    for mark in 0..1_500 {
        purge(&bench, begin, &[mark]).await;
    }
    let (mut seen, mut marks) = (begin, Vec::new());
    loop {
        match bench.store.purged_since(1, seen).await.unwrap() {
            PurgesSince::Since { purges, upto, more } => {
                marks.extend(purges.concat());
                seen = upto;
                if !more {
                    break;
                }
            }
            PurgesSince::All { .. } => panic!("all of them are kept"),
        }
    }
    assert_eq!(marks, (0..1_500).collect::<Vec<_>>());
    assert_eq!(seen.at.number, 1_500);
}

async fn a_process_away_for_long_reads_the_whole_table(bench: Bench) {
    let begin = now(&bench).await;
    let later = [LATER_MARKS.start, LATER_MARKS.end - 1];
    let first = purge(&bench, begin, &[9, MARKS - 1, later[0], later[1]]).await;
    for _ in 0..10_000 {
        purge(&bench, begin, &[5]).await;
    }
    let table = [(5, 10_001), (9, 1), (MARKS - 1, 1), (later[0], 1), (later[1], 1)];
    let PurgesSince::All { upto, mut marks, .. } =
        bench.store.purged_since(1, begin).await.unwrap()
    else {
        panic!("the first is not kept one by one");
    };
    marks.sort_unstable();
    assert_eq!((upto.at.era, upto.at.number), (begin.at.era, 10_001));
    assert_eq!(marks, table);
    let PurgesSince::Since { purges, .. } = bench.store.purged_since(1, first).await.unwrap()
    else {
        panic!("all after the first are kept");
    };
    assert_eq!(purges.len(), 1_000);
}

async fn purges_of_much_take_no_more_room_than_others(bench: Bench) {
    let begin = now(&bench).await;
    let many: Vec<u32> = (MARKS - 1_000..MARKS).collect();
    let mut last = begin;
    for _ in 0..300 {
        last = purge(&bench, begin, &many).await;
    }
    let news = bench.store.purged_since(1, begin).await.unwrap();
    assert!(matches!(news, PurgesSince::All { .. }), "not all are kept one by one");
    let before = bench.store.purged_since(1, last).await.unwrap();
    assert_eq!(before, PurgesSince::Since { purges: Vec::new(), upto: last, more: false });
}

async fn a_purge_has_a_bound(bench: Bench) {
    let begin = now(&bench).await;
    let many: Vec<u32> = (0..).take(PURGE_MARKS_MAX).collect();
    assert_eq!(purge(&bench, begin, &many).await.at, Generation { number: 1, ..begin.at });
    bench.store.purge(begin, &[&many[..], &[0]].concat()).await.unwrap_err();
    for none in [MARKS, LATER_MARKS.start - 1, LATER_MARKS.end] {
        bench.store.purge(begin, &[none]).await.unwrap_err();
    }
    assert_eq!(now(&bench).await.at.number, 1);
}

mod redis_alone {
    use anteroom_cache::purge::scope::{Scope, url_scopes};
    use anteroom_cache::purge::{PurgeSnapshot, PurgeStanding, PurgeTable};
    use redis::aio::MultiplexedConnection;

    use super::*;

    async fn command<T: redis::FromRedisValue>(raw: &mut MultiplexedConnection, line: &str) -> T {
        let mut command = redis::Cmd::new();
        command.arg(line.split(' ').collect::<Vec<_>>());
        command.query_async(raw).await.unwrap()
    }

    /// Waits for what only time brings.
    async fn becomes_seen(bench: &Bench, purge: PurgePosition) {
        let until = Instant::now() + DEADLINE;
        while !bench.store.is_seen(purge.at).await.unwrap() {
            assert!(Instant::now() < until, "not seen: {purge:?}");
            for process_id in [1, 2] {
                bench.store.purged_since(process_id, purge).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_purge_is_seen_when_all_live_processes_have_asked_since() {
        let bench = Bench::redis().await;
        let begin = now(&bench).await;
        let first = purge(&bench, begin, &[1]).await;
        becomes_seen(&bench, first).await;
        let last = purge(&bench, first, &[1]).await;
        assert!(!bench.store.is_seen(last.at).await.unwrap());
        bench.store.purged_since(1, last).await.unwrap();
        assert!(!bench.store.is_seen(last.at).await.unwrap(), "2 has not seen it");
        bench.store.purged_since(2, last).await.unwrap();
        assert!(bench.store.is_seen(last.at).await.unwrap());
    }

    #[tokio::test]
    async fn a_purge_does_not_wait_for_an_ended_process() {
        let bench = Bench::redis().await;
        let begin = now(&bench).await;
        let first = purge(&bench, begin, &[1]).await;
        becomes_seen(&bench, first).await;
        let last = purge(&bench, first, &[1]).await;
        bench.store.purged_since(1, last).await.unwrap();
        bench.store.leave(2).await.unwrap();
        assert!(bench.store.is_seen(last.at).await.unwrap());
    }

    /// As where the clock of Redis went back by ten minutes, and a process has ended since.
    #[tokio::test]
    async fn a_purge_does_not_wait_for_a_process_seen_in_the_future() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        let begin = now(&bench).await;
        let first = purge(&bench, begin, &[1]).await;
        becomes_seen(&bench, first).await;
        let (now, _): (u64, u64) = redis::cmd("TIME").query_async(&mut raw).await.unwrap();
        let told = format!("{} 0 {}", begin.at.era, (now + 600) * 1_000);
        let add = async |raw: &mut MultiplexedConnection, who: String| {
            redis::cmd("HSET").arg("seen:").arg(who).arg(&told).exec_async(raw).await.unwrap();
        };
        add(&mut raw, "ghost".to_owned()).await;
        // A live process may have asked at such a time, too, and asks again.
        assert!(!bench.store.is_seen(first.at).await.unwrap());
        becomes_seen(&bench, first).await;
        // It makes no room for ever, either.
        for ghost in 0..20 {
            add(&mut raw, format!("ghost {ghost}")).await;
        }
        bench.store.purged_since(1, first).await.unwrap();
        let held: Vec<String> = command(&mut raw, "HKEYS seen:").await;
        // Two processes, and since when all are in there, and when it was last swept.
        assert!(held.len() <= 4, "{held:?}");
        becomes_seen(&bench, first).await;
    }

    /// Else the cost of a fleet's questions would be the square of its processes.
    #[tokio::test]
    async fn not_each_question_of_a_large_fleet_reads_what_all_have_asked() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        let begin = now(&bench).await;
        let began = Instant::now();
        for process_id in 0..400 {
            bench.store.purged_since(process_id % 40, begin).await.unwrap();
        }
        let stats: String = command(&mut raw, "INFO commandstats").await;
        let calls = stats.split("cmdstat_hgetall:calls=").nth(1).unwrap_or("0,");
        let calls: u64 = calls.split(',').next().unwrap().parse().unwrap();
        assert!(calls <= 2 + began.elapsed().as_secs(), "{calls} of 400 questions read all");
    }

    #[tokio::test]
    async fn the_bytes_of_purges_that_were_lost_do_not_count() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        let begin = now(&bench).await;
        let first = purge(&bench, begin, &[123_456; 1_000]).await;
        assert_eq!(command::<u64>(&mut raw, "HGET purges: held").await, 6_999);
        command::<()>(&mut raw, "DEL purging:").await;
        purge(&bench, first, &[7]).await;
        assert_eq!(command::<u64>(&mut raw, "HGET purges: held").await, 1);
    }

    /// A process that is unknown to a Redis that came back empty may show purged pages.
    #[tokio::test]
    async fn right_after_redis_lost_its_data_no_purge_counts_as_seen() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        for lose in ["FLUSHALL", "DEL seen:"] {
            let known = now(&bench).await;
            becomes_seen(&bench, purge(&bench, known, &[1]).await).await;
            // On a machine that stands still for a second it would be seen already.
            let is_seen = loop {
                let began = Instant::now();
                command::<()>(&mut raw, lose).await;
                let known = now(&bench).await;
                let last = purge(&bench, known, &[1]).await;
                bench.store.purged_since(1, last).await.unwrap();
                let is_seen = bench.store.is_seen(last.at).await.unwrap();
                if began.elapsed() < Duration::from_secs(1) {
                    break is_seen;
                }
            };
            assert!(!is_seen, "{lose}");
        }
    }

    #[tokio::test]
    async fn a_count_that_was_lost_or_set_back_begins_another_era() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        for lose in
            ["HSET purges: number 0", "DEL purges:", "HDEL purges: key", "DEL purged:", "FLUSHALL"]
        {
            for purges in [false, true] {
                let begin = now(&bench).await;
                let last = purge(&bench, begin, &[1]).await;
                command::<redis::Value>(&mut raw, lose).await;
                if purges {
                    assert_eq!(bench.store.purge(last, &[2]).await.unwrap(), None, "{lose}");
                }
                let PurgesSince::All { upto, marks, .. } =
                    bench.store.purged_since(1, last).await.unwrap()
                else {
                    panic!("{lose}");
                };
                assert_ne!(upto.at.era, begin.at.era, "{lose}");
                assert_eq!((upto.at.number, marks), (0, Vec::new()), "{lose}");
            }
        }
    }

    const KEYS: [&str; 3] = ["purges:", "purging:", "purged:"];

    async fn copy(raw: &mut MultiplexedConnection) -> Vec<Option<Vec<u8>>> {
        let mut copy = Vec::new();
        for key in KEYS {
            copy.push(redis::cmd("DUMP").arg(key).query_async(raw).await.unwrap());
        }
        copy
    }

    async fn restore(raw: &mut MultiplexedConnection, copy: &[Option<Vec<u8>>]) {
        for (key, held) in KEYS.iter().zip(copy) {
            redis::cmd("DEL").arg(key).exec_async(raw).await.unwrap();
            if let Some(held) = held {
                let mut command = redis::cmd("RESTORE");
                command.arg(key).arg(0).arg(held).exec_async(raw).await.unwrap();
            }
        }
    }

    const PAGE: Scope<'_> = Scope::Url { site: "shop.test", path: "/a", query: "" };

    fn page(purged: &PurgeTable) -> PurgeSnapshot {
        purged.now(&url_scopes("shop.test", "/a", ""))
    }

    async fn catch_up(purged: &PurgeTable, bench: &Bench) {
        while purged.keep_up(&bench.store).await.unwrap() {}
    }

    async fn ready(bench: &Bench) -> PurgeTable {
        let purged = PurgeTable::new(true);
        catch_up(&purged, bench).await;
        purged
    }

    /// As after a failover to a replica that lagged.
    #[tokio::test]
    async fn a_count_that_was_set_back_and_overtaken_hides_no_purge() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        let (one, other) = (ready(&bench).await, ready(&bench).await);
        // Some of what is lost was a purge, or the very first one was.
        for kept in [3, 0] {
            for again in [2, 1, 3] {
                for _ in 0..kept {
                    one.purge(&bench.store, &[Scope::Everything.purge_target(false)])
                        .await
                        .unwrap();
                }
                let replica = copy(&mut raw).await;
                for _ in 0..2 {
                    one.purge(&bench.store, &[Scope::Tag(b"x").purge_target(true)]).await.unwrap();
                }
                catch_up(&other, &bench).await;
                let before = page(&other);
                assert_eq!(other.standing(&before), PurgeStanding::Current);
                restore(&mut raw, &replica).await;
                let late = ready(&bench).await;
                for _ in 0..again {
                    late.purge(&bench.store, &[PAGE.purge_target(true)]).await.unwrap();
                }
                catch_up(&other, &bench).await;
                assert_eq!(
                    other.standing(&before),
                    PurgeStanding::Gone,
                    "{kept} kept, {again} again"
                );
                assert_eq!(other.standing(&page(&other)), PurgeStanding::Current);
                catch_up(&late, &bench).await;
                catch_up(&one, &bench).await;
            }
        }
    }

    /// Pages of an era that was left lie in memory still.
    #[tokio::test]
    async fn an_era_that_was_left_does_not_come_back() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        let (one, other) = (ready(&bench).await, ready(&bench).await);
        let before = page(&other);
        let replica = copy(&mut raw).await;
        one.purge(&bench.store, &[PAGE.purge_target(true)]).await.unwrap();
        catch_up(&other, &bench).await;
        assert_eq!(other.standing(&before), PurgeStanding::Gone);
        command::<()>(&mut raw, "FLUSHALL").await;
        catch_up(&other, &bench).await;
        restore(&mut raw, &replica).await;
        catch_up(&other, &bench).await;
        assert_eq!(other.standing(&before), PurgeStanding::Gone);
        assert_eq!(other.standing(&page(&other)), PurgeStanding::Current);
        // All agree on one in the end.
        for _ in 0..2 {
            catch_up(&one, &bench).await;
            catch_up(&other, &bench).await;
        }
        assert_eq!(page(&one).since, page(&other).since);
    }

    #[tokio::test]
    async fn a_process_with_unprovable_knowledge_begins_another_era() {
        let bench = Bench::redis().await;
        let mut raw = bench.raw().await;
        let begin = now(&bench).await;
        let early = purge(&bench, begin, &[1]).await;
        // As if there had been as many as are kept since, the last of them in the first one's place.
        command::<redis::Value>(&mut raw, "HSET purges: number 65537").await;
        let mut set = redis::cmd("SETRANGE");
        set.arg("purged:").arg((MARKS + 1) * 8).arg(&7_u64.to_be_bytes()[..]);
        set.exec_async(&mut raw).await.unwrap();
        let PurgesSince::All { upto, .. } = bench.store.purged_since(2, begin).await.unwrap()
        else {
            panic!("so many are not kept");
        };
        assert_eq!(upto, PurgePosition { at: Generation { number: 65_537, ..begin.at }, nonce: 7 });
        let known = PurgePosition { at: early.at, nonce: 7 };
        let PurgesSince::All { upto, .. } = bench.store.purged_since(2, known).await.unwrap()
        else {
            panic!("so many are not kept");
        };
        assert_ne!(upto.at.era, begin.at.era, "the nonce is a later purge's");
    }

    #[tokio::test]
    async fn a_full_memory_hides_no_purge() {
        let bench = Bench::redis().await;
        let begin = now(&bench).await;
        let first = purge(&bench, begin, &[3]).await;
        let mut raw = bench.raw().await;
        command::<redis::Value>(&mut raw, "CONFIG SET maxmemory 1").await;
        let refused: redis::RedisResult<()> =
            redis::cmd("SET").arg(&["a", "b"]).query_async(&mut raw).await;
        assert!(refused.unwrap_err().to_string().contains("OOM"));
        let upto = purge(&bench, begin, &[4]).await;
        let news = PurgesSince::Since { purges: vec![vec![4]], upto, more: false };
        assert_eq!(bench.store.purged_since(1, first).await.unwrap(), news);
        becomes_seen(&bench, upto).await;
        for lose in ["DEL purges:", "FLUSHALL"] {
            command::<redis::Value>(&mut raw, lose).await;
            let begin = now(&bench).await;
            let first = purge(&bench, begin, &[MARKS - 1]).await;
            assert_eq!(first.at.number, 1, "{lose}");
        }
    }
}
