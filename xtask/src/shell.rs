//! Runs programs, and knows where things are.

use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The result of a step; the error is for people.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo sets it at each run: two clones that share a target directory share this program too.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    here.parent().expect("xtask is in the workspace").to_path_buf()
}

/// The folder for everything built.
pub(crate) fn target() -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = chosen.unwrap_or_else(|| root().join("target"));
    std::path::absolute(&target).unwrap_or(target)
}

/// The cargo that runs us, at the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    command(Path::new(&cargo), arguments)
}

/// A program at the root of the workspace, without input: a question would wait for ever in CI.
pub(crate) fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a program with its output shown; its failure is an error.
pub(crate) fn run(mut command: Command) -> Outcome {
    let status = command.status().map_err(|error| format!("{}: {error}", shown(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", shown(&command)).into()) }
}

/// Runs a program and returns its output; the error has the end of it.
pub(crate) fn capture(mut command: Command) -> Outcome<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", shown(&command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let last = printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{}: {}: {}", shown(&command), output.status, last.trim()).into())
}

/// Runs a program and returns how it ended; `None` if it took longer than that and was killed with everything that
/// it started in its process group.
pub(crate) fn within(limit: Duration, mut program: Command) -> Outcome<Option<ExitStatus>> {
    let mut child = program.process_group(0).spawn()?;
    let group = Pid::from_raw(i32::try_from(child.id())?);
    let (ended, end) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let status = child.wait();
        // After the limit nobody receives it.
        ended.send(()).unwrap_or_default();
        status
    });
    let in_time = end.recv_timeout(limit).is_ok();
    if !in_time {
        killpg(group, Signal::SIGKILL)?;
    }
    let status = waiting.join().expect("waiting does not panic")?;
    Ok(in_time.then_some(status))
}

/// A heading above what follows.
pub(crate) fn section(title: &str) {
    println!("\n==> {title}");
}

/// The first program of that name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

/// A file that may be executed.
pub(crate) fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The words of a command for messages; of the program only its name.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_or_takes_too_long() {
        let ends = |script: &str, limit| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            within(limit, shell).unwrap().map(|status| status.code())
        };
        let long = Duration::from_secs(60);
        assert_eq!(ends("exit 0", long), Some(Some(0)));
        assert_eq!(ends("exit 1", long), Some(Some(1)));
        // The shell's own child is killed too; otherwise its pipe would stay open.
        assert_eq!(ends("sleep 600 | cat", Duration::from_millis(50)), None);
    }
}
