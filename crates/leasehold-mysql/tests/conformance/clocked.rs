//! Servers with a clock that the test moves: the store's statements read it from a table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_conformance::{
    Failure, Network, Observation, Pool, Pooled, Proxy, Result, Row, WallStep,
};
use leasehold_core::{
    Clock as _, FencingToken, GroupName, Key, LeaseId, ManualClock, Mode, Store as _,
};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::mysql_async::{Conn, Row as SqlRow};
use leasehold_mysql::{MysqlConfig, MysqlNeneConfig, MysqlNeneStore, MysqlStore, NeneConfig};
use leasehold_testkit::mysql::{Product, Server};
use tokio::sync::Mutex;

/// Servers that cases reuse.
#[derive(Clone)]
pub(crate) struct Servers {
    product: Product,
    pool: Pool<Server>,
}

/// A database for one case alone.
pub(crate) struct Clocked {
    server: Pooled<Server>,
    database: String,
    forget_after: Duration,
    clock: ManualClock,
    /// A connection past the store.
    control: Mutex<Conn>,
}

/// A time limit that is short for a waiting test, and long for a busy machine.
const SHORT: Duration = Duration::from_secs(10);

/// How the store's statements read the clock.
const CLOCK: &str = "(SELECT now FROM {schema}.test_clock)";

impl Servers {
    pub(crate) fn new(product: Product) -> Self {
        Self { product, pool: Pool::new() }
    }

    /// A database with the objects of the store.
    pub(crate) async fn take(&self, forget_after: Duration) -> Result<Clocked> {
        let state = self.take_bare(forget_after).await?;
        state.open().await?.prepare().await?;
        Ok(state)
    }

    pub(crate) async fn take_bare(&self, forget_after: Duration) -> Result<Clocked> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // A killed process loses nothing that it has written; a power cut is not tested here.
        let settings = ["--innodb-flush-log-at-trx-commit=2", "--skip-log-bin"];
        let server = self.pool.take(Server::start_product(self.product, &settings)).await?;
        let database = format!("case_{}", LAST.fetch_add(1, Ordering::Relaxed));
        let (clock, control) = (ManualClock::new(), Mutex::new(server.connect().await?));
        let state = Clocked { server, database, forget_after, clock, control };
        state.create_the_clock().await?;
        Ok(state)
    }
}

