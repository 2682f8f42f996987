//! The messages between `leasehold` and the shim, and their pipes.
//!
//! Each direction has a pipe, which `leasehold` holds open both ways and the shim opens through `/proc`: unlike an open
//! file that is handed down, nobody else can inherit it, and it needs no directory that can be written.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, pipe2};

/// A message from `leasehold` to the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// By this instant of boot time the command must be dead.
    Deadline(Duration),
    /// Pass this signal on to the command's group.
    Signal(Signal),
}

/// A message from the shim to `leasehold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The command runs as this process, which leads the group of the same number.
    Started(Pid),
    /// The command could not be started; this is its `errno`.
    NotStarted(i32),
    /// The term ended, or nearly, before the command could be started, so it was not.
    TooLate,
    /// A stop that concerns the whole job; the terminal has been taken back.
    Stopped(Signal),
    /// The command is asked to end, or killed, because of the lease.
    Doomed,
    /// The command has ended, but left processes behind.
    Leftovers,
    /// Something had to be killed.
    Killed,
    /// The command, which had the terminal, died of this keyboard signal.
    Typed(Signal),
    /// Nothing is left, and the command ended with this status.
    Ended(ExitStatus),
}

/// A message of fixed size, so that a pipe takes it whole or not at all.
pub(crate) trait Message: Sized {
    /// The kind, and a number whose meaning depends on the kind.
    fn to_words(&self) -> (u32, i64);

    /// `None` for what the other side never writes.
    fn from_words(kind: u32, value: i64) -> Option<Self>;

    /// The bytes in the pipe.
    fn encode(&self) -> [u8; MESSAGE_SIZE] {
        let (kind, value) = self.to_words();
        let mut bytes = [0; MESSAGE_SIZE];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    /// The messages in these bytes; `None` if one is incomplete or has no meaning.
    fn decode(bytes: &[u8]) -> Option<Vec<Self>> {
        let messages = bytes.chunks(MESSAGE_SIZE).map(|message| {
            let (kind, value) = message.split_at_checked(4)?;
            let kind = u32::from_ne_bytes(kind.try_into().ok()?);
            Self::from_words(kind, i64::from_ne_bytes(value.try_into().ok()?))
        });
        messages.collect()
    }
}

/// The size of a message in bytes.
pub(crate) const MESSAGE_SIZE: usize = 12;

impl Message for Order {
    fn to_words(&self) -> (u32, i64) {
        match *self {
            // An instant that does not fit is as good as never: it is in 292 years.
            Self::Deadline(at) => (1, i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)),
            Self::Signal(signal) => (2, i64::from(signal as i32)),
        }
    }

    fn from_words(kind: u32, value: i64) -> Option<Self> {
        match kind {
            1 => Some(Self::Deadline(Duration::from_nanos(u64::try_from(value).ok()?))),
            2 => Some(Self::Signal(signal(value)?)),
            _ => None,
        }
    }
}

impl Message for Notice {
    fn to_words(&self) -> (u32, i64) {
        match *self {
            Self::Started(pid) => (1, pid.as_raw().into()),
            Self::NotStarted(errno) => (2, errno.into()),
            Self::Stopped(signal) => (3, i64::from(signal as i32)),
            Self::Doomed => (4, 0),
            Self::Leftovers => (5, 0),
            Self::Killed => (6, 0),
            Self::Ended(status) => (7, status.into_raw().into()),
            Self::TooLate => (8, 0),
            Self::Typed(signal) => (9, i64::from(signal as i32)),
        }
    }

    fn from_words(kind: u32, value: i64) -> Option<Self> {
        match kind {
            // Zero and negative numbers would name other groups than the command's.
            1 => i32::try_from(value)
                .ok()
                .filter(|pid| *pid > 0)
                .map(Pid::from_raw)
                .map(Self::Started),
            2 => i32::try_from(value).ok().map(Self::NotStarted),
            3 => signal(value).map(Self::Stopped),
            4 => Some(Self::Doomed),
            5 => Some(Self::Leftovers),
            6 => Some(Self::Killed),
            7 => i32::try_from(value).ok().map(|raw| Self::Ended(ExitStatus::from_raw(raw))),
            8 => Some(Self::TooLate),
            9 => signal(value).map(Self::Typed),
            _ => None,
        }
    }
}

fn signal(value: i64) -> Option<Signal> {
    Signal::try_from(i32::try_from(value).ok()?).ok()
}

/// The pipes, as open files of the process that made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pipes {
    pub(crate) owner: Pid,
    pub(crate) orders: RawFd,
    pub(crate) notices: RawFd,
}

/// Makes a pipe, open both ways, so that it does not end before the other side opens it.
pub(crate) fn make_pipe() -> io::Result<File> {
    let (end, _other) = pipe2(OFlag::O_CLOEXEC)?;
    let path = path_of(Pid::this(), end.as_raw_fd());
    OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)
}

/// The path by which another process opens an open file of `owner`.
pub(crate) fn path_of(owner: Pid, file: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/{owner}/fd/{file}"))
}

/// What the shim reads from `leasehold`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Orders(Vec<Order>),
    /// Every thread of `leasehold` has ended: it had the pipe open, and nobody else.
    Closed,
    /// It is not an order, or cannot be read.
    Garbled,
}

/// The shim's ends of the pipes.
#[derive(Debug)]
pub(crate) struct Link {
    orders: File,
    notices: File,
}

