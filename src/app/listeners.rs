//! Converts a plan's `[[listen]]` into the sockets of each thread.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use anteroom_config::{Address, Listen};
use anteroom_policy::listener::AwaitedCertificates;
use anteroom_proxy::serve::listen::{self, BoundSocket};
use anteroom_proxy::serve::socket::Socket;
use anteroom_proxy::serve::tls::ClientTls;
use anteroom_proxy::serve::{ConnectionRules, Listener, ThreadListener};
use anteroom_tls::TicketKeys;
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::certificate_parts::CertificateParts;
use super::handed::{HandedSockets, kept_name};
use super::service_manager;
use super::start_error::StartError;
use super::tls;
use crate::take_over::message::{HandedSocket, Purpose};

/// The listeners for visitors.
#[derive(Debug)]
pub(super) struct Listeners {
    threads: usize,
    open: Vec<OpenListener>,
    /// The TLS of the listeners that use it.
    tls: tls::All,
    ticket_keys: Arc<TicketKeys>,
    /// The names whose first certificate is not there yet.
    awaited: Arc<AwaitedCertificates>,
}

/// The open sockets of one `[[listen]]`.
#[derive(Debug)]
struct OpenListener {
    plan: Listen,
    terms: Arc<ArcSwap<ConnectionRules>>,
    closed: CancellationToken,
    /// A handle on each queue of connections, for a successor.
    queues: Vec<Listener>,
    /// The entrances of each thread, until the thread takes them.
    by_thread: Vec<Vec<ThreadListener>>,
    /// Further sockets, two handles on each, and the threads that they are for. They do not listen so far.
    reserved: Vec<(usize, [BoundSocket; 2])>,
    /// The real TCP addresses.
    addresses: Vec<SocketAddr>,
    /// The Unix socket. Its file is removed when the listener closes.
    file: Option<Socket>,
    /// What the service manager has of this.
    kept: KeptState,
}

/// Whether the service manager has the sockets of a listener, too, for the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeptState {
    No,
    /// It may have those that were handed over, or all but those that were added since.
    Partly,
    /// It has got all of them.
    All,
}

/// A change that has been checked and cannot fail.
#[derive(Debug)]
pub(super) struct Change {
    opened: Vec<OpenListener>,
    /// The listeners that stay, by index, with their new terms.
    kept: Vec<(usize, Listen, ConnectionRules)>,
}

impl Listeners {
    /// Opens all listeners for this number of threads; those that were handed over are open already.
    pub(super) fn open(
        all: &[Listen],
        threads: usize,
        certificates: &CertificateParts,
        handed: &mut HandedSockets,
    ) -> Result<Self, StartError> {
        let mut listeners = Self {
            threads,
            open: Vec::new(),
            tls: Arc::clone(&certificates.tls),
            ticket_keys: Arc::default(),
            awaited: Arc::clone(&certificates.board.awaited),
        };
        for one in all {
            let open = listeners.open_one(one, Some(&mut *handed))?;
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
        let tls = |open: &OpenListener| {
            Some((open.plan.address.to_string(), open.terms.load().tls.clone()?))
        };
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
            for (of_thread, entrances) in all.iter_mut().zip(&mut open.by_thread) {
                of_thread.append(entrances);
            }
        }
        all
    }

    /// The first entrances of each thread. Where no other process serves, sockets that the service manager has kept are
    /// this process's own at once, and may be too few.
    pub(super) fn first_entrances(&mut self, is_alone: bool) -> Vec<Vec<ThreadListener>> {
        if is_alone {
            for open in &mut self.open {
                if let Err(error) = open.reserve() {
                    tracing::warn!(%error, address = %open.plan.address, "some threads accept no connection");
                }
            }
            self.fill_up();
            self.own_files();
        }
        self.take_entrances()
    }

    /// Has the service manager keep the sockets that it does not have so far while the process restarts.
    pub(super) async fn keep(&mut self) {
        for open in self.open.iter_mut().filter(|open| open.kept != KeptState::All) {
            open.keep().await;
        }
    }

    /// All sockets, for a successor: the same queues of connections.
    pub(super) fn hand_out(&self) -> Vec<(HandedSocket, BorrowedFd<'_>)> {
        let mut all = Vec::new();
        for open in &self.open {
            all.extend(open.queues.iter().map(|queue| (open.described(), queue.as_fd())));
        }
        all
    }

