//! How the rules decide about leases: the records of the named keys are taken out of the table, decided about, and put
//! back, all under the mutexes of the keys.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::table::{Holder as Record, State};
use leasehold_core::{
    AcquireReply, AcquireRequest, FencingToken, Key, Mode, Note, Now, RefusalReason, Refused,
    Result, Table as Rules,
};

use super::access::Access;
use super::holder::{Holder, Instant, LockId, NEVER, nanos};
use super::keys::{Claim, Claims};
use super::request::{Terms, Waiting};
use super::sync::Ordering;
use super::table::{NEWCOMER, Table};

/// How long the keys of a refused request stay reserved for it once it is their turn, in nanoseconds.
const TURN: u64 = 100_000_000;

/// How long a record blocks that stands for those who came before. Any other blocks longer or ends with it.
const QUEUED: Duration = Duration::from_micros(1);

/// The place of a refused request in the queues of its keys.
pub(super) type Place = Arc<Waiting<Key>>;

/// A reply, and what became of the place.
pub(super) struct Acquired {
    pub(super) reply: Result<AcquireReply>,
    /// The request has its keys, or came after its turn was over.
    pub(super) is_place_used: bool,
    /// A new place.
    pub(super) place: Option<Place>,
}

impl Table<Key> {
    /// Lets the rules decide about the leases of some keys, in key order and each once.
    pub(super) fn decide<T>(
        &self,
        claims: &[Claim<Key>],
        work: impl FnOnce(&mut Rules, Now) -> T,
    ) -> T {
        let mut access = self.access(claims);
        let now = Now::read(&*self.clock);
        let mut rules = access.load(claims, |_, _, _| ());
        let decided = work(&mut rules, now);
        access.save(claims, rules);
        access.finish();
        self.forget_some(nanos(now.boot));
        decided
    }

    /// The same, where locks are shown as records without an id.
    pub(super) fn look_at_all<T>(
        &self,
        claims: &[Claim<Key>],
        work: impl FnOnce(&Rules, Now) -> T,
    ) -> T {
        let mut access = self.access(claims);
        let now = Now::read(&*self.clock);
        for claim in claims {
            access.drop_stale(claim);
        }
        let rules =
            access.load(claims, |access, claim, of_key| access.add_locks(claim, None, now, of_key));
        let decided = work(&rules, now);
        access.save(claims, rules);
        access.finish();
        decided
    }

    /// Grants a lease, or refuses it. A request that is refused may join the queues of its keys, and finds its place there
    /// when it comes again.
    pub(super) fn acquire_lease(
        &self,
        request: &AcquireRequest,
        claims: &Claims<Key>,
        place: Option<&Place>,
        joins: bool,
    ) -> Acquired {
        let keyed = claims.keyed();
        let mut access = self.access(keyed);
        let now = Now::read(&*self.clock);
        for claim in keyed {
            access.drop_stale(claim);
        }
        let called = place.filter(|place| place.signal().granted.is_some());
        let turn = called.filter(|place| keyed.iter().all(|one| access.has(one, place.id)));
        let ticket = place.filter(|_| called.is_none()).map_or(NEWCOMER, |place| place.ticket);
        let own = place.map(|place| place.id);
        let mut rules = access.load(keyed, |access, claim, of_key| {
            access.add_locks(claim, own, now, of_key);
            access.add_whole(now, of_key);
            if turn.is_none() && access.is_awaited(claim, ticket) {
                of_key.push(queued(now));
            }
        });
        let mut reply = rules.acquire(request, now);
        if let Ok(AcquireReply::Refused(refused)) = &mut reply {
            tell_queued(refused);
        }
        let is_fresh = matches!(&reply, Ok(AcquireReply::Granted(granted)) if granted.fresh);
        let is_place_used = is_fresh || called.is_some() && turn.is_none();
        if let Some(place) = place.filter(|_| is_place_used) {
            access.drop_place(place);
        }
        if let Some(gate) = access.gate.as_deref_mut().filter(|_| is_fresh) {
            keyed.iter().for_each(|claim| gate.note(claim.hash, &claim.key));
        }
        access.save(keyed, rules);
        let is_refused = matches!(&reply, Ok(AcquireReply::Refused(_)));
        // Where newcomers overtake, nothing is kept for requests of several keys.
        let has_place = !self.barging || keyed.len() == 1;
        let joins = joins && has_place && is_refused && (place.is_none() || is_place_used);
        let place = joins.then(|| {
            let id = access.shard(&keyed[0]).mint();
            let terms = Terms { timeout: TURN, owner: None };
            Arc::new(Waiting::next(id, self.ticket(), claims.clone(), terms))
        });
        if let Some(place) = &place {
            let blocked = access.blocked(keyed, place.ticket);
            access.join(place, blocked);
        }
        access.finish();
        self.forget_some(nanos(now.boot));
        Acquired { reply, is_place_used, place }
    }

