//! One program uses SQLite by `sqlx` for its data and by Leasehold for its locks.

use leasehold::{Locker, SqliteStore, Wait};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

#[tokio::test]
async fn a_lock_guards_what_sqlx_writes() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data.db");
    let options = SqliteConnectOptions::new().filename(data).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE runs (token INTEGER NOT NULL)").execute(&pool).await.unwrap();

    let path = directory.path().join("locks.db");
    let locks = Locker::new(SqliteStore::open(&path).await.unwrap());
    let other = Locker::new(SqliteStore::open(&path).await.unwrap());
    let guard = locks.lock("job").await.unwrap();
    assert!(other.lock("job").wait(Wait::No).await.is_err());
    let token = i64::try_from(guard.token().unwrap().get()).unwrap();
    sqlx::query("INSERT INTO runs VALUES (?)").bind(token).execute(&pool).await.unwrap();
    guard.release().await.unwrap();

    other.lock("job").wait(Wait::No).await.unwrap().release().await.unwrap();
    let stored: i64 = sqlx::query_scalar("SELECT token FROM runs").fetch_one(&pool).await.unwrap();
    assert_eq!(stored, token);
}
