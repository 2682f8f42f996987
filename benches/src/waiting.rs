//! What waiters cost a server while nothing happens.

use std::time::Duration;

use leasehold::Result;
use leasehold::store::{Clock as _, SystemClock};

use crate::measure::{float, now, or_few};

/// Waiters per row.
pub(crate) const WAITERS: u32 = or_few(100, 5);
/// How long before the count begins, and how long it lasts.
const SETTLING: Duration = or_few(Duration::from_secs(10), Duration::from_millis(100));
const COUNTED: Duration = or_few(Duration::from_secs(30), Duration::from_secs(1));

/// The head of a table of what [`Counts::end`] returns.
pub(crate) fn head() {
    println!("| | first 10 s, commands per second and waiter | after that, over 30 s |");
    println!("|---|---|---|");
}

/// A server's count of commands, and since when.
pub(crate) struct Counts<C> {
    commands: C,
    before: u64,
    start: Duration,
}

impl<F: Future<Output = Result<u64>>, C: Fn() -> F> Counts<C> {
    /// `commands` asks the server how many there have been.
    pub(crate) async fn start(commands: C) -> Result<Self> {
        let before = commands().await?;
        Ok(Self { commands, before, start: now() })
    }

    /// Waits for the end of the count, and describes it in a row.
    pub(crate) async fn end(self, name: &str) -> Result<String> {
        let clock = SystemClock::new();
        clock.sleep_until(self.start + SETTLING).await;
        let settled = (self.commands)().await?;
        clock.sleep_until(self.start + SETTLING + COUNTED).await;
        let ended = (self.commands)().await?;
        let each = |commands: u64, time: Duration| {
            let commands = float(usize::try_from(commands).unwrap_or(usize::MAX));
            commands / f64::from(WAITERS) / time.as_secs_f64()
        };
        let first = each(settled - self.before, SETTLING);
        let later = each(ended - settled, COUNTED);
        Ok(format!("| {name} | {first:.3} | {later:.3} |"))
    }
}
