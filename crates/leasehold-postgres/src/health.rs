//! The level that the server supports under its present settings.

use leasehold_core::{Error, Health, Level, Result};
use leasehold_driver::Halfway;
use tokio_postgres::Row;

use crate::call::{Call, column};
use crate::dialect::Postgres;
use crate::error;
use crate::sql::FUNCTIONS;

/// The oldest server that has all that is used.
const OLDEST: i32 = 130_000;

impl Postgres {
    pub(crate) async fn health(&self) -> Result<Health> {
        let server = self.pool.server();
        let schema = self.sql.schema.as_str();
        let (row, halfway) = Halfway::of(self.query_health()).await;
        let row = row?;
        let version = admit_version(server, schema, &row)?;
        if are_old(&row) {
            return Err(Error::incompatible(format!(
                "the schema {schema:?} of {server} has the functions of an earlier version; run `leasehold init` of this \
                 version as its owner, which replaces them and leaves every lease"
            )));
        }
        let settings = Settings::of(server, &row)?;
        if settings.is_read_only() {
            self.pool.doubt();
        }
        settings.admit(server)?;
        if let Some(missing) = column::<Option<Vec<String>>>(server, &row, "o_missing")? {
            return Err(Error::denied(format!(
                "the user lacks {} in the schema {schema:?}; https://docs.rs/leasehold-postgres lists the GRANTs",
                missing.join(", ")
            )));
        }
        let mut health = settings.health();
        health.identity = column(server, &row, "o_identity")?;
        health.schema = Some(version);
        health.clock_difference_us = Some(halfway.ahead(column(server, &row, "o_now")?));
        if self.listener.is_none() {
            health.hazards.push(
                "waiters are not woken but poll, because the connections are a pooler's or wakeups=0; name the server \
                 itself by the option wakeups"
                    .to_owned(),
            );
        }
        Ok(health)
    }

    /// What the function `health` returns.
    pub(crate) async fn query_health(&self) -> Result<Row> {
        let rows = self.pool.read(self.pool.deadline(), || Call::new(&self.sql.health)).await?;
        rows.into_iter().next().ok_or_else(|| error::unexpected(self.pool.server(), "no row"))
    }
}

/// Refuses a schema of another version than this crate's.
pub(crate) fn admit_version(server: &str, schema: &str, row: &Row) -> Result<u32> {
    let version = column::<Option<i32>>(server, row, "o_version")?.map(i64::from);
    leasehold_sql::admit_version(server, "schema", schema, version)
}

/// Whether the functions are of an earlier version than this crate's. The first ones did not report.
pub(crate) fn are_old(row: &Row) -> bool {
    !row.try_get("o_functions").is_ok_and(|version: Option<i32>| version >= Some(FUNCTIONS))
}

/// The settings of a server.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    version: i32,
    fsync: String,
    full_page_writes: String,
    standbys: String,
    read_only: String,
    is_standby: bool,
    /// Of each standby that is connected, the `sync_state`; `unknown` without the right to read it.
    replicas: Vec<String>,
}

impl Settings {
    pub(crate) fn of(server: &str, row: &Row) -> Result<Self> {
        let settings: Vec<String> = column(server, row, "o_settings")?;
        let [fsync, full_page_writes, standbys, read_only] =
            settings.try_into().map_err(|settings| {
                error::unexpected(server, format_args!("the settings {settings:?}"))
            })?;
        Ok(Self {
            version: column(server, row, "o_server")?,
            fsync,
            full_page_writes,
            standbys,
            read_only,
            is_standby: column(server, row, "o_standby")?,
            replicas: column(server, row, "o_replicas")?,
        })
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_standby || self.read_only == "on"
    }

    /// Refuses a server that cannot be used.
    pub(crate) fn admit(&self, server: &str) -> Result<()> {
        if self.version < OLDEST {
            return Err(Error::incompatible(format!(
                "{server} is PostgreSQL {}; the store needs 13 or newer",
                self.version / 10_000
            )));
        }
        if self.is_read_only() {
            return Err(error::read_only(server, self.is_standby));
        }
        Ok(())
    }

