//! The tour of the demo in learn mode, where nothing is served from the cache.

use anteroom_demo::TourStep;

use super::tour::{Tour, step};

impl Tour<'_> {
    /// The steps in order.
    pub(super) fn learn_steps(&self) -> Vec<TourStep> {
        vec![self.forwarded(), self.predicted(), self.cookie(), self.login(), self.restarted()]
    }

    fn forwarded(&self) -> TourStep {
        let timed = self.timed("/item/umbrella");
        step(
            "Learn mode: the shop answers each request",
            &[
                ("A page takes 0.3 s: `detail=learn`", timed.clone()),
                ("The same page takes as long again: `detail=learn`", timed),
                (
                    "What the cache would do: `with mode = \"serve\": Fetched for the cache`",
                    self.ask(&format!("explain {}/item/umbrella", self.site)),
                ),
            ],
        )
    }

    fn predicted(&self) -> TourStep {
        let visits = format!(
            "for n in 2 3 4; do curl -so /dev/null --interface 127.0.0.$n {}/item/umbrella; done",
            self.site
        );
        step(
            "Report: what would have been hits",
            &[
                ("Three visitors, each at an address of its own, read the page", visits),
                ("Their requests would have been hits: `would have been hits`", self.report()),
            ],
        )
    }

    fn cookie(&self) -> TourStep {
        step(
            "Cookies: what keeps requests from the cache",
            &[
                (
                    "A cookie that no rule names: `detail=unknown-cookie`",
                    self.status("-b consent=1 ", "/account"),
                ),
                ("The report has it, with its reason: `unknown-cookie`", self.report()),
            ],
        )
    }

    fn login(&self) -> TourStep {
        let cookies = self.cookies("ada");
        let login = format!("curl -so /dev/null -c {cookies} -d user=ada {}/login", self.site);
        step(
            "Logins: the shop is told who asks, as ever",
            &[
                ("A login", login),
                (
                    "A page of ada's own: `detail=login`",
                    self.status(&format!("-b {cookies} "), "/account"),
                ),
                ("The session is known: `ada  logged in`", self.ask("sessions list")),
            ],
        )
    }

    fn restarted(&self) -> TourStep {
        step(
            "Start again",
            &[
                ("Forget what was learned: `forgotten`", self.ask("learn restart")),
                ("The report is empty: `0 requests`", self.report()),
            ],
        )
    }

    fn report(&self) -> String {
        self.ask("learn report")
    }
}
