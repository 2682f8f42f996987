//! Ensures that the command does not outlive the lease, and that nothing of it outlives the lock.

use std::io;
use std::thread;
use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgid, getppid};

use super::launcher::{Launched, launch};
use super::wakeups::Wakeups;
use crate::plan::OnLost;
use crate::process::family::{Descendants, adopt_orphans, reap_all_but};
use crate::process::group::{Group, LeaderState};
use crate::process::link::{Link, Notice, Order, Received};
use crate::process::terminal::Terminal;
use crate::process::{Assignment, is_dying};

/// How often to look at processes that must end: no event reports that a group is empty.
const POLL: Duration = Duration::from_millis(20);

/// How long a process that a command has left, such as a daemon that it has just started, has to leave the group.
const MOMENT: Duration = Duration::from_millis(200);

/// How long a process takes at most from the end of its first thread to that of its last.
const DYING: Duration = Duration::from_millis(200);

/// Watches the command, and the orders of `leasehold`, until nothing of the command is left.
#[derive(Debug)]
pub(super) struct Watcher {
    group: Group,
    descendants: Descendants,
    terminal: Terminal,
    wakeups: Wakeups,
    link: Link,
    kill_after: Duration,
    on_lost: OnLost,
    kill_after_signal: Option<Duration>,
    /// The command must be dead by this instant, unless an order names a later one first.
    deadline: Duration,
    owner: Owner,
    leasehold: Pid,
    /// A signal that was passed on asked the command to end.
    asked: bool,
    leader_ended: bool,
    /// It did not end by itself, so what left its group is not a daemon.
    forced: bool,
    /// `leasehold` knows that the command is stopped.
    stop_told: bool,
    /// The command was asked to end because of the lease; a later deadline does not take that back.
    doomed: bool,
    /// When to ask what the leader has left to end.
    leftovers_at: Option<Duration>,
    kill_at: Option<Duration>,
    killed: bool,
}

/// Whether `leasehold` lives, as its pipe shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Lives,
    Dead,
    /// What it sends cannot be understood.
    Garbled,
}

impl Watcher {
    /// Starts the command; `None` if it cannot be started, which is reported to `leasehold`.
    ///
    /// # Errors
    /// Fails, and starts nothing, if the shim could not watch the command, or there is no `leasehold`.
    pub(super) fn start(assignment: &Assignment) -> io::Result<Option<Self>> {
        // From now on no signal reaches the shim. No disposition changes: the command gets both as `leasehold` was
        // started with them.
        let original = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let home = getpgid(Some(getppid()))?;
        let wakeups = Wakeups::new()?;
        adopt_orphans()?;
        let descendants = Descendants::from_now_on()?;
        let mut link = Link::open(assignment.pipes, getppid)?;
        // It was written before this process started. Without it `leasehold` is dead, and `home` may belong to
        // anyone.
        let Some(Order::Deadline(mut deadline)) = link.first_order() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let latest = |deadline: Duration| deadline.saturating_sub(assignment.kill_after);
        if latest(deadline) <= now() {
            link.send(Notice::TooLate);
            return Ok(None);
        }
        let (first, mut early) = (latest(deadline), Vec::new());
        let renewed = || {
            let Received::Orders(orders) = link.orders() else { return None };
            for order in orders {
                match order {
                    Order::Deadline(at) => deadline = at,
                    Order::Signal(signal) => early.push(signal),
                }
            }
            Some(latest(deadline))
        };
        let group = match launch(assignment, &original, &wakeups, first, renewed)? {
            Launched::Command(group) => group,
            Launched::Failed(errno) => {
                link.send(Notice::NotStarted(errno));
                return Ok(None);
            }
            Launched::TooLate => {
                link.send(Notice::TooLate);
                return Ok(None);
            }
        };
        let mut terminal = Terminal::new(home, group.id());
        terminal.lend();
        link.send(Notice::Started(group.id()));
        let mut watcher = Self {
            group,
            descendants,
            terminal,
            wakeups,
            link,
            kill_after: assignment.kill_after,
            on_lost: assignment.on_lost,
            kill_after_signal: assignment.kill_after_signal,
            deadline,
            owner: Owner::Lives,
            leasehold: assignment.pipes.owner,
            asked: false,
            leader_ended: false,
            forced: false,
            stop_told: false,
            doomed: false,
            leftovers_at: None,
            kill_at: None,
            killed: false,
        };
        for signal in early {
            watcher.pass_on(signal);
        }
        Ok(Some(watcher))
    }

