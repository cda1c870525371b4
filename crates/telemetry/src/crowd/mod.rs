//! Who takes the origins' time lately: networks, user agents, patterns of URLs, and classes of requests.
//!
//! Each thread has a table of its own; a reader adds them up. Everything is bounded, and forgotten within minutes. No
//! whole address, no token and no value of a query is kept.

mod load;
mod network;
mod pattern;
mod table;
mod url_memory;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::RandomState;
use anteroom_policy::priority::RequestClass;

use load::FadingLoad;
use network::network;
use pattern::{CUT, pattern_hash, pattern_text};
use table::HeavyTable;

pub(crate) use load::CLASSES;
pub use load::Load;
pub(crate) use url_memory::UrlMemory;

/// The longest user agent that is kept, in bytes.
const AGENT_MAX: usize = 120;
/// The most that is told of each table.
pub const CROWD_TOLD_MAX: usize = 20;
/// The most origins whose seconds are counted separately. No configuration has more; reloads may.
const ORIGINS_MAX: usize = 1_000;
/// The name under which the seconds of further ones are counted.
const OTHERS: &str = "others";
/// PERF: of requests that took less time than this, which keep no app at work, one stands for so many.
const SHORT: Duration = Duration::from_millis(5);
const SHORT_FOR_ONE: u32 = 16;
/// New URLs of a pattern never end if it has more requests than this lately,
const ENDLESS_REQUESTS: f64 = 200.0;
/// and more than this part of them was for new URLs.
const ENDLESS_PART: f64 = 0.9;

/// What a request took of its origin's time.
#[derive(Clone, Copy, Debug)]
pub struct OriginTime<'t> {
    /// The class of the request.
    pub class: RequestClass,
    /// The visitor, if a visitor waits for the answer.
    pub asker: Option<Asker<'t>>,
    /// The path as it may be shown.
    pub path: &'t str,
    /// The query; only names of parameters are kept.
    pub query: Option<&'t str>,
    /// Whether the URL was not asked for before.
    pub is_new: bool,
    /// From the moment when it was sent until the answer's head came, or the request was given up.
    pub took: Duration,
    /// How many requests it stands for.
    pub weight: f64,
}

/// What is told of the visitor of a request.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'t> {
    /// The address, if it is known. Only its network is kept.
    pub address: Option<IpAddr>,
    /// The user agent.
    pub agent: &'t [u8],
}

/// What one thread knows of who takes the origins' time.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    hasher: RandomState,
    networks: HeavyTable,
    agents: HeavyTable,
    patterns: HeavyTable,
    classes: [Option<FadingLoad>; CLASSES],
    /// Microseconds since the start, by origin and class.
    origins: BTreeMap<Arc<str>, [u64; CLASSES]>,
    /// Short requests since the last that was added.
    short: u32,
}

impl Crowd {
    /// Counts the time of a request. Returns for how many requests it stands in the tables; `None`: another one does for it.
    pub(crate) fn count(
        &mut self,
        origin: &Arc<str>,
        class: RequestClass,
        took: Duration,
    ) -> Option<f64> {
        self.count_micros(origin, class, took);
        if took >= SHORT {
            return Some(1.0);
        }
        self.short += 1;
        let is_due = self.short == SHORT_FOR_ONE;
        is_due.then(|| f64::from(std::mem::take(&mut self.short)))
    }

    /// Adds a request to the tables.
    pub(crate) fn add(&mut self, time: &OriginTime<'_>, now: Instant) {
        let OriginTime { class, path, query, .. } = *time;
        let load = Load::of_request(class, time.took, time.is_new).scaled(time.weight);
        let hasher = &self.hasher;
        if let Some(Asker { address, agent }) = time.asker {
            if let Some(network) = address.map(network) {
                self.networks.add(hasher.hash_one(network), &load, now, || network.to_string());
            }
            let agent = &agent[..agent.len().min(AGENT_MAX)];
            let name = || String::from_utf8_lossy(agent).into_owned();
            self.agents.add(hasher.hash_one(agent), &load, now, name);
        }
        let pattern = pattern_hash(hasher, path, query);
        self.patterns.add(pattern, &load, now, || pattern_text(path, query));
        match &mut self.classes[class as usize] {
            Some(known) => known.add(&load, now),
            unknown => *unknown = Some(FadingLoad::new(&load, now)),
        }
    }

