//! Real sentinels for tests.

use std::time::Duration;

use leasehold_conformance::{Failure, Result};
use leasehold_redis::redis;

use super::{Server, ask};
use crate::server_process::ServerProcess;

/// Three sentinels that watch one master; two of them decide.
pub struct Sentinels {
    pub ports: Vec<u16>,
    processes: Vec<ServerProcess>,
}

/// Their name for the master.
pub const SERVICE: &str = "locks";

impl Sentinels {
    /// Starts them and waits until they know each other and `replicas` replicas; they take the master for dead
    /// after `down_after` milliseconds.
    pub async fn watch(master: &Server, replicas: i64, down_after: u64) -> Result<Self> {
        let (mut ports, mut processes) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let process = ServerProcess::new()?;
            let port = process.port();
            let settings = format!(
                "port {port}\nbind 127.0.0.1\n\
                 sentinel monitor {SERVICE} 127.0.0.1 {} 2\n\
                 sentinel down-after-milliseconds {SERVICE} {down_after}\n\
                 sentinel failover-timeout {SERVICE} 5000\n",
                master.port()
            );
            std::fs::write(process.directory().join("sentinel.conf"), settings)?;
            let command = ["redis-server", "sentinel.conf", "--sentinel"].map(str::to_owned);
            let url = format!("redis://127.0.0.1:{port}/");
            process.run(&command, async || ask(&url, &["PING"]).await.is_ok()).await?;
            ports.push(port);
            processes.push(process);
        }
        let this = Self { ports, processes };
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
        self.processes[at].pause();
    }

    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }
}
