use std::collections::BTreeMap;
use std::future::pending;
use std::rc::Rc;

use anteroom_config::AcmeChallenge;
use anteroom_store::{StoreError, TaskLease};
use bytes::Bytes;

use super::*;
use crate::issued::HeldCertificate;
use crate::seal::Sealer;
use crate::share::SharedCertificate;
use crate::state::AccountRecord;
use crate::testing::{issued, issued_in};

const NAME: &str = "a.net";
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const OTHER_SECRET: &[u8] = b"0123456789abcdef0123456789abcdeF";

/// A store in memory. Clones are the same store.
#[derive(Clone, Default)]
struct MemoryStore {
    values: Rc<RefCell<BTreeMap<String, Bytes>>>,
    leader: Rc<Cell<Option<u64>>>,
    /// Whether no call is answered.
    hangs: Rc<Cell<bool>>,
    /// Whether nothing can be written.
    is_read_only: Rc<Cell<bool>>,
}

impl MemoryStore {
    fn has(&self, place: &str) -> bool {
        self.values.borrow().contains_key(place)
    }

    async fn answer(&self) {
        if self.hangs.get() {
            pending::<()>().await;
        }
    }

    /// Loses a value, as a store does that is full.
    fn lose(&self, place: &str) {
        assert!(self.values.borrow_mut().remove(place).is_some(), "{place}");
    }
}

impl CertificateStore for MemoryStore {
    async fn put_sealed(&self, name: &str, sealed: Bytes, _: Duration) -> Result<(), StoreError> {
        self.answer().await;
        if self.is_read_only.get() {
            return Err(StoreError::Away);
        }
        self.values.borrow_mut().insert(name.to_owned(), sealed);
        Ok(())
    }

    async fn sealed(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.answer().await;
        Ok(self.values.borrow().get(name).cloned())
    }
}

impl LeaseStore for MemoryStore {
    async fn take_lease(&self, _: TaskLease, who: u64, _: Duration) -> Result<bool, StoreError> {
        self.answer().await;
        let leader = self.leader.get().unwrap_or(who);
        self.leader.set(Some(leader));
        Ok(leader == who)
    }
}

/// A proxy with a folder of its own. Its authority is away.
struct TestProxy {
    certifier: Certifier<MemoryStore>,
    _folder: tempfile::TempDir,
}

impl TestProxy {
    /// A proxy on `store`, which has these certificates in files.
    fn start(
        store: &MemoryStore,
        process_id: u64,
        held: &[(&str, String)],
        names: &[&str],
    ) -> Self {
        Self::start_with(SECRET, store, process_id, held, names)
    }

    /// The same with this secret.
    fn start_with(
        secret: &[u8],
        store: &MemoryStore,
        process_id: u64,
        held: &[(&str, String)],
        names: &[&str],
    ) -> Self {
        let place = tempfile::tempdir().unwrap();
        let folder = CertificateFolder::open(place.path()).unwrap();
        for (name, pem) in held {
            folder.install(name, pem, now()).unwrap();
        }
        let sealer = Arc::new(Sealer::new(secret).unwrap());
        let share = Share::new(store.clone(), sealer, process_id);
        let certifier =
            Certifier::new(settings(names), folder, Some(share), Arc::default(), Box::new(|| ()));
        Self { certifier, _folder: place }
    }

    /// Looks at the store as each step does, and returns whether the proxy orders for all.
    async fn looks(&self) -> bool {
        self.certifier.is_leader(self.certifier.share.as_ref().unwrap()).await
    }

    /// Puts a certificate into use that the authority has issued.
    async fn issue(&self, pem: &str) {
        self.certifier.install(0, self.certifier.get(0), pem).await.unwrap();
    }

    fn wish(&self) {
        self.certifier.board.wish_renewals(vec![NAME.to_owned()]).unwrap();
    }

    fn wishes(&self) -> Vec<String> {
        self.certifier.board.wishes()
    }

    fn state(&self) -> NameState {
        self.certifier.folder.state(NAME)
    }

    fn holds(&self, name: &str) -> Option<HeldCertificate> {
        self.certifier.folder.held(name)
    }
}

