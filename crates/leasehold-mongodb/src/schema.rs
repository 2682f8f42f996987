//! Creates the collection and its indexes, as mongo-lock does.

use leasehold_core::{Error, Result};
use leasehold_driver::Deadline;
use mongodb::bson::{Document, doc};

use crate::commands::{Commands, INDEX, majority};
use crate::error::{DUPLICATE_KEY, of_write_concern};
use crate::server::{check_collection, check_type};

/// The indexes besides the unique one, by which mongo-lock searches.
const OTHERS: [&str; 4] =
    ["exclusive.lockId", "exclusive.expiresAt", "shared.locks.lockId", "shared.locks.expiresAt"];

/// NamespaceExists, and an index of the same name with other options, such as one that is not sparse.
const EXISTS: [i32; 3] = [48, 85, 86];

/// Creates what is missing, and refuses what another program made that does not fit.
pub(crate) async fn prepare(commands: &Commands, until: Deadline) -> Result<()> {
    let collection = commands.collection();
    let create = doc! { "create": collection, "writeConcern": majority(until) };
    create_or_find(commands, create, until).await?;
    check_type(commands, until).await?;
    let unique = doc! { "key": { "resource": 1 }, "name": INDEX, "unique": true, "sparse": true };
    let index = |index| doc! { "createIndexes": collection, "indexes": [index], "writeConcern": majority(until) };
    let others = OTHERS.map(|field| doc! { "key": { field: 1 }, "name": format!("{field}_1") });
    let indexes = [unique].into_iter().chain(others).map(index);
    for command in indexes {
        create_or_find(commands, command, until).await?;
    }
    check_collection(commands, until).await
}

async fn create_or_find(commands: &Commands, create: Document, until: Deadline) -> Result<()> {
    match commands.run(create, until, None).await {
        Ok(reply) => of_write_concern(commands.server(), &reply),
        Err(failure) if failure.code().is_some_and(|code| EXISTS.contains(&code)) => Ok(()),
        Err(failure) if failure.code() == Some(DUPLICATE_KEY) => Err(Error::incompatible(format!(
            "{0} has several documents of one key, which only a collection without the index {INDEX} can have; remove all \
             but one of each key: db.{0}.aggregate([{{$group: {{_id: \"$resource\", n: {{$sum: 1}}}}}}, {{$match: {{n: \
             {{$gt: 1}}}}}}])",
            commands.collection()
        ))),
        Err(failure) => Err(commands.error(failure, until)),
    }
}