impl Link {
    /// Opens both, which `parent` holds open. Fails if it is not their owner: that one is dead, and its number may be
    /// another's.
    pub(crate) fn open(pipes: Pipes, parent: impl Fn() -> Pid) -> io::Result<Self> {
        // Otherwise either would wait for the other side, which may be dead.
        let at_once = OFlag::O_NONBLOCK.bits();
        let (orders, notices) =
            (path_of(pipes.owner, pipes.orders), path_of(pipes.owner, pipes.notices));
        let link = Self {
            orders: OpenOptions::new().read(true).custom_flags(at_once).open(orders)?,
            notices: OpenOptions::new().write(true).custom_flags(at_once).open(notices)?,
        };
        // While it is the parent, its number is nobody else's.
        if parent() == pipes.owner { Ok(link) } else { Err(ErrorKind::BrokenPipe.into()) }
    }

    /// Only the first order; `None` if it has not arrived, or is not an order.
    pub(crate) fn first_order(&mut self) -> Option<Order> {
        match self.read::<MESSAGE_SIZE>() {
            Received::Orders(orders) => orders.first().copied(),
            Received::Closed | Received::Garbled => None,
        }
    }

    /// The orders that have arrived.
    pub(crate) fn orders(&mut self) -> Received {
        self.read::<{ 64 * MESSAGE_SIZE }>()
    }

    fn read<const MOST: usize>(&mut self) -> Received {
        let mut bytes = [0; MOST];
        match self.orders.read(&mut bytes) {
            Ok(0) => Received::Closed,
            Ok(length) => {
                Order::decode(&bytes[..length]).map_or(Received::Garbled, Received::Orders)
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Received::Orders(Vec::new())
            }
            Err(_) => Received::Garbled,
        }
    }

    /// Becomes readable when orders have arrived, or no more can.
    pub(crate) fn orders_fd(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }

    /// Notifies `leasehold`. If it is dead, or does not read, nothing changes here.
    pub(crate) fn send(&mut self, notice: Notice) {
        let _ = self.notices.write_all(&notice.encode());
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn through<T: Message>(messages: &[T]) -> Option<Vec<T>> {
        let bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
        T::decode(&bytes)
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let orders = [
            Order::Deadline(Duration::ZERO),
            Order::Deadline(Duration::new(5, 7)),
            Order::Signal(Signal::SIGUSR2),
        ];
        assert_eq!(through(&orders).unwrap(), orders);
        let notices = [
            Notice::Started(Pid::from_raw(77)),
            Notice::NotStarted(2),
            Notice::Stopped(Signal::SIGTSTP),
            Notice::Doomed,
            Notice::Leftovers,
            Notice::Killed,
            Notice::TooLate,
            Notice::Typed(Signal::SIGQUIT),
            // By a real-time signal, which has no name.
            Notice::Ended(ExitStatus::from_raw(40)),
        ];
        assert_eq!(through(&notices).unwrap(), notices);
        let never = through(&[Order::Deadline(Duration::MAX)]).unwrap();
        assert!(matches!(never[0], Order::Deadline(at) if at > Duration::from_secs(9_000_000_000)));
    }

    #[test]
    fn an_invalid_message_is_refused() {
        let whole = Order::Signal(Signal::SIGTERM).encode();
        for short in [1, 4, MESSAGE_SIZE - 1] {
            assert_eq!(Order::decode(&whole[..short]), None);
            assert_eq!(Order::decode(&[&whole[..], &whole[..short]].concat()), None);
        }
        for (kind, value) in [(0, 0), (3, 0), (1, -1), (2, 0), (2, 1_000), (2, i64::MAX)] {
            assert_eq!(Order::from_words(kind, value), None, "{kind} {value}");
        }
        for (kind, value) in [(0, 0), (10, 0), (1, 0), (1, -5), (1, i64::MAX), (3, 0), (9, 0)] {
            assert_eq!(Notice::from_words(kind, value), None, "{kind} {value}");
        }
    }

    #[test]
    fn a_link_ends_with_the_other_side() {
        let (mut ours, mut read) = (make_pipe().unwrap(), make_pipe().unwrap());
        ours.write_all(&Order::Deadline(Duration::ZERO).encode()).unwrap();
        let pipes =
            Pipes { owner: Pid::this(), orders: ours.as_raw_fd(), notices: read.as_raw_fd() };
        Link::open(pipes, || Pid::from_raw(1)).unwrap_err();
        let mut link = Link::open(pipes, Pid::this).unwrap();
        ours.write_all(&Order::Signal(Signal::SIGHUP).encode()).unwrap();
        assert_eq!(link.first_order().unwrap(), Order::Deadline(Duration::ZERO));
        assert_eq!(link.orders(), Received::Orders(vec![Order::Signal(Signal::SIGHUP)]));
        assert_eq!(link.orders(), Received::Orders(Vec::new()));
        link.send(Notice::Killed);
        let mut bytes = [0; MESSAGE_SIZE];
        read.read_exact(&mut bytes).unwrap();
        assert_eq!(Notice::decode(&bytes).unwrap(), [Notice::Killed]);
        ours.write_all(b"short").unwrap();
        assert_eq!(link.orders(), Received::Garbled);
        drop(ours);
        // A process that another test is starting has it open a moment longer.
        poll(&mut [PollFd::new(link.orders_fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
        assert_eq!(link.orders(), Received::Closed);
    }
}