fn settings(names: &[&str]) -> CertifierSettings {
    let wanted =
        |name: &&str| WantedName { name: (*name).to_owned(), challenge: AcmeChallenge::Http01 };
    let tls = ClientConfig::builder_with_provider(anteroom_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    CertifierSettings {
        names: names.iter().map(wanted).collect(),
        // No authority listens on this port.
        directory: "https://127.0.0.1:1/directory".to_owned(),
        email: None,
        profile: None,
        dns_hook: None,
        tls: Arc::new(tls),
    }
}

#[tokio::test]
async fn what_the_store_has_lost_is_shared_again() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[(NAME, issued(NAME))], &[NAME]);
    let two = TestProxy::start(&store, 2, &[], &[NAME]);
    one.certifier.folder.put_account(&AccountRecord::default()).unwrap();
    assert!(one.looks().await && !two.looks().await);
    assert_eq!(two.holds(NAME), one.holds(NAME));
    // A store that is full evicts single values.
    for place in ["cert:a.net", "index", "account"] {
        store.lose(place);
        assert!(one.looks().await);
        assert!(store.has(place), "{place}");
    }
    // Also by a proxy that does not order: the one that does may have lost its files.
    for place in ["cert:a.net", "index"] {
        store.lose(place);
        assert!(!two.looks().await);
        assert!(store.has(place), "{place}");
    }
    store.values.borrow_mut().clear();
    assert!(one.looks().await);
    let three = TestProxy::start(&store, 3, &[], &[NAME]);
    assert!(!three.looks().await);
    assert_eq!(three.holds(NAME), one.holds(NAME));
}

#[tokio::test]
async fn each_of_many_names_has_its_turn() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number}.net")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let held: Vec<_> = names.iter().map(|name| (*name, issued(name))).collect();
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &held, &names);
    assert!(one.looks().await);
    let lost: Vec<String> = names.iter().map(|name| format!("cert:{name}")).collect();
    for place in &lost {
        store.lose(place);
    }
    for _ in 0..3 {
        assert!(one.looks().await);
    }
    assert!(lost.iter().all(|place| store.has(place)));
}

#[tokio::test]
async fn a_lost_certificate_that_is_later_than_that_of_the_leader_is_shared_again() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[(NAME, issued_in(2020, NAME))], &[NAME]);
    let two = TestProxy::start(&store, 2, &[(NAME, issued_in(2021, NAME))], &[NAME]);
    assert!(one.looks().await && !two.looks().await);
    assert!(one.looks().await);
    assert_eq!(one.holds(NAME), two.holds(NAME));
    assert!(!two.looks().await);
    assert_eq!(*two.holds(NAME).unwrap().valid.start(), 1_609_459_200);
}

#[tokio::test]
async fn a_wish_outlasts_a_step_that_is_dropped() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[], &[NAME]);
    one.wish();
    store.hangs.set(true);
    tokio::select! {
        biased;
        _ = one.certifier.step() => panic!("the store does not answer"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(one.wishes(), [NAME]);
    store.hangs.set(false);
    assert!(one.looks().await && one.certifier.note_wishes().await);
    assert!(one.wishes().is_empty() && one.state().is_requested);
}

#[tokio::test]
async fn a_wish_that_is_not_saved_stays_and_waits_after_a_failure() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[], &[NAME]);
    assert!(one.looks().await);
    one.wish();
    store.is_read_only.set(true);
    // The order fails as well.
    one.certifier.step().await;
    assert_eq!(one.wishes(), [NAME]);
    let next_try = one.certifier.get(0).state.next_try;
    assert!(next_try > now());
    store.is_read_only.set(false);
    one.certifier.step().await;
    assert!(one.wishes().is_empty());
    let state = one.state();
    assert_eq!((state.is_requested, state.next_try), (true, next_try));
}

#[tokio::test]
async fn a_wish_at_another_proxy_is_passed_on_until_it_is_noted() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[], &[NAME]);
    let two = TestProxy::start(&store, 2, &[], &[NAME]);
    assert!(one.looks().await);
    two.wish();
    two.certifier.board.put_wishes(vec!["strange.net".to_owned()]);
    assert!(!two.looks().await);
    // The store may lose it, and so may two proxies that write at once.
    store.lose("renew");
    assert!(!two.looks().await);
    assert_eq!(two.wishes(), [NAME]);
    assert!(one.looks().await && one.state().is_requested);
    assert!(!two.looks().await && two.wishes().is_empty());
}

#[tokio::test]
async fn a_newer_certificate_ends_a_wish_that_was_passed_on() {
    let store = MemoryStore::default();
    let held = [(NAME, issued_in(2020, NAME))];
    let one = TestProxy::start(&store, 1, &held, &[NAME]);
    let two = TestProxy::start(&store, 2, &held, &[NAME]);
    assert!(one.looks().await);
    two.wish();
    assert!(!two.looks().await);
    one.issue(&issued_in(2021, NAME)).await;
    assert!(!two.looks().await && two.wishes().is_empty());
    assert_eq!(two.holds(NAME), one.holds(NAME));
}

