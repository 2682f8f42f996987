//! The processes of this machine, as `/proc` shows them.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use nix::unistd::{Pid, getppid};

use crate::failure::is_for_want_of_resources;

/// A process at the moment of the look.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    parent: Pid,
    pub(super) group: Pid,
    session: Pid,
    /// False for a zombie: it no longer runs and only waits for its parent.
    pub(super) runs: bool,
    /// When it began, in ticks since the start of the machine.
    pub(super) begun: u64,
}

impl Process {
    /// Reads one; `None` if it is gone.
    ///
    /// # Errors
    /// Fails for want of resources.
    pub(super) fn read(pid: Pid) -> io::Result<Option<Self>> {
        match std::fs::read(format!("/proc/{pid}/stat")) {
            // The name in it need not be UTF-8.
            Ok(stat) => Ok(parse(&String::from_utf8_lossy(&stat))),
            Err(error) if is_for_want_of_resources(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// True if the process that started this one is dead, or about to be: another one is the parent, or its first thread has
/// ended, which happens some time before the last one closes its files.
pub(crate) fn is_dying(parent: Pid) -> bool {
    let has_ended = |process: Option<Process>| process.is_none_or(|process| !process.runs);
    getppid() != parent || Process::read(parent).is_ok_and(has_ended)
}

/// False if processes cannot be read because `/proc` is not mounted.
///
/// # Errors
/// Fails for want of resources.
pub(crate) fn proc_is_mounted() -> io::Result<bool> {
    Ok(Process::read(Pid::this())?.is_some())
}

/// The children of a process, including ended ones that it has not reaped.
///
/// Only this process can remove a child from its own list, by reaping it. So while a descendant of a child
/// subreaper runs, that list is not empty, however often the descendants fork and end meanwhile.
///
/// # Errors
/// Fails for want of resources.
pub(super) fn children_of(parent: Pid) -> io::Result<Vec<Pid>> {
    match listed(parent)? {
        Some(children) => Ok(children),
        None => {
            let children = table()?.into_iter().filter(|process| process.parent == parent);
            Ok(children.map(|child| child.pid).collect())
        }
    }
}

/// The kernel's list; `None` if it was built without it (`CONFIG_PROC_CHILDREN`).
fn listed(parent: Pid) -> io::Result<Option<Vec<Pid>>> {
    let mut children = Vec::new();
    let tasks = match std::fs::read_dir(format!("/proc/{parent}/task")) {
        Ok(tasks) => tasks,
        Err(error) if is_for_want_of_resources(&error) => return Err(error),
        // A process that has ended has none.
        Err(_) => return Ok(Some(children)),
    };
    for task in tasks.flatten() {
        match std::fs::read_to_string(task.path().join("children")) {
            Ok(list) => children.extend(pids(&list)),
            Err(error) if is_for_want_of_resources(&error) => return Err(error),
            Err(error) if error.kind() == ErrorKind::NotFound && !kernel_lists() => {
                return Ok(None);
            }
            // The thread has ended, and another inherited its children.
            Err(_) => {}
        }
    }
    Ok(Some(children))
}

fn kernel_lists() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

fn pids(list: &str) -> impl Iterator<Item = Pid> + '_ {
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw)
}

/// All processes, except those that come or go meanwhile.
fn table() -> io::Result<Vec<Process>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Process::read(Pid::from_raw(pid)).transpose()).collect()
}

/// True if no member of `group` has a parent in another group of its session: then no shell would continue the
/// group after a stop.
pub(crate) fn is_orphaned(group: Pid) -> bool {
    table().is_ok_and(|table| orphaned(&table, group))
}

fn orphaned(table: &[Process], group: Pid) -> bool {
    let by_pid: HashMap<_, _> = table.iter().map(|process| (process.pid, process)).collect();
    let mut members = table.iter().filter(|process| process.group == group);
    !members.any(|member| {
        by_pid
            .get(&member.parent)
            .is_some_and(|parent| parent.session == member.session && parent.group != group)
    })
}

/// Parses `/proc/PID/stat`: `pid (name) state ppid pgrp session …`, where the name may contain blanks and
/// parentheses.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    let dead = matches!(*fields.first()?, "Z" | "X" | "x");
    Some(Process {
        pid: Pid::from_raw(pid.parse().ok()?),
        parent: Pid::from_raw(number(1)?),
        group: Pid::from_raw(number(2)?),
        session: Pid::from_raw(number(3)?),
        // The first thread of a process may have ended while others run.
        runs: !dead || number(17)? > 1,
        begun: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::unistd::getpgrp;

    use super::*;

    fn stat(pid: i32, state: &str, parent: i32, group: i32, session: i32, threads: i32) -> String {
        format!(
            "{pid} (a) b (c)) {state} {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 91 0"
        )
    }

    fn raw(pids: [Pid; 4]) -> [i32; 4] {
        pids.map(Pid::as_raw)
    }

    #[test]
    fn names_with_parentheses_are_skipped() {
        let process = parse(&stat(7, "S", 3, 5, 2, 1)).unwrap();
        let numbers = [process.pid, process.parent, process.group, process.session];
        assert_eq!(raw(numbers), [7, 3, 5, 2]);
        assert!(process.runs);
        assert_eq!(process.begun, 91);
        assert_eq!(parse("7 (x"), None);
        assert_eq!(parse("7 (x) S 1"), None);
    }

    #[test]
    fn a_zombie_with_threads_still_runs() {
        assert!(!parse(&stat(7, "Z", 1, 1, 1, 1)).unwrap().runs);
        assert!(parse(&stat(7, "Z", 1, 1, 1, 2)).unwrap().runs);
    }

    #[test]
    fn orphaned_when_no_shell_is_left_in_the_session() {
        let row = |pid, parent, group, session| {
            parse(&stat(pid, "S", parent, group, session, 1)).unwrap()
        };
        let table = [row(1, 0, 1, 1), row(5, 1, 5, 5), row(6, 5, 6, 5), row(7, 6, 6, 5)];
        assert!(!orphaned(&table, Pid::from_raw(6)));
        // The session's leader itself, as in a container or behind `ssh -t`.
        assert!(orphaned(&table, Pid::from_raw(5)));
    }

    #[test]
    fn a_child_is_listed_until_it_is_reaped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(children_of(Pid::this()).unwrap().contains(&pid));
        let process = Process::read(pid).unwrap().unwrap();
        assert!(process.runs && process.group == getpgrp() && process.parent == Pid::this());
        child.kill().unwrap();
        while Process::read(pid).unwrap().unwrap().runs {}
        assert!(children_of(Pid::this()).unwrap().contains(&pid));
        child.wait().unwrap();
        assert!(!children_of(Pid::this()).unwrap().contains(&pid));
        assert_eq!(children_of(pid).unwrap(), []);
    }

    #[test]
    fn without_the_kernels_list_children_are_found_in_the_process_table() {
        let table = table().unwrap();
        let ours = table.iter().find(|process| process.pid == Pid::this()).unwrap();
        assert!(table.iter().any(|process| process.pid == ours.parent));
    }
}
