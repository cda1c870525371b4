//! Where the next store is, and what tells it from others.

use crate::embedded::SESSIONS_FILE;
use crate::open_engine::{StoreSettings, Url};
use crate::{Layout, redis};

/// Where the next store is.
#[derive(Clone, Debug)]
pub struct NextStore {
    /// The store.
    pub settings: StoreSettings,
    /// The address of another Redis for its pages.
    pub pages_url: Option<String>,
}

impl NextStore {
    /// Whether both are the same store, whatever its bounds.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (one, another) = (&self.settings, &other.settings);
        one.url == another.url
            && one.prefix == another.prefix
            && one.layout == another.layout
            && self.pages_url == other.pages_url
    }

    /// Whether it is a folder without sessions.
    pub(super) fn is_empty_folder(&self) -> bool {
        match &self.settings.url {
            Url::Embedded(folder) => !folder.join(SESSIONS_FILE).exists(),
            Url::Redis(_) => false,
        }
    }

    /// The store in words without a user and a password. Proxies compare them: two spellings of one address differ.
    #[must_use]
    pub fn label(&self) -> String {
        let StoreSettings { url, prefix, layout, .. } = &self.settings;
        let url = match url {
            Url::Embedded(folder) => return format!("embedded:{}", folder.display()),
            Url::Redis(url) => redis::label(url),
        };
        let layout = match layout {
            Layout::Single => "single",
            Layout::Sharded => "sharded",
        };
        let pages = self.pages_url.as_deref().map(redis::label);
        let pages = pages.map(|pages| format!(", pages in {pages}")).unwrap_or_default();
        format!("{url}, layout {layout}, prefix {prefix:?}{pages}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreLimits;

    fn label(url: &str, pages_url: Option<&str>) -> String {
        let limits = StoreLimits {
            read_timeout: std::time::Duration::ZERO,
            write_timeout: std::time::Duration::ZERO,
            viewed_items: 1,
            pages: 0,
            max_page: 0,
        };
        let (url, prefix) = (Url::Redis(url.to_owned()), "p:".to_owned());
        let settings = StoreSettings { url, prefix, layout: Layout::Single, limits };
        NextStore { settings, pages_url: pages_url.map(str::to_owned) }.label()
    }

    #[test]
    fn a_label_tells_stores_apart_and_no_password() {
        let usual = "a:6379, layout single, prefix \"p:\"";
        for url in ["redis://a", "redis://a:6379/0", "redis://ann:secret@a/"] {
            assert_eq!(label(url, None), usual, "{url}");
        }
        assert_eq!(label("redis://a/3", None), "a:6379, database 3, layout single, prefix \"p:\"");
        assert_eq!(
            label("redis://a", Some("redis://:pw@b/1")),
            format!("{usual}, pages in b:6379, database 1")
        );
        let sentinels = label("redis+sentinel://:pw@s/shop/2", None);
        assert!(sentinels.starts_with("shop at s:26379, database 2, "), "{sentinels}");
    }
}
