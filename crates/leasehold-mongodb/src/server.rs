//! What kind of server answers.

use leasehold_core::{Error, Result};
use leasehold_driver::{Deadline, Halfway};
use mongodb::bson::{DateTime, Document, doc};

use crate::commands::{Commands, INDEX};
use crate::document::first_batch;
use crate::error::no_index;

/// What the store learns when it connects.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// A member of a replica set: it has transactions and change streams.
    pub(crate) is_replicated: bool,
    /// A router of a sharded cluster.
    pub(crate) is_router: bool,
    /// Identifies its process.
    pub(crate) identity: Option<String>,
    /// How far its clock is ahead of this machine's, in microseconds.
    pub(crate) ahead: Option<i64>,
}

impl Server {
    /// Asks the server what it is, and refuses one that the store cannot use.
    pub(crate) async fn read(commands: &Commands, until: Deadline) -> Result<Self> {
        let (hello, halfway) = Halfway::of(commands.command(doc! { "hello": 1 }, until)).await;
        let hello = hello?;
        let build = commands.command(doc! { "buildInfo": 1 }, until).await?;
        let version = build.get_str("version").unwrap_or("unknown").to_owned();
        if let Some(product) = product(&hello, &build) {
            return Err(Error::incompatible(format!(
                "{} is {product}, which speaks MongoDB's protocol and is another product; the store is not tested with it",
                commands.server()
            )));
        }
        let numbers: Vec<_> =
            version.split('.').map_while(|part| part.parse::<u32>().ok()).collect();
        if numbers.as_slice() < &[4, 4] {
            return Err(Error::incompatible(format!(
                "{} is MongoDB {version}; the store needs 4.4 or newer",
                commands.server()
            )));
        }
        let is_router = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
        let is_replicated = is_router || hello.get_str("setName").is_ok();
        let process = hello.get_document("topologyVersion").ok();
        let identity = process.and_then(|process| process.get_object_id("processId").ok());
        let ahead = |now: &DateTime| halfway.ahead(now.timestamp_millis().saturating_mul(1_000));
        Ok(Self {
            is_replicated,
            is_router,
            identity: identity.map(|id| id.to_hex()),
            ahead: hello.get_datetime("localTime").ok().map(ahead),
        })
    }
}

/// The name of a product that only speaks the protocol.
fn product(hello: &Document, build: &Document) -> Option<&'static str> {
    if build.contains_key("ferretdb") || build.contains_key("ferretdbVersion") {
        return Some("FerretDB");
    }
    let hosts = hello.get_array("hosts").into_iter().flatten();
    let mut names = hosts.filter_map(|host| host.as_str()).chain(hello.get_str("me"));
    if names.any(|name| name.contains(".cosmos.azure.com")) {
        return Some("Azure Cosmos DB");
    }
    // MongoDB's own builds name the engine that they were built with; Amazon DocumentDB names none.
    (!build.contains_key("storageEngines") && !build.contains_key("modules"))
        .then_some("another server, such as Amazon DocumentDB")
}

/// Refuses what is no ordinary collection.
pub(crate) async fn check_type(commands: &Commands, until: Deadline) -> Result<()> {
    let filter = doc! { "name": commands.collection() };
    let listed = commands
        .command(
            doc! { "listCollections": 1, "filter": filter, "authorizedCollections": true },
            until,
        )
        .await?;
    let Some(found) = first_batch(&listed).next().cloned() else {
        return Err(no_index(commands.server()));
    };
    let kind = found.get_str("type").unwrap_or("collection");
    let options = found.get_document("options").cloned().unwrap_or_default();
    let wrong = match kind {
        "collection" if options.get_bool("capped").unwrap_or(false) => Some("capped"),
        "collection" => None,
        "view" => Some("a view"),
        _ => Some("of another type, such as a time series"),
    };
    let Some(wrong) = wrong else { return Ok(()) };
    Err(Error::incompatible(format!(
        "the collection {} is {wrong}; give another name by the option collection",
        commands.collection()
    )))
}

/// Refuses a collection in which one key can have two documents, or that is none.
pub(crate) async fn check_collection(commands: &Commands, until: Deadline) -> Result<()> {
    check_type(commands, until).await?;
    let indexes = commands.command(doc! { "listIndexes": commands.collection() }, until).await?;
    let unique =
        first_batch(&indexes).find(|index| index.get_str("name").is_ok_and(|name| name == INDEX));
    let Some(index) = unique else { return Err(no_index(commands.server())) };
    let is_right = index.get_bool("unique").unwrap_or(false)
        && index
            .get_document("key")
            .is_ok_and(|key| key.len() == 1 && key.contains_key("resource"))
        && !index.contains_key("partialFilterExpression")
        && !index.contains_key("collation");
    if is_right {
        return Ok(());
    }
    Err(Error::incompatible(format!(
        "the index {INDEX} of the collection {0} is not a unique one of the field resource, without which two clients could \
         hold one key; replace it: db.{0}.dropIndex(\"{INDEX}\"); db.{0}.createIndex({{resource: 1}}, {{unique: true, \
         sparse: true}})",
        commands.collection()
    )))
}
