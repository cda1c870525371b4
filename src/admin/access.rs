//! Who may do what: operators' tokens with their names and roles.

use std::fmt;
use std::sync::Arc;

use anteroom_http::bearer;
use sha2::{Digest as _, Sha256};

use anteroom_policy::admin::AdminRole;

/// The name of whoever sends commands over the socket.
const SOCKET: &str = "socket";

/// An operator, as a token names one.
#[derive(Clone)]
pub struct Operator {
    /// The name of the token.
    pub name: Arc<str>,
    /// What the token allows.
    pub role: AdminRole,
    /// The SHA-256 of the token, so that the token itself is held nowhere else. Of no token: zeros.
    digest: [u8; 32],
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// The bearer of `token`.
    #[must_use]
    pub fn with_token(name: &str, role: AdminRole, token: &[u8]) -> Self {
        Self { name: name.into(), role, digest: Sha256::digest(token).into() }
    }

    /// Whoever the system lets write to the socket.
    pub(super) fn at_socket() -> Self {
        Self { name: SOCKET.into(), role: AdminRole::All, digest: [0; 32] }
    }

    fn is_same(&self, other: &Self) -> bool {
        let has_same_token = bearer::is_same(&self.digest, &other.digest);
        has_same_token && self.name == other.name && self.role == other.role
    }
}

/// All operators with a token.
#[derive(Clone, Debug, Default)]
pub struct Operators(Vec<Operator>);

impl Operators {
    /// These.
    #[must_use]
    pub fn new(all: Vec<Operator>) -> Self {
        Self(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bearer of a token. It is compared with every token in constant time, so that the duration reveals nothing
    /// about any of them.
    pub(super) fn with_token(&self, given: &[u8]) -> Option<&Operator> {
        let given: [u8; 32] = Sha256::digest(given).into();
        let all = self.0.iter();
        all.fold(
            None,
            |found, one| if bearer::is_same(&one.digest, &given) { Some(one) } else { found },
        )
    }

    /// Whether an operator still has the same token and the same role.
    pub(super) fn has(&self, operator: &Operator) -> bool {
        self.0.iter().any(|one| one.is_same(operator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operators() -> Operators {
        Operators::new(vec![
            Operator::with_token("admin", AdminRole::All, b"first"),
            Operator::with_token("alice", AdminRole::Read, b"second"),
        ])
    }

    #[test]
    fn a_token_names_its_operator() {
        let all = operators();
        let name = |token: &[u8]| all.with_token(token).map(|one| one.name.to_string());
        assert_eq!(name(b"first").as_deref(), Some("admin"));
        assert_eq!(name(b"second").as_deref(), Some("alice"));
        for wrong in [&b"third"[..], b"", b"firs", b"first "] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_operator_is_known_by_name_role_and_token() {
        let all = operators();
        assert!(all.has(&Operator::with_token("alice", AdminRole::Read, b"second")));
        assert!(!all.has(&Operator::with_token("alice", AdminRole::All, b"second")));
        assert!(!all.has(&Operator::with_token("alice", AdminRole::Read, b"changed")));
        assert!(!all.has(&Operator::with_token("bob", AdminRole::Read, b"second")));
    }

    #[test]
    fn debug_output_shows_no_digest() {
        let shown = format!("{:?}", Operator::with_token("alice", AdminRole::Read, b"second"));
        assert_eq!(shown, "Operator { name: \"alice\", role: Read, .. }");
    }
}
