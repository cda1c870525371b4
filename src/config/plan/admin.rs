//! `[admin]` and `[log]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::store::DATA;
use crate::config::secret::Secret;
use crate::http::path::PathPattern;
use crate::policy::access_log::{AccessLogFormat, AccessLogTarget};
use crate::policy::error_page::ErrorPages;

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// `address`, 127.0.0.1:9180; `"off"`: none.
    pub address: Option<SocketAddr>,
    /// `token`: required for everything but health and metrics.
    pub token: Option<Secret>,
    /// `socket`: the socket of the data commands; default: `admin.sock` in the embedded store's folder, or
    /// in `./anteroom-data` with Redis; `"off"`: none.
    pub socket: Option<PathBuf>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9180))),
            token: None,
            socket: Some(Self::socket_in(Path::new(DATA))),
        }
    }
}

impl Admin {
    /// The socket in a data folder.
    pub(in crate::config) fn socket_in(folder: &Path) -> PathBuf {
        folder.join("admin.sock")
    }
}

/// `[errors]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorsConfig {
    /// `pages`: pages in place of the proxy's own texts.
    pub pages: ErrorPages,
}

/// Where the data commands reach a proxy with these settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminSocket {
    /// Nowhere: `[admin] socket = "off"`.
    Off,
    /// At this path, which follows from a setting.
    At(PathBuf),
    /// At this path, and no setting names it.
    Default(PathBuf),
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `access`, `"json"`; `None` is `"off"`.
    pub access: Option<AccessLogFormat>,
    /// `to`, `"stdout"` or a file's path.
    pub to: AccessLogTarget,
    /// `user`, false: whether the access log names the user.
    pub user: bool,
    /// `redact_paths`: path patterns whose wildcards are hidden in the log.
    pub redact_paths: Vec<PathPattern>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            access: Some(AccessLogFormat::Json),
            to: AccessLogTarget::Stdout,
            user: false,
            redact_paths: Vec::new(),
        }
    }
}
