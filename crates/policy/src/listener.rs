//! What a listener does with requests of any route.

use ::http::HeaderValue;

use anteroom_http::path::PathPattern;

/// The settings that hold for all requests at one listener.
#[derive(Debug, Default)]
pub struct ListenerRules {
    /// The redirect for requests by http.
    pub redirect: Option<Redirect>,
    /// The `Strict-Transport-Security` of responses by https.
    pub hsts: Option<HeaderValue>,
}

/// How requests by http are redirected to https.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// The port for https.
    pub port: u16,
    /// The paths that are served by http all the same.
    pub except: Vec<PathPattern>,
}
