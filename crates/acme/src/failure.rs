//! What an error of the authority, or on the way to it, means for an order. Pure.

use std::error::Error as _;

use instant_acme::{Error, Problem};

/// How the types of problems begin (RFC 8555 §6.7).
const PREFIX: &str = "urn:ietf:params:acme:error:";
/// The longest text that is kept of an error, in characters.
const TEXT_MAX: usize = 500;

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The same step can be tried at once: a nonce was used up.
    Again,
    /// The authority does not know the account.
    NoAccount,
    /// The same step may succeed later.
    Temporary,
    /// The order has failed. Another one may succeed.
    Refused,
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct StepFailure {
    /// What follows.
    pub(crate) kind: FailureKind,
    /// The reason, for operators.
    pub(crate) text: String,
}

impl StepFailure {
    /// A failure with this reason, as one that comes from outside.
    pub(crate) fn new(kind: FailureKind, text: &str) -> Self {
        let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        Self { kind, text: shown.take(TEXT_MAX).collect() }
    }

    /// A failure of this machine, which may pass.
    pub(crate) fn here(error: &impl std::fmt::Display) -> Self {
        Self::new(FailureKind::Temporary, &error.to_string())
    }
}

impl From<Error> for StepFailure {
    fn from(error: Error) -> Self {
        Self::new(kind_of(&error), &text_of(&error))
    }
}

/// What an error means.
pub(crate) fn kind_of(error: &Error) -> FailureKind {
    match error {
        Error::Api(problem) => kind_of_problem(problem),
        Error::Crypto | Error::KeyRejected | Error::InvalidUri(_) | Error::Unsupported(_) => {
            FailureKind::Refused
        }
        // An answer that is no JSON is that of a broken server, or of another one.
        _ => FailureKind::Temporary,
    }
}

fn kind_of_problem(problem: &Problem) -> FailureKind {
    let name = problem.r#type.as_deref().and_then(|name| name.strip_prefix(PREFIX));
    match (name, problem.status) {
        (Some("badNonce"), _) => FailureKind::Again,
        (Some("accountDoesNotExist"), _) => FailureKind::NoAccount,
        (Some("rateLimited" | "serverInternal" | "orderNotReady"), _) => FailureKind::Temporary,
        (_, Some(429 | 500..)) => FailureKind::Temporary,
        _ => FailureKind::Refused,
    }
}

/// Whether an authority has refused only that an order replaces a certificate: it was replaced already (RFC 9773 §5), or
/// replacing is not known there.
pub(crate) fn refuses_replacing(error: &Error) -> bool {
    match error {
        Error::Api(problem) => kind_of_problem(problem) == FailureKind::Refused,
        // instant-acme compares what the authority has understood, and reports a difference as `Other`; so it does with
        // a connection that broke, after which an order without the field does no harm.
        Error::Unsupported(_) | Error::Other(_) => true,
        _ => false,
    }
}

/// The reason of a problem, with those of its parts.
pub(crate) fn text_of_problem(problem: &Problem) -> String {
    let text = problem.to_string();
    text.strip_prefix("API error: ").unwrap_or(&text).to_owned()
}

fn text_of(error: &Error) -> String {
    if let Error::Api(problem) = error {
        return text_of_problem(problem);
    }
    if let Error::Json(why) = error {
        return format!(
            "the answer is not that of ACME: [acme] directory is the URL of another page, or the server is broken ({why})"
        );
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_page_leads_to_the_directory() {
        let error = Error::Json(serde_json::from_str::<u8>("<html>").unwrap_err());
        let text = StepFailure::from(error).text;
        assert!(text.contains("[acme] directory is the URL of another page"), "{text}");
    }

    fn problem(name: &str, status: u16) -> Error {
        let json = format!(
            r#"{{"type":"urn:ietf:params:acme:error:{name}","detail":"why","status":{status}}}"#
        );
        Error::Api(serde_json::from_str(&json).unwrap())
    }

    #[test]
    fn what_an_error_means_for_the_order() {
        for (name, status, expected) in [
            ("badNonce", 400, FailureKind::Again),
            ("accountDoesNotExist", 400, FailureKind::NoAccount),
            ("rateLimited", 429, FailureKind::Temporary),
            ("serverInternal", 500, FailureKind::Temporary),
            ("unauthorized", 403, FailureKind::Refused),
            ("alreadyReplaced", 409, FailureKind::Refused),
            ("malformed", 404, FailureKind::Refused),
            ("unknown", 503, FailureKind::Temporary),
        ] {
            assert_eq!(kind_of(&problem(name, status)), expected, "{name}");
        }
        let broken = serde_json::from_str::<Problem>("<html>").unwrap_err();
        assert_eq!(kind_of(&Error::Json(broken)), FailureKind::Temporary);
    }

    #[test]
    fn an_order_is_repeated_without_replacing_only_where_that_may_help() {
        assert!(refuses_replacing(&problem("alreadyReplaced", 409)));
        assert!(refuses_replacing(&problem("malformed", 400)));
        assert!(refuses_replacing(&Error::Unsupported("ARI")));
        assert!(!refuses_replacing(&problem("rateLimited", 429)));
        assert!(!refuses_replacing(&problem("badNonce", 400)));
    }

    #[test]
    fn a_reason_has_a_bound_and_stays_on_one_line() {
        let failure = StepFailure::new(FailureKind::Refused, &"a\n".repeat(TEXT_MAX));
        assert_eq!(failure.text.chars().count(), TEXT_MAX);
        assert!(!failure.text.contains('\n'));
        let text = StepFailure::from(problem("unauthorized", 403)).to_string();
        assert_eq!(text, "why (urn:ietf:params:acme:error:unauthorized)");
    }
}
