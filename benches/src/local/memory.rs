//! Bytes for each key: each figure comes from a process of its own.

use std::fs;
use std::process::Command;
use std::thread;

use leasehold::{Error, Result};
use tokio::runtime::Handle;

use super::subjects::{self, Subject};
use crate::measure::{float, or_few};

/// Keys of a figure.
const KEYS: u64 = or_few(200_000, 200);

/// What a key is when it is measured.
const STATES: [&str; 3] = ["idle", "held", "waited for"];

/// Measures keys that were locked once, that are held, and that are held and waited for.
pub(crate) fn run() -> Result<()> {
    println!("## Memory\n");
    println!(
        "Bytes by which the resident memory of a new process grows for each of {KEYS} keys. *Idle*: each was locked and unlocked. \
         *Held*: with its guard. *Waited for*: held, and a task waits for it; with the guard and the future.\n"
    );
    println!("| | idle | held | waited for |");
    println!("|---|---|---|---|");
    for (number, side) in subjects::all().iter().enumerate() {
        let mut row = format!("| {}", side.name);
        for state in STATES {
            let can = match state {
                "idle" => true,
                "held" => side.hold.is_some(),
                _ => side.wait.is_some(),
            };
            row +=
                &if can { format!(" | {}", in_a_process(number, state)?) } else { " | –".into() };
        }
        println!("{row} |");
    }
    println!();
    Ok(())
}

fn in_a_process(side: usize, state: &str) -> Result<String> {
    let failed = |error| Error::invalid_input(format!("the measuring process failed: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let child = Command::new(program).args(["child", "memory", &side.to_string(), state]).output();
    let output = child.map_err(failed)?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(Error::invalid_input(format!("the measuring process failed: {error}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Prints one figure.
pub(crate) fn child(side: &str, state: &str) -> Result<()> {
    let side = side.parse().ok().and_then(|number| subjects::all().into_iter().nth(number));
    let unknown = || Error::invalid_input("there is no such side");
    let side = side.ok_or_else(unknown)?;
    // Some sides refuse to block a thread that runs tasks, and some need the timers of a runtime.
    let runtime = Handle::current();
    let measure = || {
        let _entered = runtime.enter();
        grown(&side, state)
    };
    let grown = thread::scope(|threads| threads.spawn(measure).join());
    println!("{:.0}", grown.map_err(|_| Error::invalid_input("the side panicked"))?);
    Ok(())
}

fn grown(side: &Subject, state: &str) -> f64 {
    let before = resident();
    let kept = match (&side.hold, &side.wait, state) {
        (Some(hold), _, "held") => vec![hold(KEYS)],
        (_, Some(wait), "waited for") => vec![wait(KEYS)],
        _ => {
            (0..KEYS).for_each(|key| (side.pairs)(&[key]));
            vec![]
        }
    };
    let grown =
        float(resident().saturating_sub(before)) / float(usize::try_from(KEYS).unwrap_or(1));
    drop(kept);
    grown
}

/// The resident memory of this process in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
