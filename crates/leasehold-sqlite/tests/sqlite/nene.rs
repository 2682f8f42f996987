//! The table of the PHP library, beside its clients.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use leasehold_core::{
    BoxFuture, Clock, Effect, ErrorKind, LostReason, Mode, RenewOutcome, Store as _, Ttl,
};
use leasehold_driver::SystemClock;
use leasehold_sqlite::{NeneConfig, SqliteNeneConfig, SqliteNeneStore};
use leasehold_testkit::nene::cases::config;
use leasehold_testkit::nene::{Database, Php};
use leasehold_testkit::requests::{acquire, acquire_for, failed, granted, only, refused, renew};
use tokio::task::JoinSet;

use crate::common::{SECOND, Workplace};

const TERM: Duration = Duration::from_secs(30);
/// By default: a second, and as much for the clocks.
const MARGIN: Duration = Duration::from_secs(2);

/// A file, and the looks at the clock of its patient stores.
struct Place {
    workplace: Workplace,
    looks: mpsc::Sender<()>,
    looked: mpsc::Receiver<()>,
}

impl Database for Place {
    type Store = SqliteNeneStore;

    const UNREADABLE: &'static str = "remove that row";

    async fn new() -> Self {
        let (looks, looked) = mpsc::channel();
        Self { workplace: Workplace::new(), looks, looked }
    }

    async fn open_table(&self, nene: NeneConfig) -> SqliteNeneStore {
        prepared(&self.workplace, 5 * SECOND, nene).await
    }

    async fn open_patient(&self, nene: NeneConfig) -> SqliteNeneStore {
        let clock = Arc::new(Looked { clock: SystemClock::new(), looks: self.looks.clone() });
        prepared(&self.workplace, TERM, nene.clock(clock)).await
    }

    async fn put_unreadable(&self) {
        let row = "INSERT INTO distributed_locks VALUES ('r', 'php', 'no time', 'no time')";
        self.workplace.change(row);
    }

    async fn until_it_waits<T: Send + 'static>(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> JoinSet<T> {
        while self.looked.try_recv().is_ok() {}
        let mut waiting = JoinSet::new();
        waiting.spawn(operation);
        self.looked.recv().unwrap();
        // It has looked at its clock; then it reads the row and waits for the file. No event shows it.
        tokio::time::sleep(SECOND / 10).await;
        waiting
    }

    fn php_ahead(&self, ahead: i64) -> Php {
        php(&self.workplace, ahead)
    }
}

async fn prepared(workplace: &Workplace, timeout: Duration, nene: NeneConfig) -> SqliteNeneStore {
    let config = SqliteNeneConfig::file(&workplace.path).timeout(timeout).nene(nene);
    let store = config.connect().await.unwrap();
    store.prepare().await.unwrap();
    store
}

fn php(workplace: &Workplace, ahead: i64) -> Php {
    Php::start(&format!("sqlite:{}", workplace.path.display()), "", ahead)
}

/// Reports when the store looks at it.
#[derive(Debug)]
struct Looked {
    clock: SystemClock,
    looks: mpsc::Sender<()>,
}

impl Clock for Looked {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall_micros(&self) -> u64 {
        let micros = self.clock.wall_micros();
        self.looks.send(()).unwrap();
        micros
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }
}

leasehold_testkit::nene_tests!(Place);

/// A store and a PHP client with one clock, which the test moves.
struct Moved {
    workplace: Workplace,
    store: SqliteNeneStore,
    php: Php,
}

impl Moved {
    async fn new() -> Self {
        let workplace = Workplace::new();
        let clock = Arc::new(workplace.clock.clone());
        let store = prepared(&workplace, SECOND, config().clock(clock)).await;
        let php = php(&workplace, 0);
        let mut moved = Self { workplace, store, php };
        moved.advance(Duration::ZERO);
        moved
    }

    fn advance(&mut self, by: Duration) {
        self.workplace.clock.advance(by);
        self.php.stops_its_clock_at(self.workplace.clock.wall_micros() / 1_000_000);
    }
}

#[tokio::test]
async fn a_php_holder_keeps_ours_out_until_its_row_has_expired_by_its_own_clock() {
    let mut moved = Moved::new().await;
    assert!(moved.php.acquired("r", "php", 30));
    let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
    let refusal = refused(moved.store.acquire(&request).await);
    let after = refusal.retry_after.unwrap();
    // PHP truncates to whole seconds.
    assert!(after > TERM + MARGIN - SECOND && after <= TERM + MARGIN, "{after:?}");
    moved.advance(after - Duration::from_micros(1));
    refused(moved.store.acquire(&request).await);
    moved.advance(Duration::from_micros(1));
    granted(moved.store.acquire(&request).await);
    assert!(!moved.php.renews("r", "php", 30) && !moved.php.releases("r", "php"));
}

#[tokio::test]
async fn our_holder_keeps_php_out_and_stops_before_its_row_ends() {
    let mut moved = Moved::new().await;
    granted(moved.store.acquire(&acquire_for("r", "ours", Mode::Exclusive, TERM)).await);
    assert!(!moved.php.acquired("r", "php", 30) && moved.php.is_held("r"));
    let mut waited = TERM + SECOND;
    moved.advance(waited);
    is_lost(&moved.store, LostReason::Expired).await;
    // By a clock that may be a second fast.
    while !moved.php.acquired("r", "php", 30) {
        moved.advance(SECOND / 10);
        waited += SECOND / 10;
    }
    assert!(waited >= TERM + MARGIN, "{waited:?}");
    is_lost(&moved.store, LostReason::Gone).await;
}

async fn is_lost(store: &SqliteNeneStore, why: LostReason) {
    let renewal = renew("r", "ours", Mode::Exclusive, Ttl::new(TERM).unwrap());
    let renewed = only(store.renew(&renewal).await.unwrap().leases);
    let lost = RenewOutcome::Lost(Some(why));
    assert_eq!(format!("{renewed:?}"), format!("{lost:?}"));
}

#[tokio::test]
async fn a_file_that_was_put_in_the_place_of_another_is_used() {
    let place = Place::new().await;
    let store = place.open_table(config()).await;
    let path = &place.workplace.path;
    let backup = path.with_extension("backup");
    std::fs::copy(path, &backup).unwrap();
    let request = acquire("r", "ours", Mode::Exclusive);
    granted(store.acquire(&request).await);
    std::fs::rename(&backup, path).unwrap();
    is_lost(&store, LostReason::Gone).await;
    assert!(place.php().acquired("r", "php", 30));
    refused(store.acquire(&request).await);
    std::fs::remove_file(path).unwrap();
    failed(
        store.acquire(&request).await,
        ErrorKind::Incompatible,
        Effect::NotApplied,
        "`leasehold init`, or `Locker::prepare`",
    );
}

#[tokio::test]
async fn without_the_table_or_the_file_the_command_that_creates_it_is_named() {
    let workplace = Workplace::new();
    let config = || SqliteNeneConfig::file(&workplace.path);
    let store = config().connect().await.unwrap();
    for other in ["one", "two"] {
        assert_eq!(store.check().await.unwrap().schema, None);
        let acquired = store.acquire(&acquire("r", "ours", Mode::Exclusive)).await;
        failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "`Locker::prepare`");
        // A file of somebody else.
        workplace.change(&format!("CREATE TABLE {other} (x)"));
    }
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));
    assert!(config().nene(NeneConfig::default().table("a b")).connect().await.is_err());
}
