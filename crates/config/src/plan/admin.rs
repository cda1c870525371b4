//! `[admin]` and `[log]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anteroom_http::path::PathPattern;
use anteroom_policy::access_log::{AccessLogFormat, AccessLogTarget};
use anteroom_policy::admin::AdminRole;
use anteroom_policy::error_page::ErrorPages;

use super::store::DATA;
use crate::secret::Secret;

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// `address`, 127.0.0.1:9180; `"off"`: none.
    pub address: Option<SocketAddr>,
    /// `token`: the token with the name `admin`, which allows everything.
    pub token: Option<Secret>,
    /// `tokens`: further tokens, each with a name and a role.
    pub tokens: Vec<NamedToken>,
    /// `audit_log`: the file to which actions of operators are appended; `None`: the log of the process.
    pub audit_log: Option<PathBuf>,
    /// `socket`: the socket of the data commands; default: `admin.sock` in the embedded store's folder, or
    /// in `./anteroom-data` with Redis; `"off"`: none.
    pub socket: Option<PathBuf>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9180))),
            token: None,
            tokens: Vec::new(),
            audit_log: None,
            socket: Some(Self::socket_in(Path::new(DATA))),
        }
    }
}

impl Admin {
    /// The name of `token`.
    pub const NAME: &str = "admin";

    /// Every token with its name and its role, `token` first.
    pub fn all_tokens(&self) -> impl Iterator<Item = (&str, AdminRole, &Secret)> {
        let own = self.token.iter().map(|token| (Self::NAME, AdminRole::All, token));
        own.chain(self.tokens.iter().map(|one| (one.name.as_str(), one.role, &one.token)))
    }

    /// The socket in a data folder.
    pub(crate) fn socket_in(folder: &Path) -> PathBuf {
        folder.join("admin.sock")
    }
}

/// One of `[[admin.tokens]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedToken {
    /// `name`: as the audit log calls its bearer.
    pub name: String,
    /// `role`.
    pub role: AdminRole,
    /// `token`.
    pub token: Secret,
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
