//! The table of the PHP library: its own 17 cases by their names, its defects, and its clients beside ours.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use leasehold_core::{
    AcquireReply, BoxFuture, Clock, Effect, ErrorKind, EvictRequest, Filter, ListRequest,
    LostReason, ManualClock, Mode, ReleaseOutcome, RenewOutcome, Store, Ttl,
};
use leasehold_sqlite::{LegacyConfig, SqliteLegacyConfig, SqliteLegacyStore};
use leasehold_testkit::legacy::cases::{self, FAST, FASTER};
use leasehold_testkit::legacy::{Php, sides};
use leasehold_testkit::requests::{acquire_for, granted, refused, release, renew};
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::task::JoinSet;

use crate::common::{SECOND, Workplace, key};

const TERM: Duration = Duration::from_secs(30);
/// By default: a second, and as much for the clocks.
const MARGIN: Duration = Duration::from_secs(2);

async fn open(place: &Workplace) -> SqliteLegacyStore {
    let store = config(place).open().unwrap();
    store.prepare().await.unwrap();
    store
}

fn config(place: &Workplace) -> SqliteLegacyConfig {
    SqliteLegacyConfig::file(&place.path).legacy(legacy(place))
}

fn legacy(place: &Workplace) -> LegacyConfig {
    LegacyConfig::default().clock(Arc::new(place.clock.clone())).settle(Duration::ZERO)
}

async fn acquires(store: &SqliteLegacyStore, resource: &str, owner: &str) -> bool {
    let request = acquire_for(resource, owner, Mode::Exclusive, TERM);
    matches!(store.acquire(&request).await.unwrap(), AcquireReply::Granted(_))
}

async fn releases(store: &SqliteLegacyStore, resource: &str, owner: &str) -> ReleaseOutcome {
    store.release(&release(resource, owner)).await.unwrap().leases.remove(0)
}

async fn renews(store: &SqliteLegacyStore, resource: &str, owner: &str) -> RenewOutcome {
    let to = Ttl::new(TERM).unwrap();
    store.renew(&renew(resource, owner, Mode::Exclusive, to)).await.unwrap().leases.remove(0)
}

async fn is_held(store: &SqliteLegacyStore, resource: &str) -> bool {
    let filter = Filter::default().with_key(key(resource));
    !store.list(&ListRequest::new(filter)).await.unwrap().records.is_empty()
}

/// A client of the PHP library: its statements as it sends them, with the clock of the test.
struct Script {
    file: Connection,
    clock: ManualClock,
}

impl Script {
    fn beside(place: &Workplace) -> Self {
        Self { file: place.raw(), clock: place.clock.clone() }
    }

    /// UTC in whole seconds, as PHP's `gmdate` writes it.
    fn time(&self, later: i64) -> String {
        let seconds = i64::try_from(self.clock.wall_micros() / 1_000_000).unwrap() + later;
        let text = "SELECT strftime('%Y-%m-%d %H:%M:%S', ?1, 'unixepoch')";
        self.file.query_row(text, [seconds], |row| row.get(0)).unwrap()
    }

    fn selects(&self, resource: &str) -> Option<(String, String)> {
        let select = "SELECT owner, expires_at FROM distributed_locks WHERE resource = :r LIMIT 1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        self.file.query_row(select, [resource], row).optional().unwrap()
    }

    /// The second half of an acquire, whatever has happened since the first.
    fn overwrites(&self, resource: &str, owner: &str, ttl: i64) {
        let update = "UPDATE distributed_locks SET owner = :o, expires_at = :e, acquired_at = :a WHERE resource = :r";
        let values = params![owner, self.time(ttl), self.time(0), resource];
        self.file.execute(update, values).unwrap();
    }

    fn acquires(&self, resource: &str, owner: &str, ttl: i64) -> bool {
        match self.selects(resource) {
            None => {
                let insert = "INSERT OR IGNORE INTO distributed_locks (resource, owner, expires_at, acquired_at)
                              VALUES (:r, :o, :e, :a)";
                let values = params![resource, owner, self.time(ttl), self.time(0)];
                self.file.execute(insert, values).unwrap() > 0
            }
            Some((holder, expires)) if holder == owner || expires <= self.time(0) => {
                self.overwrites(resource, owner, ttl);
                true
            }
            Some(_) => false,
        }
    }

