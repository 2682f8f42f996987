use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;
use crate::{
    Claims, Effect, Error, ErrorKind, EvictTarget, Filter, LeaseId, Level, ManualClock, Mode, Now,
    ReleaseEntry, ReleaseOutcome, RenewEntry, RenewOutcome, Table, Ttl,
};

const S: Duration = Duration::from_secs(1);

/// A store in memory whose futures never wait. It does not admit requests itself.
#[derive(Debug, Default)]
struct Memory {
    table: Mutex<Table>,
    clock: ManualClock,
    closed: AtomicU32,
}

impl Memory {
    fn decide<T>(&self, rule: impl FnOnce(&mut Table, Now) -> T) -> T {
        rule(&mut self.table.lock().unwrap(), Now::read(&self.clock))
    }
}

impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::none("memory")
    }

    async fn check(&self) -> Result<Health> {
        Ok(Health::new(Level::Fenced))
    }

    async fn prepare(&self) -> Result<()> {
        Err(Error::incompatible("there is nothing to prepare"))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.decide(|table, now| table.acquire(request, now))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        Ok(self.decide(|table, now| table.renew(request, now)))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        Ok(self.decide(|table, now| table.release(request, now)))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.decide(|table, now| table.list(request, now))
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        Ok(self.decide(|table, now| table.evict(request, now)))
    }

    async fn subscribe(&self, _keys: &[Key]) -> Result<Wakeups> {
        Err(Error::unsupported("it wakes nobody"))
    }

    async fn close(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// The output of a future that does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

fn key() -> Key {
    Key::new("a").unwrap()
}

fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}

fn acquire(name: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(id(name), Claims::one(key(), mode), Ttl::new(9 * S).unwrap())
}

#[test]
fn every_operation_reaches_the_wrapped_store() {
    let memory = Arc::new(Memory::default());
    let any = AnyStore::new(memory.clone());
    let claims = || Claims::one(key(), Mode::Exclusive);
    assert_eq!(any.capabilities(), memory.capabilities());
    assert_eq!(now(any.check()).unwrap().level, Level::Fenced);
    assert_eq!(now(any.prepare()).unwrap_err().kind(), ErrorKind::Incompatible);

    let acquired = now(any.acquire(&acquire("w", Mode::Exclusive))).unwrap();
    assert!(matches!(acquired, AcquireReply::Granted(granted) if granted.fresh));
    assert_eq!(memory.table.lock().unwrap().entries().count(), 1);
    let renewal = RenewEntry::extend(id("w"), claims(), Ttl::new(20 * S).unwrap());
    let renewed = now(any.renew(&RenewRequest::new(vec![renewal]))).unwrap();
    assert!(matches!(renewed.leases[..], [RenewOutcome::Held(_)]));
    let listed = now(any.list(&ListRequest::new(Filter::default()))).unwrap();
    assert_eq!(listed.records.len(), 1);
    let targets = listed.records.iter().map(EvictTarget::of).collect();
    let evicted = now(any.evict(&EvictRequest::exactly(targets, None))).unwrap();
    assert_eq!(evicted.removed.len(), 1);
    let release = ReleaseEntry::new(id("w"), [key()]);
    let released = now(any.release(&ReleaseRequest::new(vec![release]))).unwrap();
    assert!(matches!(released.leases[..], [ReleaseOutcome::NotHeld]));

    assert_eq!(now(any.subscribe(&[key()])).unwrap_err().kind(), ErrorKind::Unsupported);
    now(any.close());
    assert_eq!(memory.closed.load(Ordering::Relaxed), 1);
    assert_eq!(format!("{any:?}"), format!("{memory:?}"));
}

#[test]
fn a_store_is_wrapped_once() {
    let any = AnyStore::new(Memory::default());
    let again = AnyStore::new(any.clone());
    assert!(Arc::ptr_eq(&any.store, &again.store));
}

#[test]
fn what_the_store_cannot_do_does_not_reach_it() {
    let memory = Arc::new(Memory::default());
    let any = AnyStore::new(memory.clone());
    let error = now(any.acquire(&acquire("w", Mode::SHARED))).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::NotApplied));
    let (renewals, releases) = (RenewRequest::new(vec![]), ReleaseRequest::new(vec![]));
    let list = ListRequest::new(Filter::default()).with_limit(0);
    let evict = EvictRequest::exactly(vec![], None);
    let errors = [
        now(any.renew(&renewals)).unwrap_err(),
        now(any.release(&releases)).unwrap_err(),
        now(any.list(&list)).unwrap_err(),
        now(any.evict(&evict)).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::InvalidInput));
    assert_eq!(*memory.table.lock().unwrap(), Table::default());
}

#[test]
fn an_error_names_the_store_and_the_operation() {
    let memory = Memory::default();
    now(memory.acquire(&acquire("w", Mode::Exclusive))).unwrap();
    let can = memory.capabilities();
    let fails = async { Err::<(), _>(Error::unexpected("no reply")) };
    let error = now(can.carry_out("check", &(), || fails)).unwrap_err();
    assert_eq!(error.to_string(), "memory check: no reply");
    let never = async { panic!("a request that is refused was carried out") };
    let refused: Result<()> = now(can.carry_out("acquire", &acquire("w", Mode::SHARED), || never));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}
