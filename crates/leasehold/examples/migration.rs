//! Every instance of a service migrates its database when it starts: one does it, the others wait and find it done.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example migration
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use leasehold::{Locker, Wait};
use rusqlite::Connection;

const MIGRATIONS: [&str; 2] = [
    "CREATE TABLE report (name TEXT PRIMARY KEY, text TEXT)",
    "ALTER TABLE report ADD COLUMN token INTEGER NOT NULL DEFAULT 0",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locker::connect("sqlite:locks.db").await?;
    println!("{} migrations were missing", migrate(&locks, Path::new("app.db")).await?);
    Ok(locks.close(Duration::from_secs(5)).await?)
}

/// Brings the database to the newest version; the number of migrations that this call ran.
pub(crate) async fn migrate(locks: &Locker, path: &Path) -> Result<u32, Box<dyn Error>> {
    let guard = locks.lock("app:schema").wait(Wait::UpTo(Duration::from_secs(60))).await?;
    // Read the version only now: another instance may have migrated while this one waited.
    let mut db = Connection::open(path)?;
    let version: u32 = db.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    let missing = (1..).zip(MIGRATIONS).filter(|(number, _)| *number > version);
    let mut run = 0;
    for (number, migration) in missing {
        // Each step is one transaction, and none begins without the lock.
        guard.ensure_held()?;
        let step = db.transaction()?;
        step.execute_batch(migration)?;
        step.pragma_update(None, "user_version", number)?;
        step.commit()?;
        run += 1;
    }
    guard.release().await?;
    Ok(run)
}
