//! `[session.login]` and `[session.logout]`: which of the app's own requests log in and out.

use std::cell::RefCell;
use std::rc::Rc;

use ::http::{HeaderName, Method, Uri};

use crate::http::extract::Finder;
use crate::http::path::PathPattern;
use crate::http::pattern::Pattern;
use crate::http::query;

/// Which of the app's own requests log in and out.
#[derive(Debug, Default)]
pub struct Watched {
    /// Log-ins.
    pub login: Option<LoginRule>,
    /// Log-outs.
    pub logout: Option<LogoutRule>,
}

/// By what a log-in is known.
#[derive(Debug)]
pub struct LoginRule {
    /// The requests.
    pub matching: Matching,
    /// What their answers must be.
    pub success: Success,
    /// Who it is; `None`: the app is asked.
    pub user: Option<LoginUser>,
}

/// Where a log-in says whose it is.
#[derive(Debug)]
pub enum LoginUser {
    /// The app says it in its answer.
    Answer(Finder),
    /// The visitor has said it in this field of a form: it is a label.
    Form(String),
    /// The same at this pointer into the JSON that the client sent.
    Json(String),
}

/// By what a log-out is known.
#[derive(Debug)]
pub struct LogoutRule {
    /// The requests.
    pub matching: Matching,
    /// What their answers must be.
    pub success: Success,
}

/// Requests of some methods for some paths.
#[derive(Debug)]
pub struct Matching {
    /// One of these.
    pub methods: Vec<Method>,
    /// One of these.
    pub paths: Vec<PathPattern>,
    /// Parameters that must be there with these values.
    pub query: Vec<(String, String)>,
}

impl Matching {
    /// Whether a request is one of these; `path` is percent-decoded.
    pub(in crate::proxy) fn fits(&self, method: &Method, uri: &Uri, path: &str) -> bool {
        let asked = uri.query().unwrap_or_default();
        let has =
            |(name, value): &(String, String)| query::value(asked, name).as_ref() == Some(value);
        self.methods.contains(method)
            && self.paths.iter().any(|pattern| pattern.matches(path).is_some())
            && self.query.iter().all(has)
    }
}

/// What an answer must be; all that is given must hold.
#[derive(Debug)]
pub struct Success {
    /// One of these; empty: any.
    pub status: Vec<u16>,
    /// It sets such a cookie; a session's to something new.
    pub set_cookie: Option<Pattern>,
    /// It sends the visitor there, by the whole URL or by its path.
    pub location: Option<Pattern>,
    /// It has this field.
    pub header: Option<HeaderName>,
    /// It takes such a cookie away.
    pub clears_cookie: Option<Pattern>,
}

/// What was heard of a request's body.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct LoginBody(pub(in crate::proxy) Rc<RefCell<Vec<u8>>>);
