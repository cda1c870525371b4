//! From a plan's `[[listen]]` to the sockets of each thread.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::{StartError, tls};
use crate::config::{Address, Listen};
use crate::serve::listen::{self, Inherited};
use crate::serve::socket::Socket;
use crate::serve::{Entrance, Listener, Terms};

/// Where visitors are served.
#[derive(Debug)]
pub(super) struct Listeners {
    threads: usize,
    open: Vec<Open>,
    inherited: Option<Inherited>,
    /// The TLS of those that have any.
    tls: tls::All,
}

/// What is open for one `[[listen]]`.
#[derive(Debug)]
struct Open {
    plan: Listen,
    terms: Arc<ArcSwap<Terms>>,
    closed: CancellationToken,
    /// The entrances of each thread, until it has them.
    by_thread: Vec<Vec<Entrance>>,
    /// Where it really is, of TCP.
    addresses: Vec<SocketAddr>,
    /// The Unix socket, whose file goes when no more visitors are let in.
    file: Option<Socket>,
}

/// A change that nothing stands in the way of.
#[derive(Debug)]
pub(super) struct Change {
    opened: Vec<Open>,
    /// Those that stay, by their place, and their new terms.
    kept: Vec<(usize, Listen, Terms)>,
}

impl Listeners {
    /// Opens them all, for so many threads.
    pub(super) fn open(all: &[Listen], threads: usize) -> Result<Self, StartError> {
        let tls = tls::All::default();
        let mut listeners = Self { threads, open: Vec::new(), inherited: None, tls };
        for one in all {
            let open = listeners.open_one(one, true)?;
            listeners.open.push(open);
        }
        listeners.gather_tls();
        Ok(listeners)
    }

