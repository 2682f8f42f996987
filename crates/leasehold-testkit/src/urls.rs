//! URLs with mistakes.

use std::fmt::Debug;

use leasehold_core::{ErrorKind, Result};

/// Each URL is refused as invalid input, with these words and without the secret `hunter2`.
pub fn refuses<T: Debug>(parse: impl Fn(&str) -> Result<T>, urls: &[(&str, &str)]) {
    for (url, words) in urls {
        let error = parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
        let text = format!("{error} {error:?}");
        assert!(error.to_string().contains(words) && !text.contains("hunter2"), "{url}: {text}");
    }
}
