//! The files that settings are read from, and the paths in them.
//!
//! A relative path in a file starts at the folder of that file, so that it means the same whatever the
//! working directory is.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::problem::SettingLocation;

/// The text of the file at `path`.
///
/// # Errors
/// If it cannot be read, is not UTF-8, or has more than `max` bytes.
pub(super) fn read(path: &Path, max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        return Err(io::Error::other(format!("larger than {max} bytes")));
    }
    Ok(text)
}

/// What a path written at `location` means. One from the environment or the command line stays as it is:
/// relative to the working directory.
pub(super) fn path_at(location: &SettingLocation, path: &str) -> PathBuf {
    location.file().map_or_else(|| PathBuf::from(path), |file| beside(file, Path::new(path)))
}

/// As [`path_at`], for a pattern of paths.
pub(super) fn pattern_at(location: &SettingLocation, pattern: &str) -> String {
    let Some(file) = location.file().filter(|_| Path::new(pattern).is_relative()) else {
        return pattern.to_owned();
    };
    // Absolute before it is escaped, because the folder may have the signs of a pattern in its name.
    let folder = beside(file, Path::new("")).to_string_lossy().into_owned();
    let start = glob::Pattern::escape(folder.trim_end_matches('/'));
    format!("{start}/{}", pattern.trim_start_matches("./"))
}

/// What `path` means in `file`, as an absolute path.
pub(super) fn beside(file: &Path, path: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(file);
    let path = Path::new(".").join(folder).join(path);
    // Fails only without a working directory; the system says so when the file is opened.
    std::path::absolute(&path).unwrap_or(path)
}
