//! Configurations with every key on that must not change which visitors share a page: `tests/every-key`.

use std::cell::Cell;
use std::fs;
use std::path::Path;

/// The keys for each route.
const ROUTE: &str = include_str!("../every-key/route.toml");
/// What is included.
const FURTHER: &str = include_str!("../every-key/every-key.toml");
const ERROR_PAGE: &str = include_str!("../every-key/every-key.html");

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// All proxies that this thread starts from now on have the keys.
pub fn turn_on() {
    IS_ON.set(true);
}

/// The settings for a proxy in this folder, with the keys if they are on.
pub fn added(settings: String, folder: &Path) -> String {
    if !IS_ON.get() {
        return settings;
    }
    // The last route is that of all other requests.
    fs::write(folder.join("every-key.toml"), format!("{FURTHER}{ROUTE}")).unwrap();
    fs::write(folder.join("every-key.html"), ERROR_PAGE).unwrap();
    let routes = settings.replace("[[route]]\n", &format!("[[route]]\n{ROUTE}"));
    format!("include = [\"every-key.toml\"]\n{routes}")
}
