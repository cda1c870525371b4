//! Which keys of a plan are not at their defaults.

use std::path::Path;

use super::lines::Lines;
use super::plan::{AcmeConfig, Admin, DATA, OriginUrl, Plan, StoreUrl};

/// The paths of the keys that are not at their defaults, in the order of `anteroom config print`: `cache.memory`,
/// `route[0].share`.
#[must_use]
pub fn changed_keys(plan: &Plan) -> Vec<String> {
    let usual = Lines::of(&usual(plan));
    let mut changed = Lines::of(plan);
    changed.retain(|line| !usual.contains(line));
    changed.into_iter().map(|(path, _)| path).collect()
}

/// The defaults for a plan: some follow from its store, and from the folder of its file.
fn usual(plan: &Plan) -> Plan {
    let mut usual = Plan::new(OriginUrl::default());
    let is_data = |folder: &Path| folder.file_name() == Path::new(DATA).file_name();
    match &plan.store.url {
        StoreUrl::Embedded(folder) if is_data(folder) => usual.keep_data_in(folder),
        StoreUrl::Embedded(folder) => {
            usual.admin.socket = Some(Admin::socket_in(folder));
            usual.acme.folder = AcmeConfig::folder_in(folder);
        }
        StoreUrl::Redis(_) => {
            let folder = plan.admin.socket.as_deref().and_then(Path::parent);
            usual.admin.socket = folder.filter(|folder| is_data(folder)).map(Admin::socket_in);
        }
    }
    let data = plan.acme.folder.parent().filter(|folder| is_data(folder));
    if let Some(data) = data.filter(|_| matches!(plan.store.url, StoreUrl::Redis(_))) {
        usual.acme.folder = AcmeConfig::folder_in(data);
    }
    usual.session.token_storage = plan.store.url.usual_token_storage();
    usual.store.layout = plan.store.url.usual_layout();
    usual
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigSources, Overrides};

    fn changed(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        std::fs::write(&file, text).unwrap();
        let sources = ConfigSources::gather(Some(&file), Overrides::default()).unwrap();
        changed_keys(&Plan::read(&sources).unwrap().0)
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_named() {
        assert_eq!(changed("origin = \"app:1\""), ["origin.url"]);
        let redis = "origin = \"app:1\"\nstore = \"redis://a\"\ncache.memory = \"99MiB\"";
        assert_eq!(changed(redis), ["origin.url", "store.url", "cache.memory"]);
        let route = "origin = \"app:1\"\n[[route]]\nmatch = \"/a\"\nshare = \"everyone\"";
        assert!(changed(route).contains(&"route[0].share".to_owned()));
    }
}
