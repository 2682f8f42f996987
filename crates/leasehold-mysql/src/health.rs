//! The level that the server supports under its present settings.

use std::collections::HashMap;

use leasehold_core::{Error, Health, Level, Result};
use mysql_async::Row;

use crate::call::Call;
use crate::database::Database;
use crate::error;
use crate::rows::required;
use crate::schema::VERSION;

impl Database {
    pub(crate) async fn check(&self) -> Result<Health> {
        let server = &self.links.server;
        let before = wall();
        let rows = self.read(Call::procedure("health", [])).await?;
        let after = wall();
        let (about_us, about_it): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| row.len() > 2);
        let settings = Settings::of(server, &about_it)?;
        if settings.is_read_only() {
            self.links.doubt();
        }
        settings.admit(server)?;
        let database = self.sql.database.as_str();
        let incompatible = |why: String| Err(Error::incompatible(why));
        let Some(row) = about_us.first() else {
            return incompatible(format!(
                "the objects of the store in the database {database:?} of {server} are not complete; run `leasehold init`"
            ));
        };
        let version: i64 = required(server, row, "o_version")?;
        if version != VERSION {
            return incompatible(format!(
                "the objects of the store in the database {database:?} of {server} have version {version}, but this \
                 program supports version {VERSION}; {}",
                if version > VERSION {
                    "update this program, or give another database"
                } else {
                    "run `leasehold init` of this version"
                }
            ));
        }
        let mut health = settings.health(required(server, row, "o_replicas")?);
        health.schema = u32::try_from(version).ok();
        health.identity = Some(format!("mysql:{}", required::<String>(server, row, "o_identity")?));
        let ours = before + (after - before) / 2;
        let now: i64 = required(server, row, "o_now")?;
        health.clock_difference_us = Some(now - i64::try_from(ours).unwrap_or(i64::MAX));
        Ok(health)
    }
}

pub(crate) fn wall() -> u64 {
    leasehold_core::Clock::wall_micros(&leasehold_driver::SystemClock::new())
}

/// The settings of a server.
#[derive(Debug)]
pub(crate) struct Settings(HashMap<String, String>);

impl Settings {
    pub(crate) fn of(server: &str, rows: &[Row]) -> Result<Self> {
        let setting = |row: &Row| -> Result<(String, String)> {
            let name: String = required(server, row, "Variable_name")?;
            Ok((name.to_ascii_lowercase(), required(server, row, "Value")?))
        };
        rows.iter().map(setting).collect::<Result<_>>().map(Self)
    }

    pub(crate) fn version(&self) -> &str {
        self.0.get("version").map_or("", String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    fn is_on(&self, name: &str) -> bool {
        self.is(name, "ON") || self.is(name, "1")
    }

    pub(crate) fn is_read_only(&self) -> bool {
        ["read_only", "super_read_only", "innodb_read_only"].iter().any(|name| self.is_on(name))
    }

    /// Refuses a server that cannot be used.
    pub(crate) fn admit(&self, server: &str) -> Result<()> {
        admit_version(server, self.version())?;
        if self.is_read_only() {
            return Err(error::read_only(server));
        }
        Ok(())
    }

    pub(crate) fn health(&self, replicas: i64) -> Health {
        let mut health = Health::new(Level::Fenced);
        let flushes = self.is("innodb_flush_log_at_trx_commit", "1");
        let logs = !self.is_on("log_bin") || self.is("sync_binlog", "1");
        let whole =
            !self.0.contains_key("innodb_doublewrite") || !self.is("innodb_doublewrite", "OFF");
        health.durable = flushes && logs && whole;
        if !health.durable {
            health.level = Level::BestEffort;
            health.hazards.push(
                "a crash of the machine loses grants that were acknowledged; set innodb_flush_log_at_trx_commit = 1, \
                 sync_binlog = 1 with a binary log, and innodb_doublewrite = ON"
                    .to_owned(),
            );
        }
        let is_galera = self.is_on("wsrep_on");
        let replicas = replicas > 0 || self.0.get("slaves_connected").is_some_and(|n| n != "0");
        health.fails_over = is_galera || replicas;
        if is_galera {
            health.level = Level::BestEffort;
            health.hazards.push(
                "the server is a node of a Galera cluster: leases taken on two of its nodes may both be granted, and a node \
                 that crashes may lose acknowledged ones; use a server of its own, or send every client to one node"
                    .to_owned(),
            );
        } else if replicas {
            health.level = Level::BestEffort;
            health.hazards.push(
                "a replica that takes over may lack the last grants, because replication is asynchronous".to_owned(),
            );
        }
        health
    }
}

/// Refuses a server that is too old.
pub(crate) fn admit_version(server: &str, version: &str) -> Result<()> {
    let is_old = match numbers(version) {
        Some(found) if is_mariadb(version) => found < (10, 6, 0),
        Some(found) => found < (8, 0, 29),
        None => false,
    };
    if !is_old {
        return Ok(());
    }
    Err(Error::incompatible(format!(
        "{server} is {version}; the store needs MySQL 8.0.29 or MariaDB 10.6, or newer"
    )))
}

pub(crate) fn is_mariadb(version: &str) -> bool {
    version.to_ascii_lowercase().contains("mariadb")
}

/// The numbers at the beginning of a version.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(['.', '-']).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(all: &[(&str, &str)]) -> Settings {
        Settings(
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn versions_that_lack_something_are_refused() {
        for (version, is_good) in [
            ("10.5.28-MariaDB-log", false),
            ("10.6.0-MariaDB", true),
            ("10.11.19-MariaDB-0+deb12u1", true),
            ("11.4.2-MariaDB", true),
            ("8.0.28", false),
            ("8.0.29-0ubuntu0", true),
            ("8.4.0", true),
            ("5.7.44-log", false),
        ] {
            let admitted = admit_version("h:1", version);
            assert_eq!(admitted.is_ok(), is_good, "{version}: {admitted:?}");
        }
    }

    #[test]
    fn what_a_crash_may_lose_is_named() {
        let good =
            [("innodb_flush_log_at_trx_commit", "1"), ("log_bin", "OFF"), ("sync_binlog", "0")];
        let health = settings(&good).health(0);
        assert!(health.durable && health.hazards.is_empty() && health.level == Level::Fenced);
        for change in [
            ("innodb_flush_log_at_trx_commit", "2"),
            ("log_bin", "ON"),
            ("innodb_doublewrite", "OFF"),
        ] {
            let mut found = settings(&good);
            found.0.insert(change.0.to_owned(), change.1.to_owned());
            let health = found.health(0);
            assert!(!health.durable && health.level == Level::BestEffort, "{change:?}");
        }
    }

    #[test]
    fn clusters_and_replicas_fail_over() {
        let mut found = settings(&[("innodb_flush_log_at_trx_commit", "1")]);
        assert!(found.health(1).fails_over);
        found.0.insert("wsrep_on".to_owned(), "ON".to_owned());
        let health = found.health(0);
        assert!(health.fails_over && health.level == Level::BestEffort);
        assert!(health.hazards[0].contains("Galera"), "{:?}", health.hazards);
    }
}