    /// Lets go of all handles but those of the threads, before these close theirs. A thread accepts what waits at a socket
    /// before it closes it; a handle that stays open longer would let connections in that nothing accepts. What comes to a
    /// socket that the service manager keeps waits for the next start; so its file stays.
    pub(super) fn release(&mut self) {
        for open in &mut self.open {
            open.queues.clear();
            if let Some(file) = open.file.as_mut().filter(|_| open.kept != KeptState::No) {
                file.leave_file();
            }
        }
    }

    /// Opens a socket for each thread that has none of an address, where fewer were handed over, before the threads
    /// take their entrances. It does not listen before [`Self::fill_up`]. Sockets that were handed over are all kept,
    /// because clients wait in them already.
    pub(super) fn reserve(&mut self) -> Result<(), StartError> {
        let reserve = |open: &mut OpenListener| {
            open.reserve().map_err(|source| not_opened(&open.plan.address, source))
        };
        self.open.iter_mut().try_for_each(reserve)
    }

    /// Listens at these sockets, and returns whether there are any, for the threads to take. From then on, some of the
    /// clients wait in them, and are lost if this process ends without serving.
    pub(super) fn fill_up(&mut self) -> bool {
        let mut has_added = false;
        for open in &mut self.open {
            has_added |= !open.reserved.is_empty();
            if let Err(error) = open.fill_up() {
                tracing::warn!(%error, address = %open.plan.address, "some threads accept no connection");
            }
        }
        has_added
    }

    /// The files of Unix sockets that another process has opened are this one's now, with the permissions of this plan.
    pub(super) fn own_files(&mut self) {
        for open in &mut self.open {
            if let Some(file) = &mut open.file {
                file.own_file();
            }
            open.set_mode(open.plan.mode);
        }
    }

    /// The threads accept what waits, and then nothing more: a successor has the same sockets, and their files.
    pub(super) fn leave_to_successor(&mut self) {
        self.release();
        for open in &mut self.open {
            open.closed.cancel();
            if let Some(file) = &mut open.file {
                file.leave_file();
            }
        }
    }

