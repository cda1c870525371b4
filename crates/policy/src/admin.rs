//! The rights of operators, and the cookie of their dashboard.

/// The cookie of a dashboard's session. Browsers send the cookies of a host to all of its ports, so the proxy cuts
/// it off from visitors' requests: the name belongs to it.
pub const DASHBOARD_COOKIE: &str = "anteroom_admin";

/// The longest name of a token, in bytes: each line of the audit log contains one.
pub const TOKEN_NAME_MAX: usize = 32;

/// What an operator's token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRole {
    /// To read figures, and to explain.
    Read,
    /// To purge, too.
    Purge,
    /// To read, and to list, show and revoke sessions.
    Sessions,
    /// Everything.
    All,
}

impl AdminRole {
    /// Every role with its word in the configuration and in answers.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("read", Self::Read),
        ("purge", Self::Purge),
        ("sessions", Self::Sessions),
        ("all", Self::All),
    ];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Purge => "purge",
            Self::Sessions => "sessions",
            Self::All => "all",
        }
    }

    /// Whether it allows what `needed` allows.
    #[must_use]
    pub fn includes(self, needed: Self) -> bool {
        self == Self::All || needed == Self::Read || self == needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_includes_reading_and_only_all_includes_others() {
        for (word, role) in AdminRole::WORDS {
            assert_eq!(role.word(), word);
            let included = AdminRole::WORDS.map(|(_, needed)| role.includes(needed));
            let expected = match role {
                AdminRole::Read => [true, false, false, false],
                AdminRole::Purge => [true, true, false, false],
                AdminRole::Sessions => [true, false, true, false],
                AdminRole::All => [true; 4],
            };
            assert_eq!(included, expected, "{word}");
        }
    }
}