    fn releases(&self, resource: &str, owner: &str) -> bool {
        let delete = "DELETE FROM distributed_locks WHERE resource = :r AND owner = :o";
        self.file.execute(delete, [resource, owner]).unwrap() > 0
    }

    fn renews(&self, resource: &str, owner: &str, ttl: i64) -> bool {
        let update = "UPDATE distributed_locks SET expires_at = :e
                      WHERE resource = :r AND owner = :o AND expires_at > :n";
        let values = params![self.time(ttl), resource, owner, self.time(0)];
        self.file.execute(update, values).unwrap() > 0
    }

    fn is_held(&self, resource: &str) -> bool {
        let select =
            "SELECT 1 FROM distributed_locks WHERE resource = :r AND expires_at > :n LIMIT 1";
        let held =
            self.file.query_row(select, [resource, &self.time(0)], |row| row.get::<_, i64>(0));
        held.optional().unwrap().is_some()
    }

    /// A row as a test of the PHP library crafts it.
    fn crafts(&self, resource: &str, owner: &str, expires_at: &str) {
        let insert = "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at) VALUES (?1, ?2, ?3, ?3)";
        self.file.execute(insert, [resource, owner, expires_at]).unwrap();
    }
}

#[tokio::test]
async fn the_cases_of_acquire() {
    let place = Workplace::new();
    let store = open(&place).await;
    // A new resource; the same owner again; another owner.
    assert!(acquires(&store, "r", "a").await);
    assert!(acquires(&store, "r", "a").await);
    assert!(!acquires(&store, "r", "b").await);
    // A row of the year 2000 is reclaimed.
    Script::beside(&place).crafts("old", "dead", "2000-01-01 00:00:00");
    assert!(acquires(&store, "old", "b").await);
    // Two resources have two owners.
    assert!(acquires(&store, "r2", "b").await);
}

#[tokio::test]
async fn the_cases_of_release() {
    let place = Workplace::new();
    let store = open(&place).await;
    assert!(acquires(&store, "r", "a").await);
    // The wrong owner; the right one; a missing row.
    assert!(matches!(releases(&store, "r", "b").await, ReleaseOutcome::NotHeld));
    assert!(matches!(releases(&store, "r", "a").await, ReleaseOutcome::Released));
    assert!(matches!(releases(&store, "r", "a").await, ReleaseOutcome::NotHeld));
    // Then another acquires.
    assert!(acquires(&store, "r", "b").await);
}

#[tokio::test]
async fn the_cases_of_renew() {
    let place = Workplace::new();
    let store = open(&place).await;
    assert!(acquires(&store, "r", "a").await);
    // The right owner; the wrong one; a missing row; an expired one.
    assert!(matches!(renews(&store, "r", "a").await, RenewOutcome::Held(_)));
    let gone = RenewOutcome::Lost(Some(LostReason::Gone));
    assert_eq!(format!("{:?}", renews(&store, "r", "b").await), format!("{gone:?}"));
    assert_eq!(format!("{:?}", renews(&store, "none", "a").await), format!("{gone:?}"));
    place.clock.advance(TERM + SECOND);
    let expired = RenewOutcome::Lost(Some(LostReason::Expired));
    assert_eq!(format!("{:?}", renews(&store, "r", "a").await), format!("{expired:?}"));
}

#[tokio::test]
async fn the_cases_of_is_held() {
    let place = Workplace::new();
    let store = open(&place).await;
    // None; held; after its release; expired.
    assert!(!is_held(&store, "r").await);
    assert!(acquires(&store, "r", "a").await);
    assert!(is_held(&store, "r").await);
    releases(&store, "r", "a").await;
    assert!(!is_held(&store, "r").await);
    Script::beside(&place).crafts("old", "dead", "2000-01-01 00:00:00");
    assert!(!is_held(&store, "old").await);
}

