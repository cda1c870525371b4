//! The labels by which requests, pages, tunnels and connections are counted.

use crate::words::words;

words! {
    /// How the cache answered a request.
    pub enum Outcome {
        /// From this process's memory.
        HitMemory = "hit_memory",
        /// From the store.
        HitStore = "hit_store",
        /// From a fetch that another request began.
        HitFlight = "hit_flight",
        /// A stale page, while it is fetched again or the origin fails.
        HitStale = "hit_stale",
        /// A page that the origin confirmed with a 304.
        Revalidated = "revalidated",
        /// From the origin, through a fetch for the cache.
        Miss = "miss",
        /// Forwarded.
        Bypass = "bypass",
        /// Answered by the proxy, as an endpoint under `/_anteroom/`.
        Endpoint = "endpoint",
        /// Answered by the proxy with an error.
        Error = "error",
    }
}

impl Outcome {
    /// Whether a stored page, or another request's fetch, was the answer, and the origin was not asked.
    #[must_use]
    pub const fn is_hit(self) -> bool {
        matches!(self, Self::HitMemory | Self::HitStore | Self::HitFlight | Self::HitStale)
    }

    /// Whether the request was for a page of the origin, so that it counts in the share of hits.
    #[must_use]
    pub const fn is_of_page(self) -> bool {
        !matches!(self, Self::Endpoint | Self::Error)
    }

    /// The outcome of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }
}

words! {
    /// Why the store had no room for a page.
    pub enum UnstoredReason {
        /// Over `[store] max_page`.
        TooLarge = "too-large",
        /// The store is nearly full, and the page was requested only once.
        NearlyFull = "nearly-full",
        /// The store is full.
        Full = "full",
    }
}

words! {
    /// Why the origin was asked again after a fetch for the cache, for the visitor whose request began it.
    pub enum AskedAgain {
        /// The origin refused the fetch, which did nothing, and may admit the visitor's own request.
        Refusal = "refusal",
        /// The fetch left out a field by which the response may differ.
        Field = "field",
        /// The response sets a cookie that the app may bind to the client's address, and the fetch named the
        /// proxy's.
        Cookie = "cookie",
        /// The fetch left out a cookie, credentials or a certificate, by which the app may know the visitor.
        Identity = "identity",
        /// The client wants a part, the fetch was for the whole, and the origin has parts.
        Range = "range",
        /// The response came in a coding that the visitor's client does not read.
        Coding = "coding",
        /// The origin has confirmed a page that can no longer be used, and sent none.
        NotModified = "not-modified",
    }
}

words! {
    /// What ended a tunnel.
    pub enum TunnelEnd {
        /// The client closed first, or broke off.
        Client = "client",
        /// The origin closed first, or broke off.
        Origin = "origin",
        /// No bytes passed for `[limits] tunnel_idle`.
        Idle = "idle",
        /// The proxy stopped.
        Cut = "cut",
    }
}

words! {
    /// Why an HTTP/2 connection was cut: its client caused work without purpose, or broke the protocol.
    pub enum ConnectionCut {
        /// Too many DATA frames without data.
        Data = "data",
        /// Too many PRIORITY frames.
        Priority = "priority",
        /// Too many cancelled requests.
        Reset = "reset",
        /// Too many SETTINGS frames.
        Settings = "settings",
        /// Too many PING frames.
        Ping = "ping",
        /// Too many WINDOW_UPDATE frames.
        WindowUpdate = "window-update",
        /// Header sections in too many frames.
        Continuation = "continuation",
        /// Too many frames without effect.
        Other = "other",
        /// A limit of the library: resets, stream errors, small frames, header sections.
        Calm = "calm",
        /// The client broke the protocol.
        Protocol = "protocol",
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    const RULES: &str = include_str!("../../../../packaging/prometheus/anteroom.rules.yml");
    const GUIDE: &str = include_str!("../../../../docs/guides/monitoring.md");
    const GRAFANA: &str = include_str!("../../../../packaging/grafana/anteroom.json");

    /// The results that an expression of Prometheus matches.
    fn matched(expression: &str) -> Vec<Outcome> {
        let is_matched = |outcome: &Outcome| {
            expression.split('|').any(|one| match one.strip_suffix(".*") {
                Some(start) => outcome.as_str().starts_with(start),
                None => outcome.as_str() == one,
            })
        };
        Outcome::ALL.into_iter().filter(is_matched).collect()
    }

    #[test]
    fn alerts_and_panels_count_as_a_hit_what_the_proxy_counts() {
        let of = |is: fn(Outcome) -> bool| Outcome::ALL.into_iter().filter(|it| is(*it)).collect();
        let hits: Vec<_> = of(Outcome::is_hit);
        let pages: Vec<_> = of(Outcome::is_of_page);
        for (name, text) in [("rules", RULES), ("dashboard", GRAFANA), ("guide", GUIDE)] {
            let text = text.replace('\\', "");
            let counted: Vec<_> = text
                .split("result=~\"")
                .skip(1)
                .map(|rest| matched(rest.split('"').next().unwrap()))
                .collect();
            assert!(!counted.is_empty(), "{name}");
            for share in counted.chunks(2) {
                assert!(
                    [&hits, &vec![Outcome::Revalidated]].contains(&&share[0]),
                    "{name}: {share:?}"
                );
                assert_eq!(share.get(1), Some(&pages), "{name}");
            }
        }
    }
}
