//! The roster as threads use it: places taken and given back, servers that go and come.

use futures_util::FutureExt;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn rules() -> Rules {
    Rules {
        balance: Balance::RoundRobin,
        patience: Patience {
            fails: 3,
            fail_window: 30 * SECOND,
            rest: 10 * SECOND,
            slow_start: Duration::ZERO,
            healthy_after: 1,
            unhealthy_after: 1,
        },
        retry_percent: 10,
        max_busy: None,
        max_waiting: 2,
        wait_timeout: 5 * SECOND,
    }
}

fn roster(servers: usize, rules: Rules) -> Arc<Roster> {
    let servers = (0..servers).map(|number| (format!("s{number}:1"), 1)).collect();
    Roster::new("origin", servers, rules)
}

const WISH: Wish<'static> = Wish { session: None, is_repeatable: true, not: None, only: None };

fn now_placed(roster: &Arc<Roster>, wish: &Wish<'_>) -> Result<Place, NoPlace> {
    roster.place(wish).now_or_never().expect("nobody has to wait")
}

fn server(roster: &Arc<Roster>, wish: &Wish<'_>) -> usize {
    let mut place = now_placed(roster, wish).expect("a server");
    place.judge(None);
    place.server()
}

/// Fails at a server until it rests, or as often as would make it.
fn fail(roster: &Arc<Roster>, server: usize, failure: Failure) {
    for _ in 0..3 {
        let wish = Wish { only: Some(server), ..WISH };
        now_placed(roster, &wish).expect("a place").judge(Some(failure));
    }
}

fn up(roster: &Arc<Roster>) -> Vec<bool> {
    roster.standings().into_iter().map(|(_, is_up)| is_up).collect()
}

