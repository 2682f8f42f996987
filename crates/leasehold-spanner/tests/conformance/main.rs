//! The conformance suite on real emulators on a clock of the tests.

mod clocked;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use google_cloud_spanner::key::KeySet;
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::statement::Statement;
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Pool, Pooled, Proxy, Reports, Restarted, Result, Row,
    Subject, Suite, Time, WallStep,
};
use leasehold_core::{
    AnyStore, Clock as _, FencingToken, GroupName, Key, LeaseId, ManualClock, Mode, Note,
    Store as _, table,
};
use leasehold_spanner::{SpannerConfig, SpindleConfig};
use leasehold_testkit::spanner::{CLOCK_READ, Emulator, PLACE, unavailable};

use crate::clocked::Clocked;

fn main() -> ExitCode {
    let native = Spanner { name: "spanner", format: Format::Native, pool: Pool::new() };
    let spindle = Spanner { name: "spanner-spindle", format: Format::Spindle, pool: Pool::new() };
    Suite::new().on(native).on(spindle).main()
}

struct Spanner {
    name: &'static str,
    format: Format,
    pool: Pool<Clocked>,
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Native,
    Spindle,
}

impl Format {
    fn table(self) -> &'static str {
        match self {
            Self::Native => SpannerConfig::DEFAULT_TABLE,
            Self::Spindle => "locktable",
        }
    }
}

/// An emulator for one case alone, empty at first.
struct State {
    of_case: Pooled<Clocked>,
    format: Format,
    forget_after: Duration,
}

impl Spanner {
    async fn take(&self, forget_after: Duration) -> Result<State> {
        let of_case = self.pool.take(Clocked::start()).await?;
        // Spanner takes no commit timestamp of the future.
        let now = ManualClock::new().wall_micros();
        of_case.change(|clock| clock.set_wall_micros(now)).await?;
        let state = State { of_case, format: self.format, forget_after };
        state.client().await?.prepare().await?;
        let everything = Mutation::delete(self.format.table(), KeySet::all());
        let client = state.of_case.emulator.client().await?;
        client.write_only_transaction().build().write([everything]).await?;
        Ok(state)
    }
}

impl Subject for Spanner {
    type Backing = State;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State> {
        self.take(table::FORGET_AFTER).await
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        match self.format {
            Format::Native => Ok(Forgets::After(self.take(forget_after).await?)),
            // The time of a commit is above every earlier one.
            Format::Spindle => Ok(Forgets::Never),
        }
    }

    fn unavailable(&self) -> Option<String> {
        unavailable()
    }

    fn reports(&self) -> Reports {
        let mut reports = Reports::all();
        reports.own_clock = false;
        reports.resends = true;
        reports.exchanges.acquire = 2;
        // A key that was refused lately is first looked at.
        reports.exchanges.confirmation = 3;
        reports.exchanges.refusal = 2;
        reports.exchanges.renew = 2;
        reports.exchanges.release = 2;
        reports.exchanges.not_held = 2;
        reports.exchanges.evict = 2;
        reports.exchanges.purge = 4;
        if self.format == Format::Spindle {
            reports.note = false;
            // A lock is as old as its token, which is no time of the clock of the tests.
            reports.age = false;
            reports.evicted = false;
            reports.any_key = false;
            // It looks for neighbours among the locks.
            reports.exchanges.check = 2;
            // Each lock has a transaction of its own, and the emulator runs one at a time.
            reports.exchanges.each_lease = true;
            reports.many = 40;
        }
        reports
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        2_000
    }
}

impl State {
    /// A store behind this address, with a time limit.
    async fn open(&self, place: SocketAddr, timeout: Duration) -> Result<AnyStore> {
        let [project, instance, database] = PLACE;
        let config = SpannerConfig::new(project, instance, database)
            .emulator(place.to_string())
            .emulator_http(self.of_case.emulator.http())
            .clock(CLOCK_READ)
            .table(self.format.table())
            .forget_after(Some(self.forget_after))
            // On a clock of the tests nothing becomes old in a statement that a busy machine delays.
            .read_again_after(timeout)
            .timeout(timeout);
        Ok(match self.format {
            Format::Native => AnyStore::new(config.connect().await?),
            Format::Spindle => {
                let config = SpindleConfig::new(config).duration(Duration::from_secs(24 * 60 * 60));
                AnyStore::new(config.connect().await?)
            }
        })
    }
}

impl Backing for State {
    type Store = AnyStore;

    async fn client(&self) -> Result<AnyStore> {
        let emulator = ([127, 0, 0, 1], self.of_case.emulator.port()).into();
        // A thousand transactions, one at a time, on a busy machine.
        Ok(self.of_case.steady(self.open(emulator, Duration::from_secs(300)).await?))
    }

    fn time(&self) -> Time {
        Time::Manual(self.of_case.clock.clone())
    }

    async fn advance(&self, by: Duration) {
        self.of_case.change(|clock| clock.advance(by)).await.expect("the emulator runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.of_case.change(|clock| clock.set_wall_micros(step.from(clock.wall_micros()))).await?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        if self.format == Format::Spindle {
            return observe_spindle(&self.of_case.emulator).await;
        }
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

    async fn network(&self) -> Result<Network<AnyStore>> {
        let server = ([127, 0, 0, 1], self.of_case.emulator.port()).into();
        let proxy = Proxy::before_http2(server).await?;
        // Short for a waiting test, long for a busy machine.
        let store = self.open(proxy.address(), Duration::from_secs(20)).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }
}

/// The lock rows of spindle's table.
async fn observe_spindle(emulator: &Emulator) -> Result<Observation> {
    let all = "SELECT (SELECT micros FROM clock WHERE id = 1) AS now, name, UNIX_MICROS(heartbeat) AS heartbeat, \
               UNIX_MICROS(token) AS token, writer FROM locktable WHERE token IS NOT NULL ORDER BY name";
    let client = emulator.client().await?;
    let mut found =
        client.single_use().build().execute_query(Statement::builder(all).build()).await?;
    let (mut rows, mut counters) = (Vec::new(), Vec::new());
    while let Some(row) = found.next().await.transpose()? {
        let (key, token) = (Key::new(&row.get::<String>("name")?)?, row.get::<i64>("token")?);
        counters.push((key.clone(), u64::try_from(token)?));
        let Some(heartbeat) = row.get::<Option<i64>>("heartbeat")? else { continue };
        let writer: String = row.get("writer")?;
        let writer = writer.strip_suffix(" kept").unwrap_or(&writer);
        let (name, id) = writer.rsplit_once(" lh:").expect("no client of spindle writes here");
        let id: Vec<u8> = percent_encoding::percent_decode_str(id).collect();
        let end = heartbeat + 2_000 + 24 * 3_600 * 1_000_000 + 1_000_000;
        let live = row.get::<i64>("now")? < end;
        let mut seen = Row::new(key, Some(LeaseId::foreign(&id)?), Mode::Exclusive, live);
        seen.token = FencingToken::new(u64::try_from(token)?).ok();
        seen.group = if name.is_empty() { None } else { Some(GroupName::new(name)?) };
        rows.push(seen);
    }
    Ok(Observation::new(rows, counters))
}
