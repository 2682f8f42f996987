//! Requests that wait for the table, and so are judged later than they were sent.

use std::time::Duration;

use futures_util::future::{join, join_all};
use leasehold_core::{
    AcquireReply, Claims, ErrorKind, Filter, ListRequest, LostReason, Mode, RecordTerm,
    RefusalReason, Remaining, RenewEntry, RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::{MysqlConfig, MysqlStore};
use leasehold_testkit::mysql::{Server, pool};
use leasehold_testkit::requests::{acquire, acquire_for, granted, id, key, release};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{LONG, in_time, until};

const TERM: Duration = Duration::from_secs(1);

/// What a store sends, by the number of leases of each kind.
const FORMS: [(&str, usize, Mode); 3] =
    [("one", 1, Mode::Exclusive), ("batch", 3, Mode::Exclusive), ("apart", 1, Mode::SHARED)];

/// A store for what it sends in a form: the form, how many leases it takes, and their mode.
type Formed = (String, usize, Mode, MysqlStore);

/// A store for each form, so that none waits for another: on connections of its own, and of a caller's pool.
async fn stores(server: &Server) -> Vec<Formed> {
    let mut stores = Vec::new();
    for (form, count, mode) in FORMS {
        stores.push((format!("own {form}"), count, mode, server.store().await));
        let config = MysqlConfig::pool(pool(server.port(), 4), "leasehold").timeout(LONG);
        stores.push((format!("pool {form}"), count, mode, config.connect().await.unwrap()));
    }
    stores
}

fn names(form: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{form} {n}")).collect()
}

/// Both a read lock of everything and one of the table keep writers out; only the first lets others read.
#[tokio::test]
async fn a_lease_that_ended_while_its_renewal_waited_is_over() {
    let server = Server::start(&[]).await.unwrap();
    let observer = server.store().await;
    let stores = stores(&server).await;
    for (form, count, mode, store) in &stores {
        for name in names(form, *count) {
            granted(store.acquire(&acquire_for(&name, "a", *mode, TERM)).await);
        }
    }
    let mut user = server.connect().await.unwrap();
    user.query_drop("FLUSH TABLES WITH READ LOCK").await.unwrap();
    let unlocked = async {
        until(async || terms(&observer).await.iter().all(is_over)).await;
        user.query_drop("UNLOCK TABLES").await.unwrap();
    };
    let (renewed, ()) = in_time(join(renew_all(&stores), unlocked)).await;
    for (form, outcome) in renewed {
        let is_expired = matches!(outcome, RenewOutcome::Lost(Some(LostReason::Expired)));
        assert!(is_expired, "{form}: {outcome:?}");
    }
}

/// Its lease ends meanwhile, and a list reports it. Nobody can judge in a commit.
#[tokio::test]
async fn a_renewal_that_waits_in_its_commit_lets_nobody_in() {
    let server = Server::start(&[]).await.unwrap();
    let observer = server.store().await;
    let other = MysqlStore::connect(&format!("{}?timeout=8s", server.url())).await.unwrap();
    let stores = stores(&server).await;
    for (form, count, mode, store) in &stores {
        for name in names(form, *count) {
            granted(store.acquire(&acquire_for(&name, "a", *mode, 4 * TERM)).await);
        }
    }
    let mut user = server.connect().await.unwrap();
    for stage in ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"] {
        user.query_drop(format!("BACKUP STAGE {stage}")).await.unwrap();
    }
    let committed = async {
        let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'Waiting for backup lock'";
        let count = async || server.rows(waiting).await[0].get::<usize, _>(0).unwrap();
        until(async || count().await >= stores.len()).await;
        until(async || terms(&observer).await.iter().all(is_over)).await;
        let wanted = stores.iter().flat_map(|(form, count, _, _)| names(form, *count));
        let asks: Vec<_> = wanted.map(|name| acquire(&name, "b", Mode::Exclusive)).collect();
        let waits = async || server.status("Innodb_row_lock_waits").await;
        let before = waits().await;
        let replies = join_all(asks.iter().map(|ask| other.acquire(ask))).await;
        assert_eq!(waits().await, before, "an acquire waited for a row");
        for reply in replies {
            match reply {
                Ok(AcquireReply::Refused(refused)) => {
                    assert!(matches!(refused.why, RefusalReason::Busy), "{refused:?}");
                }
                // On a busy machine its last try is not answered in time.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                granted => panic!("{granted:?}"),
            }
        }
        user.query_drop("BACKUP STAGE END").await.unwrap();
    };
    let (renewed, ()) = in_time(join(renew_all(&stores), committed)).await;
    for (form, outcome) in renewed {
        assert!(matches!(outcome, RenewOutcome::Held(_)), "{form}: {outcome:?}");
    }
    assert!(!terms(&observer).await.iter().any(is_over));
}

