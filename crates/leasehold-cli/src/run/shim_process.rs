//! The shim as `leasehold` sees it.

use std::collections::VecDeque;
use std::fs::File;
use std::future::pending;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};

use nix::unistd::Pid;
use tokio::net::unix::pipe;

use super::signals::SignalMask;
use crate::process::link::{MESSAGE_SIZE, Message as _, Pipes, make_pipe};
use crate::process::{Assignment, Descendants, Notice, Order, SHIM, cause};

/// The most bytes of notices to read at a time: a multiple of the size of one.
const MOST: usize = 64 * MESSAGE_SIZE;

/// A running shim, with the pipes to and from it.
///
/// If this is dropped before the shim has ended, the shim ends the command.
#[derive(Debug)]
pub(super) struct ShimProcess {
    process: Child,
    descendants: Descendants,
    orders: File,
    notices: pipe::Receiver,
    unread: VecDeque<Notice>,
    ended: Option<ExitStatus>,
}

impl ShimProcess {
    /// Starts it, with its first `order`, in the environment that `prepare` sets for the command.
    pub(super) fn start(
        assign: impl FnOnce(Pipes) -> Assignment,
        order: Order,
        mask: Option<&SignalMask>,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let (mut orders, notices) = (make_pipe()?, make_pipe()?);
        let (owner, notices) = (Pid::this(), pipe::Receiver::from_file(notices)?);
        let assignment =
            assign(Pipes { owner, orders: orders.as_raw_fd(), notices: notices.as_raw_fd() });
        orders.write_all(&order.encode())?;
        let descendants = Descendants::from_now_on()?;
        // This binary, even if another has been installed in its place.
        let mut command = Command::new("/proc/self/exe");
        command.arg0(SHIM).args(assignment.to_args()).process_group(0);
        prepare(&mut command);
        let process = match mask {
            Some(mask) => mask.lifted(|| command.spawn())??,
            None => command.spawn()?,
        };
        Ok(Self { process, descendants, orders, notices, unread: VecDeque::new(), ended: None })
    }

    /// Its process id.
    pub(super) fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a process number is a positive i32"))
    }

    /// The shim and its descendants; once it has ended, those that it left.
    pub(super) fn descendants(&self) -> &Descendants {
        &self.descendants
    }

    /// True once it has ended; checked after SIGCHLD.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.process.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    /// Why it could not start anything, if it ended for that.
    pub(super) fn failure(&self) -> Option<io::Error> {
        self.ended.and_then(cause::failure)
    }

    /// Sends it an order.
    pub(super) fn send(&mut self, order: Order) {
        // The pipe is full only if the shim has not run for thousands of orders. The orders that it has yet to
        // read make it end the command sooner, not later.
        let _ = self.orders.write_all(&order.encode());
    }

    /// Its next notice.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn next(&mut self) -> Notice {
        loop {
            if let Some(notice) = self.unread.pop_front() {
                return notice;
            }
            let mut bytes = [0; MOST];
            let result = match self.notices.readable().await {
                Ok(()) => self.notices.try_read(&mut bytes),
                Err(error) => Err(error),
            };
            if let Err(error) = self.keep(result, &bytes)
                && error.kind() != io::ErrorKind::WouldBlock
            {
                self.kill();
                return pending().await;
            }
        }
    }

    /// All notices before its end.
    pub(super) fn last(&mut self) -> VecDeque<Notice> {
        let mut bytes = [0; MOST];
        // Read directly: the runtime may not know yet that there is something to read.
        loop {
            let result = nix::unistd::read(&self.notices, &mut bytes).map_err(io::Error::from);
            if self.keep(result, &bytes).is_err() {
                return std::mem::take(&mut self.unread);
            }
        }
    }

    fn keep(&mut self, read: io::Result<usize>, bytes: &[u8]) -> io::Result<()> {
        let notices = Notice::decode(&bytes[..read?]).ok_or(io::ErrorKind::InvalidData)?;
        self.unread.extend(notices);
        Ok(())
    }

    /// Kills it, so that this process inherits its descendants.
    pub(super) fn kill(&mut self) {
        // Fails only if it has ended.
        let _ = self.process.kill();
    }
}