    pub(crate) fn health(&self) -> Health {
        let mut health = Health::new(Level::Fenced);
        let (major, minor) = (self.version / 10_000, self.version % 10_000);
        health.server = Some(format!("PostgreSQL {major}.{minor}"));
        health.durable = self.fsync == "on" && self.full_page_writes == "on";
        let lags = self.lags();
        health.fails_over = lags.is_some();
        if !health.durable {
            health.level = Level::BestEffort;
            health.hazards.push(
                "a crash of the machine loses grants that were acknowledged; set fsync = on and full_page_writes = on"
                    .to_owned(),
            );
        }
        if let Some(why) = lags {
            health.level = Level::BestEffort;
            health
                .hazards
                .push(format!("a standby that takes over may lack the last grants, because {why}"));
        }
        health
    }

    /// Why a standby that is connected may lack what was committed. Of `FIRST n`, the first n confirm each commit and the others
    /// may not have it; of `ANY n`, any n.
    fn lags(&self) -> Option<String> {
        let count = |state: &str| self.replicas.iter().filter(|found| *found == state).count();
        let (all, quorum) = (self.replicas.len(), count("quorum"));
        if all == 0 {
            return None;
        }
        if self.standbys.is_empty() {
            return Some("replication is asynchronous; set synchronous_standby_names".to_owned());
        }
        let unknown = count("unknown");
        if unknown > 0 {
            return Some(format!(
                "this user cannot see whether {unknown} of {all} standbys confirm commits; GRANT pg_read_all_stats to it"
            ));
        }
        let confirming = count("sync") + quorum.min(self.any());
        (confirming < all).then(|| {
            format!(
                "only {confirming} of the {all} standbys that are connected confirm a commit; let synchronous_standby_names \
                 name each that may take over, and wait for all of them, as in 'FIRST 2 (a, b)'"
            )
        })
    }

    /// How many of its standbys the setting waits for, if any of them will do.
    fn any(&self) -> usize {
        let mut words = self.standbys.split(|c: char| c.is_whitespace() || c == '(');
        let is_any = words.next().is_some_and(|word| word.eq_ignore_ascii_case("ANY"));
        let count = words.find(|word| !word.is_empty()).and_then(|word| word.parse().ok());
        count.filter(|_| is_any).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(standbys: &str, replicas: &[&str]) -> Settings {
        Settings {
            version: OLDEST,
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            standbys: standbys.to_owned(),
            read_only: "off".to_owned(),
            is_standby: false,
            replicas: replicas.iter().map(|&state| state.to_owned()).collect(),
        }
    }

    #[test]
    fn a_standby_is_safe_if_each_commit_waits_for_it() {
        for (standbys, replicas, why) in [
            ("", &[][..], None),
            ("", &["async"], Some("asynchronous")),
            ("a", &[], None),
            ("a", &["sync"], None),
            ("a, b", &["sync", "potential"], Some("1 of the 2")),
            ("FIRST 2 (a, b)", &["sync", "sync"], None),
            ("a", &["sync", "async"], Some("1 of the 2")),
            ("ANY 1 (a, b)", &["quorum", "quorum"], Some("1 of the 2")),
            ("any 2(a, b)", &["quorum", "quorum"], None),
            ("ANY 2 (a, b, c)", &["quorum", "quorum", "quorum"], Some("2 of the 3")),
            ("ANY 1 (a, b)", &["quorum"], None),
            ("a", &["unknown"], Some("pg_read_all_stats")),
        ] {
            let health = settings(standbys, replicas).health();
            assert_eq!(health.fails_over, why.is_some(), "{standbys:?} {replicas:?}");
            assert_eq!(
                health.level == Level::BestEffort,
                why.is_some(),
                "{standbys:?} {replicas:?}"
            );
            let hazards = health.hazards.join(" ");
            assert!(why.is_none_or(|why| hazards.contains(why)), "{hazards}");
        }
    }
}
