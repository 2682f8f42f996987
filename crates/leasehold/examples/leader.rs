//! Campaigns for a name and prints the leader. Run it in several terminals, and end the leader as you like. With
//! Ctrl-C it resigns, and another leads soon; after `kill -9`, or a second Ctrl-C while the store does not answer,
//! its term must end first.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example leader -- --store sqlite:leader.db --name scheduler
//! ```

use leasehold::{LeadershipEvent, Locker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    stand(std::env::args().skip(1)).await
}

pub(crate) async fn stand(
    arguments: impl Iterator<Item = String>,
) -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { store, name, id, ttl } = Arguments::parse(arguments)?;
    let locks = Locker::connect(&store).await?;
    let candidate = locks.election(&name).candidate_name(&id).ttl(ttl).spawn(interrupt())?;
    println!("{id} campaigns for {name:?}");
    let say = |transition| match transition {
        LeadershipEvent::Gained { token: Some(token) } => {
            println!("{id} leads, with the token {token}")
        }
        LeadershipEvent::Gained { token: None } => println!("{id} leads"),
        LeadershipEvent::Lost(reason) => println!("{id} no longer leads: {reason}"),
        LeadershipEvent::Resigned => println!("{id} has resigned"),
        LeadershipEvent::Changed(Some(leader)) => println!("{id} follows {}", leader.who()),
        LeadershipEvent::Changed(None) => println!("nobody leads"),
        other => println!("{other:?}"),
    };
    let ends = async {
        candidate.observe().for_each(say).await;
        candidate.join().await
    };
    let second = async {
        interrupt().await;
        interrupt().await;
    };
    tokio::select! {
        ended = ends => Ok(ended?),
        () = second => Err("it ended before its resignation was answered".into()),
    }
}

async fn interrupt() {
    // Without a handler for the signal nothing could shut it down.
    tokio::signal::ctrl_c().await.expect("Ctrl-C can be waited for");
}

struct Arguments {
    store: String,
    name: String,
    id: String,
    ttl: std::time::Duration,
}

impl Arguments {
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        const USAGE: &str = "usage: leader --store URL --name NAME [--id ID] [--ttl SECONDS]";
        let (mut store, mut name, mut ttl) = (None, None, 10);
        let mut id = format!("candidate-{}", std::process::id());
        while let Some(option) = given.next() {
            let value = given.next().ok_or(USAGE)?;
            match option.as_str() {
                "--store" => store = Some(value),
                "--name" => name = Some(value),
                "--id" => id = value,
                "--ttl" => ttl = value.parse().map_err(|_| USAGE)?,
                _ => return Err(USAGE.to_owned()),
            }
        }
        let ttl = std::time::Duration::from_secs(ttl);
        Ok(Self { store: store.ok_or(USAGE)?, name: name.ok_or(USAGE)?, id, ttl })
    }
}
