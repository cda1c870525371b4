//! A few futures at once, on one thread.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Waits for all `futures` concurrently; returns their results in order. Each wake-up polls all of
/// them, so they should be few.
pub async fn together<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut open: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, done) in &mut open {
            if done.is_none()
                && let Poll::Ready(value) = Pin::new(future).poll(cx)
            {
                *done = Some(value);
            }
        }
        if open.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    open.into_iter().filter_map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::together;

    #[tokio::test]
    async fn all_run_side_by_side_and_answer_in_order() {
        let barrier = tokio::sync::Barrier::new(3);
        let wait = async |number: usize| {
            barrier.wait().await;
            number
        };
        assert_eq!(together((0..3).map(wait).collect()).await, [0, 1, 2]);
    }
}
