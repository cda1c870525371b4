//! A name with its certificate and its order: what is to be done, and when. Pure.

use anteroom_config::WantedName;

use crate::board::{CertificateState, NameStatus};
use crate::issued::HeldCertificate;
use crate::share::SharedCertificate;
use crate::state::{NameState, Renewal};

/// A name with what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct NameRecord {
    pub(crate) wanted: WantedName,
    pub(crate) state: NameState,
    pub(crate) held: Option<HeldCertificate>,
    /// The Unix time from which on it counts as valid where proxies share it, if not from its own: it has replaced one
    /// that was dated back less.
    pub(crate) counts_from: Option<i64>,
    /// The Unix time before which its order rests.
    pub(crate) rests_until: i64,
    /// The digest of a shared certificate that did not pass the check: it is not tried again.
    pub(crate) refused: Option<String>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// An order is begun.
    Begin,
    /// An order goes on.
    Advance,
    /// The authority is asked when a certificate is to be renewed.
    AskWindow,
}

impl NameRecord {
    /// The certificate in use, if an authority has issued it.
    pub(crate) fn issued(&self) -> Option<&HeldCertificate> {
        self.held.as_ref().filter(|held| !held.is_self_signed)
    }

    /// The Unix time from which on the certificate in use counts as valid where proxies share it: of two, the later one
    /// counts.
    pub(crate) fn counts_from(&self) -> Option<i64> {
        self.issued().map(|held| self.counts_from.unwrap_or_else(|| *held.valid.start()))
    }

    /// Lets the certificate in use count as later than one that it replaces. Authorities date certificates back, some by
    /// an hour, some to midnight: proxies would keep the old one, and share it again.
    pub(crate) fn count_after(&mut self, replaced: Option<i64>) {
        let after = replaced.map(|replaced| replaced.saturating_add(1));
        self.counts_from = self.counts_from().max(after);
    }

    /// Takes note of what proxies share.
    pub(crate) fn note_shared(&mut self, shared: &SharedCertificate) {
        if self.issued().is_some_and(|held| held.digest == shared.digest) {
            self.counts_from = Some(shared.not_before);
        }
    }

    /// The renewal of the certificate in use.
    pub(crate) fn renewal(&self) -> Option<&Renewal> {
        let held = self.issued()?;
        self.state.renewal.as_ref().filter(|renewal| renewal.of == held.digest)
    }

    /// The Unix time at which an order is due; that of a name without a certificate always is, unless one failed.
    fn due(&self) -> i64 {
        let due = match (self.issued(), self.renewal()) {
            (None, _) if self.state.failures == 0 => return 0,
            (None, _) => 0,
            (Some(_), _) if self.state.is_requested => 0,
            (Some(_), Some(renewal)) => renewal.at,
            // It is not known yet: the window is asked for first.
            (Some(held), None) => *held.valid.end(),
        };
        due.max(self.state.next_try)
    }

    /// When something is to be done, in Unix time.
    pub(crate) fn next(&self) -> i64 {
        if self.state.order.is_some() {
            return self.rests_until.max(self.state.next_try);
        }
        self.due().min(self.asks_window())
    }

    /// The Unix time at which the authority is asked for the window.
    fn asks_window(&self) -> i64 {
        match (self.issued(), self.renewal()) {
            (Some(_), Some(renewal)) => renewal.ask_again,
            (Some(_), None) => 0,
            (None, _) => i64::MAX,
        }
    }

    /// What is to be done at `now`, in Unix time.
    pub(crate) fn work(&self, now: i64) -> Option<Work> {
        if self.next() > now {
            return None;
        }
        if self.state.order.is_some() {
            return Some(Work::Advance);
        }
        Some(if self.due() <= now { Work::Begin } else { Work::AskWindow })
    }

    /// Whether a certificate that proxies share is another one, and no older.
    pub(crate) fn is_older_than(&self, shared: &SharedCertificate) -> bool {
        if self.refused.as_ref() == Some(&shared.digest) {
            return false;
        }
        let is_same = self.issued().is_some_and(|held| held.digest == shared.digest);
        !is_same && self.counts_from().is_none_or(|counts_from| counts_from <= shared.not_before)
    }

