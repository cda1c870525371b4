//! The server list as threads use it: places taken and returned, servers that go down and come back.

use anteroom_policy::priority::RouteLimit;
use futures_util::FutureExt;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn rules() -> ServerRules {
    ServerRules {
        balance: Balance::RoundRobin,
        failure_rules: FailureRules {
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
        overload: Overload::Off,
        patience: 60 * SECOND,
        strangers: StrangerLimits::default(),
    }
}

pub(super) fn server_list(servers: usize, rules: ServerRules) -> Arc<ServerList> {
    let servers = (0..servers).map(|number| (format!("s{number}:1"), 1)).collect();
    ServerList::new("origin", servers, rules)
}

const STRANGER: Requester<'static> = Requester {
    session: None,
    priority: Priority { class: RequestClass::New, flow: 1, page_kind: 1, ..Priority::BACKGROUND },
    origin_use: None,
};

const WISH: ServerWanted<'static> = ServerWanted {
    requester: STRANGER,
    shared: None,
    is_repeatable: true,
    upload: Upload::None,
    not: None,
    only: None,
};

fn of_session(session: &str) -> ServerWanted<'_> {
    ServerWanted { requester: Requester { session: Some(session), ..STRANGER }, ..WISH }
}

fn now_placed(
    server_list: &Arc<ServerList>,
    wanted: &ServerWanted<'_>,
) -> Result<ServerSlot, NoServer> {
    server_list.slot(wanted).now_or_never().expect("no request has to wait")
}

fn server(server_list: &Arc<ServerList>, wanted: &ServerWanted<'_>) -> usize {
    let mut slot = now_placed(server_list, wanted).expect("a server");
    slot.judge(None);
    slot.server()
}

/// Fails at a server until it rests, or as often as would normally make it rest.
fn fail(server_list: &Arc<ServerList>, server: usize, failure: ServerFailure) {
    for _ in 0..3 {
        let wanted = ServerWanted { only: Some(server), ..WISH };
        now_placed(server_list, &wanted).expect("a slot").judge(Some(failure));
    }
}

fn up(server_list: &Arc<ServerList>) -> Vec<bool> {
    server_list.standings().into_iter().map(|one| one.is_up).collect()
}

