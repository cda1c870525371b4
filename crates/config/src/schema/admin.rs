//! The keys of `[admin]` and `[log]`.

use std::path::PathBuf;

use anteroom_policy::access_log::{AccessLogFormat, AccessLogTarget};

use super::admin_token::AdminTokens;
use super::error_pages::ErrorPagesForm;
use super::path::{PathText, path};
use super::shared::{ADDRESS, paths};
use crate::credential::BearerToken;
use crate::form::{Either, Flag, List, Optional, Text, Words};
use crate::plan::{Admin, ErrorsConfig, LogConfig};
use crate::walk::Walk;

pub(super) fn admin(at: &mut impl Walk, admin: &mut Admin) {
    at.key("address", &mut admin.address, &Either("off", ADDRESS));
    at.key("token", &mut admin.token, &Optional(BearerToken));
    at.key("tokens", &mut admin.tokens, &AdminTokens);
    at.key("audit_log", &mut admin.audit_log, &Optional(path()));
    socket(at, admin);
}

pub(super) fn socket(at: &mut impl Walk, admin: &mut Admin) {
    at.key("socket", &mut admin.socket, &Either("off", path()));
}

pub(super) fn errors(at: &mut impl Walk, errors: &mut ErrorsConfig) {
    at.key("pages", &mut errors.pages, &ErrorPagesForm);
}

pub(super) fn log(at: &mut impl Walk, log: &mut LogConfig) {
    let formats = [
        ("json", Some(AccessLogFormat::Json)),
        ("combined", Some(AccessLogFormat::Combined)),
        ("off", None),
    ];
    at.key("access", &mut log.access, &Words(&formats));
    let target = Text { parse: log_target, show: show_log_target };
    at.key("to", &mut log.to, &PathText { prefix: "", word: Some("stdout"), form: target });
    at.key("user", &mut log.user, &Flag);
    at.key("redact_paths", &mut log.redact_paths, &List::of(paths()));
}

fn log_target(text: &str) -> Result<AccessLogTarget, String> {
    match text {
        "stdout" => Ok(AccessLogTarget::Stdout),
        "" => Err("\"stdout\", or the path of a file".to_owned()),
        path => Ok(AccessLogTarget::File(PathBuf::from(path))),
    }
}

fn show_log_target(target: &AccessLogTarget) -> String {
    match target {
        AccessLogTarget::Stdout => "stdout".to_owned(),
        AccessLogTarget::File(path) => path.to_string_lossy().into_owned(),
    }
}