    fn count_micros(&mut self, origin: &Arc<str>, class: RequestClass, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(known) = self.origins.get_mut(&**origin) {
            known[class as usize] += micros;
            return;
        }
        let has_room = self.origins.len() < ORIGINS_MAX;
        let name = if has_room { Arc::clone(origin) } else { OTHERS.into() };
        self.origins.entry(name).or_default()[class as usize] += micros;
    }

    /// Adds the microseconds since the start to `sum`.
    pub(crate) fn add_micros(&self, sum: &mut BTreeMap<Arc<str>, [u64; CLASSES]>) {
        for (origin, micros) in &self.origins {
            let sum = sum.entry(Arc::clone(origin)).or_default();
            for (sum, micros) in sum.iter_mut().zip(micros) {
                *sum += micros;
            }
        }
    }
}

/// One of those that take the origins' time.
#[derive(Clone, Debug, PartialEq)]
pub struct CrowdMember {
    /// The network, the user agent, or the pattern of URLs.
    pub name: String,
    /// What it took lately.
    pub load: Load,
}

impl CrowdMember {
    /// Whether new URLs of the pattern never end.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        let Load { requests, new_urls, .. } = self.load;
        requests > ENDLESS_REQUESTS && new_urls > requests * ENDLESS_PART
    }

    /// The path of a pattern without the names of parameters, and whether it has any; `None` if it was cut.
    #[must_use]
    pub fn path_pattern(&self) -> Option<(&str, bool)> {
        let (path, names) = self.name.split_once('?').unwrap_or((self.name.as_str(), ""));
        (!path.ends_with(CUT)).then_some((path, !names.is_empty()))
    }
}

/// Who takes the origins' time, over all threads. The heaviest come first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrowdTotals {
    /// Everything.
    pub all: Load,
    /// Networks.
    pub networks: Vec<CrowdMember>,
    /// User agents.
    pub agents: Vec<CrowdMember>,
    /// Patterns of URLs.
    pub patterns: Vec<CrowdMember>,
    /// By class, in the order of [`RequestClass::ALL`].
    pub classes: [Load; CLASSES],
}

impl CrowdTotals {
    pub(crate) fn sum<'c>(threads: impl Iterator<Item = &'c Crowd> + Clone, now: Instant) -> Self {
        let mut classes = [Load::default(); CLASSES];
        for (class, load) in threads.clone().flat_map(|crowd| classes_of(crowd, now)).flatten() {
            classes[class].add(&load);
        }
        let mut all = Load::default();
        classes.iter().for_each(|load| all.add(load));
        Self {
            all,
            networks: heaviest(threads.clone().map(|crowd| &crowd.networks), now),
            agents: heaviest(threads.clone().map(|crowd| &crowd.agents), now),
            patterns: heaviest(threads.map(|crowd| &crowd.patterns), now),
            classes,
        }
    }
}

fn classes_of(crowd: &Crowd, now: Instant) -> [Option<(usize, Load)>; CLASSES] {
    std::array::from_fn(|class| crowd.classes[class].map(|load| (class, load.now(now))))
}

