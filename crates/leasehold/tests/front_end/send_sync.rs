//! Which types may cross threads.
#![allow(dead_code, reason = "it is enough that this compiles")]

use std::future::IntoFuture;

use leasehold::{Guard, LocalStore, Locker, blocking};

fn send_sync_static<T: Send + Sync + 'static>() {}

fn send_static<T: Send + 'static>(_: &T) {}

macro_rules! facts {
    ($($of:ty),* $(,)?) => {
        #[test]
        fn types_are_send_and_sync() {
            $(send_sync_static::<$of>();)*
        }
    };
}

facts! {
    blocking::Events,
    blocking::Group,
    blocking::Guard,
    blocking::Janitor,
    blocking::Locker,
    leasehold::store::AnyStore,
    leasehold::Candidate,
    leasehold::Claims,
    leasehold::Election,
    leasehold::Error,
    leasehold::Event,
    leasehold::Events,
    leasehold::inspect::EvictRequest,
    leasehold::inspect::EvictReply,
    leasehold::inspect::Filter,
    leasehold::Group,
    leasehold::Guard,
    leasehold::inspect::Health,
    leasehold::Janitor,
    leasehold::JanitorReport,
    leasehold::Key,
    leasehold::Lease,
    leasehold::Leadership,
    leasehold::ReleaseOutcome,
    leasehold::LocalStore,
    leasehold::Locker,
    leasehold::LockerBuilder,
    leasehold::ManualClock,
    leasehold::inspect::ListReply,
    leasehold::Purged,
    leasehold::inspect::Record,
    leasehold::CandidateStatus,
    leasehold::LeadershipEvent,
    leasehold::WaitReport,
}

#[test]
fn futures_are_send_and_borrow_nothing() {
    let locks = Locker::new(LocalStore::new());
    send_static(&locks.lock("k"));
    send_static(&locks.lock("k").into_future());
    send_static(&locks.try_lock("k").into_future());
    let blocks = blocking::Locker::new(LocalStore::new());
    send_static(&blocks.lock("k"));
    send_static(&blocks.try_lock("k"));
}

/// Each of these is a future that a task may own.
fn futures_of_an_election(locks: Locker, candidate: leasehold::Candidate) {
    let election = locks.election("n");
    send_static(&election.campaign());
    send_static(&candidate.for_each_round(drop));
    // Read by one task at a time: an observer's back-off need not be `Sync`.
    send_static(&candidate.observe());
    send_static(&candidate.observe().for_each(drop));
    send_static(&async move {
        election.leader().await?;
        candidate.pause().await?;
        candidate.elected().await?.resign().await?;
        candidate.join().await
    });
}

/// So are these.
fn futures_of_a_guard(guard: Guard, locks: Locker) {
    send_static(&guard.lost());
    send_static(&async move {
        guard.verify().await?;
        guard.renew().await?;
        guard.run(async {}).await?;
        guard.release().await?;
        locks.purge(leasehold::inspect::Filter::default(), 1).await
    });
}
