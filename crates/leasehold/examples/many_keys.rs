//! Transfers between accounts in both directions at once: each locks both accounts in one step, so none deadlocks.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example many_keys
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold::{Locker, Result, Wait};
use tokio::task::JoinSet;

/// In place of a service that cannot change two accounts in one transaction.
pub(crate) type Accounts = Arc<Mutex<HashMap<&'static str, i64>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let accounts: Accounts = Arc::new(Mutex::new(HashMap::from([("a", 100), ("b", 100)])));
    both_ways(&Locker::connect("sqlite:locks.db").await?, &accounts).await?;
    println!("{:?}", accounts.lock().expect("nobody panics"));
    Ok(())
}

/// Ten transfers each way, all at once.
pub(crate) async fn both_ways(locks: &Locker, accounts: &Accounts) -> Result<()> {
    let mut transfers = JoinSet::new();
    for (from, to) in [("a", "b"), ("b", "a")].into_iter().cycle().take(20) {
        let (locks, accounts) = (locks.clone(), accounts.clone());
        transfers.spawn(async move { transfer(&locks, &accounts, from, to).await });
    }
    while let Some(done) = transfers.join_next().await {
        done.expect("no transfer panics")?;
    }
    Ok(())
}

async fn transfer(
    locks: &Locker,
    accounts: &Accounts,
    from: &'static str,
    to: &'static str,
) -> Result<()> {
    // All keys or none: the order of the keys does not matter.
    let both = [format!("account:{from}"), format!("account:{to}")];
    let guard = locks.lock_all(both).wait(Wait::Forever).await?;
    let balance = |name| accounts.lock().expect("nobody panics")[name];
    let (left, right) = (balance(from) - 1, balance(to) + 1);
    guard.renew().await?; // any await: without the lock, other transfers would come in between
    accounts.lock().expect("nobody panics").extend([(from, left), (to, right)]);
    guard.release().await?;
    Ok(())
}