    /// How it stands at `now`, in Unix time.
    pub(crate) fn status(&self, now: i64) -> NameStatus {
        let NameState { order, failures, next_try, last_error, failed_at, .. } = &self.state;
        let issued = self.issued();
        let state = match issued {
            None => CertificateState::SelfSigned,
            Some(held) if *held.valid.end() <= now => CertificateState::Expired,
            Some(_) if order.is_some() => CertificateState::Renewing,
            Some(_) => CertificateState::InUse,
        };
        NameStatus {
            name: self.wanted.name.clone(),
            state,
            challenge: self.wanted.challenge.as_str().to_owned(),
            issuer: issued.map(|held| held.issuer.clone()),
            not_after: issued.map(|held| *held.valid.end()),
            renew_at: self.renewal().map(|renewal| renewal.at),
            next_try: (*failures > 0).then_some(*next_try),
            failures: *failures,
            last_error: last_error.clone(),
            failed_at: *failed_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_config::AcmeChallenge;

    use super::*;
    use crate::state::OrderRecord;

    fn certificate(is_self_signed: bool) -> HeldCertificate {
        HeldCertificate {
            valid: 0..=90,
            is_self_signed,
            digest: "1".to_owned(),
            issuer: "CN=Test".to_owned(),
            der: Vec::<u8>::new().into(),
        }
    }

    fn name_with(held: Option<HeldCertificate>) -> NameRecord {
        let challenge = AcmeChallenge::Http01;
        let wanted = WantedName { name: "a.net".to_owned(), challenge };
        let state = NameState::default();
        NameRecord { wanted, state, held, counts_from: None, rests_until: 0, refused: None }
    }

    fn renewal(of: &str, at: i64, ask_again: i64) -> Option<Renewal> {
        Some(Renewal { of: of.to_owned(), at, window: None, ask_again })
    }

    #[test]
    fn a_name_without_a_certificate_is_ordered_unless_it_waits() {
        for held in [None, Some(certificate(true))] {
            let mut record = name_with(held);
            record.state.next_try = 11;
            assert_eq!(record.work(10), Some(Work::Begin), "as after the loss of a file");
            assert_eq!(record.status(10).state, CertificateState::SelfSigned);
            record.state.failures = 1;
            assert_eq!(record.work(10), None);
            assert_eq!(record.work(11), Some(Work::Begin));
            record.state.order = Some(OrderRecord::default());
            assert_eq!(record.work(10), None, "an order waits, too");
            assert_eq!(record.work(11), Some(Work::Advance));
            record.rests_until = 12;
            assert_eq!(record.work(11), None);
        }
    }

    #[test]
    fn a_certificate_is_renewed_when_its_time_has_come_or_an_operator_wants_it() {
        let mut record = name_with(Some(certificate(false)));
        assert_eq!(record.work(10), Some(Work::AskWindow), "no time is known");
        record.state.renewal = renewal("other", 0, 0);
        assert_eq!(record.work(10), Some(Work::AskWindow), "that of another certificate");
        record.state.renewal = renewal("1", 60, 30);
        assert_eq!(record.work(29), None);
        assert_eq!(record.work(30), Some(Work::AskWindow));
        assert_eq!(record.work(60), Some(Work::Begin));
        record.state.is_requested = true;
        assert_eq!(record.work(10), Some(Work::Begin));
    }

    #[test]
    fn a_failure_to_renew_is_shown_beside_the_certificate_in_use() {
        let mut record = name_with(Some(certificate(false)));
        record.state = NameState {
            failures: 2,
            next_try: 50,
            last_error: Some("why".to_owned()),
            ..NameState::default()
        };
        let status = record.status(20);
        assert_eq!((status.state, status.not_after), (CertificateState::InUse, Some(90)));
        assert_eq!((status.failures, status.next_try), (2, Some(50)));
        record.state.order = Some(OrderRecord::default());
        assert_eq!(record.status(20).state, CertificateState::Renewing);
        assert_eq!(record.status(90).state, CertificateState::Expired);
    }

    #[test]
    fn a_certificate_counts_as_later_than_what_it_replaces() {
        let shared =
            |digest: &str, not_before| SharedCertificate { digest: digest.to_owned(), not_before };
        let mut record = name_with(Some(certificate(false)));
        record.count_after(None);
        assert_eq!(record.counts_from(), Some(0));
        record.count_after(Some(-7));
        assert_eq!(record.counts_from(), Some(0), "it is later by itself");
        record.count_after(Some(5));
        assert_eq!(record.counts_from(), Some(6));
        assert!(!record.is_older_than(&shared("2", 5)) && record.is_older_than(&shared("2", 6)));
        record.note_shared(&shared("2", 9));
        assert_eq!(record.counts_from(), Some(6), "that is another one");
        record.note_shared(&shared("1", 9));
        assert_eq!(record.counts_from(), Some(9));
    }

    #[test]
    fn a_shared_certificate_is_taken_if_it_is_another_and_no_older() {
        let shared =
            |digest: &str, not_before| SharedCertificate { digest: digest.to_owned(), not_before };
        for held in [None, Some(certificate(true))] {
            assert!(name_with(held).is_older_than(&shared("2", -5)));
        }
        let mut record = name_with(Some(certificate(false)));
        assert!(record.is_older_than(&shared("2", 0)));
        assert!(!record.is_older_than(&shared("2", -1)));
        assert!(!record.is_older_than(&shared("1", 9)));
        record.refused = Some("2".to_owned());
        assert!(!record.is_older_than(&shared("2", 0)), "it did not pass the check");
    }
}
