//! A schema for one case of the conformance suite, with a clock that the test moves: statements of the stores read it
//! from a table there.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_conformance::{Failure, Observation, Pooled, Result, Row};
use leasehold_core::{Clock as _, FencingToken, GroupName, Key, LeaseId, ManualClock, Mode};
use tokio::sync::Mutex;

use super::Values;
use super::nene::NeneServer;

/// How the stores of a server read the clock of a case, and how the case reads their tables.
pub trait ClockedServer: NeneServer {
    /// Creates `{schema}` and its clock, which is at `{now}`.
    const CLOCK: &'static str;

    /// Whether preparing the store leaves the clock as it is, and so may come after.
    const KEEPS_THE_CLOCK: bool;

    /// Statements between which nobody reads the clock of `{schema}`.
    const STOPS: [&'static str; 2];

    /// The table of the leases in a schema, whether a row of it has no lease, and its id in hexadecimal digits.
    const TABLE: &'static str;
    const IS_FREE: &'static str;
    const HEX_OF_ID: &'static str;

    /// Reads what no token is above.
    const MARK: &'static str;

    /// When a lease in the table of the PHP library ends, in microseconds.
    const NENE_END: &'static str;

    /// A store in a case's schema, at this port, by its clock.
    fn clocked(port: u16, schema: &str, timeout: Duration) -> Result<Self::Config>;

    /// A store with this configuration.
    fn connect_with(config: Self::Config) -> impl Future<Output = Result<Self::Store>> + Send;
}

/// A schema for one case alone.
pub struct Clocked<S: ClockedServer> {
    pub server: Pooled<S>,
    pub schema: String,
    pub clock: ManualClock,
    /// A connection past the store.
    control: Mutex<S::Client>,
}

impl<S: ClockedServer> Clocked<S> {
    /// A schema that does not exist yet.
    pub async fn new(server: Pooled<S>) -> Result<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let schema = format!("case_{}", LAST.fetch_add(1, Ordering::Relaxed));
        let control = Mutex::new(server.connect().await?);
        Ok(Self { server, schema, clock: ManualClock::new(), control })
    }

    async fn query(&self, text: &str) -> Result<Vec<Values>> {
        let text = text
            .replace("{schema}", &self.schema)
            .replace("{now}", &self.clock.wall_micros().to_string());
        S::query(&mut *self.control.lock().await, &text).await
    }

    pub async fn create_the_clock(&self) -> Result {
        self.query(S::CLOCK).await.map(drop)
    }

    /// For the server and the manual clock this is one instant: meanwhile nobody reads either.
    pub async fn change(&self, change: impl FnOnce(&ManualClock)) -> Result {
        let mut control = self.control.lock().await;
        let [stop, resume] = S::STOPS.map(|text| text.replace("{schema}", &self.schema));
        S::query(&mut control, &stop).await?;
        change(&self.clock);
        let (schema, now) = (&self.schema, self.clock.wall_micros());
        let text = format!("UPDATE {schema}.test_clock SET now = {now}; {resume}");
        S::query(&mut control, &text).await.map(drop)
    }

    /// Kills the server and starts it again.
    pub async fn restart(&self) -> Result {
        self.server.restart().await?;
        *self.control.lock().await = self.server.connect().await?;
        Ok(())
    }

    /// The rows of the PHP library's table. By default a row is taken over two seconds after its end.
    pub async fn observe_nene(&self) -> Result<Observation> {
        let end = S::NENE_END;
        let text = format!(
            "SELECT resource, owner, {end} > {{now}} - 2000000 FROM {{schema}}.distributed_locks"
        );
        let mut rows = Vec::new();
        for row in self.query(&text).await? {
            let id = LeaseId::foreign(value(&row, 1)?.as_bytes())?;
            let key = Key::new(value(&row, 0)?)?;
            rows.push(Row::new(key, Some(id), Mode::Exclusive, is_true(&row, 2)?));
        }
        Ok(Observation::new(rows, Vec::new()))
    }

    /// The rows of the leases, and what no token is above.
    pub async fn observe(&self) -> Result<Observation> {
        let (key, is_free, id, table) = (S::KEY, S::IS_FREE, S::HEX_OF_ID, S::TABLE);
        let text = format!(
            "SELECT {key}, {is_free}, {id}, shared, state <> 'e' AND (expires IS NULL OR expires > {{now}}),
                    token, group_name, host, pid, program, comment
             FROM {{schema}}.{table} ORDER BY {key}, slot"
        );
        let mut rows = Vec::new();
        for row in self.query(&text).await? {
            let key = Key::new(value(&row, 0)?)?;
            if is_true(&row, 1)? {
                continue;
            }
            let id = LeaseId::foreign(&bytes(value(&row, 2)?)?)?;
            let mode = if is_true(&row, 3)? { Mode::SHARED } else { Mode::Exclusive };
            let mut seen = Row::new(key, Some(id), mode, is_true(&row, 4)?);
            seen.token = Some(FencingToken::new(value(&row, 5)?.parse()?)?);
            seen.group = row[6].as_deref().map(GroupName::new).transpose()?;
            let pid = row[8].as_deref().map(str::parse).transpose()?;
            seen.note = crate::note(row[7].as_deref(), pid, row[9].as_deref(), row[10].as_deref())?;
            rows.push(seen);
        }
        let found = self.query(S::MARK).await?;
        let mark = found.first().ok_or_else(|| Failure::new("no mark"))?;
        Ok(Observation::new(rows, []).with_mark(value(mark, 0)?.parse()?))
    }
}

/// A value that must be there.
fn value(row: &Values, at: usize) -> Result<&str> {
    row[at].as_deref().ok_or_else(|| Failure::new(format!("no value {at} in {row:?}")))
}

fn is_true(row: &Values, at: usize) -> Result<bool> {
    value(row, at).map(|value| ["t", "1"].contains(&value))
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let pairs = (0..hex.len()).step_by(2);
    Ok(pairs
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16))
        .collect::<std::result::Result<_, _>>()?)
}
