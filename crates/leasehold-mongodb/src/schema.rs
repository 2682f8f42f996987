//! Creates the collection and its indexes, as mongo-lock does.

use leasehold_core::Result;
use leasehold_driver::Deadline;
use mongodb::bson::doc;

use crate::commands::{Commands, INDEX, majority};
use crate::server::check_collection;

/// The indexes besides the unique one, by which mongo-lock searches.
const OTHERS: [&str; 4] =
    ["exclusive.lockId", "exclusive.expiresAt", "shared.locks.lockId", "shared.locks.expiresAt"];

/// NamespaceExists, and an index of the same name with other options, such as one that is not sparse.
const EXISTS: [i32; 3] = [48, 85, 86];

/// Creates what is missing, and refuses what another program made that does not fit.
pub(crate) async fn prepare(commands: &Commands, until: Deadline) -> Result<()> {
    let collection = commands.collection();
    let create = doc! { "create": collection, "writeConcern": majority(until) };
    let unique = doc! { "key": { "resource": 1 }, "name": INDEX, "unique": true, "sparse": true };
    let index = |index| doc! { "createIndexes": collection, "indexes": [index], "writeConcern": majority(until) };
    let others = OTHERS.map(|field| doc! { "key": { field: 1 }, "name": format!("{field}_1") });
    let indexes = [unique].into_iter().chain(others).map(index);
    for command in [create].into_iter().chain(indexes) {
        match commands.run(command, until, None).await {
            Ok(_) => {}
            Err(failure) if failure.code().is_some_and(|code| EXISTS.contains(&code)) => {}
            Err(failure) => return Err(commands.error(failure, until)),
        }
    }
    check_collection(commands, until).await
}
