//! What is decided, as tables: which look-ups are needed, in which order, and what follows from their answers.

use ::http::HeaderMap;
use anteroom_cache::entry::{LifetimeSource, StaleLifetimes};
use anteroom_cache::hit_count::HitCount;
use anteroom_cache::page_fields::PageFields;
use bytes::Bytes;

use super::words::in_words;
use super::*;

/// The key of the page that is wanted, and that of a variant.
const KEY: PageKey = PageKey([1; 32]);
const VARIANT: PageKey = PageKey([2; 32]);

fn entry(static_proof: bool) -> Arc<Entry> {
    Arc::new(Entry {
        status: 200,
        reason: None,
        fields: PageFields::of(&HeaderMap::new()),
        body: Bytes::new(),
        stored_at: 1_000,
        initial_age: 0,
        lifetime: 60,
        source: LifetimeSource::Explicit,
        stale: StaleLifetimes::default(),
        static_proof,
        has_own_etag: false,
        vary: Vec::new(),
        purge_snapshot: Arc::default(),
        recipe: None,
        hits: HitCount::default(),
    })
}

fn fresh(tier: CacheTier) -> LookupResult {
    LookupResult::Fresh { entry: entry(false), tier, suits: Ok(()) }
}

fn unsuitable(reason: Reason) -> LookupResult {
    LookupResult::Fresh { entry: entry(true), tier: CacheTier::Memory, suits: Err(reason) }
}

fn proven() -> LookupResult {
    LookupResult::Fresh { entry: entry(true), tier: CacheTier::Memory, suits: Ok(()) }
}

fn too_old(suits: bool) -> LookupResult {
    LookupResult::TooOld { entry: entry(false), key: VARIANT, suits }
}

fn stale(suits: bool, serves_on_error: bool, serves_meanwhile: bool) -> LookupResult {
    LookupResult::Stale {
        entry: entry(false),
        key: VARIANT,
        suits,
        serves_on_error,
        serves_meanwhile,
    }
}

/// A GET without a login, on a route whose pages are shared by such visitors.
fn facts() -> Facts<'static> {
    Facts {
        item: None,
        row: None,
        is_upgrade: false,
        switched_off: None,
        needs_rank: false,
        access: Access::Shared(ShareClass::Anonymous),
        is_known_user: false,
        may_be_static: false,
        learns: false,
        only_if_cached: false,
        is_head: false,
        trusts_public: false,
        counts_uses: false,
    }
}

/// Look-ups that find nothing.
fn nothing() -> LookupAnswers {
    LookupAnswers {
        row: Some(None),
        is_ranked: Some(false),
        is_static: Some(false),
        memory: Some(None),
        marked_for_all: Some(None),
        store: Some(LookupResult::Absent { key: KEY }),
        public: Some(LookupResult::Absent { key: KEY }),
        marked: Some(None),
        is_failing: Some(false),
        is_rare: Some(false),
        loses_fields: Some(false),
        as_it_came: Some(None),
    }
}

/// What memory finds.
fn memory(found: LookupResult) -> LookupAnswers {
    LookupAnswers { memory: Some(Some(found)), ..nothing() }
}

/// What the store finds.
fn store(found: LookupResult) -> LookupAnswers {
    LookupAnswers { store: Some(found), ..nothing() }
}