/// Renews each lease of each form for long.
async fn renew_all(stores: &[Formed]) -> Vec<(&str, RenewOutcome)> {
    let renewals = stores.iter().map(|(form, count, mode, store)| async move {
        let ttl = Ttl::new(LONG).unwrap();
        let entries = names(form, *count)
            .iter()
            .map(|name| RenewEntry::extend(id("a"), Claims::one(key(name), *mode), ttl))
            .collect();
        let renewed = store.renew(&RenewRequest::new(entries)).await.unwrap();
        renewed.leases.into_iter().map(|outcome| (form.as_str(), outcome)).collect::<Vec<_>>()
    });
    join_all(renewals).await.into_iter().flatten().collect()
}

/// What a list reports of all leases.
async fn terms(observer: &MysqlStore) -> Vec<RecordTerm> {
    let listed = observer.list(&ListRequest::new(Filter::default())).await.unwrap();
    listed.records.into_iter().map(|record| record.term).collect()
}

fn is_over(term: &RecordTerm) -> bool {
    matches!(term, RecordTerm::Expired(_))
}

#[tokio::test]
async fn a_term_begins_when_the_wait_is_over() {
    let server = Server::start(&[]).await.unwrap();
    let stores = stores(&server).await;
    for (form, count, mode, store) in &stores {
        for name in names(form, *count) {
            granted(store.acquire(&acquire(&name, "warm", *mode)).await);
            store.release(&release(&name, "warm")).await.unwrap();
        }
    }
    let mut user = server.connect().await.unwrap();
    user.query_drop("LOCK TABLES leasehold.leasehold_leases WRITE").await.unwrap();
    let acquires = stores.iter().flat_map(|(form, count, mode, store)| {
        names(form, *count).into_iter().map(move |name| async move {
            granted(store.acquire(&acquire(&name, "a", *mode)).await)
        })
    });
    let unlocked = async {
        let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table%'";
        // The members of a batch wait behind the first.
        while user.query_first::<usize, _>(waiting).await.unwrap().unwrap() < stores.len() {}
        let now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) FROM (SELECT @@time_zone) AS zone";
        user.query_drop("SET time_zone = '+00:00'").await.unwrap();
        let now: i64 = user.query_first(now).await.unwrap().unwrap();
        user.query_drop("UNLOCK TABLES").await.unwrap();
        now
    };
    let (_, unlocked) = in_time(futures_util::future::join(join_all(acquires), unlocked)).await;
    let early = format!(
        "SELECT CONVERT(`key` USING utf8mb4) FROM leasehold.leasehold_leases WHERE state = 'h' AND granted_at < {unlocked}"
    );
    let early: Vec<_> = server.rows(&early).await;
    assert!(early.is_empty(), "{early:?}");
}

/// The first key goes alone, and the others in one batch, which is answered by one row about all.
#[tokio::test]
async fn what_the_server_takes_to_add_a_row_is_not_left_of_the_term() {
    let (server, store) = Server::with_store(&[]).await;
    let slow = "CREATE TRIGGER leasehold.slow BEFORE INSERT ON leasehold.leasehold_leases FOR EACH ROW DO SLEEP(0.1)";
    server.run(slow).await;
    let requests = [1, 2, 3].map(|n| acquire(&format!("new {n}"), "a", Mode::Exclusive));
    for reply in join_all(requests.iter().map(|request| store.acquire(request))).await {
        let Remaining::For(left) = granted(reply).remaining else { panic!("it has a term") };
        assert!(left <= LONG - Duration::from_millis(100), "{left:?} are left");
    }
}
