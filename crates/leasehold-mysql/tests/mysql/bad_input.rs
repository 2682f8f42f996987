//! Mistakes of operators and callers, and what they are told.

use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_mysql::{MysqlConfig, MysqlStore};
use leasehold_testkit::mysql::{Server, url};
use leasehold_testkit::page::privileges_of;
use leasehold_testkit::requests::{acquire, failed};
use leasehold_testkit::sql::bad_input::the_least_privileges_suffice as suffice;

leasehold_testkit::sql_bad_input!(Server);

#[tokio::test]
async fn the_least_privileges_suffice_and_without_them_the_error_names_the_page() {
    let all = privileges_of(include_str!("../../MANUAL.md")).into_iter();
    let grants = all.filter(|statement| statement.ends_with(" TO app")).collect::<Vec<_>>();
    let schema = MysqlConfig::parse(&url(1)).unwrap().schema_sql().unwrap();
    let (server, url) = suffice::<Server>(
        &schema,
        "CREATE USER app",
        &grants.join("; "),
        "docs.rs/leasehold-mysql",
    )
    .await;
    server.run("REVOKE INSERT ON leasehold.* FROM app").await;
    let store = MysqlStore::connect(&url).await.unwrap();
    let acquired = store.acquire(&acquire("k", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Denied, Effect::NotApplied, "docs.rs/leasehold-mysql");
}
