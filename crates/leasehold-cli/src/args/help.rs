//! What help texts have in common.

use crate::exit::Exit;

/// The stores of this build, and how one is named.
pub(super) fn stores() -> String {
    let mut help = "Stores:\n".to_owned();
    for kind in leasehold::store::STORES {
        let init = if kind.needs_prepare() { "; run `leasehold init` once" } else { "" };
        help += &format!("  {}\n        {}{init}\n", kind.url(), kind.about());
        if let [_, others @ .., last] = kind.schemes() {
            let others = others.iter().map(|scheme| format!("{scheme}:, "));
            help += &format!("        also {}{last}:\n", others.collect::<String>());
        }
    }
    help + NAMING
}

const NAMING: &str = "
  With the option format=nene a SQLite, PostgreSQL or MySQL store is the table of the PHP library
  Nene DistributedLock.

  A path that begins with /, ./ or ../ is a SQLite file.

  The store is taken from --store or --store-file, else from the environment variable
  LEASEHOLD_STORE or LEASEHOLD_STORE_FILE, else it is the SQLite file leasehold/locks.db in
  your state directory, $XDG_STATE_HOME or ~/.local/state.";

/// What `--help` adds to `-h`.
pub(super) fn long_help(examples: &str) -> String {
    let gap = if examples.is_empty() { "" } else { "\n\n" };
    format!("{examples}{gap}{}\n\n{}", stores(), Exit::help())
}