#[tokio::test]
async fn a_wish_that_was_passed_on_waits_for_no_pause_at_the_proxy_that_orders_next() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[], &[NAME]);
    let two = TestProxy::start(&store, 2, &[], &[NAME]);
    assert!(one.looks().await);
    one.issue(&issued_in(2021, NAME)).await;
    assert!(!two.looks().await);
    // No order is begun by itself so soon after the last one.
    assert!(one.state().next_try > now());
    two.wish();
    assert!(!two.looks().await);
    store.leader.set(None);
    assert!(two.looks().await && two.certifier.note_wishes().await);
    assert_eq!((two.state().is_requested, two.state().next_try), (true, 0));
}

#[tokio::test]
async fn a_certificate_that_is_dated_back_further_replaces_the_one_before() {
    let store = MemoryStore::default();
    let before = [(NAME, issued_in(2021, NAME))];
    let one = TestProxy::start(&store, 1, &before, &[NAME]);
    let two = TestProxy::start(&store, 2, &before, &[NAME]);
    let three = TestProxy::start(&store, 3, &before, &[NAME]);
    assert!(one.looks().await);
    one.issue(&issued_in(2020, NAME)).await;
    let fresh = one.holds(NAME);
    assert_eq!(*fresh.as_ref().unwrap().valid.start(), 1_577_836_800);
    assert!(!two.looks().await && one.looks().await);
    assert_eq!([one.holds(NAME), two.holds(NAME)], [fresh.clone(), fresh.clone()]);
    // What the store has lost counts as before, too.
    store.lose("cert:a.net");
    assert!(!two.looks().await && !three.looks().await && one.looks().await);
    assert_eq!([one.holds(NAME), three.holds(NAME)], [fresh.clone(), fresh]);
}

#[tokio::test]
async fn another_certificate_than_the_index_names_is_replaced() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[(NAME, issued_in(2021, NAME))], &[NAME]);
    assert!(one.looks().await);
    let (share, held) = (one.certifier.share.as_ref().unwrap(), one.holds(NAME).unwrap());
    let entry = SharedCertificate { digest: held.digest.clone(), not_before: *held.valid.start() };
    share.put_certificate(NAME, &issued_in(2020, NAME), entry).await.unwrap();
    let two = TestProxy::start(&store, 2, &[], &[NAME]);
    assert!(one.looks().await && !two.looks().await);
    assert_eq!(two.holds(NAME), Some(held));
}

#[tokio::test]
async fn a_later_certificate_that_the_leader_refuses_stays_shared() {
    let store = MemoryStore::default();
    let one = TestProxy::start(&store, 1, &[(NAME, issued_in(2020, NAME))], &[NAME]);
    let two = TestProxy::start(&store, 2, &[(NAME, issued_in(2021, NAME))], &[NAME]);
    let refused = two.holds(NAME).map(|held| held.digest);
    one.certifier.put(0, NameRecord { refused, ..one.certifier.get(0) });
    assert!(one.looks().await && !two.looks().await);
    let shared = store.values.borrow().clone();
    assert!(one.looks().await && !two.looks().await);
    assert_eq!(*store.values.borrow(), shared);
}

#[tokio::test]
async fn a_new_certificate_stays_where_it_could_not_be_shared_at_once() {
    let store = MemoryStore::default();
    let before = [(NAME, issued_in(2021, NAME))];
    let one = TestProxy::start(&store, 1, &before, &[NAME]);
    let two = TestProxy::start(&store, 2, &before, &[NAME]);
    assert!(one.looks().await);
    store.is_read_only.set(true);
    let record = one.certifier.get(0);
    assert!(one.certifier.install(0, record, &issued_in(2020, NAME)).await.is_err());
    let fresh = one.holds(NAME);
    store.is_read_only.set(false);
    assert!(one.looks().await && !two.looks().await);
    assert_eq!([one.holds(NAME), two.holds(NAME)], [fresh.clone(), fresh]);
}

#[tokio::test]
async fn what_is_sealed_with_another_secret_is_replaced_only_by_the_proxy_that_orders() {
    let store = MemoryStore::default();
    let held = [(NAME, issued(NAME))];
    let one = TestProxy::start(&store, 1, &held, &[NAME]);
    let two = TestProxy::start_with(OTHER_SECRET, &store, 2, &held, &[NAME]);
    assert!(one.looks().await);
    let shared = store.values.borrow().clone();
    assert!(!two.looks().await);
    assert_eq!(*store.values.borrow(), shared);
    store.lose("index");
    assert!(!two.looks().await && store.has("index"));
    let shared = store.values.borrow()["index"].clone();
    assert!(one.looks().await);
    assert_ne!(store.values.borrow()["index"], shared);
}
