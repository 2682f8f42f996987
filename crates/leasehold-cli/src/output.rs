//! Writing results to stdout.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Writes one line; returns false if the reader has gone, which is not a failure: it has seen enough.
pub(crate) fn line(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::unexpected(format!("stdout cannot be written: {error}"))),
    }
}

/// Writes one JSON object in a line; returns false if the reader has gone.
pub(crate) fn json(value: &impl Serialize) -> Result<bool, Failure> {
    line(&serde_json::to_string(value).expect("the value is text and numbers"))
}
