//! The arguments of a script.

use std::borrow::Cow;

use leasehold_core::LeaseId;

/// One argument of a script.
#[derive(Debug)]
pub(crate) enum Argument<'a> {
    Bytes(Cow<'a, [u8]>),
    Number(u64),
}

impl Argument<'_> {
    /// Its length in bytes at most.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Number(_) => 20,
        }
    }
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes().into())
    }
}

impl From<String> for Argument<'_> {
    fn from(text: String) -> Self {
        Self::Bytes(text.into_bytes().into())
    }
}

impl From<u64> for Argument<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a LeaseId> for Argument<'a> {
    fn from(id: &'a LeaseId) -> Self {
        Self::Bytes(id.to_bytes())
    }
}
