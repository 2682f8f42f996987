//! Measures how long each step takes.

use std::time::{Duration, Instant};

use crate::table;

/// Measures how long a step takes.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "it measures the machine's own time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// How long each step took, in the order in which they ended.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<(String, Duration)>);

impl Times {
    /// Runs a step and notes how long it took.
    pub(crate) fn take<T>(&mut self, step: &str, work: impl FnOnce() -> T) -> T {
        let watch = Stopwatch::start();
        let done = work();
        self.0.push((step.to_owned(), watch.elapsed()));
        done
    }

    /// Adds the parts of the last step.
    pub(crate) fn within(&mut self, parts: impl IntoIterator<Item = (String, Duration)>) {
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        self.0.extend(parts.into_iter().map(|(name, took)| (format!("  {name}"), took)));
    }

    /// Shows the table.
    pub(crate) fn print(&self) {
        let rows: Vec<_> = self
            .0
            .iter()
            .map(|(step, took)| [step.clone(), format!("{:.0}", took.as_secs_f64())])
            .collect();
        table::print(["step", "seconds"], &rows);
    }
}
