//! The `leasehold` command against `flock`, process against process; what it costs the machine, and what waiting processes cost a
//! server.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Error, Result};
use leasehold_testkit::sql::SqlTestServer;
use leasehold_testkit::{mysql as mariadb, postgres as postgresql, redis};
use tempfile::TempDir;

use crate::measure::{self, now, or_few, percentile, ratio};
use crate::sql::failed;
use crate::subjects::io;

/// Runs of each side, in turn.
const ROUNDS: usize = or_few(200, 2);

/// Processes that wait for one key.
const WAITERS: u32 = 10;

/// How long before their statements are counted, and for how long.
const SETTLING: Duration = or_few(Duration::from_secs(10), Duration::from_millis(500));
const COUNTED: Duration = or_few(Duration::from_secs(30), Duration::from_secs(1));

/// The commands of Redis that clients send. What a script calls counts too at the server, but is none of them.
const SENT: [&str; 6] = ["client", "eval", "hello", "ping", "ssubscribe", "sunsubscribe"];

/// The stores, each ready.
struct Stores {
    folder: TempDir,
    redis: redis::Server,
    postgres: postgresql::Server,
    mariadb: mariadb::Server,
}

impl Stores {
    async fn start() -> Result<Self> {
        let stores = Self {
            folder: tempfile::tempdir().map_err(io)?,
            redis: crate::redis::start().await?,
            postgres: postgresql::Server::start(&[]).await.map_err(failed)?,
            mariadb: mariadb::Server::start(&[]).await.map_err(failed)?,
        };
        for (_, url) in stores.urls() {
            end(leasehold(&url, &["init"]))?;
        }
        Ok(stores)
    }

    fn urls(&self) -> [(&'static str, String); 4] {
        [
            ("SQLite", format!("sqlite:{}", self.folder.path().join("locks.db").display())),
            ("Redis", self.redis.url()),
            ("PostgreSQL", SqlTestServer::url(&self.postgres, "")),
            ("MariaDB", SqlTestServer::url(&self.mariadb, "")),
        ]
    }

    /// How many statements or commands the server of this name has had; none of SQLite.
    async fn statements(&self, name: &str) -> Option<u64> {
        let number = |text: Option<String>| text.and_then(|text| text.parse().ok());
        match name {
            "Redis" => {
                let info = self.redis.text(&["INFO", "commandstats"]).await?;
                let calls = info.lines().filter_map(|line| {
                    let (name, calls) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                    let is_sent = SENT.iter().any(|sent| name.starts_with(sent));
                    calls.split(',').next()?.parse::<u64>().ok().filter(|_| is_sent)
                });
                Some(calls.sum())
            }
            "PostgreSQL" => {
                let text = "SELECT sum(xact_commit + xact_rollback)::text FROM pg_stat_database";
                number(self.postgres.ask(text).await.first()?.first()?.clone())
            }
            "MariaDB" => Some(self.mariadb.status("Questions").await),
            _ => None,
        }
    }
}

/// Measures all of it.
pub(crate) async fn run() -> Result<()> {
    println!("# The command\n");
    let stores = Stores::start().await?;
    measure::print_machine(&[("flock", &version("flock")?)]);
    times(&stores)?;
    memory(&stores)?;
    waiting(&stores).await
}

/// The time of whole processes, from the start to the end.
fn times(stores: &Stores) -> Result<()> {
    println!("## A command that does nothing\n");
    println!("{ROUNDS} runs of each, in turn: p50, p90, and p50 as a multiple of `flock`'s.\n");
    println!("| | p50, ms | p90, ms | × `flock` |\n|---|---|---|---|");
    let file = stores.folder.path().join("flock");
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(&file).arg("true");
        command
    };
    let mut sides: Vec<(String, Box<dyn Fn() -> Command + '_>)> = vec![
        ("`true`".to_owned(), Box::new(|| Command::new("true"))),
        ("`flock FILE true`".to_owned(), Box::new(flock)),
        ("`leasehold --version`".to_owned(), Box::new(|| leasehold("", &["--version"]))),
    ];
    for (name, url) in stores.urls() {
        let run = move || leasehold(&url, &["run", "k", "--", "true"]);
        sides.push((format!("`leasehold run k -- true`, {name}"), Box::new(run)));
    }
    let postgres = SqlTestServer::url(&stores.postgres, "");
    let psql = move || {
        let mut command = Command::new("psql");
        command.args(["-X", "-c", "SELECT 1"]).arg(&postgres);
        command
    };
    sides.push(("`psql -c 'SELECT 1'`".to_owned(), Box::new(psql)));
    let mut samples = vec![Vec::new(); sides.len()];
    for _ in 0..ROUNDS {
        for ((_, side), samples) in sides.iter().zip(&mut samples) {
            let begun = now();
            end(side())?;
            samples.push(now() - begun);
        }
    }
    let of_flock = percentile(&mut samples[1], 50);
    for ((name, _), samples) in sides.iter().zip(&mut samples) {
        let (p50, p90) = (percentile(samples, 50), percentile(samples, 90));
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let times = ratio(p50, of_flock);
        println!("| {name} | {:.2} | {:.2} | {times:.2} |", millis(p50), millis(p90));
    }
    println!();
    Ok(())
}

