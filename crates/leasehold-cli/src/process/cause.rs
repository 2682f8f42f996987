//! Why a shim could not start anything, as its exit code.

use std::io;
use std::process::{ExitCode, ExitStatus};

use nix::errno::Errno;

/// The `errno` of a shim's failure to start, for [`failure`].
pub(crate) fn exit_code(error: &io::Error) -> ExitCode {
    error
        .raw_os_error()
        .and_then(|errno| u8::try_from(errno).ok())
        .unwrap_or(Errno::EIO as u8)
        .into()
}

/// Why a shim that ended with `status` could not start; `None` if it ended otherwise.
pub(crate) fn failure(status: ExitStatus) -> Option<io::Error> {
    status.code().filter(|errno| *errno != 0).map(io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn the_exit_code_shows_why_nothing_could_start() {
        let error = io::Error::from_raw_os_error(Errno::EMFILE as i32);
        assert_eq!(exit_code(&error), ExitCode::from(24));
        let errno = |status| failure(ExitStatus::from_raw(status)).map(|e| e.raw_os_error());
        assert_eq!(errno(24 << 8), Some(Some(Errno::EMFILE as i32)));
        assert_eq!((errno(0), errno(9)), (None, None));
    }
}
