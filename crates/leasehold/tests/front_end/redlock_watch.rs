//! redlock's tests of its watch and its watchdog, by name: a guard renews itself, and its events call back. The
//! servers read a clock that stands still unless the test moves it.

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};

use crate::fleet::{Fleet, behind_a_proxy, ms, secs};
use futures_util::future::join_all;
use leasehold::{Event, Events, Guard, Keepalive, Key, LostReason};
use leasehold_testkit::{in_time, until};

/// `TestWatch_Integration/SingleInstanceLock`.
#[tokio::test]
async fn redlock_watch_integration_single_instance_lock() {
    watch(&Fleet::on_a_clock(1).await).await;
}

/// `TestWatch_Integration/DistributedLock`.
#[tokio::test]
async fn redlock_watch_integration_distributed_lock() {
    watch(&Fleet::on_a_clock(3).await).await;
}

/// Fifty contenders fail, also after one and a half terms; once the watch ends, the lock ends with its term.
async fn watch(fleet: &Fleet) {
    let term = secs(20);
    let (locks, others) = (fleet.locks().await, fleet.locks().await);
    let asked = locks.lock("k").ttl(term).keepalive(Keepalive::Every(term / 2));
    let guard = asked.await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    let contenders = join_all((0..50).map(async |_| others.try_lock("k").await.unwrap())).await;
    assert!(contenders.iter().all(Option::is_none));
    let mut events = guard.events();
    for _ in 0..3 {
        fleet.advance(term / 2);
        renewed(&mut events).await;
        let extended = fleet.rests("k").await.into_iter().filter(|rest| *rest == 20_000).count();
        assert!(extended > fleet.servers.len() / 2, "{extended}");
        assert!(others.try_lock("k").await.unwrap().is_none());
    }
    drop(guard.detach());
    fleet.advance(term - ms(1));
    assert!(others.try_lock("k").await.unwrap().is_none());
    fleet.advance(ms(1));
    let next = others.try_lock("k").await.unwrap().unwrap();
    assert!(fleet.copies("k", &next).await > fleet.servers.len() / 2);
}

/// `Watch` extends after half the term; so does an interval of that length. The default is a third.
#[tokio::test]
async fn redlock_watch_default_and_custom_interval() {
    let fleet = Fleet::on_a_clock(1).await;
    // In one `Locker`, the lease that is due first would take the other along.
    let (locks, others) = (fleet.locks().await, fleet.locks().await);
    let default = locks.lock("default").ttl(secs(30)).await.unwrap();
    let custom = others.lock("custom").ttl(secs(30)).keepalive(Keepalive::Every(secs(25)));
    let custom = custom.await.unwrap();
    let (mut of_default, mut of_custom) = (default.events(), custom.events());
    for _ in 0..2 {
        fleet.advance(secs(10));
        renewed(&mut of_default).await;
    }
    assert_eq!(fleet.rests("custom").await, [10_000]);
    fleet.advance(secs(5));
    renewed(&mut of_custom).await;
    assert_eq!(fleet.rests("custom").await, [30_000]);
    for wrong in [secs(0), secs(30)] {
        let error = locks.lock("k").ttl(secs(30)).keepalive(Keepalive::Every(wrong)).await;
        assert_eq!(error.unwrap_err().kind(), leasehold::ErrorKind::InvalidInput, "{wrong:?}");
    }
}

/// `WatchDog`: the extension callbacks are called, and the lock is still held.
#[tokio::test]
async fn redlock_watch_dog_extension_callback_fires_and_the_lock_is_still_held() {
    let fleet = Fleet::on_a_clock(1).await;
    let guard = fleet.locks().await.lock("k").ttl(secs(30)).await.unwrap();
    let calls = Calls::of(&guard);
    let work = async {
        for extensions in 1..=3 {
            fleet.advance(secs(10));
            until(async || calls.extended().len() == extensions).await;
        }
        assert!(guard.is_held() && guard.verify().await.unwrap());
        guard.release().await.unwrap();
    };
    in_time(async { tokio::join!(calls.watch(), work) }).await;
    assert_eq!(calls.extended(), ["k", "k", "k"]);
    assert!(calls.failed().is_empty());
}

