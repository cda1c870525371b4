//! Lets requests that change something continue after the client has disconnected. What the origin does
//! with such a request must reach the pages, the session and the cart in any case.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// The most requests of a thread that continue without their clients. A further one ends with its
/// client, as if the origin had failed. This keeps clients that only disconnect from using up the
/// proxy's memory and the origin's connections.
const LEFT_MAX: usize = 256;

/// The requests of a thread that continue after their clients have disconnected.
#[derive(Debug, Default)]
pub struct DetachedTasks {
    /// The number of requests whose clients have disconnected.
    count: Cell<usize>,
    tasks: TaskTracker,
}

impl DetachedTasks {
    /// Runs the remaining work of a request that was answered.
    pub(crate) fn carry_on(&self, work: impl Future<Output = ()> + 'static) {
        self.tasks.spawn_local(work);
    }

    /// The same, unless the thread is ending. Work that starts then would be dropped with its runtime.
    pub(crate) fn carry_on_while_open(&self, work: impl Future<Output = ()> + 'static) {
        if !self.tasks.is_closed() {
            self.tasks.spawn_local(work);
        }
    }

    /// Stops accepting work, and returns when all of it has ended.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Ties a request's work to its client, once the work may be cancelled when the client disconnects.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelOnDisconnect(Rc<Cell<bool>>);

impl CancelOnDisconnect {
    /// From now on, the work ends with its client.
    pub(crate) fn bind(&self) {
        self.0.set(true);
    }
}

/// A request's work, which continues when this is dropped, unless it is tied to its client.
pub(crate) struct DetachedTask<T> {
    task: JoinHandle<T>,
    tie: CancelOnDisconnect,
    left: Rc<DetachedTasks>,
    /// Whether the client has disconnected.
    has_left: Rc<Cell<bool>>,
}

impl<T: 'static> DetachedTask<T> {
    /// Starts the work.
    pub(crate) fn begin(
        left: &Rc<DetachedTasks>,
        tie: CancelOnDisconnect,
        work: impl Future<Output = T> + 'static,
    ) -> Self {
        let has_left = Rc::new(Cell::new(false));
        let place = DetachedSlot { left: Rc::clone(left), has_left: Rc::clone(&has_left) };
        let task = left.tasks.spawn_local(async move {
            let _place = place;
            work.await
        });
        Self { task, tie, left: Rc::clone(left), has_left }
    }
}

impl<T> Future for DetachedTask<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.task).poll(cx).map(|done| match done {
            Ok(done) => done,
            // A panic propagates as it would without a task. The task is cancelled by `drop` only.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        })
    }
}

impl<T> Drop for DetachedTask<T> {
    fn drop(&mut self) {
        if self.task.is_finished() {
            return;
        }
        if self.tie.0.get() {
            self.task.abort();
        } else if self.left.count.get() < LEFT_MAX {
            self.left.count.update(|left| left + 1);
            self.has_left.set(true);
        } else {
            tracing::debug!(
                "too many requests continue without their clients: this one ends with its client"
            );
            self.task.abort();
        }
    }
}

/// Releases a request's place among the detached ones, if it has one.
struct DetachedSlot {
    left: Rc<DetachedTasks>,
    has_left: Rc<Cell<bool>>,
}

impl Drop for DetachedSlot {
    fn drop(&mut self) {
        if self.has_left.get() {
            self.left.count.update(|left| left - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test]
    async fn detached_tasks_go_on_up_to_a_bound() {
        LocalSet::new()
            .run_until(async {
                let left = Rc::new(DetachedTasks::default());
                assert_eq!(
                    DetachedTask::begin(&left, CancelOnDisconnect::default(), async { 7 }).await,
                    7
                );
                let done = Rc::new(Cell::new(0));
                let gates: Vec<_> = (0..LEFT_MAX + 1)
                    .map(|_| {
                        let (open, gate) = oneshot::channel::<()>();
                        let done = Rc::clone(&done);
                        drop(DetachedTask::begin(
                            &left,
                            CancelOnDisconnect::default(),
                            async move {
                                if gate.await.is_ok() {
                                    done.update(|done| done + 1);
                                }
                            },
                        ));
                        open
                    })
                    .collect();
                assert_eq!(left.count.get(), LEFT_MAX);
                while !gates[LEFT_MAX].is_closed() {
                    tokio::task::yield_now().await;
                }
                let open = gates.into_iter().filter_map(|open| open.send(()).ok()).count();
                assert_eq!(open, LEFT_MAX, "the last went with its client");
                while left.count.get() > 0 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(done.get(), LEFT_MAX);
            })
            .await;
    }
}
