//! The crate `distributed-lock`, whose drivers link another SQLite than ours: in a program of its own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use leasehold::{Error, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::measure::{IS_SMOKE, float, median, micros, percentile, ratio};
use crate::sides::Side;

/// What the peer lacks, for readers of the figures.
const LACKS: &str = "`distributed-lock` takes the server's own locks (`pg_advisory_lock`, `GET_LOCK`), each of which \
keeps a connection for itself until it is released. They write nothing to the disk, end with their connection, and have \
no terms, no fencing tokens, no record of the holder and no shared limit; they do not work behind a transaction pooler. \
It has a pool of 64 connections; 256 tasks would wait for each other.\n";

const ROUNDS: usize = 7;

/// `kind` is `postgres` or `mysql`; the first side is the store.
pub(crate) async fn run(kind: &str, url: &str, store: &Side) -> Result<()> {
    println!("## Beside `distributed-lock`\n\n{LACKS}");
    if IS_SMOKE {
        println!("Left out of a smoke run: its program needs OpenSSL's headers.\n");
        return Ok(());
    }
    println!("| tasks | | µs per pair | pairs/s | time as a multiple of the first |");
    println!("|---|---|---|---|---|");
    let mut peer = Peer::start(kind, url)?;
    for (tasks, pairs) in [(1, 500), (16, 100), (64, 50)] {
        store.time(tasks, 16).await?;
        peer.time(tasks, 16).await?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(store.time(tasks, pairs).await?);
            theirs.push(peer.time(tasks, pairs).await?);
        }
        let multiple =
            median(ours.iter().zip(&theirs).map(|(ours, theirs)| ratio(*theirs, *ours)).collect());
        for (name, times, multiple) in
            [(&*store.name, &mut ours, 1.0), ("`distributed-lock`", &mut theirs, multiple)]
        {
            let wall = percentile(times, 50);
            println!(
                "| {tasks} | {name} | {} | {:.0} | {multiple:.2} |",
                micros(wall / u32::try_from(pairs).unwrap_or(u32::MAX)),
                float(pairs * tasks) / wall.as_secs_f64(),
            );
        }
    }
    println!();
    Ok(())
}

/// The program that runs it. It ends with its input.
struct Peer {
    _program: Child,
    asks: ChildStdin,
    reported: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(kind: &str, url: &str) -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/Cargo.toml");
        let mut program = Command::new("cargo")
            .args(["run", "--quiet", "--release", "--manifest-path"])
            .arg(manifest)
            .args(["--", kind, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let asks = program.stdin.take().expect("it is piped");
        let reported = BufReader::new(program.stdout.take().expect("it is piped")).lines();
        Ok(Self { _program: program, asks, reported })
    }

    async fn time(&mut self, tasks: usize, pairs: usize) -> Result<Duration> {
        self.asks.write_all(format!("{tasks} {pairs}\n").as_bytes()).await.map_err(failed)?;
        let line = self.reported.next_line().await.map_err(failed)?;
        let nanos = line.and_then(|line| line.parse().ok());
        nanos.map(Duration::from_nanos).ok_or_else(|| {
            Error::unexpected("the program of benches/peers has failed; it needs OpenSSL's headers")
        })
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::unexpected("the program of benches/peers cannot be run").with_source(error)
}
