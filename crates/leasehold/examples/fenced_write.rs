//! A write that a later holder's write excludes: the row remembers the largest token that has written it.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example fenced_write
//! ```

use std::error::Error;

use leasehold::{FencingToken, Locker};
use rusqlite::Connection;

const TABLE: &str = "CREATE TABLE report (name TEXT PRIMARY KEY, text TEXT, token INTEGER)";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locker::connect("sqlite:locks.db").await?;
    overtaken(&locks).await
}

/// A holder loses its lock without knowing, and writes after the next holder.
pub(crate) async fn overtaken(locks: &Locker) -> Result<(), Box<dyn Error>> {
    let db = Connection::open_in_memory()?;
    db.execute(TABLE, ())?;

    // `fenced` fails at once on a store without tokens.
    let paused = locks.lock("report:monthly").fenced().await?;
    let token_of_the_paused = paused.fencing_token()?;
    paused.release().await?; // in its place: a pause that is longer than the term

    let guard = locks.lock("report:monthly").fenced().await?;
    assert!(write(&db, "monthly", "by the new holder", guard.fencing_token()?)?);
    assert!(!write(&db, "monthly", "by the one that was paused", token_of_the_paused)?);
    guard.release().await?;

    let text: String = db.query_row("SELECT text FROM report", (), |row| row.get(0))?;
    println!("written {text}");
    Ok(())
}

/// Writes the text; false if a later holder has written already.
fn write(db: &Connection, name: &str, text: &str, token: FencingToken) -> rusqlite::Result<bool> {
    let token = i64::try_from(token.get()).expect("a token has at most 53 bits");
    let changed = db.execute(
        "INSERT INTO report (name, text, token) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE \
         SET text = excluded.text, token = excluded.token WHERE token <= excluded.token",
        (name, text, token),
    )?;
    Ok(changed == 1)
}
