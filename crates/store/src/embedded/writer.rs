//! The writer thread of one file: a bounded queue, group commit, and a sync at least four times a
//! second.
//!
//! A step is a closure over the tables. All waiting steps go into one transaction. If one of them
//! must be durable before it is answered, so is the group; else the group is committed in memory
//! and made durable by the next sync.

use std::io;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redb::{Durability, WriteTransaction};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::disk::{Disk, caught};
use crate::{StoreError, SuccessorUse};

/// The longest time until a step is durable, in a running system.
const SYNC_EVERY: Duration = Duration::from_millis(250);
/// How long steps are refused after the file failed and was reopened: opening checks the whole
/// file, which blocks all readers, so a full disk must not cause it at each step.
const REST: Duration = Duration::from_secs(1);
/// At most this many steps in one transaction.
const GROUP: usize = 256;

/// The tables of one file, and their maintenance.
pub(super) trait Ledger: Send + 'static {
    /// All tables, open for one transaction.
    type Tables<'t>;

    /// Whether nothing of a step that failed is left but in the tables, so that the next one can begin.
    const KEEPS_NOTHING: bool;

    /// Opens the tables.
    fn open<'t>(&self, txn: &'t WriteTransaction) -> Result<Self::Tables<'t>, redb::Error>;

    /// Maintenance, a bounded piece at each sync. True when it changed anything.
    fn keep_house(&mut self, txn: &WriteTransaction) -> Result<bool, redb::Error>;

    /// Makes the file usable again after an error.
    fn recover(&mut self, disk: &Disk) -> Result<(), redb::Error>;

    /// Opens the file again, which a successor has had.
    fn reopen(&mut self, disk: &Disk, used: SuccessorUse) -> Result<(), redb::Error>;
}

/// What a writer may do with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileAccess {
    /// Everything.
    Full,
    /// Nothing is written yet: the process that had the file before may take it back.
    ReadOnly,
    /// It is closed, and another process may have it.
    Closed,
}