    /// Ends one lock of a key by force, and says whether there was one.
    pub(super) fn force_one(&self, key: &Key) -> bool {
        let claim =
            Claim { hash: self.hasher.hash_one(key), key: key.clone(), mode: Mode::Exclusive };
        let mut ended = None;
        let first = |holder: &Holder| *ended.get_or_insert(holder.id) == holder.id;
        self.remove(&Claims::One([claim]), first) > 0
    }

    /// Gives up a place, or what was reserved for it.
    pub(super) fn leave(&self, place: &Place) {
        if self.cancel(place).is_some() {
            self.remove(&place.claims, |holder| holder.id == place.id);
        }
    }
}

impl Access<'_, Key> {
    /// Takes the records of some keys, and those that `add` adds for a key.
    fn load(
        &mut self,
        claims: &[Claim<Key>],
        mut add: impl FnMut(&mut Self, &Claim<Key>, &mut Vec<Record>),
    ) -> Rules {
        let mut rules = Rules::default().with_mark(self.table.mark.load(Ordering::Relaxed));
        for claim in claims {
            let mut records = self.shard(claim).leases.take(claim);
            add(self, claim, &mut records);
            if !records.is_empty() {
                rules.insert(claim.key.clone(), records);
            }
        }
        rules
    }

    /// Puts the records back, and lets the waiters of the keys go on.
    fn save(&mut self, claims: &[Claim<Key>], rules: Rules) {
        // The mutexes of the keys order it for them; the tokens of other keys need no order.
        self.table.mark.fetch_max(rules.mark(), Ordering::Relaxed);
        let mut entries = rules.into_entries().peekable();
        for claim in claims {
            let entry = entries.next_if(|(key, _)| *key == claim.key);
            let leases = &mut self.shard(claim).leases;
            if let Some((key, mut records)) = entry {
                // Locks were added without an id.
                records.retain(|record| record.id.is_some());
                if !records.is_empty() {
                    leases.put(key, claim.hash, records);
                }
            }
            leases.trim();
            self.settle(claim);
        }
    }

    /// Adds the locks of a key, except one.
    fn add_locks(
        &mut self,
        claim: &Claim<Key>,
        except: Option<LockId>,
        now: Now,
        records: &mut Vec<Record>,
    ) {
        let holders = self.shard(claim).holders(claim);
        let others = holders.into_iter().flat_map(|holders| holders.all());
        let others = others.filter(|holder| Some(holder.id) != except);
        records.extend(others.map(|holder| lock(holder.mode(), holder.term.ends(), now)));
    }

    /// Adds the lock of the whole table.
    fn add_whole(&mut self, now: Now, records: &mut Vec<Record>) {
        let holder: Option<&Holder> = self.gate.as_ref().and_then(|gate| gate.holder.as_ref());
        records.extend(holder.map(|holder| lock(holder.mode(), holder.term.ends(), now)));
    }

    fn drop_stale(&mut self, claim: &Claim<Key>) {
        let table = self.table;
        let shard = self.shard(claim);
        if shard.holders(claim).is_some() {
            table.drop_stale(shard, (claim.hash, &claim.key));
        }
    }

    fn has(&mut self, claim: &Claim<Key>, id: LockId) -> bool {
        let holders = self.shard(claim).holders(claim);
        holders.is_some_and(|holders| holders.all().iter().any(|holder| holder.id == id))
    }

    fn drop_place(&mut self, place: &Place) {
        for claim in place.claims.keyed() {
            let shard = self.shard(claim);
            shard.held.retain(claim.hash, &claim.key, |holder| holder.id != place.id);
            drop(shard.dequeue(claim, place.id));
        }
    }
}

/// A lock as a record, which has no id.
fn lock(mode: Mode, ends: Instant, now: Now) -> Record {
    let ends = (ends != NEVER).then(|| Duration::from_micros(ends.div_ceil(1_000)));
    Record {
        id: None,
        mode,
        token: FencingToken::new(1).expect("1 is a token"),
        group: None,
        note: Note::default(),
        expires: ends,
        granted_at: now.wall_micros,
        renewed_at: None,
        state: State::Held,
    }
}

/// Stands for those who came before and wait for a key.
fn queued(now: Now) -> Record {
    lock(Mode::Exclusive, nanos(now.boot.saturating_add(QUEUED)), now)
}

/// Tells of the queue where the queue alone refused.
fn tell_queued(refused: &mut Refused) {
    let RefusalReason::Held(Some(record)) = &mut refused.why else { return };
    if record.id.is_some() {
        return;
    }
    (record.token, record.age) = (None, None);
    let least = Some(2 * QUEUED);
    if record.remaining().duration() <= least && record.remaining().duration().is_some() {
        refused.why = RefusalReason::Queued;
        refused.retry_after = refused.retry_after.filter(|after| Some(*after) > least);
    }
}