    /// Where they are, of TCP.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.open.iter().flat_map(|open| open.addresses.iter().copied()).collect()
    }

    /// Whether visitors at an address come by https.
    pub(super) fn is_secured(&self, address: SocketAddr) -> bool {
        self.open.iter().any(|open| open.plan.is_secured() && open.addresses.contains(&address))
    }

    /// The TLS of those that have any, now and after each change.
    pub(super) fn tls(&self) -> &tls::All {
        &self.tls
    }

    fn gather_tls(&self) {
        let all = self.open.iter().filter_map(|open| open.terms.load().tls.clone());
        self.tls.store(Arc::new(all.collect()));
    }

    /// The paths of the Unix sockets that we opened.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        let files = self.open.iter().filter_map(|open| open.file.as_ref());
        files.map(|socket| socket.path().to_owned()).collect()
    }

    /// The entrances of each thread that it does not have yet.
    pub(super) fn take_entrances(&mut self) -> Vec<Vec<Entrance>> {
        let mut all: Vec<_> = (0..self.threads).map(|_| Vec::new()).collect();
        for open in &mut self.open {
            for (of_thread, entrances) in all.iter_mut().zip(open.by_thread.drain(..)) {
                of_thread.extend(entrances);
            }
        }
        all
    }

    /// Opens what a new plan has beyond the old. Nothing else changes before [`Self::carry_out`].
    pub(super) fn prepare(&mut self, all: &[Listen]) -> Result<Change, StartError> {
        let mut change = Change { opened: Vec::new(), kept: Vec::new() };
        for one in all {
            // Of several with port 0 each is a listener of its own.
            let is_kept = |place: usize| change.kept.iter().any(|(kept, ..)| *kept == place);
            let same = |(place, open): &(usize, &Open)| {
                open.plan.address == one.address && !is_kept(*place)
            };
            match self.open.iter().enumerate().find(same).map(|(place, _)| place) {
                Some(place) => {
                    let terms = terms(one, Some(&self.open[place].terms.load()))?;
                    change.kept.push((place, one.clone(), terms));
                }
                None => {
                    self.is_free_of_ours(&one.address)?;
                    change.opened.push(self.open_one(one, false)?);
                }
            }
        }
        Ok(change)
    }

    /// An address of ours that goes at the end of a reload is still there while it is tried.
    fn is_free_of_ours(&self, address: &Address) -> Result<(), StartError> {
        let mut own = self.open.iter().map(|open| &open.plan.address);
        let Some(own) = own.find(|own| own.meets(address)) else { return Ok(()) };
        let text = format!("we listen on {own} ourselves, which is in its way: restart for that");
        Err(StartError::Listen {
            address: address.to_string(),
            what: "visitors",
            flag: "--listen",
            source: io::Error::new(io::ErrorKind::AddrInUse, text),
        })
    }

    /// Closes what the new plan has no more, and puts its terms into force.
    pub(super) fn carry_out(&mut self, change: Change) {
        let mut old: Vec<_> = std::mem::take(&mut self.open).into_iter().map(Some).collect();
        for (place, plan, terms) in change.kept {
            if let Some(mut open) = old[place].take() {
                if let Some(file) = open.file.as_ref().filter(|_| open.plan.mode != plan.mode)
                    && let Err(error) = file.set_mode(plan.mode)
                {
                    tracing::warn!(%error, address = %plan.address, "its mode stays as it was");
                }
                open.plan = plan;
                let terms = Arc::new(terms);
                open.terms.swap(Arc::clone(&terms)).give_way(Some(&terms));
                self.open.push(open);
            }
        }
        for gone in old.into_iter().flatten() {
            tracing::info!(address = %gone.plan.address, "no visitors are let in there any more");
            gone.closed.cancel();
            gone.terms.load().give_way(None);
        }
        for new in &change.opened {
            tracing::info!(address = %new.plan.address, "visitors are let in there, too");
        }
        self.open.extend(change.opened);
        self.gather_tls();
    }

    fn open_one(&mut self, one: &Listen, at_start: bool) -> Result<Open, StartError> {
        let (listeners, file) =
            self.sockets_of(one, at_start).map_err(|source| StartError::Listen {
                address: one.address.to_string(),
                what: "visitors",
                flag: "--listen",
                source,
            })?;
        let address = |listener: &Listener| match listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        };
        let addresses = listeners.first().into_iter().flatten().filter_map(address).collect();
        let terms = Arc::new(ArcSwap::from_pointee(terms(one, None)?));
        let closed = CancellationToken::new();
        let entrance = |listener| {
            let (terms, closed) = (Arc::clone(&terms), closed.clone());
            Entrance { listener, terms, closed }
        };
        let by_thread = listeners
            .into_iter()
            .map(|of_thread| of_thread.into_iter().map(entrance).collect())
            .collect();
        Ok(Open { plan: one.clone(), terms, closed, by_thread, addresses, file })
    }

    /// The sockets of each thread.
    fn sockets_of(
        &mut self,
        one: &Listen,
        at_start: bool,
    ) -> io::Result<(Vec<Vec<Listener>>, Option<Socket>)> {
        match &one.address {
            Address::Tcp(address) => {
                let sockets = listen::open(*address, self.threads)?;
                let sockets = sockets.into_iter().map(|socket| vec![Listener::Tcp(socket)]);
                Ok((sockets.collect(), None))
            }
            Address::Unix(path) => {
                let socket = Socket::open(path, one.mode)?;
                let listeners = self.share(&[Listener::Unix(socket.listener()?)])?;
                Ok((listeners, Some(socket)))
            }
            Address::Systemd(name) => {
                if !at_start {
                    let text = "systemd passes sockets at the start only: restart for them";
                    return Err(io::Error::other(text));
                }
                let inherited = self.inherited.get_or_insert_with(|| {
                    Inherited::new(&std::env::var("LISTEN_FDNAMES").unwrap_or_default())
                });
                let taken = inherited.take(name.as_deref())?;
                Ok((self.share(&taken)?, None))
            }
        }
    }

    /// Lets all threads take from the same queues.
    fn share(&self, listeners: &[Listener]) -> io::Result<Vec<Vec<Listener>>> {
        let of_thread = || listeners.iter().map(Listener::another).collect();
        (0..self.threads).map(|_| of_thread()).collect()
    }
}

/// The terms of a listener. TLS that is to be as it was stays, with the tickets that it gave out.
fn terms(one: &Listen, old: Option<&Terms>) -> Result<Terms, StartError> {
    let tls = tls::open(one, old.and_then(|old| old.tls.as_ref()))?;
    let mut terms = Terms {
        balancers: one.balancers.clone(),
        h2: one.h2,
        tls,
        outdated: CancellationToken::new(),
        entry: tls::entry(one),
    };
    if let Some(old) = old.filter(|_| !terms.asks_clients()) {
        // Who came before is one with who comes now.
        terms.outdated = old.outdated.clone();
    }
    Ok(terms)
}
