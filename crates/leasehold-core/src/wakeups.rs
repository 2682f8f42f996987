use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use futures_core::Stream;

use crate::Key;

/// A stream of **hints** that a key may be free (C12).
///
/// Hints may be lost, late or spurious: a waiter tries again after one, and tries again without one.
pub struct Wakeups(Option<Pin<Box<dyn Stream<Item = Key> + Send>>>);

impl Wakeups {
    /// Never wakes a waiter: for stores that cannot push.
    pub fn none() -> Self {
        Self(None)
    }

    /// Wakes whenever the stream yields, and never again after it ends.
    pub fn new(hints: impl Stream<Item = Key> + Send + 'static) -> Self {
        Self(Some(Box::pin(hints)))
    }

    /// The next key that may be free; never ends once the stream has ended.
    ///
    /// # Cancel safety
    /// No hint is lost if the future is dropped.
    pub async fn next(&mut self) -> Key {
        poll_fn(|context| {
            let Some(hints) = &mut self.0 else {
                return Poll::Pending;
            };
            match hints.as_mut().poll_next(context) {
                Poll::Ready(Some(key)) => Poll::Ready(key),
                Poll::Ready(None) => {
                    self.0 = None;
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

impl fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Wakeups(open)" } else { "Wakeups(none)" })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    struct Keys(std::array::IntoIter<Key, 2>);

    impl Stream for Keys {
        type Item = Key;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Key>> {
            Poll::Ready(self.0.next())
        }
    }

    fn next(wakeups: &mut Wakeups) -> Option<Key> {
        match pin!(wakeups.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(key) => Some(key),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_stream_that_has_ended_wakes_nobody() {
        let keys = ["a", "b"].map(|key| Key::new(key).unwrap());
        let mut wakeups = Wakeups::new(Keys(keys.clone().into_iter()));
        assert_eq!(format!("{wakeups:?}"), "Wakeups(open)");
        assert_eq!([next(&mut wakeups), next(&mut wakeups)], keys.map(Some));
        assert_eq!([next(&mut wakeups), next(&mut wakeups)], [None, None]);
        assert_eq!(format!("{wakeups:?}"), "Wakeups(none)");
        assert_eq!(next(&mut Wakeups::none()), None);
    }
}
