//! Builds test programs with cargo, and runs several programs in parallel.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use crate::shell::{Outcome, shown, within};
use crate::times::Stopwatch;

/// How many programs run at a time. Most of them wait more than they compute.
const SIDE_BY_SIDE: usize = 3;

/// A program that takes longer than this hangs, and is killed: the others still report what they found.
const STUCK: Duration = Duration::from_secs(15 * 60);

/// How many tests of one program run at a time: more would only delay each other, past the limits of some.
const THREADS: &str = "4";

/// The longest programs begin first, the longest of all before the others.
const LONGEST: [&str; 12] = [
    "mongodb_conformance",
    "redis_conformance",
    "spanner_conformance",
    "postgres_conformance",
    "mongodb",
    "postgres",
    "front_end",
    "front_end_spanner",
    "cli",
    "mysql",
    "sqlite_conformance",
    "spanner",
];

/// A test program.
#[derive(Debug)]
pub(crate) struct Program {
    /// The name of its target; for unit tests, the name of their crate.
    pub(crate) name: String,
    executable: PathBuf,
    /// The root of its package, where it runs.
    folder: PathBuf,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// What it printed about its failures, if it failed.
    pub(crate) failures: Option<String>,
}

/// Builds with this command, `cargo test --no-run` and what to build, and returns the test programs.
pub(crate) fn build(mut cargo: Command) -> Outcome<Vec<Program>> {
    cargo.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(|error| format!("{}: {error}", shown(&cargo)))?;
    let mut messages = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut messages)?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{}: {status}", shown(&cargo)).into());
    }
    let mut programs: Vec<_> =
        messages.lines().map(program).collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect();
    programs.sort_by_key(|program: &Program| {
        let nth = LONGEST.iter().position(|long| *long == program.name);
        (nth.unwrap_or(LONGEST.len()), program.name.clone())
    });
    Ok(programs)
}

/// The test program that a message of cargo names, if it does.
fn program(message: &str) -> Outcome<Option<Program>> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        manifest_path: Option<PathBuf>,
        profile: Option<Profile>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    Ok(match serde_json::from_str(message)? {
        Message {
            executable: Some(executable),
            manifest_path: Some(manifest),
            profile: Some(Profile { test: true }),
            target: Some(Target { name }),
        } => {
            let folder = manifest.parent().unwrap_or(Path::new("")).to_path_buf();
            Some(Program { name, executable, folder })
        }
        _ => None,
    })
}

impl Program {
    /// The command that runs it with these arguments.
    pub(crate) fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.env("RUST_TEST_THREADS", THREADS);
        command
    }
}

/// Runs these commands, several at a time, each with its name, and shows the output of each when it has ended. The output is kept
/// in `logs` too.
pub(crate) fn run(commands: Vec<(String, Command)>, logs: &Path) -> Outcome<Vec<Ran>> {
    make_empty(logs)?;
    let waiting = Mutex::new(VecDeque::from(commands));
    let ended = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("no program panics").pop_front();
    let work = || -> Result<(), String> {
        while let Some((name, command)) = next() {
            let log = logs.join(format!("{name}.txt"));
            let watch = Stopwatch::start();
            let (passed, status, printed) =
                logged(command, &log).map_err(|error| format!("{name}: {error}"))?;
            let took = watch.elapsed();
            let mut ended = ended.lock().expect("no program panics");
            println!("\n--> {name}: {status}");
            let printed = String::from_utf8_lossy(&printed);
            println!("{}", printed.trim_end());
            let failures = (!passed).then(|| format!("{status}\n{}", failures(&printed)));
            ended.push(Ran { name, took, failures });
        }
        Ok(())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|one| one.join().expect("no program panics"))
    })?;
    Ok(ended.into_inner().expect("no program panics"))
}

/// Runs it with its output in a file, and returns whether it passed, how it ended, and its output.
fn logged(mut command: Command, log: &Path) -> Outcome<(bool, String, Vec<u8>)> {
    let file = File::create(log)?;
    command.stdout(file.try_clone()?).stderr(file);
    let (passed, status) = match within(STUCK, command)? {
        Some(status) => (status.success(), status.to_string()),
        None => (false, format!("killed, because it took more than {} s", STUCK.as_secs())),
    };
    Ok((passed, status, fs::read(log)?))
}

/// Makes a folder, or removes all that is in it.
pub(crate) fn make_empty(folder: &Path) -> Outcome {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(())
}

/// What a test program printed about failed tests; all of its output if it did not get that far.
fn failures(printed: &str) -> &str {
    let from = printed.find("\nfailures:\n").unwrap_or(0);
    let printed = printed[from..].trim();
    printed.find("\ntest result: ").map_or(printed, |to| printed[..to].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_in_a_programs_output() {
        let told = "failures:\n\n---- a ----\nno\n\nfailures:\n    a";
        let all = format!("test a ... FAILED\n\n{told}\n\ntest result: FAILED. 0 passed\n\nmore\n");
        assert_eq!(failures(&all), told);
        assert_eq!(failures("test a ... \nkilled\n"), "test a ... \nkilled");
    }

    #[test]
    fn test_programs_are_found_in_cargos_messages() {
        let told = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/b/Cargo.toml",
                "target":{{"kind":["test"],"name":"cli"}},"profile":{{"test":{test}}},
                "executable":{executable}}}"#
            )
        };
        let found = program(&told(true, r#""/t/cli-1""#)).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.folder.to_str()), ("cli", Some("/a/b")));
        for other in [
            told(false, r#""/t/cli""#),
            told(true, "null"),
            r#"{"reason":"build-finished"}"#.into(),
        ] {
            assert!(program(&other).unwrap().is_none(), "{other}");
        }
    }
}