#[tokio::test]
async fn a_php_holder_keeps_ours_out_until_its_own_clock_must_have_said_so() {
    let place = Workplace::new();
    let (store, php) = (open(&place).await, Script::beside(&place));
    assert!(php.acquires("r", "php", 30));
    assert!(is_held(&store, "r").await);
    let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
    let refusal = refused(store.acquire(&request).await);
    let after = refusal.retry_after.unwrap();
    // PHP truncates to whole seconds.
    assert!(after > TERM + MARGIN - SECOND && after <= TERM + MARGIN, "{after:?}");
    place.clock.advance(after - Duration::from_micros(1));
    refused(store.acquire(&request).await);
    place.clock.advance(Duration::from_micros(1));
    granted(store.acquire(&request).await);
    assert!(!php.renews("r", "php", 30));
    assert!(!php.releases("r", "php"));
}

#[tokio::test]
async fn our_holder_keeps_php_out_and_stops_before_its_row_ends() {
    let place = Workplace::new();
    let (store, php) = (open(&place).await, Script::beside(&place));
    assert!(acquires(&store, "r", "ours").await);
    assert!(!php.acquires("r", "php", 30) && php.is_held("r"));
    place.clock.advance(TERM);
    // Ours has ended by now at the latest; PHP waits for the row's end, by a clock that may be a second fast.
    let mut waited = TERM;
    while !php.acquires("r", "php", 30) {
        place.clock.advance(Duration::from_millis(100));
        waited += Duration::from_millis(100);
    }
    assert!(waited >= TERM + MARGIN, "{waited:?}");
    let gone = RenewOutcome::Lost(Some(LostReason::Gone));
    assert_eq!(format!("{:?}", renews(&store, "r", "ours").await), format!("{gone:?}"));
    assert!(php.releases("r", "php"));
    assert!(acquires(&store, "r", "ours").await);
}

/// Defects 1 and 2 of the PHP library: it overwrites what it has read, and believes that it holds what it did not write.
#[tokio::test]
async fn who_took_a_row_over_looks_again_whether_a_php_client_has_overwritten_it() {
    let place = Workplace::new();
    open(&place).await;
    let (store, php) = (
        config(&place).legacy(legacy(&place).settle(SECOND)).open().unwrap(),
        Script::beside(&place),
    );
    php.crafts("r", "dead", "2000-01-01 00:00:00");
    // It has read the row, and is slow.
    assert!(php.selects("r").is_some());
    let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
    let mut taking = JoinSet::new();
    taking.spawn(async move { store.acquire(&request).await });
    while php.selects("r").is_none_or(|(owner, _)| owner != "ours") {
        tokio::task::yield_now().await;
    }
    php.overwrites("r", "php", 30);
    let reply = loop {
        if let Some(reply) = taking.try_join_next() {
            break reply.unwrap();
        }
        place.clock.advance(SECOND);
        tokio::task::yield_now().await;
    };
    let refusal = refused(reply);
    assert!(format!("{:?}", refusal.why).contains("php"), "{refusal:?}");
}

/// Says when the store first looks at it.
#[derive(Debug)]
struct Looked(ManualClock, mpsc::Sender<()>);

impl Clock for Looked {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall_micros(&self) -> u64 {
        let micros = self.0.wall_micros();
        self.1.send(()).unwrap_or_default();
        micros
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }
}

