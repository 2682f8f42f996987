//! The conformance suite on real emulators on a clock of the tests.

use std::process::ExitCode;
use std::time::Duration;

use google_cloud_spanner::key::KeySet;
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::statement::Statement;
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Pool, Pooled, Reports, Restarted, Result, Row, Subject,
    Suite, Time, WallStep,
};
use leasehold_core::{
    Clock as _, FencingToken, GroupName, Key, LeaseId, ManualClock, Mode, Note, Store as _, table,
};
use leasehold_spanner::{SpannerConfig, SpannerStore};
use leasehold_testkit::spanner::{CLOCK_READ, Emulator, PLACE, unavailable};

fn main() -> ExitCode {
    Suite::new().on(Spanner { pool: Pool::new() }).main()
}

struct Spanner {
    pool: Pool<Clocked>,
}

/// An emulator, and the clock that is in a table there.
struct Clocked {
    emulator: Emulator,
    clock: ManualClock,
}

/// An emulator for one case alone, empty at first.
struct State {
    of_case: Pooled<Clocked>,
    forget_after: Duration,
}

impl Spanner {
    async fn take(&self, forget_after: Duration) -> Result<State> {
        let of_case = self.pool.take(Self::start()).await?;
        let state = State { of_case, forget_after };
        state.client().await?.prepare().await?;
        let everything = Mutation::delete(SpannerConfig::DEFAULT_TABLE, KeySet::all());
        let client = state.of_case.emulator.client().await?;
        client.write_only_transaction().build().write([everything]).await?;
        Ok(state)
    }

    async fn start() -> Result<Clocked> {
        let (emulator, clock) = (Emulator::start().await?, ManualClock::new());
        emulator.set_clock(clock.wall_micros()).await?;
        Ok(Clocked { emulator, clock })
    }
}

impl Subject for Spanner {
    type Backing = State;

    fn name(&self) -> &'static str {
        "spanner"
    }

    async fn open(&self) -> Result<State> {
        self.take(table::FORGET_AFTER).await
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(self.take(forget_after).await?))
    }

    fn unavailable(&self) -> Option<String> {
        unavailable()
    }

    fn reports(&self) -> Reports {
        let mut reports = Reports::all();
        reports.own_clock = false;
        reports.exchanges.acquire = 2;
        reports.exchanges.confirmation = 2;
        reports.exchanges.refusal = 2;
        reports.exchanges.renew = 2;
        reports.exchanges.release = 2;
        reports.exchanges.not_held = 2;
        reports.exchanges.evict = 2;
        reports.exchanges.purge = 4;
        reports
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        2_000
    }
}

impl Backing for State {
    type Store = SpannerStore;

    async fn client(&self) -> Result<SpannerStore> {
        let [project, instance, database] = PLACE;
        let emulator = &self.of_case.emulator;
        let config = SpannerConfig::new(project, instance, database)
            .emulator(emulator.grpc())
            .emulator_http(emulator.http())
            .clock(CLOCK_READ)
            .forget_after(Some(self.forget_after))
            .timeout(Duration::from_secs(60));
        Ok(config.connect().await?)
    }

    fn time(&self) -> Time {
        Time::Manual(self.of_case.clock.clone())
    }

    async fn advance(&self, by: Duration) {
        let Clocked { emulator, clock } = &*self.of_case;
        clock.advance(by);
        emulator.set_clock(clock.wall_micros()).await.expect("the emulator runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        let Clocked { emulator, clock } = &*self.of_case;
        clock.set_wall_micros(step.from(clock.wall_micros()));
        emulator.set_clock(clock.wall_micros()).await?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        let client = self.of_case.emulator.client().await?;
        let all = "SELECT (SELECT micros FROM clock WHERE id = 1) AS now, * FROM leasehold ORDER BY key, id";
        let mut found =
            client.single_use().build().execute_query(Statement::builder(all).build()).await?;
        let (mut rows, mut counters) = (Vec::new(), Vec::new());
        while let Some(row) = found.next().await.transpose()? {
            let key = Key::new(&row.get::<String>("key")?)?;
            let id: Vec<u8> = row.get("id")?;
            if id.is_empty() {
                counters.push((key, u64::try_from(row.get::<i64>("counter")?)?));
                continue;
            }
            let mode = if row.get("shared")? { Mode::SHARED } else { Mode::Exclusive };
            let (now, expires): (i64, Option<i64>) = (row.get("now")?, row.get("expires")?);
            let is_evicted = row.get::<String>("state")? == "e";
            let live = !is_evicted && expires.is_none_or(|at| now < at);
            let mut seen = Row::new(key, Some(LeaseId::foreign(&id)?), mode, live);
            seen.token = FencingToken::new(u64::try_from(row.get::<i64>("token")?)?).ok();
            let text = |name: &str| row.get::<Option<String>>(name);
            seen.group = text("group_name")?.map(|group| GroupName::new(&group)).transpose()?;
            let mut note = Note::default();
            if let Some(host) = text("host")? {
                note = note.with_host(&host)?;
            }
            if let Some(pid) = row.get::<Option<i64>>("pid")? {
                note = note.with_pid(u32::try_from(pid)?);
            }
            if let Some(program) = text("program")? {
                note = note.with_program(&program)?;
            }
            if let Some(comment) = text("comment")? {
                note = note.with_comment(&comment)?;
            }
            seen.note = note;
            rows.push(seen);
        }
        Ok(Observation::new(rows, counters))
    }

    async fn restart(&self) -> Result<Restarted> {
        Ok(Restarted::CannotHere("the emulator keeps nothing".to_owned()))
    }

    async fn network(&self) -> Result<Network<SpannerStore>> {
        Ok(Network::CannotHere(
            "the suite's proxy does not count the requests of HTTP/2 yet".to_owned(),
        ))
    }
}
