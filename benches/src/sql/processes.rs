//! Processes of one machine that wait for each other: through one SQLite file, and by `flock`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold::{Error, Locker, Result, Wait};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::measure::{micros, now, or_few, percentile};

/// Hand-overs and tries of a row.
const COUNT: u32 = or_few(50, 2);
/// How long a lock is held before it is handed over: for so long that a waiter that polls has slowed down.
const HOLD: Duration = or_few(Duration::from_secs(1), Duration::from_millis(100));
/// How long the short jobs hold the lock.
const JOB: Duration = Duration::from_millis(50);
/// How long a loop in a shell takes to start the next job.
const START: Duration = Duration::from_millis(10);
/// How long an idle waiter is watched.
const IDLE: Duration = or_few(Duration::from_secs(10), Duration::from_millis(100));

/// How a process takes the lock.
#[derive(Clone, Copy)]
enum Way {
    Leasehold,
    Flock,
}

enum Lock {
    Leasehold(Locker),
    Flock(PathBuf),
}

enum Held {
    Leasehold(leasehold::Guard),
    Flock(File),
}

impl Lock {
    async fn open(way: &str, path: &Path) -> Result<Self> {
        Ok(match way {
            "flock" => Self::Flock(path.to_owned()),
            _ => Self::Leasehold(Locker::connect(&format!("sqlite:{}", path.display())).await?),
        })
    }

    async fn take(&self) -> Result<Held> {
        Ok(match self {
            Self::Leasehold(locks) => Held::Leasehold(locks.lock("job").wait(Wait::Forever).await?),
            Self::Flock(path) => {
                let file = File::create(path).map_err(failed)?;
                file.lock().map_err(failed)?;
                Held::Flock(file)
            }
        })
    }
}

impl Held {
    async fn release(self) -> Result<()> {
        match self {
            Self::Leasehold(guard) => guard.release().await.map(drop),
            Self::Flock(file) => file.unlock().map_err(failed),
        }
    }
}

/// What a process of this benchmark does: `wait` takes and releases the lock once for each line that it reads, and states
/// when it had it; `jobs` takes and releases it again and again.
pub(crate) async fn child(way: &str, path: &str, role: &str) -> Result<()> {
    let lock = Lock::open(way, Path::new(path)).await?;
    if role == "jobs" {
        loop {
            let held = lock.take().await?;
            tokio::time::sleep(JOB).await;
            held.release().await?;
            tokio::time::sleep(START).await;
        }
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await.map_err(failed)?.is_some() {
        let held = lock.take().await?;
        println!("{}", now().as_nanos());
        held.release().await?;
    }
    Ok(())
}

/// Another process of this program.
struct Process {
    child: Child,
    asks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(way: Way, path: &Path, role: &str) -> Result<Self> {
        let this = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(this)
            .args(["child", way.name()])
            .arg(path)
            .arg(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let ended = || Error::unexpected("a process of the benchmark has no pipes");
        let asks = child.stdin.take().ok_or_else(ended)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(ended)?).lines();
        Ok(Self { child, asks, answers })
    }

    /// Lets it take the lock.
    async fn ask(&mut self) -> Result<()> {
        self.asks.write_all(b"\n").await.map_err(failed)
    }

    /// When it had the lock. All processes read one clock.
    async fn had_it(&mut self) -> Result<Duration> {
        let line = self.answers.next_line().await.map_err(failed)?.unwrap_or_default();
        let nanos =
            line.parse().map_err(|_| Error::unexpected("a process of the benchmark ended"))?;
        Ok(Duration::from_nanos(nanos))
    }

    /// How long processors have worked for it, in hundredths of a second.
    fn processor_time(&self) -> Result<u64> {
        let id = self.child.id().unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).map_err(failed)?;
        let fields =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        Ok(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Flock => "flock",
        }
    }
}

pub(crate) async fn run() -> Result<()> {
    println!("## Processes that wait for each other\n");
    println!(
        "Hand-over: from the call of `release`, after {} s, until another process that waits has the lock. Beside short \
         jobs: how long a process waits while two others take the lock again and again, each for {} ms and {} ms after its \
         release, which is what a loop in a shell does. {COUNT} times each. Idle: the processor time of a process that \
         waits for {} s while nothing is written.\n",
        HOLD.as_secs(),
        JOB.as_millis(),
        START.as_millis(),
        IDLE.as_secs()
    );
    println!(
        "| | hand-over p50, µs | worst, µs | beside short jobs p50, µs | worst, µs | within 2 s | idle, ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    let folder = tempfile::tempdir().map_err(failed)?;
    for way in [Way::Leasehold, Way::Flock] {
        let path = folder.path().join(way.name());
        let lock = Lock::open(way.name(), &path).await?;
        let mut waiter = Process::start(way, &path, "wait")?;
        let (mut handovers, mut waits) = (Vec::new(), Vec::new());
        for _ in 0..COUNT {
            let held = lock.take().await?;
            waiter.ask().await?;
            tokio::time::sleep(HOLD).await;
            let released = now();
            held.release().await?;
            handovers.push(waiter.had_it().await?.saturating_sub(released));
        }
        let held = lock.take().await?;
        waiter.ask().await?;
        tokio::time::sleep(HOLD).await;
        let before = waiter.processor_time()?;
        tokio::time::sleep(IDLE).await;
        let idle = waiter.processor_time()? - before;
        held.release().await?;
        waiter.had_it().await?;
        let jobs = [Process::start(way, &path, "jobs")?, Process::start(way, &path, "jobs")?];
        tokio::time::sleep(HOLD).await;
        for n in 0..COUNT {
            let asked = now();
            waiter.ask().await?;
            waits.push(waiter.had_it().await?.saturating_sub(asked));
            // Not in step with the jobs.
            tokio::time::sleep(JOB * (n % 10) / 5).await;
        }
        drop(jobs);
        let soon = waits.iter().filter(|wait| **wait < Duration::from_secs(2)).count();
        println!(
            "| {} | {} | {} | {} | {} | {soon} of {COUNT} | {} |",
            way.name(),
            micros(percentile(&mut handovers, 50)),
            micros(percentile(&mut handovers, 100)),
            micros(percentile(&mut waits, 50)),
            micros(percentile(&mut waits, 100)),
            idle * 10
        );
    }
    println!();
    Ok(())
}

fn failed(error: std::io::Error) -> Error {
    Error::unexpected("a process of the benchmark failed").with_source(error)
}
