//! How the table is locked as a whole.

use std::hash::BuildHasher;
use std::sync::Arc;

use leasehold_core::Mode;

use super::access::Entered;
use super::after::After;
use super::gate::{Gate, Progress};
use super::holder::{Holder, LockId, NEVER, State, Term};
use super::keys::{Claim, Claims};
use super::lock::Grant;
use super::request::{Terms, Waiting};
use super::sync::{MutexGuard, Ordering};
use super::table::{LockKey, Table};
use super::waiter::Waiter;

impl<K: LockKey> Table<K> {
    /// Locks the gate, and opens it if its holder is stale. No shard may be locked.
    pub(super) fn lock_gate(&self, after: &mut After<K>) -> MutexGuard<'_, Gate<K>> {
        let mut gate = self.gate.lock();
        self.end_stale(&mut gate, after);
        gate
    }

    /// Opens the gate if its holder is stale.
    fn end_stale(&self, gate: &mut Gate<K>, after: &mut After<K>) {
        if gate.holder.take_if(|holder| self.ends(holder, || self.now())).is_some() {
            self.open_gate(gate, after);
        }
    }

    /// Lets the first at the gate go on as far as it may, and unlocks. No shard may be locked.
    pub(super) fn unlock_gate(&self, mut gate: MutexGuard<'_, Gate<K>>, after: &mut After<K>) {
        self.advance(&mut gate, after);
        if gate.is_idle() {
            self.gated.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn enter_whole(&self, terms: &Terms, waits: bool) -> Entered<K> {
        let mut after = After::default();
        let mut gate = self.lock_gate(&mut after);
        // From now on, whoever locks a shard comes to the gate.
        self.gated.store(true, Ordering::Relaxed);
        let id = self.shards[0].lock().mint();
        let entered = if gate.is_idle() && self.is_vacant() {
            let term = Term::start(terms.timeout, || self.now());
            gate.holder = Some(whole(id, terms, term));
            Entered::Granted(Grant { id, term })
        } else if waits {
            let waiting = Waiting::new(id, self.ticket(), Claims::Whole, terms.clone());
            let waiting = Arc::new(waiting);
            after.wake(waiting.look_at(gate.held_until()));
            gate.queue.push_back(waiting.clone());
            Entered::Waiting(Waiter::Shared(waiting), None)
        } else {
            Entered::Refused
        };
        self.unlock_gate(gate, &mut after);
        self.follow_up(after);
        entered
    }

    /// Releases the whole table if `gone` selects its holder, and says whether it did.
    pub(super) fn leave_gate(&self, mut gone: impl FnMut(&Holder) -> bool) -> bool {
        let mut after = After::default();
        // A stale lock that nobody took is its holder's to release: so the gate is not opened before.
        let mut gate = self.gate.lock();
        let left = gate.holder.take_if(|holder| gone(holder));
        if let Some(holder) = &left {
            self.kept.forget(holder);
            self.open_gate(&mut gate, &mut after);
        }
        self.unlock_gate(gate, &mut after);
        self.follow_up(after);
        left.is_some()
    }

    pub(super) fn cancel_whole(&self, waiting: &Waiting<K>) -> Option<Term> {
        let mut after = After::default();
        let mut gate = self.lock_gate(&mut after);
        let granted = waiting.signal().granted;
        if let Some(at) = gate.queue.iter().position(|other| other.id == waiting.id) {
            gate.queue.remove(at);
            if at == 0 {
                self.open_gate(&mut gate, &mut after);
            }
        }
        self.unlock_gate(gate, &mut after);
        self.follow_up(after);
        granted
    }

    pub(super) fn look_whole(&self, waiting: &Waiting<K>) {
        let mut after = After::default();
        waiting.quiet();
        let gate = self.lock_gate(&mut after);
        after.wake(waiting.look_at(gate.held_until()));
        self.unlock_gate(gate, &mut after);
        self.follow_up(after);
    }

    /// Lets everybody go on who waited for whoever left the gate.
    fn open_gate(&self, gate: &mut Gate<K>, after: &mut After<K>) {
        gate.progress = None;
        self.advance(gate, after);
        self.settle_all(gate, after);
    }

    /// Lets the waiters of all keys go on. No shard may be locked.
    fn settle_all(&self, gate: &mut Gate<K>, after: &mut After<K>) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let queues: Vec<_> = shard.queues().map(|q| (q.hash, q.key.clone())).collect();
            for (hash, key) in &queues {
                self.settle(&mut shard, Some(gate), (*hash, key), after);
            }
        }
    }

    /// Lets everybody go on who is no longer blocked, because locks went stale by themselves.
    pub(super) fn settle_whole(&self) {
        let mut after = After::default();
        let mut gate = self.lock_gate(&mut after);
        self.settle_all(&mut gate, &mut after);
        self.unlock_gate(gate, &mut after);
        self.follow_up(after);
    }

    /// Lets the first at the gate take key after key, until one is taken. What takes long is put off, so that others
    /// come to the gate meanwhile.
    fn advance(&self, gate: &mut Gate<K>, after: &mut After<K>) {
        if gate.holder.is_some() {
            return;
        }
        let Some(first) = gate.queue.front().cloned() else { return };
        let progress = gate.progress.get_or_insert_with(|| Progress::new(self.shards.len()));
        if gate.mover.strong_count() > 0 {
            return;
        }
        if progress.unseen > 0 {
            self.survey(progress, first.ticket);
            if progress.unseen > 0 {
                return put_off(gate, after);
            }
            progress.step();
        }
        for steps in 0.. {
            let frontier = gate.progress.as_ref().and_then(|progress| progress.frontier.clone());
            let Some((key, hash)) = frontier else { break };
            if steps == STEPS {
                return put_off(gate, after);
            }
            let mut shard = self.shard(hash);
            let claim = Claim { key, hash, mode: Mode::Exclusive };
            if self.drop_stale(&mut shard, (claim.hash, &claim.key)) {
                self.settle(&mut shard, Some(gate), (hash, &claim.key), after);
            }
            let is_held =
                shard.holders(&claim).is_some() || !shard.leases.admit(&claim, || 0, || self.now());
            if is_held || shard.is_awaited(hash, &claim.key, first.ticket) {
                after.wake(first.look_at(self.first_end(&shard, &claim)));
                return;
            }
            if let Some(progress) = &mut gate.progress {
                progress.step();
            }
        }
        gate.queue.pop_front();
        gate.progress = None;
        let term = Term::start(first.terms.timeout, || self.now());
        let holder = whole(first.id, &first.terms, term);
        let is_stale = holder.is_stale(|| self.now());
        gate.holder = Some(holder);
        after.wake(first.grant(term));
        if is_stale {
            // Its owner has died while it waited. Whoever goes on opens the gate.
            put_off(gate, after);
        } else if term.ends() != NEVER {
            // Everybody else looks again when it goes stale.
            if let Some(second) = gate.queue.front() {
                after.wake(second.look_at(term.ends()));
            }
            self.settle_all(gate, after);
        }
    }

    /// Notes the keys that are taken, or awaited by who came before `ticket`: of some shards, or of all.
    fn survey(&self, progress: &mut Progress<K>, ticket: u64) {
        let enough = progress.later.len() + STEPS;
        while progress.unseen > 0 && progress.later.len() < enough {
            let index = progress.unseen - 1;
            let shard = self.shards[index].lock();
            let taken = &mut progress.later;
            taken.extend(
                shard.held.iter().map(|held| (held.key.clone(), self.hasher.hash_one(&held.key))),
            );
            taken.extend(shard.leases.iter().map(|leased| (leased.key.clone(), leased.hash)));
            let before = |queue: &&super::queue::Queue<K>| {
                queue.places.iter().any(|place| place.ticket() < ticket)
            };
            let awaited = shard.queues().filter(before);
            taken.extend(awaited.map(|queue| (queue.key.clone(), queue.hash)));
            // Not before: a key's code may have panicked.
            progress.unseen = index;
        }
    }

    /// Moves the first at the gate on, which was put off.
    pub(super) fn move_on(&self, mover: Arc<()>, after: &mut After<K>) {
        let mut gate = self.gate.lock_behind();
        // Not before: whoever came to the gate meanwhile would have to move the first on.
        drop(mover);
        self.end_stale(&mut gate, after);
        self.unlock_gate(gate, after);
    }

    /// True if nobody holds or waits for any key; drops what is stale.
    fn is_vacant(&self) -> bool {
        let now = self.now();
        self.shards.iter().all(|shard| {
            let mut shard = shard.lock();
            shard.held.retain_all(|holder| !self.ends(holder, || now));
            let is_leased = || shard.leases.iter().any(|leased| leased.is_live(now));
            shard.held.iter().next().is_none() && shard.has_no_queue() && !is_leased()
        })
    }
}

/// How many keys the first at the gate takes, or looks at, before others come to the gate; a shard is looked at as a whole.
/// Models have few keys.
const STEPS: usize = if cfg!(leasehold_loom) { 1 } else { 1_024 };

/// Lets others come to the gate before the first goes on.
fn put_off<K>(gate: &mut Gate<K>, after: &mut After<K>) {
    let mover = Arc::new(());
    gate.mover = Arc::downgrade(&mover);
    after.put_off(mover);
}

fn whole(id: LockId, terms: &Terms, term: Term) -> Holder {
    Holder::new(id, Mode::Exclusive, term, terms.owner.clone(), State::Held)
}
