use leasehold_core::Mode;

use super::anchor::Anchor;
use super::error::LockError;
use super::guard::Guard;
use super::keys::{Claim, Claims};
use super::release::ReleaseOutcome;
use super::sync::Mutex;
use super::table::{LockKey, Table};

/// The locks of a scope and of the scopes inside it.
#[derive(Debug)]
pub(super) struct Nest<K: LockKey> {
    anchor: Anchor<K>,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K: LockKey> {
    /// The scopes that have not ended.
    scopes: Vec<u64>,
    /// The scope that was opened last. No number is used again: a scope may be closed once more after its end.
    last: u64,
    /// Each lock with the scope that releases it.
    guards: Vec<(u64, Guard<K>)>,
    /// A request waits.
    waits: bool,
}

/// The number of the outermost scope.
pub(super) const OUTERMOST: u64 = 0;

/// What is left of a nested request.
pub(super) enum Missing<K> {
    Nothing,
    Keys(Claims<K>),
}

impl<K: LockKey> Nest<K> {
    pub(super) fn new(guard: Guard<K>) -> Self {
        let anchor = guard.anchor().clone();
        let (scopes, guards) = (vec![OUTERMOST], vec![(OUTERMOST, guard)]);
        let state = State { scopes, last: OUTERMOST, guards, waits: false };
        Self { anchor, state: Mutex::new(state) }
    }

    pub(super) fn is_of(&self, table: &Table<K>) -> bool {
        std::ptr::eq(&raw const *self.anchor, table)
    }

    pub(super) fn holds_any(&self, claims: &Claims<K>) -> bool {
        let state = self.state.lock();
        match claims {
            Claims::Whole => !state.guards.is_empty(),
            claims => claims.keyed().iter().any(|claim| state.held(claim).is_some()),
        }
    }

    pub(super) fn holds_whole(&self) -> bool {
        self.state.lock().guards.iter().any(|(_, guard)| guard.is_whole())
    }

    /// Begins a nested request: it is for the keys that no scope of the nest holds, and they must be above all that
    /// are held.
    pub(super) fn begin(&self, scope: u64, claims: Claims<K>) -> Result<Missing<K>, LockError> {
        let mut state = self.state.lock();
        if !state.scopes.contains(&scope) {
            return Err(LockError::ScopeEnded);
        }
        if state.waits {
            return Err(LockError::OutOfOrder);
        }
        let mut missing = Vec::new();
        for claim in claims.keyed() {
            match state.held(claim) {
                None => missing.push(claim.clone()),
                Some(Mode::Shared { .. }) if !claim.mode.is_shared() => {
                    return Err(LockError::Invalid(
                        "the scope holds a key as shared and asks for it as exclusive; ask for it as exclusive from \
                         the start"
                            .into(),
                    ));
                }
                Some(_) => {}
            }
        }
        let Some(least) = missing.first() else { return Ok(Missing::Nothing) };
        let held = state.guards.iter().flat_map(|(_, guard)| guard.claims());
        if held.map(|claim| &claim.key).max().is_some_and(|greatest| *greatest > least.key) {
            return Err(LockError::OutOfOrder);
        }
        state.waits = true;
        Ok(Missing::Keys(Claims::of(missing)))
    }

    /// Ends a nested request with its lock, if it got one.
    pub(super) fn end(&self, scope: u64, guard: Option<Guard<K>>) -> Result<(), LockError> {
        let mut state = self.state.lock();
        state.waits = false;
        let Some(guard) = guard else { return Ok(()) };
        if state.scopes.contains(&scope) {
            state.guards.push((scope, guard));
            return Ok(());
        }
        drop(state);
        // It goes with its guard.
        drop(guard);
        Err(LockError::ScopeEnded)
    }

    /// Opens a scope inside `outer`.
    pub(super) fn open(&self, outer: u64) -> Result<u64, LockError> {
        let mut state = self.state.lock();
        if !state.scopes.contains(&outer) {
            return Err(LockError::ScopeEnded);
        }
        state.last += 1;
        let scope = state.last;
        state.scopes.push(scope);
        Ok(scope)
    }

    /// Closes a scope and releases its locks; true if one of them had gone stale or been ended by force.
    pub(super) fn close(&self, scope: u64) -> bool {
        let mut state = self.state.lock();
        state.scopes.retain(|open| *open != scope);
        let (ended, left) = state.guards.drain(..).partition(|(of, _)| *of == scope);
        state.guards = left;
        drop(state);
        let ended: Vec<(u64, Guard<K>)> = ended;
        let outcomes = ended.into_iter().map(|(_, guard)| guard.release());
        outcomes.fold(false, |stale, outcome| stale | (outcome != ReleaseOutcome::Released))
    }
}

impl<K: LockKey> State<K> {
    /// How the nest holds a key.
    fn held(&self, claim: &Claim<K>) -> Option<Mode> {
        self.guards.iter().find_map(|(_, guard)| guard.mode_of(&claim.key))
    }
}
