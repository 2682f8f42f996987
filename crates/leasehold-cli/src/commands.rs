//! The commands that show locks and end them, and those that explain this program.

mod break_by_force;
mod doctor;
mod help;
mod init;
mod leader;
mod lease;
mod list;
mod purge;
mod session;
mod status;
mod why;

pub(crate) use break_by_force::end_by_force;
pub(crate) use doctor::doctor;
pub(crate) use help::{completions, man};
pub(crate) use init::{init, print_schema};
pub(crate) use leader::leader;
pub(crate) use lease::{acquire, adopt, held, release, renew, wait};
pub(crate) use list::list;
pub(crate) use purge::purge;
pub(crate) use status::status;
pub(crate) use why::why;