/// The look-ups that were needed and the decision, in words. `answers` is what each look-up finds.
fn told(facts: &Facts<'_>, mut answers: LookupAnswers) -> String {
    let (mut known, mut told) = (LookupAnswers::default(), String::new());
    loop {
        let lookup = match plan(facts, &known) {
            Step::Done(decision) => {
                return format!("{told}-> {}{}", in_words(&decision), key_of(&decision));
            }
            Step::Need(lookup) => lookup,
        };
        if let Lookup::Memory(pages) = lookup {
            told += &class_of(pages);
        }
        told += match lookup {
            Lookup::Row => take(&mut known.row, &mut answers.row, "row "),
            Lookup::Rank => take(&mut known.is_ranked, &mut answers.is_ranked, "rank "),
            Lookup::Static => take(&mut known.is_static, &mut answers.is_static, "static "),
            Lookup::Memory(_) => take(&mut known.memory, &mut answers.memory, "memory "),
            Lookup::MarkForAll => {
                take(&mut known.marked_for_all, &mut answers.marked_for_all, "mark-for-all ")
            }
            Lookup::Store => take(&mut known.store, &mut answers.store, "store "),
            Lookup::Public => take(&mut known.public, &mut answers.public, "public "),
            Lookup::Mark => take(&mut known.marked, &mut answers.marked, "mark "),
            Lookup::Failing(key) => {
                assert_eq!(key, VARIANT, "the page that was found is the one that fails");
                take(&mut known.is_failing, &mut answers.is_failing, "failing ")
            }
            Lookup::Rare => take(&mut known.is_rare, &mut answers.is_rare, "rare "),
            Lookup::LostFields => take(&mut known.loses_fields, &mut answers.loses_fields, "lost "),
            Lookup::AsItCame => take(&mut known.as_it_came, &mut answers.as_it_came, "as-it-came "),
        };
    }
}

/// The class of the pages that are looked up, where it is not that of visitors without a login.
fn class_of(PageClass { class, only_static }: PageClass) -> String {
    match (class, only_static) {
        (ShareClass::Anonymous, None) => String::new(),
        (class, None) => format!("{} ", class.as_str()),
        (class, Some(_)) => format!("static-{} ", class.as_str()),
    }
}

/// Which of the two keys a fetch would use.
fn key_of(decision: &Decision) -> &'static str {
    match decision {
        Decision::Page(PageDecision::Fetch { key, .. } | PageDecision::AsItCame { key, .. })
            if *key == VARIANT =>
        {
            ", of a variant"
        }
        _ => "",
    }
}