/// The heaviest entries of all tables.
fn heaviest<'t>(tables: impl Iterator<Item = &'t HeavyTable>, now: Instant) -> Vec<CrowdMember> {
    let mut sum = BTreeMap::new();
    tables.for_each(|table| table.add_to(&mut sum, now));
    let mut all: Vec<(&str, Load)> = sum.into_iter().collect();
    all.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    let told = all.into_iter().take(CROWD_TOLD_MAX);
    told.map(|(name, load)| CrowdMember { name: name.to_owned(), load }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time<'t>(urls: &UrlMemory, address: &str, path: &'t str, query: &'t str) -> OriginTime<'t> {
        let address = Some(address.parse().unwrap());
        OriginTime {
            is_new: urls.is_new(path, Some(query)),
            weight: 1.0,
            class: RequestClass::New,
            asker: Some(Asker { address, agent: b"Crawler/1.0 (a bot)" }),
            path,
            query: Some(query),
            took: Duration::from_millis(20),
        }
    }

    fn totals(crowds: &[Crowd], now: Instant) -> CrowdTotals {
        CrowdTotals::sum(crowds.iter(), now)
    }

    #[test]
    fn a_crawl_from_ten_thousand_networks_has_one_agent_and_an_endless_pattern() {
        let (mut crowds, urls) = ([Crowd::default(), Crowd::default()], UrlMemory::default());
        let begin = Instant::now();
        let mut now = begin;
        for number in 0..10_000_u32 {
            now = begin + Duration::from_millis(u64::from(number) * 2);
            let address = format!("10.{}.{}.7", number / 256, number % 256);
            let query = format!("color={number}&page=2");
            let crowd = &mut crowds[number as usize % 2];
            crowd.add(&time(&urls, &address, "/shop/shirts", &query), now);
            if number % 40 == 0 {
                crowd.add(&time(&urls, "192.0.2.9", "/about", ""), now);
            }
        }
        let totals = totals(&crowds, now);
        assert_eq!(totals.networks[0].name, "192.0.2.0/24");
        assert_eq!(totals.networks.len(), CROWD_TOLD_MAX);
        assert_eq!(totals.agents.len(), 1);
        assert_eq!(totals.agents[0].name, "Crawler/1.0 (a bot)");
        let [shop, about] = &totals.patterns[..] else { panic!("{:?}", totals.patterns) };
        assert_eq!((shop.name.as_str(), shop.is_endless()), ("/shop/*?color&page", true));
        assert_eq!(shop.path_pattern(), Some(("/shop/*", true)));
        assert_eq!((about.name.as_str(), about.is_endless()), ("/about", false));
        let new = totals.classes[RequestClass::New as usize];
        assert!((new.requests - totals.all.requests).abs() < 1e-6);
    }

    #[test]
    fn the_same_urls_again_and_again_are_not_endless() {
        let (mut crowd, urls) = (Crowd::default(), UrlMemory::default());
        let now = Instant::now();
        for number in 0..5_000 {
            let path = format!("/product/{}", number % 500);
            crowd.add(&time(&urls, "2001:db8:1:2::3", &path, ""), now);
        }
        let totals = totals(&[crowd], now);
        assert!(!totals.patterns[0].is_endless(), "{:?}", totals.patterns[0]);
        assert_eq!(totals.networks[0].name, "2001:db8:1::/48");
    }

    #[test]
    fn texts_are_cut_and_the_proxys_own_requests_have_no_visitor() {
        let (mut crowd, urls) = (Crowd::default(), UrlMemory::default());
        let now = Instant::now();
        let agent = "é".repeat(1_000);
        let mut one = time(&urls, "192.0.2.9", "/", "");
        one.asker = Some(Asker { address: None, agent: agent.as_bytes() });
        crowd.add(&one, now);
        one.asker = None;
        crowd.add(&one, now);
        let totals = totals(&[crowd], now);
        assert_eq!(totals.agents[0].name.len(), AGENT_MAX);
        assert_eq!(totals.agents[0].load.requests, 1.0);
        assert!(totals.networks.is_empty());
        assert_eq!(totals.all.requests, 2.0);
    }

    #[test]
    fn all_time_is_counted_and_of_short_requests_one_stands_for_many() {
        let (mut crowd, origin) = (Crowd::default(), Arc::from("origin"));
        let (long, short) = (Duration::from_millis(20), Duration::from_millis(1));
        assert_eq!(crowd.count(&origin, RequestClass::New, long), Some(1.0));
        let weights: Vec<f64> = (0..2 * SHORT_FOR_ONE)
            .filter_map(|_| crowd.count(&origin, RequestClass::New, short))
            .collect();
        assert_eq!(weights, [f64::from(SHORT_FOR_ONE); 2]);
        let mut micros = BTreeMap::new();
        crowd.add_micros(&mut micros);
        assert_eq!(micros["origin"][RequestClass::New as usize], 20_000 + 32 * 1_000);
    }
}