    /// Ends when the command has ended, with everything that it left in its group; after a loss, when all its
    /// descendants have. If `leasehold` is dead, returns the instant until which the lease may be held.
    pub(super) fn run(mut self) -> Option<Duration> {
        loop {
            self.look();
            if self.is_done() {
                break;
            }
            let instant = self.enforce();
            let orders = (self.owner == Owner::Lives).then(|| self.link.orders_fd());
            self.wakeups.wait(orders, instant);
            self.obey();
            reap_all_but(self.group.id());
        }
        self.terminal.take_back(&self.descendants);
        self.look_for_owner();
        // From here on its number can become another's.
        if let Ok(status) = self.group.wait() {
            self.link.send(Notice::Ended(status));
        }
        (self.owner == Owner::Dead).then_some(self.deadline)
    }

    /// Finds out what the leader did.
    fn look(&mut self) {
        if self.leader_ended {
            return;
        }
        match self.group.look() {
            LeaderState::Runs => {}
            LeaderState::Stopped(signal) => self.stopped(signal),
            LeaderState::Exited => self.ended(self.asked),
            LeaderState::Killed => self.ended(true),
        }
    }

    /// The leader has ended, and what it has left must too.
    fn ended(&mut self, forced: bool) {
        self.leader_ended = true;
        self.forced = forced;
        if let (true, Some(signal)) = (self.terminal.is_lent(), self.group.killed_by_key()) {
            self.link.send(Notice::Typed(signal));
        }
        self.terminal.take_back(&self.descendants);
        reap_all_but(self.group.id());
        if self.kills_all() || !self.is_something_left() {
            return;
        }
        if forced {
            self.end_leftovers();
        } else {
            self.leftovers_at = Some(now().saturating_add(MOMENT));
        }
    }

    /// Asks what the leader has left to end.
    fn end_leftovers(&mut self) {
        self.link.send(Notice::Leftovers);
        self.group.terminate();
        if self.ends_all() {
            self.descendants.terminate();
        }
        self.kill_by(now().saturating_add(self.kill_after));
    }

    fn is_done(&self) -> bool {
        self.leader_ended && !self.is_something_left()
    }

    fn is_something_left(&self) -> bool {
        if self.ends_all() {
            self.descendants.are_left(Some(self.group.id()))
        } else {
            self.descendants.are_left_in(self.group.id())
        }
    }

    /// True if processes that left the group must die too, such as a child of timeout(1). After a command that
    /// ended by itself they are daemons, and left alone.
    fn ends_all(&self) -> bool {
        self.kills_all() || (self.forced && !self.doomed)
    }

    fn kills_all(&self) -> bool {
        self.doomed && self.on_lost == OnLost::Kill
    }