/// A step that waits for the writer.
trait WriteStep<L: Ledger>: Send {
    /// Runs it. An error undoes the whole group.
    fn carry_out(&mut self, tables: &mut L::Tables<'_>) -> Result<(), redb::Error>;

    /// Answers the caller, once the group is committed or has failed.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct WaitingStep<F, T> {
    step: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<L, F, T> WriteStep<L> for WaitingStep<F, T>
where
    L: Ledger,
    F: FnOnce(&mut L::Tables<'_>) -> Result<T, redb::Error> + Send,
    T: Send,
{
    fn carry_out(&mut self, tables: &mut L::Tables<'_>) -> Result<(), redb::Error> {
        if let Some(step) = self.step.take() {
            self.value = Some(step(tables)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        // The caller may have used up its budget: the step is done all the same.
        let _ = reply.send(committed.and_then(|()| value.ok_or(StoreError::Away)));
    }
}

/// Sends steps to a writer thread, which ends with the last handle or at `close`.
#[derive(Debug)]
pub(super) struct Writer<L> {
    inbox: mpsc::Sender<Message<L>>,
}

enum Message<L> {
    Step(Box<dyn WriteStep<L>>, Durability),
    Suspend(Reply),
    Resume(SuccessorUse, Reply),
    Close(oneshot::Sender<()>),
}

/// The way back to the caller of a suspension or its end.
type Reply = oneshot::Sender<Result<(), StoreError>>;

impl<L: Ledger> Writer<L> {
    /// Starts the thread. Where it does not have full access, it has it from [`Self::resume`] on.
    pub(super) fn start(
        name: &str,
        disk: Arc<Disk>,
        ledger: L,
        queue: usize,
        access: FileAccess,
    ) -> io::Result<Self> {
        let (inbox, outbox) = mpsc::channel(queue);
        // The smallest runtime: it only waits for the queue with a deadline.
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let thread_state = WriterThread::new(disk, ledger, access);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || thread_state.run(&runtime, outbox))?;
        Ok(Self { inbox })
    }

    /// Runs a step; waits for room in the queue and for the answer, both within `budget`.
    pub(super) async fn ask<T, F>(
        &self,
        durability: Durability,
        budget: Duration,
        step: F,
    ) -> Result<T, StoreError>
    where
        F: FnOnce(&mut L::Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
        T: Send + 'static,
    {
        let asked = async {
            let (message, answer) = message(durability, step);
            self.inbox.send(message).await.map_err(|_closed| StoreError::Away)?;
            answer.await.map_err(|_gone| StoreError::Away)?
        };
        timeout(budget, asked).await.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Like [`Self::ask`], but refuses with `Full` at once when the queue is full.
    pub(super) async fn try_write<T, F>(
        &self,
        durability: Durability,
        budget: Duration,
        step: F,
    ) -> Result<T, StoreError>
    where
        F: FnOnce(&mut L::Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
        T: Send + 'static,
    {
        let (message, answer) = message(durability, step);
        match self.inbox.try_send(message) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(StoreError::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(StoreError::Away),
        }
        match timeout(budget, answer).await {
            Ok(outcome) => outcome.unwrap_or(Err(StoreError::Away)),
            Err(_elapsed) => Err(StoreError::TimedOut),
        }
    }

    /// Makes everything durable and closes the file, for another process. Until [`Self::resume`] steps find the store away.
    /// If this is dropped before it returns, the file may be closed all the same.
    pub(super) async fn suspend(&self) -> Result<(), StoreError> {
        self.tell(Message::Suspend).await
    }

    /// Opens the file again if it is closed, and carries out steps from now on.
    pub(super) async fn resume(&self, used: SuccessorUse) -> Result<(), StoreError> {
        self.tell(|reply| Message::Resume(used, reply)).await
    }

    async fn tell(&self, message: impl FnOnce(Reply) -> Message<L>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(message(reply)).await.map_err(|_closed| StoreError::Away)?;
        answer.await.map_err(|_gone| StoreError::Away)?
    }

    /// Makes everything durable, closes the file and ends the thread.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.inbox.send(Message::Close(done)).await.is_ok() {
            // An error means that the thread, and with it the use of the file, has ended already.
            let _ = closed.await;
        }
    }

    /// Whether the thread runs.
    pub(super) fn is_running(&self) -> bool {
        !self.inbox.is_closed()
    }
}

/// Answers steps that have failed for one reason.
fn fail<L: Ledger>(steps: impl Iterator<Item = Box<dyn WriteStep<L>>>, error: &Arc<redb::Error>) {
    for step in steps {
        step.answer(Err(StoreError::Failed(Box::new(Arc::clone(error)))));
    }
}

/// A step as it is sent to the thread, and the receiver of its answer.
fn message<L, T, F>(
    durability: Durability,
    step: F,
) -> (Message<L>, oneshot::Receiver<Result<T, StoreError>>)
where
    L: Ledger,
    F: FnOnce(&mut L::Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
    T: Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let asked = WaitingStep { step: Some(step), value: None, reply };
    (Message::Step(Box::new(asked), durability), answer)
}

/// The thread's side.
struct WriterThread<L> {
    disk: Arc<Disk>,
    ledger: L,
    access: FileAccess,
    /// When everything was last durable.
    synced: Instant,
    /// When it was last looked whether the file is at its path.
    looked: Instant,
    /// Whether something was committed since the last sync, in memory only.
    dirty: bool,
    /// Whether the file failed and could not be reopened yet.
    broken: bool,
    /// Until when steps are refused.
    rests_until: Option<Instant>,
}

impl<L: Ledger> WriterThread<L> {
    fn new(disk: Arc<Disk>, ledger: L, access: FileAccess) -> Self {
        let now = Instant::now();
        Self {
            disk,
            ledger,
            access,
            synced: now,
            looked: now,
            dirty: false,
            broken: false,
            rests_until: None,
        }
    }

    fn run(mut self, runtime: &Runtime, mut outbox: mpsc::Receiver<Message<L>>) {
        let mut group = Vec::with_capacity(GROUP);
        loop {
            let limit = SYNC_EVERY.saturating_sub(self.synced.elapsed());
            let received = runtime
                .block_on(async { timeout(limit, outbox.recv_many(&mut group, GROUP)).await });
            let closing = self.serve(&mut group);
            let end = closing.is_some() || matches!(received, Ok(0));
            if end || self.synced.elapsed() >= SYNC_EVERY {
                self.sync();
            }
            if end {
                self.disk.close();
                if let Some(done) = closing {
                    // The caller may be gone.
                    let _ = done.send(());
                }
                return;
            }
        }
    }

    /// Serves what has come; returns whom to tell that the file is closed, if that was asked for.
    fn serve(&mut self, group: &mut Vec<Message<L>>) -> Option<oneshot::Sender<()>> {
        let (mut closing, mut steps, mut group_durability) = (None, Vec::new(), Durability::None);
        for message in group.drain(..) {
            match message {
                Message::Step(step, durability) => {
                    steps.push(step);
                    if !matches!(durability, Durability::None) {
                        group_durability = durability;
                    }
                }
                // Each step has the file as it was when the step came. The caller may be gone.
                Message::Suspend(reply) => {
                    self.serve_steps(mem::take(&mut steps), group_durability);
                    let _ = reply.send(self.suspend());
                }
                Message::Resume(used, reply) => {
                    self.serve_steps(mem::take(&mut steps), group_durability);
                    let _ = reply.send(self.resume(used));
                }
                Message::Close(done) => closing = Some(done),
            }
        }
        self.serve_steps(steps, group_durability);
        closing
    }

    fn serve_steps(&mut self, steps: Vec<Box<dyn WriteStep<L>>>, group_durability: Durability) {
        // Before what is acknowledged as durable.
        let is_durable = !matches!(group_durability, Durability::None);
        if is_durable || self.looked.elapsed() >= SYNC_EVERY {
            self.look_for_file();
        }
        if !steps.is_empty() {
            self.answer(steps, group_durability);
        }
    }

    /// Makes everything durable and closes the file. After an error it is open as before, if it can be opened.
    fn suspend(&mut self) -> Result<(), StoreError> {
        if self.access == FileAccess::Closed {
            return Ok(());
        }
        if self.broken || self.rests() {
            // A file that has just failed is not given to another process.
            return Err(StoreError::Away);
        }
        let is_written = self.access == FileAccess::Full;
        let synced = if is_written { caught(|| self.try_sync()) } else { Ok(()) };
        match synced.and_then(|()| caught(|| self.disk.release())) {
            Ok(()) => {
                self.access = FileAccess::Closed;
                Ok(())
            }
            Err(error) => {
                self.recover(&error);
                Err(StoreError::Failed(Box::new(error)))
            }
        }
    }

    /// Has full access from now on. A file that cannot be opened is tried again at each sync.
    fn resume(&mut self, used: SuccessorUse) -> Result<(), StoreError> {
        if mem::replace(&mut self.access, FileAccess::Full) != FileAccess::Closed {
            return Ok(());
        }
        self.synced = Instant::now();
        match caught(|| self.ledger.reopen(&self.disk, used)) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.recover(&error);
                if self.broken { Err(StoreError::Failed(Box::new(error))) } else { Ok(()) }
            }
        }
    }

    /// Runs a group and answers each step.
    fn answer(&mut self, mut steps: Vec<Box<dyn WriteStep<L>>>, durability: Durability) {
        if self.access != FileAccess::Full || self.rests() {
            // Nothing was done: `Away`.
            steps.into_iter().for_each(|step| step.answer(Err(StoreError::Away)));
            return;
        }
        while !steps.is_empty() {
            let mut failed_step = None;
            let committed = caught(|| self.commit(&mut steps, durability, &mut failed_step));
            match (committed, failed_step) {
                (Ok(()), _) => steps.drain(..).for_each(|step| step.answer(Ok(()))),
                // The steps behind the one that met the damaged block have not begun. Those before it cannot begin again.
                (Err(error @ redb::Error::Corrupted(_)), Some(failed)) if L::KEEPS_NOTHING => {
                    self.disk.tell_damage(&error);
                    fail(steps.drain(..=failed), &Arc::new(error));
                }
                (Err(error), _) => {
                    let error = Arc::new(error);
                    fail(steps.drain(..), &error);
                    self.recover(&error);
                }
            }
        }
    }

    /// `failed_step` is the number of the step that has failed, if it was one.
    fn commit(
        &mut self,
        steps: &mut [Box<dyn WriteStep<L>>],
        durability: Durability,
        failed_step: &mut Option<usize>,
    ) -> Result<(), redb::Error> {
        let txn = self.disk.begin(durability)?;
        let mut tables = self.ledger.open(&txn)?;
        for (number, step) in steps.iter_mut().enumerate() {
            // Caught here: where a panic unwinds through a transaction, redb has the file repaired at the next start, and
            // a file with a damaged block cannot be.
            caught(|| step.carry_out(&mut tables)).inspect_err(|_| *failed_step = Some(number))?;
        }
        drop(tables);
        txn.commit()?;
        match durability {
            Durability::None => self.dirty = true,
            _ => self.is_synced(),
        }
        Ok(())
    }

    /// Whether steps are refused.
    fn rests(&self) -> bool {
        self.disk.is_gone() || self.rests_until.is_some_and(|end| Instant::now() < end)
    }

    /// What is written to a file that was deleted would be lost with the process, and must not be acknowledged.
    fn look_for_file(&mut self) {
        self.looked = Instant::now();
        match (self.disk.look_for_file(), self.disk.is_gone()) {
            (true, true) => tracing::error!(
                disk = ?self.disk,
                "the store's file is gone: nothing is written until it is back, or a restart"
            ),
            (true, false) => tracing::warn!(disk = ?self.disk, "the store's file is back"),
            (false, _) => {}
        }
    }

    /// Makes everything durable, with a bounded piece of the ledger's maintenance.
    fn sync(&mut self) {
        // During the rest nothing is dirty: what was not durable was lost when the file was
        // reopened. Nor is it without full access.
        if self.access == FileAccess::Full && !self.rests() {
            if self.broken {
                self.recover(&redb::Error::PreviousIo);
            }
            if let Err(error) = caught(|| self.try_sync()) {
                self.recover(&error);
            }
        }
        self.synced = Instant::now();
    }

    fn try_sync(&mut self) -> Result<(), redb::Error> {
        let txn = self.disk.begin(Durability::Immediate)?;
        let changed = self.ledger.keep_house(&txn)?;
        if changed || self.dirty {
            txn.commit()?;
        } else {
            txn.abort()?;
        }
        self.is_synced();
        Ok(())
    }

    fn is_synced(&mut self) {
        self.dirty = false;
        self.synced = Instant::now();
    }

    fn recover(&mut self, error: &redb::Error) {
        self.dirty = false;
        let was_broken = mem::replace(&mut self.broken, true);
        match caught(|| self.ledger.recover(&self.disk)) {
            Ok(()) => {
                self.broken = false;
                tracing::warn!(disk = ?self.disk, %error, "the store failed and was reopened");
            }
            Err(again) if !was_broken => {
                tracing::error!(disk = ?self.disk, %error, %again, "the store failed and cannot be reopened; retrying");
            }
            // Logged once; tried again at each sync.
            Err(_) => {}
        }
        self.rests_until = Some(Instant::now() + REST);
    }
}

/// A writer without a thread and without a clock, for a test that says when it works.
#[cfg(test)]
pub(super) mod by_hand {
    use super::*;

    pub(in crate::embedded) struct WriterByHand<L> {
        thread: WriterThread<L>,
        outbox: mpsc::Receiver<Message<L>>,
    }

    impl<L: Ledger> WriterByHand<L> {
        pub(in crate::embedded) fn new(disk: Arc<Disk>, ledger: L) -> (Writer<L>, Self) {
            let (inbox, outbox) = mpsc::channel(GROUP);
            let thread = WriterThread::new(disk, ledger, FileAccess::Full);
            (Writer { inbox }, Self { thread, outbox })
        }

        /// Serves what waits, as one group.
        pub(in crate::embedded) fn serve(&mut self) {
            let mut group = Vec::new();
            while let Ok(message) = self.outbox.try_recv() {
                group.push(message);
            }
            self.thread.rests_until = None;
            self.thread.serve(&mut group);
        }

        /// Makes everything durable.
        pub(in crate::embedded) fn sync(&mut self) {
            self.thread.rests_until = None;
            self.thread.sync();
        }
    }
}
