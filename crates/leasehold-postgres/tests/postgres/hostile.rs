//! Functions, operators, types and relations of another user, in a schema of the session's search path. The conformance suite
//! runs beside them too.

use std::fs;
use std::path::Path;

use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_postgres::{PostgresNeneConfig, PostgresStore};
use leasehold_testkit::postgres::{Server, connect, hostile_url};
use leasehold_testkit::requests::{acquire, failed, granted, key, refused, release};
use leasehold_testkit::sql::SqlTestServer as _;

use crate::qualified::unqualified;

#[tokio::test]
async fn what_another_user_created_is_not_called() {
    let server = Server::start(&["fsync=off"]).await.unwrap().hostile().await.unwrap();
    // The test can fail: a session without protection calls it.
    let victim = connect(&hostile_url(server.port())).await.unwrap();
    for text in ["SELECT cardinality(ARRAY['k'])", "SELECT 1 + 1", "SELECT 'k'::text"] {
        let error = victim.query(text, &[]).await.unwrap_err();
        assert!(error.as_db_error().is_some(), "{text}: {error}");
    }
    let store = PostgresStore::connect(&hostile_url(server.port())).await.unwrap();
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().hazards.len(), 1, "fsync");
    let _wakeups = store.subscribe(&[key("k")]).await.unwrap();
    for mode in [Mode::Exclusive, Mode::SHARED] {
        granted(store.acquire(&acquire("k", "a", mode)).await);
        refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
        store.release(&release("k", "a")).await.unwrap();
    }
    let table = format!("{}&format=nene&schema=apps&guard=1", hostile_url(server.port()));
    server.run("CREATE SCHEMA apps").await;
    let store = PostgresNeneConfig::parse(&table).unwrap().connect().await.unwrap();
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().hazards.len(), 1, "fsync");
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

/// The functions of an earlier version, as far as `check` knows them, and one that is recognised when it is called.
const OLD: &str = "
    ALTER TABLE leasehold.version DROP COLUMN functions;
    DROP FUNCTION leasehold.health();
    CREATE FUNCTION leasehold.health(OUT o_version integer, OUT o_now bigint) LANGUAGE sql AS 'SELECT 1, 2::bigint';
    DROP FUNCTION leasehold.release_one(text, text, bytea, bigint, boolean);
    CREATE FUNCTION leasehold.release_one(
        p_patience text, p_key text, p_id bytea, p_token bigint, p_wakes boolean, OUT outcome text, OUT o_rest bigint
    ) LANGUAGE plpgsql AS 'BEGIN RAISE ''old''; END'";

#[tokio::test]
async fn functions_of_an_earlier_version_are_named_and_replaced() {
    let (server, running) = Server::with_store(&["fsync=off"]).await;
    granted(running.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    server.run(OLD).await;
    let (store, fragment) =
        (PostgresStore::connect(&server.url()).await.unwrap(), "run `leasehold init`");
    failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, fragment);
    assert!(store.release(&release("k", "a")).await.unwrap_err().to_string().contains("old"));
    store.prepare().await.unwrap();
    store.check().await.unwrap();
    store.prepare().await.unwrap();
    // Leases stay, and clients that are running continue.
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    running.release(&release("k", "a")).await.unwrap();
    granted(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

/// The names and contents of the files of a folder of this crate, its folders left out.
fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read =
        |path: std::path::PathBuf| (path.display().to_string(), fs::read_to_string(path).unwrap());
    paths.filter(|path| path.is_file()).map(read).collect()
}

#[test]
fn every_function_has_a_search_path_or_qualified_names() {
    let mut functions = 0;
    for (file, text) in files("src/sql").into_iter().chain(files("src/sql/nene")) {
        for function in text.split("FUNCTION {schema}.").skip(1).filter(|part| part.contains("$$"))
        {
            functions += 1;
            let (head, body) = function.split_once("$$").unwrap();
            let found = unqualified(body);
            assert!(head.contains(" {safe} ") || found.is_empty(), "{file}: {head}\n{found:?}");
        }
    }
    assert!(functions > 15, "{functions}");
}

#[test]
fn every_statement_has_qualified_names() {
    let mut statements = files("src/sql/call");
    for (file, text) in files("src") {
        // Of Rust, the texts in quotes.
        let texts = text.split('"').skip(1).step_by(2).filter(|text| text.contains("SELECT "));
        statements.extend(texts.map(|text| (file.clone(), text.to_owned())));
    }
    // The others create objects, in a transaction with a search path of its own.
    let of_the_table = files("src/sql/nene").into_iter();
    statements.extend(of_the_table.filter(|(_, text)| !text.contains("CREATE ")));
    assert!(statements.len() > 15, "{}", statements.len());
    for (file, text) in statements {
        let found = unqualified(&text);
        assert!(found.is_empty(), "{file}: {found:?} in {text}");
    }
}
