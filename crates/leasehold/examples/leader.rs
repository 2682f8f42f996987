//! Campaigns for the election `scheduler`, and works while it leads. Run it in several terminals, and end the leader as
//! you like. At Ctrl-C it resigns, and another leads soon; after `kill -9` its term must end first.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example leader -- node-1
//! ```

use std::time::Duration;

use leasehold::{FencingToken, LeadershipEvent, Locker, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let id = std::env::args().nth(1).unwrap_or_else(|| format!("node-{}", std::process::id()));
    stand("sqlite:leader.db", &id, Duration::from_secs(10)).await
}

/// Campaigns until Ctrl-C.
pub(crate) async fn stand(store: &str, id: &str, ttl: Duration) -> Result<()> {
    let locks = Locker::connect(store).await?;
    let candidate = locks
        .election("scheduler")
        .candidate_name(id)
        .ttl(ttl)
        .spawn(async { tokio::signal::ctrl_c().await.expect("Ctrl-C can be waited for") })?;
    println!("{id} campaigns");
    let work = async {
        // Fails when the candidate has ended.
        while let Ok(leadership) = candidate.elected().await {
            // Drops the work when the leadership is lost or given up. The candidate then campaigns again.
            let Err(ended) = leadership.run(schedule(id, leadership.token())).await;
            println!("{id} has stopped working: {ended}");
        }
    };
    tokio::join!(work, candidate.observe().for_each(|event| print(id, &event)));
    candidate.join().await
}

/// The work of the leader, which passes its token on to what it writes to.
async fn schedule(id: &str, token: Option<FencingToken>) -> std::convert::Infallible {
    println!("{id} works, with the token {}", token.map_or(0, FencingToken::get));
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn print(id: &str, event: &LeadershipEvent) {
    match event {
        LeadershipEvent::Gained { .. } => println!("{id} leads"),
        LeadershipEvent::Lost(reason) => println!("{id} no longer leads: {reason}"),
        LeadershipEvent::Resigned => println!("{id} has resigned"),
        LeadershipEvent::Changed(Some(leader)) => println!("{id} follows {}", leader.who()),
        LeadershipEvent::Changed(None) => println!("nobody leads"),
        other => println!("{other:?}"),
    }
}
