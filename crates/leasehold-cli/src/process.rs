//! Processes, what `leasehold` and its [shim](crate::shim) do with them, and their messages.
//!
//! - [`Descendants`] are the processes below this one, a [`Group`] is the command's, [`terminal`] lends it the
//!   terminal.
//! - An [`Assignment`] is what a shim is started with; [`Order`]s and [`Notice`]s go to and fro on a pair of pipes.
//! - A [`Watched`] process is one whose end another one awaits.
//! - [`cause`] is why nothing could start, as an exit code.

pub(crate) mod assignment;
pub(crate) mod cause;
pub(crate) mod family;
pub(crate) mod group;
pub(crate) mod link;
mod table;
pub(crate) mod terminal;
mod watched;

pub(crate) use assignment::Assignment;
pub(crate) use family::Descendants;
pub(crate) use group::Group;
pub(crate) use link::{Notice, Order};
pub(crate) use table::{is_dying, is_orphaned, proc_is_mounted};
pub(crate) use watched::Watched;

/// The name, as `argv[0]`, under which `leasehold` starts itself again as a shim. Killing every process called
/// `leasehold` does not kill it.
pub(crate) const SHIM: &str = "lh-shim";
