use std::future::Future;
use std::time::Duration;

use leasehold_core::{Error, Result};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep_until};

/// The interval between two questions, and so between the connections that are made for them.
const APART: Duration = Duration::from_secs(1);

/// Whether the server may no longer be the primary. While that is in doubt, one new connection a second asks, and its
/// answer serves all requests that wait for a connection.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    is_raised: watch::Sender<bool>,
    last: Mutex<Last>,
}

/// The last question.
#[derive(Debug, Default)]
struct Last {
    asked: Option<Instant>,
    /// When the answer was no.
    failed: Option<(Instant, Error)>,
}

impl Doubt {
    /// Call this after a reply that a read-only server, or one that is ending, gives.
    pub(crate) fn raise(&self) {
        self.is_raised.send_replace(true);
    }

    /// Ends when there is a doubt: a request that waits for a connection must settle it first.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub(crate) async fn raised(&self) {
        // The sender is ours.
        let raised = self.is_raised.subscribe().wait_for(|is_raised| *is_raised).await.is_ok();
        debug_assert!(raised, "the sender lives");
    }

    /// Ends at once without doubt. Otherwise `ask` asks on a new connection; if the server is writable, the doubt
    /// ends. Callers that wait while another asks do not ask again.
    ///
    /// # Errors
    /// That of the question.
    ///
    /// # Cancel safety
    /// May be dropped; the next one asks.
    pub(crate) async fn settle(&self, ask: impl Future<Output = Result<()>>) -> Result<()> {
        if !self.is_raised() {
            return Ok(());
        }
        let arrived = now();
        let mut last = self.last.lock().await;
        if !self.is_raised() {
            return Ok(());
        }
        if let Some((_, error)) = last.failed.as_ref().filter(|(at, _)| *at >= arrived) {
            return Err(error.clone());
        }
        if let Some(asked) = last.asked {
            sleep_until(asked + APART).await;
        }
        last.asked = Some(now());
        match ask.await {
            Ok(()) => {
                self.is_raised.send_replace(false);
                Ok(())
            }
            Err(error) => {
                last.failed = Some((now(), error.clone()));
                Err(error)
            }
        }
    }

    fn is_raised(&self) -> bool {
        *self.is_raised.borrow()
    }
}

#[expect(clippy::disallowed_methods, reason = "the driver's own timers count on this clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use leasehold_core::Effect;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_question_a_second_answers_everybody_who_waits() {
        let (doubt, asked) = (Doubt::default(), AtomicUsize::new(0));
        let ask = async |is_writable| {
            asked.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            let error = || Error::unavailable(Effect::NotApplied, "it is read-only");
            if is_writable { Ok(()) } else { Err(error()) }
        };
        let many = async |is_writable| {
            // After the answer to the last ones.
            tokio::time::advance(Duration::from_millis(1)).await;
            join_all((0..100).map(|_| doubt.settle(ask(is_writable)))).await
        };
        assert!(many(false).await.iter().all(Result::is_ok), "nobody has raised a doubt");
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        doubt.raise();
        let began = now();
        for questions in 1..=3 {
            assert!(many(false).await.iter().all(Result::is_err));
            assert_eq!(asked.load(Ordering::SeqCst), questions);
        }
        assert!(now() - began >= APART * 2);
        assert!(many(true).await.iter().all(Result::is_ok));
        assert!(many(false).await.iter().all(Result::is_ok));
        assert_eq!(asked.load(Ordering::SeqCst), 4);
    }
}
