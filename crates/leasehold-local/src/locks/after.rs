use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;

use super::request::Waiting;
use super::sync::wake;

/// What is to be done once the mutexes are unlocked.
#[derive(Debug)]
pub(super) struct After<K> {
    wakers: SmallVec<[Waker; 1]>,
    steps: Vec<Step<K>>,
    mover: Option<Arc<()>>,
}

/// A waiter for several keys got one of them and goes on to the key at `position`; behind the last it has its lock.
#[derive(Debug)]
pub(super) struct Step<K> {
    pub(super) waiting: Arc<Waiting<K>>,
    pub(super) position: usize,
}

impl<K> Default for After<K> {
    fn default() -> Self {
        Self { wakers: SmallVec::new(), steps: Vec::new(), mover: None }
    }
}

impl<K> After<K> {
    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.wakers.push(waker);
        }
    }

    pub(super) fn step(&mut self, waiting: Arc<Waiting<K>>, position: usize) {
        self.steps.push(Step { waiting, position });
    }

    /// Puts off that the first at the gate goes on.
    pub(super) fn put_off(&mut self, mover: Arc<()>) {
        self.mover = Some(mover);
    }

    /// What was put off; it is not any more.
    pub(super) fn mover(&mut self) -> Option<Arc<()>> {
        self.mover.take()
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.mover = self.mover.take().or(more.mover);
        self.wakers.extend(more.wakers);
        self.steps.extend(more.steps);
    }

    /// Wakes those who are to be woken, and hands out the next step.
    pub(super) fn next(&mut self) -> Option<Step<K>> {
        std::mem::take(&mut self.wakers).into_iter().for_each(wake);
        self.steps.pop()
    }
}
