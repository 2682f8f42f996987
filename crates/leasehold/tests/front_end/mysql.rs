//! The front end on a real MariaDB server.

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold::{Level, Locker, Wait};
use leasehold_testkit::LONG;
use leasehold_testkit::mysql::Server;

use crate::sql::{setup, sql_tests};

sql_tests!(Server);

#[tokio::test]
async fn a_release_hands_over_to_another_process() {
    let (server, locks) = setup::<Server>().await;
    let others = Locker::connect(&server.url()).await.unwrap();
    assert_eq!(others.level(), Level::Fenced);
    let guard = others.lock("k").ttl(Duration::from_secs(3_600)).await.unwrap();
    let waits = locks.lock("k").wait(Wait::UpTo(LONG)).into_future();
    let (waited, released) = tokio::join!(waits, guard.release());
    released.unwrap();
    waited.unwrap().release().await.unwrap();
}
