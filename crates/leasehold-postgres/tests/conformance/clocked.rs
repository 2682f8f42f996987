//! Servers with a clock that the test moves: the store's function `now_us` reads it from a table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_conformance::{Network, Observation, Pool, Pooled, Proxy, Result, Row, WallStep};
use leasehold_core::{
    Clock as _, FencingToken, GroupName, Key, LeaseId, ManualClock, Mode, Store as _,
};
use leasehold_postgres::tokio_postgres::Client;
use leasehold_postgres::{
    NeneConfig, PostgresConfig, PostgresNeneConfig, PostgresNeneStore, PostgresStore,
};
use leasehold_testkit::postgres::{Server, connect, hostile_url};
use tokio::sync::Mutex;

/// Servers that cases reuse.
#[derive(Clone)]
pub(crate) struct Servers(Pool<Server>);

/// A schema for one case alone.
pub(crate) struct Clocked {
    server: Pooled<Server>,
    schema: String,
    forget_after: Duration,
    clock: ManualClock,
    /// A connection past the store.
    control: Mutex<Client>,
}

/// A time limit that is short for a waiting test, and long for a busy machine.
const SHORT: Duration = Duration::from_secs(10);

/// All requests hold this lock shared while their transactions read the clock.
const CLOCK: &str = "
    CREATE TABLE {schema}.test_clock (now bigint NOT NULL);
    INSERT INTO {schema}.test_clock VALUES ({now});
    CREATE OR REPLACE FUNCTION {schema}.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
        SELECT pg_catalog.pg_advisory_xact_lock_shared(1);
        SELECT now FROM {schema}.test_clock;
    $$;
";

impl Servers {
    pub(crate) fn new() -> Self {
        Self(Pool::new())
    }

    /// A schema with the objects of the store.
    pub(crate) async fn take(&self, forget_after: Duration) -> Result<Clocked> {
        let state = self.take_bare(forget_after).await?;
        state.open().await?.prepare().await?;
        state.move_the_clock().await?;
        Ok(state)
    }

    /// A schema with a clock and nothing else.
    pub(crate) async fn take_schema(&self) -> Result<Clocked> {
        let state = self.take_bare(Duration::ZERO).await?;
        let create = format!("CREATE SCHEMA {}", state.schema);
        state.control.lock().await.batch_execute(&create).await?;
        state.move_the_clock().await?;
        Ok(state)
    }

    async fn take_bare(&self, forget_after: Duration) -> Result<Clocked> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // A killed process loses nothing that it has written; a power cut is not tested here.
        let server = self.0.take(async { Server::start(&["fsync=off"]).await?.hostile().await });
        let server = server.await?;
        let schema = format!("case_{}", LAST.fetch_add(1, Ordering::Relaxed));
        let (clock, control) = (ManualClock::new(), Mutex::new(server.connect().await?));
        Ok(Clocked { server, schema, forget_after, clock, control })
    }
}

