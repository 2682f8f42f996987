use std::fmt;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{LeaseId, RenewEntry, Result};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::fault::Fault;
use super::request::{Reply, Request, Sent};

/// Longer than anything takes.
const HOUR: Duration = Duration::from_secs(3_600);

/// Draws the fault of a request when it arrives.
pub type Draw = Box<dyn FnMut() -> Fault + Send>;

/// What happens to requests, and which were sent. A request meets the first fault that is queued for it, else one
/// that is drawn, else that of [`down`](Self::down).
pub struct Script {
    queued: Mutex<Vec<(Of, Fault)>>,
    draw: Mutex<Option<Draw>>,
    down: watch::Sender<Fault>,
    sent: Mutex<Vec<(Instant, Request)>>,
    logged: Notify,
}

/// The requests that a queued fault is for.
type Of = fn(&Request) -> bool;

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl Default for Script {
    fn default() -> Self {
        Self {
            queued: Mutex::default(),
            draw: Mutex::default(),
            down: watch::Sender::new(Fault::None),
            sent: Mutex::default(),
            logged: Notify::new(),
        }
    }
}

impl Script {
    /// What happens to the next requests, in order.
    pub fn next(&self, faults: &[Fault]) {
        self.queue(|_| true, faults.iter().copied());
    }

    pub fn on_acquire(&self, faults: impl IntoIterator<Item = Fault>) {
        self.queue(|request| matches!(request, Request::Acquire(_)), faults);
    }

    pub fn on_renew(&self, faults: impl IntoIterator<Item = Fault>) {
        self.queue(|request| matches!(request, Request::Renew(_)), faults);
    }

    pub fn on_release(&self, faults: impl IntoIterator<Item = Fault>) {
        self.queue(|request| matches!(request, Request::Release(_)), faults);
    }

    pub fn on_check(&self, faults: impl IntoIterator<Item = Fault>) {
        self.queue(|request| matches!(request, Request::Check), faults);
    }

    pub fn on_subscribe(&self, faults: impl IntoIterator<Item = Fault>) {
        self.queue(|request| matches!(request, Request::Subscribe(_)), faults);
    }

    /// What happens to the next listings and evictions.
    pub fn on_look(&self, faults: impl IntoIterator<Item = Fault>) {
        self.queue(|request| matches!(request, Request::List(_) | Request::Evict(_)), faults);
    }

    fn queue(&self, of: Of, faults: impl IntoIterator<Item = Fault>) {
        locked(&self.queued).extend(faults.into_iter().map(|fault| (of, fault)));
    }

    /// Every request for which no fault is queued draws one.
    pub fn draw(&self, draw: Option<Draw>) {
        *locked(&self.draw) = draw;
    }

    /// From now on this happens to every request, until [`up`](Self::up).
    pub fn down(&self, fault: Fault) {
        self.down.send_replace(fault);
    }

    /// Ends what [`down`](Self::down) began, and delivers what is [`Stalled`](Fault::Stalled).
    pub fn up(&self) {
        self.down(Fault::None);
    }

    /// Carries `request` out as `act` does, with the fault that it meets.
    ///
    /// # Errors
    /// Those of `act`, and those of the fault.
    pub async fn carry<A>(
        &self,
        request: Request,
        act: impl FnOnce(Request) -> A + Send,
    ) -> Result<Reply>
    where
        A: Future<Output = Result<Reply>> + Send + 'static,
    {
        self.note(&request);
        let mut down = self.down.subscribe();
        let up = async move {
            while down.changed().await.is_ok() && *down.borrow_and_update() != Fault::None {}
        };
        self.fault(&request).carry(request, up, act).await
    }

    fn fault(&self, request: &Request) -> Fault {
        let mut queued = locked(&self.queued);
        if let Some(at) = queued.iter().position(|(of, _)| of(request)) {
            return queued.remove(at).1;
        }
        drop(queued);
        match &mut *locked(&self.draw) {
            Some(draw) => draw(),
            None => *self.down.borrow(),
        }
    }

    /// Logs a request, which [`carry`](Self::carry) does by itself.
    pub fn note(&self, request: &Request) {
        #[expect(clippy::disallowed_methods, reason = "tests compare it with tokio's own timers")]
        let now = Instant::now();
        locked(&self.sent).push((now, request.clone()));
        self.logged.notify_waiters();
    }

    /// Forgets what was sent.
    pub fn forget_sent(&self) {
        locked(&self.sent).clear();
    }

    fn pick<T>(&self, pick: impl Fn(&(Instant, Request)) -> Option<T>) -> Vec<T> {
        locked(&self.sent).iter().filter_map(pick).collect()
    }

    /// Every request that was sent.
    pub fn requests(&self) -> Vec<Request> {
        self.pick(|(_, request)| Some(request.clone()))
    }

    pub fn log(&self) -> Vec<Sent> {
        self.pick(|(_, request)| Some(request.into()))
    }

    pub fn acquires(&self) -> Vec<LeaseId> {
        self.pick(|(_, request)| match request.into() {
            Sent::Acquire(id) => Some(id),
            _ => None,
        })
    }

    /// When each acquire was sent.
    pub fn asked_at(&self) -> Vec<Instant> {
        self.pick(|(at, request)| matches!(request, Request::Acquire(_)).then_some(*at))
    }

    pub fn renews(&self) -> Vec<Vec<LeaseId>> {
        self.pick(|(_, request)| match request.into() {
            Sent::Renew(ids) => Some(ids),
            _ => None,
        })
    }

    /// Every renewal that was sent.
    pub fn renewals(&self) -> Vec<RenewEntry> {
        let leases = self.pick(|(_, request)| match request {
            Request::Renew(request) => Some(request.leases().to_vec()),
            _ => None,
        });
        leases.concat()
    }

    /// The limit of each eviction that was sent.
    pub fn evictions(&self) -> Vec<usize> {
        self.pick(|(_, request)| match request.into() {
            Sent::Evict(limit) => Some(limit),
            _ => None,
        })
    }

    pub fn released(&self, id: &LeaseId) -> usize {
        let names = |sent: &Sent| matches!(sent, Sent::Release(ids) if ids.contains(id));
        self.log().iter().filter(|sent| names(sent)).count()
    }

    /// Ends when the log satisfies `wanted`; fails after an hour of test time.
    pub async fn until(&self, wanted: impl Fn(&[Sent]) -> bool) {
        let logged = async {
            loop {
                let logged = self.logged.notified();
                tokio::pin!(logged);
                logged.as_mut().enable();
                if wanted(&self.log()) {
                    return;
                }
                logged.await;
            }
        };
        timeout(HOUR, logged).await.expect("what was waited for was never sent");
    }

    /// Ends when `count` acquires were sent.
    pub async fn until_acquires(&self, count: usize) {
        let sent = |log: &[Sent]| log.iter().filter(|s| matches!(s, Sent::Acquire(_))).count();
        self.until(|log| sent(log) >= count).await;
    }
}

/// A planted panic leaves nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
