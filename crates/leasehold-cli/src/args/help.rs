//! What help texts have in common.

use crate::exit::Exit;

pub(super) const STORES: &str = "\
Stores:
  sqlite:PATH          a SQLite file, for the processes of one host
  redis://HOST         a Redis server; also redis+sentinel:, redis+cluster:, rediss… with TLS, and redis+unix:///PATH
  postgres://USER@HOST/DATABASE
                       a PostgreSQL database; run `leasehold init` once
  mysql://USER@HOST/DATABASE
                       a MySQL or MariaDB database, also mariadb:; run `leasehold init` once
  quorum:?node=URL&…   several of them, of which a majority decides

  With the option format=nene a SQLite, PostgreSQL or MySQL store is the table of the PHP library
  Nene DistributedLock.

  The store is taken from --store or --store-file, else from the environment variable
  LEASEHOLD_STORE, else it is the SQLite file leasehold/locks.db in your state directory,
  $XDG_STATE_HOME or ~/.local/state.";

/// What `--help` adds to `-h`.
pub(super) fn long_help(examples: &str) -> String {
    let gap = if examples.is_empty() { "" } else { "\n\n" };
    format!("{examples}{gap}{STORES}\n\n{}", Exit::help())
}
