//! Converts a plan's `[[listen]]` into the sockets of each thread.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anteroom_config::{Address, Listen};
use anteroom_proxy::serve::listen::{self, Inherited};
use anteroom_proxy::serve::socket::Socket;
use anteroom_proxy::serve::tls::ClientTls;
use anteroom_proxy::serve::{ConnectionRules, Listener, ThreadListener};
use anteroom_tls::TicketKeys;
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::start_error::StartError;
use super::tls;

/// The listeners for visitors.
#[derive(Debug)]
pub(super) struct Listeners {
    threads: usize,
    open: Vec<Open>,
    inherited: Option<Inherited>,
    /// The TLS of the listeners that use it.
    tls: tls::All,
    ticket_keys: Arc<TicketKeys>,
}

/// The open sockets of one `[[listen]]`.
#[derive(Debug)]
struct Open {
    plan: Listen,
    terms: Arc<ArcSwap<ConnectionRules>>,
    closed: CancellationToken,
    /// The entrances of each thread, until the thread takes them.
    by_thread: Vec<Vec<ThreadListener>>,
    /// The real TCP addresses.
    addresses: Vec<SocketAddr>,
    /// The Unix socket. Its file is removed when the listener closes.
    file: Option<Socket>,
}

/// A change that has been checked and cannot fail.
#[derive(Debug)]
pub(super) struct Change {
    opened: Vec<Open>,
    /// The listeners that stay, by index, with their new terms.
    kept: Vec<(usize, Listen, ConnectionRules)>,
}

impl Listeners {
    /// Opens all listeners for this number of threads.
    pub(super) fn open(all: &[Listen], threads: usize) -> Result<Self, StartError> {
        let (tls, ticket_keys) = (tls::All::default(), Arc::default());
        let mut listeners = Self { threads, open: Vec::new(), inherited: None, tls, ticket_keys };
        for one in all {
            let open = listeners.open_one(one, true)?;
            listeners.open.push(open);
        }
        listeners.gather_tls();
        Ok(listeners)
    }

    /// Their TCP addresses.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.open.iter().flat_map(|open| open.addresses.iter().copied()).collect()
    }

    /// Whether the listener at an address serves https.
    pub(super) fn is_secured(&self, address: SocketAddr) -> bool {
        self.open.iter().any(|open| open.plan.is_secured() && open.addresses.contains(&address))
    }

    /// The TLS of the listeners that use it, now and after each change.
    pub(super) fn tls(&self) -> &tls::All {
        &self.tls
    }

    /// The keys of tickets that they share with other proxies.
    pub(super) fn ticket_keys(&self) -> &Arc<TicketKeys> {
        &self.ticket_keys
    }

    /// The TLS of each listener that uses it, with the address of the listener.
    pub(super) fn secured(&self) -> Vec<(String, Arc<ClientTls>)> {
        let tls =
            |open: &Open| Some((open.plan.address.to_string(), open.terms.load().tls.clone()?));
        self.open.iter().filter_map(tls).collect()
    }

    fn gather_tls(&self) {
        let all = self.open.iter().filter_map(|open| open.terms.load().tls.clone());
        self.tls.store(Arc::new(all.collect()));
    }

    /// The paths of the open Unix sockets.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        let files = self.open.iter().filter_map(|open| open.file.as_ref());
        files.map(|socket| socket.path().to_owned()).collect()
    }

    /// The entrances that each thread has not taken yet.
    pub(super) fn take_entrances(&mut self) -> Vec<Vec<ThreadListener>> {
        let mut all: Vec<_> = (0..self.threads).map(|_| Vec::new()).collect();
        for open in &mut self.open {
            for (of_thread, entrances) in all.iter_mut().zip(open.by_thread.drain(..)) {
                of_thread.extend(entrances);
            }
        }
        all
    }

    /// Opens the listeners that a new plan adds. Nothing else changes before [`Self::carry_out`].
    pub(super) fn prepare(&mut self, all: &[Listen]) -> Result<Change, StartError> {
        let mut change = Change { opened: Vec::new(), kept: Vec::new() };
        for one in all {
            // Each listener on port 0 is a separate one.
            let is_kept = |place: usize| change.kept.iter().any(|(kept, ..)| *kept == place);
            let same = |(place, open): &(usize, &Open)| {
                open.plan.address == one.address && !is_kept(*place)
            };
            match self.open.iter().enumerate().find(same).map(|(place, _)| place) {
                Some(place) => {
                    let old = self.open[place].terms.load();
                    let terms = terms(one, Some(&old), &self.ticket_keys)?;
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

    /// An address that the reload will release is still in use while the new one is opened.
    fn is_free_of_ours(&self, address: &Address) -> Result<(), StartError> {
        let mut own = self.open.iter().map(|open| &open.plan.address);
        let Some(own) = own.find(|own| own.meets(address)) else { return Ok(()) };
        let text =
            format!("this process already listens on {own}, which overlaps; restart to change it");
        Err(StartError::Listen {
            address: address.to_string(),
            what: "visitors",
            flag: "--listen",
            source: io::Error::new(io::ErrorKind::AddrInUse, text),
        })
    }

    /// Closes the listeners that the new plan lacks, and applies its terms.
    pub(super) fn carry_out(&mut self, change: Change) {
        let mut old: Vec<_> = std::mem::take(&mut self.open).into_iter().map(Some).collect();
        for (place, plan, terms) in change.kept {
            if let Some(mut open) = old[place].take() {
                if let Some(file) = open.file.as_ref().filter(|_| open.plan.mode != plan.mode)
                    && let Err(error) = file.set_mode(plan.mode)
                {
                    tracing::warn!(%error, address = %plan.address, "the mode of a socket could not be changed");
                }
                open.plan = plan;
                let terms = Arc::new(terms);
                open.terms.swap(Arc::clone(&terms)).give_way(Some(&terms));
                self.open.push(open);
            }
        }
        for gone in old.into_iter().flatten() {
            tracing::info!(address = %gone.plan.address, "a listener was closed");
            gone.closed.cancel();
            gone.terms.load().give_way(None);
        }
        for new in &change.opened {
            tracing::info!(address = %new.plan.address, "a listener was opened");
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
        let terms = Arc::new(ArcSwap::from_pointee(terms(one, None, &self.ticket_keys)?));
        let closed = CancellationToken::new();
        let entrance = |listener| {
            let (terms, closed) = (Arc::clone(&terms), closed.clone());
            ThreadListener { listener, terms, closed }
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
                    let text = "systemd passes sockets only at start; restart to use them";
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

    /// Lets all threads accept from the same queues.
    fn share(&self, listeners: &[Listener]) -> io::Result<Vec<Vec<Listener>>> {
        let of_thread = || listeners.iter().map(Listener::another).collect();
        (0..self.threads).map(|_| of_thread()).collect()
    }
}

/// The terms of a listener. Unchanged TLS is kept, with the tickets that it alone accepts.
fn terms(
    one: &Listen,
    old: Option<&ConnectionRules>,
    ticket_keys: &Arc<TicketKeys>,
) -> Result<ConnectionRules, StartError> {
    let tls = tls::open(one, old.and_then(|old| old.tls.as_ref()), ticket_keys)?;
    let mut terms = ConnectionRules {
        balancers: one.balancers.clone(),
        h2: one.h2,
        tls,
        outdated: CancellationToken::new(),
        entry: tls::entry(one),
    };
    if let Some(old) = old.filter(|_| !terms.requests_client_certs()) {
        // Connections from before the change share the token with later ones.
        terms.outdated = old.outdated.clone();
    }
    Ok(terms)
}
