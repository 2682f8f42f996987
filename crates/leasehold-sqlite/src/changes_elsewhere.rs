//! Writes to files on systems other than Linux: there are no files there.

use std::path::Path;
use std::time::Duration;

/// The writes to one file; none exists here.
pub(crate) enum Changes {}

#[derive(Debug, Clone)]
pub(crate) enum Waker {}

impl Waker {
    pub(crate) fn wake(&self) {
        match *self {}
    }
}

impl Changes {
    pub(crate) fn of(_file: &Path) -> Option<Self> {
        None
    }

    pub(crate) fn waker(&self) -> Waker {
        match *self {}
    }

    pub(crate) fn watch(&mut self) {
        match *self {}
    }

    pub(crate) fn wait(&mut self) -> bool {
        match *self {}
    }

    pub(crate) fn pause(&self, _duration: Duration) {
        match *self {}
    }
}
