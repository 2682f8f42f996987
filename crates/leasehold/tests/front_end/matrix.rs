//! The table of capabilities in `docs/STORES.md`, from the capabilities themselves.

use std::time::Duration;

use leasehold::Locker;
use leasehold::inspect::Capabilities;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{mysql, postgres, redis};

/// Set to write the table instead of comparing it.
const WRITE: &str = "LEASEHOLD_TEST_WRITE_STORES";

type Cell = fn(&Capabilities) -> String;

const ROWS: [(&str, Cell); 13] = [
    ("Shared mode", |can| yes(can.shared)),
    ("Limit on shared holders", |can| yes(can.shared_limit)),
    ("Several keys in one lease", |can| yes(can.many_keys)),
    ("Leases without end (`Ttl::NEVER`)", |can| yes(can.never)),
    ("`min_hold`", |can| yes(can.keep)),
    ("Fencing tokens", |can| yes(can.tokens)),
    ("Wakes waiters", |can| yes(can.notifications)),
    ("Grants in the order of arrival", |can| yes(can.fair)),
    ("A release reports `Expired`", |can| yes(can.reports_expired)),
    ("Shortest term", |can| time(can.min_term)),
    ("Longest term", |can| time(can.max_term)),
    ("A lease ends for others later than for its holder, by", |can| time(can.margin)),
    ("Longest key", |can| format!("{} bytes", can.max_key_bytes)),
];

fn yes(can: bool) -> String {
    if can { "yes" } else { "no" }.to_owned()
}

fn time(time: Duration) -> String {
    const YEAR: u64 = 365 * 24 * 3_600;
    match (time.as_secs(), time.as_millis()) {
        (_, 0) => "0".to_owned(),
        (0, millis) => format!("{millis} ms"),
        (secs, _) if secs % YEAR == 0 => format!("{} years", secs / YEAR),
        (secs, _) => format!("{secs} s"),
    }
}

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
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let mut table = format!("| | {} |\n|{}\n", names.join(" | "), "---|".repeat(names.len() + 1));
    for (name, cell) in ROWS {
        let cells: Vec<_> = columns.iter().map(|(_, can)| cell(can)).collect();
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/STORES.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page
        .split_once(
            "\n| | PostgreSQL | Redis | MySQL, MariaDB | MongoDB | SQLite | local | quorum |",
        )
        .unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let written = format!("{before}\n{table}\n{after}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, &written).unwrap();
    } else {
        assert!(
            page == written,
            "docs/STORES.md shows other capabilities; {WRITE}=1 writes:\n\n{table}"
        );
    }
}
