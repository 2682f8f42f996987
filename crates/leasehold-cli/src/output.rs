//! Writing results to stdout.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Writes one line. A reader that has closed the pipe has seen enough: that is no failure.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::unexpected(format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON object in a line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(&serde_json::to_string(value).expect("the value is text and numbers"))
}
