//! Files on systems other than Linux: refused, because exclusion was not tested there.

use std::path::Path;

use leasehold_core::{Error, Result};

use crate::config::FileMode;

/// A database file; none exists here.
#[derive(Debug)]
pub(crate) enum DatabaseFile {}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) hazards: Vec<String>,
    pub(crate) volatile: bool,
}

impl DatabaseFile {
    pub(crate) fn locate(path: &Path, _create_parent: bool, _mode: FileMode) -> Result<Self> {
        Err(Error::unsupported(format!(
            "the database {} is a file, which this store supports on Linux only; use \
             sqlite::memory: in one process, or another store",
            path.display()
        )))
    }

    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn identity(&self) -> String {
        match *self {}
    }

    pub(crate) fn verify(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn findings(&self) -> Result<Findings> {
        match *self {}
    }
}