#[tokio::test]
async fn a_lease_that_ended_while_its_renewal_waited_is_not_revived() {
    let place = Workplace::new();
    let store = open(&place).await;
    assert!(acquires(&store, "r", "a").await);
    // So that it has something to write.
    place.clock.advance(SECOND);
    let other = place.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (looks, looked) = mpsc::channel();
    let clock = Arc::new(Looked(place.clock.clone(), looks));
    let waiting = config(&place).legacy(legacy(&place).clock(clock)).open().unwrap();
    let mut renewing = JoinSet::new();
    renewing.spawn(async move { renews(&waiting, "r", "a").await });
    tokio::task::spawn_blocking(move || looked.recv().unwrap()).await.unwrap();
    place.clock.advance(TERM + SECOND);
    other.execute_batch("COMMIT").unwrap();
    let expired = RenewOutcome::Lost(Some(LostReason::Expired));
    let renewed = renewing.join_next().await.unwrap().unwrap();
    assert_eq!(format!("{renewed:?}"), format!("{expired:?}"));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_corrupt_and_no_grant() {
    let place = Workplace::new();
    let (store, php) = (open(&place).await, Script::beside(&place));
    php.crafts("r", "a", "no time");
    let request = acquire_for("r", "b", Mode::Exclusive, TERM);
    let error = store.acquire(&request).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::NotApplied), "{error}");
}

/// What a PHP client of the same owner may do, and what a renewal then finds.
#[tokio::test]
async fn an_acquire_of_php_under_our_own_name_shortens_our_term() {
    let place = Workplace::new();
    let (store, php) = (open(&place).await, Script::beside(&place));
    assert!(acquires(&store, "r", "ours").await);
    assert!(php.acquires("r", "ours", 1));
    place.clock.advance(SECOND);
    let expired = RenewOutcome::Lost(Some(LostReason::Expired));
    assert_eq!(format!("{:?}", renews(&store, "r", "ours").await), format!("{expired:?}"));
}

/// A store on the host's clock.
async fn real(place: &Workplace, legacy: LegacyConfig) -> SqliteLegacyStore {
    let config = SqliteLegacyConfig::file(&place.path).timeout(SECOND);
    let store = config.legacy(legacy).open().unwrap();
    store.prepare().await.unwrap();
    store
}

fn php(place: &Workplace) -> Php {
    php_ahead(place, 0)
}

fn php_ahead(place: &Workplace, ahead: i64) -> Php {
    Php::start_ahead(&format!("sqlite:{}", place.path.display()), "", ahead)
}

#[tokio::test]
async fn php_itself_and_ours_exclude_each_other() {
    let place = Workplace::new();
    let store = real(&place, cases::config()).await;
    let (mut fast, mut faster) = (php_ahead(&place, FAST), php_ahead(&place, FASTER));
    cases::both_exclude_each_other(&store, &mut php(&place), &mut fast, &mut faster).await;
}

#[tokio::test]
async fn what_php_writes_too_late_is_seen_at_the_next_renewal() {
    let place = Workplace::new();
    let store = real(&place, cases::config()).await;
    cases::what_php_writes_too_late_is_seen_at_the_next_renewal(&store, &mut php(&place)).await;
}

#[tokio::test]
async fn the_trigger_refuses_to_overwrite_a_row_that_has_not_ended() {
    let place = Workplace::new();
    real(&place, cases::config()).await;
    let open = async |legacy| real(&place, legacy).await;
    cases::the_trigger_refuses_to_overwrite(open, &mut php(&place)).await;
}

#[tokio::test]
async fn an_open_transaction_of_php_grants_nothing() {
    let place = Workplace::new();
    let store = real(&place, cases::config()).await;
    cases::an_open_transaction_of_php_grants_nothing(&store, &mut php(&place)).await;
}