impl Clocked {
    async fn move_the_clock(&self) -> Result {
        let clock = CLOCK
            .replace("{schema}", &self.schema)
            .replace("{now}", &self.clock.wall_micros().to_string());
        self.control.lock().await.batch_execute(&clock).await?;
        Ok(())
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    pub(crate) async fn open(&self) -> Result<PostgresStore> {
        // Longer than anything takes: parts of the suite move the clock while others wait.
        self.open_at(self.server.port(), Duration::from_secs(30)).await
    }

    async fn open_at(&self, port: u16, timeout: Duration) -> Result<PostgresStore> {
        let config = self.config(port, timeout)?;
        Ok(config.forget_after(Some(self.forget_after)).connect().await?)
    }

    fn config(&self, port: u16, timeout: Duration) -> Result<PostgresConfig> {
        Ok(PostgresConfig::parse(&hostile_url(port))?.schema(&self.schema).timeout(timeout))
    }

    /// A store connected through a proxy.
    pub(crate) async fn open_behind_proxy(&self) -> Result<Network<PostgresStore>> {
        let proxy = self.proxy().await?;
        let store = self.open_at(proxy.address().port(), SHORT).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }

    async fn proxy(&self) -> Result<Proxy> {
        Proxy::before(([127, 0, 0, 1], self.server.port()).into()).await
    }

    pub(crate) async fn open_nene(&self) -> Result<PostgresNeneStore> {
        self.open_nene_at(self.server.port(), Duration::from_secs(30)).await
    }

    async fn open_nene_at(&self, port: u16, timeout: Duration) -> Result<PostgresNeneStore> {
        // Nobody overwrites what he has read before; the trigger must never refuse what the store does.
        let nene = NeneConfig::default().settle(Duration::ZERO).guard(true);
        let config = PostgresNeneConfig::new(self.config(port, timeout)?).nene(nene);
        Ok(config.now(format!("{}.now_us()", self.schema)).connect().await?)
    }

    /// A store in the PHP library's table connected through a proxy.
    pub(crate) async fn open_nene_behind_proxy(&self) -> Result<Network<PostgresNeneStore>> {
        let proxy = self.proxy().await?;
        let store = self.open_nene_at(proxy.address().port(), SHORT).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }

    /// The rows of the PHP library's table.
    pub(crate) async fn observe_nene(&self) -> Result<Observation> {
        // By default a row is taken over two seconds after its end.
        let over = i64::try_from(self.clock.wall_micros())? - 2_000_000;
        let text = format!(
            "SELECT resource, owner, extract(epoch FROM expires_at)::bigint * 1000000 > {over}
             FROM {}.distributed_locks",
            self.schema
        );
        let mut rows = Vec::new();
        for row in self.control.lock().await.query(&text, &[]).await? {
            let id = LeaseId::foreign(row.get::<_, &str>(1).as_bytes())?;
            rows.push(Row::new(Key::new(row.get(0))?, Some(id), Mode::Exclusive, row.get(2)));
        }
        Ok(Observation::new(rows, Vec::new()))
    }

    pub(crate) async fn advance(&self, by: Duration) -> Result {
        self.change(|clock| clock.advance(by)).await
    }

    pub(crate) async fn step_wall(&self, step: WallStep) -> Result {
        self.change(|clock| clock.set_wall_micros(step.from(clock.wall_micros()))).await
    }

    /// For the server and the manual clock this is one instant: meanwhile nobody reads either.
    async fn change(&self, change: impl FnOnce(&ManualClock)) -> Result {
        let control = self.control.lock().await;
        control.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(1)").await?;
        change(&self.clock);
        let (schema, now) = (&self.schema, self.clock.wall_micros());
        control
            .batch_execute(&format!("UPDATE {schema}.test_clock SET now = {now}; COMMIT"))
            .await?;
        Ok(())
    }

    /// Kills the server and starts it again.
    pub(crate) async fn restart(&self) -> Result {
        self.server.restart().await?;
        *self.control.lock().await = connect(&self.server.url()).await?;
        Ok(())
    }

    /// The content of the schema, by statements past the store.
    pub(crate) async fn observe(&self) -> Result<Observation> {
        let control = self.control.lock().await;
        let text = format!(
            "SELECT key, slot, counter, id, shared, state::text, token, expires, group_name, host, pid, program, comment
             FROM {}.leases ORDER BY key, slot",
            self.schema
        );
        let now = i64::try_from(self.clock.wall_micros())?;
        let (mut rows, mut counters) = (Vec::new(), Vec::new());
        for row in control.query(&text, &[]).await? {
            let key = Key::new(row.get(0))?;
            if row.get::<_, i32>(1) == 0 {
                counters.push((key.clone(), u64::try_from(row.get::<_, i64>(2))?));
            }
            let Some(id) = row.get::<_, Option<&[u8]>>(3) else { continue };
            let mode = if row.get(4) { Mode::SHARED } else { Mode::Exclusive };
            let live = row.get::<_, &str>(5) != "e"
                && row.get::<_, Option<i64>>(7).is_none_or(|expires| expires > now);
            let mut seen = Row::new(key, Some(LeaseId::foreign(id)?), mode, live);
            seen.token = Some(FencingToken::new(u64::try_from(row.get::<_, i64>(6))?)?);
            seen.group = row.get::<_, Option<&str>>(8).map(GroupName::new).transpose()?;
            if let Some(host) = row.get(9) {
                seen.note = seen.note.with_host(host)?;
            }
            if let Some(pid) = row.get::<_, Option<i64>>(10) {
                seen.note = seen.note.with_pid(pid.try_into()?);
            }
            if let Some(program) = row.get(11) {
                seen.note = seen.note.with_program(program)?;
            }
            if let Some(comment) = row.get(12) {
                seen.note = seen.note.with_comment(comment)?;
            }
            rows.push(seen);
        }
        Ok(Observation::new(rows, counters))
    }
}
