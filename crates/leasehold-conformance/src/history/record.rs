use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::term::Drift;
use leasehold_core::{
    AcquireReply, AcquireRequest, Clock, ErrorKind, Mode, RefusalReason, ReleaseOutcome,
    ReleaseRequest, Remaining, RenewOutcome, Store,
};
use tokio::task::JoinSet;

use super::calls::{Answer, Belief, Call, Figures, History};
use super::check::check;
use crate::attempt::{Attempt, all_of, at_most};
use crate::dropped::dropped_after;
use crate::random::Random;
use crate::real_time::RealTime;
use crate::{Backing, Failure, Result, Subject, Time};

const CLIENTS: usize = 4;
/// Tasks of each client.
const TASKS: usize = 4;
/// Attempts of each task.
const ROUNDS: usize = 60;
const KEYS: [&str; 3] = ["one", "two", "three"];

/// Records the answers to contending clients, and checks them.
pub(crate) async fn run<S: Subject>(subject: &S) -> Result<Figures> {
    let seed = crate::oracle::seed()?;
    let backing = Arc::new(subject.open().await?);
    let records = Arc::new(Records::new(backing.time()));
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let store = Arc::new(backing.client().await?);
        if client == 0 {
            store.prepare().await?;
        }
        for task in 0..TASKS {
            let number = u64::try_from(client * TASKS + task).expect("a handful");
            let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(number));
            let (store, records, backing) =
                (Arc::clone(&store), Arc::clone(&records), Arc::clone(&backing));
            tasks.spawn(
                async move { Contender { store, records, backing, random }.contend().await },
            );
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.map_err(|panic| Failure::new(format!("a client: {panic}")))??;
    }
    let mut history = records.history();
    history.withdraws = subject.reports().withdraws;
    history.max_holders = backing.client().await?.capabilities().max_holders;
    let figures = Figures::of(&history, CLIENTS * TASKS);
    let violations = check(&history);
    if let Some(first) = violations.first() {
        return Err(Failure::new(format!(
            "{} violations, the first: {first} (LEASEHOLD_SEED={seed}; {figures})",
            violations.len()
        )));
    }
    let needed = ["granted", "granted again", "refused", "held", "lost", "released"];
    let missing: Vec<_> =
        needed.iter().filter(|answer| !figures.answers.contains_key(*answer)).collect();
    if !missing.is_empty() || figures.beliefs == 0 {
        return Err(Failure::new(format!("no contention, nothing of {missing:?}: {figures}")));
    }
    Ok(figures)
}

/// The records of all clients, and the clock they read.
struct Records {
    next: AtomicU64,
    history: Mutex<History>,
    time: Time,
    real: RealTime,
    tick: Duration,
}

impl Records {
    fn new(time: Time) -> Self {
        let tick = match &time {
            Time::Manual(_) => Duration::from_secs(1),
            Time::Real { tick } => *tick,
        };
        let (next, history) = (AtomicU64::new(1), Mutex::default());
        Self { next, history, time, real: RealTime::start(), tick }
    }