/// Answers a look-up, once.
fn take<T>(known: &mut Option<T>, answer: &mut Option<T>, name: &'static str) -> &'static str {
    *known = Some(answer.take().expect("a look-up is needed once"));
    name
}

fn check(rows: Vec<(Facts<'_>, LookupAnswers, &str)>) {
    for (number, (facts, answers, expected)) in rows.into_iter().enumerate() {
        let facts_shown = format!("{facts:?}");
        assert_eq!(told(&facts, answers), expected, "row {number}: {facts_shown}");
    }
}

#[test]
fn a_page_that_is_found_answers() {
    let head = Facts { is_head: true, ..facts() };
    check(vec![
        (facts(), memory(fresh(CacheTier::Memory)), "memory -> hit in memory"),
        (head.clone(), memory(fresh(CacheTier::Memory)), "memory -> hit in memory"),
        (facts(), store(fresh(CacheTier::Store)), "memory mark-for-all store -> hit in store"),
        (head, store(fresh(CacheTier::Store)), "memory store -> hit in store"),
        // A visitor that may not have the page is forwarded, whatever else is stored.
        (facts(), memory(unsuitable(Reason::Vary)), "memory -> forward vary"),
        (facts(), memory(unsuitable(Reason::Accept)), "memory -> forward accept"),
        (facts(), store(unsuitable(Reason::Vary)), "memory mark-for-all store -> forward vary"),
    ]);
}

#[test]
fn a_page_that_is_not_found_is_fetched_once_for_all() {
    let counted = Facts { counts_uses: true, ..facts() };
    let head = Facts { is_head: true, ..facts() };
    let marked = || LookupAnswers { marked: Some(Some(Reason::SetCookie)), ..nothing() };
    let rare = || LookupAnswers { is_rare: Some(true), ..nothing() };
    let unproven = || LookupAnswers { as_it_came: Some(Some(Reason::Unproven)), ..nothing() };
    check(vec![
        (facts(), nothing(), "memory mark-for-all store mark as-it-came -> fetch"),
        (
            facts(),
            LookupAnswers { store: Some(LookupResult::Absent { key: VARIANT }), ..unproven() },
            "memory mark-for-all store mark as-it-came -> as it came, unproven, of a variant",
        ),
        (head.clone(), nothing(), "memory store -> forward head"),
        (head, marked(), "memory store -> forward head"),
        (facts(), marked(), "memory mark-for-all store mark -> forward set-cookie"),
        (counted.clone(), rare(), "memory mark-for-all store mark rare -> forward min-uses"),
        (counted, nothing(), "memory mark-for-all store mark rare as-it-came -> fetch"),
        (facts(), unproven(), "memory mark-for-all store mark as-it-came -> as it came, unproven"),
    ]);
}

#[test]
fn a_page_that_no_visitor_can_share_is_not_looked_up_in_the_store() {
    let marked = || LookupAnswers { marked_for_all: Some(Some(Reason::Private)), ..nothing() };
    let login = Facts { access: Access::StaticOnly(Reason::Login), ..facts() };
    let public = Facts { trusts_public: true, ..facts() };
    let stored_only = Facts { only_if_cached: true, ..facts() };
    check(vec![
        (facts(), marked(), "memory mark-for-all -> forward private"),
        (login, marked(), "static-anonymous memory mark-for-all -> forward login"),
        // These are not forwarded alike: a page that another class shares, or the refusal, comes first.
        (public, marked(), "memory store public mark as-it-came -> fetch"),
        (stored_only, marked(), "memory store -> not stored"),
    ]);
}

#[test]
fn a_stale_page_answers_while_it_is_renewed_or_the_origin_fails() {
    let failing = |found| LookupAnswers { is_failing: Some(true), ..store(found) };
    let marked = |found| LookupAnswers { marked: Some(Some(Reason::NoStore)), ..store(found) };
    let head = Facts { is_head: true, ..facts() };
    check(vec![
        (
            facts(),
            store(stale(true, false, true)),
            "memory mark-for-all store mark -> stale, renewed",
        ),
        (
            facts(),
            store(stale(true, true, true)),
            "memory mark-for-all store mark failing -> stale, renewed",
        ),
        (
            facts(),
            failing(stale(true, true, true)),
            "memory mark-for-all store mark failing -> stale",
        ),
        (
            facts(),
            failing(stale(true, true, false)),
            "memory mark-for-all store mark failing -> stale",
        ),
        // An origin that fails does not release a page that may not be served then.
        (
            facts(),
            failing(stale(true, false, false)),
            "memory mark-for-all store mark -> fetch again, of a variant",
        ),
        (
            facts(),
            store(stale(true, true, false)),
            "memory mark-for-all store mark failing -> fetch again, served on error, of a variant",
        ),
        (
            facts(),
            store(stale(true, false, false)),
            "memory mark-for-all store mark -> fetch again, of a variant",
        ),
        // A page that does not suit the visitor is no candidate.
        (
            facts(),
            store(stale(false, true, true)),
            "memory mark-for-all store mark as-it-came -> fetch, of a variant",
        ),
        (
            facts(),
            marked(stale(true, true, true)),
            "memory mark-for-all store mark -> forward no-store",
        ),
        (head, store(stale(true, true, true)), "memory store -> forward head"),
    ]);
}

#[test]
fn a_page_is_fetched_again_for_a_request_that_wants_a_fresher_one() {
    let login = Facts { access: Access::StaticOnly(Reason::Login), ..facts() };
    check(vec![
        (
            facts(),
            memory(too_old(true)),
            "memory mark failing -> fetch again, served on error, of a variant",
        ),
        (facts(), memory(too_old(false)), "memory mark as-it-came -> fetch, of a variant"),
        (
            facts(),
            LookupAnswers { is_failing: Some(true), ..memory(too_old(true)) },
            "memory mark failing -> stale",
        ),
        (login, memory(too_old(true)), "static-anonymous memory -> forward request-directive"),
    ]);
}

#[test]
fn only_what_is_stored_answers_a_request_for_that() {
    let only = |facts| Facts { only_if_cached: true, ..facts };
    let barred = |reason| Facts { access: Access::Bypass(reason), ..facts() };
    check(vec![
        (only(facts()), memory(fresh(CacheTier::Memory)), "memory -> hit in memory"),
        (only(facts()), store(fresh(CacheTier::Store)), "memory store -> hit in store"),
        (only(facts()), nothing(), "memory store -> not stored"),
        (only(facts()), store(stale(true, true, true)), "memory store -> not stored"),
        (only(facts()), memory(unsuitable(Reason::Vary)), "memory -> not stored"),
        (only(facts()), memory(too_old(true)), "memory -> not stored"),
        (only(barred(Reason::Login)), nothing(), "-> not stored"),
        (only(Facts { is_upgrade: true, ..facts() }), nothing(), "-> not stored"),
        (only(Facts { is_head: true, ..facts() }), nothing(), "memory store -> not stored"),
        (
            only(Facts { switched_off: Some(Reason::BypassSwitch), ..facts() }),
            memory(fresh(CacheTier::Memory)),
            "-> not stored",
        ),
        (
            only(Facts { access: Access::StaticOnly(Reason::Login), ..facts() }),
            memory(fresh(CacheTier::Memory)),
            "static-anonymous memory -> not stored",
        ),
        // Nothing that is stored answers where the route learns.
        (
            only(Facts { learns: true, ..facts() }),
            memory(fresh(CacheTier::Memory)),
            "-> not stored",
        ),
    ]);
}

#[test]
fn the_first_reason_bars_the_cache_and_needs_no_further_look_up() {
    let barred = |reason| Facts { access: Access::Bypass(reason), ..facts() };
    let ranked = |facts| Facts { needs_rank: true, ..facts };
    let in_top = || LookupAnswers { is_ranked: Some(true), ..memory(fresh(CacheTier::Memory)) };
    let switched = Facts { switched_off: Some(Reason::BypassSwitch), ..ranked(facts()) };
    check(vec![
        (Facts { is_upgrade: true, ..switched.clone() }, nothing(), "-> upgrade"),
        (switched, nothing(), "-> forward bypass-switch"),
        (ranked(facts()), nothing(), "rank -> forward rank"),
        (ranked(barred(Reason::Login)), nothing(), "rank -> forward rank"),
        (ranked(facts()), in_top(), "rank memory -> hit in memory"),
    ]);
    // Each reason is passed on as it is, and a request for what is stored only is refused.
    for reason in Reason::ALL.into_iter().filter(|reason| *reason != Reason::Upgrade) {
        let only = Facts { only_if_cached: true, ..barred(reason) };
        let expected = format!("-> forward {}", reason.as_str());
        check(vec![(barred(reason), nothing(), &expected), (only, nothing(), "-> not stored")]);
    }
}

#[test]
fn a_row_answers_before_all_pages_and_whatever_bars_them() {
    let row = || Row::new("stock:tea").unwrap();
    let kept = KeptRow { json: Bytes::from_static(b"{}"), refreshed: None, tag: "\"a\"".into() };
    let kept = Arc::new(kept);
    let stored = || LookupAnswers { row: Some(Some(Arc::clone(&kept))), ..nothing() };
    let of = |facts| Facts { row: Some(row()), ..facts };
    let missed = || memory(fresh(CacheTier::Memory));
    check(vec![
        (of(facts()), stored(), "row -> row"),
        (of(Facts { access: Access::Bypass(Reason::Login), ..facts() }), stored(), "row -> row"),
        (of(Facts { learns: true, ..facts() }), stored(), "row -> row"),
        (of(Facts { only_if_cached: true, ..facts() }), stored(), "row -> row"),
        (of(Facts { switched_off: Some(Reason::BypassSwitch), ..facts() }), stored(), "row -> row"),
        (of(facts()), missed(), "row memory -> hit in memory"),
        (facts(), stored(), "memory mark-for-all store mark as-it-came -> fetch"),
    ]);
}

#[test]
fn a_visitor_with_a_login_gets_what_is_static_by_proof_and_fills_nothing() {
    let login = || Facts { access: Access::StaticOnly(Reason::Login), ..facts() };
    check(vec![
        (login(), memory(proven()), "static-anonymous memory -> hit in memory"),
        (login(), memory(fresh(CacheTier::Memory)), "static-anonymous memory -> forward login"),
        (login(), memory(unsuitable(Reason::Vary)), "static-anonymous memory -> forward vary"),
        (
            login(),
            store(fresh(CacheTier::Store)),
            "static-anonymous memory mark-for-all store -> forward login",
        ),
        (
            login(),
            store(stale(true, true, true)),
            "static-anonymous memory mark-for-all store -> forward login",
        ),
        (login(), nothing(), "static-anonymous memory mark-for-all store -> forward login"),
    ]);
}

#[test]
fn a_page_of_one_user_or_segment_needs_a_known_user() {
    let of = |class| Facts { access: Access::Shared(class), ..facts() };
    let known = |class| Facts { is_known_user: true, ..of(class) };
    let loses = |found| LookupAnswers { loses_fields: Some(true), ..found };
    let (user, segment) = (ShareClass::User, ShareClass::Segment);
    let failing = store(stale(true, true, false));
    check(vec![
        (of(user), memory(fresh(CacheTier::Memory)), "-> forward unknown-token"),
        (of(segment), memory(fresh(CacheTier::Memory)), "-> forward unknown-token"),
        (known(user), memory(fresh(CacheTier::Memory)), "user memory -> hit in memory"),
        // Its fetch carries the visitor's session: the response is the visitor's, whatever the URL is like.
        (known(user), nothing(), "user memory mark-for-all store mark lost -> fetch"),
        (known(segment), nothing(), "segment memory mark-for-all store mark lost -> fetch"),
        (known(user), loses(nothing()), "user memory mark-for-all store mark lost -> forward miss"),
        (
            known(user),
            loses(failing),
            "user memory mark-for-all store mark failing lost -> forward miss",
        ),
        // It is never renewed in the background.
        (
            known(user),
            store(stale(true, false, true)),
            "user memory mark-for-all store mark lost -> fetch again, of a variant",
        ),
        // Another visitor's page is not looked up.
        (known(segment), memory(fresh(CacheTier::Memory)), "segment memory -> hit in memory"),
    ]);
}

#[test]
fn a_static_resource_needs_no_proof_of_its_segment() {
    let segment = Facts {
        access: Access::Shared(ShareClass::Segment),
        is_known_user: true,
        may_be_static: true,
        ..facts()
    };
    let kept = |found| LookupAnswers { is_static: Some(true), ..found };
    check(vec![
        (
            segment.clone(),
            kept(memory(proven())),
            "static static-anonymous memory -> hit in memory",
        ),
        (
            segment.clone(),
            kept(nothing()),
            "static static-anonymous memory mark-for-all store -> forward login",
        ),
        (segment, nothing(), "static segment memory mark-for-all store mark lost -> fetch"),
    ]);
}

#[test]
fn a_page_that_the_origin_marks_public_is_also_for_visitors_without_a_login() {
    let trusting = || Facts { trusts_public: true, ..facts() };
    let of = |class| Facts { access: Access::Shared(class), ..trusting() };
    let public = |found| LookupAnswers { public: Some(found), ..nothing() };
    check(vec![
        (trusting(), public(fresh(CacheTier::Memory)), "memory store public -> hit in memory"),
        (trusting(), public(unsuitable(Reason::Vary)), "memory store public -> forward vary"),
        (
            trusting(),
            public(too_old(true)),
            "memory store public mark failing -> fetch again, served on error, of a variant",
        ),
        (
            trusting(),
            public(stale(true, true, true)),
            "memory store public mark as-it-came -> fetch",
        ),
        (trusting(), memory(fresh(CacheTier::Memory)), "memory -> hit in memory"),
        (
            of(ShareClass::Public),
            public(fresh(CacheTier::Memory)),
            "public memory store mark as-it-came -> fetch",
        ),
    ]);
}

#[test]
fn memory_is_asked_before_the_first_call_where_no_other_look_up_comes_first() {
    let anonymous = PageClass::of(ShareClass::Anonymous);
    let login = PageClass { only_static: Some(Reason::Login), ..anonymous };
    let with = |access| Facts { access, ..facts() };
    assert_eq!(first_class(&facts()), Some(anonymous));
    assert_eq!(first_class(&with(Access::StaticOnly(Reason::Login))), Some(login));
    assert_eq!(first_class(&with(Access::Bypass(Reason::Login))), None);
    for waits in [
        Facts { needs_rank: true, ..facts() },
        Facts { learns: true, ..facts() },
        Facts { row: Row::new("stock:tea"), ..facts() },
        Facts {
            may_be_static: true,
            is_known_user: true,
            ..with(Access::Shared(ShareClass::Segment))
        },
    ] {
        assert_eq!(first_class(&waits), None, "{waits:?}");
    }
}
