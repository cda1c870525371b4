//! Converts a plan's `[store]` into the open store, and watches its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anteroom_fault::patience;
use anteroom_http::ident::{TokenStorage, hex};
use anteroom_store::{
    self, AnyStore, FleetStore as _, NextStore, OpenError, OpenStore, StoreMemory, StoreSettings,
    StoreState,
};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use anteroom_config::{Plan, Store, StoreLayout, StoreUrl};

/// How often the store's state is checked for `/readyz` and the metrics.
const LOOK: Duration = Duration::from_millis(500);
/// How long a step may take that no request waits for.
const UNHURRIED: Duration = Duration::from_secs(30);

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// As `[store] url`.
    pub url: StoreUrl,
    /// As `[store] layout`.
    pub layout: StoreLayout,
    /// As `[store] prefix`.
    pub prefix: String,
}

/// How long the start waits for the store to say whether it has been moved.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Opens the store, and the store of pages if that is another.
pub(super) async fn open(plan: &Plan) -> Result<OpenStore, OpenError> {
    let NextStore { settings, pages_url } = place(plan);
    let store = OpenStore::open(&settings).await?;
    let store = match pages_url {
        Some(url) => store.with_pages_in(&url, &settings)?,
        None => store,
    };
    store.switch().set_wanted(next(plan));
    follow_move(&store, plan).await;
    Ok(store)
}

/// Opens the store of a process that has closed it and may take it back. It was not moved: such a one is not handed over.
pub(super) async fn open_handed(plan: &Plan, memory: StoreMemory) -> Result<OpenStore, OpenError> {
    let store = OpenStore::open_handed(&place(plan).settings, memory).await?;
    store.switch().set_wanted(next(plan));
    Ok(store)
}

/// Goes to the next store at once if the site has been moved there, so that no visitor is looked for where none is any
/// more. Later, [`crate::task::RegisterProxy`] follows a move.
async fn follow_move(store: &OpenStore, plan: &Plan) {
    let is_embedded = matches!(plan.store.url, StoreUrl::Embedded(_));
    if plan.store.next.url.is_none() && !is_embedded {
        return;
    }
    let handle = store.fixed_handle();
    let asked = Instant::now();
    let state = async {
        handle.connected().await;
        handle.move_state().await
    };
    match timeout(CONNECT_TIMEOUT, state).await {
        Ok(Ok(state)) => store.switch().hear_at_start(state.as_deref(), asked).await,
        Ok(Err(_)) | Err(_) => tracing::debug!("the store did not say whether it has been moved"),
    }
}

/// Lets changes wait until the register has told whether the site is being moved. A folder has one process, which knows.
pub(super) fn expect_news(store: &OpenStore, plan: &Plan) {
    let switch = store.switch();
    let is_shared = matches!(plan.store.url, StoreUrl::Redis(_));
    if is_shared && !switch.has_moved() && !switch.is_left() {
        switch.expect_news();
    }
}

/// What must be written down when `[store.next]` becomes `[store]`, because the other store has another default.
pub(super) fn advice(plan: &Plan) -> Option<String> {
    let storage = plan.session.token_storage;
    let word = match storage {
        TokenStorage::Plain => "plain",
        TokenStorage::Sha256 => "sha256",
    };
    let next = plan.store.next()?;
    (next.url.usual_token_storage() != storage)
        .then(|| format!("[session] token_storage = {word:?}"))
}

/// Where a store is, in words that two processes compare and that tell no password: a hash.
pub(super) fn mark(store: &Store) -> String {
    let Store { url, pages_url, layout, prefix, .. } = store;
    let word = |url: &StoreUrl| match url {
        StoreUrl::Embedded(folder) => format!("embedded:{}", folder.display()),
        StoreUrl::Redis(url) => url.expose().to_owned(),
    };
    let pages = pages_url.as_ref().map(word).unwrap_or_default();
    let layout = match layout {
        StoreLayout::Single => "single",
        StoreLayout::Sharded => "sharded",
    };
    hex(&Sha256::digest([word(url).as_str(), &pages, layout, prefix].join("\n")))
}

/// Where `[store]` is.
pub(super) fn place(plan: &Plan) -> NextStore {
    location(&plan.store, plan.session.viewed_items)
}

/// Where `[store.next]` is.
pub(super) fn next(plan: &Plan) -> Option<NextStore> {
    plan.store.next().map(|next| location(&next, plan.session.viewed_items))
}

fn location(store: &Store, viewed_items: u32) -> NextStore {
    let pages_url = match (&store.url, &store.pages_url) {
        (StoreUrl::Redis(_), Some(StoreUrl::Redis(url))) => Some(url.expose().to_owned()),
        _ => None,
    };
    NextStore { settings: settings(store, viewed_items), pages_url }
}

/// Opens a store that no proxy uses, to read or write all of it. No page is kept there, and nothing waits for a step.
pub(super) async fn unused_store(place: &StorePlace) -> Result<OpenStore, OpenError> {
    let limits = anteroom_store::StoreLimits {
        read_timeout: UNHURRIED,
        write_timeout: UNHURRIED,
        // What is there is kept.
        viewed_items: 1_000,
        pages: 0,
        max_page: 0,
    };
    let (url, layout) = (url_of(&place.url), layout_of(place.layout));
    let prefix = place.prefix.clone();
    OpenStore::open(&StoreSettings { url, prefix, layout, limits }).await
}

fn url_of(url: &StoreUrl) -> anteroom_store::Url {
    match url {
        StoreUrl::Embedded(folder) => anteroom_store::Url::Embedded(folder.clone()),
        StoreUrl::Redis(url) => anteroom_store::Url::Redis(url.expose().to_owned()),
    }
}

/// The layout as the store has it.
pub(super) fn layout_of(layout: StoreLayout) -> anteroom_store::Layout {
    match layout {
        StoreLayout::Single => anteroom_store::Layout::Single,
        StoreLayout::Sharded => anteroom_store::Layout::Sharded,
    }
}

fn settings(store: &Store, viewed_items: u32) -> StoreSettings {
    let (url, layout) = (url_of(&store.url), layout_of(store.layout));
    let limits = anteroom_store::StoreLimits {
        read_timeout: store.timeout,
        write_timeout: patience(Duration::from_secs(2)),
        viewed_items,
        pages: store.pages,
        max_page: store.max_page,
    };
    StoreSettings { url, prefix: store.prefix.clone(), layout, limits }
}

/// Keeps the store's state in `connected`, which every thread can read.
pub(super) async fn watch(handle: AnyStore, connected: Arc<AtomicBool>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        connected.store(handle.state() == StoreState::Connected, Ordering::Relaxed);
        tokio::time::sleep(LOOK).await;
    }
}

/// Warns if Redis may evict sessions when its memory is full.
pub(super) async fn warn_of_eviction(store: OpenStore, handle: AnyStore) {
    handle.connected().await;
    match store.drops_sessions().await {
        Ok(None) => {}
        Ok(Some(policy)) => tracing::warn!(
            policy,
            "Redis evicts any key when its memory is full, sessions included: set maxmemory-policy to \
             volatile-lru, which evicts only pages"
        ),
        Err(error) => tracing::debug!(%error, "cannot read the eviction policy of Redis"),
    }
}