fn busy(server_list: &Arc<ServerList>) -> Vec<u32> {
    server_list.lock().places.iter().map(Places::taken).collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_rests_and_comes_back_by_a_trial() {
    let server_list = server_list(2, rules());
    fail(&server_list, 0, ServerFailure::Unreachable);
    assert_eq!(up(&server_list), [false, true]);
    assert!((0..9).all(|_| server(&server_list, &WISH) == 1));
    tokio::time::advance(10 * SECOND).await;

    let mut trial = now_placed(&server_list, &WISH).unwrap();
    assert_eq!(trial.server(), 0);
    assert_eq!(server(&server_list, &WISH), 1, "one request at a time tries it");
    trial.judge(None);
    drop(trial);

    assert_eq!(up(&server_list), [true, true]);
    assert_eq!(busy(&server_list), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_given_up_leaves_the_next_one_to_try() {
    let server_list = server_list(2, rules());
    fail(&server_list, 0, ServerFailure::Unreachable);
    tokio::time::advance(10 * SECOND).await;
    drop(now_placed(&server_list, &WISH).unwrap());
    assert_eq!(now_placed(&server_list, &WISH).unwrap().server(), 0);
}

#[test]
fn an_upload_that_tries_the_last_server_leaves_it_to_others_too() {
    let server_list = server_list(2, rules());
    (0..2).for_each(|server| fail(&server_list, server, ServerFailure::Unreachable));
    let upload = ServerWanted { is_repeatable: false, ..WISH };
    let _dripped =
        [now_placed(&server_list, &upload).unwrap(), now_placed(&server_list, &upload).unwrap()];
    assert_eq!(now_placed(&server_list, &upload).unwrap_err(), NoServer::Resting);
    let back = server(&server_list, &WISH);
    assert!(up(&server_list)[back]);
}

#[test]
fn failures_of_requests_take_out_at_most_half_of_the_servers() {
    let four = server_list(4, rules());
    (0..4).for_each(|server| fail(&four, server, ServerFailure::Unanswered));
    assert_eq!(up(&four), [false, false, true, true]);
    (0..4).for_each(|server| fail(&four, server, ServerFailure::Unreachable));
    assert_eq!(up(&four), [false; 4]);
}

#[test]
fn one_server_alone_never_rests() {
    let one = server_list(1, ServerRules { max_busy: Some(9), ..rules() });
    fail(&one, 0, ServerFailure::Unreachable);
    one.checked(0, false);
    assert_eq!(server(&one, &WISH), 0);
}

#[test]
fn where_no_server_is_up_one_request_at_a_time_tries_each_and_others_are_told() {
    let server_list = server_list(2, rules());
    (0..2).for_each(|server| fail(&server_list, server, ServerFailure::Unreachable));

    let mut one = now_placed(&server_list, &WISH).unwrap();
    let mut other = now_placed(&server_list, &WISH).unwrap();
    assert_ne!(one.server(), other.server());
    assert_eq!(now_placed(&server_list, &WISH).unwrap_err(), NoServer::Resting);
    let again = ServerWanted { not: Some(one.server()), ..WISH };
    assert_eq!(now_placed(&server_list, &again).unwrap_err(), NoServer::Resting);
    one.judge(Some(ServerFailure::Unreachable));
    other.judge(None);
    let back = other.server();
    drop((one, other));

    assert_eq!(up(&server_list).iter().filter(|is_up| **is_up).count(), 1);
    // The other may be back, too: its rest is cut short.
    let mut trial = now_placed(&server_list, &WISH).unwrap();
    assert_ne!(trial.server(), back);
    trial.judge(None);
    drop(trial);
    assert_eq!(up(&server_list), [true, true]);
}

#[test]
fn checks_take_a_server_out_and_bring_it_back() {
    let server_list = server_list(2, rules());
    server_list.checked(1, false);
    assert!((0..9).all(|_| server(&server_list, &WISH) == 0));
    server_list.checked(1, true);
    assert!((0..2).any(|_| server(&server_list, &WISH) == 1));
}

#[test]
fn where_checks_take_all_out_they_are_not_believed() {
    for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::Sticky] {
        let server_list = server_list(3, ServerRules { balance, ..rules() });
        (0..3).for_each(|server| server_list.checked(server, false));
        assert_eq!(up(&server_list), [false; 3]);
        let wanted = of_session("a-token");
        let places: Vec<_> = (0..9).map(|_| now_placed(&server_list, &wanted).unwrap()).collect();
        assert_eq!(places.len(), 9, "no trial holds up the others");
        drop(places);
        // Servers that fail requests as well are out.
        fail(&server_list, 0, ServerFailure::Unreachable);
        assert!((0..9).all(|_| server(&server_list, &wanted) != 0));
        // One healthy server is enough.
        server_list.checked(2, true);
        assert!((0..9).all(|_| server(&server_list, &wanted) == 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_roster_learns_how_servers_stand_by_their_names() {
    let old = server_list(2, rules());
    fail(&old, 1, ServerFailure::Unreachable);
    tokio::time::advance(10 * SECOND).await;
    let _trial = now_placed(&old, &WISH).unwrap();
    let servers = vec![("s1:1".to_owned(), 1), ("s7:1".to_owned(), 1)];
    let new = ServerList::new("origin", servers, rules());
    new.learn_from(&old);
    assert_eq!(up(&new), [false, true]);
    assert_eq!(server(&new, &WISH), 0, "an earlier trial is not waited for");
    assert_eq!(up(&new), [true, true]);
}

#[test]
fn a_session_stays_and_moves_only_while_its_server_is_out() {
    let server_list = server_list(3, ServerRules { balance: Balance::Sticky, ..rules() });
    let session =
        |number: usize| ["a-token", "b-token", "c-token", "d-token", "e-token"][number % 5];
    let wanted = |number| of_session(session(number));
    let homes: Vec<_> = (0..5).map(|number| server(&server_list, &wanted(number))).collect();
    assert!((0..50).all(|number| server(&server_list, &wanted(number)) == homes[number % 5]));

    server_list.checked(homes[0], false);
    for number in 0..50 {
        let now = server(&server_list, &wanted(number));
        assert_eq!(now == homes[number % 5], homes[number % 5] != homes[0]);
    }
    server_list.checked(homes[0], true);
    assert!((0..50).all(|number| server(&server_list, &wanted(number)) == homes[number % 5]));
    let mut strangers = [0; 3];
    (0..9).for_each(|_| strangers[server(&server_list, &WISH)] += 1);
    assert_eq!(strangers, [3, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_slot_waits_and_then_gives_up() {
    let server_list = server_list(1, ServerRules { max_busy: Some(1), ..rules() });
    let held = now_placed(&server_list, &WISH).unwrap();
    let mut first = Box::pin(server_list.slot(&WISH));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(server_list.slot(&WISH));
    assert!((&mut second).now_or_never().is_none());
    assert_eq!(server_list.waiting(), 2);
    let third = server_list.slot(&WISH).now_or_never();
    assert_eq!(third.expect("it does not wait").unwrap_err(), NoServer::Crowded);

    drop(held);
    let slot = first.await.expect("it was first");
    assert_eq!(busy(&server_list), [1]);
    assert_eq!(second.await.unwrap_err(), NoServer::Crowded);
    assert_eq!(server_list.waiting(), 0);
    drop(slot);
    assert_eq!(busy(&server_list), [0]);
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_departed_waiter_goes_to_the_next() {
    let server_list = server_list(1, ServerRules { max_busy: Some(1), ..rules() });
    let held = now_placed(&server_list, &WISH).unwrap();
    let mut gone = Box::pin(server_list.slot(&WISH));
    assert!((&mut gone).now_or_never().is_none());
    let mut next = Box::pin(server_list.slot(&WISH));
    assert!((&mut next).now_or_never().is_none());

    drop(held);
    // Its slot was sent, but never received.
    drop(gone);
    assert!(next.now_or_never().is_some_and(|slot| slot.is_ok()));
    assert_eq!(busy(&server_list), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_sticky_waiter_goes_to_another_server_after_a_failure() {
    let rules = ServerRules { balance: Balance::Sticky, max_busy: Some(1), ..rules() };
    let server_list = server_list(2, rules);
    let wanted = of_session("a-token");
    let held = now_placed(&server_list, &wanted).unwrap();
    let mut waiting = Box::pin(server_list.slot(&wanted));
    assert!((&mut waiting).now_or_never().is_none());

    server_list.checked(held.server(), false);

    assert_ne!(waiting.await.expect("another").server(), held.server());
}

#[tokio::test(start_paused = true)]
async fn a_recovered_server_takes_waiting_requests() {
    let server_list = server_list(2, ServerRules { max_busy: Some(1), ..rules() });
    server_list.checked(1, false);
    let held = now_placed(&server_list, &WISH).unwrap();
    let mut waiting = Box::pin(server_list.slot(&WISH));
    assert!((&mut waiting).now_or_never().is_none());
    server_list.checked(1, true);
    assert_eq!(waiting.await.expect("a slot").server(), 1);
    drop(held);
    assert_eq!(busy(&server_list), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_released_when_the_last_server_goes_out() {
    let server_list = server_list(2, ServerRules { max_busy: Some(2), ..rules() });
    let mut held: Vec<_> = (0..4).map(|_| now_placed(&server_list, &WISH).unwrap()).collect();
    let (any, not) = (WISH, ServerWanted { not: Some(0), ..WISH });
    let mut waiting = [Box::pin(server_list.slot(&any)), Box::pin(server_list.slot(&not))];
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    for slot in &mut held {
        // Each failure counts for its server, three times in all.
        slot.judge(Some(ServerFailure::Unreachable));
        slot.judge(Some(ServerFailure::Unreachable));
    }
    assert_eq!(up(&server_list), [false, false]);
    let [any, not] = waiting;
    // One request tries a server; one that a server has already failed has nothing to wait for.
    assert!(any.now_or_never().expect("it does not wait").is_ok());
    assert_eq!(not.now_or_never().expect("nor this").unwrap_err(), NoServer::Resting);
    assert_eq!(server_list.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn busy_slots_are_carried_over_to_new_rules_until_they_end() {
    let bound = |max| ServerRules { max_busy: Some(max), ..rules() };
    let old = server_list(1, bound(2));
    let (one, other) = (now_placed(&old, &WISH).unwrap(), now_placed(&old, &WISH).unwrap());
    let servers = vec![("s7:1".to_owned(), 1), ("s0:1".to_owned(), 1)];
    let new = ServerList::new("origin", servers, bound(1));
    new.learn_from(&old);
    let newest = server_list(1, bound(1));
    newest.learn_from(&new);
    assert_eq!((busy(&new), busy(&newest)), (vec![0, 2], vec![2]));
    let mut waiting = Box::pin(newest.slot(&WISH));
    assert!((&mut waiting).now_or_never().is_none());

    drop(one);
    assert!((&mut waiting).now_or_never().is_none(), "one is over, and one may be at work");
    let late = now_placed(&old, &WISH).unwrap();
    assert_eq!((busy(&old), busy(&newest)), (vec![2], vec![2]));
    drop(late);
    drop(other);
    let slot = waiting.now_or_never().expect("it does not wait").unwrap();
    assert_eq!((busy(&old), busy(&new), busy(&newest)), (vec![0], vec![0, 0], vec![1]));
    drop(slot);
    assert_eq!(busy(&newest), [0]);
}

#[tokio::test(start_paused = true)]
async fn the_requests_of_a_user_that_a_server_takes_with_it_do_not_count_against_that_user() {
    let server_list = server_list(2, ServerRules { max_busy: Some(1), max_waiting: 9, ..rules() });
    let priority = Priority { class: RequestClass::Known, flow: 7, ..STRANGER.priority };
    let known = ServerWanted { requester: Requester { priority, ..STRANGER }, ..WISH };
    let _held =
        [now_placed(&server_list, &WISH).unwrap(), now_placed(&server_list, &WISH).unwrap()];
    let only = ServerWanted { only: Some(1), ..known };
    let mut waiting = Box::pin(server_list.slot(&only));
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!(server_list.lock().users.of(7), 1);
    server_list.checked(1, false);
    drop(waiting);
    assert_eq!(server_list.lock().users.of(7), 0, "it waits no more");
}

/// The servers of an app that strangers may use within `strangers`.
fn limited(servers: usize, strangers: StrangerLimits) -> Arc<ServerList> {
    server_list(servers, ServerRules { strangers, max_waiting: 99, ..rules() })
}

fn of_network(flow: u64) -> ServerWanted<'static> {
    let priority = Priority { flow, ..STRANGER.priority };
    ServerWanted { requester: Requester { priority, ..STRANGER }, ..WISH }
}

fn of_user(flow: u64) -> ServerWanted<'static> {
    let priority = Priority { class: RequestClass::Known, flow, ..STRANGER.priority };
    ServerWanted { requester: Requester { priority, ..STRANGER }, ..WISH }
}

#[tokio::test(start_paused = true)]
async fn strangers_wait_at_their_limit_and_users_do_not() {
    let limits = StrangerLimits { max: Some(2), ..StrangerLimits::default() };
    let server_list = limited(1, limits);
    assert!(!server_list.is_plain());
    let mut first = now_placed(&server_list, &of_network(1)).unwrap();
    let _second = now_placed(&server_list, &of_network(2)).unwrap();
    let (third, fourth) = (of_network(3), of_network(4));
    let mut waiting = Box::pin(server_list.slot(&third));
    assert!((&mut waiting).now_or_never().is_none());
    let users: Vec<_> = (0..40).map(|_| now_placed(&server_list, &of_user(7)).unwrap()).collect();
    assert_eq!(users.len(), 40, "no limit of strangers counts them, however many they are");
    assert!(server_list.background_slot().is_some(), "the server has room");

    first.judge(None);
    let _third = waiting.now_or_never().expect("the head of an answer has come").unwrap();
    let mut waiting = Box::pin(server_list.slot(&fourth));
    assert!((&mut waiting).now_or_never().is_none());
    drop(first);
    assert!((&mut waiting).now_or_never().is_none(), "its place was given back before");
}

#[test]
fn a_place_is_given_back_without_a_runtime() {
    let server_list = server_list(1, ServerRules { max_busy: Some(1), ..rules() });
    for is_answered in [true, false] {
        let mut slot = now_placed(&server_list, &WISH).unwrap();
        slot.sent();
        if is_answered {
            slot.judge(None);
        }
        assert_eq!(busy(&server_list), [1]);
        drop(slot);
        assert_eq!(busy(&server_list), [0], "answered: {is_answered}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_at_its_limit_holds_up_no_other() {
    let limits = StrangerLimits { max_per_network: Some(1), ..StrangerLimits::default() };
    let server_list = limited(1, limits);
    let (one, other) = (of_network(1), of_network(2));
    let held = now_placed(&server_list, &one).unwrap();
    let mut waiting: Vec<_> = (0..16).map(|_| Box::pin(server_list.slot(&one))).collect();
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    let refused = server_list.slot(&one).now_or_never().expect("it does not wait");
    assert_eq!(refused.unwrap_err(), NoServer::Crowded);
    drop(now_placed(&server_list, &other).unwrap());
    drop(held);
    let mut first = waiting.remove(0).now_or_never().expect("it is next").unwrap();
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    first.judge(Some(ServerFailure::Unanswered));
    assert!(waiting.remove(0).now_or_never().is_some(), "a failure ends the work, too");
}

#[tokio::test(start_paused = true)]
async fn a_network_in_the_queue_of_a_full_server_holds_up_no_other() {
    let strangers = StrangerLimits { max_per_network: Some(1), ..StrangerLimits::default() };
    let rules = ServerRules { strangers, max_busy: Some(2), max_waiting: 9, ..rules() };
    let server_list = server_list(1, rules);
    let (one, other) = (of_network(1), of_network(2));
    let first = now_placed(&server_list, &one).unwrap();
    let second = now_placed(&server_list, &of_network(3)).unwrap();
    let mut before = Box::pin(server_list.slot(&one));
    assert!((&mut before).now_or_never().is_none());
    let mut behind = Box::pin(server_list.slot(&other));
    assert!((&mut behind).now_or_never().is_none());
    drop(second);
    assert!(behind.now_or_never().is_some_and(|slot| slot.is_ok()));
    assert!((&mut before).now_or_never().is_none());
    drop(first);
    assert!(before.now_or_never().is_some_and(|slot| slot.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn a_route_at_its_limit_holds_up_no_other_route() {
    let limits = StrangerLimits { of_routes: true, ..StrangerLimits::default() };
    let server_list = limited(1, limits);
    let on = |route: u64| {
        let route_limit = Some(RouteLimit { route, max: 1 });
        let priority = Priority { route_limit, ..STRANGER.priority };
        ServerWanted { requester: Requester { priority, ..STRANGER }, ..WISH }
    };
    let (search, calendar) = (on(1), on(2));
    let mut held = now_placed(&server_list, &search).unwrap();
    let mut waiting = Box::pin(server_list.slot(&search));
    assert!((&mut waiting).now_or_never().is_none());
    drop(now_placed(&server_list, &calendar).unwrap());
    drop(now_placed(&server_list, &WISH).unwrap());
    held.judge(None);
    assert!(waiting.now_or_never().is_some_and(|slot| slot.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn what_a_stranger_leaves_at_one_server_goes_to_one_that_waits_for_another() {
    let limits = StrangerLimits { max: Some(1), ..StrangerLimits::default() };
    let server_list = limited(2, limits);
    let held = now_placed(&server_list, &ServerWanted { only: Some(0), ..WISH }).unwrap();
    let elsewhere = ServerWanted { only: Some(1), ..WISH };
    let mut waiting = Box::pin(server_list.slot(&elsewhere));
    assert!((&mut waiting).now_or_never().is_none());
    drop(held);
    assert_eq!(waiting.now_or_never().expect("a place").unwrap().server(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_its_network_holds_up_leaves_the_servers_free() {
    let strangers = StrangerLimits { max_per_network: Some(1), ..StrangerLimits::default() };
    let rules = ServerRules { strangers, max_waiting: 9, overload: Overload::Order, ..rules() };
    let server_list = server_list(1, rules);
    let one = of_network(1);
    let held = now_placed(&server_list, &one).unwrap();
    let mut waiting = [Box::pin(server_list.slot(&one)), Box::pin(server_list.slot(&one))];
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    assert!(server_list.background_slot().is_some(), "no request waits for the server");
    drop(held);
    let [first, mut second] = waiting;
    let _first = first.now_or_never().expect("it is next").unwrap();
    assert!((&mut second).now_or_never().is_none());
    assert!(server_list.background_slot().is_some(), "nor when the next has its place");
}

/// A stranger sends a request and hangs up after `after`.
async fn hang_up(server_list: &Arc<ServerList>, after: Duration) {
    let mut slot = now_placed(server_list, &of_network(1)).unwrap();
    slot.sent();
    tokio::time::sleep(after).await;
    drop(slot);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_that_hangs_up_gains_no_place_where_nothing_is_known_of_the_app() {
    let limits = StrangerLimits { max: Some(1), ..StrangerLimits::default() };
    let server_list = limited(1, limits);
    hang_up(&server_list, SECOND).await;
    let again = of_network(1);
    let mut waiting = Box::pin(server_list.slot(&again));
    tokio::time::sleep(8 * SECOND).await;
    assert!((&mut waiting).now_or_never().is_none(), "the app may work on");
    tokio::time::sleep(2 * SECOND).await;
    assert!(waiting.now_or_never().is_some_and(|slot| slot.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn a_stranger_that_hangs_up_gains_no_place_where_a_page_takes_long() {
    let strangers = StrangerLimits { max: Some(1), ..StrangerLimits::default() };
    let rules = ServerRules { strangers, max_waiting: 9, overload: Overload::Order, ..rules() };
    let server_list = server_list(1, rules);
    let mut slow = now_placed(&server_list, &of_network(1)).unwrap();
    slow.sent();
    tokio::time::sleep(20 * SECOND).await;
    slow.judge(None);
    drop(slow);
    hang_up(&server_list, SECOND).await;
    let again = of_network(1);
    let mut waiting = Box::pin(server_list.slot(&again));
    tokio::time::sleep(38 * SECOND).await;
    assert!((&mut waiting).now_or_never().is_none(), "the app may work on");
    tokio::time::sleep(2 * SECOND).await;
    assert!(waiting.now_or_never().is_some_and(|slot| slot.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn a_user_that_hangs_up_where_nothing_is_known_of_the_app_leaves_at_once() {
    let limits = StrangerLimits { max: Some(1), ..StrangerLimits::default() };
    let server_list = limited(1, limits);
    let mut slot = now_placed(&server_list, &of_user(7)).unwrap();
    slot.sent();
    drop(slot);
    assert_eq!(busy(&server_list), [0]);
}