/// What a run that holds its lock has in memory.
fn memory(stores: &Stores) -> Result<()> {
    println!("## A lock that is held\n");
    println!(
        "Memory of its own (RssAnon), all that is mapped (VmRSS), and threads; of `leasehold` and of its shim.\n"
    );
    println!("| | `leasehold` | shim |\n|---|---|---|");
    for (name, url) in stores.urls() {
        let script = "echo held; cat";
        let mut command = leasehold(&url, &["run", "held", "--", "sh", "-c", script]);
        let mut holder =
            Held(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(io)?);
        let mut byte = [0];
        std::io::Read::read_exact(holder.0.stdout.as_mut().expect("a pipe"), &mut byte)
            .map_err(io)?;
        let own = holder.0.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let shim =
            children.map_err(io)?.trim().parse().map_err(|_| Error::unexpected("no shim"))?;
        println!("| {name} | {} | {} |", usage(own)?, usage(shim)?);
    }
    println!();
    Ok(())
}

fn usage(pid: u32) -> Result<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(io)?;
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?", |line| line.trim_matches([':', ' ', '\t'])).to_owned()
    };
    Ok(format!("{}, {}, {} threads", value("RssAnon"), value("VmRSS"), value("Threads")))
}

/// What ten waiting processes cost a server.
async fn waiting(stores: &Stores) -> Result<()> {
    println!("## {WAITERS} waiting processes\n");
    println!(
        "Statements per second (commands of Redis, transactions of PostgreSQL), of which the holder's renewals are a part: in the \
         first {} s, and in the {} s after.\n",
        SETTLING.as_secs(),
        COUNTED.as_secs()
    );
    println!("| | first | after |\n|---|---|---|");
    let clock = SystemClock::new();
    for (name, url) in stores.urls().into_iter().skip(1) {
        let start = |key: &str| {
            let mut command = leasehold(&url, &["run", key, "--", "sleep", "600"]);
            command.stdin(Stdio::null()).spawn().map(Held).map_err(io)
        };
        let _holder = start("waited")?;
        clock.sleep_until(now() + Duration::from_secs(1)).await;
        let count = async || stores.statements(name).await.unwrap_or_default();
        let (before, begun) = (count().await, now());
        let waiters: Vec<_> = (0..WAITERS).map(|_| start("waited")).collect::<Result<_>>()?;
        clock.sleep_until(begun + SETTLING).await;
        let settled = count().await;
        clock.sleep_until(begun + SETTLING + COUNTED).await;
        let ended = count().await;
        let rate = |count: u64, time: Duration| {
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / time.as_secs_f64()
        };
        let (first, after) = (rate(settled - before, SETTLING), rate(ended - settled, COUNTED));
        println!("| {name} | {first:.1} | {after:.1} |");
        drop(waiters);
    }
    println!();
    Ok(())
}

/// A process that ends with this.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        // Its shim kills what it runs.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The built command beside this program, on this store.
fn leasehold(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env("LEASEHOLD_STORE", url);
    command
}

fn program() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    this.with_file_name("leasehold")
}

/// Runs it to its end.
fn end(mut command: Command) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(|error| {
        Error::unexpected(format!(
            "{:?} does not start; build it: cargo build --release -p leasehold-cli",
            command.get_program()
        ))
        .with_source(error)
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::unexpected(format!("{command:?} ended with {status}"))),
    }
}

fn version(program: &str) -> Result<String> {
    let output = Command::new(program).arg("--version").output().map_err(io)?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(printed.rsplit(' ').next().unwrap_or_default().to_owned())
}