impl Clocked {
    /// A reader holds the table until its transaction ends.
    async fn create_the_clock(&self) -> Result {
        let mut control = self.control.lock().await;
        let (database, now) = (&self.database, self.clock.wall_micros());
        for statement in [
            format!("CREATE DATABASE {database}"),
            format!("CREATE TABLE {database}.test_clock (now BIGINT NOT NULL) ENGINE = MyISAM"),
            format!("INSERT INTO {database}.test_clock VALUES ({now})"),
        ] {
            control.query_drop(statement).await?;
        }
        Ok(())
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    pub(crate) async fn open(&self) -> Result<MysqlStore> {
        // Longer than anything takes: parts of the suite move the clock while others wait.
        self.open_at(self.server.port(), Duration::from_secs(30)).await
    }

    async fn open_at(&self, port: u16, timeout: Duration) -> Result<MysqlStore> {
        let config = self.config(port, timeout)?;
        Ok(config.forget_after(Some(self.forget_after)).connect().await?)
    }

    fn config(&self, port: u16, timeout: Duration) -> Result<MysqlConfig> {
        let url = format!("mysql://root@127.0.0.1:{port}/{}", self.database);
        Ok(MysqlConfig::parse(&url)?.timeout(timeout).clock(CLOCK))
    }

    /// A store connected through a proxy.
    pub(crate) async fn open_behind_proxy(&self) -> Result<Network<MysqlStore>> {
        let proxy = self.proxy().await?;
        let store = self.open_at(proxy.address().port(), SHORT).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }

    async fn proxy(&self) -> Result<Proxy> {
        Proxy::before(([127, 0, 0, 1], self.server.port()).into()).await
    }

    pub(crate) async fn open_nene(&self) -> Result<MysqlNeneStore> {
        self.open_nene_at(self.server.port(), Duration::from_secs(30)).await
    }

    async fn open_nene_at(&self, port: u16, timeout: Duration) -> Result<MysqlNeneStore> {
        // Nobody overwrites what he has read before; the trigger must never refuse what the store does.
        let nene = NeneConfig::default().settle(Duration::ZERO).guard(true);
        let config = MysqlNeneConfig::new(self.config(port, timeout)?).nene(nene);
        Ok(config.connect().await?)
    }

    /// A store in the PHP library's table connected through a proxy.
    pub(crate) async fn open_nene_behind_proxy(&self) -> Result<Network<MysqlNeneStore>> {
        let proxy = self.proxy().await?;
        let store = self.open_nene_at(proxy.address().port(), SHORT).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }

    /// The rows of the PHP library's table.
    pub(crate) async fn observe_nene(&self) -> Result<Observation> {
        // By default a row is taken over two seconds after its end.
        let over = self.clock.wall_micros() - 2_000_000;
        let text = format!(
            "SELECT resource, owner, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) > {over}
             FROM {}.distributed_locks",
            self.database
        );
        let mut rows = Vec::new();
        for row in self.control.lock().await.query::<(String, String, bool), _>(text).await? {
            let id = LeaseId::foreign(row.1.as_bytes())?;
            rows.push(Row::new(Key::new(&row.0)?, Some(id), Mode::Exclusive, row.2));
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
        let mut control = self.control.lock().await;
        let table = format!("{}.test_clock", self.database);
        control.query_drop(format!("LOCK TABLES {table} WRITE")).await?;
        change(&self.clock);
        let now = self.clock.wall_micros();
        control.query_drop(format!("UPDATE {table} SET now = {now}")).await?;
        control.query_drop("UNLOCK TABLES").await?;
        Ok(())
    }

    /// Kills the server and starts it again.
    pub(crate) async fn restart(&self) -> Result {
        self.server.restart().await?;
        *self.control.lock().await = self.server.connect().await?;
        Ok(())
    }

    /// The content of the database, by statements past the store.
    pub(crate) async fn observe(&self) -> Result<Observation> {
        let mut control = self.control.lock().await;
        let text = format!("SELECT * FROM {}.leasehold_leases ORDER BY `key`, slot", self.database);
        let now = i64::try_from(self.clock.wall_micros())?;
        let (mut rows, mut counters) = (Vec::new(), Vec::new());
        for row in control.query::<SqlRow, _>(text).await? {
            let text = |name: &str| row.get::<Option<String>, _>(name).flatten();
            let number = |name: &str| row.get::<Option<i64>, _>(name).flatten();
            let key = Key::new(&text("key").unwrap_or_default())?;
            if number("slot") == Some(0) {
                let counter = number("counter").unwrap_or_default();
                counters.push((key.clone(), u64::try_from(counter)?));
            }
            if text("state").as_deref() == Some("f") {
                continue;
            }
            let id: Vec<u8> = row.get("id").ok_or_else(|| Failure::new("a lease has no id"))?;
            let mode = if number("shared") == Some(1) { Mode::SHARED } else { Mode::Exclusive };
            let live = text("state").as_deref() != Some("e")
                && number("expires").is_none_or(|expires| expires > now);
            let mut seen = Row::new(key, Some(LeaseId::foreign(&id)?), mode, live);
            let token = number("token").unwrap_or_default();
            seen.token = Some(FencingToken::new(u64::try_from(token)?)?);
            seen.group = text("group_name").map(|group| GroupName::new(&group)).transpose()?;
            if let Some(host) = text("host") {
                seen.note = seen.note.with_host(&host)?;
            }
            if let Some(pid) = number("pid") {
                seen.note = seen.note.with_pid(pid.try_into()?);
            }
            if let Some(program) = text("program") {
                seen.note = seen.note.with_program(&program)?;
            }
            if let Some(comment) = text("comment") {
                seen.note = seen.note.with_comment(&comment)?;
            }
            rows.push(seen);
        }
        Ok(Observation::new(rows, counters))
    }
}
