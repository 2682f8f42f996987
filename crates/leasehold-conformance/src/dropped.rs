use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Polls the future at most `polls` times, whenever it asks for it, and then drops it.
pub async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counts_polls() {
        let three_polls = || async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        };
        for (polls, ends) in [(0, false), (1, false), (2, false), (3, true), (4, true)] {
            assert_eq!(dropped_after(polls, three_polls()).await.is_some(), ends, "{polls}");
        }
    }
}
