//! The commands that show locks and end them.

mod break_by_force;
mod init;
mod leader;
mod list;
mod purge;
mod session;
mod status;

pub(crate) use break_by_force::end_by_force;
pub(crate) use init::{init, print_schema};
pub(crate) use leader::leader;
pub(crate) use list::list;
pub(crate) use purge::purge;
pub(crate) use status::status;
