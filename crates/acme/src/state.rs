//! What is kept of each name between two steps, and of the account.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::schedule::{ASK_MAX, WAIT_MAX};

/// How long an order may take, in seconds. An authority forgets one after days; a stuck one is given up before.
const ORDER_MAX: i64 = 2 * 3_600;
/// How long an authority may check a name, in seconds, before it is asked again, because it may have forgotten. Some look
/// once more whenever they are asked, and count each look that fails.
const CHECK_MAX: i64 = 600;

/// The state of a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NameState {
    /// The order in work.
    pub(crate) order: Option<OrderRecord>,
    /// The failures since the last certificate.
    pub(crate) failures: u32,
    /// The Unix time before which nothing is tried.
    pub(crate) next_try: i64,
    /// The reason of the last failure.
    pub(crate) last_error: Option<String>,
    /// The Unix time of the last failure.
    pub(crate) failed_at: Option<i64>,
    /// Whether an operator wants another certificate.
    pub(crate) is_requested: bool,
    /// When the certificate in use is renewed.
    pub(crate) renewal: Option<Renewal>,
    /// The directory of the authority that has issued the certificate in use.
    pub(crate) issued_by: Option<String>,
}

impl NameState {
    /// What counts of a saved state at `now`, in Unix time, where certificates are ordered from `directory`.
    pub(crate) fn resumed(mut self, directory: &str, now: i64) -> Self {
        // A clock that was ahead may have written times that would be waited for too long.
        self.next_try = self.next_try.min(now + WAIT_MAX);
        if let Some(renewal) = &mut self.renewal {
            renewal.ask_again = renewal.ask_again.min(now + ASK_MAX);
        }
        // The operator has turned to another authority, as after a trial.
        self.order = self.order.filter(|order| order.directory == directory);
        let is_of_another = self.issued_by.as_ref().is_some_and(|by| by != directory);
        if is_of_another && !self.is_requested {
            self.is_requested = true;
            self.next_try = 0;
        }
        self
    }
}

/// An order in work.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OrderRecord {
    /// The authority's directory.
    pub(crate) directory: String,
    /// The key of the certificate, in PEM. It is saved before the order is made.
    pub(crate) key: String,
    /// The order's URL, once the authority has made it.
    pub(crate) url: Option<String>,
    /// The Unix time at which it was begun.
    pub(crate) began: i64,
    /// The Unix time at which the authority was asked to check the name.
    pub(crate) asked_at: Option<i64>,
}

impl fmt::Debug for OrderRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SECURITY: the key does not print.
        f.debug_struct("OrderRecord")
            .field("url", &self.url)
            .field("began", &self.began)
            .finish_non_exhaustive()
    }
}

impl OrderRecord {
    /// Whether it takes too long at `now`, in Unix time.
    pub(crate) fn is_stuck(&self, now: i64) -> bool {
        now - self.began > ORDER_MAX
    }

    /// Whether the authority was asked to check the name, and may be at it at `now`, in Unix time.
    pub(crate) fn is_checked(&self, now: i64) -> bool {
        self.asked_at.is_some_and(|asked| (0..CHECK_MAX).contains(&now.saturating_sub(asked)))
    }
}

/// When a certificate is renewed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Renewal {
    /// The digest of the certificate.
    pub(crate) of: String,
    /// The Unix time of the renewal.
    pub(crate) at: i64,
    /// The window that the authority suggests, as Unix times.
    pub(crate) window: Option<(i64, i64)>,
    /// The Unix time at which the authority is asked for the window again.
    pub(crate) ask_again: i64,
}

/// The account with an authority.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AccountRecord {
    /// The authority's directory.
    pub(crate) directory: String,
    /// The key: PKCS #8, in Base64. It is saved before the account is made.
    pub(crate) key: String,
    /// The account's URL, once the authority has made it.
    pub(crate) id: Option<String>,
    /// The contact that the authority knows.
    pub(crate) email: Option<String>,
}

impl fmt::Debug for AccountRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SECURITY: the key does not print.
        f.debug_struct("AccountRecord")
            .field("directory", &self.directory)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_another_version_is_read_as_far_as_it_is_known() {
        let state: NameState = serde_json::from_str(r#"{"failures":3,"later":true}"#).unwrap();
        assert_eq!(state, NameState { failures: 3, ..NameState::default() });
    }

    #[test]
    fn an_order_at_another_authority_is_given_up_and_its_certificate_replaced() {
        let order = OrderRecord { directory: "a".to_owned(), ..OrderRecord::default() };
        let state = NameState {
            order: Some(order),
            issued_by: Some("a".to_owned()),
            ..NameState::default()
        };
        assert_eq!(state.clone().resumed("a", 0), state);
        let other = state.resumed("b", 0);
        assert!(other.order.is_none() && other.is_requested);
    }

    #[test]
    fn a_time_in_the_far_future_is_not_waited_for() {
        let renewal = Renewal { of: String::new(), at: 7, window: None, ask_again: i64::MAX };
        let state =
            NameState { next_try: i64::MAX, renewal: Some(renewal), ..NameState::default() };
        let resumed = state.resumed("a", 100);
        assert_eq!(resumed.next_try, 100 + WAIT_MAX);
        assert_eq!(resumed.renewal.unwrap().ask_again, 100 + ASK_MAX);
    }

    #[test]
    fn an_authority_has_minutes_to_check_a_name() {
        let asked = OrderRecord { asked_at: Some(1_000), ..OrderRecord::default() };
        for (now, expected) in [(999, false), (1_000, true), (1_599, true), (1_600, false)] {
            assert_eq!(asked.is_checked(now), expected, "{now}");
        }
        assert!(!OrderRecord::default().is_checked(0));
    }

    #[test]
    fn keys_do_not_print() {
        let key = "secret".to_owned();
        let order = OrderRecord { key: key.clone(), ..OrderRecord::default() };
        let account = AccountRecord { key, ..AccountRecord::default() };
        assert!(!format!("{order:?} {account:?}").contains("secret"));
    }
}
