//! What every store can do, as `docs/STORES.md` shows it.

use leasehold::Locker;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{mysql, postgres, redis};

use crate::capability_table::compare;

#[tokio::test]
async fn the_page_of_the_stores_has_their_capabilities() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name| format!("sqlite:{}", folder.path().join(name).display());
    let (redis, postgres, mysql, mongodb) = tokio::join!(
        redis::Server::start(&[]),
        postgres::Server::start(&[]),
        mysql::Server::start(&[]),
        ReplicaSet::start(1),
    );
    let (redis, postgres) = (redis.unwrap(), postgres.unwrap());
    let (mysql, mongodb) = (mysql.unwrap(), mongodb.unwrap());
    let quorum = format!("quorum:?node={}&node={}&node={}", file("a"), file("b"), file("c"));
    let mut columns = Vec::new();
    for (name, url) in [
        ("PostgreSQL", postgres.url()),
        ("Redis", redis.store_url()),
        ("MySQL, MariaDB", mysql.url()),
        ("MongoDB", mongodb.url()),
        ("SQLite", file("locks")),
        ("local", "local:".to_owned()),
        ("quorum", quorum.clone()),
        ("quorum with `fenced`", format!("{quorum}&fenced=1")),
        ("PHP table", format!("{}?format=nene", file("app"))),
    ] {
        let locks = Locker::connect_unchecked(&url).await.unwrap();
        columns.push((name, locks.capabilities()));
    }
    compare(&columns);
}
