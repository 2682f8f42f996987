//! Real sentinels for tests.

use std::time::Duration;

use leasehold_conformance::{Failure, Process, Result, free_port};
use leasehold_redis::redis;
use tempfile::TempDir;

use super::{Server, ask};
use crate::directory::new_directory;

/// Three sentinels that watch one master; two of them decide.
pub struct Sentinels {
    pub ports: Vec<u16>,
    processes: Vec<Process>,
    _directories: Vec<TempDir>,
}

/// Their name for the master.
pub const SERVICE: &str = "locks";

impl Sentinels {
    /// Starts them and waits until they know each other and `replicas` replicas; they take the master for dead
    /// after `down_after` milliseconds.
    pub async fn watch(master: &Server, replicas: i64, down_after: u64) -> Result<Self> {
        let (mut ports, mut processes, mut directories) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let (port, directory) = (free_port()?, new_directory()?);
            let settings = format!(
                "port {port}\nbind 127.0.0.1\n\
                 sentinel monitor {SERVICE} 127.0.0.1 {} 2\n\
                 sentinel down-after-milliseconds {SERVICE} {down_after}\n\
                 sentinel failover-timeout {SERVICE} 5000\n",
                master.port()
            );
            std::fs::write(directory.path().join("sentinel.conf"), settings)?;
            let arguments = ["sentinel.conf", "--sentinel"];
            processes.push(Process::start("redis-server", arguments, directory.path())?);
            ports.push(port);
            directories.push(directory);
        }
        let this = Self { ports, processes, _directories: directories };
        for _ in 0..3_000 {
            let mut all = true;
            for port in &this.ports {
                all &= this.number_of(*port, "num-other-sentinels").await == Some(2)
                    && this.number_of(*port, "num-slaves").await == Some(replicas);
            }
            if all {
                return Ok(this);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Failure::new("the sentinels never came to know each other"))
    }

    /// A number that one sentinel reports about the master.
    async fn number_of(&self, port: u16, what: &str) -> Option<i64> {
        let url = format!("redis://127.0.0.1:{port}/");
        let reply = ask(&url, &["SENTINEL", "MASTER", SERVICE]).await.ok()?;
        let reply: Vec<String> = redis::from_redis_value(reply).ok()?;
        let at = reply.iter().position(|name| name == what)?;
        reply[at + 1].parse().ok()
    }

    /// Stops one, as SIGSTOP does.
    pub fn pause(&self, at: usize) {
        self.processes[at].pause().unwrap();
    }

    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }
}
