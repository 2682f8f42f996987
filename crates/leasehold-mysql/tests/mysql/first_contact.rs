//! What docs/first-contact.md shows.

use leasehold_mysql::mysql_async::Conn;
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_testkit::mysql::Server;
use leasehold_testkit::page::sql_of;
use leasehold_testkit::sql::SqlTestServer as _;

const PAGE: &str = include_str!("../../../../docs/first-contact.md");

/// Runs the two statements of a fenced write, and returns the token that is stored then.
async fn fenced(conn: &mut Conn, sql: &str, name: &str, values: Vec<String>) -> i64 {
    let (insert, look) = sql.trim().split_once(";\n").unwrap();
    conn.exec_drop(insert, values).await.unwrap();
    conn.exec_first(look.trim_end_matches(';'), (name,)).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_fenced_writes_of_the_page_refuse_a_late_holder() {
    let server = Server::start(&[]).await.unwrap();
    let sql = sql_of(PAGE, "## Fencing in MySQL and MariaDB");
    let [tables, write, fence] = &sql[..] else { panic!("three blocks") };
    let (mut ours, mut other) = (server.connect().await.unwrap(), server.connect().await.unwrap());
    for conn in [&mut ours, &mut other] {
        conn.query_drop("CREATE DATABASE IF NOT EXISTS app").await.unwrap();
        conn.query_drop("USE app").await.unwrap();
    }
    ours.query_drop(tables).await.unwrap();
    let report = |token: i64, body: &str| vec!["r".to_owned(), token.to_string(), body.to_owned()];
    let mut stored = Vec::new();
    for (token, body) in [(7, "first"), (8, "next"), (8, "again"), (7, "late")] {
        stored.push(fenced(&mut ours, write, "r", report(token, body)).await);
    }
    assert_eq!(stored, [7, 8, 8, 8]);
    let body: Option<String> = ours.query_first("SELECT body FROM reports").await.unwrap();
    assert_eq!(body.as_deref(), Some("again"));

    // A late holder whose transaction began before the next holder wrote learns of it all the same.
    let of = |token: i64| vec!["k".to_owned(), token.to_string()];
    assert_eq!(fenced(&mut ours, fence, "k", of(7)).await, 7);
    ours.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
    assert_eq!(fenced(&mut other, fence, "k", of(8)).await, 8);
    assert_eq!(fenced(&mut ours, fence, "k", of(7)).await, 8);
    ours.query_drop("ROLLBACK").await.unwrap();
}
