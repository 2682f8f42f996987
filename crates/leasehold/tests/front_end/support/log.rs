//! The log of the test process.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The logged lines with `text`, so far. The log is the whole process's: a test on another thread, without a subscriber,
/// would switch an event off for all.
pub(crate) fn logged(text: &'static str) -> impl Fn() -> Vec<String> {
    static LOG: OnceLock<Log> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("info,leasehold=debug")
            .with_ansi(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        log
    });
    let log = log.clone();
    move || {
        let written = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        written.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}
