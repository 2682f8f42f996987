use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AcquireReply, AcquireRequest, RefusalReason, Refused, Result};

use crate::calls::acquire::{Acquire, is_simple, reply};
use crate::error;
use crate::inner::Inner;
use crate::lane::{Done, Entry};

/// The longest pause of a waiter whom nobody wakes.
const UNHEARD: Duration = Duration::from_secs(1);

impl Inner {
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<AcquireReply> {
        let waits = self.listener.as_ref().is_some_and(|all| all.hears(request.claims().keys()));
        let acquired = self.acquired(request, waits).await?;
        Ok(match acquired {
            AcquireReply::Refused(mut refused) if self.is_deaf() => {
                refused.poll_within.get_or_insert(UNHEARD);
                AcquireReply::Refused(refused)
            }
            acquired => acquired,
        })
    }

    async fn acquired(
        self: &Arc<Self>,
        request: &AcquireRequest,
        waits: bool,
    ) -> Result<AcquireReply> {
        if is_simple(request.claims()) && !waits {
            match self.together(Entry::Acquire(request.clone())).await {
                Some(Ok(Done::Acquired(reply))) => return Ok(reply),
                Some(Ok(other)) => {
                    return Err(error::odd(&self.links.server, format_args!("{other:?}")));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        match self.apart(Acquire::new(request)).await? {
            Some(rows) => reply(&self.links.server, request, &rows),
            None => {
                let key = request.claims().first().key.clone();
                Ok(AcquireReply::Refused(Refused::new(key, RefusalReason::Busy, None)))
            }
        }
    }

    /// Whether nothing wakes waiters at the moment, although the store can.
    fn is_deaf(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.is_deaf())
    }
}
