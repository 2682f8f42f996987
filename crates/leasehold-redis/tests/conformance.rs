//! The conformance suite on a real Redis server, each case with one for itself.

mod clocked;
mod server;

use std::process::ExitCode;
use std::time::Duration;

use clocked::{Clocked, Pool};
use leasehold_conformance::{
    Backing, Forgets, Observation, Restarted, Result, Subject, Tells, Time, WallStep,
};
use leasehold_core::table;
use leasehold_redis::RedisStore;

fn main() -> ExitCode {
    // So a killed process loses nothing that it has answered; with `everysec` it would what it did not write because its
    // disk was busy. A power cut is not tried here.
    leasehold_conformance::main(Redis(Pool::new(
        1,
        &["--appendonly", "yes", "--appendfsync", "no"],
    )))
}

struct Redis(Pool);

/// A server that one case has for itself.
struct State(Clocked);

impl Subject for Redis {
    type Backing = State;

    fn name(&self) -> &'static str {
        "redis"
    }

    async fn open(&self) -> Result<State> {
        Ok(State(self.0.take(table::FORGET_AFTER).await?))
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(State(self.0.take(forget_after).await?)))
    }

    fn tells(&self) -> Tells {
        clocked::tells()
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        20_000
    }
}

impl Backing for State {
    type Store = RedisStore;

    async fn client(&self) -> Result<RedisStore> {
        Ok(self.0.open().await?.remove(0))
    }

    fn time(&self) -> Time {
        Time::Manual(self.0.clock().clone())
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.0.step_wall(step)?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        Ok(self.0.observe().await?.remove(0))
    }

    async fn restart(&self) -> Result<Restarted> {
        self.0.restart().await?;
        Ok(Restarted::Persisted)
    }
}
