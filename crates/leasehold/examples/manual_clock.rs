//! Tests of what happens when a term ends, without sleeping: the test moves the clock.
//!
//! ```sh
//! cargo run -p leasehold --example manual_clock
//! ```

use std::sync::Arc;
use std::time::Duration;

use leasehold::{LocalStore, Locker, LostReason, ManualClock, Result};

const TERM: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    a_crashed_holder_is_replaced_when_its_term_ends().await?;
    a_paused_holder_knows_that_it_has_lost_the_lock().await?;
    println!("both tests pass");
    Ok(())
}

/// In your tests these are `#[tokio::test]`.
pub(crate) async fn a_crashed_holder_is_replaced_when_its_term_ends() -> Result<()> {
    let (clock, [holder, other]) = two_processes();
    // A crash: nothing renews the lease, and nothing releases it.
    let _lease = holder.lock("report").ttl(TERM).await?.detach();
    clock.advance(TERM - Duration::from_secs(1));
    assert!(other.try_lock("report").await?.is_none());
    clock.advance(Duration::from_secs(1));
    assert!(other.try_lock("report").await?.is_some());
    Ok(())
}

pub(crate) async fn a_paused_holder_knows_that_it_has_lost_the_lock() -> Result<()> {
    let (clock, [holder, other]) = two_processes();
    let guard = holder.lock("report").ttl(TERM).await?;
    // A pause: one step of the clock, so that no renewal comes in between.
    clock.advance(TERM);
    assert!(other.try_lock("report").await?.is_some());
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, LostReason::Expired);
    Ok(())
}

/// One store, which two processes share. All three have the same clock, or they would disagree about the end of a term.
fn two_processes() -> (Arc<ManualClock>, [Locker; 2]) {
    let clock = Arc::new(ManualClock::new());
    let store = LocalStore::with_clock(clock.clone());
    let process = || Locker::builder(store.clone()).clock(clock.clone()).build();
    let processes = [process(), process()];
    (clock, processes)
}
