//! A store for one unit test: the embedded one, in a temporary folder, with long timeouts.

use std::path::Path;
use std::time::Duration;

use super::{AnyStore, Layout, OpenStore, StoreLimits, StoreSettings, Url};

/// A store in this folder.
pub fn embedded_in(folder: &Path) -> StoreSettings {
    let limits = StoreLimits {
        read_timeout: Duration::from_secs(5),
        write_timeout: Duration::from_secs(5),
        viewed_items: 25,
        pages: 1 << 20,
        max_page: 1 << 20,
    };
    let url = Url::Embedded(folder.to_owned());
    StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits }
}

/// Runs a test on a runtime of its own with a fresh store, and closes the store afterwards.
///
/// # Panics
/// Where there is no store: then there is no test.
#[expect(clippy::unwrap_used, reason = "without a store there is no test")]
pub fn with_store(test: impl AsyncFnOnce(AnyStore)) {
    let folder = tempfile::tempdir().unwrap();
    let settings = embedded_in(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let open = OpenStore::open(&settings).await.unwrap();
        test(open.thread_handle()).await;
        open.close().await;
    });
}
