//! The processes of this machine as `/proc` shows them: who descends from whom, and who is in which group.

use std::collections::{HashMap, HashSet};

use nix::unistd::Pid;

/// All processes at one moment, or nearly so: a process that forks meanwhile may be missed, so whoever acts
/// on the answer asks again until it is empty.
#[derive(Debug)]
pub(crate) struct ProcessTable(Vec<Process>);

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: Pid,
    parent: Pid,
    group: Pid,
    session: Pid,
    /// False for a zombie: it runs no more and only waits for its parent.
    runs: bool,
}

impl ProcessTable {
    /// Reads the table; `None` where `/proc` is not mounted.
    pub(crate) fn read() -> Option<Self> {
        let entries = std::fs::read_dir("/proc").ok()?;
        let processes: Vec<_> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                path.file_name()?.to_str()?.parse::<i32>().ok()?;
                // A process that ends meanwhile has no file any more. The name in it need not be UTF-8.
                parse(&String::from_utf8_lossy(&std::fs::read(path.join("stat")).ok()?))
            })
            .collect();
        processes.iter().any(|process| process.pid == Pid::this()).then_some(Self(processes))
    }

    /// True if a process of `group` still runs.
    pub(super) fn has_running_member(&self, group: Pid) -> bool {
        self.0.iter().any(|process| process.runs && process.group == group)
    }

    /// The running descendants of `ancestor`, itself not among them, nor the `spared` and what descends from those.
    pub(super) fn descendants(&self, ancestor: Pid, spared: &HashSet<Pid>) -> Vec<Pid> {
        let mut children: HashMap<Pid, Vec<&Process>> = HashMap::new();
        for process in &self.0 {
            children.entry(process.parent).or_default().push(process);
        }
        let mut found = Vec::new();
        // The table is no snapshot, so the same process may seem to be its own ancestor.
        let mut seen = spared.clone();
        seen.insert(ancestor);
        let mut open = vec![ancestor];
        while let Some(parent) = open.pop() {
            for child in children.get(&parent).into_iter().flatten() {
                if seen.insert(child.pid) {
                    open.push(child.pid);
                    if child.runs {
                        found.push(child.pid);
                    }
                }
            }
        }
        found
    }

    /// True if no member of `group` has a parent in another group of its session: then there is no shell
    /// that would continue the group once it is stopped.
    pub(crate) fn is_orphaned(&self, group: Pid) -> bool {
        let by_pid: HashMap<_, _> = self.0.iter().map(|process| (process.pid, process)).collect();
        let mut members = self.0.iter().filter(|process| process.group == group);
        !members.any(|member| {
            by_pid
                .get(&member.parent)
                .is_some_and(|parent| parent.session == member.session && parent.group != group)
        })
    }
}

/// Reads `/proc/PID/stat`: `pid (name) state ppid pgrp session …`, where the name may hold blanks and
/// parentheses of its own.
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
        // The first thread of a process may have ended while others run on.
        runs: !dead || number(17)? > 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, state: &str, parent: i32, group: i32, session: i32, threads: i32) -> String {
        format!(
            "{pid} (a) b (c)) {state} {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 1 0"
        )
    }

    fn table(rows: &[(i32, &str, i32, i32, i32)]) -> ProcessTable {
        let parsed = rows
            .iter()
            .map(|&(pid, state, parent, group, session)| {
                parse(&stat(pid, state, parent, group, session, 1)).unwrap()
            })
            .collect();
        ProcessTable(parsed)
    }

    fn pids(raw: &[i32]) -> Vec<Pid> {
        raw.iter().copied().map(Pid::from_raw).collect()
    }

    #[test]
    fn names_with_parentheses_are_skipped() {
        let process = parse(&stat(7, "S", 3, 5, 2, 1)).unwrap();
        assert_eq!(
            [process.pid, process.parent, process.group, process.session],
            *pids(&[7, 3, 5, 2])
        );
        assert!(process.runs);
        assert_eq!(parse("7 (x"), None);
        assert_eq!(parse("7 (x) S 1"), None);
    }

    #[test]
    fn a_zombie_with_threads_still_runs() {
        assert!(!parse(&stat(7, "Z", 1, 1, 1, 1)).unwrap().runs);
        assert!(parse(&stat(7, "Z", 1, 1, 1, 2)).unwrap().runs);
    }

    #[test]
    fn descendants_through_other_groups_and_zombies() {
        let table = table(&[
            (1, "S", 0, 1, 1),
            (10, "S", 1, 10, 1),
            (11, "Z", 10, 11, 1),
            (12, "S", 11, 11, 1),
            (13, "S", 12, 13, 13),
            (20, "S", 1, 20, 1),
        ]);
        let descendants = |of, spared: &[i32]| {
            let spared = spared.iter().copied().map(Pid::from_raw).collect();
            let mut found = table.descendants(Pid::from_raw(of), &spared);
            found.sort();
            found
        };
        assert_eq!(descendants(10, &[]), pids(&[12, 13]));
        assert_eq!(descendants(1, &[11]), pids(&[10, 20]));
        assert!(table.has_running_member(Pid::from_raw(11)));
        assert!(!table.has_running_member(Pid::from_raw(99)));
    }

    #[test]
    fn a_table_that_contradicts_itself_ends() {
        let table = table(&[(2, "S", 3, 2, 2), (3, "S", 2, 2, 2)]);
        assert_eq!(table.descendants(Pid::from_raw(2), &HashSet::new()), pids(&[3]));
    }

    #[test]
    fn orphaned_when_no_shell_is_left_in_the_session() {
        let shell = (5, "S", 1, 5, 5);
        let by_shell = table(&[(1, "S", 0, 1, 1), shell, (6, "S", 5, 6, 5), (7, "S", 6, 6, 5)]);
        assert!(!by_shell.is_orphaned(Pid::from_raw(6)));
        // The session's own leader, as in a container or behind `ssh -t`.
        assert!(by_shell.is_orphaned(Pid::from_raw(5)));
    }

    #[test]
    fn this_very_process_is_in_it() {
        let table = ProcessTable::read().unwrap();
        assert!(table.has_running_member(nix::unistd::getpgrp()));
    }
}