fn busy(roster: &Arc<Roster>) -> Vec<u32> {
    roster.lock().busy.clone()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_rests_and_comes_back_by_a_trial() {
    let roster = roster(2, rules());
    fail(&roster, 0, Failure::Unreachable);
    assert_eq!(up(&roster), [false, true]);
    assert!((0..9).all(|_| server(&roster, &WISH) == 1));
    tokio::time::advance(10 * SECOND).await;

    let mut trial = now_placed(&roster, &WISH).unwrap();
    assert_eq!(trial.server(), 0);
    assert_eq!(server(&roster, &WISH), 1, "one request at a time tries it");
    trial.judge(None);
    drop(trial);

    assert_eq!(up(&roster), [true, true]);
    assert_eq!(busy(&roster), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_given_up_leaves_the_next_one_to_try() {
    let roster = roster(2, rules());
    fail(&roster, 0, Failure::Unreachable);
    tokio::time::advance(10 * SECOND).await;
    drop(now_placed(&roster, &WISH).unwrap());
    assert_eq!(now_placed(&roster, &WISH).unwrap().server(), 0);
}

#[test]
fn an_upload_that_tries_the_last_server_leaves_it_to_others_too() {
    let roster = roster(2, rules());
    (0..2).for_each(|server| fail(&roster, server, Failure::Unreachable));
    let upload = Wish { is_repeatable: false, ..WISH };
    let _dripped = [now_placed(&roster, &upload).unwrap(), now_placed(&roster, &upload).unwrap()];
    assert_eq!(now_placed(&roster, &upload).unwrap_err(), NoPlace::Resting);
    let back = server(&roster, &WISH);
    assert!(up(&roster)[back]);
}

#[test]
fn what_a_request_can_bring_about_takes_half_of_the_servers_out_at_most() {
    let four = roster(4, rules());
    (0..4).for_each(|server| fail(&four, server, Failure::Unanswered));
    assert_eq!(up(&four), [false, false, true, true]);
    (0..4).for_each(|server| fail(&four, server, Failure::Unreachable));
    assert_eq!(up(&four), [false; 4]);
}

#[test]
fn one_server_alone_never_rests() {
    let one = roster(1, Rules { max_busy: Some(9), ..rules() });
    fail(&one, 0, Failure::Unreachable);
    one.checked(0, false);
    assert_eq!(server(&one, &WISH), 0);
}

#[test]
fn where_no_server_is_up_one_request_at_a_time_tries_each_and_others_are_told() {
    let roster = roster(2, rules());
    (0..2).for_each(|server| fail(&roster, server, Failure::Unreachable));

    let mut one = now_placed(&roster, &WISH).unwrap();
    let mut other = now_placed(&roster, &WISH).unwrap();
    assert_ne!(one.server(), other.server());
    assert_eq!(now_placed(&roster, &WISH).unwrap_err(), NoPlace::Resting);
    let again = Wish { not: Some(one.server()), ..WISH };
    assert_eq!(now_placed(&roster, &again).unwrap_err(), NoPlace::Resting);
    one.judge(Some(Failure::Unreachable));
    other.judge(None);
    let back = other.server();
    drop((one, other));

    assert_eq!(up(&roster).iter().filter(|is_up| **is_up).count(), 1);
    // The other may be back, too: nobody waits for the end of its rest.
    let mut trial = now_placed(&roster, &WISH).unwrap();
    assert_ne!(trial.server(), back);
    trial.judge(None);
    drop(trial);
    assert_eq!(up(&roster), [true, true]);
}

#[test]
fn checks_take_a_server_out_and_bring_it_back() {
    let roster = roster(2, rules());
    roster.checked(1, false);
    assert!((0..9).all(|_| server(&roster, &WISH) == 0));
    roster.checked(1, true);
    assert!((0..2).any(|_| server(&roster, &WISH) == 1));
}

#[test]
fn where_checks_take_all_out_they_are_not_believed() {
    for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::Sticky] {
        let roster = roster(3, Rules { balance, ..rules() });
        (0..3).for_each(|server| roster.checked(server, false));
        assert_eq!(up(&roster), [false; 3]);
        let wish = Wish { session: Some("a-token"), ..WISH };
        let places: Vec<_> = (0..9).map(|_| now_placed(&roster, &wish).unwrap()).collect();
        assert_eq!(places.len(), 9, "no trial holds up the others");
        drop(places);
        // Those that fail requests, too, are out.
        fail(&roster, 0, Failure::Unreachable);
        assert!((0..9).all(|_| server(&roster, &wish) != 0));
        // One that is well is enough.
        roster.checked(2, true);
        assert!((0..9).all(|_| server(&roster, &wish) == 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_roster_learns_how_servers_stand_by_their_names() {
    let old = roster(2, rules());
    fail(&old, 1, Failure::Unreachable);
    tokio::time::advance(10 * SECOND).await;
    let _trial = now_placed(&old, &WISH).unwrap();
    let servers = vec![("s1:1".to_owned(), 1), ("s7:1".to_owned(), 1)];
    let new = Roster::new("origin", servers, rules());
    new.learn_from(&old);
    assert_eq!(up(&new), [false, true]);
    assert_eq!(server(&new, &WISH), 0, "whoever tried it before is not waited for");
    assert_eq!(up(&new), [true, true]);
}

#[test]
fn a_session_stays_and_moves_only_while_its_server_is_out() {
    let roster = roster(3, Rules { balance: Balance::Sticky, ..rules() });
    let session =
        |number: usize| ["a-token", "b-token", "c-token", "d-token", "e-token"][number % 5];
    let wish = |number| Wish { session: Some(session(number)), ..WISH };
    let homes: Vec<_> = (0..5).map(|number| server(&roster, &wish(number))).collect();
    assert!((0..50).all(|number| server(&roster, &wish(number)) == homes[number % 5]));

    roster.checked(homes[0], false);
    for number in 0..50 {
        let now = server(&roster, &wish(number));
        assert_eq!(now == homes[number % 5], homes[number % 5] != homes[0]);
    }
    roster.checked(homes[0], true);
    assert!((0..50).all(|number| server(&roster, &wish(number)) == homes[number % 5]));
    let mut strangers = [0; 3];
    (0..9).for_each(|_| strangers[server(&roster, &WISH)] += 1);
    assert_eq!(strangers, [3, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_room_waits_for_a_place_and_then_gives_up() {
    let roster = roster(1, Rules { max_busy: Some(1), ..rules() });
    let held = now_placed(&roster, &WISH).unwrap();
    let mut first = Box::pin(roster.place(&WISH));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(roster.place(&WISH));
    assert!((&mut second).now_or_never().is_none());
    assert_eq!(roster.waiting(), 2);
    let third = roster.place(&WISH).now_or_never();
    assert_eq!(third.expect("it does not wait").unwrap_err(), NoPlace::Crowded);

    drop(held);
    let place = first.await.expect("it was first");
    assert_eq!(busy(&roster), [1]);
    assert_eq!(second.await.unwrap_err(), NoPlace::Crowded);
    assert_eq!(roster.waiting(), 0);
    drop(place);
    assert_eq!(busy(&roster), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_place_for_one_who_has_left_goes_to_the_next() {
    let roster = roster(1, Rules { max_busy: Some(1), ..rules() });
    let held = now_placed(&roster, &WISH).unwrap();
    let mut gone = Box::pin(roster.place(&WISH));
    assert!((&mut gone).now_or_never().is_none());
    let mut next = Box::pin(roster.place(&WISH));
    assert!((&mut next).now_or_never().is_none());

    drop(held);
    // It has been told, and never looked.
    drop(gone);
    assert!(next.now_or_never().is_some_and(|place| place.is_ok()));
    assert_eq!(busy(&roster), [0]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_his_server_goes_to_another_when_it_is_out() {
    let rules = Rules { balance: Balance::Sticky, max_busy: Some(1), ..rules() };
    let roster = roster(2, rules);
    let wish = Wish { session: Some("a-token"), ..WISH };
    let held = now_placed(&roster, &wish).unwrap();
    let mut waiting = Box::pin(roster.place(&wish));
    assert!((&mut waiting).now_or_never().is_none());

    roster.checked(held.server(), false);

    assert_ne!(waiting.await.expect("another").server(), held.server());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_back_takes_those_who_wait() {
    let roster = roster(2, Rules { max_busy: Some(1), ..rules() });
    roster.checked(1, false);
    let held = now_placed(&roster, &WISH).unwrap();
    let mut waiting = Box::pin(roster.place(&WISH));
    assert!((&mut waiting).now_or_never().is_none());
    roster.checked(1, true);
    assert_eq!(waiting.await.expect("a place").server(), 1);
    drop(held);
    assert_eq!(busy(&roster), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_any_server_is_told_when_the_last_one_is_out() {
    let roster = roster(2, Rules { max_busy: Some(2), ..rules() });
    let mut held: Vec<_> = (0..4).map(|_| now_placed(&roster, &WISH).unwrap()).collect();
    let (any, not) = (WISH, Wish { not: Some(0), ..WISH });
    let mut waiting = [Box::pin(roster.place(&any)), Box::pin(roster.place(&not))];
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    for place in &mut held {
        // What each has failed counts for its server, three times in all.
        place.judge(Some(Failure::Unreachable));
        place.judge(Some(Failure::Unreachable));
    }
    assert_eq!(up(&roster), [false, false]);
    let [any, not] = waiting;
    // He tries one; who was failed already has nothing to wait for.
    assert!(any.now_or_never().expect("it does not wait").is_ok());
    assert_eq!(not.now_or_never().expect("nor this").unwrap_err(), NoPlace::Resting);
    assert_eq!(roster.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_servers_work_on_is_known_under_other_rules_until_it_is_over() {
    let bound = |max| Rules { max_busy: Some(max), ..rules() };
    let old = roster(1, bound(2));
    let (one, other) = (now_placed(&old, &WISH).unwrap(), now_placed(&old, &WISH).unwrap());
    let servers = vec![("s7:1".to_owned(), 1), ("s0:1".to_owned(), 1)];
    let new = Roster::new("origin", servers, bound(1));
    new.learn_from(&old);
    let newest = roster(1, bound(1));
    newest.learn_from(&new);
    assert_eq!((busy(&new), busy(&newest)), (vec![0, 2], vec![2]));
    let mut waiting = Box::pin(newest.place(&WISH));
    assert!((&mut waiting).now_or_never().is_none());

    drop(one);
    assert!((&mut waiting).now_or_never().is_none(), "one is over, and one may be at work");
    let late = now_placed(&old, &WISH).unwrap();
    assert_eq!((busy(&old), busy(&newest)), (vec![2], vec![2]));
    drop(late);
    drop(other);
    let place = waiting.now_or_never().expect("it does not wait").unwrap();
    assert_eq!((busy(&old), busy(&new), busy(&newest)), (vec![0], vec![0, 0], vec![1]));
    drop(place);
    assert_eq!(busy(&newest), [0]);
}
