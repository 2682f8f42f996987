//! The level that the server supports under its present settings.

use std::collections::HashMap;

use leasehold_core::{Health, Level, Result};
use leasehold_driver::{Deadline, Halfway};
use mysql_async::Row;

use crate::call::{Call, required};
use crate::dialect::Mysql;
use crate::error;
use crate::schema::admit_version;

impl Mysql {
    pub(crate) async fn health(&self, deadline: Deadline) -> Result<Health> {
        let server = self.pool.server();
        let call = || Call::procedure(&self.sql, "health", []);
        let (rows, halfway) = Halfway::of(self.pool.read(deadline, call)).await;
        let (about_us, about_it): (Vec<Row>, Vec<Row>) =
            rows?.into_iter().partition(|row| row.len() > 2);
        let settings = Settings::of(server, &about_it)?;
        if settings.is_read_only() {
            self.pool.doubt();
        }
        settings.admit(server, self.pool.is_mariadb)?;
        let known = about_us.first();
        let version = known.map(|row| required(server, row, "o_version")).transpose()?;
        let database = self.sql.database.as_str();
        let version = leasehold_sql::admit_version(server, "database", database, version)?;
        let row = known.ok_or_else(|| error::unexpected(server, "no row"))?;
        let mut replicas = settings.replicas(server, row)?;
        if settings.is_in_a_group() && self.has_members(deadline).await {
            replicas = Replicas::Members;
        }
        let mut health = settings.health(replicas);
        health.schema = Some(version);
        health.identity = Some(format!("mysql:{}", required::<String>(server, row, "o_identity")?));
        health.clock_difference_us = Some(halfway.ahead(required(server, row, "o_now")?));
        Ok(health)
    }

    /// Whether the server's group has other members, or may have.
    async fn has_members(&self, deadline: Deadline) -> bool {
        let members = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE <> 'OFFLINE'";
        let rows = self.pool.query_text(deadline, members).await;
        let count = rows.ok().and_then(|rows| rows.first().and_then(|row| row.get::<i64, _>(0)));
        count.is_none_or(|count| count > 1)
    }
}

/// Who may take over from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replicas {
    None,
    Some,
    /// The other members of its group.
    Members,
    /// This user may not see them.
    Unseen,
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

    /// The replicas, by a row that counts those this user sees.
    pub(crate) fn replicas(&self, server: &str, row: &Row) -> Result<Replicas> {
        let seen: i64 = required(server, row, "o_replicas")?;
        let sees: i64 = required(server, row, "o_sees")?;
        Ok(self.judged(seen > 0, sees > 0))
    }

    fn judged(&self, seen: bool, sees: bool) -> Replicas {
        // MariaDB counts them for everybody.
        match self.0.get("slaves_connected").map(String::as_str) {
            Some("0") if !seen => Replicas::None,
            None if !seen && (sees || !self.is_on("log_bin")) => Replicas::None,
            None if !seen => Replicas::Unseen,
            _ => Replicas::Some,
        }
    }

    fn is_in_a_group(&self) -> bool {
        self.0.get("group_replication_group_name").is_some_and(|name| !name.is_empty())
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
    pub(crate) fn admit(&self, server: &str, is_mariadb: bool) -> Result<()> {
        admit_version(server, self.version(), is_mariadb)?;
        if self.is_read_only() {
            return Err(error::read_only(server));
        }
        Ok(())
    }

    pub(crate) fn health(&self, replicas: Replicas) -> Health {
        let mut health = Health::new(Level::Fenced);
        let is_mariadb = self.version().to_ascii_lowercase().contains("mariadb");
        let name = if is_mariadb { "MariaDB" } else { "MySQL" };
        let number = self.version().split('-').next().unwrap_or_default();
        health.server = Some(format!("{name} {number}"));
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
        health.fails_over = is_galera || replicas != Replicas::None;
        if is_galera {
            health.level = Level::BestEffort;
            health.hazards.push(
                "the server is a node of a Galera cluster: leases taken on two of its nodes may both be granted, and a node \
                 that crashes may lose acknowledged ones; use a server of its own, or send every client to one node"
                    .to_owned(),
            );
            return health;
        }
        let hazard = match replicas {
            Replicas::None => return health,
            Replicas::Some => {
                "a replica that takes over may lack the last grants, because replication is asynchronous"
            }
            Replicas::Members => {
                "another member of the group that takes over may not have applied the last grants when it begins to serve"
            }
            Replicas::Unseen => {
                "this user cannot see whether the server has replicas, one of which may take over and lack the last grants; \
                 grant it the privilege PROCESS"
            }
        };
        health.level = Level::BestEffort;
        health.hazards.push(hazard.to_owned());
        health
    }
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
    fn what_a_crash_may_lose_is_named() {
        let good =
            [("innodb_flush_log_at_trx_commit", "1"), ("log_bin", "OFF"), ("sync_binlog", "0")];
        let health = settings(&good).health(Replicas::None);
        assert!(health.durable && health.hazards.is_empty() && health.level == Level::Fenced);
        for change in [
            ("innodb_flush_log_at_trx_commit", "2"),
            ("log_bin", "ON"),
            ("innodb_doublewrite", "OFF"),
        ] {
            let mut found = settings(&good);
            found.0.insert(change.0.to_owned(), change.1.to_owned());
            let health = found.health(Replicas::None);
            assert!(!health.durable && health.level == Level::BestEffort, "{change:?}");
        }
    }

    #[test]
    fn clusters_and_replicas_fail_over() {
        let mut found = settings(&[("innodb_flush_log_at_trx_commit", "1")]);
        assert!(found.health(Replicas::Some).fails_over);
        found.0.insert("wsrep_on".to_owned(), "ON".to_owned());
        let health = found.health(Replicas::None);
        assert!(health.fails_over && health.level == Level::BestEffort);
        assert!(health.hazards[0].contains("Galera"), "{:?}", health.hazards);
    }

    #[test]
    fn replicas_that_cannot_be_seen_lower_the_level() {
        let mysql = settings(&[
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
        ]);
        for (seen, sees, expected) in [
            (false, true, Replicas::None),
            (false, false, Replicas::Unseen),
            (true, true, Replicas::Some),
        ] {
            assert_eq!(mysql.judged(seen, sees), expected);
        }
        // Without a binary log there is none, and MariaDB counts them for everybody.
        let alone = settings(&[("log_bin", "OFF")]);
        assert_eq!(alone.judged(false, false), Replicas::None);
        for (connected, expected) in [("0", Replicas::None), ("1", Replicas::Some)] {
            let mariadb = settings(&[("log_bin", "ON"), ("slaves_connected", connected)]);
            assert_eq!(mariadb.judged(false, false), expected);
        }
        for replicas in [Replicas::Unseen, Replicas::Members, Replicas::Some] {
            let health = mysql.health(replicas);
            assert!(health.fails_over && health.level == Level::BestEffort, "{replicas:?}");
            assert_eq!(health.hazards.len(), 1, "{replicas:?}");
        }
        assert_eq!(mysql.health(Replicas::None).level, Level::Fenced);
        assert!(!mysql.is_in_a_group());
        assert!(settings(&[("group_replication_group_name", "a")]).is_in_a_group());
    }
}
