//! What docs/first-contact.md shows.

use leasehold_testkit::page::sql_of;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::sql::SqlTestServer as _;

const PAGE: &str = include_str!("../../../../docs/first-contact.md");

#[tokio::test]
async fn the_fenced_writes_of_the_page_refuse_a_late_holder() {
    let server = Server::start(&[]).await.unwrap();
    let sql = sql_of(PAGE, "## Fencing in PostgreSQL");
    let [reports, write, fences, fence] = &sql[..] else { panic!("four blocks") };
    server.run(reports).await;
    server.run(fences).await;
    let mut client = server.connect().await.unwrap();
    let mut written = Vec::new();
    for (token, body) in [(7_i64, "first"), (8, "next"), (8, "again"), (7, "late")] {
        written.push(client.query(write, &[&"r", &token, &body]).await.unwrap().len());
    }
    assert_eq!(written, [1, 1, 1, 0]);
    let body: String = client.query_one("SELECT body FROM reports", &[]).await.unwrap().get(0);
    assert_eq!(body, "again");

    // The fence holds the row until the commit: who comes later waits, and who is late is refused.
    let later = client.transaction().await.unwrap();
    assert_eq!(later.query(fence, &[&"k", &8_i64]).await.unwrap().len(), 1);
    let other = server.connect().await.unwrap();
    let late = async { other.query(fence, &[&"k", &7_i64]).await.unwrap().len() };
    let (late, committed) = tokio::join!(late, later.commit());
    committed.unwrap();
    assert_eq!(late, 0);
}
