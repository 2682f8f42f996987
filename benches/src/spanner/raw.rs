//! The same work by the driver alone.

use google_cloud_spanner::client::DatabaseClient;
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::ReadWriteTransaction;
use google_cloud_spanner::types;
use leasehold::{Error, LeaseId, Result, SpannerConfig};
use leasehold_testkit::spanner::Emulator;

use super::failed;
use crate::sides::Side;
use crate::subjects::Keys;

/// A table of which a pair reads and writes rows.
#[derive(Clone, Copy)]
enum Table {
    /// A key, an id and an end.
    Least,
    /// The store's: with a row for the counter of a key.
    Whole,
}

const WHOLE: &str = "two transactions of the driver, on the rows of the store";

/// Transactions on the least row.
pub(crate) async fn least(emulator: &Emulator) -> Result<Side> {
    let table = "CREATE TABLE least (key STRING(MAX) NOT NULL, id STRING(MAX), expires INT64) PRIMARY KEY (key)";
    side(emulator, table, "the same, on a row of three columns", Table::Least, Keys::Known).await
}

/// Transactions on rows as the store has them.
pub(crate) async fn whole(emulator: &Emulator, keys: Keys) -> Result<Side> {
    let schema = SpannerConfig::new("p", "i", "d").table("whole").schema_sql()?;
    side(emulator, &schema, WHOLE, Table::Whole, keys).await
}

/// The rows of the store, and a client of the driver.
pub(super) struct Plain(DatabaseClient);

impl Plain {
    pub(super) async fn new(emulator: &Emulator) -> Result<Self> {
        let schema = SpannerConfig::new("p", "i", "d").table("whole").schema_sql()?;
        emulator.create_table(&schema).await.map_err(failed)?;
        Ok(Self(emulator.client().await.map_err(failed)?))
    }

    /// The transaction of an acquire, or of a release.
    pub(super) async fn transact(&self, key: &str, id: &str, takes: bool) -> Result<()> {
        transact(&self.0, Table::Whole, key, id, takes).await
    }
}

async fn side(
    emulator: &Emulator,
    schema: &str,
    name: &str,
    table: Table,
    keys: Keys,
) -> Result<Side> {
    emulator.create_table(schema).await.map_err(failed)?;
    let client = emulator.client().await.map_err(failed)?;
    Ok(Side::new(name, move |task, pairs| {
        let client = client.clone();
        async move {
            for _ in 0..pairs {
                let key = keys.of(task);
                let id = LeaseId::mint()?.to_string();
                transact(&client, table, &key, &id, true).await?;
                transact(&client, table, &key, &id, false).await?;
            }
            Ok(())
        }
    }))
}

impl Table {
    /// Reads and locks the rows of a key.
    fn lock(self, key: &str) -> Statement {
        let (table, columns) = match self {
            Self::Least => ("least", "p.id"),
            Self::Whole => (
                "whole",
                "p.id, p.counter, p.shared, p.state, p.token, p.expires, p.granted_at, p.renewed_at, p.group_name, p.host, p.pid, \
                 p.program, p.comment, p.reason",
            ),
        };
        let sql = format!(
            "@{{LOCK_SCANNED_RANGES=exclusive}} SELECT UNIX_MICROS(CURRENT_TIMESTAMP()) AS now, n AS key, {columns} \
             FROM UNNEST(@keys) AS n LEFT JOIN@{{JOIN_METHOD=APPLY_JOIN}} `{table}` AS p ON p.key = n"
        );
        let keys = vec![key.to_owned()];
        Statement::builder(sql).add_typed_param("keys", keys, types::array(types::string())).build()
    }

    fn changes(self, key: &str, id: &str, now: i64, takes: bool) -> Vec<Mutation> {
        let row = |id: Vec<u8>| {
            Mutation::new_insert_or_update_builder("whole").set("key").to(key).set("id").to(id)
        };
        match (self, takes) {
            (Self::Least, _) => {
                let row = Mutation::new_insert_or_update_builder("least").set("key").to(key);
                let row = row.set("id").to(takes.then(|| id.to_owned()));
                vec![row.set("expires").to(now + 30_000_000).build()]
            }
            (Self::Whole, true) => {
                let lease =
                    row(id.as_bytes().to_vec()).set("shared").to(false).set("state").to("h");
                let lease = lease.set("token").to(now).set("expires").to(now + 30_000_000);
                let lease = lease.set("granted_at").to(now).set("renewed_at").to(None::<i64>);
                let lease =
                    lease.set("host").to("host").set("pid").to(1_i64).set("program").to("b");
                let lease = ["group_name", "comment", "reason"]
                    .into_iter()
                    .fold(lease, |lease, column| lease.set(column).to(None::<String>));
                vec![row(Vec::new()).set("counter").to(now).build(), lease.build()]
            }
            (Self::Whole, false) => {
                let row = google_cloud_spanner::key::Key::new(vec![
                    key.into(),
                    id.as_bytes().to_vec().into(),
                ]);
                let keys = google_cloud_spanner::key::KeySet::builder().add_key(row).build();
                vec![Mutation::delete("whole", keys)]
            }
        }
    }
}

async fn transact(
    client: &DatabaseClient,
    table: Table,
    key: &str,
    id: &str,
    takes: bool,
) -> Result<()> {
    let (lock, key, id) = (table.lock(key), key.to_owned(), id.to_owned());
    let done =
        client.read_write_transaction().build().run(move |transaction: ReadWriteTransaction| {
            let (lock, key, id) = (lock.clone(), key.clone(), id.clone());
            async move {
                let mut found = transaction.execute_query(lock).await?;
                let mut now = 0;
                while let Some(row) = found.next().await.transpose()? {
                    now = row.get("now")?;
                }
                transaction.buffer(table.changes(&key, &id, now, takes))
            }
        });
    done.await.map(drop).map_err(|e| Error::unexpected("a plain transaction failed").with_source(e))
}
