//! Files that the proxy writes: the access log, the audit log, and the sockets' folder.

use std::fs::File;
use std::io;
use std::path::Path;

use anteroom_config::Plan;
use anteroom_policy::access_log::AccessLogTarget;
use rustix::fs::{Access, access};

use super::{ConnectFinding, Findings, failed, fine};

/// One for each log that is a file, and one for the admin socket.
pub(super) fn findings(plan: &Plan) -> Vec<ConnectFinding> {
    let mut log = Findings::about("log");
    let access_log = match (plan.log.access, &plan.log.to) {
        (Some(_), AccessLogTarget::File(path)) => Some(path),
        _ => None,
    };
    for path in access_log.into_iter().chain(&plan.admin.audit_log) {
        let judged = match can_append(path) {
            Ok(()) => fine("can be opened for append"),
            Err(error) => failed(format!("cannot be opened for append: {error}")),
        };
        log.add(path.display().to_string(), judged);
    }
    let mut socket = Findings::about("socket");
    if let Some(path) = &plan.admin.socket {
        let judged = match is_writable(folder_of(path)) {
            Ok(()) => fine("the folder of the admin socket can be written"),
            Err(error) => failed(format!("the folder of the admin socket: {error}")),
        };
        socket.add(path.display().to_string(), judged);
    }
    log.found.extend(socket.found);
    log.found
}

/// Whether a file can be appended to, or made.
fn can_append(path: &Path) -> io::Result<()> {
    match File::options().append(true).open(path) {
        Ok(_) => Ok(()),
        // The access log's folder is not made at start.
        Err(error) if error.kind() == io::ErrorKind::NotFound => may_write(folder_of(path)),
        Err(error) => Err(error),
    }
}

/// Whether a folder can be written, or made with its parents.
pub(super) fn is_writable(folder: &Path) -> io::Result<()> {
    // An absolute path has a parent that exists.
    let folder = std::path::absolute(folder)?;
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(&folder);
    if !existing.is_dir() {
        let text = format!("{} is no folder", existing.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
    }
    may_write(existing)
}

fn may_write(folder: &Path) -> io::Result<()> {
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| io::Error::other(format!("{}: {error}", folder.display())))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_judged_by_where_it_would_be() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_writable(&folder.path().join("a/b/c")).is_ok());
        assert!(can_append(&folder.path().join("access.log")).is_ok());
        assert!(can_append(&folder.path().join("missing/access.log")).is_err());
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(can_append(&file).is_ok());
        assert!(is_writable(&file.join("below")).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made");
    }
}