    /// Opens the listeners that a new plan adds. Nothing else changes before [`Self::carry_out`].
    pub(super) fn prepare(&self, all: &[Listen]) -> Result<Change, StartError> {
        let mut change = Change { opened: Vec::new(), kept: Vec::new() };
        for one in all {
            // Each listener on port 0 is a separate one.
            let is_kept = |place: usize| change.kept.iter().any(|(kept, ..)| *kept == place);
            let same = |(place, open): &(usize, &OpenListener)| {
                open.plan.address == one.address && !is_kept(*place)
            };
            match self.open.iter().enumerate().find(same).map(|(place, _)| place) {
                Some(place) => {
                    let old = self.open[place].terms.load();
                    let terms = self.terms(one, Some(&old))?;
                    change.kept.push((place, one.clone(), terms));
                }
                None => {
                    self.is_free_of_ours(&one.address)?;
                    change.opened.push(self.open_one(one, None)?);
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
        Err(not_opened(address, io::Error::other(text)))
    }

    /// Closes the listeners that the new plan lacks, and applies its terms.
    pub(super) async fn carry_out(&mut self, change: Change) {
        let mut old: Vec<_> = std::mem::take(&mut self.open).into_iter().map(Some).collect();
        for (place, plan, terms) in change.kept {
            if let Some(mut open) = old[place].take() {
                if open.plan.mode != plan.mode {
                    open.set_mode(plan.mode);
                }
                open.plan = plan;
                let terms = Arc::new(terms);
                open.terms.swap(Arc::clone(&terms)).give_way(Some(&terms));
                self.open.push(open);
            }
        }
        let gone: Vec<_> = old.into_iter().flatten().collect();
        // First, because the threads accept what waits at a socket only once. All: a process before this one may have
        // given the service manager sockets of any.
        let names = gone.iter().map(|gone| kept_name(&gone.described())).collect();
        service_manager::drop_sockets_in_time(names).await;
        for mut gone in gone {
            tracing::info!(address = %gone.plan.address, "a listener was closed");
            gone.queues.clear();
            gone.closed.cancel();
            gone.terms.load().give_way(None);
        }
        for new in &change.opened {
            tracing::info!(address = %new.plan.address, "a listener was opened");
        }
        self.open.extend(change.opened);
        self.gather_tls();
    }

    fn open_one(
        &self,
        one: &Listen,
        handed: Option<&mut HandedSockets>,
    ) -> Result<OpenListener, StartError> {
        let sockets = self.sockets_of(one, handed);
        let sockets = sockets.map_err(|source| not_opened(&one.address, source))?;
        let Sockets { queues, by_thread, file, are_handed } = sockets;
        let mut addresses: Vec<_> = queues.iter().filter_map(Listener::address).collect();
        // The threads' sockets have one address.
        addresses.dedup();
        let terms = Arc::new(ArcSwap::from_pointee(self.terms(one, None)?));
        let closed = CancellationToken::new();
        let entrance = |listener| entrance(listener, &terms, &closed);
        let by_thread = by_thread
            .into_iter()
            .map(|of_thread| of_thread.into_iter().map(entrance).collect())
            .collect();
        let (plan, reserved) = (one.clone(), Vec::new());
        let may_be_kept = are_handed && service_manager::is_named();
        let kept = if may_be_kept { KeptState::Partly } else { KeptState::No };
        Ok(OpenListener { plan, terms, closed, queues, by_thread, reserved, addresses, file, kept })
    }

    /// The terms of a listener. Unchanged TLS is kept, with the tickets that it alone accepts.
    fn terms(
        &self,
        one: &Listen,
        old: Option<&ConnectionRules>,
    ) -> Result<ConnectionRules, StartError> {
        let tls = tls::open(one, old.and_then(|old| old.tls.as_ref()), &self.ticket_keys)?;
        let mut terms = ConnectionRules {
            balancers: one.balancers.clone(),
            h2: one.h2,
            tls,
            outdated: CancellationToken::new(),
            entry: tls::entry(one, &self.awaited),
        };
        if let Some(old) = old.filter(|_| !terms.requests_client_certs()) {
            // Connections from before the change share the token with later ones.
            terms.outdated = old.outdated.clone();
        }
        Ok(terms)
    }

    /// `handed`: what was handed over, at a start.
    fn sockets_of(&self, one: &Listen, handed: Option<&mut HandedSockets>) -> io::Result<Sockets> {
        match &one.address {
            Address::Tcp(address) => {
                let mut queues = take(handed, &one.address);
                let are_handed = !queues.is_empty();
                if !are_handed {
                    let opened = listen::open(*address, self.threads)?;
                    queues = opened.into_iter().map(Listener::Tcp).collect();
                }
                Ok(Sockets { by_thread: self.deal(&queues)?, queues, file: None, are_handed })
            }
            Address::Unix(path) => {
                let taken = handed.and_then(|all| all.take_unix(Purpose::Visitors, path));
                let are_handed = taken.is_some();
                let socket = match taken {
                    Some(socket) => socket,
                    None => Socket::open(path, one.mode)?,
                };
                let queues = vec![Listener::Unix(socket.listener()?)];
                let (by_thread, file) = (self.share(&queues)?, Some(socket));
                Ok(Sockets { by_thread, queues, file, are_handed })
            }
            Address::Systemd(name) => {
                let Some(handed) = handed else {
                    let text = "systemd passes sockets only at start; restart to use them";
                    return Err(io::Error::other(text));
                };
                let mut queues = handed.take(Purpose::Visitors, &one.address);
                if queues.is_empty() {
                    queues = handed.take_inherited(name.as_deref())?;
                }
                let by_thread = self.share(&queues)?;
                Ok(Sockets { by_thread, queues, file: None, are_handed: false })
            }
        }
    }

    /// Lets all threads accept from the same queues.
    fn share(&self, queues: &[Listener]) -> io::Result<Vec<Vec<Listener>>> {
        let of_thread = || queues.iter().map(Listener::another).collect();
        (0..self.threads).map(|_| of_thread()).collect()
    }

    /// Gives each queue to one thread. A thread has several where there are more queues than threads.
    fn deal(&self, queues: &[Listener]) -> io::Result<Vec<Vec<Listener>>> {
        let of_thread = |thread| {
            queues.iter().skip(thread).step_by(self.threads).map(Listener::another).collect()
        };
        (0..self.threads).map(of_thread).collect()
    }
}

impl OpenListener {
    /// All that takes a file is done here.
    fn reserve(&mut self) -> io::Result<()> {
        let (Address::Tcp(_), Some(address)) = (&self.plan.address, self.addresses.first()) else {
            return Ok(());
        };
        for (thread, of_thread) in self.by_thread.iter().enumerate() {
            if of_thread.is_empty() {
                let socket = BoundSocket::new(*address)?;
                self.reserved.push((thread, [socket.another()?, socket]));
            }
        }
        Ok(())
    }

    fn fill_up(&mut self) -> io::Result<()> {
        for (thread, [queue, of_thread]) in self.reserved.drain(..) {
            let [queue, listener] = [queue.listen()?, of_thread.listen()?].map(Listener::Tcp);
            self.queues.push(queue);
            if self.kept == KeptState::All {
                self.kept = KeptState::Partly;
            }
            self.by_thread[thread].push(entrance(listener, &self.terms, &self.closed));
        }
        Ok(())
    }

    async fn keep(&mut self) {
        // Those that systemd has opened it keeps anyway.
        if !matches!(self.plan.address, Address::Systemd(_)) {
            let sockets: Vec<_> = self.queues.iter().map(|queue| queue.as_fd()).collect();
            let name = kept_name(&self.described());
            if service_manager::keep_sockets(&name, &sockets).await {
                self.kept = KeptState::All;
            }
        }
    }

    /// A Unix socket keeps the path by which the first process has opened it.
    fn described(&self) -> HandedSocket {
        let path = self.file.as_ref().map(|file| Address::Unix(file.path().to_owned()));
        HandedSocket {
            purpose: Purpose::Visitors,
            address: path.as_ref().unwrap_or(&self.plan.address).to_string(),
            file: self.file.as_ref().map(Socket::number),
        }
    }

    fn set_mode(&self, mode: u32) {
        if let Some(file) = &self.file
            && let Err(error) = file.set_mode(mode)
        {
            tracing::warn!(%error, address = %self.plan.address, "the mode of a socket could not be changed");
        }
    }
}

/// The sockets of one `[[listen]]`.
struct Sockets {
    /// A handle on each queue of connections.
    queues: Vec<Listener>,
    by_thread: Vec<Vec<Listener>>,
    file: Option<Socket>,
    /// Whether they were handed over.
    are_handed: bool,
}

fn entrance(
    listener: Listener,
    terms: &Arc<ArcSwap<ConnectionRules>>,
    closed: &CancellationToken,
) -> ThreadListener {
    ThreadListener { listener, terms: Arc::clone(terms), closed: closed.clone() }
}

fn not_opened(address: &Address, source: io::Error) -> StartError {
    let (address, what, flag) = (address.to_string(), "visitors", "--listen");
    StartError::Listen { address, what, flag, source }
}

/// What was handed over for an address.
fn take(handed: Option<&mut HandedSockets>, address: &Address) -> Vec<Listener> {
    handed.map_or_else(Vec::new, |all| all.take(Purpose::Visitors, address))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    fn open(all: &[Listen], threads: usize, handed: &mut HandedSockets) -> Listeners {
        Listeners::open(all, threads, &CertificateParts::default(), handed).unwrap()
    }

    /// What a successor of `listeners` gets.
    fn handed(listeners: &Listeners) -> HandedSockets {
        let mut handed = HandedSockets::default();
        for (socket, file) in listeners.hand_out() {
            let file: OwnedFd = file.try_clone_to_owned().unwrap();
            handed.add(vec![socket], vec![file]).unwrap();
        }
        handed
    }

    /// How many sockets each thread has.
    fn counts(listeners: &mut Listeners) -> Vec<usize> {
        listeners.take_entrances().iter().map(Vec::len).collect()
    }

    fn any_port() -> Listen {
        Listen::at("127.0.0.1:0".parse().unwrap())
    }

    #[test]
    fn sockets_are_added_for_more_threads_and_kept_for_fewer() {
        let plan = [any_port()];
        let mut one = open(&plan, 1, &mut HandedSockets::default());
        assert_eq!(counts(&mut one), [1]);
        let mut four = open(&plan, 4, &mut handed(&one));
        four.reserve().unwrap();
        assert_eq!(four.hand_out().len(), 1, "further ones do not listen yet");
        assert_eq!(counts(&mut four), [1, 0, 0, 0]);
        assert!(four.fill_up());
        assert_eq!(counts(&mut four), [0, 1, 1, 1]);
        assert_eq!(four.hand_out().len(), 4);
        let mut two = open(&plan, 2, &mut handed(&four));
        two.reserve().unwrap();
        assert_eq!(counts(&mut two), [2, 2]);
        assert!(!two.fill_up());
        let mut three = open(&plan, 3, &mut handed(&two));
        assert_eq!(counts(&mut three), [2, 1, 1]);
        for listeners in [&four, &two, &three] {
            assert_eq!(listeners.addresses(), one.addresses());
        }
        let stranger = Listen::at(one.addresses()[0]);
        let (certificates, mut none) = (CertificateParts::default(), HandedSockets::default());
        let refused = Listeners::open(&[stranger], 1, &certificates, &mut none);
        assert!(matches!(refused, Err(StartError::Listen { .. })));
    }

    /// Accepts so many connections that wait at these sockets, and no more. The kernel may put one into the queue a
    /// moment after its client has it.
    fn accept(listeners: &[&Listener], mut count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while count > 0 {
            assert!(Instant::now() < deadline, "{count} connections are lost");
            for listener in listeners {
                let Listener::Tcp(listener) = listener else { panic!("a TCP socket") };
                count -= std::iter::from_fn(|| listener.accept().ok()).count();
            }
            thread::yield_now();
        }
    }

    #[test]
    fn no_connection_waits_at_a_further_socket_of_a_process_that_does_not_take_over() {
        let plan = [any_port()];
        let giver = open(&plan, 1, &mut HandedSockets::default());
        let mut taker = open(&plan, 4, &mut handed(&giver));
        taker.reserve().unwrap();
        let address = giver.addresses()[0];
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        drop(taker);
        accept(&[&giver.open[0].queues[0]], clients.len());
    }

    #[test]
    fn a_connection_that_waits_is_accepted_by_the_successor() {
        let plan = [any_port()];
        let giver = open(&plan, 4, &mut HandedSockets::default());
        let address = giver.addresses()[0];
        // The kernel spreads them over the four queues.
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut taker = open(&plan, 2, &mut handed(&giver));
        drop(giver);
        let entrances: Vec<_> = taker.take_entrances().into_iter().flatten().collect();
        let listeners: Vec<_> = entrances.iter().map(|entrance| &entrance.listener).collect();
        accept(&listeners, clients.len());
    }

    #[test]
    fn listeners_on_any_port_keep_their_own() {
        let plan = [any_port(), any_port()];
        let giver = open(&plan, 2, &mut HandedSockets::default());
        let mut all = handed(&giver);
        let taker = open(&plan[..1], 2, &mut all);
        assert_eq!(taker.addresses(), giver.addresses()[..1]);
        let taker = open(&plan[..1], 2, &mut all);
        assert_eq!(taker.addresses(), giver.addresses()[1..]);
    }

    #[test]
    fn a_unix_socket_is_found_by_another_spelling_of_its_path() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
        let at = |name: &str| {
            let address = Address::Unix(folder.path().join(name));
            [Listen { address, ..any_port() }]
        };
        let giver = open(&at("web.sock"), 1, &mut HandedSockets::default());
        for name in ["link/web.sock", ".//web.sock"] {
            let taker = open(&at(name), 1, &mut handed(&giver));
            assert_eq!(taker.hand_out()[0].0, giver.hand_out()[0].0, "{name}");
        }
        let other = open(&at("other.sock"), 1, &mut handed(&giver));
        assert_ne!(other.sockets(), giver.sockets());
    }

    #[test]
    fn a_unix_socket_keeps_its_file_and_one_that_is_gone_loses_it() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["kept.sock", "gone.sock"].map(|name| folder.path().join(name));
        let plan = paths.clone().map(|path| Listen { address: Address::Unix(path), ..any_port() });
        let mut giver = open(&plan, 2, &mut HandedSockets::default());
        let mut all = handed(&giver);
        drop(open(&plan[..1], 2, &mut handed(&giver)));
        assert!(paths[0].exists(), "that process did not take over");
        let mut taker = open(&plan[..1], 2, &mut all);
        taker.own_files();
        giver.leave_to_successor();
        drop(giver);
        assert_eq!(taker.sockets(), paths[..1]);
        assert!(std::os::unix::net::UnixStream::connect(&paths[0]).is_ok());
        all.close_rest();
        assert!(!paths[1].exists());
        drop(taker);
        assert!(!paths[0].exists());
    }
}