/// Defect 1: of those who find one expired row, one gets it.
#[tokio::test(flavor = "multi_thread")]
async fn of_contenders_for_an_expired_row_one_wins() {
    let place = Workplace::new();
    let stores = [open(&place).await, open(&place).await];
    place.change(
        "WITH RECURSIVE row (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM row WHERE n < 9999)
         INSERT INTO distributed_locks
         SELECT 'r' || n, 'dead', '2000-01-01 00:00:00', '2000-01-01 00:00:00' FROM row",
    );
    cases::of_contenders_for_expired_rows_one_wins(stores, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_contend_and_nobody_holds_beside_another() {
    let place = Workplace::new();
    for guard in [false, true] {
        let legacy = LegacyConfig::default().skew(Duration::ZERO).guard(guard);
        let mut stores = Vec::new();
        for _ in 0..3 {
            stores.push(real(&place, legacy.clone()).await);
        }
        let clients = (0..3).map(|_| php(&place)).collect();
        let contest = sides::contend(stores, clients, guard, sides::duration() / 2).await;
        println!("with a trigger: {guard}; {contest}");
        contest.is_telling();
    }
}

/// Defect 4: a renewal within the same second.
#[tokio::test]
async fn renewing_twice_in_the_same_second_succeeds() {
    let place = Workplace::new();
    let store = open(&place).await;
    assert!(acquires(&store, "r", "a").await);
    for _ in 0..2 {
        assert!(matches!(renews(&store, "r", "a").await, RenewOutcome::Held(_)));
    }
}

/// Defect 3 and 5: one's own expired row.
#[tokio::test]
async fn an_expired_row_of_ones_own_is_granted_afresh_or_released_as_expired() {
    let place = Workplace::new();
    let store = open(&place).await;
    assert!(acquires(&store, "r", "a").await);
    place.clock.advance(TERM + SECOND);
    let request = acquire_for("r", "a", Mode::Exclusive, TERM);
    assert!(granted(store.acquire(&request).await).fresh);
    place.clock.advance(TERM + SECOND);
    assert!(matches!(releases(&store, "r", "a").await, ReleaseOutcome::Expired));
}

/// Defects 6 and 10: names that do not fit, and terms that are none.
#[tokio::test]
async fn names_that_are_too_long_and_terms_that_are_too_short_are_refused() {
    let place = Workplace::new();
    let store = open(&place).await;
    for (resource, owner, term) in
        [("r".repeat(256), "a".to_owned(), TERM), ("r".to_owned(), "a".to_owned(), SECOND / 2)]
    {
        let error = store.acquire(&acquire_for(&resource, &owner, Mode::Exclusive, term)).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert!(acquires(&store, "JOB", "a").await && acquires(&store, "job", "b").await);
}

/// Defect 13: rows of locks that nobody uses any more.
#[tokio::test]
async fn a_purge_removes_what_anybody_may_take_over() {
    let place = Workplace::new();
    let (store, php) = (open(&place).await, Script::beside(&place));
    php.crafts("old", "dead", "2000-01-01 00:00:00");
    assert!(php.acquires("r", "php", 30));
    let purge = EvictRequest::expired(Filter::default());
    let purged = store.evict(&purge).await.unwrap();
    assert_eq!(purged.removed.iter().map(|gone| gone.key.as_str()).collect::<Vec<_>>(), ["old"]);
    assert!(php.is_held("r"));
}

#[tokio::test]
async fn a_file_that_was_put_in_the_place_of_another_is_used() {
    let place = Workplace::new();
    let store = open(&place).await;
    let backup = place.path.with_extension("backup");
    std::fs::copy(&place.path, &backup).unwrap();
    assert!(acquires(&store, "r", "a").await);
    std::fs::rename(&backup, &place.path).unwrap();
    let gone = RenewOutcome::Lost(Some(LostReason::Gone));
    assert_eq!(format!("{:?}", renews(&store, "r", "a").await), format!("{gone:?}"));
    assert!(Script::beside(&place).acquires("r", "php", 30));
    assert!(!acquires(&store, "r", "a").await);
    std::fs::remove_file(&place.path).unwrap();
    let request = acquire_for("r", "a", Mode::Exclusive, TERM);
    assert_eq!(store.acquire(&request).await.unwrap_err().kind(), ErrorKind::Incompatible);
}

#[tokio::test]
async fn without_the_table_or_the_file_the_command_that_creates_it_is_named() {
    let place = Workplace::new();
    let store = config(&place).open().unwrap();
    for other in ["one", "two"] {
        assert_eq!(store.check().await.unwrap().schema, None);
        let request = acquire_for("r", "a", Mode::Exclusive, TERM);
        let error = store.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.to_string().contains("leasehold init"), "{error}");
        // A file of somebody else.
        place.change(&format!("CREATE TABLE {other} (x)"));
    }
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));
    assert!(config(&place).legacy(legacy(&place).table("a b")).open().is_err());
}