    /// An instant after all earlier ones.
    fn instant(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    fn now(&self) -> Duration {
        match &self.time {
            Time::Manual(clock) => clock.now(),
            Time::Real { .. } => self.real.now().boot,
        }
    }

    /// Until when a client may believe in a lease.
    fn deadline(&self, sent: Duration, remaining: Remaining) -> Option<Duration> {
        let drift = match &self.time {
            Time::Manual(_) => Drift::new(0, Duration::ZERO),
            Time::Real { .. } => Drift::default(),
        };
        drift.deadline(sent, remaining)
    }

    fn is_before(&self, deadline: Option<Duration>) -> bool {
        deadline.is_none_or(|deadline| self.now() < deadline)
    }

    fn write(&self, write: impl FnOnce(&mut History)) {
        write(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn history(&self) -> History {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One task of one client.
struct Contender<B: Backing> {
    store: Arc<B::Store>,
    records: Arc<Records>,
    backing: Arc<B>,
    random: Random,
}

impl<B: Backing> Contender<B> {
    async fn contend(mut self) -> Result {
        for _ in 0..ROUNDS {
            let attempt = self.attempt();
            let request = attempt.request();
            let patience = match self.random.within(0..10) {
                0 => self.random.below(4),
                _ => usize::MAX,
            };
            match self.acquire(&attempt, &request, patience).await? {
                Some((Answer::Granted { .. }, deadline)) => self.hold(&attempt, deadline).await?,
                Some(_) => {}
                // Without an answer: find out what became of it, or release it.
                None if self.random.one_in(2) => {
                    if let Some((Answer::Granted { .. }, deadline)) =
                        self.acquire(&attempt, &request, usize::MAX).await?
                    {
                        self.hold(&attempt, deadline).await?;
                    }
                }
                None => self.release(&attempt).await?,
            }
            self.pass().await;
        }
        Ok(())
    }

    fn attempt(&mut self) -> Attempt {
        let can = self.store.capabilities();
        let mode = match self.random.within(0..5) {
            0 if can.shared => Mode::SHARED,
            1 | 2 if can.shared_limit => at_most(2),
            // Enough writers, whom readers would otherwise keep out.
            _ => Mode::Exclusive,
        };
        let first = self.random.below(KEYS.len());
        let mut keys = vec![KEYS[first]];
        if can.many_keys && self.random.one_in(4) {
            keys.push(KEYS[(first + 1) % KEYS.len()]);
        }
        let tick = self.records.tick.max(can.min_term);
        Attempt::new(all_of(&keys, mode), tick * 10)
    }

    /// Believes in the lease for a while, renews it or overruns its term, and releases it.
    async fn hold(&mut self, attempt: &Attempt, mut deadline: Option<Duration>) -> Result {
        let overruns = self.random.one_in(8);
        let steps = if overruns { usize::MAX } else { 1 + self.random.below(5) };
        let from = self.records.instant();
        let mut until = None;
        for _ in 0..steps {
            let instant = self.records.instant();
            if !self.records.is_before(deadline) {
                break;
            }
            until = Some(instant);
            self.pass().await;
            match self.random.within(0..6) {
                0 | 1 if !overruns => match self.renew(attempt).await? {
                    // A reply after the deadline does not count.
                    Some(later) if self.records.is_before(deadline) => {
                        deadline = deadline.max(later)
                    }
                    _ => break,
                },
                2 if !overruns => self.confirm(attempt, deadline).await?,
                _ => {}
            }
        }
        if let Some(until) = until {
            let belief = Belief::new(attempt.id.clone(), attempt.claims.clone(), from, until);
            self.records.write(|history| history.beliefs.push(belief));
        }
        if overruns {
            // Long enough for the store to agree.
            let over = deadline.map(|deadline| deadline + self.records.tick);
            while self.records.is_before(over) {
                self.pass().await;
            }
            self.renew(attempt).await?;
        }
        self.release(attempt).await?;
        if self.random.one_in(8) {
            self.release(attempt).await?;
        }
        Ok(())
    }

    /// Sends the acquire again while the lease is believed in.
    async fn confirm(&mut self, attempt: &Attempt, deadline: Option<Duration>) -> Result {
        let invoked = self.records.instant();
        let Some(acquired) = answered(self.store.acquire(&attempt.request()).await)? else {
            self.write(attempt, invoked, Answer::AcquireUnknown).await;
            return Ok(());
        };
        let answer = match acquired {
            // It may have ended on the way, and be another lease under the same id; nobody believes in that one.
            AcquireReply::Granted(granted)
                if granted.fresh && !self.records.is_before(deadline) =>
            {
                Answer::AcquireUnknown
            }
            AcquireReply::Granted(granted) => {
                Answer::Granted { token: granted.token, fresh: granted.fresh }
            }
            AcquireReply::Refused(refused) => Answer::refused(&refused.why),
        };
        self.write(attempt, invoked, answer).await;
        Ok(())
    }

    /// Lets the others run, and a little time pass.
    async fn pass(&mut self) {
        let little =
            self.records.tick / 20 * u32::try_from(self.random.below(5)).expect("below five");
        match &self.records.time {
            Time::Manual(_) => {
                self.backing.advance(little).await;
                tokio::task::yield_now().await;
            }
            Time::Real { .. } => tokio::time::sleep(little).await,
        }
    }

    /// Records one request; if it is not answered within this many polls, it has no answer.
    async fn acquire(
        &mut self,
        attempt: &Attempt,
        request: &AcquireRequest,
        polls: usize,
    ) -> Result<Option<(Answer, Option<Duration>)>> {
        let (sent, invoked) = (self.records.now(), self.records.instant());
        let acquired = dropped_after(polls, self.store.acquire(request)).await;
        let reply = acquired.map(answered).transpose()?.flatten();
        let mut deadline = None;
        let answer = match &reply {
            None if polls == 0 => return Ok(None),
            None => Answer::AcquireUnknown,
            Some(AcquireReply::Granted(granted)) => {
                deadline = self.records.deadline(sent, granted.remaining);
                Answer::Granted { token: granted.token, fresh: granted.fresh }
            }
            Some(AcquireReply::Refused(refused)) => Answer::refused(&refused.why),
        };
        self.write(attempt, invoked, answer).await;
        Ok(reply.map(|_| (answer, deadline)))
    }

    /// The new deadline if the lease is known to be held.
    async fn renew(&mut self, attempt: &Attempt) -> Result<Option<Option<Duration>>> {
        let (sent, invoked) = (self.records.now(), self.records.instant());
        let renewed = answered(self.store.renew(&attempt.renew(attempt.term)).await)?;
        let Some(renewed) = renewed else {
            self.write(attempt, invoked, Answer::Unknown).await;
            return Ok(None);
        };
        let (answer, deadline) = match renewed.leases.first() {
            Some(RenewOutcome::Held(remaining)) => {
                (Answer::Held, Some(self.records.deadline(sent, *remaining)))
            }
            Some(RenewOutcome::Lost(_)) => (Answer::Lost, None),
            other => return Err(Failure::new(format!("a renewal was answered by {other:?}"))),
        };
        self.write(attempt, invoked, answer).await;
        Ok(deadline)
    }

    async fn release(&mut self, attempt: &Attempt) -> Result {
        let invoked = self.records.instant();
        let released = self.store.release(&ReleaseRequest::new(vec![attempt.ending()])).await?;
        let answer = match released.leases.first() {
            Some(ReleaseOutcome::Released) => Answer::Released,
            Some(ReleaseOutcome::Expired | ReleaseOutcome::NotHeld) => Answer::Ended,
            other => return Err(Failure::new(format!("a release was answered by {other:?}"))),
        };
        self.write(attempt, invoked, answer).await;
        Ok(())
    }

    /// Records a request as answered; one that found its lease ended, when the lease has ended for all.
    async fn write(&self, attempt: &Attempt, invoked: u64, answer: Answer) {
        let margin = self.store.capabilities().margin;
        if matches!(answer, Answer::Lost | Answer::Ended) && !margin.is_zero() {
            match &self.records.time {
                Time::Manual(_) => self.backing.advance(margin).await,
                Time::Real { .. } => tokio::time::sleep(margin).await,
            }
        }
        let (id, claims) = (attempt.id.clone(), attempt.claims.clone());
        let call = Call::new(id, claims, invoked, self.records.instant(), answer);
        self.records.write(|history| history.calls.push(call));
    }
}

/// A quorum gives up on its nodes when a part of the term has passed, and other clients may move the clock by as
/// much while it asks them.
fn answered<T>(answer: leasehold_core::Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(None),
        answer => Ok(Some(answer?)),
    }
}

impl Answer {
    fn refused(why: &RefusalReason) -> Self {
        match why {
            RefusalReason::Held(_) => Self::Refused,
            RefusalReason::Busy | RefusalReason::Queued => Self::Busy,
        }
    }
}