/// `WatchDog`: the error callbacks get the lost key; here that happens once, and is the end (F5).
#[tokio::test]
async fn redlock_watch_dog_error_callback_gets_the_lost_lock_with_the_right_key() {
    let fleet = Fleet::on_a_clock(1).await;
    let locks = fleet.locks().await;
    let kept = locks.lock("kept").ttl(secs(30)).await.unwrap();
    let guard = locks.lock("k").ttl(secs(30)).await.unwrap();
    let (calls, of_kept) = (Calls::of(&guard), Calls::of(&kept));
    fleet.servers[0].ask(&["DEL", "k"]).await.unwrap();
    let work = async {
        fleet.advance(secs(10));
        assert_eq!(in_time(guard.lost()).await, LostReason::Gone);
        until(async || of_kept.extended().len() == 1).await;
        kept.release().await.unwrap();
    };
    in_time(async { tokio::join!(calls.watch(), of_kept.watch(), work) }).await;
    assert_eq!(calls.failed(), [format!("k: {}", LostReason::Gone)]);
    assert!(calls.extended().is_empty() && of_kept.failed().is_empty());
}

/// `WatchDog`: two items are both kept past their term, by one Keeper and in one exchange.
#[tokio::test]
async fn redlock_watch_dog_two_items_are_both_kept_past_their_term() {
    let fleet = Fleet::on_a_clock(1).await;
    let locks = fleet.locks().await;
    let every = Keepalive::Every(secs(10));
    let both = [
        locks.lock("a").ttl(secs(30)).keepalive(every).await.unwrap(),
        locks.lock("b").ttl(secs(30)).keepalive(every).await.unwrap(),
    ];
    let mut events = both.each_ref().map(Guard::events);
    for _ in 0..4 {
        fleet.advance(secs(10));
        for events in &mut events {
            renewed(events).await;
        }
    }
    assert!(both.iter().all(Guard::is_held));
    assert_eq!([fleet.rests("a").await, fleet.rests("b").await], [[30_000], [30_000]]);
}

/// The same, counted: however many are due, they are sent together.
#[tokio::test]
async fn redlock_watch_dog_many_items_are_extended_together() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    let keys = (0..50).map(|at| format!("k{at}"));
    let group = locks.group("job").unwrap();
    let guards = join_all(keys.map(|key| group.lock(key).into_future())).await;
    group.renew().await;
    let before = proxy.exchanges();
    assert!(group.renew().await.iter().all(|(_, renewed)| renewed.is_ok()));
    assert_eq!((guards.len(), proxy.exchanges() - before), (50, 1));
}

/// `WatchDog`: a cancelled item is called back a last time.
#[tokio::test]
async fn redlock_watch_dog_cancel_calls_back() {
    let fleet = Fleet::on_a_clock(1).await;
    let locks = fleet.locks().await;
    let detached = locks.lock("a").await.unwrap();
    let released = locks.lock("b").await.unwrap();
    let dropped = locks.lock("c").await.unwrap();
    let mut events = [detached.events(), released.events(), dropped.events()];
    drop(detached.detach());
    released.release().await.unwrap();
    drop(dropped);
    for events in &mut events {
        assert!(matches!(in_time(events.next()).await, Some(Event::Stopped)));
        assert!(in_time(events.next()).await.is_none());
    }
}

async fn renewed(events: &mut Events) {
    let event = in_time(events.next()).await;
    assert!(matches!(event, Some(Event::Renewed { .. })), "{event:?}");
}

/// The callbacks of redlock's watchdog, built from a guard's events.
struct Calls {
    key: Key,
    events: Mutex<Option<Events>>,
    extended: Arc<Mutex<Vec<String>>>,
    failed: Arc<Mutex<Vec<String>>>,
}

impl Calls {
    fn of(guard: &Guard) -> Self {
        Self {
            key: guard.lease().claims.first().key.clone(),
            events: Mutex::new(Some(guard.events())),
            extended: Arc::default(),
            failed: Arc::default(),
        }
    }

    /// Calls back until the guard has ended.
    async fn watch(&self) {
        let events = self.events.lock().unwrap().take().unwrap();
        let call_back = |event| match event {
            Event::Renewed { .. } => self.extended.lock().unwrap().push(self.key.to_string()),
            Event::Failed(error) => self.fail(&error),
            Event::Lost(reason) => self.fail(&reason),
            _ => {}
        };
        events.for_each(call_back).await;
    }

    fn fail(&self, why: &dyn std::fmt::Display) {
        self.failed.lock().unwrap().push(format!("{}: {why}", self.key));
    }

    fn extended(&self) -> Vec<String> {
        self.extended.lock().unwrap().clone()
    }

    fn failed(&self) -> Vec<String> {
        self.failed.lock().unwrap().clone()
    }
}