    /// Does what is due by the clock; returns the instant of the next step.
    fn enforce(&mut self) -> Option<Duration> {
        // By the boot-time clock, at each wake-up: also after a stop, or a sleep of the machine.
        let now = now();
        let ask_at = self.deadline.saturating_sub(self.kill_after);
        if self.on_lost != OnLost::Ignore
            && !self.doomed
            && (self.owner != Owner::Lives || ask_at <= now)
        {
            self.doom(now);
        }
        if self.leftovers_at.take_if(|at| *at <= now).is_some() {
            self.end_leftovers();
        }
        let next = match self.kill_at {
            Some(at) if at <= now => {
                self.kill();
                Some(now.saturating_add(POLL))
            }
            Some(at) if self.doomed || self.on_lost == OnLost::Ignore => Some(at),
            // It was asked to end by a signal; the lease may end first.
            Some(at) => Some(at.min(ask_at)),
            None if self.doomed || self.on_lost == OnLost::Ignore => None,
            None => Some(ask_at),
        };
        if self.leader_ended {
            let soon = now.saturating_add(POLL);
            return Some(next.map_or(soon, |next| next.min(soon)));
        }
        next
    }

    /// Tells the command to end because of the lease.
    fn doom(&mut self, now: Duration) {
        self.doomed = true;
        self.link.send(Notice::Doomed);
        // A stopped command must not run again only to be killed.
        if !(self.kills_all() && self.deadline <= now) {
            self.group.terminate();
        }
        if self.kills_all() {
            self.kill_by(self.deadline.min(now.saturating_add(self.kill_after)));
        }
    }

    /// Carries out the orders of `leasehold`.
    fn obey(&mut self) {
        if self.owner != Owner::Lives {
            return;
        }
        let orders = match self.link.orders() {
            Received::Orders(orders) => orders,
            ended => {
                self.owner = match ended {
                    Received::Closed => Owner::Dead,
                    _ => Owner::Garbled,
                };
                self.terminal.take_back(&self.descendants);
                return;
            }
        };
        for order in orders {
            match order {
                Order::Deadline(at) => {
                    self.deadline = at;
                    if self.kills_all() {
                        self.kill_by(at);
                    }
                }
                Order::Signal(signal) => self.pass_on(signal),
            }
        }
    }

    /// Finds out whether `leasehold` has died, perhaps just before the command ended. Orders have no effect any more.
    fn look_for_owner(&mut self) {
        let until = now().saturating_add(DYING);
        while self.owner == Owner::Lives {
            match self.link.orders() {
                Received::Orders(orders) if orders.is_empty() => {
                    if !is_dying(self.leasehold) || now() >= until {
                        return;
                    }
                    thread::yield_now();
                }
                Received::Orders(_) => {}
                Received::Closed => self.owner = Owner::Dead,
                Received::Garbled => self.owner = Owner::Garbled,
            }
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT {
            // The lease first: the time of the stop counts.
            self.enforce();
            if self.killed || self.leader_ended {
                return;
            }
            self.terminal.lend();
            self.stop_told = false;
        }
        if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT) {
            self.asked = true;
            if let Some(pause) = self.kill_after_signal {
                self.kill_by(now().saturating_add(pause));
            }
        }
        self.group.signal(signal);
    }

    /// Tells `leasehold` of a stop that concerns it too.
    fn stopped(&mut self, signal: Signal) {
        if self.terminal.lend_to_asker(signal) {
            self.group.signal(Signal::SIGCONT);
            return;
        }
        let by_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP);
        // Otherwise someone stopped only the command; its lease is renewed meanwhile.
        if by_terminal || self.terminal.is_lent() {
            self.terminal.take_back(&self.descendants);
            // Until it continues the command, `leasehold` is stopped too, and would later be stopped again.
            if !std::mem::replace(&mut self.stop_told, true) {
                self.link.send(Notice::Stopped(signal));
            }
        }
    }

    /// Kills at `instant`, unless a kill is due earlier.
    fn kill_by(&mut self, instant: Duration) {
        self.kill_at = Some(self.kill_at.map_or(instant, |earlier| earlier.min(instant)));
    }

    fn kill(&mut self) {
        self.group.kill();
        if self.ends_all() {
            self.descendants.kill();
        }
        if !self.killed {
            self.killed = true;
            self.link.send(Notice::Killed);
        }
    }
}

fn now() -> Duration {
    SystemClock::new().now()
}
