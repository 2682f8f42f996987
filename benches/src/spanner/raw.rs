//! The same work by the driver alone.

use google_cloud_spanner::client::DatabaseClient;
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::ReadWriteTransaction;
use leasehold::{Error, LeaseId, Result};
use leasehold_testkit::spanner::Emulator;

use super::failed;
use crate::sides::Side;

/// Reads and locks the row of a key.
const LOCK: &str = "@{LOCK_SCANNED_RANGES=exclusive} SELECT UNIX_MICROS(CURRENT_TIMESTAMP()) AS now, p.id \
                    FROM UNNEST([@name]) AS n LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} plain AS p ON p.name = n";

pub(crate) async fn side(emulator: &Emulator) -> Result<Side> {
    let table = "CREATE TABLE plain (name STRING(MAX) NOT NULL, id STRING(MAX), expires INT64) PRIMARY KEY (name)";
    emulator.create_table(table).await.map_err(failed)?;
    let client = emulator.client().await.map_err(failed)?;
    Ok(Side::new("two transactions of the driver", move |task, pairs| {
        let client = client.clone();
        async move {
            let name = format!("k{task}");
            for _ in 0..pairs {
                let id = LeaseId::mint()?.to_string();
                transact(&client, &name, Some(id)).await?;
                transact(&client, &name, None).await?;
            }
            Ok(())
        }
    }))
}

async fn transact(client: &DatabaseClient, name: &str, id: Option<String>) -> Result<()> {
    let (statement, name) =
        (Statement::builder(LOCK).add_param("name", name).build(), name.to_owned());
    let done =
        client.read_write_transaction().build().run(move |transaction: ReadWriteTransaction| {
            let (statement, name, id) = (statement.clone(), name.clone(), id.clone());
            async move {
                let mut found = transaction.execute_query(statement).await?;
                let row = found.next().await.transpose()?;
                let now: i64 = row.map(|row| row.get("now")).transpose()?.unwrap_or_default();
                let row = Mutation::new_insert_or_update_builder("plain").set("name").to(name);
                let row = row.set("id").to(id).set("expires").to(now + 30_000_000);
                transaction.buffer([row.build()])
            }
        });
    done.await.map(drop).map_err(|e| Error::unexpected("a plain transaction failed").with_source(e))
}
